/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: products of stored codes, in integers and in f16, agree with kernels/vector/vector.h, and kernels multiply the
 * q that they declare. */
#include "ci/tests/tests.h"
#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"
#include "ci/tests/kernels/levels.h"
#include "ci/tests/whole/parts.h"
#include "kernels/flash/flash.h"
#include "kernels/kernels.h"
#include "kernels/vector/int8.h"
#include "oracle/codec.h"

/*
 * Shows that the integer products agree with kernels/vector/vector.h at every level of instruction sets that this CPU
 * has, within a few f32 roundings: scores are those of q rounded to steps of its largest magnitude / 127, sums those of
 * weights rounded to 127 steps of the largest. Both are as near the exact products as these steps allow. NaN,
 * infinities, zeros and hidden cells have the right effect. Rows are stored by the pools, in scattered cells.
 */

enum { CELLS = 96, HEADS = 2, HEAD = 1, MAX_DIM = 256, MAX_ROWS = 104, PAGE = 8 };

static kvb_allocator allocator;
static float rows_in[CELLS][HEADS * MAX_DIM];
static float q[MAX_ROWS][MAX_DIM];
static _Alignas(64) float scores[MAX_ROWS][BLOCK], weights[MAX_ROWS][BLOCK], sums[MAX_ROWS][MAX_DIM];
static const void *queries[MAX_ROWS];
static float *sums_of[MAX_ROWS];
static uint32_t cells[BLOCK], apart = 37;
static uint32_t seed = 1;

/* A random number in -1 .. 1. */
static float any(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed * 0x1p-31f;
}

/* ---- stored rows ------------------------------------------------------------------------------------------------- */

typedef struct side {
    const kvb_pool_type *type;
    kvb_pool *pool;
    kvb_view view;
} side;

/* Opens a pool with rows of very different sizes, among them zeros and constant rows. size_of_all > 0: rows of about
 * this size instead. */
static void side_open(side *s, const char *name, uint32_t dim, float size_of_all)
{
    kvb_pool_options options = {
        .n_kv_heads = HEADS, .dim = dim, .min_chunk = CELLS, .capacity = CELLS, .allocator = &allocator};
    s->type = pool_named(name);
    assert_int_equal(s->type->open(s->type, &options, &s->pool), 0);
    assert_int_equal(s->type->ensure(s->pool, CELLS), 0);
    for (uint32_t c = 0; c < CELLS; c++) {
        float size = ldexpf(1.0f, (int)(c % 7) - 3), lift = c % 5 == 0 ? size : 0;
        for (uint32_t i = 0; i < HEADS * dim; i++)
            rows_in[c][i] = size_of_all > 0 ? size_of_all * (any() * size + (c % 5 ? 0 : 1))
                            : c % 31 == 3   ? 0
                            : c % 31 == 4   ? 0.75f
                                            : any() * any() * size + lift;
        s->type->write_run(s->pool, c, 1, rows_in[c]);
    }
    s->type->view(s->pool, CELLS, &s->view);
}

static void side_close(side *s)
{
    s->type->close(s->pool);
}

static double half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return kvb_codec_value(KVB_F16, h);
}

/* One stored row: elements, codes less the middle code, and for each element d and the middle code's value m. */
typedef struct stored {
    float x[MAX_DIM];
    double d[MAX_DIM], m[MAX_DIM];
    int code[MAX_DIM];
} stored;

static stored stored_k[BLOCK], stored_v[BLOCK];

