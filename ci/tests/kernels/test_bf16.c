/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: products of pairs of bf16 are those of q and weights rounded to bf16 and of the rows as they are stored,
 * within roundings of f32 alone, whatever the remainders, rows and sizes: block products for any number of query rows,
 * and those without packing for few. What is not finite stays where it is.
 */
#include "fixture.h"
#include "kernels/flash/flash.h"

static const kvb_bf16_loops *bf16;
static const kvb_elem stored[] = {KVB_BF16, KVB_E4M3, KVB_E5M2};
enum { CELLS = 70, MAX_ROWS = 26, HEADS = 2, HEAD = 1, MAX_DIM = 1024 };

/* To nearest, ties to even. */
static double bf16_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    b = (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &b, sizeof x);
    return (double)x;
}

/* A head's rows, of which the last ends where their memory does, and query rows of their own sizes. */
struct rig {
    kvb_format format;
    kvb_view view;
    uint32_t dim, n, rows, cells[BLOCK];
    char *base;
    float *q[MAX_ROWS], *sums[MAX_ROWS], *weights, *scores;
    void *encoded[MAX_ROWS], *scratch;
    const void *queries[MAX_ROWS], *at[BLOCK];
};

static void *row_of(const struct rig *g, uint32_t i)
{
    return g->base + (HEAD * CELLS + g->cells[i]) * g->view.cell_stride;
}

static double value_of(const struct rig *g, uint32_t i, uint32_t d)
{
    return elem_value(g->format.elem, (char *)row_of(g, i) + d * elem_bytes(g->format.elem));
}

static void rig_draw(struct rig *g, kvb_elem elem, uint32_t dim, uint32_t n, uint32_t rows, uint64_t *rng)
{
    const size_t bytes = dim * elem_bytes(elem), stride = bytes + 2 * (n % 3);
    *g = (struct rig){.format = {.name = "rows", .elem = elem}, .dim = dim, .n = n, .rows = rows};
    g->base = exact_alloc((HEADS * CELLS - 1) * stride + bytes, 0xff);
    g->view = (kvb_view){.format = &g->format,
                         .base = g->base,
                         .dim = dim,
                         .cells = CELLS,
                         .cell_stride = stride,
                         .head_stride = CELLS * stride};
    for (uint32_t i = 0; i < n; i++) {
        g->cells[i] = n % 2 ? CELLS - 1 - i : CELLS - n + i;
        for (uint32_t d = 0; d < dim; d++)
            elem_store(elem, (char *)row_of(g, i) + d * elem_bytes(elem), random_value(rng));
        g->at[i] = row_of(g, i);
    }
    g->scratch = exact_alloc(kvb_bf16_scratch_bytes(dim), 0xff);
    g->weights = exact_alloc(rows * BLOCK * sizeof *g->weights, 0);
    g->scores = exact_alloc(rows * BLOCK * sizeof *g->scores, 0xff);
    for (uint32_t r = 0; r < rows; r++) {
        g->q[r] = exact_alloc(dim * sizeof *g->q[r], 0);
        g->sums[r] = exact_alloc(dim * sizeof *g->sums[r], 0);
        g->encoded[r] = exact_alloc(kvb_bf16_query_bytes(dim), 0xff);
        for (uint32_t d = 0; d < dim; d++) {
            g->q[r][d] = ldexpf(random_value(rng), (int)r % 3 * 7 - 5);
            g->sums[r][d] = random_value(rng);
        }
        for (uint32_t i = 0; i < n; i++)
            g->weights[r * BLOCK + i] = ldexpf(fabsf(random_value(rng)), -(int)random_below(rng, 12));
        bf16->query(&g->format, dim, g->q[r], g->encoded[r]);
        g->queries[r] = g->encoded[r];
    }
}

static void rig_free(struct rig *g)
{
    for (uint32_t r = 0; r < g->rows; r++) {
        free(g->q[r]);
        free(g->sums[r]);
        free(g->encoded[r]);
    }
    free(g->base);
    free(g->scratch);
    free(g->weights);
    free(g->scores);
}

/* By block products, or by those of few rows. */
static void rig_scores(struct rig *g, bool of_few)
{
    const kvb_stored_rows keys = {.elem = g->format.elem,
                                  .n = g->n,
                                  .dim = g->dim,
                                  .at = g->at,
                                  .ahead = {SIZE_MAX / 3, g->n % 2, g->n % 2, false, false, g->n % 3 ? 256 : 0}};
    if (of_few)
        assert_true(bf16->dots(&keys, g->queries, g->rows, g->scores));
    else
        bf16->block_scores(&g->view, HEAD, g->cells, g->n, g->queries, g->rows, g->scores, NULL, g->scratch);
}

static void rig_sums(struct rig *g, bool of_few)
{
    const kvb_stored_rows values = {.elem = g->format.elem, .n = g->n, .dim = g->dim, .at = g->at};
    if (of_few)
        assert_true(bf16->sums(&values, g->weights, g->rows, g->sums));
    else
        bf16->block_sums(&g->view, HEAD, g->cells, g->n, g->weights, g->rows, g->sums, NULL, g->scratch);
}

