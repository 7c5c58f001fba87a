/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: AMX's tiles in plain C follow the SDM's pseudo code, on values made for this, on any CPU. Groups of query rows
 * are attended within the error that vector.h declares. If the CPU has AMX, instructions give the bits of plain C.
 */
#include "ci/tests/kernels/fixture.h"
#include "ci/tests/kernels/levels.h"

#if !defined(KVB_TILES_EMULATED)
#define KVB_TILES_EMULATED
#endif
#include "kernels/vector/tiles.h"

enum { A = 4, B = 6 };

/* Sets element e of row m. */
static void pair_set(int t, uint32_t m, uint32_t e, float x)
{
    elem_store(KVB_BF16, &tiles[t].bf16[m][e], x);
}

/* c plus a row of A times column 3 of B; terms: n pairs of factors, in the order of elements. */
static float dot_of(float c, const float (*terms)[2], uint32_t n)
{
    tiles_open(TILE_LANES);
    tiles[0].f32[2][3] = c;
    for (uint32_t e = 0; e < n; e++) {
        pair_set(A, 2, e, terms[e][0]);
        pair_set(B, e / 2, 2 * 3 + e % 2, terms[e][1]);
    }
    tile_dot_bf16(0, 4, 6);
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++)
        for (uint32_t i = 0; i < TILE_BYTES / 4; i++)
            assert_true((m == 2 && i == 3) || tiles[0].u32[m][i] == 0 || isnan(tiles[0].f32[m][i])); /* infinity * 0 */
    return tiles[0].f32[2][3];
}