static void stored_read(const kvb_view *v, uint32_t cell, stored *to)
{
    static const int middles[KVB_ELEM_COUNT] = {
        [KVB_UINT8] = 128, [KVB_UINT4] = 8, [KVB_UINT2] = 2, [KVB_Q5_1] = 16, [KVB_Q4_1] = 8};
    const kvb_format *f = v->format;
    bool block = kvb_elem_is_block(f->elem), least = f->elem == KVB_Q5_1 || f->elem == KVB_Q4_1;
    const uint8_t *row = kvb_view_row(v, HEAD, cell);
    size_t block_bytes = kvb_codes_bytes(f, 32), size = kvb_scale_bytes(f->scale_elem);

    f->read(v, HEAD, cell, 1, to->x);
    for (uint32_t c = 0; c < v->dim; c++) {
        uint32_t g = f->group == KVB_GROUP_ROW ? 0 : c / f->group;
        const uint8_t *d = row + g * block_bytes, *m = d + 2;
        if (!block) {
            d = (const uint8_t *)v->scales + HEAD * v->scale_head_stride + cell * v->scale_cell_stride + g * size;
            m = (const uint8_t *)v->zeros + HEAD * v->zero_head_stride + cell * v->zero_cell_stride + g * size;
        }
        float x[2] = {0, 0};
        if (!block && f->scale_elem == KVB_F32) {
            memcpy(&x[0], d, 4);
            if (kvb_format_has_zeros(f))
                memcpy(&x[1], m, 4);
            to->d[c] = (double)x[0];
            to->m[c] = (double)x[1];
        } else {
            to->d[c] = half_at(d);
            to->m[c] = least || (!block && kvb_format_has_zeros(f)) ? half_at(m) : 0;
        }
        to->m[c] += middles[f->elem] * to->d[c];
        to->code[c] = to->d[c] != 0 ? (int)lrint(((double)to->x[c] - to->m[c]) / to->d[c]) : 0;
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

static void scores_check(const kvb_vector *isa, const kvb_view *k, uint32_t n, uint32_t n_rows)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        float most = 0;
        for (uint32_t c = 0; c < k->dim; c++)
            most = fmaxf(most, fabsf(q[r][c]));
        float step = most / 127.0f;
        for (uint32_t i = 0; i < n; i++) {
            double rounded = 0, exact = 0, size = 0, far = 0;
            for (uint32_t c = 0; c < k->dim; c++) {
                const stored *s = &stored_k[i];
                double x = s->d[c] * s->code[c] + s->m[c], whole = step > 0 ? (double)rintf(q[r][c] / step) : 0;
                rounded += whole * (double)step * x;
                exact += (double)q[r][c] * x;
                size += fabs(whole) * (double)step * (fabs(s->d[c] * s->code[c]) + fabs(s->m[c]));
                far += fabs(x);
            }
            double f32 = size * 0x1p-24 * (2 * k->dim / 32 + 8) + 0x1p-140;
            if (!(fabs((double)scores[r][i] - rounded) <= f32))
                fail_msg("%s, %s, dim %u, %u cells, %u rows: score %u of row %u is %a, not %a: off by %g, allowed %g",
                         k->format->name, kvb_cpu_level_names[kvb_vector_level(isa)], k->dim, n, n_rows, i, r,
                         (double)scores[r][i], rounded, (double)scores[r][i] - rounded, f32);
            assert_true(fabs((double)scores[r][i] - exact) <= (double)most * INT8_QUERY_STEP / 2 * far + f32);
        }
        for (uint32_t i = n; i < (n + 15) / 16 * 16; i++)
            assert_true(isfinite(scores[r][i]));
    }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static void sums_check(const kvb_vector *isa, const kvb_view *v, uint32_t n, uint32_t n_rows)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        float largest = 0;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t c = 0; c < v->dim; c++)
                largest = fmaxf(largest, fabsf(weights[r][i] * (float)stored_v[i].d[c]));
        for (uint32_t c = 0; c < v->dim; c++) {
            double start = (double)(c + 1), rounded = start, exact = start, size = start, allowed = 0;
            double step = (double)largest / 127;
            for (uint32_t i = 0; i < n; i++) {
                const stored *s = &stored_v[i];
                double p = (double)weights[r][i];
                float product = weights[r][i] * (float)s->d[c];
                double whole = largest > 0 ? (double)rintf(product * (127.0f / largest)) : 0;
                rounded += whole * step * s->code[c] + p * s->m[c];
                exact += p * (s->d[c] * s->code[c] + s->m[c]);
                size += fabs(p * s->d[c]) * 128 + fabs(p * s->m[c]);
                allowed += step * (0.5 + 0x1p-8) * abs(s->code[c]);
            }
            double f32 = size * 0x1p-24 * 16;
            if (!(fabs((double)sums[r][c] - rounded) <= f32))
                fail_msg("%s, %s, dim %u, %u cells, %u rows: sum %u of row %u is %a, not %a: off by %g, allowed %g",
                         v->format->name, kvb_cpu_level_names[kvb_vector_level(isa)], v->dim, n, n_rows, c, r,
                         (double)sums[r][c], rounded, (double)sums[r][c] - rounded, f32);
            assert_true(fabs((double)sums[r][c] - exact) <= allowed + f32);
        }
    }
}

/* ---- driving ----------------------------------------------------------------------------------------------------- */

typedef struct run {
    side k, v;
    void *scratch, *encoded;
    size_t query_bytes;
} run;

static void run_open(run *r, const char *k, const char *v, uint32_t k_dim, uint32_t v_dim)
{
    char why[200];
    side_open(&r->k, k, k_dim, 0);
    side_open(&r->v, v, v_dim, 0);
    const kvb_problem p = {.k_format = r->k.view.format, .v_format = r->v.view.format, .k_dim = k_dim, .v_dim = v_dim};
    assert_true(kvb_product_int8.fits(&p, why, sizeof why));
    r->query_bytes = kvb_product_int8.query_bytes(&p);
    assert_int_equal(r->query_bytes % 64, 0);
    r->encoded = aligned_alloc(64, MAX_ROWS * r->query_bytes);
    size_t bytes = kvb_product_int8.scratch_bytes(&p);
    assert_int_equal(bytes % 64, 0);
    r->scratch = aligned_alloc(64, bytes);
    memset(r->scratch, 0xff, bytes); /* NaN, and the largest codes */
}

