/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the loops of every level multiply, add and pack their arguments and touch nothing else, within the error
 * of the chains and floors in kernels/vector/vector.h: products of floats, of pairs of bf16 and of f16, of rows in
 * place and of packed blocks.
 */
#include "fixture.h"
#include "levels.h"

static const kvb_elem stored[] = {KVB_F32, KVB_F16, KVB_BF16, KVB_E4M3, KVB_E5M2};
static const uint32_t dims[] = {16,  32,  48,  64,  80,  96,  112, 128, 144, 160,
                                176, 192, 208, 224, 240, 256, 512, 576, 1024};
enum { PLAIN = 3, DIMS = sizeof dims / sizeof *dims, MAX_DIM = 1024, MAX_ROWS = 26 };

/* n rows of floats, each in its own buffer: random; rng NULL: NaN. */
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

/* ---- products of query rows and stored rows ---------------------------------------------------------------------- */

/* Loops over floats, bf16 or f16 of one level. block_*: the same products over a packed block; NULL: none. */
typedef struct products {
    enum { FLOATS, OF_BF16, OF_F16, KINDS } kind;
    kvb_cpu_level level;
    kvb_query_fn *query; /* encodes q; NULL: q is multiplied as f32 */
    kvb_dots_fn *dots;
    kvb_sums_fn *sums;
    kvb_block_scores_fn *block_scores;
    kvb_block_sums_fn *block_sums;
} products;

static const struct {
    const char *name;
    double u;             /* unit roundoff of a chain */
    size_t part;          /* offset in kvb_loops */
    uint32_t takes, unit; /* bits of `stored`; dims of fp8 are multiples of unit */
} kinds[] = {
    [FLOATS] = {"floats", 0x1p-24, offsetof(kvb_loops, vector), 0x1f, FP8_DIM},
    [OF_BF16] = {"bf16", 0x1p-24, offsetof(kvb_loops, bf16), 0x1c, 16},
    [OF_F16] = {"f16", 0x1p-11, offsetof(kvb_loops, f16), 0x0a, 64},
};

/* The next loops to try. *at starts as 0. */
static bool products_next(uint32_t *at, products *p)
{
    while (*at < KVB_CPU_LEVELS * KINDS) {
        const kvb_cpu_level level = (kvb_cpu_level)(*at / KINDS);
        *p = (products){.kind = (*at)++ % KINDS, .level = level};
        if (!kvb_loops_own(level, kinds[p->kind].part) || !level_tried(level))
            continue;
        const kvb_loops *loops = kvb_loops_at(level);
        if (p->kind == FLOATS) {
            p->dots = loops->vector->dots;
            p->sums = loops->vector->sums;
        } else if (p->kind == OF_F16) {
            *p = (products){OF_F16, level, loops->f16->query, loops->f16->dots, loops->f16->sums, NULL, NULL};
        } else {
            const kvb_bf16_loops *of = loops->bf16;
            *p = (products){OF_BF16, level, of->query, of->dots, of->sums, of->block_scores, of->block_sums};
        }
        return true;
    }
    return false;
}

/* A head's rows, with NaN between them; the last row ends where its memory does. And query rows of various sizes. */
typedef struct rig {
    const products *p;
    kvb_format format;
    kvb_view view;
    bool blocks; /* packed, else in place */
    uint32_t dim, n, rows, cells[BLOCK];
    char *base;
    float *q[MAX_ROWS], *sums[MAX_ROWS], *weights, *scores;
    void *encoded[MAX_ROWS], *scratch;
    const void *queries[MAX_ROWS], *at[BLOCK];
} rig;

enum { CELLS = 71, HEADS = 2, HEAD = 1 };

static void *elem_at(const rig *g, uint32_t i, uint32_t d)
{
    return g->base + (HEAD * CELLS + g->cells[i]) * g->view.cell_stride + d * elem_bytes(g->format.elem);
}

static double value_of(const rig *g, uint32_t i, uint32_t d)
{
    return elem_value(g->format.elem, elem_at(g, i, d));
}

/* Query rows as the products take them. */
static void queries_encode(rig *g)
{
    for (uint32_t r = 0; r < g->rows; r++) {
        if (g->p->query)
            g->p->query(&g->format, g->dim, g->q[r], g->encoded[r]);
        g->queries[r] = g->p->query ? g->encoded[r] : g->q[r];
    }
}