/* Even and odd elements have separate sums, from 0 on. These are added; the old value comes last. */
TEST(sums_have_their_order)
{
    static const struct {
        float c, terms[6][2], want;
    } rows[] = {
        {1, {{2, 3}, {5, 7}}, 42},
        /* 2^30 - 2^30 of even elements leaves the 1 of an odd one */
        {0, {{0x1p15f, 0x1p15f}, {1, 1}, {-0x1p15f, 0x1p15f}}, 1},
        /* 1 of an even element is lost in 2^30, before - 2^30 comes */
        {0, {{0x1p15f, 0x1p15f}, {0, 0}, {1, 1}, {0, 0}, {-0x1p15f, 0x1p15f}}, 0},
        /* the old value comes last: no sum loses it */
        {1, {{0x1p15f, 0x1p15f}, {0, 0}, {-0x1p15f, 0x1p15f}}, 1},
        /* nor does the sum of both sums */
        {1, {{0x1p15f, 0x1p15f}, {-0x1p15f, 0x1p15f}}, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const float got = dot_of(rows[i].c, rows[i].terms, 6);
        if (got != rows[i].want)
            fail_msg("row %zu: %.9g, want %.9g", i, (double)got, (double)rows[i].want);
    }
}

/* Factors, old values and results below 2^-126 count as 0 of the same sign. */
TEST(subnormal_numbers_are_flushed)
{
    static const float least = 0x1p-126f;
    static const struct {
        float c, terms[4][2], want;
    } rows[] = {
        {0, {{0x1p-127f, 0x1p10f}}, 0},                      /* a factor of A */
        {0, {{0x1p10f, 0x1p-127f}}, 0},                      /* of B */
        {0x1p-127f, {{0x1p-126f, 1.5f}}, 0x1.8p-126f},       /* the old value */
        {0, {{0x1p-63f, 0x1p-64f}}, 0},                      /* a product */
        {0, {{0x1p-63f, 0x1p-63f}}, 0x1p-126f},              /* the smallest product that stays */
        {0, {{0x1p-126f, 1.5f}, {-0x1p-126f, 1}}, 0},        /* the sum of both sums */
        {-0x1p-126f, {{0x1p-126f, 1.5f}}, 0},                /* the result */
        {0, {{0x1p-126f, 1.5f}, {0, 0}, {-0x1p-126f, 1}}, 0} /* an intermediate sum */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const float got = dot_of(rows[i].c, rows[i].terms, 4);
        if (got != rows[i].want)
            fail_msg("row %zu: %.9g, want %.9g", i, (double)got, (double)rows[i].want);
    }
    /* A sum that rounds to the smallest normal number in 24 bits stays. */
    assert_true(tile_flush(least, (double)least) == least);
    assert_true(tile_flush(least, 0x1p-126 - 0x1p-151) == least);
    assert_true(tile_flush(least, 0x1p-126 - 0x1p-150) == 0);
    assert_true(signbit(tile_flush(-least, -0x1p-126 + 0x1p-150)));
    assert_true(isnan(tile_flush(NAN, (double)NAN)));
}

/* Infinities and NaN stay; sums beyond the range become infinite. */
TEST(what_is_not_finite_stays)
{
    const float one[][2] = {{INFINITY, 1}, {1, 1}}, none[][2] = {{INFINITY, 0}},
                both[][2] = {{INFINITY, 1}, {-INFINITY, 1}},
                beyond[][2] = {{0x1p100f, 0x1p100f}, {0, 0}, {-0x1p100f, 1}};
    assert_true(isinf(dot_of(0, one, 2)));
    assert_true(isnan(dot_of(0, none, 1)));
    assert_true(isnan(dot_of(0, both, 2)));
    assert_true(isinf(dot_of(0, beyond, 3)));
}

/* Bytes of A are signed, of B unsigned; the sum wraps around. */
TEST(integers_are_exact)
{
    tiles_open(TILE_LANES);
    tiles[0].u32[1][5] = 0x7fffffff;
    tiles[A].row[1][7] = (uint8_t)(int8_t)-128; /* of dword 1, byte 3 */
    tiles[B].row[1][5 * 4 + 3] = 255;           /* row 1, column 5 */
    tile_dot_i8(0, 4, 6);
    assert_int_equal(tiles[0].u32[1][5], 0x7fffffff - 255 * 128);
    tiles[A].row[1][7] = 127;
    tile_dot_i8(0, 4, 6);
    tile_dot_i8(0, 4, 6);
    assert_int_equal(tiles[0].u32[1][5], 0x7fffffffu - 255 * 128 + 2 * 255 * 127);
}

TEST(rows_are_loaded_and_stored)
{
    uint8_t from[TILE_ROWS_MAX * 100], to[TILE_ROWS_MAX * 90];
    uint64_t rng = 1;
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)random_bits(&rng);
    memset(to, 0, sizeof to);
    tiles_open(5);
    tile_load(3, from, 100);
    tile_store(3, to, 90);
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++)
        for (uint32_t i = 0; i < 90; i++)
            assert_int_equal(to[m * 90 + i], i < TILE_BYTES ? from[m * 100 + i] : 0);
    tile_zero(3);
    tile_store(3, to, 90);
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++)
        for (uint32_t i = 0; i < TILE_BYTES; i++)
            assert_int_equal(to[m * 90 + i], 0);
    tile_load(4, from, 100); /* of A 5 dwords of a row, of B 5 rows */
    tile_load(6, from, 100);
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++)
        for (uint32_t i = 0; i < TILE_BYTES; i++) {
            assert_int_equal(tiles[A].row[m][i], i < 20 ? from[m * 100 + i] : 0);
            assert_int_equal(tiles[B].row[m][i], m < 5 ? from[m * 100 + i] : 0);
        }
    tiles_close();
}

/* ---- groups of query rows: amx_blocks.c -------------------------------------------------------------------------- */

#if defined(__x86_64__)
extern const kvb_amx_loops kvb_tiles_emulated;

enum { MOST_ROWS = 45, MOST_DIM = 112 };

/* One head's rows, with NaN between them, and what each query row sees of the only block, or of all. */
typedef struct group {
    kvb_format format;
    kvb_view k, v;
    kvb_amx_group g;
    float *q[MOST_ROWS], *sums[MOST_ROWS];
    void *encoded[MOST_ROWS];
    const void *queries[MOST_ROWS];
    uint64_t visible[MOST_ROWS];
    uint32_t cells[BLOCK];
    kvb_row_state state[MOST_ROWS], *states[MOST_ROWS];
} group;

