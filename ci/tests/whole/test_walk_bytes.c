/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the traffic model counts the bytes that are really read. For each query and KV head the reference kernel
 * reads rows by kvb_row_read(), which the linker wraps. The test counts each row as often as query heads share it. The
 * sum must equal bytes_walk to the byte, for every cache and for groups of unlike layers. The pools of this test store
 * no scales, or store scales beside the codes or among them. Where rows share scales, a row has no whole number of bytes,
 * so the test leaves out these formats.
 */
#include "ci/tests/tests.h"
#include "ci/tests/whole/parts.h"
#include "harness/replay/replay.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"

static uint64_t walked;  /* bytes of the rows read so far, by each query head */
static uint32_t sharing; /* query heads for which this call decodes a row once */

static int attend(const kvb_attend *args)
{
    sharing = args->problem.n_heads / args->problem.n_kv_heads;
    assert_true(sharing <= KVB_REFERENCE_HEADS || sharing % KVB_REFERENCE_HEADS == 0);
    sharing = sharing < KVB_REFERENCE_HEADS ? sharing : KVB_REFERENCE_HEADS;
    return kvb_kernel_reference.attend(args);
}

const float *__real_kvb_row_read(const kvb_view *view, uint32_t h, uint32_t c, float *row);
const float *__wrap_kvb_row_read(const kvb_view *view, uint32_t h, uint32_t c, float *row);
const float *__wrap_kvb_row_read(const kvb_view *view, uint32_t h, uint32_t c, float *row)
{
    assert_int_equal(view->format->residual_cells, 0);
    walked += sharing * (view->cell_stride + view->scale_cell_stride + view->zero_cell_stride); /* rows without gaps */
    return __real_kvb_row_read(view, h, c, row);
}

/* Replays the trace and frees it. times: how often a walk of the reference kernel reads the bytes of a cell. */
static void compare(kvb_trace *trace, const kvb_cache_type *cache, const kvb_pool_type *pool, uint64_t times)
{
    const kvb_model *m = &trace->header.model;
    kvb_kernel kernel = kvb_kernel_reference;
    kvb_values *values;
    kvb_oracle *oracle;
    kvb_result result;
    kvb_replay_place place = {0};
    kvb_own_counts counts = {0};
    double shared = INFINITY; /* fewest query heads of a KV head */
    char why[512];
    if (!kvb_replay_fits(trace, cache, why, sizeof why)) {
        kvb_trace_free(trace);
        return;
    }
    assert_int_equal(kvb_values_open(trace, NULL, 0, NULL, NULL, &values, why, sizeof why), 0);
    kvb_oracle_options check = {.k_format = pool->format, .v_format = pool->format, .max_pairs = 10000};
    assert_int_equal(kvb_oracle_open(trace, values, &check, &oracle, why, sizeof why), 0);
    kvb_knobs knobs = kvb_knobs_usual();
    knobs.max_pairs = UINT64_MAX;
    knobs.no_guard = true;
    kernel.attend = attend;
    kvb_replay_options options = {
        .trace = trace,
        .values = values,
        .oracle = oracle,
        .cache = cache,
        .k_pool = pool,
        .v_pool = pool,
        .kernel = &kernel,
        .team = &team_of_one,
        .min_chunk = 64,
        .knobs = &knobs,
        .peak_gflop_per_s = NAN,
        .counts = &counts,
        .untimed = true, /* one pass */
    };
    kvb_result_init(&result);
    walked = 0;
    kvb_checks_off = UINT32_C(1) << KVB_CHECK_POISON; /* it would make additional calls */
    assert_int_equal(kvb_replay_run(&options, &place, &result), 0);
    if (result.status != KVB_STATUS_PASS)
        fail_msg("%s, %s, %s: %s", trace->header.name, cache->name, pool->name, result.reason);
    assert_true(walked > 0);
    assert_int_equal(walked, times * (uint64_t)result.traffic.bytes_walk);
    /* a walk reads each unique byte at least once for each query head that shares it */
    for (uint32_t g = 0; g < m->n_groups; g++)
        shared = fmin(shared, (double)m->groups[g].heads / m->groups[g].kv_heads);
    assert_true(result.traffic.bytes_read * shared <= result.traffic.bytes_walk);
    kvb_oracle_free(oracle);
    kvb_values_free(values);
    kvb_trace_free(trace);
}

static void over(const char *path)
{
    static const char *const pools[] = {"f32", "f16", "e4m3-head", "int8-asym", "nvfp4"};
    for (size_t c = 0; kvb_builtin_caches[c]; c++) /* recompute, the first, walks the most: two pools are enough */
        for (size_t p = 0; p < (c ? sizeof pools / sizeof *pools : 2); p++)
            compare(trace_at(path), kvb_builtin_caches[c], pool_named(pools[p]), 1);
}

TEST(recorded)
{
    over("workloads/recorded/plain-decode.jsonl");
    over("workloads/recorded/agent-fork.jsonl");
    over("workloads/recorded/eagle-tree.jsonl");
}

/* Rows of 128 channels: blocks with scales inside, groups of channels, codes of 3 bits. */
TEST(long_rows)
{
    static const char *const pools[] = {"q8_0", "a4g64", "tq3"};
    for (size_t p = 0; p < sizeof pools / sizeof *pools; p++)
        compare(trace_at("workloads/recorded/plain-decode-8x128.jsonl"), &kvb_cache_contiguous, pool_named(pools[p]),
                1);
}

#define EVENTS                                                                                                         \
    "{'prefill':{'seq':0,'from':0,'n':20}}\n{'step':{'pos':[20],'seq':[0]}}\n{'fill':{'seq':0,'n':9}}\n"               \
    "{'step':{'pos':[30,31],'seq':[0,0]}}"

/* Traffic is summed over groups with rows of different sizes and different visible cells. */
TEST(groups_of_unlike_layers)
{
    static const char model[] =
        "{'kv_cache.schema_version':2,'kv_cache.layers':6,'groups':["
        "{'layers':[0,3],'heads':4,'kv_heads':2,'k_dim':16,'v_dim':32,'window':8,'sinks':2},"
        "{'layers':[1,2,5],'heads':6,'kv_heads':1,'k_dim':64,'v_dim':16,'softcap':5,'sink_logits':[0,1,2,3,4,5]},"
        "{'layers':[4],'heads':2,'kv_heads':2,'k_dim':32,'v_dim':32,'chunk':8}]}";
    static const char *const pools[] = {"f32", "bf16", "int8-asym", "nvfp4"};
    for (size_t c = 0; kvb_builtin_caches[c]; c++) {
        for (size_t p = 0; p < sizeof pools / sizeof *pools; p++)
            compare(trace_of(model, EVENTS), kvb_builtin_caches[c], pool_named(pools[p]), 1);
        compare(trace_at("workloads/recorded/sliding-window.jsonl"), kvb_builtin_caches[c], pool_named("f16"), 1);
    }
}

/* The reference kernel reads a latent row twice, for K and for V. */
TEST(latent_rows)
{
    static const char model[] = "{'kv_cache.schema_version':2,'kv_cache.layers':2,'groups':["
                                "{'layers':[0,1],'heads':4,'kv_heads':1,'k_dim':64,'v_dim':48,'latent':true}]}";
    static const char *const pools[] = {"f16", "int8"};
    for (size_t c = 0; kvb_builtin_caches[c]; c++)
        for (size_t p = 0; p < sizeof pools / sizeof *pools; p++)
            compare(trace_of(model, EVENTS), kvb_builtin_caches[c], pool_named(pools[p]), 2);
}