/* Stored rows are neighbours, or descend, or neither; they begin at any address that their type allows. */
static void rows_draw(rig *g, kvb_elem elem, uint32_t dim, uint32_t n, float size, uint64_t *rng)
{
    static float nothing[MAX_DIM];
    const size_t bytes = dim * elem_bytes(elem), stride = bytes + elem_bytes(elem) * (n / 3 % 3);
    g->format = (kvb_format){.name = "rows", .elem = elem};
    g->dim = dim;
    g->n = n;
    g->base = exact_alloc((HEADS * CELLS - 1) * stride + bytes, 0xff);
    g->view = (kvb_view){.format = &g->format,
                         .base = g->base,
                         .dim = dim,
                         .cells = CELLS,
                         .cell_stride = stride,
                         .head_stride = CELLS * stride};
    memset(nothing, 0xff, sizeof nothing);
    for (uint32_t i = 0; i < BLOCK; i++)
        g->at[i] = nothing;
    for (uint32_t i = 0; i < n; i++) {
        g->cells[i] = n % 3 == 0 ? CELLS - n + i : n % 3 == 1 ? CELLS - 1 - i : CELLS - 1 - i * 7 % CELLS;
        for (uint32_t d = 0; d < dim; d++)
            elem_store(elem, elem_at(g, i, d), size * random_value(rng));
        g->at[i] = elem_at(g, i, 0);
    }
}

static void rig_draw(rig *g, const products *p, kvb_elem elem, uint32_t dim, uint32_t n, uint32_t rows, uint64_t *rng)
{
    const size_t q_bytes = p->kind == OF_F16 ? kvb_f16_query_bytes(dim) : kvb_bf16_query_bytes(dim);
    *g = (rig){.p = p, .rows = rows};
    rows_draw(g, elem, dim, n, (n + rows) % 3 ? 1 : (n + rows) % 2 ? 0x1p-9f : 0x1p-18f, rng);
    g->scratch = exact_alloc(kvb_bf16_scratch_bytes(dim), 0xff);
    /* weights behind the last cell: anything; 0 unless products are of floats */
    g->weights = exact_alloc(rows * BLOCK * sizeof *g->weights, p->kind == FLOATS ? 0xff : 0);
    g->scores = exact_alloc(rows * BLOCK * sizeof *g->scores, 0xff);
    floats_draw(g->q, rows, dim, rng);
    floats_draw(g->sums, rows, dim, rng);
    for (uint32_t r = 0; r < rows; r++) {
        g->encoded[r] = exact_alloc(q_bytes, 0xff);
        for (uint32_t d = 0; d < dim; d++)
            g->q[r][d] = ldexpf(g->q[r][d], 9 * (int)(r % 8) - 20);
        for (uint32_t i = 0; i < n; i++) {
            const float weight = ldexpf(random_value(rng), -(int)random_below(rng, 12));
            g->weights[r * BLOCK + i] = p->kind == FLOATS ? weight : fabsf(weight);
        }
    }
    queries_encode(g);
}

static void rig_free(rig *g)
{
    floats_free(g->q, g->rows);
    floats_free(g->sums, g->rows);
    for (uint32_t r = 0; r < g->rows; r++)
        free(g->encoded[r]);
    free(g->base);
    free(g->scratch);
    free(g->weights);
    free(g->scores);
}

/* Rows ahead are only prefetched and need not exist. */
static kvb_stored_rows rows_of(const rig *g, uint32_t way)
{
    return (kvb_stored_rows){
        .elem = g->format.elem,
        .n = g->n,
        .dim = g->dim,
        .at = g->at,
        .ahead = {way % 2 ? SIZE_MAX / 3 : 0, way % 5 < 3, way % 3, way % 7 < 4, way % 11 < 5, way % 13 < 6 ? 256 : 0}};
}

static bool rig_dots(rig *g)
{
    const kvb_stored_rows keys = rows_of(g, g->n);
    if (!g->blocks)
        return g->p->dots(&keys, g->queries, g->rows, g->scores);
    g->p->block_scores(&g->view, HEAD, g->cells, g->n, g->queries, g->rows, g->scores, NULL, g->scratch);
    return true;
}

