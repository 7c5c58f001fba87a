/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the traffic model's bytes are what is really read: the reference kernel walks the rows for each query and
 * query head; every row it reads is counted (kvb_row_read is wrapped by the linker), and the sum equals bytes_walk to
 * the byte, for every cache, for pools of each kind: with and without scales and zeros beside the codes, or inside. (Rows
 * that share scales with others have no whole number of bytes: not for those.)
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/replay/replay.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"

static uint64_t walked; /* bytes of rows read */

const float *__real_kvb_row_read(const kvb_view *view, uint32_t h, uint32_t c, float *row);
const float *__wrap_kvb_row_read(const kvb_view *view, uint32_t h, uint32_t c, float *row);
const float *__wrap_kvb_row_read(const kvb_view *view, uint32_t h, uint32_t c, float *row)
{
    assert_int_equal(view->format->residual_cells, 0);
    walked += view->cell_stride + view->scale_cell_stride + view->zero_cell_stride; /* rows lie without gaps */
    return __real_kvb_row_read(view, h, c, row);
}

static void run_here(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    part(ctx, 0, team->n);
}

static const kvb_pool_type *pool_named(const char *name)
{
    for (size_t i = 0; kvb_builtin_pools[i]; i++)
        if (!strcmp(kvb_builtin_pools[i]->name, name))
            return kvb_builtin_pools[i];
    fail_msg("no pool %s", name);
    return NULL;
}

static void compare(const char *path, const kvb_cache_type *cache, const kvb_pool_type *pool)
{
    static const kvb_team team = {1, run_here};
    kvb_trace *trace;
    kvb_values *values;
    kvb_oracle *oracle;
    kvb_result result;
    kvb_replay_place place = {0};
    kvb_own_counts counts = {0};
    char why[512];
    assert_int_equal(kvb_trace_load(path, 0, &trace, why, sizeof why), 0);
    if (!kvb_replay_fits(&trace->needs, cache, why, sizeof why)) {
        kvb_trace_free(trace);
        return;
    }
    assert_int_equal(kvb_values_open(trace, NULL, 0, NULL, NULL, &values, why, sizeof why), 0);
    kvb_oracle_options check = {.k_format = pool->format, .v_format = pool->format, .max_pairs = 10000};
    assert_int_equal(kvb_oracle_open(trace, values, &check, &oracle, why, sizeof why), 0);
    kvb_replay_options options = {
        .trace = trace,
        .values = values,
        .oracle = oracle,
        .cache = cache,
        .k_pool = pool,
        .v_pool = pool,
        .kernel = &kvb_kernel_reference,
        .team = &team,
        .min_chunk = 64,
        .max_pairs = UINT64_MAX,
        .peak_gflop_per_s = NAN,
        .counts = &counts,
    };
    kvb_result_init(&result);
    walked = 0;
    assert_int_equal(kvb_replay_run(&options, &place, &result), 0);
    if (result.status != KVB_STATUS_PASS)
        fail_msg("%s, %s, %s: %s", path, cache->name, pool->name, result.reason);
    assert_int_equal(result.time.passes, 1);
    assert_true(walked > 0);
    assert_int_equal(walked, (uint64_t)result.traffic.bytes_walk);
    /* the model says each unique byte is read at least once by a walk, for each query head that shares it */
    const kvb_trace_model *m = &trace->header.model;
    assert_true(result.traffic.bytes_read * m->heads / m->kv_heads <= result.traffic.bytes_walk);
    kvb_oracle_free(oracle);
    kvb_values_free(values);
    kvb_trace_free(trace);
}

static void over(const char *path)
{
    static const char *const pools[] = {"f32", "f16", "e4m3-head", "int8-asym", "nvfp4"};
    for (size_t c = 0; kvb_builtin_caches[c]; c++) /* recompute, the first, walks the most: two will do */
        for (size_t p = 0; p < (c ? sizeof pools / sizeof *pools : 2); p++)
            compare(path, kvb_builtin_caches[c], pool_named(pools[p]));
}

static void decode_and_prefill(void **state)
{
    (void)state;
    over("workloads/recorded/plain-decode.jsonl");
}

/* Rows of 128 channels: blocks with scales state, groups of channels, codes of 3 bits. */
static void long_rows(void **state)
{
    static const char *const pools[] = {"q8_0", "a4g64", "tq3"};
    (void)state;
    for (size_t p = 0; p < sizeof pools / sizeof *pools; p++)
        compare("workloads/recorded/plain-decode-8x128.jsonl", kvb_builtin_caches[2], pool_named(pools[p]));
}

static void forks(void **state)
{
    (void)state;
    over("workloads/recorded/agent-fork.jsonl");
}

static void trees(void **state)
{
    (void)state;
    over("workloads/recorded/eagle-tree.jsonl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_and_prefill),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(forks),
        cmocka_unit_test(trees),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("walk bytes", tests, NULL, NULL);
}
