/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: products of f16 are within the chains and floors that kernels/vector/vector.h states, whatever the remainders,
 * rows and sizes; what passes their range is told, and then nothing was added.
 */
#include "fixture.h"
#include "levels.h"

#define U 0x1p-11 /* of f16; what f32 and double add is far below */

static const kvb_f16_loops *f16;
static const kvb_elem stored[] = {KVB_F16, KVB_E4M3};
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
        f16->query(&formats[elem], dim, b->q[r], b->encoded[r]);
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
    return f16->dots(&keys, (const void *const *)b->encoded, b->rows, scores);
}

static bool block_sums(struct block *b)
{
    for (uint32_t i = b->n; i < CELLS; i++) /* finite, as scores past the last cell */
        for (uint32_t r = 0; r < b->rows; r++)
            b->weights[r * CELLS + i] = 0;
    const kvb_stored_rows values = block_rows(b);
    return f16->sums(&values, b->weights, b->rows, b->sums);
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
                    block_draw(&b, stored[e], dim, n, rows, size, &rng);
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
        block_draw(&b, stored[elem], dim, n, 1 + i % ROWS, 1, &rng);
        uint32_t cell = random_below(&rng, n), d = random_below(&rng, dim);
        if (elem)
            ((uint8_t *)b.at[cell])[d] = e4m3s[i / 2 % 2];
        else
            ((uint16_t *)b.at[cell])[d] = f16s[i / 2 % 5];
        if (!elem && i / 2 % 5 < 2) { /* met by what takes it out of the range */
            for (uint32_t r = 0; r < b.rows; r++) {
                b.q[r][d] = 16 * fabsf(b.q[r][d]) + 100;
                b.weights[r * CELLS + cell] = 2;
                f16->query(&formats[b.elem], dim, b.q[r], b.encoded[r]);
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
        f16->query(&formats[KVB_F16], 32, b.q[0], b.encoded[0]);
        assert_int_equal(block_dots(&b, scores), isfinite(sizes[i]));
        assert_true(!isfinite(sizes[i]) || fabs((double)scores[1] - want) <= 0.01 * (double)sizes[i]);
        block_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_hold),
        cmocka_unit_test(what_passes_the_range_is_told),
        cmocka_unit_test(queries_of_any_size_are_taken),
    };
    f16 = f16_here();
    if (!f16)
        return 0;
    return cmocka_run_group_tests_name("products of f16", tests, NULL, NULL);
}