static bool rig_sums(rig *g)
{
    const kvb_stored_rows values = rows_of(g, g->n);
    if (!g->blocks)
        return g->p->sums(&values, g->weights, g->rows, g->sums);
    g->p->block_sums(&g->view, HEAD, g->cells, g->n, g->weights, g->rows, g->sums, NULL, g->scratch);
    return true;
}

/* Rounds to nearest, ties to even. */
static double bf16_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    b = (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &b, sizeof x);
    return (double)x;
}

/* q or a weight as it is multiplied. f16: its rounding counts as one more of the chain. */
static double factor_of(const rig *g, float x)
{
    return g->p->kind == OF_BF16 ? bf16_of(x) : (double)x;
}

/* Higham's g(m), and a little for the test's own roundings in double. */
static double chain_error(double m, double u)
{
    return m * u / (1 - m * u) * (1 + 0x1p-10);
}

static void near_check(const rig *g, float got, double want, double bound, uint32_t r, uint32_t i)
{
    if (isfinite(want) ? !(fabs((double)got - want) <= bound) : isnan(want) ? !isnan(got) : (double)got != want)
        fail_msg("%s, %s%s, elem %d, dim %u, %u cells, %u rows: [%u][%u] = %.9g, want %.9g within %.3g",
                 kvb_cpu_level_names[g->p->level], kinds[g->p->kind].name, g->blocks ? " of blocks" : "",
                 (int)g->format.elem, g->dim, g->n, g->rows, r, i, (double)got, want, bound);
}

static void dots_check(rig *g)
{
    const double lanes = g->p->kind == FLOATS ? kvb_vector_at(g->p->level)->lanes : 0;
    const double chain[] = {
        [FLOATS] = g->dim / lanes + log2(lanes), [OF_BF16] = g->dim, [OF_F16] = F16_DOT_CHAIN(g->dim) + 1};
    const double error = chain_error(chain[g->p->kind], kinds[g->p->kind].u);
    memset(g->scores, 0xff, g->rows * BLOCK * sizeof *g->scores);
    assert_true(rig_dots(g));
    for (uint32_t r = 0; r < g->rows; r++) {
        double largest = 0;
        for (uint32_t d = 0; d < g->dim; d++)
            largest = fmax(largest, fabs((double)g->q[r][d]));
        for (uint32_t i = 0; i < g->n; i++) {
            double want = 0, size = 0, mass = 0;
            for (uint32_t d = 0; d < g->dim; d++) {
                const double x = value_of(g, i, d), term = factor_of(g, g->q[r][d]) * x;
                want += term;
                size += fabs(term);
                mass += fabs(x);
            }
            const double floors = g->p->kind == OF_F16 ? F16_ERROR / F16_LARGEST_Q * largest * (g->dim + mass) : 0;
            near_check(g, g->scores[r * BLOCK + i], want, error * size + floors, r, i);
        }
        for (uint32_t i = (g->n + 15) / 16 * 16; i < BLOCK && g->p->kind == FLOATS; i++)
            assert_true(isnan(g->scores[r * BLOCK + i]));
    }
}

static void sums_check(rig *g)
{
    static float before[MAX_ROWS][MAX_DIM];
    const bool short_sums = g->p->kind == OF_F16;
    const double error = chain_error(short_sums ? F16_SUM_CHAIN + 1 : g->n + 1, kinds[g->p->kind].u);
    const double unit = g->format.elem == KVB_E4M3 ? F16_WEIGHTS_E4M3 : F16_WEIGHTS;
    for (uint32_t r = 0; r < g->rows; r++)
        memcpy(before[r], g->sums[r], g->dim * sizeof **before);
    assert_true(rig_sums(g));
    for (uint32_t r = 0; r < g->rows; r++)
        for (uint32_t d = 0; d < g->dim; d++) {
            double want = (double)before[r][d], there = fabs(want), size = 0, mass = 0;
            for (uint32_t i = 0; i < g->n; i++) {
                const double x = value_of(g, i, d), term = factor_of(g, g->weights[r * BLOCK + i]) * x;
                want += term;
                size += fabs(term);
                mass += fabs(x);
            }
            const double bound = short_sums ? error * size + F16_ERROR / unit * (g->n + mass) + 0x1p-22 * (there + size)
                                            : error * (size + there);
            near_check(g, g->sums[r][d], want, bound, r, d);
        }
}