/* `chain` roundings to f32 of terms of this size in all. */
static void near_check(const struct rig *g, float got, double want, uint32_t chain, double size, uint32_t r, uint32_t i)
{
    double bound = chain * 0x1p-24 * 1.001 * size + 0x1p-80 * size;
    if (isfinite(want) ? !(fabs((double)got - want) <= bound) : isnan(want) ? !isnan(got) : (double)got != want)
        fail_msg("elem %d, dim %u, %u cells, %u rows: [%u][%u] = %.9g, want %.9g within %.3g", (int)g->format.elem,
                 g->dim, g->n, g->rows, r, i, (double)got, want, bound);
}

static void scores_check(struct rig *g, bool of_few)
{
    rig_scores(g, of_few);
    for (uint32_t r = 0; r < g->rows; r++)
        for (uint32_t i = 0; i < g->n; i++) {
            double want = 0, size = 0;
            for (uint32_t d = 0; d < g->dim; d++) {
                double term = bf16_of(g->q[r][d]) * value_of(g, i, d);
                want += term;
                size += fabs(term);
            }
            near_check(g, g->scores[r * BLOCK + i], want, g->dim, size, r, i);
        }
}

static void sums_check(struct rig *g, bool of_few)
{
    static float before[MAX_ROWS][MAX_DIM];
    for (uint32_t r = 0; r < g->rows; r++)
        memcpy(before[r], g->sums[r], g->dim * sizeof **before);
    rig_sums(g, of_few);
    for (uint32_t r = 0; r < g->rows; r++)
        for (uint32_t d = 0; d < g->dim; d++) {
            double want = (double)before[r][d], size = fabs(want);
            for (uint32_t i = 0; i < g->n; i++) {
                double term = bf16_of(g->weights[r * BLOCK + i]) * value_of(g, i, d);
                want += term;
                size += fabs(term);
            }
            near_check(g, g->sums[r][d], want, g->n + 1, size, r, d);
        }
}

static void products_hold(void **state)
{
    static const uint32_t dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 192, 208, 256};
    uint64_t rng = 1;
    (void)state;
    for (uint32_t e = 0; e < 3; e++)
        for (uint32_t k = 0; k < sizeof dims / sizeof *dims; k++)
            for (uint32_t rows = 1; rows <= MAX_ROWS; rows += rows < 14 ? 1 : 12)
                for (uint32_t n = 1 + (k + rows) % 5; n <= BLOCK; n += 1 + n / 2) {
                    struct rig g;
                    rig_draw(&g, stored[e], dims[k], n, rows, &rng);
                    for (int of_few = 0; of_few <= (rows <= DOTS_ROWS); of_few++) {
                        scores_check(&g, of_few);
                        sums_check(&g, of_few);
                    }
                    rig_free(&g);
                }
}

/* The widest rows. */
static void wide_rows_hold(void **state)
{
    static const uint32_t dims[] = {512, 576, MAX_DIM};
    uint64_t rng = 2;
    (void)state;
    for (uint32_t i = 0; i < 9; i++) {
        struct rig g;
        rig_draw(&g, stored[i / 3], dims[i % 3], 63 + i % 2, 3 + 4 * (i % 2), &rng);
        for (int of_few = 0; of_few < 2; of_few++) {
            scores_check(&g, of_few);
            sums_check(&g, of_few);
        }
        rig_free(&g);
    }
}

/* Each code of a small float, wherever it lies among zeros. */
static void every_code_is_read(void **state)
{
    uint64_t rng = 3;
    (void)state;
    for (uint32_t e = 1; e < 3; e++)
        for (uint32_t code = 0; code < 256; code++) {
            struct rig g;
            const uint32_t dim = 64 + code % 2 * 16, d = code * 7 % dim;
            rig_draw(&g, stored[e], dim, 3, 1, &rng);
            for (uint32_t i = 0; i < g.n; i++)
                memset(row_of(&g, i), 0, dim);
            ((uint8_t *)row_of(&g, 1))[d] = (uint8_t)code;
            memset(g.weights, 0, g.n * sizeof *g.weights);
            g.weights[1] = 1;
            memset(g.sums[0], 0, dim * sizeof *g.sums[0]);
            for (uint32_t c = 0; c < dim; c++)
                g.q[0][c] = 1;
            bf16->query(&g.format, dim, g.q[0], g.encoded[0]);
            for (int of_few = 0; of_few < 2; of_few++) {
                rig_scores(&g, of_few);
                near_check(&g, g.scores[1], value_of(&g, 1, d), 0, 0, 0, 1);
                near_check(&g, g.scores[2], 0, 0, 0, 0, 2);
                g.sums[0][d] = 0;
                rig_sums(&g, of_few);
                near_check(&g, g.sums[0][d], value_of(&g, 1, d), 0, 0, 0, d);
            }
            rig_free(&g);
        }
}

/* An element that is not finite is met by its own cell's scores, and by its own channel's sums: in the last of an odd
 * number of cells, too. */
