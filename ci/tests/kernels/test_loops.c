/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the loops of every level multiply, add and pack what they were given and nothing beside it, within the
 * error of the chains that kernels/vector/vector.h states.
 */
#include "fixture.h"
#include "levels.h"

#define U 0x1p-24

static const kvb_elem stored[] = {KVB_F32, KVB_F16, KVB_BF16, KVB_E4M3, KVB_E5M2};
static const uint32_t dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 576};
enum { STORED = sizeof stored / sizeof *stored, PLAIN = 3, DIMS = sizeof dims / sizeof *dims };

/* n stored rows, scattered, unaligned, with NaN between them; the buffer ends with a row. The other pointers lead to
 * NaN. */
struct rows {
    char *bytes;
    const void *at[BLOCK];
};

static struct rows rows_draw(kvb_elem elem, uint32_t n, uint32_t dim, uint64_t *rng)
{
    size_t size = elem_bytes(elem), stride = (dim + 1) * size;
    struct rows rows = {.bytes = exact_alloc(n * stride - size, 0xff)};
    static float nothing[576];
    for (uint32_t i = 0; i < 576; i++)
        nothing[i] = NAN;
    for (uint32_t i = n; i < BLOCK; i++)
        rows.at[i] = nothing;
    for (uint32_t i = 0; i < n; i++) {
        char *row = rows.bytes + (i * 7 + 3) % n * stride;
        if (n % 7 == 0) /* then steps of 7 do not visit all */
            row = rows.bytes + (n - 1 - i) * stride;
        for (uint32_t d = 0; d < dim; d++)
            elem_store(elem, row + d * size, random_value(rng));
        rows.at[i] = row;
    }
    return rows;
}

static double row_value(kvb_elem elem, const void *row, uint32_t d)
{
    return elem_value(elem, (const char *)row + d * elem_bytes(elem));
}

/* n rows of floats, each a buffer of its own, NaN or random. */
static void floats_draw(float **rows, uint32_t n, uint32_t width, uint64_t *rng)
{
    for (uint32_t r = 0; r < n; r++) {
        rows[r] = exact_alloc(width * sizeof **rows, 0xff);
        for (uint32_t d = 0; rng && d < width; d++)
            rows[r][d] = random_value(rng);
    }
}

static void floats_free(float **rows, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        free(rows[r]);
}

/* Higham's g(m), with what double loses far below it. */
static double chain_error(double m)
{
    return m * U / (1 - m * U) * (1 + 0x1p-20);
}

static void near_check(double got, double want, double bound, const char *what, const kvb_vector *level, uint32_t r,
                       uint32_t i)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%s, %s: [%u][%u] = %.9g, want %.9g within %.3g", kvb_cpu_level_names[level->level], what, r, i, got,
                 want, bound);
}

/* Rows ahead, which are prefetched, need not be there. */
static kvb_stored_rows rows_of(kvb_elem elem, uint32_t n, uint32_t dim, const void *const *at)
{
    return (kvb_stored_rows){
        .elem = elem,
        .n = n,
        .dim = dim,
        .at = at,
        .ahead = {n % 2 ? SIZE_MAX / 3 : 0, n % 5 < 3, n % 3, n % 7 < 4, n % 11 < 5, n % 13 < 6 ? 256 : 0}};
}

static void dots_check(const kvb_vector *level, kvb_elem elem, uint32_t n_rows, uint32_t n, uint32_t dim, uint64_t *rng)
{
    struct rows keys = rows_draw(elem, n, dim, rng);
    float *q[DOTS_ROWS], *scores = exact_alloc(n_rows * BLOCK * sizeof *scores, 0xff);
    double lanes = level->lanes;

    floats_draw(q, n_rows, dim, rng);
    const kvb_stored_rows block = rows_of(elem, n, dim, keys.at);
    assert_true(level->dots(&block, (const void *const *)q, n_rows, scores));
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < BLOCK; i++) {
            double want = 0, size = 0;
            for (uint32_t d = 0; i < n && d < dim; d++) {
                double term = (double)q[r][d] * row_value(elem, keys.at[i], d);
                want += term;
                size += fabs(term);
            }
            if (i < n)
                near_check((double)scores[r * BLOCK + i], want, chain_error(dim / lanes + log2(lanes)) * size, "dots",
                           level, r, i);
            else if (i >= (n + 15) / 16 * 16)
                assert_true(isnan(scores[r * BLOCK + i]));
        }
    floats_free(q, n_rows);
    free(scores);
    free(keys.bytes);
}