/* Checks products in place, for at most DOTS_ROWS query rows, and over packed blocks if there are such loops. */
static void both_check(rig *g)
{
    for (int blocks = g->rows > DOTS_ROWS; blocks <= (g->p->block_scores ? 1 : 0); blocks++) {
        g->blocks = blocks;
        dots_check(g);
        sums_check(g);
    }
}

static void call_check(const products *p, kvb_elem elem, uint32_t dim, uint32_t n, uint32_t rows, uint64_t *rng)
{
    rig g;
    rig_draw(&g, p, elem, dim, n, rows, rng);
    both_check(&g);
    rig_free(&g);
}

/* Every dim with every number of rows; and every number of cells with every number of rows. */
TEST(rows_are_multiplied)
{
    uint64_t rng = 1;
    products p;
    for (uint32_t at = 0; products_next(&at, &p);)
        for (uint32_t e = 0; e < sizeof stored / sizeof *stored; e++)
            for (uint32_t rows = 1; kinds[p.kind].takes >> e & 1 && rows <= (p.block_scores ? MAX_ROWS : DOTS_ROWS);
                 rows += rows < 14 ? 1 : 12) {
                const uint32_t unit = e < PLAIN ? 16 : kinds[p.kind].unit;
                for (uint32_t d = 0; d < DIMS; d++)
                    if (dims[d] % unit == 0)
                        call_check(&p, stored[e], dims[d], 1 + random_below(&rng, dims[d] > 256 ? BLOCK : 20), rows,
                                   &rng);
                for (uint32_t n = 1; n <= BLOCK; n += rows > DOTS_ROWS ? 5 : 1)
                    call_check(&p, stored[e], unit * (1 + n % 3), n, rows, &rng);
            }
}

/* Each code of a small float, wherever it lies among zeros. */
TEST(every_code_is_read)
{
    uint64_t rng = 3;
    products p;
    for (uint32_t at = 0; products_next(&at, &p);)
        for (uint32_t i = 0; p.kind == OF_BF16 && i < 512; i++) {
            rig g;
            const uint32_t dim = 64 + i % 2 * 16, d = i * 7 % dim;
            rig_draw(&g, &p, i < 256 ? KVB_E4M3 : KVB_E5M2, dim, 3, 1, &rng);
            for (uint32_t cell = 0; cell < g.n; cell++)
                memset(elem_at(&g, cell, 0), 0, dim);
            *(uint8_t *)elem_at(&g, 1, d) = (uint8_t)i;
            memset(g.weights, 0, g.n * sizeof *g.weights);
            g.weights[1] = 1;
            memset(g.sums[0], 0, dim * sizeof *g.sums[0]);
            for (uint32_t c = 0; c < dim; c++)
                g.q[0][c] = 1;
            queries_encode(&g);
            for (int blocks = 0; blocks < 2; blocks++) {
                g.blocks = blocks;
                rig_dots(&g);
                near_check(&g, g.scores[1], value_of(&g, 1, d), 0, 0, 1);
                near_check(&g, g.scores[2], 0, 0, 0, 2);
                g.sums[0][d] = 0;
                rig_sums(&g);
                near_check(&g, g.sums[0][d], value_of(&g, 1, d), 0, 0, d);
            }
            rig_free(&g);
        }
}

/*
 * An element that is not finite, also in the last of an odd number of cells. bf16: it reaches only the scores of its
 * cell and the sums of its channel. f16: the loop reports it, as any product beyond the range, and adds nothing.
 */