static void run_close(run *r)
{
    free(r->encoded);
    free(r->scratch);
    side_close(&r->k);
    side_close(&r->v);
}

/* Picks and reads n cells, `apart` from each other. All differ, since 37 and 96 share no factor. */
static void cells_pick(const run *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        cells[i] = (i * apart + 11) % CELLS;
        stored_read(&r->k.view, cells[i], &stored_k[i]);
        stored_read(&r->v.view, cells[i], &stored_v[i]);
    }
}

static void inputs_fill(const run *r, uint32_t n, uint32_t n_rows)
{
    for (uint32_t t = 0; t < n_rows; t++) {
        for (uint32_t c = 0; c < r->k.view.dim; c++)
            q[t][c] = t == 5 ? 0 : any() * (c % 17 == 2 ? 4.0f : 1.0f);
        for (uint32_t i = 0; i < BLOCK; i++)
            weights[t][i] = i >= n || t == 6 || i % 11 == 10 ? 0 : fabsf(any()) * (t % 3 ? 1.0f : 256.0f);
        for (uint32_t c = 0; c < MAX_DIM; c++)
            sums[t][c] = (float)(c + 1);
        sums_of[t] = sums[t];
    }
}

/* A lookahead over the same cells; for odd n steadily. */
static kvb_lookahead next_of(const kvb_view *view, uint32_t n)
{
    return (kvb_lookahead){.view = view, .cells = cells, .h = HEAD, .n = n, .ahead = 4, .run = 1, .steadily = n % 2};
}

static void scores_make(const kvb_vector *isa, const run *r, uint32_t n, uint32_t n_rows)
{
    for (uint32_t t = 0; t < n_rows; t++) {
        char *to = (char *)r->encoded + (t ^ n_rows % 4) * r->query_bytes; /* most lie in another order */
        isa->int8_query(r->k.view.format, r->k.view.dim, q[t], to);
        queries[t] = to;
    }
    kvb_lookahead next = next_of(&r->k.view, n);
    isa->int8_scores(&r->k.view, HEAD, cells, n, queries, n_rows, scores[0], n == 2 ? NULL : &next, r->scratch);
    assert_int_equal(next.done, n == 2 ? 0 : n); /* all was prefetched */
}

static void sums_make(const kvb_vector *isa, const run *r, uint32_t n, uint32_t n_rows)
{
    kvb_lookahead next = next_of(&r->v.view, n);
    isa->int8_sums(&r->v.view, HEAD, cells, n, weights[0], n_rows, sums_of, n == 2 ? NULL : &next, r->scratch);
    assert_int_equal(next.done, n == 2 ? 0 : n);
}

