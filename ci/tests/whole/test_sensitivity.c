/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the bound is neither violated nor vacuous on real parts: over 4096 cells in real pools, honest kernels
 * stay below rho 1 and above 1e-3; dropping one key, scaling by 1.001 or swapping two heads goes above 1. For a choice
 * of formats that has every kind of scale, zero, transform and window in it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/cache.h"
#include "caches/call.h"
#include "kernels/kernels.h"
#include "oracle/oracle.h"

enum { CELLS = 4096, FILLED = CELLS - 1, HEADS = 8, KV_HEADS = 2, DIM = 64 };

static const char trace_text[] =
    "{\"kvbench_trace\":1,\"name\":\"t\",\"source\":\"test\",\"model\":{\"kv_cache.schema_version\":1,"
    "\"kv_cache.layers\":1,\"kv_cache.heads\":8,\"kv_cache.kv_heads\":2,\"kv_cache.k_dim\":64,\"kv_cache.v_dim\":64},"
    "\"values\":{\"profile\":\"gaussian\",\"seed\":5}}\n{\"fill\":{\"seq\":0,\"n\":4095}}\n"
    "{\"step\":{\"pos\":[4095],\"seq\":[0]}}\n";

typedef struct rig {
    kvb_trace *trace;
    kvb_values *values;
    kvb_oracle *oracle;
    kvb_allocator allocator;
    kvb_cache *cache;
    kvb_attend_spec spec;
    kvb_call call;
    kvb_team team;
    float q[HEADS * DIM], out[HEADS * DIM], lse[HEADS];
} rig;

/* Formats of K and V. */
static const char *const pairs[][2] = {
    {"f32", "f32"},
    {"f16", "f16"},
    {"bf16", "bf16"},
    {"e4m3-token", "e5m2"},
    {"e4m3-head", "e4m3"},
    {"int8", "int8-asym"},
    {"int8+had", "int8-asym+had"},
    {"q8_0", "q5_1"},
    {"q4_1+had", "iq4_nl"},
    {"a8g64", "q8_0"},
    {"a8g64", "a4g64+had"},
    {"a4g32", "a2g32"},
    {"kivi4-k", "kivi4-v"},
    {"kivi2-k+had", "kivi2-v"},
    {"mxfp4", "nvfp4"},
    {"nvfp4+had", "mxfp4+had"},
    {"tq4", "tq3"},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* Largest magnitudes of the two KV heads, in round numbers: what head scales are made from. */
static const float amax[KV_HEADS] = {5, 4.5f};

static void run_here(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    part(ctx, 0, team->n);
}

static void trace_write(char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/kvb-sensitivity-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    fputs(trace_text, f);
    fclose(f);
}

static const kvb_pool_type *pool_named(const char *name)
{
    for (size_t p = 0; kvb_builtin_pools[p]; p++) {
        const kvb_pool_type *pool = kvb_builtin_pools[p];
        if (strcmp(pool->name, name) == 0)
            return pool;
        if (pool->rotated && strcmp(pool->rotated->name, name) == 0)
            return pool->rotated;
    }
    fail_msg("there is no pool '%s'", name);
    return NULL;
}

/* The one query of the trace, ready to be attended over rows stored in real pools. */
static void rig_open(rig *r, const kvb_pool_type *k_pool, const kvb_pool_type *v_pool)
{
    char path[512], why[256];
    const uint64_t *fed;
    static uint32_t positions[CELLS];
    *r = (rig){.team = {1, run_here}};
    trace_write(path, sizeof path);
    assert_int_equal(kvb_trace_load(path, 0, &r->trace, why, sizeof why), 0);
    remove(path);
    assert_int_equal(kvb_values_open(r->trace, NULL, 0, NULL, NULL, &r->values, why, sizeof why), 0);
    kvb_oracle_options options = {
        .k_format = k_pool->format, .v_format = v_pool->format, .k_amax = amax, .v_amax = amax, .max_pairs = 1u << 20};
    assert_int_equal(kvb_oracle_open(r->trace, r->values, &options, &r->oracle, why, sizeof why), 0);
    assert_int_equal(r->oracle->n_rows, HEADS);

    kvb_model_facts facts = {1, HEADS, KV_HEADS, DIM, DIM};
    kvb_cache_options cache = {.capacity = CELLS,
                               .seq_capacity = CELLS,
                               .max_seqs = 1,
                               .min_chunk = 64,
                               .k_pool = k_pool,
                               .v_pool = v_pool,
                               .k_amax = amax,
                               .v_amax = amax,
                               .allocator = &r->allocator};
    const kvb_cache_type *type = &kvb_cache_contiguous;
    assert_int_equal(type->open(type, &facts, &cache, &r->cache, why, sizeof why), 0);
    for (uint32_t n = FILLED, from = 0; from < CELLS; from += n, n = 1) {
        for (uint32_t i = 0; i < n; i++)
            positions[i] = from + i;
        assert_int_equal(type->base->begin_step(r->cache, n), 0);
        assert_int_equal(type->bytes->feed(r->cache, &fed), n);
        assert_int_equal(type->bytes->update_and_fetch(r->cache, 0, positions,
                                                       kvb_values_rows(r->values, KVB_ROWS_K, 0, from),
                                                       kvb_values_rows(r->values, KVB_ROWS_V, 0, from), n, &r->spec),
                         0);
    }
}

static void rig_close(rig *r)
{
    kvb_call_free(&r->call);
    kvb_cache_close(r->cache);
    assert_int_equal(r->allocator.current_bytes, 0);
    kvb_oracle_free(r->oracle);
    kvb_values_free(r->values);
    kvb_trace_free(r->trace);
}

/* ---- honest, and three mistakes ------------------------------------------------------------------------------- */

static void nothing(rig *r, kvb_attend_spec *spec)
{
    (void)r, (void)spec;
}

static void drop_one_key(rig *r, kvb_attend_spec *spec)
{
    static const uint32_t row_start[] = {0, 2};
    static const kvb_run runs[] = {{0, 1234}, {1235, CELLS}};
    (void)r;
    spec->mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = runs};
}