static kvb_view rows_draw(const kvb_format *format, uint32_t dim, uint32_t cells, uint64_t *rng)
{
    const size_t bytes = dim * elem_bytes(format->elem), stride = bytes + 2;
    char *base = exact_alloc(cells * stride - 2, 0xff);
    for (uint32_t i = 0; i < cells; i++)
        for (uint32_t d = 0; d < dim; d++)
            elem_store(format->elem, base + i * stride + d * elem_bytes(format->elem), random_value(rng));
    return (kvb_view){.format = format, .base = base, .dim = dim, .cells = cells, .cell_stride = stride};
}

/* Keys of later blocks are larger, so that each row's max is raised on the way. Some groups have query rows so small that
 * they are encoded with a factor. */
static void group_draw(group *x, kvb_elem elem, uint32_t k_dim, uint32_t v_dim, uint32_t rows, uint32_t n,
                       uint32_t blocks, uint64_t *rng)
{
    const float small = rows % 7 == 3 ? 0x1p-60f : 1;
    *x = (group){.format = {.name = "rows", .elem = elem}};
    x->k = rows_draw(&x->format, k_dim, n * blocks, rng);
    x->v = rows_draw(&x->format, v_dim, n * blocks, rng);
    for (uint32_t i = 0; i < n * blocks; i++) {
        char *at = (char *)(uintptr_t)x->k.base + i * x->k.cell_stride;
        elem_store(elem, at, (float)(1 + i / BLOCK));
    }
    for (uint32_t i = 0; i < n; i++)
        x->cells[i] = blocks == 1 ? (i * 7 + 3) % n : i; /* one block: in any order */
    for (uint32_t r = 0; r < rows; r++) {
        x->q[r] = exact_alloc(k_dim * sizeof(float), 0xff);
        x->sums[r] = exact_alloc(v_dim * sizeof(float), 0);
        x->encoded[r] = exact_alloc(kvb_bf16_query_bytes(k_dim), 0xff);
        for (uint32_t d = 0; d < k_dim; d++)
            x->q[r][d] = small * random_value(rng);
        x->q[r][0] = small * 8;
        kvb_loops_at(KVB_CPU_AVX512BF16)->bf16->query(&x->format, k_dim, x->q[r], x->encoded[r]);
        x->queries[r] = x->encoded[r];
        x->visible[r] = blocks > 1 || rows % 3 == 0 ? UINT64_MAX : random_bits(rng) | 1;
        x->state[r] = (kvb_row_state){.max = -INFINITY};
        x->states[r] = &x->state[r];
    }
    x->g = (kvb_amx_group){.k = &x->k,
                           .v = &x->v,
                           .cells = x->cells,
                           .n_cells = n,
                           .blocks = blocks,
                           .n_rows = rows,
                           .queries = x->queries,
                           .visible = x->visible,
                           .state = x->states,
                           .sums = x->sums,
                           .logits = {0.5f / small, rows % 5 ? 0 : 20}};
}

static void group_attend(group *x, const kvb_amx_loops *loops)
{
    void *scratch = exact_alloc(kvb_amx_scratch_bytes(x->k.dim, x->v.dim), 0xff);
    loops->attend(&x->g, NULL, NULL, scratch);
    free(scratch);
}

static void group_free(group *x)
{
    free((void *)(uintptr_t)x->k.base);
    free((void *)(uintptr_t)x->v.base);
    for (uint32_t r = 0; r < x->g.n_rows; r++) {
        free(x->q[r]);
        free(x->sums[r]);
        free(x->encoded[r]);
    }
}

static double value_of(const kvb_view *v, uint32_t i, uint32_t d)
{
    return elem_value(v->format->elem, (const char *)v->base + i * v->cell_stride + d * elem_bytes(v->format->elem));
}

/* The exponent of cell i, from q as it was rounded. */
static double exponent_of(const group *x, uint32_t r, uint32_t i)
{
    const uint16_t *q = (const uint16_t *)(const void *)((const char *)x->encoded[r] + 64);
    const double softcap = (double)x->g.logits.softcap, scale = (double)x->g.logits.scale;
    float back;
    double dot = 0;
    for (uint32_t d = 0; d < x->k.dim; d++)
        dot += elem_value(KVB_BF16, &q[d]) * value_of(&x->k, i, d);
    memcpy(&back, x->encoded[r], sizeof back);
    dot *= (double)back;
    return softcap > 0 ? softcap * tanh(scale * dot) : scale * dot;
}

