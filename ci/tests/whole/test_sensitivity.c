/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the bound is neither violated nor vacuous on real parts: over 4096 cells in real pools, honest kernels stay below
 * rho 1 and above 1e-3, and mistakes go above 1, small ones too: one key dropped, a window off by one, a softcap forgotten.
 * For layers with and without limits, with latent rows, and for a choice of formats that has every kind of scale, zero,
 * transform and residual cells in it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "caches/cache.h"
#include "caches/call.h"
#include "ci/tests/whole/parts.h"
#include "kernels/kernels.h"
#include "oracle/oracle.h"

enum { CELLS = 4096, LAST = CELLS - 1, LAYERS = 3, HEADS = 8, KV_HEADS = 2, DIM = 64, WINDOW = 512, SINKS = 2 };
enum { PLAIN, LIMITED, LATENT }; /* layers, each of a group of its own */

static const char model_text[] =
    "{'kv_cache.schema_version':2,'kv_cache.layers':3,'groups':["
    "{'layers':[0],'heads':8,'kv_heads':2,'k_dim':64,'v_dim':64},"
    "{'layers':[1],'heads':8,'kv_heads':2,'k_dim':64,'v_dim':64,'scale':0.15,'window':512,'sinks':2,'softcap':10,"
    "'sink_logits':[1,3,2.5,0.5,2,1.5,3.5,0]},"
    "{'layers':[2],'heads':4,'kv_heads':1,'k_dim':64,'v_dim':48,'latent':true}]}";
static const char events_text[] = "{'fill':{'seq':0,'n':4095}}\n{'step':{'pos':[4095],'seq':[0]}}";

