/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries each kernel that rounds q, over every format that it takes and at every level of instruction sets. Shows that
 * attend() multiplies what round_query() says, that this is as near q as the kernel declares, and that flash-int8 says
 * the same at every level. Each query sees one cell, so its log-sum-exp is the scaled product of q and K, but for the
 * roundings of that sum. Rows of q are plain, tiny, huge, 0, or have an outlier.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "ci/tests/kernels/levels.h"
#include "ci/tests/whole/parts.h"
#include "kernels/kernels.h"

enum { CELLS = 8, KV_HEADS = 2, HEADS = 4, DIM = 128, KINDS = 5 };

static const float head_scales[KV_HEADS] = {0.013f, 1.7f}, amax[KV_HEADS] = {4, 5};
static float rows[CELLS][KV_HEADS * DIM], q[HEADS][DIM];
static double rounded[HEADS][DIM], by_level[KINDS][HEADS][DIM];
static uint32_t seed = 7;

static float any(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed * 0x1p-31f;
}

static const float sizes[KINDS] = {1, 1e-20f, 1e15f, 1, 0};

static void q_make(int kind)
{
    for (uint32_t h = 0; h < HEADS; h++)
        for (uint32_t c = 0; c < DIM; c++)
            q[h][c] = any() * sizes[kind] * (kind == 3 && c == 5 ? 100 : 1);
}

/* Each of CELLS tokens sees its own cell. */
static void products_check(const kvb_kernel *kernel, const kvb_problem *p, const kvb_view *k, const kvb_view *v,
                           double *off_by_q)
{
    static float queries[CELLS][HEADS][DIM], out[CELLS][HEADS][DIM], lse[CELLS][HEADS], key[DIM];
    uint32_t row_start[CELLS + 1];
    kvb_run runs[CELLS];
    kvb_arithmetic a;
    kernel->arithmetic(p, &a);
    const double sums_off = a.scores.rounding == KVB_F16 ? a.scores.chain * 0x1p-12 : 3e-6; /* as it declares */
    for (uint32_t t = 0; t < CELLS; t++) {
        memcpy(queries[t], q, sizeof q);
        row_start[t] = t;
        runs[t] = (kvb_run){t, t + 1};
    }
    row_start[CELLS] = CELLS;
    void *scratch = aligned_alloc(64, (kernel->scratch_bytes(p, 1) + 63) / 64 * 64);
    kvb_attend args = {.problem = *p,
                       .q = &queries[0][0][0],
                       .k = *k,
                       .v = *v,
                       .mask = {.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = runs},
                       .out = out,
                       .lse = &lse[0][0],
                       .scratch = scratch,
                       .team = &team_of_one};
    assert_int_equal(kernel->attend(&args), 0);
    free(scratch);
    for (uint32_t t = 0; t < CELLS; t++)
        for (uint32_t h = 0; h < HEADS; h++) {
            double want = 0, size = 0, of_q = 0;
            k->format->read(k, h / 2, t, 1, key);
            for (uint32_t c = 0; c < DIM; c++) {
                want += rounded[h][c] * (double)key[c];
                of_q += (double)q[h][c] * (double)key[c];
                size += fabs(rounded[h][c]) * fabs((double)key[c]);
            }
            double got = (double)lse[t][h] / (double)p->scale, off = fabs(got - want) / (size > 0 ? size : 1);
            if (off > sums_off)
                fail_msg("%s, %s, cell %u, head %u: %g, not %g", kernel->name, k->format->name, t, h, got, want);
            *off_by_q = fmax(*off_by_q, size > 0 ? fabs(want - of_q) / size : 0);
        }
}

static void declared_check(const kvb_kernel *kernel, const kvb_problem *p, uint32_t h)
{
    kvb_arithmetic a;
    double largest = 0;
    kernel->arithmetic(p, &a);
    double u = a.query.rounding == KVB_BF16 ? 0x1p-8 : a.query.rounding == KVB_F16 ? 0x1p-11 : 0;
    for (uint32_t c = 0; c < DIM; c++)
        largest = fmax(largest, fabs((double)q[h][c]));
    for (uint32_t c = 0; c < DIM; c++)
        assert_true(fabs(rounded[h][c] - (double)q[h][c]) <=
                    (a.query.step / 2 + a.query.floor + 0x1p-21) * largest + u * fabs((double)q[h][c]));
}

static void kernel_over_format(const kvb_kernel *kernel, const kvb_pool_type *type, kvb_cpu_level level, bool first)
{
    static kvb_allocator allocator;
    kvb_pool_options options = {.n_kv_heads = KV_HEADS,
                                .dim = DIM,
                                .min_chunk = CELLS,
                                .capacity = CELLS,
                                .amax = amax,
                                .allocator = &allocator};
    kvb_pool *pool;
    kvb_view view;
    double off_by_q = 0;
    char why[256];
    kvb_problem p = {.n_tok = CELLS,
                     .n_heads = HEADS,
                     .n_kv_heads = KV_HEADS,
                     .k_dim = DIM,
                     .v_dim = DIM,
                     .n_cells = CELLS,
                     .scale = 1,
                     .mask = KVB_MASK_RUNS,
                     .k_format = type->format,
                     .v_format = type->format};
    if (!kernel->supports(&p, why, sizeof why))
        return;
    assert_int_equal(type->open(type, &options, &pool), 0);
    assert_int_equal(type->ensure(pool, CELLS), 0);
    for (uint32_t c = 0; c < CELLS; c++) {
        for (uint32_t i = 0; i < KV_HEADS * DIM; i++)
            rows[c][i] = any() * 3;
        type->write_run(pool, c, 1, rows[c]);
    }
    type->view(pool, CELLS, &view);
    if (view.head_scales)
        view.head_scales = head_scales;
    for (int kind = 0; kind < KINDS; kind++) {
        seed = 100 + (uint32_t)kind;
        q_make(kind);
        p.scale = 1 / (sizes[kind] > 0 ? sizes[kind] : 1); /* log-sum-exps are near 1 */
        for (uint32_t h = 0; h < HEADS; h++) {
            assert_int_equal(kernel->round_query(&p, &view, h, q[h], rounded[h]), 0);
            declared_check(kernel, &p, h);
        }
        if (first)
            memcpy(by_level[kind], rounded, sizeof rounded);
        assert_memory_equal(by_level[kind], rounded, sizeof rounded);
        products_check(kernel, &p, &view, &view, &off_by_q);
    }
    print_message("# %s, %s, %s: q itself is %.2g off\n", kernel->name, type->name, kvb_cpu_level_names[level],
                  off_by_q);
    assert_true(off_by_q > 1e-5);
    type->close(pool);
}

static void what_is_said_is_multiplied(void **state)
{
    (void)state;
    for (const kvb_pool_type *const *t = kvb_builtin_pools; *t; t++)
        for (size_t i = 0; kvb_builtin_kernels[i]; i++) {
            const kvb_kernel *kernel = kvb_builtin_kernels[i];
            bool first = true;
            for (int level = 0; kernel->round_query && level < KVB_CPU_LEVELS; level++) {
                char why[128];
                if (!level_tried((kvb_cpu_level)level))
                    continue;
                kvb_cpu_limit((kvb_cpu_level)level);
                if (kernel->available && !kernel->available(why, sizeof why))
                    continue;
                kernel_over_format(kernel, *t, (kvb_cpu_level)level, first);
                first = false;
            }
            kvb_cpu_limit(KVB_CPU_LEVELS - 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_said_is_multiplied)};
    return cmocka_run_group_tests_name("rounded_queries", tests, NULL, NULL);
}