#define EACH_LEVEL(isa)                                                                                                \
    for (int level_##isa = 0, *once = &level_##isa; once; once = NULL)                                                 \
        for (const kvb_vector *isa; (isa = level_next(&level_##isa));)

static void both_check(const char *k, const char *v, uint32_t k_dim, uint32_t v_dim, uint32_t n, uint32_t n_rows)
{
    run r;
    run_open(&r, k, v, k_dim, v_dim);
    cells_pick(&r, n);
    EACH_LEVEL(isa)
    {
        inputs_fill(&r, n, n_rows);
        scores_make(isa, &r, n, n_rows);
        scores_check(isa, &r.k.view, n, n_rows);
        sums_make(isa, &r, n, n_rows);
        sums_check(isa, &r.v.view, n, n_rows);
    }
    run_close(&r);
}

static const char *const names[] = {"int8",  "int8-asym", "q8_0",  "q5_1",  "q5_0",   "q4_1",
                                    "q4_0",  "iq4_nl",    "a8g32", "a8g64", "a8g128", "a4g32",
                                    "a4g64", "a4g128",    "a2g32", "a2g64", "a2g128"};
enum { NAMES = sizeof names / sizeof *names };

static bool format_fits(const kvb_format *format, uint32_t dim, char *why, size_t why_bytes)
{
    const kvb_problem p = {.k_format = format, .v_format = format, .k_dim = dim, .v_dim = dim};
    return kvb_product_int8.fits(&p, why, why_bytes);
}

static bool fits(const char *name, uint32_t dim)
{
    char why[200];
    return format_fits(pool_named(name)->format, dim, why, sizeof why);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

TEST(every_format_and_length)
{
    static const uint32_t dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256};
    for (uint32_t f = 0; f < NAMES; f++)
        for (uint32_t i = 0; i < sizeof dims / sizeof *dims; i++)
            if (fits(names[f], dims[i])) {
                both_check(names[f], names[f], dims[i], dims[i], 64, 3);
                both_check(names[f], names[f], dims[i], dims[i], 37, 9);
            }
}

TEST(every_number_of_cells)
{
    for (uint32_t n = 1; n <= BLOCK; n++) {
        both_check("q5_0", "a4g64", 64, 64, n, 2);
        both_check("int8", "int8", 80, 48, n, 1);
    }
}

TEST(every_number_of_rows)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 26, 49, 104};
    for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        both_check("int8", "q4_0", 128, 96, 64, counts[i]);
        both_check("a4g32", "int8-asym", 96, 128, 61, counts[i]);
    }
}

/* Cells whose scales are neighbours. */
TEST(neighbouring_cells)
{
    static const uint32_t dims[] = {64, 128, 192, 256};
    apart = 1;
    for (uint32_t f = 0; f < NAMES; f++)
        for (uint32_t i = 0; i < sizeof dims / sizeof *dims; i++)
            if (fits(names[f], dims[i]))
                for (uint32_t n = 40; n <= BLOCK; n += BLOCK - 40)
                    both_check(names[f], names[f], dims[i], dims[i], n, 3);
    apart = 37;
}

/* The largest codes of 4 and 5 bits with the largest weights and q, of either sign: AVX2 adds as many such products as
 * 16 bits hold. */
TEST(the_largest_codes)
{
    static const char *const narrow[] = {"q5_0", "q5_1", "q4_0", "a4g64"};
    for (uint32_t f = 0; f < 8; f++) {
        const uint16_t d = f / 4 ? 0xbc00 : 0x3c00; /* -1, 1 */
        run r;
        run_open(&r, narrow[f % 4], narrow[f % 4], 128, 128);
        const int8_elem of = int8_elem_of(r.v.view.format->elem);
        for (uint32_t i = 0; i < CELLS * 4 * 2; i++) {
            const kvb_view *view = i % 2 ? &r.k.view : &r.v.view;
            const uint32_t cell = i / 8, b = i / 2 % 4, bytes = of.block_bytes ? of.block_bytes : 16;
            uint8_t *block = (uint8_t *)(uintptr_t)kvb_view_row(view, HEAD, cell) + b * bytes;
            const uint32_t from = of.block_bytes ? of.codes_at - (of.offset == 16 ? 4u : 0) : 0;
            memset(block, 0, from);
            memset(block + from, 0xff, bytes - from);
            memcpy(of.block_bytes ? block
                                  : (uint8_t *)(uintptr_t)view->scales + HEAD * view->scale_head_stride +
                                        cell * view->scale_cell_stride + b / 2 * sizeof d,
                   &d, sizeof d);
        }
        cells_pick(&r, BLOCK);
        EACH_LEVEL(isa)
        {
            inputs_fill(&r, BLOCK, 4);
            for (uint32_t i = 0; i < 4 * BLOCK; i++)
                weights[i / BLOCK][i % BLOCK] = 1;
            for (uint32_t i = 0; i < 4 * 128; i++)
                q[i / 128][i % 128] = i / 128 % 2 ? -1 : 1;
            scores_make(isa, &r, BLOCK, 4);
            scores_check(isa, &r.k.view, BLOCK, 4);
            sums_make(isa, &r, BLOCK, 4);
            sums_check(isa, &r.v.view, BLOCK, 4);
        }
        run_close(&r);
    }
}

/* Levels of x86-64 with the same number of lanes give the same sums, and the same scores of rows not read in place. Tiles
 * take more than 8 rows. */
TEST(as_many_lanes_have_the_same_bits)
{
    static const struct {
        uint32_t dim, n, n_rows;
    } shapes[] = {{128, 61, 1},  {128, 61, 5}, {128, 61, 9}, {128, 64, 16}, {128, 16, 17}, {128, 17, 32}, {128, 1, 33},
                  {128, 40, 45}, {64, 63, 48}, {96, 30, 23}, {80, 13, 10},  {160, 64, 31}, {256, 52, 64}, {16, 64, 64}};
    static float scores_before[64][BLOCK], sums_before[64][MAX_DIM];
    for (uint32_t f = 0; f < NAMES; f++)
        for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const uint32_t dim = shapes[i].dim, n = shapes[i].n, n_rows = shapes[i].n_rows;
            uint32_t lanes = 0;
            run r;
            if (!fits(names[f], dim))
                continue;
            run_open(&r, names[f], names[f], dim, dim);
            cells_pick(&r, n);
            inputs_fill(&r, n, n_rows);
            EACH_LEVEL(isa)
            {
                if (kvb_vector_level(isa) < KVB_CPU_AVX2 || kvb_vector_level(isa) >= KVB_CPU_NEON)
                    continue;
                for (uint32_t t = 0; t < n_rows; t++)
                    for (uint32_t c = 0; c < MAX_DIM; c++)
                        sums[t][c] = (float)(c + 1);
                scores_make(isa, &r, n, n_rows);
                sums_make(isa, &r, n, n_rows);
                for (uint32_t t = 0; t < n_rows && isa->lanes == lanes; t++) {
                    assert_memory_equal(sums[t], sums_before[t], sizeof sums[t]);
                    if (n_rows > 4)
                        assert_memory_equal(scores[t], scores_before[t], n * sizeof scores[t][0]);
                }
                lanes = isa->lanes;
                memcpy(scores_before, scores, sizeof scores_before);
                memcpy(sums_before, sums, sizeof sums_before);
            }
            run_close(&r);
        }
}