TEST(what_is_not_finite_is_seen)
{
    static const uint16_t bits[KVB_ELEM_COUNT][5] = {
        [KVB_BF16] = {0x7f80, 0xff80, 0x7fc0, 0x7f80, 0xff80},
        [KVB_E5M2] = {0x7c, 0xfc, 0x7e, 0x7c, 0xfc},
        [KVB_E4M3] = {0x7f, 0xff, 0x7f, 0xff, 0x7f},           /* no infinity */
        [KVB_F16] = {0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00}}; /* the largest of both signs first */
    uint64_t rng = 4;
    products p;
    for (uint32_t at = 0; products_next(&at, &p);)
        for (uint32_t i = 0; p.kind != FLOATS && i < 300; i++) {
            rig g;
            const bool small = i % 2, f16 = p.kind == OF_F16;
            const uint32_t dim = small && f16 ? 64 + 64 * (i / 2 % 3) : 16 + 16 * (i % 13);
            rig_draw(&g, &p,
                     f16     ? small ? KVB_E4M3 : KVB_F16
                     : small ? KVB_E5M2
                             : KVB_BF16,
                     dim, 1 + i * 5 % BLOCK, 1 + i % 8, &rng);
            const uint32_t cell = i % 5 ? g.n - 1 : random_below(&rng, g.n), d = random_below(&rng, dim);
            memcpy(elem_at(&g, cell, d), &bits[g.format.elem][i / 2 % 5], elem_bytes(g.format.elem));
            for (uint32_t r = 0; r < g.rows && f16 && !small && i / 2 % 5 < 2;
                 r++) { /* its factor takes it out of the range */
                float largest = 0;
                for (uint32_t c = 0; c < dim; c++)
                    largest = fmaxf(largest, fabsf(g.q[r][c]));
                g.q[r][d] = 16 * largest;
                g.weights[r * BLOCK + cell] = 2;
            }
            queries_encode(&g);
            g.blocks = !f16 && i / 2 % 2 == 0;
            if (!f16) {
                dots_check(&g);
                sums_check(&g);
            } else {
                float before[MAX_ROWS];
                for (uint32_t r = 0; r < g.rows; r++)
                    before[r] = g.sums[r][d];
                assert_false(rig_dots(&g));
                assert_false(rig_sums(&g));
                for (uint32_t r = 0; r < g.rows; r++)
                    assert_true(g.sums[r][d] == before[r]);
            }
            rig_free(&g);
        }
}

/* Query rows of zeros, of the largest and smallest floats, infinite, NaN: as exact as others, except for BF16_LOST. */
TEST(queries_of_any_size_are_taken)
{
    static const float sizes[] = {0, 0x1.fffffep127f, 0x1p-41f, 0x1p-100f, 0x1p-140f, INFINITY, NAN, 0x1p-149f};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    uint64_t rng = 5;
    products p;
    for (uint32_t at = 0; products_next(&at, &p);)
        for (uint32_t i = 0; p.kind != FLOATS && i < (p.kind == OF_BF16 ? 2 * SIZES : SIZES - 1); i++) {
            rig g;
            const kvb_elem elem = p.kind == OF_BF16 ? KVB_BF16 : KVB_F16;
            const float size = sizes[i % SIZES];
            const float met = size >= 1 ? 0x1p-2f : elem == KVB_BF16 ? 0x1p50f : 0x1p10f; /* large enough to show */
            rig_draw(&g, &p, elem, 32, 3, 1, &rng);
            for (uint32_t d = 0; d < 32; d++) {
                g.q[0][d] = d == 5 ? size : size * 0x1p-7f;
                elem_store(elem, elem_at(&g, 1, d), d == 5 ? met : 0);
            }
            queries_encode(&g);
            g.blocks = i >= SIZES;
            const bool well = rig_dots(&g);
            const double want = (double)size * (double)met, got = (double)g.scores[1];
            assert_int_equal(well, p.kind == OF_BF16 || isfinite(size));
            assert_true(isfinite(want) ? fabs(got - want) <= want * 0x1p-8 : !well || !isfinite(got));
            rig_free(&g);
        }
}

