/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: products of f16, of stored rows of 16 bits and of codes of 8, are what kernels/vector/vector.h says. */
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
#include "ci/tests/kernels/fixture.h"
#include "ci/tests/kernels/levels.h"
#include "ci/tests/whole/parts.h"
#include "kernels/kernels.h"

/*
 * Shows: products of f16 are within the chains and floors that kernels/vector/vector.h states, whatever the remainders,
 * rows and sizes; what passes their range is told, and then nothing was added.
 */

#define U 0x1p-11 /* of f16; what f32 and double add is far below */

static const kvb_f16_loops *f16_loops;
static const kvb_elem elems[] = {KVB_F16, KVB_E4M3};
static const kvb_format formats[KVB_ELEM_COUNT] = {[KVB_F16] = {.elem = KVB_F16}, [KVB_E4M3] = {.elem = KVB_E4M3}};
enum { CELLS = 64, MAX_DIM = 256, ROWS = 8 };

/* Rows that end where their memory does, and query rows of their own sizes. */
struct block {
    kvb_elem elem;
    uint32_t dim, n, rows;
    void *at[CELLS];
    float *q[ROWS], *sums[ROWS], weights[ROWS * CELLS];
    double x[CELLS][MAX_DIM];
    void *encoded[ROWS];
};

static void block_draw(struct block *b, kvb_elem elem, uint32_t dim, uint32_t n, uint32_t rows, float size,
                       uint64_t *rng)
{
    *b = (struct block){.elem = elem, .dim = dim, .n = n, .rows = rows};
    for (uint32_t i = 0; i < n; i++) {
        b->at[i] = exact_alloc(dim * elem_bytes(elem), 0xff);
        for (uint32_t d = 0; d < dim; d++) {
            void *at = (char *)b->at[i] + d * elem_bytes(elem);
            elem_store(elem, at, size * random_value(rng));
            b->x[i][d] = elem_value(elem, at);
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        b->q[r] = exact_alloc(dim * sizeof *b->q[r], 0);
        b->sums[r] = exact_alloc(dim * sizeof *b->sums[r], 0);
        b->encoded[r] = exact_alloc(kvb_f16_query_bytes(dim), 0xff);
        for (uint32_t d = 0; d < dim; d++) {
            b->q[r][d] = ldexpf(random_value(rng), 9 * (int)r - 20);
            b->sums[r][d] = random_value(rng);
        }
        for (uint32_t i = 0; i < CELLS; i++)
            b->weights[r * CELLS + i] = i < n ? ldexpf(fabsf(random_value(rng)), -(int)random_below(rng, 12)) : NAN;
        f16_loops->query(&formats[elem], dim, b->q[r], b->encoded[r]);
    }
}

static void block_free(struct block *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        free(b->at[i]);
    for (uint32_t r = 0; r < b->rows; r++) {
        free(b->q[r]);
        free(b->sums[r]);
        free(b->encoded[r]);
    }
}

static kvb_stored_rows block_rows(const struct block *b)
{
    return (kvb_stored_rows){.elem = b->elem,
                             .n = b->n,
                             .dim = b->dim,
                             .at = (const void *const *)b->at,
                             .ahead = {b->n % 2 ? SIZE_MAX / 3 : 0, b->n % 3, false, false, false, b->n % 5 ? 256 : 0}};
}

static bool block_dots(struct block *b, float *scores)
{
    const kvb_stored_rows keys = block_rows(b);
    return f16_loops->dots(&keys, (const void *const *)b->encoded, b->rows, scores);
}

static bool block_sums(struct block *b)
{
    for (uint32_t i = b->n; i < CELLS; i++) /* finite, as scores past the last cell */
        for (uint32_t r = 0; r < b->rows; r++)
            b->weights[r * CELLS + i] = 0;
    const kvb_stored_rows values = block_rows(b);
    return f16_loops->sums(&values, b->weights, b->rows, b->sums);
}

static void near_check(const struct block *b, double got, double want, double bound, uint32_t r, uint32_t i)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("elem %d, dim %u, %u cells, %u rows: [%u][%u] = %.9g, want %.9g within %.3g", (int)b->elem, b->dim,
                 b->n, b->rows, r, i, got, want, bound);
}