/* Few rows take vectors at every level, many take tiles at level amx. */
static const uint32_t few_or_many[2] = {4, 9};

/* NaN and infinities in q, and rows of zeros. */
TEST(awkward_queries)
{
    for (uint32_t f = 0; f < 2 * NAMES; f++) {
        const uint32_t n_rows = few_or_many[f / NAMES];
        run r;
        run_open(&r, names[f % NAMES], "int8", 128, 128);
        cells_pick(&r, 20);
        EACH_LEVEL(isa)
        {
            inputs_fill(&r, 20, n_rows);
            q[0][77] = NAN;
            q[1][3] = -INFINITY;
            for (uint32_t c = 0; c < 128; c++)
                q[3][c] = c == 9 ? 0x1p-149f : 0;
            scores_make(isa, &r, 20, n_rows);
            for (uint32_t i = 0; i < 20; i++) {
                assert_true(isnan(scores[0][i]) && isnan(scores[1][i]));
                assert_true(isfinite(scores[2][i]) && fabsf(scores[3][i]) <= 0x1p-140f);
            }
        }
        run_close(&r);
    }
}

static void scale_spoil(const kvb_view *v, uint32_t cell, bool zeros)
{
    const kvb_format *f = v->format;
    const float nan32 = NAN;
    const uint16_t nan16 = 0x7e00;
    const void *at = kvb_view_row(v, HEAD, cell);
    bool half = kvb_elem_is_block(f->elem) || f->scale_elem == KVB_F16;
    if (zeros)
        at = (const char *)v->zeros + HEAD * v->zero_head_stride + cell * v->zero_cell_stride;
    else if (!kvb_elem_is_block(f->elem))
        at = (const char *)v->scales + HEAD * v->scale_head_stride + cell * v->scale_cell_stride;
    memcpy((void *)(uintptr_t)at, half ? (const void *)&nan16 : &nan32, half ? 2 : 4);
}

/* A NaN in a cell of weight 0 has no effect. In a cell with a weight it makes the sums of its group NaN, and no
 * others. */
TEST(awkward_values)
{
    for (uint32_t f = 0; f < 2 * NAMES; f++)
        for (int zeros = 0; zeros < 2; zeros++) {
            const uint32_t n_rows = few_or_many[f / NAMES];
            run r;
            run_open(&r, "int8", names[f % NAMES], 128, 128);
            const kvb_format *v = r.v.view.format;
            uint32_t group = v->group == KVB_GROUP_ROW ? 128 : v->group;
            cells_pick(&r, 20);
            if (!zeros || r.v.view.zeros)
                scale_spoil(&r.v.view, cells[7], zeros);
            EACH_LEVEL(isa)
            {
                inputs_fill(&r, 20, n_rows);
                weights[0][7] = weights[2][7] = weights[3][7] = 0;
                weights[1][7] = 0.5f;
                weights[2][4] = NAN;
                weights[3][4] = 0x1p-125f;
                sums_make(isa, &r, 20, n_rows);
                for (uint32_t c = 0; c < 128; c++) {
                    assert_true(isfinite(sums[0][c]) && isnan(sums[2][c]) && isfinite(sums[3][c]));
                    assert_true(zeros && !r.v.view.zeros ? isfinite(sums[1][c]) : isnan(sums[1][c]) == (c < group));
                }
            }
            run_close(&r);
        }
}

/* Weights of 0 change no bit of the sums. */
TEST(zero_weights)
{
    for (uint32_t f = 0; f < 2 * NAMES; f++) {
        const uint32_t n_rows = few_or_many[f / NAMES];
        run r;
        run_open(&r, "int8", names[f % NAMES], 128, 128);
        cells_pick(&r, 64);
        EACH_LEVEL(isa)
        {
            inputs_fill(&r, 64, n_rows);
            memset(weights, 0, sizeof weights);
            sums_make(isa, &r, 64, n_rows);
            for (uint32_t t = 0; t < n_rows; t++)
                for (uint32_t c = 0; c < 128; c++)
                    assert_true(sums[t][c] == (float)(c + 1));
        }
        run_close(&r);
    }
}