/* Numbers below 2^-126 count as 0; the loss is no more than declared. */
TEST(what_is_lost_is_declared)
{
    uint64_t rng = 6;
    products p;
    for (uint32_t at = 0; products_next(&at, &p);)
        for (int blocks = 0; p.kind == OF_BF16 && blocks < 2; blocks++) {
            rig g;
            rig_draw(&g, &p, KVB_BF16, 128, 64, 2, &rng);
            g.blocks = blocks;
            for (uint32_t i = 0; i < g.n; i++)
                for (uint32_t d = 0; d < g.dim; d++) /* below 2^-125 */
                    *(uint16_t *)elem_at(&g, i, d) = (uint16_t)(random_bits(&rng) & 0x80ff);
            for (uint32_t r = 0; r < g.rows; r++)
                for (uint32_t d = 0; d < g.dim; d++) {
                    g.q[r][d] = ldexpf(random_value(&rng), r ? -50 : 0);
                    g.sums[r][d] = 0;
                }
            queries_encode(&g);
            rig_dots(&g);
            rig_sums(&g);
            for (uint32_t r = 0; r < g.rows; r++) {
                double largest = 0, want;
                for (uint32_t d = 0; d < g.dim; d++)
                    largest = fmax(largest, fabs((double)g.q[r][d]));
                for (uint32_t i = 0; i < g.n; i++) {
                    want = 0;
                    for (uint32_t d = 0; d < g.dim; d++)
                        want += bf16_of(g.q[r][d]) * value_of(&g, i, d);
                    assert_true(fabs((double)g.scores[r * BLOCK + i] - want) <= 2 * g.dim * BF16_LOST * largest);
                }
                for (uint32_t d = 0; d < g.dim; d++) {
                    want = 0;
                    for (uint32_t i = 0; i < g.n; i++)
                        want += bf16_of(g.weights[r * BLOCK + i]) * value_of(&g, i, d);
                    assert_true(fabs((double)g.sums[r][d] - want) <= 4 * BF16_LEAST * g.n);
                }
            }
            rig_free(&g);
        }
}

/* ---- loops over floats only -------------------------------------------------------------------------------------- */

/* beside() gives the same bits as dots() and sums(). ahead: chooses how rows_of() prefetches. */
static void beside_check(const kvb_vector *level, kvb_elem elem, uint32_t n_rows, uint32_t n, uint32_t ahead,
                         uint64_t *rng)
{
    const products p = {.level = kvb_vector_level(level), .dots = level->dots, .sums = level->sums};
    float *scores = exact_alloc(n_rows * BLOCK * sizeof *scores, 0xff); /* in place of the weights */
    float *sums[BESIDE_ROWS];
    rig k, v;

    rig_draw(&k, &p, elem, BESIDE_DIM, n, n_rows, rng);
    rig_draw(&v, &p, elem, BESIDE_DIM, n, n_rows, rng);
    const kvb_stored_rows keys = rows_of(&k, ahead), values = rows_of(&v, ahead);
    floats_draw(sums, n_rows, BESIDE_DIM, NULL);
    memcpy(scores, v.weights, n_rows * BLOCK * sizeof *scores);
    for (uint32_t r = 0; r < n_rows; r++)
        memcpy(sums[r], v.sums[r], BESIDE_DIM * sizeof **sums);
    level->dots(&keys, k.queries, n_rows, k.scores);
    level->sums(&values, v.weights, n_rows, v.sums);
    level->beside(&keys, k.queries, scores, &values, scores, n_rows, sums);
    for (uint32_t r = 0; r < n_rows; r++)
        if (memcmp(scores + r * BLOCK, k.scores + r * BLOCK, n * sizeof *scores) ||
            memcmp(sums[r], v.sums[r], BESIDE_DIM * sizeof **sums))
            fail_msg("%s: beside() of %u rows, %u cells: other bits than dots() or sums() in row %u",
                     kvb_cpu_level_names[kvb_vector_level(level)], n_rows, n, r);
    floats_free(sums, n_rows);
    free(scores);
    rig_free(&k);
    rig_free(&v);
}

static void pack_check(const kvb_vector *level, kvb_elem elem, uint32_t n, uint32_t dim, uint64_t *rng)
{
    float *keys = exact_alloc(BLOCK * dim * sizeof *keys, 0xff);
    float *values = exact_alloc(BLOCK * dim * sizeof *values, 0xff);
    rig g = {.p = &(products){.level = kvb_vector_level(level)}};

    rows_draw(&g, elem, dim, n, 1, rng);
    level->pack_keys(elem, g.at, n, dim, keys);
    level->pack_values(elem, g.at, n, dim, values);
    for (uint32_t i = 0; i < BLOCK; i++)
        for (uint32_t d = 0; d < dim; d++) {
            const double want = i < n ? value_of(&g, i, d) : 0;
            near_check(&g, keys[d * BLOCK + i], want, 0, i, d);
            near_check(&g, values[i * dim + d], want, 0, i, d);
        }
    free(keys);
    free(values);
    free(g.base);
}