/* What `chain` roundings to f16 make of terms of this size in all. */
static double chain_error(uint32_t chain, double size)
{
    return chain * U / (1 - chain * U) * 1.001 * size;
}

static void dots_check(struct block *b)
{
    _Alignas(64) float scores[ROWS * CELLS];
    assert_true(block_dots(b, scores));
    for (uint32_t r = 0; r < b->rows; r++) {
        double largest = 0;
        for (uint32_t d = 0; d < b->dim; d++)
            largest = fmax(largest, fabs((double)b->q[r][d]));
        for (uint32_t i = 0; i < b->n; i++) {
            double want = 0, size = 0, mass = 0;
            for (uint32_t d = 0; d < b->dim; d++) {
                want += (double)b->q[r][d] * b->x[i][d];
                size += fabs((double)b->q[r][d] * b->x[i][d]);
                mass += fabs(b->x[i][d]);
            }
            double floors = F16_ERROR / F16_LARGEST_Q * largest * (b->dim + mass);
            near_check(b, (double)scores[r * CELLS + i], want, chain_error(F16_DOT_CHAIN(b->dim) + 1, size) + floors, r,
                       i);
        }
    }
}

static void sums_check(struct block *b)
{
    double unit = b->elem == KVB_E4M3 ? F16_WEIGHTS_E4M3 : F16_WEIGHTS;
    for (uint32_t r = 0; r < b->rows; r++)
        for (uint32_t d = 0; d < b->dim; d++)
            b->sums[r][d] = 100;
    assert_true(block_sums(b));
    for (uint32_t r = 0; r < b->rows; r++)
        for (uint32_t d = 0; d < b->dim; d++) {
            double want = 100, size = 0, mass = 0;
            for (uint32_t i = 0; i < b->n; i++) {
                double term = (double)b->weights[r * CELLS + i] * b->x[i][d];
                want += term;
                size += fabs(term);
                mass += fabs(b->x[i][d]);
            }
            near_check(b, (double)b->sums[r][d], want,
                       chain_error(F16_SUM_CHAIN + 1, size) + F16_ERROR / unit * (b->n + mass) + 0x1p-22 * (100 + size),
                       r, d);
        }
}

static void products_hold(void **state)
{
    uint64_t rng = 1;
    (void)state;
    for (uint32_t e = 0; e < 2; e++)
        for (uint32_t dim = e ? 64 : 16; dim <= MAX_DIM; dim += e ? 64 : 16)
            for (uint32_t rows = 1; rows <= ROWS; rows++)
                for (uint32_t n = 1 + (dim / 16 + rows) % 5; n <= CELLS; n += 1 + n / 2) {
                    struct block b;
                    float size = (n + rows) % 3 ? 1 : (n + rows) % 2 ? 0x1p-9f : 0x1p-18f;
                    block_draw(&b, elems[e], dim, n, rows, size, &rng);
                    dots_check(&b);
                    sums_check(&b);
                    block_free(&b);
                }
}

/* One element, anywhere, that is not finite or makes a sum that is not. */
static void what_passes_the_range_is_told(void **state)
{
    static const uint16_t f16s[] = {0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00}; /* the largest of both signs first */
    static const uint8_t e4m3s[] = {0x7f, 0xff};
    uint64_t rng = 2;
    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        _Alignas(64) float scores[ROWS * CELLS];
        struct block b;
        uint32_t elem = i % 2, dim = elem ? 64 + 64 * (i / 2 % 3) : 16 + 16 * (i / 2 % 8), n = 1 + i * 7 % CELLS;
        block_draw(&b, elems[elem], dim, n, 1 + i % ROWS, 1, &rng);
        uint32_t cell = random_below(&rng, n), d = random_below(&rng, dim);
        if (elem)
            ((uint8_t *)b.at[cell])[d] = e4m3s[i / 2 % 2];
        else
            ((uint16_t *)b.at[cell])[d] = f16s[i / 2 % 5];
        if (!elem && i / 2 % 5 < 2) { /* met by what takes it out of the range */
            for (uint32_t r = 0; r < b.rows; r++) {
                b.q[r][d] = 16 * fabsf(b.q[r][d]) + 100;
                b.weights[r * CELLS + cell] = 2;
                f16_loops->query(&formats[b.elem], dim, b.q[r], b.encoded[r]);
            }
        }
        assert_false(block_dots(&b, scores));
        float before[ROWS];
        for (uint32_t r = 0; r < b.rows; r++)
            before[r] = b.sums[r][d];
        assert_false(block_sums(&b));
        for (uint32_t r = 0; r < b.rows; r++)
            assert_true(b.sums[r][d] == before[r]);
        block_free(&b);
    }
}