/* Formats that integer products do not read are declined, with a reason. */
TEST(others_declined)
{
    static const char *const others[] = {"f32",     "f16",     "bf16",  "e4m3",  "e5m2-head",
                                         "kivi4-k", "kivi2-v", "mxfp4", "nvfp4", "tq4"};
    char why[200];
    for (uint32_t i = 0; i < sizeof others / sizeof *others; i++) {
        why[0] = 0;
        assert_false(format_fits(pool_named(others[i])->format, 128, why, sizeof why));
        assert_true(strstr(why, others[i]) && strstr(why, "integer products"));
    }
    for (uint32_t f = 0; f < NAMES; f++) {
        assert_false(format_fits(pool_named(names[f])->rotated->format, 128, why, sizeof why));
        assert_contains(why, "transformed");
        assert_false(format_fits(pool_named(names[f])->format, 72, why, sizeof why));
    }
}

/*
 * Shows: f16 products with stored 8-bit codes agree with those of format->read's rows, within the chains that
 * kernels/vector/vector.h states and one rounding of each element, from scattered cells. If elements exceed f16's
 * range, flash-f16 computes as flash does.
 */

enum { F16_ROWS = 8, F16_HEADS = HEADS * 4, F16_DIM = 128, CANARY = 1 << 16 };

static const char *const f16_names[] = {"q8_0", "a8g32", "a8g64", "a8g128"};
enum { F16_NAMES = sizeof f16_names / sizeof *f16_names };

static const kvb_f16_loops *f16_tried(void)
{
    if (!level_tried(KVB_CPU_AVX512FP16))
        skip();
    return kvb_loops_at(KVB_CPU_AVX512FP16)->f16;
}

/* got must be near: a chain of f16 roundings of terms of sum `mass`, and n subnormal products. */
static void f16_near(double got, double want, uint32_t chain, double mass, uint32_t n, const kvb_view *view, uint32_t r,
                     uint32_t i)
{
    const double u = 0x1p-11, bound = chain * u / (1 - chain * u) * 1.001 * mass + n * 0x1p-23;
    if (!(fabs(got - want) <= bound))
        fail_msg("%s, dim %u, row %u, cell or channel %u: %g, not %g", view->format->name, view->dim, r, i, got, want);
}

static void f16_check(const kvb_f16_loops *f16, const kvb_view *view, uint32_t rows, uint32_t n)
{
    const uint32_t dim = view->dim;
    static _Alignas(64) char encoded[F16_ROWS][64 + 2 * MAX_DIM];
    double size[BLOCK] = {0};
    const void *at[BLOCK];

    for (uint32_t i = 0; i < n; i++) {
        cells[i] = (i * 37 + 5) % CELLS;
        at[i] = kvb_view_row(view, HEAD, cells[i]);
        view->format->read(view, HEAD, cells[i], 1, stored_k[i].x);
        for (uint32_t c = 0; c < dim;
             c++) /* at least |code * scale| + |zero|, to which an element's rounding is relative */
            size[i] = fmax(size[i], 3 * fabs((double)stored_k[i].x[c]));
    }
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t d = 0; d < dim; d++)
            q[r][d] = any(), sums[r][d] = 0;
        for (uint32_t i = 0; i < BLOCK; i++)
            weights[r][i] = i < n ? fabsf(any()) : 0;
        f16->query(view->format, dim, q[r], encoded[r]);
        queries[r] = encoded[r];
        sums_of[r] = sums[r];
    }
    const kvb_stored_rows block = {view->format->elem, n, dim, at, {0}, view, cells, HEAD};
    assert_true(f16->dots(&block, queries, rows, scores[0]));
    assert_true(f16->sums(&block, weights[0], rows, sums_of));
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < n; i++) {
            double want = 0, mass = 0;
            for (uint32_t d = 0; d < dim; d++) {
                want += (double)q[r][d] * (double)stored_k[i].x[d];
                mass += fabs((double)q[r][d]) * size[i];
            }
            f16_near((double)scores[r][i], want, F16_DOT_CHAIN(dim) + 2, mass, dim, view, r, i);
        }
        for (uint32_t d = 0; d < dim; d++) {
            double want = 0, mass = 0;
            for (uint32_t i = 0; i < n; i++) {
                want += (double)weights[r][i] * (double)stored_k[i].x[d];
                mass += (double)weights[r][i] * size[i];
            }
            f16_near((double)sums[r][d], want, F16_SUM_CHAIN + 2, mass, n, view, r, d);
        }
    }
}