static void sums_check(const kvb_vector *level, kvb_elem elem, uint32_t n_rows, uint32_t n, uint32_t dim, uint64_t *rng)
{
    struct rows values = rows_draw(elem, n, dim, rng);
    float *sums[DOTS_ROWS], *before[DOTS_ROWS];
    float *weights = exact_alloc(n_rows * BLOCK * sizeof *weights, 0xff); /* NaN from n on */

    floats_draw(sums, n_rows, dim, rng);
    floats_draw(before, n_rows, dim, NULL);
    for (uint32_t r = 0; r < n_rows; r++) {
        memcpy(before[r], sums[r], dim * sizeof **sums);
        for (uint32_t i = 0; i < n; i++)
            weights[r * BLOCK + i] = random_value(rng);
    }
    const kvb_stored_rows block = rows_of(elem, n, dim, values.at);
    assert_true(level->sums(&block, weights, n_rows, sums));
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t d = 0; d < dim; d++) {
            double want = (double)before[r][d], size = fabs(want);
            for (uint32_t i = 0; i < n; i++) {
                double term = (double)weights[r * BLOCK + i] * row_value(elem, values.at[i], d);
                want += term;
                size += fabs(term);
            }
            near_check((double)sums[r][d], want, chain_error(n + 1) * size, "sums", level, r, d);
        }
    floats_free(sums, n_rows);
    floats_free(before, n_rows);
    free(weights);
    free(values.bytes);
}

/* beside() gives the bits of dots() and sums(). ahead: chooses how rows_of() prefetches. */
static void beside_check(const kvb_vector *level, kvb_elem elem, uint32_t n_rows, uint32_t n, uint32_t ahead,
                         uint64_t *rng)
{
    struct rows k = rows_draw(elem, n, BESIDE_DIM, rng), v = rows_draw(elem, n, BESIDE_DIM, rng);
    float *q[BESIDE_ROWS], *sums[BESIDE_ROWS], *wanted[BESIDE_ROWS];
    float *scores = exact_alloc(n_rows * BLOCK * sizeof *scores, 0xff); /* in place of the weights */
    float *wanted_scores = exact_alloc(n_rows * BLOCK * sizeof *scores, 0xff);
    kvb_stored_rows keys = rows_of(elem, ahead, BESIDE_DIM, k.at), values = rows_of(elem, ahead, BESIDE_DIM, v.at);

    keys.n = values.n = n;
    floats_draw(q, n_rows, BESIDE_DIM, rng);
    floats_draw(sums, n_rows, BESIDE_DIM, rng);
    floats_draw(wanted, n_rows, BESIDE_DIM, NULL);
    for (uint32_t r = 0; r < n_rows; r++) {
        memcpy(wanted[r], sums[r], BESIDE_DIM * sizeof **sums);
        for (uint32_t i = 0; i < BLOCK; i++)
            scores[r * BLOCK + i] = i < n ? random_value(rng) : NAN;
    }
    level->dots(&keys, (const void *const *)q, n_rows, wanted_scores);
    level->sums(&values, scores, n_rows, wanted);
    level->beside(&keys, (const void *const *)q, scores, &values, scores, n_rows, sums);
    for (uint32_t r = 0; r < n_rows; r++)
        if (memcmp(scores + r * BLOCK, wanted_scores + r * BLOCK, n * sizeof *scores) ||
            memcmp(sums[r], wanted[r], BESIDE_DIM * sizeof **sums))
            fail_msg("%s: beside() of %u rows, %u cells: other bits than dots() or sums() in row %u",
                     kvb_cpu_level_names[level->level], n_rows, n, r);
    floats_free(q, n_rows);
    floats_free(sums, n_rows);
    floats_free(wanted, n_rows);
    free(scores);
    free(wanted_scores);
    free(k.bytes);
    free(v.bytes);
}