/* Rows of zeros, of floats' largest, smallest and infinite. */
static void queries_of_any_size_are_taken(void **state)
{
    static const float sizes[] = {0, 0x1p127f, 0x1p-140f, INFINITY, NAN};
    uint64_t rng = 3;
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        _Alignas(64) float scores[CELLS];
        struct block b;
        double want = 0;
        block_draw(&b, KVB_F16, 32, 3, 1, 0x1p-3f, &rng);
        for (uint32_t d = 0; d < 32; d++) {
            b.q[0][d] = d % 2 ? sizes[i] : sizes[i] / 4;
            want += (double)b.q[0][d] * b.x[1][d];
        }
        f16_loops->query(&formats[KVB_F16], 32, b.q[0], b.encoded[0]);
        assert_int_equal(block_dots(&b, scores), isfinite(sizes[i]));
        assert_true(!isfinite(sizes[i]) || fabs((double)scores[1] - want) <= 0.01 * (double)sizes[i]);
        block_free(&b);
    }
}

/*
 * Shows: products of f16 with stored codes of 8 bits are those of what format->read gives, within the chains that
 * kernels/vector/vector.h states and one rounding of each element; from scattered cells, with and without pages; and
 * where elements pass f16's range, flash-f16 falls back on what flash computes.
 */

enum { CODE_CELLS = 96, HEADS = 2, HEAD = 1, CODE_DIM = 256, CODE_ROWS = 8, PAGE = 8 };

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
        .n_kv_heads = HEADS, .dim = dim, .min_chunk = CODE_CELLS, .capacity = CODE_CELLS, .allocator = &allocator};
    float row[HEADS * CODE_DIM];
    char why[200];
    while (strcmp((*type)->name, name))
        type++;
    if (!(*type)->supports(*type, dim, why, sizeof why))
        return false;
    assert_int_equal((*type)->open(*type, &options, pool), 0);
    assert_int_equal((*type)->ensure(*pool, CODE_CELLS), 0);
    for (uint32_t c = 0; c < CODE_CELLS; c++) {
        for (uint32_t i = 0; i < HEADS * dim; i++)
            row[i] = size * ldexpf(any(), (int)(c % 7) - 3) + (c % 5 ? 0 : size);
        (*type)->write_run(*pool, c, 1, row);
    }
    (*type)->view(*pool, CODE_CELLS, view);
    return true;
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
    static _Alignas(64) float q[CODE_ROWS][CODE_DIM], scores[CODE_ROWS][BLOCK], weights[CODE_ROWS][BLOCK],
        sums[CODE_ROWS][CODE_DIM];
    static _Alignas(64) char encoded[CODE_ROWS][64 + 2 * CODE_DIM];
    static float x[BLOCK][CODE_DIM];
    const void *at[BLOCK], *queries[CODE_ROWS];
    float *sum[CODE_ROWS];
    uint32_t cells[BLOCK];

    for (uint32_t i = 0; i < n; i++) {
        cells[i] = (i * 37 + 5) % CODE_CELLS;
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
        for (uint32_t dim = 32; dim <= CODE_DIM; dim += 32)
            for (uint32_t way = 0; way < 2; way++) {
                kvb_pool *pool;
                kvb_view view;
                if (!view_open(names[name], dim, way ? 0x1p-10f : 1, &pool, &view))
                    continue;
                tried++;
                for (uint32_t rows = 1; rows <= CODE_ROWS; rows++)
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
                                   .n_cells = CODE_CELLS,
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
        cmocka_unit_test(products_hold),
        cmocka_unit_test(what_passes_the_range_is_told),
        cmocka_unit_test(queries_of_any_size_are_taken),
        cmocka_unit_test(codes_are_multiplied),
        cmocka_unit_test(what_passes_the_range_falls_back),
        cmocka_unit_test(what_passes_the_range_in_k_falls_back),
    };
    f16_loops = f16_here();
    if (!f16_loops)
        return 0;
    return cmocka_run_group_tests_name("products of f16", tests, NULL, NULL);
}