static void scale_a_little(rig *r, kvb_attend_spec *spec)
{
    (void)spec;
    r->call.scale *= 1.001f;
}

static void swap_two_heads(rig *r, kvb_attend_spec *spec)
{
    float head[DIM];
    (void)spec;
    memcpy(head, r->q, sizeof head);
    memcpy(r->q, r->q + DIM, sizeof head);
    memcpy(r->q + DIM, head, sizeof head);
}

static const struct {
    void (*make)(rig *r, kvb_attend_spec *spec);
    double above, most;
} cases[] = {{nothing, 1e-3, 1}, {drop_one_key, 1, 1e9}, {scale_a_little, 1, 1e9}, {swap_two_heads, 1, 1e9}};
enum { CASES = sizeof cases / sizeof *cases };

/* rho of what a kernel makes of the rig with a mistake in it. */
static double rho_of(rig *r, const kvb_kernel *kernel, void (*make)(rig *r, kvb_attend_spec *spec))
{
    char why[256];
    kvb_diff diff = {0};
    kvb_arithmetic arithmetic;
    kvb_attend_spec spec = r->spec;
    r->call.kernel = kernel;
    r->call.team = &r->team;
    r->call.n_heads = HEADS;
    r->call.n_kv_heads = KV_HEADS;
    r->call.scale = (float)r->trace->header.model.scale;
    memcpy(r->q, kvb_values_rows(r->values, KVB_ROWS_Q, 0, FILLED), sizeof r->q);
    make(r, &spec);
    r->call.no_staging = true;
    int rc = kvb_call_prepare(&r->call, &spec, r->q, 1, false, why, sizeof why);
    if (rc == -ENOTSUP) /* some kernels take no floats */
        return -1;
    assert_int_equal(rc, 0);
    assert_int_equal(kvb_call_run(&r->call, r->out, r->lse), 0);
    kernel->arithmetic(&r->call.args.problem, &arithmetic);
    for (size_t i = 0; i < r->oracle->n_rows; i++) {
        kvb_expect expect = r->oracle->rows[i];
        uint32_t h = expect.head;
        if (kvb_oracle_reads_views(r->oracle))
            assert_int_equal(kvb_oracle_solve_views(r->oracle, &r->oracle->rows[i], &r->spec.k, &r->spec.v,
                                                    &r->spec.mask, 1, 0, &expect),
                             0);
        kvb_diff_row(&diff, &expect, DIM, &arithmetic, r->trace->header.model.scale, 0, KVB_F32, r->out + h * DIM,
                     &r->lse[h]);
    }
    return diff.rho;
}

static void kernels_over_a_pair(void **state)
{
    const char *const *pair = *state;
    rig r;
    rig_open(&r, pool_named(pair[0]), pool_named(pair[1]));
    for (size_t k = 0; kvb_builtin_kernels[k]; k++) {
        const kvb_kernel *kernel = kvb_builtin_kernels[k];
        double rho[CASES];
        char why[256];
        if (kernel->flags & KVB_KERNEL_WITNESS || (kernel->available && !kernel->available(why, sizeof why)))
            continue;
        for (size_t c = 0; c < CASES; c++)
            rho[c] = rho_of(&r, kernel, cases[c].make);
        if (rho[0] < 0) /* it does not read these rows */
            continue;
        print_message("# %s, %s, %s: rho %.3g; key dropped %.3g, scale * 1.001 %.3g, heads swapped %.3g\n", pair[0],
                      pair[1], kernel->name, rho[0], rho[1], rho[2], rho[3]);
        for (size_t c = 0; c < CASES; c++) {
            /* q in 8 bits, or products of bf16 or f16, hide what is smaller than their rounding */
            bool coarse = !strncmp(kernel->name, "flash-", 6);
            assert_true(rho[c] > (coarse ? c == CASES - 1 ? 50 * rho[0] : 0 : cases[c].above) &&
                        rho[c] <= cases[c].most);
        }
    }
    rig_close(&r);
}

int main(void)
{
    struct CMUnitTest tests[PAIRS];
    char names[PAIRS][64];
    for (size_t p = 0; p < PAIRS; p++) {
        snprintf(names[p], sizeof names[p], "k_%s_v_%s", pairs[p][0], pairs[p][1]);
        tests[p] = (struct CMUnitTest){
            .name = names[p], .test_func = kernels_over_a_pair, .initial_state = (void *)(uintptr_t)pairs[p]};
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("sensitivity", tests, NULL, NULL);
}