static void pack_check(const kvb_vector *level, kvb_elem elem, uint32_t n, uint32_t dim, uint64_t *rng)
{
    struct rows rows = rows_draw(elem, n, dim, rng);
    float *keys = exact_alloc(BLOCK * dim * sizeof *keys, 0xff);
    float *values = exact_alloc(BLOCK * dim * sizeof *values, 0xff);

    level->pack_keys(elem, rows.at, n, dim, keys);
    level->pack_values(elem, rows.at, n, dim, values);
    for (uint32_t i = 0; i < BLOCK; i++)
        for (uint32_t d = 0; d < dim; d++) {
            double want = i < n ? row_value(elem, rows.at[i], d) : 0;
            near_check((double)keys[d * BLOCK + i], want, 0, "pack_keys", level, i, d);
            near_check((double)values[i * dim + d], want, 0, "pack_values", level, i, d);
        }
    free(keys);
    free(values);
    free(rows.bytes);
}

static void product_check(const kvb_vector *level, uint32_t rows, uint32_t depth, uint32_t width, bool add,
                          uint64_t *rng)
{
    const uint32_t b_row = width + rows % 2 * 16; /* columns of a wider b, too */
    float **a = exact_alloc(rows * sizeof *a, 0), **c = exact_alloc(rows * sizeof *c, 0);
    float **before = exact_alloc(rows * sizeof *before, 0), *b = exact_alloc(depth * b_row * sizeof *b, 0xff);

    floats_draw(a, rows, depth, rng);
    floats_draw(c, rows, width, add ? rng : NULL); /* NaN when it is to be overwritten */
    floats_draw(before, rows, width, NULL);
    for (uint32_t r = 0; r < rows && add; r++)
        memcpy(before[r], c[r], width * sizeof **c);
    for (uint32_t i = 0; i < depth * b_row; i++)
        b[i] = random_value(rng);
    level->product(rows, depth, width, (const float *const *)a, b, b_row, c, add);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t j = 0; j < width; j++) {
            double want = add ? (double)before[r][j] : 0, size = fabs(want);
            for (uint32_t k = 0; k < depth; k++) {
                double term = (double)a[r][k] * (double)b[k * b_row + j];
                want += term;
                size += fabs(term);
            }
            near_check((double)c[r][j], want, chain_error(depth + add) * size, "product", level, r, j);
        }
    floats_free(a, rows);
    floats_free(c, rows);
    floats_free(before, rows);
    free(a);
    free(c);
    free(before);
    free(b);
}

/* Every dim with every number of rows; and every number of cells with every number of rows. */
static void few_rows(void (*check)(const kvb_vector *, kvb_elem, uint32_t, uint32_t, uint32_t, uint64_t *))
{
    uint64_t rng = 1;
    const kvb_vector *table;
    for (int level = 0; (table = level_next(&level));)
        for (uint32_t e = 0; e < STORED; e++)
            for (uint32_t rows = 1; rows <= DOTS_ROWS; rows++) {
                const uint32_t unit = e < PLAIN ? 16 : FP8_DIM;
                for (uint32_t d = 0; d < DIMS; d++)
                    if (dims[d] % unit == 0)
                        check(table, stored[e], rows, 1 + random_below(&rng, 20), dims[d], &rng);
                for (uint32_t n = 1; n <= BLOCK; n++)
                    check(table, stored[e], rows, n, unit * (1 + n % 3), &rng);
            }
}

static void dots_are_right(void **state)
{
    (void)state;
    few_rows(dots_check);
}

static void sums_are_right(void **state)
{
    (void)state;
    few_rows(sums_check);
}