static void what_is_not_finite_stays_there(void **state)
{
    static const uint16_t bf16s[] = {0x7f80, 0xff80, 0x7fc0};
    static const uint8_t e5m2s[] = {0x7c, 0xfc, 0x7e}; /* e4m3 has no infinity */
    uint64_t rng = 4;
    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        struct rig g;
        const bool small = i % 2;
        rig_draw(&g, small ? KVB_E5M2 : KVB_BF16, 16 + 16 * (i % 13), 1 + i * 5 % BLOCK, 1 + i % 8, &rng);
        const uint32_t cell = i % 5 ? g.n - 1 : random_below(&rng, g.n), d = random_below(&rng, g.dim);
        if (small)
            ((uint8_t *)row_of(&g, cell))[d] = e5m2s[i % 3];
        else
            ((uint16_t *)row_of(&g, cell))[d] = bf16s[i % 3];
        scores_check(&g, i / 2 % 2);
        sums_check(&g, i / 2 % 2);
        rig_free(&g);
    }
}

/* Query rows of zeros, of floats' largest and smallest, infinite, NaN: as exact as others, but for BF16_LOST. */
static void queries_of_any_size_are_taken(void **state)
{
    static const float sizes[] = {0, 0x1.fffffep127f, 0x1p-41f, 0x1p-100f, 0x1p-149f, INFINITY, NAN};
    uint64_t rng = 5;
    (void)state;
    for (uint32_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        struct rig g;
        const float size = sizes[i / 2];
        const uint16_t met = size < 1 ? 0x5880 : 0x3e80; /* 2^50: what is left of a small row is seen; 2^-2 */
        rig_draw(&g, KVB_BF16, 32, 3, 1, &rng);
        for (uint32_t d = 0; d < 32; d++) {
            g.q[0][d] = d == 5 ? size : size * 0x1p-7f;
            ((uint16_t *)row_of(&g, 1))[d] = d == 5 ? met : 0;
        }
        bf16->query(&g.format, 32, g.q[0], g.encoded[0]);
        rig_scores(&g, i % 2);
        const double want = (double)size * elem_value(KVB_BF16, &met), got = (double)g.scores[1];
        assert_true(isfinite(want) ? fabs(got - want) <= want * 0x1p-8 : !isfinite(got));
        rig_free(&g);
    }
}

/* Numbers below 2^-126 count as 0: what that loses is no more than is declared. */
static void what_is_lost_is_declared(void **state)
{
    struct rig g;
    uint64_t rng = 6;
    (void)state;
    rig_draw(&g, KVB_BF16, 128, 64, 2, &rng);
    for (uint32_t i = 0; i < g.n; i++)
        for (uint32_t d = 0; d < g.dim; d++)
            ((uint16_t *)row_of(&g, i))[d] = (uint16_t)(random_bits(&rng) & 0x80ff); /* below 2^-125 */
    for (uint32_t r = 0; r < g.rows; r++)
        for (uint32_t d = 0; d < g.dim; d++) {
            g.q[r][d] = ldexpf(g.q[r][d], r ? -50 : 0);
            g.sums[r][d] = 0;
        }
    for (int of_few = 0; of_few < 2; of_few++) {
        for (uint32_t r = 0; r < g.rows; r++)
            bf16->query(&g.format, g.dim, g.q[r], g.encoded[r]);
        rig_scores(&g, of_few);
        rig_sums(&g, of_few);
        for (uint32_t r = 0; r < g.rows; r++) {
            double largest = 0, sum = 0, want;
            for (uint32_t d = 0; d < g.dim; d++)
                largest = fmax(largest, fabs((double)g.q[r][d]));
            for (uint32_t i = 0; i < g.n; i++) {
                want = 0;
                for (uint32_t d = 0; d < g.dim; d++)
                    want += bf16_of(g.q[r][d]) * value_of(&g, i, d);
                assert_true(fabs((double)g.scores[r * BLOCK + i] - want) <= 2 * g.dim * BF16_LOST * largest);
            }
            for (uint32_t i = 0; i < g.n; i++)
                sum += (double)g.weights[r * BLOCK + i];
            assert_true(sum < 2.0 * g.n);
            for (uint32_t d = 0; d < g.dim; d++) {
                want = 0;
                for (uint32_t i = 0; i < g.n; i++)
                    want += bf16_of(g.weights[r * BLOCK + i]) * value_of(&g, i, d);
                assert_true(fabs((double)g.sums[r][d] - want * (1 + of_few)) <= 4 * BF16_LEAST * g.n * (1 + of_few));
            }
        }
    }
    rig_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_hold),
        cmocka_unit_test(wide_rows_hold),
        cmocka_unit_test(every_code_is_read),
        cmocka_unit_test(what_is_not_finite_stays_there),
        cmocka_unit_test(queries_of_any_size_are_taken),
        cmocka_unit_test(what_is_lost_is_declared),
    };
    char why[128];
    if (!kvb_flash_available(&kvb_product_bf16, why, sizeof why)) {
        printf("1..0 # SKIP products of bf16: %s\n", why);
        return 0;
    }
    bf16 = kvb_loops_at(kvb_cpu())->bf16;
    return cmocka_run_group_tests_name("products of bf16", tests, NULL, NULL);
}