static void product_check(const kvb_vector *level, uint32_t rows, uint32_t depth, uint32_t width, bool add,
                          uint64_t *rng)
{
    const uint32_t b_row = width + rows % 2 * 16; /* also columns of a wider b */
    float **a = exact_alloc(rows * sizeof *a, 0), **c = exact_alloc(rows * sizeof *c, 0);
    float **before = exact_alloc(rows * sizeof *before, 0), *b = exact_alloc(depth * b_row * sizeof *b, 0xff);

    floats_draw(a, rows, depth, rng);
    floats_draw(c, rows, width, add ? rng : NULL); /* NaN if it must be overwritten */
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
            if (!(fabs((double)c[r][j] - want) <= chain_error(depth + add, 0x1p-24) * size))
                fail_msg("%s, product of %u rows, depth %u, width %u: [%u][%u] = %.9g, want %.9g",
                         kvb_cpu_level_names[kvb_vector_level(level)], rows, depth, width, r, j, (double)c[r][j], want);
        }
    floats_free(a, rows);
    floats_free(c, rows);
    floats_free(before, rows);
    free(a);
    free(c);
    free(before);
    free(b);
}

TEST(beside_is_dots_and_sums)
{
    uint64_t rng = 5;
    const kvb_vector *table;
    for (int level = 0; (table = level_next(&level));)
        for (uint32_t e = 0; e < PLAIN; e++)
            for (uint32_t rows = 1; rows <= BESIDE_ROWS; rows += rows == 4 ? 4 : 1)
                for (uint32_t n = 16; n <= BLOCK; n += 16)
                    for (uint32_t ahead = 0; ahead < 8; ahead++)
                        beside_check(table, stored[e], rows, n, ahead, &rng);
}

TEST(packs_are_copies)
{
    uint64_t rng = 2;
    const kvb_vector *table;
    for (int level = 0; (table = level_next(&level));)
        for (uint32_t e = 0; e < PLAIN; e++) {
            for (uint32_t d = 0; d < DIMS; d++)
                pack_check(table, stored[e], BLOCK - d % 3, dims[d], &rng);
            for (uint32_t n = 1; n <= BLOCK; n++)
                pack_check(table, stored[e], n, 48, &rng);
        }
}

TEST(products_are_right)
{
    uint64_t rng = 3;
    const kvb_vector *table;
    for (int level = 0; (table = level_next(&level));) {
        for (uint32_t rows = 1; rows <= 130; rows++)
            product_check(table, rows, 1 + rows % 40, 16 * (1 + rows % 9), rows % 2, &rng);
        for (uint32_t d = 0; d < DIMS; d++) {
            product_check(table, 6 + d % 7, dims[d], BLOCK, false, &rng);
            product_check(table, 6 + d % 7, BLOCK, dims[d], true, &rng);
        }
    }
}

TEST(rescaling_is_exact)
{
    uint64_t rng = 4;
    const kvb_vector *table;
    for (int level = 0; (table = level_next(&level));)
        for (uint32_t d = 0; d < DIMS; d++) {
            float *sums, before[MAX_DIM];
            floats_draw(&sums, 1, dims[d], &rng);
            memcpy(before, sums, dims[d] * sizeof *sums);
            float to[MAX_DIM] = {0};
            table->rescale(to, sums, dims[d], 0x1p-9f);
            table->rescale(sums, sums, dims[d], 0x1p-9f);
            for (uint32_t c = 0; c < dims[d]; c++)
                assert_true(sums[c] == before[c] * 0x1p-9f && to[c] == sums[c]);
            free(sums);
        }
}

/* Addresses of neighbours and of any cells, also if cell * stride exceeds 32 bits; none is written behind the last. */
TEST(rows_lie_where_cells_say)
{
    static const size_t strides[] = {256, 272, 1 << 20, (size_t)5 << 32};
    const uintptr_t first = 0x1000;
    const kvb_vector *table;
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