typedef struct rig {
    kvb_trace *trace;
    kvb_values *values;
    kvb_oracle *oracle;
    kvb_allocator allocator;
    kvb_cache *cache;
    kvb_attend_spec spec[LAYERS];
    kvb_call call;
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

/* Largest magnitudes of two KV heads, in round numbers: what head scales are made from. */
static const float amax[KV_HEADS] = {5, 4.5f};
static const float *const layers_amax[LAYERS] = {amax, amax, amax};

/* The one query of the trace, ready to be attended over rows stored in real pools. */
static void rig_open(rig *r, const kvb_pool_type *k_pool, const kvb_pool_type *v_pool)
{
    char why[256];
    const uint64_t *fed;
    static uint32_t positions[CELLS];
    *r = (rig){.trace = trace_of(model_text, events_text)};
    assert_int_equal(kvb_values_open(r->trace, NULL, 0, NULL, NULL, &r->values, why, sizeof why), 0);
    kvb_oracle_options options = {.k_format = k_pool->format,
                                  .v_format = v_pool->format,
                                  .k_amax = layers_amax,
                                  .v_amax = layers_amax,
                                  .max_pairs = 1u << 24};
    assert_int_equal(kvb_oracle_open(r->trace, r->values, &options, &r->oracle, why, sizeof why), 0);
    assert_int_equal(r->oracle->n_rows, r->oracle->total_rows);

    kvb_cache_options cache = {.capacity = CELLS,
                               .seq_capacity = CELLS,
                               .max_seqs = 1,
                               .min_chunk = 64,
                               .k_pool = k_pool,
                               .v_pool = v_pool,
                               .k_amax = layers_amax,
                               .v_amax = layers_amax,
                               .allocator = &r->allocator};
    assert_int_equal(kvb_cache_open(&kvb_cache_contiguous, &r->trace->header.model, &cache, &r->cache, why, sizeof why),
                     0);
    for (uint32_t n = LAST, from = 0; from < CELLS; from += n, n = 1) {
        for (uint32_t i = 0; i < n; i++)
            positions[i] = from + i;
        assert_int_equal(kvb_cache_begin_step(r->cache, NULL, n), 0);
        assert_int_equal(kvb_cache_feed(r->cache, &fed), n);
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            assert_int_equal(kvb_cache_update_and_fetch(
                                 r->cache, layer, positions, kvb_values_rows(r->values, KVB_ROWS_K, layer, from),
                                 kvb_values_rows(r->values, KVB_ROWS_V, layer, from), n, &r->spec[layer]),
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

/* ---- honest, and mistakes -------------------------------------------------------------------------------------- */

/* What a kernel is handed, to be spoilt. */
typedef struct attempt {
    const kvb_model *model;
    kvb_attend_spec spec;
    kvb_group group; /* the spec's */
    float q[HEADS * DIM];
    float sink_logits[HEADS];
    kvb_run runs[3];
    uint32_t first_channel; /* of V in an output row */
} attempt;

static void nothing(attempt *a)
{
    (void)a;
}

/* The runs [0, a) [b, c) [d, CELLS) in place of the mask. */
static void see(attempt *a, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth)
{
    static const uint32_t row_start[] = {0, 3};
    a->runs[0] = (kvb_run){0, first};
    a->runs[1] = (kvb_run){second, third};
    a->runs[2] = (kvb_run){fourth, CELLS};
    a->spec.mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = a->runs};
}

static void one_key_dropped(attempt *a)
{
    see(a, 1234, 1235, 2000, 2000);
}

static void itself_not_seen(attempt *a)
{
    see(a, 1000, 1000, 2000, 2000);
    a->runs[2].end--;
}

static void window_one_short(attempt *a)
{
    see(a, SINKS, CELLS - WINDOW + 1, CELLS - 1, CELLS - 1);
}

static void window_one_long(attempt *a)
{
    see(a, SINKS, CELLS - WINDOW - 1, CELLS - 1, CELLS - 1);
}

static void sink_not_seen(attempt *a)
{
    see(a, SINKS - 1, CELLS - WINDOW, CELLS - 1, CELLS - 1);
}

static void scaled_by_1001(attempt *a)
{
    a->group.scale *= 1.001;
}

static void scale_of_another_group(attempt *a)
{
    a->group.scale = a->model->groups[PLAIN].scale;
}

static void heads_swapped(attempt *a)
{
    float head[DIM];
    memcpy(head, a->q, sizeof head);
    memcpy(a->q, a->q + DIM, sizeof head);
    memcpy(a->q + DIM, head, sizeof head);
}

static void softcap_forgotten(attempt *a)
{
    a->group.softcap = 0;
}

static void sink_logit_forgotten(attempt *a)
{
    a->group.sink_logits = NULL;
}

static void sink_logits_of_other_heads(attempt *a)
{
    for (uint32_t h = 0; h < HEADS; h++)
        a->sink_logits[h] = a->model->groups[LIMITED].sink_logits[HEADS - 1 - h];
    a->group.sink_logits = a->sink_logits;
}

/* The whole K row is attended, of which the first v_dim channels are V; the last ones are not. */
static void v_to_the_end_of_k(attempt *a)
{
    a->spec.v.dim = a->group.v_dim = a->group.k_dim;
}

static void v_taken_past_v_dim(attempt *a)
{
    v_to_the_end_of_k(a);
    a->first_channel = 1;
}

/* A gross mistake is seen through what integers of 8 bits, bf16 and f16 round. */
typedef enum degree { HONEST, FINE, GROSS } degree;

typedef struct way {
    const char *name;
    uint32_t layer;
    void (*make)(attempt *a);
    degree degree;
} way;

static const way ways[] = {
    {"plain", PLAIN, nothing, HONEST},
    {"key dropped", PLAIN, one_key_dropped, FINE},
    {"itself not seen", PLAIN, itself_not_seen, FINE},
    {"scale * 1.001", PLAIN, scaled_by_1001, FINE},
    {"heads swapped", PLAIN, heads_swapped, GROSS},
    {"limited", LIMITED, nothing, HONEST},
    {"window one short", LIMITED, window_one_short, FINE},
    {"window one long", LIMITED, window_one_long, FINE},
    {"sink not seen", LIMITED, sink_not_seen, FINE},
    {"softcap forgotten", LIMITED, softcap_forgotten, FINE},
    {"sink logit forgotten", LIMITED, sink_logit_forgotten, FINE},
    {"sink logits of other heads", LIMITED, sink_logits_of_other_heads, FINE},
    {"another group's scale", LIMITED, scale_of_another_group, GROSS},
    {"heads swapped", LIMITED, heads_swapped, GROSS},
    {"latent", LATENT, nothing, HONEST},
    {"latent, V longer", LATENT, v_to_the_end_of_k, HONEST},
    {"V past v_dim", LATENT, v_taken_past_v_dim, GROSS},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* rho of what a kernel makes of it; -1: it does not read these rows. */
static double rho_of(rig *r, const kvb_kernel *kernel, const way *w)
{
    const kvb_group *group = r->spec[w->layer].group;
    static float out[HEADS * DIM], lse[HEADS];
    char why[256];
    size_t n;
    kvb_diff diff = {0};
    kvb_arithmetic arithmetic;
    attempt a = {.model = &r->trace->header.model, .spec = r->spec[w->layer], .group = *group};
    a.spec.group = &a.group;
    a.spec.generation = 0; /* no other's mask */
    memcpy(a.q, kvb_values_rows(r->values, KVB_ROWS_Q, w->layer, LAST), group->heads * DIM * sizeof *a.q);
    w->make(&a);
    r->call.kernel = kernel;
    r->call.team = &team_of_one;
    r->call.no_staging = true;
    int rc = kvb_call_prepare(&r->call, &a.spec, a.q, 1, why, sizeof why);
    if (rc == -ENOTSUP)
        return -1;
    assert_int_equal(rc, 0);
    assert_int_equal(kvb_call_run(&r->call, out, lse), 0);
    kvb_call_arithmetic(&r->call, &arithmetic);
    const kvb_expect *rows = kvb_oracle_rows(r->oracle, 1, w->layer, &n);
    assert_int_equal(n, group->heads);
    for (uint32_t h = 0; h < n; h++) {
        const kvb_attend_spec *honest = &r->spec[w->layer];
        kvb_expect expect = rows[h];
        if (kvb_oracle_reads_views(r->oracle))
            assert_int_equal(
                kvb_oracle_solve_views(r->oracle, &rows[h], &honest->k, &honest->v, &honest->mask, 1, 0, &expect), 0);
        kvb_diff_row(&diff, &expect, group->v_dim, &arithmetic, group->scale, (double)group->softcap, KVB_F32,
                     out + h * a.group.v_dim + a.first_channel, &lse[h]);
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
        char why[256];
        if (kernel->flags & KVB_KERNEL_WITNESS || (kernel->available && !kernel->available(why, sizeof why)))
            continue;
        bool coarse = !strncmp(kernel->name, "flash-", 6);
        double rho, honest = 0;
        for (const way *w = ways; w < ways + WAYS; w++) {
            rho = rho_of(&r, kernel, w);
            if (rho < 0)
                continue;
            print_message("# %s, %s, %s: %s %.3g\n", pair[0], pair[1], kernel->name, w->name, rho);
            if (w->degree == HONEST) {
                assert_true(rho <= 1 && rho > (coarse ? 0 : 1e-3));
                honest = rho;
            } else if (coarse) {
                assert_true(w->degree != GROSS || rho > 50 * honest);
            } else {
                assert_true(rho > 1);
            }
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
