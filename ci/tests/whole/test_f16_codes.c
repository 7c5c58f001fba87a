/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: products of f16 with stored codes of 8 bits are those of what format->read gives, within the chains that
 * kernels/vector/vector.h states and one rounding of each element; from scattered cells, with and without pages; and
 * where elements pass f16's range, flash-f16 falls back on what flash computes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/pool.h"
#include "ci/tests/kernels/levels.h"
#include "ci/tests/whole/parts.h"
#include "kernels/kernels.h"

enum { CELLS = 96, HEADS = 2, HEAD = 1, MAX_DIM = 256, ROWS = 8, PAGE = 8 };
#define U 0x1p-11 /* of f16 */

static const char *const names[] = {"q8_0", "a8g32", "a8g64", "a8g128"};
enum { NAMES = sizeof names / sizeof *names };

static kvb_allocator allocator;

/* -1 .. 1 */
static float any(void)
{
    static uint32_t seed = 1;
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed * 0x1p-31f;
}

/* False where the format does not take rows of this length. */
static bool view_open(const char *name, uint32_t dim, float size, kvb_pool **pool, kvb_view *view)
{
    const kvb_pool_type *const *type = kvb_builtin_pools;
    kvb_pool_options options = {
        .n_kv_heads = HEADS, .dim = dim, .min_chunk = CELLS, .capacity = CELLS, .allocator = &allocator};
    float row[HEADS * MAX_DIM];
    char why[200];
    while (strcmp((*type)->name, name))
        type++;
    if (!(*type)->supports(*type, dim, why, sizeof why))
        return false;
    assert_int_equal((*type)->open(*type, &options, pool), 0);
    assert_int_equal((*type)->ensure(*pool, CELLS), 0);
    for (uint32_t c = 0; c < CELLS; c++) {
        for (uint32_t i = 0; i < HEADS * dim; i++)
            row[i] = size * ldexpf(any(), (int)(c % 7) - 3) + (c % 5 ? 0 : size);
        (*type)->write_run(*pool, c, 1, row);
    }
    (*type)->view(*pool, CELLS, view);
    return true;
}

static double chain_error(uint32_t chain, double size)
{
    return chain * U / (1 - chain * U) * 1.001 * size;
}

/* Most that |code * scale| + |zero| of a row's elements can be: what one rounding is relative to. */
static double size_of(const float *x, uint32_t dim)
{
    double most = 0;
    for (uint32_t c = 0; c < dim; c++)
        most = fmax(most, fabs((double)x[c]));
    return 3 * most;
}

static void products_check(const kvb_f16_loops *f16, const kvb_view *view, uint32_t rows, uint32_t n)
{
    const uint32_t dim = view->dim;
    static _Alignas(64) float q[ROWS][MAX_DIM], scores[ROWS][BLOCK], weights[ROWS][BLOCK], sums[ROWS][MAX_DIM];
    static _Alignas(64) char encoded[ROWS][64 + 2 * MAX_DIM];
    static float x[BLOCK][MAX_DIM];
    const void *at[BLOCK], *queries[ROWS];
    float *sum[ROWS];
    uint32_t cells[BLOCK];

    for (uint32_t i = 0; i < n; i++) {
        cells[i] = (i * 37 + 5) % CELLS;
        at[i] = kvb_view_row(view, HEAD, cells[i]);
        view->format->read(view, HEAD, cells[i], 1, x[i]);
    }
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t d = 0; d < dim; d++)
            q[r][d] = any(), sums[r][d] = 0;
        for (uint32_t i = 0; i < BLOCK; i++)
            weights[r][i] = i < n ? fabsf(any()) : 0;
        f16->query(view->format, dim, q[r], encoded[r]);
        queries[r] = encoded[r];
        sum[r] = sums[r];
    }
    const kvb_stored_rows stored = {view->format->elem, n, dim, at, {0}, view, cells, HEAD};
    assert_true(f16->dots(&stored, queries, rows, scores[0]));
    assert_true(f16->sums(&stored, weights[0], rows, sum));
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < n; i++) {
            double want = 0, mass = 0;
            for (uint32_t d = 0; d < dim; d++) {
                want += (double)q[r][d] * (double)x[i][d];
                mass += fabs((double)q[r][d]) * size_of(x[i], dim);
            }
            if (!(fabs((double)scores[r][i] - want) <= chain_error(F16_DOT_CHAIN(dim) + 2, mass) + dim * 0x1p-23))
                fail_msg("%s, dim %u, row %u, cell %u: %g, not %g", view->format->name, dim, r, cells[i],
                         (double)scores[r][i], want);
        }
        for (uint32_t d = 0; d < dim; d++) {
            double want = 0, mass = 0;
            for (uint32_t i = 0; i < n; i++) {
                want += (double)weights[r][i] * (double)x[i][d];
                mass += (double)weights[r][i] * size_of(x[i], dim);
            }
            if (!(fabs((double)sums[r][d] - want) <= chain_error(F16_SUM_CHAIN + 2, mass) + n * 0x1p-23))
                fail_msg("%s, dim %u, row %u, channel %u: %g, not %g", view->format->name, dim, r, d,
                         (double)sums[r][d], want);
        }
    }
}

