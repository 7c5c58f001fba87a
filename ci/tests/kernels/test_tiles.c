/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: AMX's tiles in plain C follow the SDM's pseudo code, on values made for this, on any CPU. If the CPU has AMX,
 * both give the same bits.
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

/* ---- instructions, if the CPU has them ---------------------------------------------------------------------------- */

/* Whole block products of random rows: of bf16, with subnormal and other numbers, and of integers. */
enum { DIM = 112, ROWS = 45 };
static _Alignas(64) char rows[BLOCK][DIM * 2], encoded[ROWS][64 + 128 * 2];
static _Alignas(64) float scales[BLOCK], scores[2][ROWS * BLOCK], sums[2][ROWS][DIM];

static void same_bits(const kvb_format *format, kvb_query_fn *query, kvb_block_scores_fn *const of_scores[2],
                      kvb_block_sums_fn *const of_sums[2], uint64_t *rng)
{
    const uint32_t n = 1 + random_below(rng, BLOCK);
    const kvb_view view = {.format = format,
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
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        float q[DIM];
        for (uint32_t d = 0; d < DIM; d++)
            q[d] = random_value(rng);
        query(format, DIM, q, encoded[r]);
        queries[r] = encoded[r];
    }
    for (int e = 0; e < 2; e++) {
        float *to[ROWS];
        of_scores[e](&view, 0, cells, n, queries, ROWS, scores[e], NULL, scratch);
        for (uint32_t r = 0; r < ROWS; r++)
            to[r] = sums[e][r];
        for (uint32_t i = 0; i < ROWS * BLOCK; i++) /* as weights are */
            scores[e][i] = i % BLOCK < n ? fminf(fabsf(scores[e][i]), 256) : 0;
        of_sums[e](&view, 0, cells, n, scores[e], ROWS, to, NULL, scratch);
    }
    assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    free(scratch);
}

TEST(instructions_give_the_same_bits)
{
#if defined(__x86_64__)
    extern const kvb_amx_loops kvb_tiles_emulated;
    extern const kvb_vector kvb_vector_emulated;
    const kvb_format bf16 = {.name = "bf16", .elem = KVB_BF16},
                     int8 = {.name = "int8", .elem = KVB_INT8, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32};
    uint64_t rng = 2;
    if (!level_tried(KVB_CPU_AMX))
        skip();
    const kvb_loops *here = kvb_loops_at(KVB_CPU_AMX);
    for (uint32_t turn = 0; turn < 200; turn++) {
        for (uint32_t i = 0; i < BLOCK; i++)
            for (uint32_t d = 0; d < DIM; d++) { /* below 2 or 2^-125 */
                const uint16_t bits = (uint16_t)(random_bits(&rng) & (turn % 2 ? 0xbfff : 0x80ff));
                memcpy(&rows[i][2 * d], &bits, sizeof bits);
            }
        same_bits(&bf16, here->bf16->query,
                  (kvb_block_scores_fn *[]){here->amx->block_scores, kvb_tiles_emulated.block_scores},
                  (kvb_block_sums_fn *[]){here->amx->block_sums, kvb_tiles_emulated.block_sums}, &rng);
        for (uint32_t i = 0; i < sizeof rows; i++)
            rows[i / sizeof *rows][i % sizeof *rows] = (char)random_bits(&rng);
        same_bits(&int8, here->vector->int8_query,
                  (kvb_block_scores_fn *[]){here->vector->int8_scores, kvb_vector_emulated.int8_scores},
                  (kvb_block_sums_fn *[]){here->vector->int8_sums, kvb_vector_emulated.int8_sums}, &rng);
    }
#else
    skip();
#endif
}