static void group_check(const group *x)
{
    const uint32_t n = x->g.n_cells;
    for (uint32_t r = 0; r < x->g.n_rows; r++) {
        const double max = (double)x->state[r].max;
        double largest = -INFINITY, total = 0, want[MOST_DIM] = {0}, size[MOST_DIM] = {0};
        for (uint32_t i = 0; i < n * x->g.blocks; i++) {
            if (!(x->visible[r] >> i % n & 1))
                continue;
            const uint32_t cell = x->cells[i % n] + i / n * BLOCK;
            const double exponent = exponent_of(x, r, cell), weight = exp2(exponent - max);
            largest = fmax(largest, exponent);
            total += weight;
            for (uint32_t d = 0; d < x->v.dim; d++) {
                want[d] += weight * value_of(&x->v, cell, d);
                size[d] += weight * fabs(value_of(&x->v, cell, d));
            }
        }
        assert_true(largest < max + 8.1 && max < largest + 1.1);
        const double of_exponent = 0x1p-15, error = AMX_WEIGHT_ERROR + of_exponent;
        if (!(fabs(x->state[r].sum - total) <= error * total))
            fail_msg("row %u of %u, %u cells in %u blocks: sum of weights %.9g, want %.9g", r, x->g.n_rows, n,
                     x->g.blocks, x->state[r].sum, total);
        for (uint32_t d = 0; d < x->v.dim; d++)
            if (!(fabs((double)x->sums[r][d] - want[d]) <= (error + 0x1.01p-8) * size[d]))
                fail_msg("row %u of %u, %u cells in %u blocks: channel %u is %.9g, want %.9g", r, x->g.n_rows, n,
                         x->g.blocks, d, (double)x->sums[r][d], want[d]);
    }
}

/* Any number of rows, of cells, and of blocks before, at and behind the end of a strip. */
TEST(groups_are_attended)
{
    static const kvb_elem stored[] = {KVB_BF16, KVB_E4M3, KVB_E5M2};
    uint64_t rng = 7;
    if (!level_tried(KVB_CPU_AVX512BF16))
        skip();
    for (uint32_t turn = 0; turn < 3 * 90; turn++) {
        const uint32_t blocks = turn % 2 ? 1 : 1 + turn / 2 % 11, n = blocks > 1 ? BLOCK : 1 + turn * 5 % BLOCK;
        group x;
        group_draw(&x, stored[turn % 3], 16 * (1 + turn % 7), 16 * (1 + turn / 3 % 7), 1 + turn % MOST_ROWS, n, blocks,
                   &rng);
        group_attend(&x, &kvb_tiles_emulated);
        group_check(&x);
        group_free(&x);
    }
}

/* A score that is not finite reaches its row alone, and -infinity has no weight; a value reaches its channel alone. */
TEST(what_is_not_finite_stays_in_its_row)
{
    static const float what[] = {INFINITY, NAN, -INFINITY};
    uint64_t rng = 8;
    if (!level_tried(KVB_CPU_AVX512BF16))
        skip();
    for (uint32_t i = 0; i < 3; i++) {
        group x;
        group_draw(&x, KVB_BF16, 64, 64, 21, BLOCK, 6, &rng);
        for (uint32_t d = 0; d < 64; d++)
            x.q[5][d] = d ? 0 : what[i];
        kvb_loops_at(KVB_CPU_AVX512BF16)->bf16->query(&x.format, 64, x.q[5], x.encoded[5]);
        elem_store(KVB_BF16, (char *)(uintptr_t)x.v.base + 300 * x.v.cell_stride + 2 * 9, what[i]);
        group_attend(&x, &kvb_tiles_emulated);
        for (uint32_t r = 0; r < 21; r++)
            for (uint32_t d = 0; d < 64; d++)
                if (isfinite(x.sums[r][d]) != ((r != 5 || what[i] < 0) && d != 9))
                    fail_msg("%g: row %u, channel %u is %g", (double)what[i], r, d, (double)x.sums[r][d]);
        group_free(&x);
    }
}
#endif