static void codes_are_multiplied(void **state)
{
    const kvb_f16_loops *f16 = kvb_loops_at(KVB_CPU_AVX512FP16)->f16;
    uint32_t tried = 0;
    (void)state;
    for (uint32_t name = 0; name < NAMES; name++)
        for (uint32_t dim = 32; dim <= MAX_DIM; dim += 32)
            for (uint32_t way = 0; way < 2; way++) {
                kvb_pool *pool;
                kvb_view view;
                if (!view_open(names[name], dim, way ? 0x1p-10f : 1, &pool, &view))
                    continue;
                tried++;
                for (uint32_t rows = 1; rows <= ROWS; rows++)
                    products_check(f16, &view, rows, 1 + (rows * 11 + way * 7) % BLOCK);
                pool->type->close(pool);
            }
    assert_true(tried >= 2 * (8 + 8 + 4 + 2));
}

static void part_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    (void)team;
    part(ctx, 0, 1);
}

enum { CANARY = 1 << 16 };

/* One query token, 4 heads for a KV head, over all cells; out [HEADS * 4][v->dim]. Nothing is written behind the
 * scratch. */
static void attend(const kvb_kernel *kernel, const kvb_view *k, const kvb_view *v, const float *q, float *out)
{
    const kvb_team team = {1, part_run};
    kvb_attend args = {.problem = {.n_tok = 1,
                                   .n_heads = HEADS * 4,
                                   .n_kv_heads = HEADS,
                                   .k_dim = k->dim,
                                   .v_dim = v->dim,
                                   .n_cells = CELLS,
                                   .scale = 0.1f,
                                   .out_elem = KVB_F32,
                                   .v_in_k = v->base == k->base,
                                   .k_format = k->format,
                                   .v_format = v->format},
                       .q = q,
                       .k = *k,
                       .v = *v,
                       .out = out,
                       .team = &team};
    char why[200];
    assert_true(kernel->supports(&args.problem, why, sizeof why));
    size_t bytes = kernel->scratch_bytes(&args.problem, 1);
    unsigned char *scratch = args.scratch = aligned_alloc(64, (bytes + 63) / 64 * 64 + CANARY);
    assert_non_null(scratch);
    memset(scratch + bytes, 0x55, CANARY);
    assert_int_equal(kernel->attend(&args), 0);
    for (size_t i = 0; i < CANARY; i++)
        assert_int_equal(scratch[bytes + i], 0x55);
    free(scratch);
}

static void what_passes_the_range_falls_back(void **state)
{
    enum { DIM = 128 };
    static float q[HEADS * 4 * DIM], want[HEADS * 4 * DIM], got[HEADS * 4 * DIM];
    (void)state;
    for (uint32_t way = 0; way < 4 * NAMES; way++) {
        /* q as small as keys are large */
        const float k_size = way / NAMES % 2 ? 30000.0f : 1, v_size = way / NAMES / 2 ? 30000.0f : 1;
        kvb_pool *k_pool, *v_pool;
        kvb_view k, v;
        double off = 0;
        assert_true(view_open(names[way % NAMES], DIM, k_size, &k_pool, &k));
        assert_true(view_open(names[(way + 1) % NAMES], DIM, v_size, &v_pool, &v));
        for (uint32_t i = 0; i < HEADS * 4 * DIM; i++)
            q[i] = any() / k_size;
        attend(&kvb_kernel_flash, &k, &v, q, want);
        attend(&kvb_kernel_flash_f16, &k, &v, q, got);
        for (uint32_t i = 0; i < HEADS * 4 * DIM; i++)
            off = worse(off, fabs((double)got[i] - (double)want[i]));
        print_message("# %s, %s, K of %g, V of %g: off by %.3g\n", names[way % NAMES], names[(way + 1) % NAMES],
                      (double)k_size, (double)v_size, off / (double)v_size);
        assert_true(off <= (k_size > 1 && v_size > 1 ? 1e-3 : 0.02 * 8) * (double)v_size); /* both: only q is of f16 */
        k_pool->type->close(k_pool);
        v_pool->type->close(v_pool);
    }
}

/* V is the first part of K's rows, or all of them. */
static void what_passes_the_range_in_k_falls_back(void **state)
{
    enum { DIM = 128 };
    static float q[HEADS * 4 * DIM], want[HEADS * 4 * DIM], got[HEADS * 4 * DIM];
    (void)state;
    for (uint32_t way = 0; way < 2 * NAMES; way++) {
        const uint32_t v_dim = way % NAMES == NAMES - 1 || way / NAMES ? DIM : DIM / 2; /* whole groups */
        kvb_pool *pool;
        kvb_view k, v;
        double off = 0;
        assert_true(view_open(names[way % NAMES], DIM, 30000, &pool, &k));
        v = k;
        v.dim = v_dim;
        for (uint32_t i = 0; i < HEADS * 4 * DIM; i++)
            q[i] = any() / 30000;
        attend(&kvb_kernel_flash, &k, &v, q, want);
        attend(&kvb_kernel_flash_f16, &k, &v, q, got);
        for (uint32_t i = 0; i < HEADS * 4 * v_dim; i++)
            off = worse(off, fabs((double)got[i] - (double)want[i]));
        assert_true(off <= 1e-3 * 30000);
        pool->type->close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_multiplied),
        cmocka_unit_test(what_passes_the_range_falls_back),
        cmocka_unit_test(what_passes_the_range_in_k_falls_back),
    };
    if (!f16_here())
        return 0;
    return cmocka_run_group_tests_name("codes as f16", tests, NULL, NULL);
}