static void beside_is_dots_and_sums(void **state)
{
    uint64_t rng = 5;
    const kvb_vector *table;
    (void)state;
    for (int level = 0; (table = level_next(&level));)
        for (uint32_t e = 0; e < PLAIN; e++)
            for (uint32_t rows = 1; rows <= BESIDE_ROWS; rows += rows == 4 ? 4 : 1)
                for (uint32_t n = 16; n <= BLOCK; n += 16)
                    for (uint32_t ahead = 0; ahead < 8; ahead++)
                        beside_check(table, stored[e], rows, n, ahead, &rng);
}

static void packs_are_copies(void **state)
{
    uint64_t rng = 2;
    const kvb_vector *table;
    (void)state;
    for (int level = 0; (table = level_next(&level));)
        for (uint32_t e = 0; e < PLAIN; e++) {
            for (uint32_t d = 0; d < DIMS; d++)
                pack_check(table, stored[e], BLOCK - d % 3, dims[d], &rng);
            for (uint32_t n = 1; n <= BLOCK; n++)
                pack_check(table, stored[e], n, 48, &rng);
        }
}

static void products_are_right(void **state)
{
    uint64_t rng = 3;
    const kvb_vector *table;
    (void)state;
    for (int level = 0; (table = level_next(&level));) {
        for (uint32_t rows = 1; rows <= 130; rows++)
            product_check(table, rows, 1 + rows % 40, 16 * (1 + rows % 9), rows % 2, &rng);
        for (uint32_t d = 0; d < DIMS; d++) {
            product_check(table, 6 + d % 7, dims[d], BLOCK, false, &rng);
            product_check(table, 6 + d % 7, BLOCK, dims[d], true, &rng);
        }
    }
}

static void rescaling_is_exact(void **state)
{
    uint64_t rng = 4;
    const kvb_vector *table;
    (void)state;
    for (int level = 0; (table = level_next(&level));)
        for (uint32_t d = 0; d < DIMS; d++) {
            float *sums, before[576];
            floats_draw(&sums, 1, dims[d], &rng);
            memcpy(before, sums, dims[d] * sizeof *sums);
            float to[576] = {0};
            table->rescale(to, sums, dims[d], 0x1p-9f);
            table->rescale(sums, sums, dims[d], 0x1p-9f);
            for (uint32_t c = 0; c < dims[d]; c++)
                assert_true(sums[c] == before[c] * 0x1p-9f && to[c] == sums[c]);
            free(sums);
        }
}

/* Addresses of neighbours and of any cells, also where cell times stride is beyond 32 bits; none is written behind the
 * last. */
static void rows_lie_where_cells_say(void **state)
{
    static const size_t strides[] = {256, 272, 1 << 20, (size_t)5 << 32};
    const uintptr_t first = 0x1000;
    const kvb_vector *table;
    (void)state;
    for (int level = 0; (table = level_next(&level));)
        for (uint32_t n = 0; n <= BLOCK; n++)
            for (uint32_t i = 0; i < 8; i++) {
                const bool neighbours = i % 2;
                const void *at[BLOCK];
                uint32_t cell[BLOCK];
                for (uint32_t c = 0; c < BLOCK; c++) {
                    cell[c] = neighbours ? 5000 + c : (c * 40503u + n) % 70000;
                    at[c] = NULL;
                }
                table->rows_at((const void *)first, strides[i / 2], cell, n, neighbours, at);
                for (uint32_t c = 0; c < BLOCK; c++)
                    assert_true((uintptr_t)at[c] == (c < n ? first + cell[c] * strides[i / 2] : 0));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dots_are_right),           cmocka_unit_test(sums_are_right),
        cmocka_unit_test(packs_are_copies),         cmocka_unit_test(products_are_right),
        cmocka_unit_test(rescaling_is_exact),       cmocka_unit_test(beside_is_dots_and_sums),
        cmocka_unit_test(rows_lie_where_cells_say),
    };
    return cmocka_run_group_tests_name("loops over vectors", tests, NULL, NULL);
}