/* ---- instructions, if the CPU has them ---------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Any bits of the mask: subnormal and other numbers. */
static void rows_fill(const kvb_view *v, uint16_t mask, uint64_t *rng)
{
    for (uint32_t i = 0; i < v->cells; i++)
        for (uint32_t d = 0; d < v->dim; d++) {
            const uint16_t bits = (uint16_t)(random_bits(rng) & mask);
            memcpy((char *)(uintptr_t)v->base + i * v->cell_stride + 2 * d, &bits, sizeof bits);
        }
}

static void same_groups(uint32_t turn, uint64_t *rng)
{
    const uint16_t mask = turn % 2 ? 0xbfff : 0x80ff; /* below 2 or 2^-125 */
    const uint32_t blocks = 1 + turn % 3 * 4, rows = 1 + turn % MOST_ROWS, dim = 16 * (1 + turn % 7);
    const uint64_t seed = *rng;
    group x[2];
    for (int i = 0; i < 2; i++) {
        *rng = seed;
        group_draw(&x[i], KVB_BF16, dim, 112, rows, blocks > 1 ? BLOCK : 1 + turn % BLOCK, blocks, rng);
        rows_fill(&x[i].k, mask, rng);
        rows_fill(&x[i].v, mask, rng);
        group_attend(&x[i], i ? &kvb_tiles_emulated : kvb_loops_at(KVB_CPU_AMX)->amx);
    }
    assert_memory_equal(x[0].state, x[1].state, sizeof x[0].state);
    for (uint32_t r = 0; r < rows; r++)
        assert_memory_equal(x[0].sums[r], x[1].sums[r], 112 * sizeof(float));
    group_free(&x[0]);
    group_free(&x[1]);
}

/* Whole block products of random rows of integers. */
enum { DIM = 112, ROWS = 45 };
static _Alignas(64) char rows[BLOCK][DIM], encoded[ROWS][64 + 128 * 2];
static _Alignas(64) float scales[BLOCK], scores[2][ROWS * BLOCK], sums[2][ROWS][DIM];

static void same_integers(uint64_t *rng)
{
    extern const kvb_vector kvb_vector_emulated;
    const kvb_format format = {.name = "int8", .elem = KVB_INT8, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32};
    const kvb_vector *loops[2] = {kvb_loops_at(KVB_CPU_AMX)->vector, &kvb_vector_emulated};
    const uint32_t n = 1 + random_below(rng, BLOCK);
    const kvb_view view = {.format = &format,
                           .base = rows,
                           .dim = DIM,
                           .cells = BLOCK,
                           .cell_stride = sizeof *rows,
                           .head_stride = sizeof rows,
                           .scales = scales,
                           .scale_cell_stride = sizeof *scales};
    void *scratch = exact_alloc((size_t)DIM * BLOCK * 16, 0xff);
    const void *queries[ROWS];
    uint32_t cells[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i++) {
        cells[i] = i;
        scales[i] = random_value(rng);
        for (uint32_t d = 0; d < DIM; d++)
            rows[i][d] = (char)random_bits(rng);
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        float q[DIM];
        for (uint32_t d = 0; d < DIM; d++)
            q[d] = random_value(rng);
        loops[0]->int8_query(&format, DIM, q, encoded[r]);
        queries[r] = encoded[r];
    }
    for (int e = 0; e < 2; e++) {
        float *to[ROWS];
        loops[e]->int8_scores(&view, 0, cells, n, queries, ROWS, scores[e], NULL, scratch);
        for (uint32_t r = 0; r < ROWS; r++)
            to[r] = sums[e][r];
        for (uint32_t i = 0; i < ROWS * BLOCK; i++) /* as weights are */
            scores[e][i] = i % BLOCK < n ? fminf(fabsf(scores[e][i]), 256) : 0;
        loops[e]->int8_sums(&view, 0, cells, n, scores[e], ROWS, to, NULL, scratch);
    }
    assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    free(scratch);
}
#endif

TEST(instructions_give_the_same_bits)
{
#if defined(__x86_64__)
    uint64_t rng = 2;
    if (!level_tried(KVB_CPU_AMX))
        skip();
    for (uint32_t turn = 0; turn < 200; turn++) {
        same_groups(turn, &rng);
        same_integers(&rng);
    }
#else
    skip();
#endif
}
