/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the bound is neither violated nor vacuous on real parts: over 4096 cells in real pools, honest kernels
 * stay below rho 1 and above 1e-3; dropping one key, scaling by 1.001 or swapping two heads goes above 1.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

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

/* The one query of the trace, ready to be attended over rows stored in real pools. */
static void rig_open(rig *r, const kvb_pool_type *pool, const kvb_kernel *kernel)
{
    char path[512], why[256];
    const uint64_t *fed;
    static uint32_t positions[CELLS];
    *r = (rig){.team = {1, run_here}};
    trace_write(path, sizeof path);
    assert_int_equal(kvb_trace_load(path, 0, &r->trace, why, sizeof why), 0);
    remove(path);
    assert_int_equal(kvb_values_open(r->trace, NULL, 0, NULL, NULL, &r->values, why, sizeof why), 0);
    kvb_oracle_options options = {.k_format = pool->format, .v_format = pool->format, .max_pairs = 1u << 20};
    assert_int_equal(kvb_oracle_open(r->trace, r->values, &options, &r->oracle, why, sizeof why), 0);
    assert_int_equal(r->oracle->n_rows, HEADS);

    kvb_model_facts facts = {1, HEADS, KV_HEADS, DIM, DIM};
    kvb_cache_options cache = {CELLS, CELLS, 1, 64, pool, pool, &r->allocator};
    const kvb_cache_type *type = &kvb_cache_contig;
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
    memcpy(r->q, kvb_values_rows(r->values, KVB_ROWS_Q, 0, FILLED), sizeof r->q);
    r->call = (kvb_call){.kernel = kernel,
                         .team = &r->team,
                         .n_heads = HEADS,
                         .n_kv_heads = KV_HEADS,
                         .scale = (float)r->trace->header.model.scale};
}

static void rig_close(rig *r)
{
    kvb_call_free(&r->call);
    r->cache->type->close(r->cache);
    assert_int_equal(r->allocator.current_bytes, 0);
    kvb_oracle_free(r->oracle);
    kvb_values_free(r->values);
    kvb_trace_free(r->trace);
}

/* rho of what the kernel makes of the rig as it stands. */
static double rho_of(rig *r)
{
    char why[256];
    kvb_diff diff = {0};
    kvb_arithmetic arithmetic;
    assert_int_equal(kvb_call_prepare(&r->call, &r->spec, r->q, 1, false, why, sizeof why), 0);
    assert_int_equal(kvb_call_run(&r->call, r->out, r->lse), 0);
    r->call.kernel->arithmetic(&r->call.args.problem, &arithmetic);
    for (size_t i = 0; i < r->oracle->n_rows; i++) {
        uint32_t h = r->oracle->rows[i].head;
        kvb_diff_row(&diff, &r->oracle->rows[i], DIM, &arithmetic, r->trace->header.model.scale, 0, KVB_F32,
                     r->out + h * DIM, &r->lse[h]);
    }
    return diff.rho;
}

static void drop_one_key(rig *r)
{
    static const uint32_t row_start[] = {0, 2};
    static const kvb_run runs[] = {{0, 1234}, {1235, CELLS}};
    r->spec.mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = runs};
}

static void scale_a_little(rig *r)
{
    r->call.scale *= 1.001f;
}

static void swap_two_heads(rig *r)
{
    float head[DIM];
    memcpy(head, r->q, sizeof head);
    memcpy(r->q, r->q + DIM, sizeof head);
    memcpy(r->q + DIM, head, sizeof head);
}

static void over_pools_and_kernels(void (*mutate)(rig *r), double above, double below)
{
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (size_t k = 0; kvb_builtin_kernels[k]; k++) {
            rig r;
            if (kvb_builtin_kernels[k]->flags & KVB_KERNEL_WITNESS)
                continue;
            rig_open(&r, kvb_builtin_pools[p], kvb_builtin_kernels[k]);
            if (mutate)
                mutate(&r);
            double rho = rho_of(&r);
            print_message("# %s, %s: rho %.3g\n", kvb_builtin_pools[p]->name, kvb_builtin_kernels[k]->name, rho);
            assert_true(rho > above && rho <= below);
            rig_close(&r);
        }
}

static void honest_kernels_pass(void **state)
{
    (void)state;
    over_pools_and_kernels(NULL, 1e-3, 1);
}

static void one_key_of_4096_dropped_fails(void **state)
{
    (void)state;
    over_pools_and_kernels(drop_one_key, 1, 1e9);
}

static void a_scale_off_by_a_thousandth_fails(void **state)
{
    (void)state;
    over_pools_and_kernels(scale_a_little, 1, 1e9);
}

static void two_heads_swapped_fail(void **state)
{
    (void)state;
    over_pools_and_kernels(swap_two_heads, 1, 1e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_kernels_pass),
        cmocka_unit_test(one_key_of_4096_dropped_fails),
        cmocka_unit_test(a_scale_off_by_a_thousandth_fails),
        cmocka_unit_test(two_heads_swapped_fail),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("sensitivity", tests, NULL, NULL);
}