TEST(codes_are_multiplied_in_f16)
{
    const kvb_f16_loops *f16 = f16_tried();
    uint32_t tried = 0;
    char why[200];
    for (uint32_t name = 0; name < F16_NAMES; name++)
        for (uint32_t dim = 32; dim <= MAX_DIM; dim += 32)
            for (uint32_t way = 0; way < 2; way++) {
                const kvb_pool_type *type = pool_named(f16_names[name]);
                side s;
                if (!type->supports(type, dim, why, sizeof why))
                    continue;
                tried++;
                side_open(&s, f16_names[name], dim, way ? 0x1p-10f : 1);
                for (uint32_t rows_tried = 1; rows_tried <= F16_ROWS; rows_tried++)
                    f16_check(f16, &s.view, rows_tried, 1 + (rows_tried * 11 + way * 7) % BLOCK);
                side_close(&s);
            }
    assert_true(tried >= 2 * (8 + 8 + 4 + 2));
}

/* Attends one query token, 4 heads for a KV head, over all cells; out [F16_HEADS][v->dim]. The kernel must not write
 * behind its scratch. */
static void f16_attend(const kvb_kernel *kernel, const kvb_view *k, const kvb_view *v, const float *query, float *out)
{
    kvb_attend args = {.problem = {.n_tok = 1,
                                   .n_heads = F16_HEADS,
                                   .n_kv_heads = HEADS,
                                   .k_dim = k->dim,
                                   .v_dim = v->dim,
                                   .n_cells = CELLS,
                                   .scale = 0.1f,
                                   .out_elem = KVB_F32,
                                   .v_in_k = v->base == k->base,
                                   .k_format = k->format,
                                   .v_format = v->format},
                       .q = query,
                       .k = *k,
                       .v = *v,
                       .out = out,
                       .team = &team_of_one};
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

/* The largest difference between flash-f16 and flash. Query rows are small if keys are large. */
static double f16_off(const kvb_view *k, const kvb_view *v, float k_size)
{
    static float query[F16_HEADS * F16_DIM], want[F16_HEADS * F16_DIM], got[F16_HEADS * F16_DIM];
    double off = 0;
    for (uint32_t i = 0; i < F16_HEADS * F16_DIM; i++)
        query[i] = any() / k_size;
    f16_attend(&kvb_kernel_flash, k, v, query, want);
    f16_attend(&kvb_kernel_flash_f16, k, v, query, got);
    for (uint32_t i = 0; i < F16_HEADS * v->dim; i++)
        off = worse(off, fabs((double)got[i] - (double)want[i]));
    return off;
}

TEST(what_passes_the_range_of_f16_falls_back)
{
    f16_tried();
    for (uint32_t way = 0; way < 4 * F16_NAMES; way++) {
        const float k_size = way / F16_NAMES % 2 ? 30000.0f : 1, v_size = way / F16_NAMES / 2 ? 30000.0f : 1;
        side k, v;
        side_open(&k, f16_names[way % F16_NAMES], F16_DIM, k_size);
        side_open(&v, f16_names[(way + 1) % F16_NAMES], F16_DIM, v_size);
        const double off = f16_off(&k.view, &v.view, k_size);
        print_message("# %s, %s, K of %g, V of %g: off by %.3g\n", f16_names[way % F16_NAMES],
                      f16_names[(way + 1) % F16_NAMES], (double)k_size, (double)v_size, off / (double)v_size);
        /* If K and V exceed the range, only q is rounded to f16. */
        assert_true(off <= (k_size > 1 && v_size > 1 ? 1e-3 : 0.02 * 8) * (double)v_size);
        side_close(&k);
        side_close(&v);
    }
    for (uint32_t way = 0; way < 2 * F16_NAMES; way++) { /* V is the first part of K's rows, or all of them */
        side k;
        side_open(&k, f16_names[way % F16_NAMES], F16_DIM, 30000);
        kvb_view v = k.view;
        v.dim = way % F16_NAMES == F16_NAMES - 1 || way / F16_NAMES ? F16_DIM : F16_DIM / 2; /* whole groups */
        assert_true(f16_off(&k.view, &v, 30000) <= 1e-3 * 30000);
        side_close(&k);
    }
}

/*
 * Tries each kernel that rounds q, over every format that it takes and at every level of instruction sets. Shows that
 * attend() multiplies the q of round_query(), which is as near q as the kernel declares, and that flash-int8 rounds
 * alike at every level. Each query sees one cell, so its log-sum-exp is the scaled product of q and K, within the
 * roundings of that sum. Rows of q are plain, tiny, huge, 0, or have an outlier.
 */

enum { SEEN_ONE = 8, KV_HEADS = 2, Q_HEADS = 4, DIM = 128, KINDS = 5 };

static const float head_scales[KV_HEADS] = {0.013f, 1.7f}, amax[KV_HEADS] = {4, 5};
static float rows[SEEN_ONE][KV_HEADS * DIM], asked[Q_HEADS][DIM];
static double rounded[Q_HEADS][DIM], by_level[KINDS][Q_HEADS][DIM];
static const float sizes[KINDS] = {1, 1e-20f, 1e15f, 1, 0};

static void q_make(int kind)
{
    for (uint32_t h = 0; h < Q_HEADS; h++)
        for (uint32_t c = 0; c < DIM; c++)
            asked[h][c] = any() * sizes[kind] * (kind == 3 && c == 5 ? 100 : 1);
}

/* Checks q of a call in which each token sees its own cell. */
static void products_check(const kvb_kernel *kernel, const kvb_problem *p, const kvb_view *k, const kvb_view *v,
                           double *off_by_q)
{
    static float many[SEEN_ONE][Q_HEADS][DIM], out[SEEN_ONE][Q_HEADS][DIM], lse[SEEN_ONE][Q_HEADS], key[DIM];
    uint32_t row_start[SEEN_ONE + 1];
    kvb_run runs[SEEN_ONE];
    kvb_arithmetic a;
    kernel->arithmetic(p, &a);
    const double sums_off = a.scores.rounding == KVB_F16 ? a.scores.chain * 0x1p-12 : 3e-6; /* as declared */
    for (uint32_t t = 0; t < SEEN_ONE; t++) {
        memcpy(many[t], asked, sizeof asked);
        row_start[t] = t;
        runs[t] = (kvb_run){t, t + 1};
    }
    row_start[SEEN_ONE] = SEEN_ONE;
    void *scratch = aligned_alloc(64, (kernel->scratch_bytes(p, 1) + 63) / 64 * 64);
    kvb_attend args = {.problem = *p,
                       .q = &many[0][0][0],
                       .k = *k,
                       .v = *v,
                       .mask = {.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = runs},
                       .out = out,
                       .lse = &lse[0][0],
                       .scratch = scratch,
                       .team = &team_of_one};
    assert_int_equal(kernel->attend(&args), 0);
    free(scratch);
    for (uint32_t t = 0; t < SEEN_ONE; t++)
        for (uint32_t h = 0; h < Q_HEADS; h++) {
            double want = 0, size = 0, of_q = 0;
            k->format->read(k, h / 2, t, 1, key);
            for (uint32_t c = 0; c < DIM; c++) {
                want += rounded[h][c] * (double)key[c];
                of_q += (double)asked[h][c] * (double)key[c];
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
        largest = fmax(largest, fabs((double)asked[h][c]));
    for (uint32_t c = 0; c < DIM; c++)
        assert_true(fabs(rounded[h][c] - (double)asked[h][c]) <=
                    (a.query.step / 2 + a.query.floor + 0x1p-21) * largest + u * fabs((double)asked[h][c]));
}

static void kernel_over_format(const kvb_kernel *kernel, const kvb_pool_type *type, kvb_cpu_level level, bool first)
{
    static kvb_allocator heap;
    kvb_pool_options options = {.n_kv_heads = KV_HEADS,
                                .dim = DIM,
                                .min_chunk = SEEN_ONE,
                                .capacity = SEEN_ONE,
                                .amax = amax,
                                .allocator = &heap};
    kvb_pool *pool;
    kvb_view view;
    double off_by_q = 0;
    char why[256];
    kvb_problem p = {.n_tok = SEEN_ONE,
                     .n_heads = Q_HEADS,
                     .n_kv_heads = KV_HEADS,
                     .k_dim = DIM,
                     .v_dim = DIM,
                     .n_cells = SEEN_ONE,
                     .scale = 1,
                     .mask = KVB_MASK_RUNS,
                     .k_format = type->format,
                     .v_format = type->format};
    if (!kernel->supports(&p, why, sizeof why))
        return;
    assert_int_equal(type->open(type, &options, &pool), 0);
    assert_int_equal(type->ensure(pool, SEEN_ONE), 0);
    for (uint32_t c = 0; c < SEEN_ONE; c++) {
        for (uint32_t i = 0; i < KV_HEADS * DIM; i++)
            rows[c][i] = any() * 3;
        type->write_run(pool, c, 1, rows[c]);
    }
    type->view(pool, SEEN_ONE, &view);
    if (view.head_scales)
        view.head_scales = head_scales;
    for (int kind = 0; kind < KINDS; kind++) {
        seed = 100 + (uint32_t)kind;
        q_make(kind);
        p.scale = 1 / (sizes[kind] > 0 ? sizes[kind] : 1); /* log-sum-exps are near 1 */
        for (uint32_t h = 0; h < Q_HEADS; h++) {
            assert_int_equal(kernel->round_query(&p, &view, h, asked[h], rounded[h]), 0);
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

TEST(what_is_said_is_multiplied)
{
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
