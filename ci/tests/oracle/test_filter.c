/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the filter of errors that rows share: its formulas, numbers by hand, and its words. */
#include "ci/tests/tests.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/codec.h"
#include "oracle/filter.h"
#include "oracle/single.h"
#include "oracle/solve.h"
#include "workloads/array.h"

enum { UNITS = 2, HEADS = 3, QUERIES = 40, CELLS = 24, SEEN = 20, MOST = 37, ROWS = UNITS * QUERIES * HEADS };

/* An oracle with made-up rows: each layer is a unit of one KV head. Each query sees tokens in two runs; no query sees
 * some of the tokens. */
typedef struct made {
    kvb_model model;
    kvb_oracle_state state;
    kvb_oracle oracle;
    kvb_filter_truth truth;
    kvb_filter_unit unit[UNITS];
    kvb_filter_row row[ROWS];
    uint32_t number[ROWS], dim;
    kvb_expect expect[ROWS + 1]; /* the last row is not the oracle's */
    kvb_bound_term terms[ROWS][MOST];
    kvb_token_run runs[ROWS][2];
    double inverse[UNITS][MOST];
    float v[UNITS][CELLS * MOST], norm2[UNITS][CELLS], magnitude[UNITS][CELLS];
    float p[ROWS][CELLS], o[ROWS][MOST], slope[ROWS][MOST], out[ROWS][MOST];
} made;

static void made_connect(made *m, uint32_t dim)
{
    m->dim = dim;
    m->model = hand_model(UNITS, (kvb_group){.heads = HEADS, .kv_heads = 1, .k_dim = 4, .v_dim = dim});
    m->state.model = &m->model;
    m->oracle = (kvb_oracle){.rows = m->expect, .n_rows = ROWS, .state = &m->state, .filter = &m->truth};
    m->truth = (kvb_filter_truth){.tokens = CELLS,
                                  .n_units = UNITS,
                                  .most_visible = CELLS,
                                  .units = m->unit,
                                  .number = m->number,
                                  .rows = m->row,
                                  .n_rows = ROWS};
    for (uint32_t u = 0; u < UNITS; u++)
        m->unit[u] = (kvb_filter_unit){.layer = u,
                                       .dim = dim,
                                       .usable = true,
                                       .inverse = m->inverse[u],
                                       .v = m->v[u],
                                       .norm2 = m->norm2[u],
                                       .magnitude = m->magnitude[u]};
    for (uint32_t r = 0; r < ROWS; r++) {
        m->expect[r] = (kvb_expect){.layer = r / (QUERIES * HEADS),
                                    .query = r / HEADS % QUERIES,
                                    .head = r % HEADS,
                                    .visible = SEEN,
                                    .terms = m->terms[r]};
        m->row[r] = (kvb_filter_row){.unit = m->expect[r].layer,
                                     .visible = SEEN,
                                     .runs = m->runs[r],
                                     .n_runs = 2,
                                     .p = m->p[r],
                                     .o = m->o[r],
                                     .slope = m->slope[r],
                                     .weight = 1,
                                     .cap = INFINITY};
        m->runs[r][0] = (kvb_token_run){10, CELLS}; /* in the order of positions, not of tokens */
        m->runs[r][1] = (kvb_token_run){0, 6};
        m->number[r] = r;
    }
    m->expect[ROWS] = m->expect[ROWS - HEADS];
}

/* The filter's peaks over m->out, by kind; *rows: number of rows that count. Returns the largest z. */
static double filtered(made *m, const kvb_arithmetic *a, kvb_elem out_elem, kvb_filter_peak *peaks, uint64_t *rows)
{
    kvb_filter *filter;
    assert_int_equal(kvb_filter_open(&m->oracle, &filter), 0);
    for (uint32_t r = 0; r < ROWS; r++) {
        uint16_t narrow[MOST];
        for (uint32_t c = 0; c < m->dim; c++)
            narrow[c] = kvb_codec_code(out_elem == KVB_F16 ? KVB_F16 : KVB_BF16, m->out[r][c]);
        kvb_filter_add(filter, &m->expect[r], &m->expect[r], a, out_elem,
                       out_elem == KVB_F32 ? (const void *)m->out[r] : narrow);
    }
    const double z = kvb_filter_peaks(filter, peaks);
    *rows = kvb_filter_rows(filter);
    kvb_filter_free(filter);
    return z;
}

/* Shows, by numbers computed by hand, how large an honest |a| of the filter may be, for each field of a declaration,
 * and which rows count. */

/* Rows of two cells: V (1, 1, 1, 1) and (-1, -1, -1, -1), o = (1, 1, 1, 1) / 2 by weights of 3/4 and 1/4. */
static void plain_make(made *m)
{
    made_connect(m, 4);
    m->truth.most_visible = 2;
    for (uint32_t u = 0; u < UNITS; u++)
        for (uint32_t i = 0; i < 2 * 4; i++) {
            m->inverse[u][i / 2] = 1;
            m->v[u][i] = i < 4 ? 1 : -1;
            m->norm2[u][i / 4] = 4;
            m->magnitude[u][i / 4] = 1;
        }
    for (uint32_t r = 0; r < ROWS; r++) {
        m->row[r].visible = 2;
        m->row[r].n_runs = 1;
        m->runs[r][0] = (kvb_token_run){0, 2};
        m->p[r][0] = 0.75f;
        m->p[r][1] = 0.25f;
        m->expect[r].row = (kvb_bound_row){.p_max = 0.75, .v_largest = 1};
        for (uint32_t c = 0; c < 4; c++) {
            m->o[r][c] = 0.5f;
            m->slope[r][c] = 2;
        }
    }
}

/* z of a kind if residuals are `share` of (1, 1, 1, 1) / 2. Outputs stay (1, 1, 1, 1) / 2; exact rows differ. */
static double z_of(made *m, const kvb_arithmetic *a, kvb_filter_kind kind, kvb_elem out_elem, double share)
{
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    uint64_t rows;
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t c = 0; c < 4; c++) {
            m->terms[r][c].o = 0.5 * (1 - share);
            m->out[r][c] = 0.5f;
        }
    filtered(m, a, out_elem, peaks, &rows);
    return peaks[kind].z;
}

/* Shares from `want` on must stand out, by the square root of the number of rows that count; smaller ones must not. */
static void stands_out_from(made *m, const kvb_arithmetic *a, kvb_filter_kind kind, kvb_elem out_elem, double want,
                            double rows)
{
    for (int sign = -1; sign < 2; sign += 2) {
        const double below = z_of(m, a, kind, out_elem, sign * want * (1 - 1e-4)),
                     above = z_of(m, a, kind, out_elem, sign * want * (1 + 1e-4));
        if (below != 0 || !(fabs(above - sqrt(rows)) < 1e-4))
            fail_msg("kind %d: z %g below a share of %.9g, %g above; %g rows", (int)kind, below, sign * want, above,
                     rows);
    }
}

TEST(honest_sizes_by_hand)
{
    static made m;
    const double base = 2e-6 + 0x1p-24 / 2; /* the f32 output: u sqrt(4) / 4 */
    const struct {
        enum { PLAIN, LARGER, ALIKE, CAPPED, BELOW_CAP } rows;
        kvb_arithmetic a;
        double more; /* expected, above base */
    } cases[] = {
        {PLAIN, {.accumulator = KVB_F32}, 0},
        /* f16 accumulator: (sqrt(64) / 2 + sqrt(16)) / 2048 = 1/256 */
        {PLAIN, {.accumulator = KVB_F16, .cell_chain = 64, .rescales = 16}, 1.0 / 256},
        {PLAIN, {.accumulator = KVB_F16, .cell_chain = 64}, 1.0 / 512},
        {PLAIN, {.accumulator = KVB_F16, .rescales = 16}, 1.0 / 512},
        {PLAIN, {.exp_error = 0.125}, 1.0 / 4},
        /* steps of 1/8: half a step is 1/16; no product is below 1/8 * 3/4; and 3 roundings of 2^-24 */
        {PLAIN, {.sums = {.step = 0.125, .chain = 3}}, 1.0 / 16 + 3 * 0x1p-24},
        /* products below 1/2 * 3/4 are unclear: the cell of weight 1/4; none is below half of that, and so lost */
        {PLAIN, {.sums.floor = 0.5}, 0.25},
        {PLAIN, {.exp_floor = 0.5}, 0.25},
        /* half a step is 1/8, then 1/4: a product of one step is clear, one of half a step is not lost */
        {LARGER, {.sums.floor = 0.25}, 0},
        {LARGER, {.sums.floor = 0.5}, 0.25},
        /* bf16 weights: (1/4 + 0.425 / 2) / 256 = 0.4625 / 256, and 3 roundings of 1/256; e4m3: all are alike,
         * 1.2125 / 16 */
        {ALIKE, {.sums = {.rounding = KVB_BF16, .chain = 3}}, 0.4625 / 256 + 3.0 / 256},
        {ALIKE, {.sums.rounding = KVB_E4M3}, 1.2125 / 16},
        /* f32 weights: shares of 2^-24; a chain counts only if a type is narrow */
        {ALIKE, {.sums.chain = 3}, 0.2125 * 0x1p-24},
        /* with a softcap the cell of weight 3/4 is alike in all rows, if it is less than 1/256 below the cap */
        {CAPPED, {.sums = {.rounding = KVB_BF16, .chain = 3}}, 1.2125 / 256 + 3.0 / 256},
        {BELOW_CAP, {.sums = {.rounding = KVB_BF16, .chain = 3}}, 0.4625 / 256 + 3.0 / 256},
    };
    plain_make(&m);
    stands_out_from(&m, &cases[0].a, KVB_FILTER_SIZE, KVB_F16, 2e-6 + 0x1p-12, ROWS);
    stands_out_from(&m, &cases[0].a, KVB_FILTER_SIZE, KVB_BF16, 2e-6 + 0x1p-9, ROWS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t r = 0; r < ROWS; r++) {
            m.expect[r].row.v_largest = cases[i].rows >= LARGER ? 4.0 / 3 : 1; /* times 3/4: 1 */
            m.row[r].alike[KVB_BF16] = cases[i].rows >= ALIKE ? 0.25 : 0;
            m.row[r].apart = cases[i].rows >= ALIKE ? 0.5 : 0;
            m.row[r].cap =
                cases[i].rows >= CAPPED ? 0.75 * exp(cases[i].rows == CAPPED ? 1.0 / 257 : 1.0 / 255) : INFINITY;
        }
        stands_out_from(&m, &cases[i].a, KVB_FILTER_SIZE, KVB_F32, base + cases[i].more, ROWS);
    }
}

/* A residual of `share` * (1, 1, 1, 1) / 2 in the other directions. A cell's direction is 3/4 (1/2) or -1/4 (3/2) in
 * each channel, so that a is 4/3 or -4/3 of the share; the slope's is 2, so that a is 1/4 of it. */
TEST(least_sizes_by_hand)
{
    static made m;
    const kvb_arithmetic bf16 = {.sums.rounding = KVB_BF16}, steps = {.sums.step = 1.0 / 16};
    plain_make(&m);
    stands_out_from(&m, &bf16, KVB_FILTER_TOKEN, KVB_F32, 0.75 * 0.25, ROWS / 2); /* the rows of one of two units */
    stands_out_from(&m, &bf16, KVB_FILTER_FROM_FIRST, KVB_F32, 0.75 * 0.25, ROWS);
    stands_out_from(&m, &bf16, KVB_FILTER_FROM_LAST, KVB_F32, 0.75 * 0.25, ROWS);
    /* half a step is 1/32 of 3/4: 1/32 of a product of 3/4, 3/32 of one of 1/4 */
    stands_out_from(&m, &steps, KVB_FILTER_FROM_FIRST, KVB_F32, 0.75 * (0.25 + 1.0 / 32), ROWS);
    /* logits must spread over 8 roundings of a weight, each of 2^-7 or a step; the slope may be off by a quarter of a
     * step */
    assert_true(z_of(&m, &bf16, KVB_FILTER_SCALE, KVB_F32, 0.5) == 0);
    for (uint32_t r = 0; r < ROWS; r++)
        m.row[r].spread = r % 2 ? 1.0 / 16 : 0.0624;
    stands_out_from(&m, &bf16, KVB_FILTER_SCALE, KVB_F32, 4 * 0.0005, ROWS / 2);
    assert_true(z_of(&m, &steps, KVB_FILTER_SCALE, KVB_F32, 0.5) == 0);
    /* no logit may lie within 8 roundings below the softcap: with the cell of weight 3/4 a quarter of the rows count */
    for (uint32_t r = 0; r < ROWS; r++)
        m.row[r].cap = 0.75 * exp(r % 4 == 1 ? 0.0624 : 0.0626);
    stands_out_from(&m, &bf16, KVB_FILTER_SCALE, KVB_F32, 4 * 0.0005, ROWS / 4);
    for (uint32_t r = 0; r < ROWS; r++) {
        m.row[r].cap = INFINITY;
        m.row[r].spread = r % 2 ? 0.5 : 0.4999;
    }
    stands_out_from(&m, &steps, KVB_FILTER_SCALE, KVB_F32, 4 * (0.0005 + 1.0 / 64), ROWS / 2);
}

/* z of the first place, for rows with that weight on cell 0, of which 0.28 is missing. The two cells' directions are
 * parallel. With a step of 3/1000 of 10 times that weight cell 0 may lose 0.0015 of itself, cell 1 more than 0.07. The
 * limit is 1/4 more than this: 0.28 exceeds that of cell 0, not that of cell 1. */
static double first_of(made *m, double weight)
{
    const kvb_arithmetic steps = {.sums.step = 0.003};
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    uint64_t rows;
    for (uint32_t r = 0; r < ROWS; r++) {
        const double o = 10 * (2 * weight - 1);
        m->p[r][0] = (float)weight;
        m->p[r][1] = (float)(1 - weight);
        m->expect[r].row = (kvb_bound_row){.p_max = weight, .v_largest = 10};
        for (uint32_t c = 0; c < 4; c++) {
            m->o[r][c] = (float)o;
            m->terms[r][c].o = o;
            m->out[r][c] = (float)(o - 0.28 * weight * (10 - o));
        }
    }
    filtered(m, &steps, KVB_F32, peaks, &rows);
    assert_int_equal(rows, ROWS);
    return peaks[KVB_FILTER_FROM_FIRST].z;
}

/* A cell with nearly all of the weight has no direction: v - o is mostly rounding. With weights w of v and 1 - w of -v,
 * |v - o|^2 = (2 - 2w)^2 |v|^2: 0.0016 at w = 0.98, 0.0009 at 0.985. It must exceed 0.001 |v|^2. */
TEST(cells_that_are_the_row_by_hand)
{
    static made m;
    plain_make(&m);
    for (uint32_t u = 0; u < UNITS; u++)
        for (uint32_t i = 0; i < 2; i++) {
            m.norm2[u][i] = 400;
            m.magnitude[u][i] = 10;
            for (uint32_t c = 0; c < 4; c++)
                m.v[u][4 * i + c] = i ? -10 : 10;
        }
    assert_true(first_of(&m, 0.98) > 15);
    assert_true(first_of(&m, 0.985) == 0);
}

/* Number of rows that count: those with at least 1 % of the weight beside the largest cell, and at most a quarter of
 * that below half a step. */
static uint64_t rows_of(made *m, const kvb_arithmetic *a, double beside, uint32_t lost_in_8)
{
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    uint64_t rows;
    for (uint32_t r = 0; r < ROWS; r++) {
        m->row[r].visible = 9;
        m->row[r].n_runs = 1;
        m->runs[r][0] = (kvb_token_run){0, 9};
        m->expect[r].row = (kvb_bound_row){.p_max = 1 - beside, .v_largest = 1};
        for (uint32_t i = 0; i < 9; i++)
            m->p[r][i] = (float)(i ? beside / 8 : 1 - beside);
        for (uint32_t c = 0; c < 4; c++) {
            m->terms[r][c].o = c;
            m->out[r][c] = 9;
        }
    }
    for (uint32_t i = 0; i < 9; i++)
        for (uint32_t u = 0; u < UNITS; u++)
            m->magnitude[u][i] = i == 0 || i > lost_in_8 ? 1 : 0.001f;
    filtered(m, a, KVB_F32, peaks, &rows);
    return rows;
}

TEST(rows_that_count_by_hand)
{
    static made m;
    const kvb_arithmetic bf16 = {.sums.rounding = KVB_BF16}, steps = {.sums.step = 0.01};
    made_connect(&m, 4);
    m.truth.most_visible = 9;
    for (uint32_t c = 0; c < 4; c++)
        m.inverse[0][c] = m.inverse[1][c] = 1;
    assert_int_equal(rows_of(&m, &bf16, 0.0099, 0), 0);
    assert_int_equal(rows_of(&m, &bf16, 0.0101, 0), ROWS);
    assert_int_equal(rows_of(&m, &steps, 0.5, 0), ROWS);
    assert_int_equal(rows_of(&m, &steps, 0.5, 2), ROWS);
    assert_int_equal(rows_of(&m, &steps, 0.5, 3), 0);
    assert_int_equal(rows_of(&m, &bf16, 0.5, 8), ROWS); /* without steps nothing is lost */
    m.unit[1].usable = false;
    assert_int_equal(rows_of(&m, &steps, 0.5, 2), ROWS / 2);
}

/* What the oracle keeps of a row for the filter: three tokens in two runs, weights 1/2, 1/8, 1/4 beside a sink, one
 * channel that counts twice. */
TEST(a_row_of_the_truth_by_hand)
{
    static float v[4 * 2] = {1, 2, -1, 4, 9, 9, 3, -2}, p[3], o[2], slope[2];
    static double inverse[4] = {1, 2};
    static kvb_token_run runs[] = {{3, 4}, {0, 2}}; /* tokens 3, 0, 1 */
    kvb_filter_unit unit = {.dim = 2, .usable = true, .inverse = inverse, .v = v};
    kvb_filter_row row = {.visible = 3, .runs = runs, .n_runs = 2, .p = p, .o = o, .slope = slope};
    uint32_t number[] = {UINT32_MAX, 0};
    kvb_filter_truth truth = {.tokens = 4, .n_units = 1, .units = &unit, .number = number, .rows = &row, .n_rows = 1};
    const double weights[] = {0.5, 0.125, 0.25};
    double slopes[3];
    const kvb_bound_term terms[] = {{.o = 0.75}, {.o = -0.25}};
    for (int capped = 0; capped < 2; capped++) {
        /* Logits 3, 3, 1: the first two are alike, though no two weights are. The slope uses these logits; with a cap
         * of 6 the derivative of tanh: 6 atanh(1/2) (3/4), 6 atanh(1/6) (35/36). */
        const double logits[] = {3, 3, 1};
        const kvb_attention a = {.softcap = capped ? 6 : 0};
        const double high = capped ? 4.5 * atanh(0.5) : 3, low = capped ? 35.0 / 6 * atanh(1.0 / 6) : 1;
        const double mean = 0.625 * high + 0.25 * low, square = 0.625 * high * high + 0.25 * low * low;
        slope[0] = slope[1] = 0;
        kvb_filter_truth_row(&truth, 0, &a, logits, weights, 1, terms, slopes); /* a row that is not kept */
        assert_true(slope[0] == 0 && slope[1] == 0);
        kvb_filter_truth_row(&truth, 1, &a, logits, weights, 1, terms, slopes);
        assert_true(p[0] == 0.5f && p[1] == 0.125f && p[2] == 0.25f && o[0] == 0.75f && o[1] == -0.5f);
        assert_true(row.weight == 0.875);
        assert_true(fabs(row.apart - sqrt(0.25 + 1.0 / 64 + 1.0 / 16)) < 1e-15);
        assert_true(fabs(row.alike[KVB_F16] - sqrt(2 * 0.5 * 0.125)) < 1e-15);
        assert_true(fabs(row.alike[KVB_BF16] - sqrt(2 * 0.5 * 0.125)) < 1e-15);
        assert_true(capped ? fabs(row.cap - exp(5)) < 1e-12 : isinf(row.cap));
        assert_true(fabs(row.spread - sqrt(square - mean * mean)) < 1e-12);
        /* 1/2 (high - mean) (3, -2) + 1/8 (high - mean) (1, 2) + 1/4 (low - mean) (-1, 4) */
        assert_true(fabs((double)slope[0] - (1.625 * (high - mean) - 0.25 * (low - mean))) < 1e-6);
        assert_true(fabs((double)slope[1] - (-0.75 * (high - mean) + (low - mean))) < 1e-6);
    }
    /* the scale does not move logits at the cap; logits that are far apart are not alike */
    const double ends[] = {6, -6, 1.0 / 4096};
    const kvb_attention a = {.softcap = 6};
    slope[0] = slope[1] = 0;
    kvb_filter_truth_row(&truth, 1, &a, ends, weights, 0, terms, slopes);
    const double low = 6 * atanh(1.0 / 24576) * (1 - 1.0 / 24576 / 24576), mean = low / 4;
    assert_true(fabs(row.spread - sqrt(low * low / 4 - mean * mean)) < 1e-12);
    assert_true(row.alike[KVB_F16] == 0 && row.alike[KVB_BF16] == 0);
    /* 2^-9 apart: less than a bf16 rounding of 2^-8, more than two of f16; 2^-12 apart: less than one of f16 */
    const double beside[] = {3 + 0x1p-9, 3, 1}, closer[] = {3 - 0x1p-12, 3, 1};
    kvb_filter_truth_row(&truth, 1, &a, beside, weights, 0, terms, slopes);
    assert_true(row.alike[KVB_F16] == 0 && fabs(row.alike[KVB_BF16] - sqrt(2 * 0.5 * 0.125)) < 1e-15);
    kvb_filter_truth_row(&truth, 1, &a, closer, weights, 0, terms, slopes);
    assert_true(fabs(row.alike[KVB_F16] - sqrt(2 * 0.5 * 0.125)) < 1e-15);
}

/* Shows that the filter computes the formulas at the head of oracle/filter.h: once more here, in double, over made-up
 * rows, weights and residuals. */

static uint64_t draw_seed = 9;

static double between(double low, double high)
{
    return low + (high - low) * hand_uniform(&draw_seed);
}

static uint32_t token_at(uint32_t place)
{
    return (place + 10) % CELLS;
}

static void made_draw(made *m, uint32_t dim)
{
    made_connect(m, dim);
    for (uint32_t u = 0; u < UNITS; u++) {
        for (uint32_t c = 0; c < dim; c++)
            m->inverse[u][c] = c == 2 ? 0 : between(0.5, 2); /* channel 2 is constant and does not count */
        for (uint32_t i = 0; i < CELLS; i++) {
            m->norm2[u][i] = 0;
            m->magnitude[u][i] = (float)between(0.5, 2);
            for (uint32_t c = 0; c < dim; c++) {
                float x = (float)(hand_gauss(&draw_seed) * (m->inverse[u][c] > 0));
                m->v[u][i * dim + c] = x;
                m->norm2[u][i] += x * x;
            }
        }
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint32_t u = m->row[r].unit;
        double sum = r % 5 ? 0 : 0.3, most = 0; /* sum begins with a sink's weight */
        for (uint32_t i = 0; i < SEEN; i++)
            sum += m->p[r][i] = (float)exp(2 * hand_gauss(&draw_seed));
        m->row[r].weight = 0;
        for (uint32_t i = 0; i < SEEN; i++) {
            m->p[r][i] /= (float)sum;
            m->row[r].weight += (double)m->p[r][i];
            most = fmax(most, (double)m->p[r][i]);
        }
        m->row[r].apart = between(0, 1);
        m->row[r].cap = r % 3 ? INFINITY : most * between(1, 1.01); /* just above the largest weight in some rows */
        for (kvb_elem e = KVB_F16; e <= KVB_BF16; e++)
            m->row[r].alike[e] = between(0, 1);
        m->row[r].spread = between(0, 0.2);
        m->expect[r].row = (kvb_bound_row){.p_max = most, .v_largest = r % 11 == 10 ? 0x1p-15 : between(1, 2)};
        for (uint32_t c = 0; c < dim; c++) {
            double o = 0;
            for (uint32_t i = 0; i < SEEN; i++)
                o += (double)m->p[r][i] * (double)m->v[u][token_at(i) * dim + c];
            m->o[r][c] = (float)o;
            m->terms[r][c].o = m->inverse[u][c] > 0 ? o / m->inverse[u][c] : 1;
            m->slope[r][c] = (float)hand_gauss(&draw_seed);
        }
    }
}

/* A mistake and its size, beside noise. */
typedef struct wrong {
    double size, scale, token, first, last, heads, noise;
} wrong;

static void made_err(made *m, const wrong *w)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint32_t u = m->row[r].unit, dim = m->dim;
        for (uint32_t c = 0; c < dim; c++) {
            const double o = (double)m->o[r][c], other = (double)m->o[r % HEADS == 0   ? r + 2
                                                                      : r % HEADS == 2 ? r - 2
                                                                                       : r][c];
            double e = w->size * o + w->scale * (double)m->slope[r][c] + w->heads * (other - o) +
                       w->noise * hand_gauss(&draw_seed);
            for (uint32_t i = 0; i < SEEN; i++) {
                const double t = (double)m->p[r][i] * ((double)m->v[u][token_at(i) * dim + c] - o);
                e +=
                    t * ((token_at(i) == 3 && u == 1) * w->token + (i == 3) * w->first + (i == SEEN - 1 - 5) * w->last);
            }
            m->out[r][c] = (float)(m->terms[r][c].o + (m->inverse[u][c] > 0 ? e / m->inverse[u][c] : 3));
        }
    }
}

/* ---- the formulas, written anew ---------------------------------------------------------------------------------- */

typedef struct told {
    double x, x2, su, s2, honest, d;
} told;

static const double matters[] = {[KVB_FILTER_HEADS] = 1,      [KVB_FILTER_SIZE] = 2e-6,   [KVB_FILTER_TOKEN] = 1,
                                 [KVB_FILTER_FROM_FIRST] = 1, [KVB_FILTER_FROM_LAST] = 1, [KVB_FILTER_SCALE] = 0.001},
                    least[] = {
                        [KVB_FILTER_HEADS] = 0.75,      [KVB_FILTER_SIZE] = 2e-6,      [KVB_FILTER_TOKEN] = 0.25,
                        [KVB_FILTER_FROM_FIRST] = 0.25, [KVB_FILTER_FROM_LAST] = 0.25, [KVB_FILTER_SCALE] = 0.0005};

/* Adds a row with residual e in direction t. */
static void told_add(told *to, double a0, uint32_t dim, const double *e, const double *t, double honest,
                     double channels)
{
    double et = 0, e2 = 0, t2 = 0;
    for (uint32_t c = 0; c < dim; c++) {
        et += e[c] * t[c];
        e2 += e[c] * e[c];
        t2 += t[c] * t[c];
    }
    const double u = sqrt(channels) * et / sqrt(e2 * t2), s = sqrt(channels * t2 / e2);
    const double x = fmin(a0 * s, 1) * fmax(-2, fmin(2, u));
    to->x += x;
    to->x2 += x * x;
    to->su += s * u;
    to->s2 += s * s;
    to->honest += s * s * honest;
    to->d += channels;
}

static double middle(double *x, size_t n)
{
    kvb_doubles_sort(x, n);
    return x[n / 2];
}

/* z of direction `at` of n, without the condition on a. */
static double told_z(const told *all, size_t n, size_t at)
{
    double score[CELLS] = {0}, away[CELLS], median = 0, sigma = 1;
    size_t used = 0;
    for (size_t i = 0; i < n && n >= 16; i++)
        if (all[i].x2 > 0)
            score[used++] = all[i].su / sqrt(all[i].s2);
    if (used >= 16) {
        median = middle(score, used);
        for (size_t i = 0; i < used; i++)
            away[i] = fabs(score[i] - median);
        sigma = fmax(1, 1.4826 * middle(away, used));
    }
    const told *x = &all[at];
    const double t = x->su / sqrt(x->s2) - median;
    return fmin(fabs(x->x) / sqrt(x->x2), sqrt(-x->d * log(1 - fmin(t * t / x->d, 1 - 1e-9))) / sigma);
}

static void is_near(double got, double want, const char *what, int kind)
{
    if (!(fabs(got - want) <= 2e-3 * fabs(want)))
        fail_msg("kind %d, %s: %.7g in place of %.7g", kind, what, got, want);
}

/* The peak must be one of the n directions of a list in `all`, as large as the largest that counts. An |a| near the
 * limit may count or not. */
static void peak_is(const kvb_filter_peak *peak, int kind, const told *all, size_t n, size_t lists)
{
    double surely = 0, perhaps = 0, own = NAN;
    for (size_t i = 0; i < n * lists; i++) {
        const told *x = &all[i], *list = all + i / n * n;
        const double a = x->su / x->s2, room = fabs(a) - least[kind] - x->honest / x->s2;
        const double z = x->x2 > 0 ? told_z(list, n, i % n) : 0;
        if (z > 0 && room > -1e-3 * fabs(a))
            perhaps = fmax(perhaps, z);
        if (z > 0 && room > 1e-3 * fabs(a))
            surely = fmax(surely, z);
        if (peak->z > 0 && i == (lists > 1 ? peak->layer * n + peak->at : peak->at)) {
            own = z;
            is_near(peak->a, a, "a", kind);
        }
    }
    if (!(peak->z <= perhaps * (1 + 2e-3) && peak->z >= surely * (1 - 2e-3)))
        fail_msg("kind %d: z %.7g is not between %.7g and %.7g", kind, peak->z, surely, perhaps);
    if (peak->z > 0)
        is_near(peak->z, own, "z", kind);
}

static bool is_narrow(const kvb_rounding *r)
{
    return r->rounding != KVB_F32 || r->step > 0;
}

/* Compares the filter with the formulas of its header. Returns the number of rows that counted. */
static uint64_t filter_is_told(made *m, const kvb_arithmetic *a, uint32_t seen)
{
    static told sums[KVB_FILTER_KINDS][UNITS * CELLS];
    told *const token = sums[KVB_FILTER_TOKEN], *const first = sums[KVB_FILTER_FROM_FIRST],
                *const last = sums[KVB_FILTER_FROM_LAST], *const size = sums[KVB_FILTER_SIZE],
                *const scale = sums[KVB_FILTER_SCALE], *const pair = sums[KVB_FILTER_HEADS];
    kvb_filter_peak peaks[KVB_FILTER_KINDS + 1] = {[KVB_FILTER_KINDS] = {.z = 1e9}}; /* the last must stay */
    uint64_t rows = 0, counted;
    memset(sums, 0, sizeof sums);
    for (uint32_t r = 0; r < ROWS; r++)
        m->expect[r].visible = seen;
    const double z = filtered(m, a, KVB_F32, peaks, &counted);
    for (uint32_t r = 0; r < ROWS; r++) {
        const kvb_filter_row *row = &m->row[r];
        const uint32_t u = row->unit, dim = m->dim;
        const double half = fmax(fmax(a->sums.step, a->sums.floor), a->exp_floor) / 2 * m->expect[r].row.p_max *
                            m->expect[r].row.v_largest;
        double e[MOST], t[MOST], o2 = 0, lost = 0, unclear = 0, e2 = 0;
        for (uint32_t c = 0; c < dim; c++) {
            e[c] = ((double)m->out[r][c] - m->terms[r][c].o) * m->inverse[u][c];
            e2 += e[c] * e[c];
            o2 += (double)m->o[r][c] * (double)m->o[r][c];
        }
        const double step = fmax(2 * kvb_unit_roundoff(a->sums.rounding), a->sums.step),
                     u_p = kvb_unit_roundoff(a->sums.rounding), u_a = kvb_unit_roundoff(a->accumulator);
        double capped = 0, near = 0; /* weight within a rounding of the cap, and within 8 steps */
        for (uint32_t i = 0; i < SEEN; i++) {
            capped += (double)m->p[r][i] >= row->cap * exp(-u_p) ? (double)m->p[r][i] : 0;
            near += (double)m->p[r][i] >= row->cap * exp(-8 * step) ? (double)m->p[r][i] : 0;
        }
        for (uint32_t i = 0; i < SEEN && half > 0; i++) {
            const double p = (double)m->p[r][i], product = p * (double)m->magnitude[u][token_at(i)];
            lost += product < half ? p : 0;
            unclear += product < 2 * half ? p : 0;
        }
        const double beside = row->weight - m->expect[r].row.p_max;
        if (m->number[r] == UINT32_MAX || beside < 0.01 * row->weight || lost > 0.25 * beside || e2 == 0 ||
            m->expect[r].row.v_largest < 0x1p-14)
            continue;
        rows++;
        const double channels = dim - 1;
        const double may = u_a * (sqrt(a->cell_chain) / 2 + sqrt(a->rescales)) + 2 * a->exp_error +
                           u_p * ((u_p > 0x1p-20 ? row->alike[a->sums.rounding] : 0) + capped + 0.425 * row->apart) +
                           (is_narrow(&a->sums) ? u_p * a->sums.chain : 0) + a->sums.step / 2 + unclear / row->weight;
        double fourth = 0;
        for (uint32_t c = 0; c < dim; c++) {
            t[c] = (double)m->o[r][c];
            fourth += t[c] * t[c] * t[c] * t[c];
        }
        const double rounded = may + 0x1p-24 * sqrt(fourth) / o2;
        told_add(size, matters[KVB_FILTER_SIZE] + rounded, dim, e, t, rounded, channels);
        if (!is_narrow(&a->query) && !is_narrow(&a->scores) && !is_narrow(&a->sums) && seen <= 4096)
            continue;
        for (uint32_t c = 0; c < dim; c++)
            t[c] = (double)m->slope[r][c];
        if (row->spread >= 8 * step && near == 0)
            told_add(scale, matters[KVB_FILTER_SCALE] + a->sums.step / 4, dim, e, t, a->sums.step / 4, channels);
        for (uint32_t i = 0; i < SEEN; i++) {
            const double p = (double)m->p[r][i], product = p * (double)m->magnitude[u][token_at(i)];
            if (!(product > half))
                continue;
            double apart2 = 0;
            for (uint32_t c = 0; c < dim; c++) {
                t[c] = p * ((double)m->v[u][token_at(i) * dim + c] - (double)m->o[r][c]);
                apart2 += t[c] * t[c] / (p * p);
            }
            if (apart2 <= 1e-3 * (double)m->norm2[u][token_at(i)]) /* the cell is nearly all of the row */
                continue;
            told_add(&token[u * CELLS + token_at(i)], 1, dim, e, t, half / product, channels);
            told_add(&first[i], 1, dim, e, t, half / product, channels);
            told_add(&last[SEEN - 1 - i], 1, dim, e, t, half / product, channels);
        }
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t head = r % HEADS, other = r - head + h;
            for (uint32_t c = 0; c < dim; c++)
                t[c] = (m->terms[other][c].o - m->terms[r][c].o) * m->inverse[u][c];
            if (h != head)
                told_add(&pair[(h < head ? h : head) * HEADS + (h < head ? head : h)], 1, dim, e, t, 0, channels);
        }
    }
    static const size_t directions[] = {
        [KVB_FILTER_TOKEN] = CELLS, [KVB_FILTER_FROM_FIRST] = CELLS, [KVB_FILTER_FROM_LAST] = CELLS,
        [KVB_FILTER_SIZE] = 1,      [KVB_FILTER_SCALE] = 1,          [KVB_FILTER_HEADS] = HEADS * HEADS};
    double most = 0;
    for (int kind = 0; kind < KVB_FILTER_KINDS; kind++) {
        kvb_filter_peak peak = peaks[kind];
        most = fmax(most, peak.z);
        if (kind == KVB_FILTER_HEADS) {
            assert_true(peak.z == 0 || peak.at < peak.other);
            peak.at = peak.at * HEADS + peak.other;
        }
        peak_is(&peak, kind, sums[kind], directions[kind], kind == KVB_FILTER_TOKEN ? UNITS : 1);
    }
    assert_true(rows ? z == most : isnan(z));
    assert_int_equal(counted, rows);
    return rows;
}

TEST(the_formulas_are_told_twice)
{
    static const kvb_arithmetic bf16 = {.cell_chain = CELLS, .sums = {.rounding = KVB_BF16, .chain = 2}},
                                steps = {.cell_chain = CELLS, .rescales = 3, .sums.step = 0.004},
                                floors = {.exp_error = 1e-4, .sums.floor = 0.05, .query.step = 0.1},
                                drops = {.exp_floor = 0.02, .scores.rounding = KVB_F16},
                                wide = {.cell_chain = CELLS, .sums.chain = 5};
    static const struct {
        const kvb_arithmetic *a;
        uint32_t seen;
        wrong w;
    } cases[] = {
        {&bf16, CELLS, {.noise = 0.1}},
        {&bf16, CELLS, {.size = 0.3, .noise = 0.1}},
        {&wide, 4096, {.size = 1e-4, .noise = 1e-5}},
        {&wide, 4097, {.size = 1e-4, .noise = 1e-5}},
        {&steps, CELLS, {.scale = -0.05, .noise = 0.1}},
        {&bf16, CELLS, {.scale = 0.05, .noise = 0.1}},
        {&bf16, CELLS, {.token = -1, .noise = 0.01}},
        {&steps, CELLS, {.token = 1, .noise = 0.05}},
        {&floors, CELLS, {.first = -1, .noise = 0.02}},
        {&drops, CELLS, {.last = 0.6, .noise = 0.02}},
        {&drops, CELLS, {.heads = 1, .noise = 0.1}},
        {&steps, CELLS, {.size = 0.1, .heads = 0.3, .token = 1, .first = 1, .last = -1, .noise = 1}},
    };
    static made m;
    for (uint32_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        made_draw(&m, i % 2 ? 7 : MOST);
        made_err(&m, &cases[i / 2].w);
        assert_in_range(filter_is_told(&m, cases[i / 2].a, cases[i / 2].seen), 20, ROWS);
        for (uint32_t r = 0; r < ROWS; r++) /* only rows of queries 0, 1, 4, 5, … */
            m.number[r] = r / HEADS % 4 < 2 ? r : UINT32_MAX;
        assert_in_range(filter_is_told(&m, cases[i / 2].a, cases[i / 2].seen), 10, ROWS / 2);
    }
}

/*
 * Shows, over rows whose width is no power of two: the filter finds nothing in honest roundings; it names a token that
 * has another token's V row in one KV head, with layer and KV head; V rows are scaled for the filter. whole/test_filter
 * has real kernels.
 */

enum { TOKENS = 120, MANY = 1500, Q_HEADS = 4, KV_HEADS = 2, K = 12, V = 20, STALE = 7, NO_TOKEN = MANY };
static const kvb_format f32 = {.name = "f32", .elem = KVB_F32};
static const kvb_group group = {.heads = Q_HEADS, .kv_heads = KV_HEADS, .k_dim = K, .v_dim = V, .scale = 0.3};
static const kvb_arithmetic bf16_sums = {.dot_chain = K, .cell_chain = TOKENS, .sums.rounding = KVB_BF16},
                            in_steps = {.dot_chain = K, .cell_chain = TOKENS, .sums.step = 0.02};

/* The row's output, each element off by a random rounding; token `stale` has another V row. */
static void output_make(const kvb_values *values, const kvb_expect *e, uint32_t stale, uint64_t *seed, float *out)
{
    const float *v = kvb_values_rows(values, KVB_ROWS_V, e->layer, STALE) + e->head / 2 * V,
                *strange = kvb_values_rows(values, KVB_ROWS_V, e->layer, STALE + 50) + e->head / 2 * V,
                *k = kvb_values_rows(values, KVB_ROWS_K, e->layer, STALE) + e->head / 2 * K,
                *q = kvb_values_rows(values, KVB_ROWS_Q, e->layer, e->query) + e->head * K;
    double score = 0;
    for (uint32_t c = 0; c < K; c++)
        score += (double)q[c] * (double)k[c];
    double weight = stale <= e->query && e->layer == 1 && e->head / 2 == 1 ? exp(0.3 * score - e->lse) : 0;
    for (uint32_t c = 0; c < V; c++)
        out[c] = (float)(e->terms[c].o * (1 + 0x1p-9 * (2 * hand_uniform(seed) - 1)) +
                         weight * ((double)strange[c] - (double)v[c]));
}

static double z_with(const kvb_oracle *oracle, const kvb_values *values, const kvb_arithmetic *arithmetic,
                     uint32_t stale, uint64_t *rows, char *why, size_t why_bytes)
{
    kvb_filter *filter;
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    uint64_t seed = 5;
    assert_int_equal(kvb_filter_open(oracle, &filter), 0);
    for (size_t r = 0; r < oracle->n_rows; r++) {
        float out[V];
        output_make(values, &oracle->rows[r], stale, &seed, out);
        kvb_filter_add(filter, &oracle->rows[r], &oracle->rows[r], arithmetic, KVB_F32, out);
    }
    double z = kvb_filter_peaks(filter, peaks);
    *rows = kvb_filter_rows(filter);
    kvb_filter_words(peaks, why, why_bytes);
    kvb_filter_free(filter);
    return z;
}

/* A prompt of so many tokens. *rows: number of rows that count. */
static void a_token_is_named_among(uint32_t tokens, uint64_t *rows)
{
    hand h = {0};
    kvb_values values;
    char why[200];
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, tokens);
    hand_values(&h, hand_model(2, group), 4, &values);
    kvb_oracle *oracle = hand_oracle(&h, &values, &f32, &f32);
    assert_true(z_with(oracle, &values, &bf16_sums, NO_TOKEN, rows, why, sizeof why) < KVB_FILTER_LIMIT);
    assert_string_equal(why, "");
    assert_true(z_with(oracle, &values, &bf16_sums, STALE, rows, why, sizeof why) > KVB_FILTER_LIMIT);
    print_message("# %s\n", why);
    assert_contains(why, "token 7 is missing from, or has a wrong V row in, the outputs of KV head 1, layer 1");
    /* weights in steps: a row does not count if most of its weight may have become 0 */
    uint64_t telling;
    assert_true(z_with(oracle, &values, &in_steps, STALE, &telling, why, sizeof why) > KVB_FILTER_LIMIT);
    assert_true(telling > 0 && telling < *rows);
    kvb_oracle_free(oracle);
    hand_free(&h);
}

/* With few tokens every row is kept, except rows that see one cell; with many tokens those of every other query. */
TEST(a_token_is_named)
{
    uint64_t rows;
    a_token_is_named_among(TOKENS, &rows);
    assert_int_equal(rows, 2 * Q_HEADS * (TOKENS - 1));
    a_token_is_named_among(MANY, &rows);
    assert_int_equal(rows, 2 * Q_HEADS * MANY / 2);
}

/* The message names the first kind that stands out; among outputs and cells the highest. */
TEST(what_stands_out_is_said)
{
    static const struct {
        kvb_filter_kind kind;
        kvb_filter_peak peak;
        const char *words;
    } all[] = {
        {KVB_FILTER_SCALE, {.z = 9, .a = 0.01}, "the scale is off by about +1.00 %: z = 9.0, above 8.5"},
        {KVB_FILTER_TOKEN,
         {.z = 10, .a = 1, .layer = 3, .kv_head = 2, .at = 7},
         "token 7 is doubled in the outputs of KV head 2, layer 3"},
        {KVB_FILTER_FROM_LAST,
         {.z = 11, .a = -1, .at = 5},
         "cell 5 from the last of those that each query sees is missing from"},
        {KVB_FILTER_FROM_FIRST, {.z = 12, .a = 1, .at = 6}, "cell 6 of those that each query sees is doubled in"},
        {KVB_FILTER_SIZE, {.z = 13, .a = -1}, "the outputs are off by about -100 %"},
        {KVB_FILTER_HEADS, {.z = 9, .at = 1, .other = 2}, "outputs of heads 1 and 2 look swapped"},
    };
    kvb_filter_peak peaks[KVB_FILTER_KINDS] = {{.z = KVB_FILTER_LIMIT}};
    char why[200];
    kvb_filter_words(peaks, why, sizeof why);
    assert_string_equal(why, "");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        peaks[all[i].kind] = all[i].peak;
        kvb_filter_words(peaks, why, sizeof why);
        assert_contains(why, all[i].words);
    }
}

/* V rows are wider than the unit's. The unit's channels get variance 1, except a constant one. */
TEST(rows_of_a_unit_are_scaled)
{
    enum { ROW = V + 4 };
    static double rows[TOKENS * ROW], inverse[2 * V + 1] = {[2 * V] = 7}; /* the last must stay */
    static float scaled[TOKENS * V], norm2[TOKENS], magnitude[TOKENS];
    kvb_filter_unit unit = {.layer = 1, .kv_head = 1, .dim = V, .inverse = inverse, .mean = inverse + V};
    kvb_filter_truth truth = {.tokens = TOKENS, .n_units = 1, .units = &unit};
    uint64_t seed = 3;
    unit.v = scaled;
    unit.norm2 = norm2;
    unit.magnitude = magnitude;
    for (uint32_t i = 0; i < TOKENS * ROW; i++)
        rows[i] = i % ROW == 5 ? 0.5 : (i % ROW + 1) * (hand_uniform(&seed) + 3);
    for (int times = 0; times < 2; times++) { /* old values do not count */
        kvb_filter_truth_v(&truth, 0, 1, rows, ROW);
        assert_int_equal(unit.usable, times);
        kvb_filter_truth_v(&truth, 1, 1, rows, ROW);
        assert_true(unit.usable);
    }
    for (uint32_t c = 0; c < V; c++) {
        double mean = 0, variance = 0;
        for (uint32_t i = 0; i < TOKENS; i++)
            mean += (double)scaled[i * V + c] / TOKENS;
        for (uint32_t i = 0; i < TOKENS; i++)
            variance += pow((double)scaled[i * V + c] - mean, 2) / TOKENS;
        assert_true(fabs(variance - (c != 5)) < 1e-5);
        assert_true(fabs((double)scaled[7 * V + c] - rows[7 * ROW + c] * inverse[c]) < 1e-5);
    }
    for (uint32_t i = 0; i < TOKENS; i++) {
        double sum = 0, largest = 0;
        for (uint32_t c = 0; c < V; c++) {
            sum += pow((double)scaled[i * V + c], 2);
            largest = fmax(largest, rows[i * ROW + c]);
        }
        assert_true(fabs((double)norm2[i] - sum) < 1e-4 * sum);
        assert_true(fabs((double)magnitude[i] - largest) < 1e-5 * largest);
    }
    assert_true(inverse[2 * V] == 7);
    /* One channel dominates: the loss by a step is measured by the sixth smallest channel, 5 / 20 of the former
     * largest. */
    const double largest = rows[7 * ROW + V - 1];
    for (uint32_t i = 0; i < TOKENS; i++)
        rows[i * ROW + V - 1] *= 1000;
    kvb_filter_truth_v(&truth, 1, 1, rows, ROW);
    assert_true((double)magnitude[7] > 0.2 * largest && (double)magnitude[7] < 0.3 * largest);
    rows[9 * ROW + 2] = INFINITY;
    kvb_filter_truth_v(&truth, 1, 1, rows, ROW);
    assert_false(unit.usable);
}

/* ---- recorded calls ---------------------------------------------------------------------------------------------- */

/* Rows of a call of one KV head. Its queries see all cells, or all but cell 7. */
enum { ALONE_QUERIES = 120, ALONE_CELLS = 64, ALONE_DIM = 16 };
typedef struct alone {
    float q[ALONE_QUERIES * ALONE_DIM], out[ALONE_QUERIES * ALONE_DIM];
    double k[ALONE_CELLS * ALONE_DIM], v[ALONE_CELLS * ALONE_DIM], k_sizes[ALONE_CELLS * ALONE_DIM],
        v_sizes[ALONE_CELLS * ALONE_DIM];
    kvb_token_run runs[2 * ALONE_QUERIES];
    size_t first[ALONE_QUERIES + 1];
} alone;

static void alone_make(alone *x, uint64_t key)
{
    float rows[2 * ALONE_CELLS * ALONE_DIM];
    kvb_rng_normals(kvb_rng_key(key, 1), 1, ALONE_QUERIES * ALONE_DIM, x->q);
    kvb_rng_normals(kvb_rng_key(key, 2), 1, 2 * ALONE_CELLS * ALONE_DIM, rows);
    for (uint32_t i = 0; i < ALONE_CELLS * ALONE_DIM; i++) {
        x->k[i] = (double)rows[i];
        x->v[i] = (double)rows[ALONE_CELLS * ALONE_DIM + i];
        x->k_sizes[i] = fabs(x->k[i]);
        x->v_sizes[i] = fabs(x->v[i]);
    }
}

static void alone_see(alone *x, bool lacking)
{
    size_t n = 0;
    for (uint32_t t = 0; t < ALONE_QUERIES; t++) {
        x->first[t] = n;
        if (lacking)
            x->runs[n++] = (kvb_token_run){0, 7};
        x->runs[n++] = (kvb_token_run){lacking ? 8 : 0, ALONE_CELLS};
    }
    x->first[ALONE_QUERIES] = n;
}

/* Judges the call. filter NULL: sets its outputs to the exact ones. */
static void alone_judge(alone *x, bool lacking, kvb_single_filter *filter, uint32_t sequence, uint32_t kv_head)
{
    const kvb_attend call = {.problem = {.n_tok = ALONE_QUERIES,
                                         .n_heads = 1,
                                         .n_kv_heads = 1,
                                         .k_dim = ALONE_DIM,
                                         .v_dim = ALONE_DIM,
                                         .n_cells = ALONE_CELLS,
                                         .scale = 0.25f,
                                         .mask = KVB_MASK_EXPLICIT,
                                         .k_format = &f32,
                                         .v_format = &f32},
                             .q = x->q,
                             .out = x->out};
    const kvb_single_rows rows = {.cells = ALONE_CELLS,
                                  .k_decoded = x->k,
                                  .k_sizes = x->k_sizes,
                                  .v_decoded = x->v,
                                  .v_sizes = x->v_sizes,
                                  .runs = x->runs,
                                  .first = x->first};
    const kvb_arithmetic bf16 = {.dot_chain = 16, .cell_chain = 64, .sums = {.rounding = KVB_BF16}};
    kvb_single *single;
    char why[200];
    alone_see(x, lacking);
    assert_int_equal(kvb_single_open(&call, NULL, &bf16, &rows, &single, why, sizeof why), 0);
    if (filter)
        assert_int_equal(kvb_single_filter_begin(filter, single, sequence, kv_head), 0);
    for (uint32_t t = 0; t < ALONE_QUERIES; t++) {
        double exact[ALONE_DIM];
        kvb_diff diff = {.claim = {.k_dim = ALONE_DIM, .cells = ALONE_CELLS}};
        assert_int_equal(kvb_single_judge(single, t, 0, 1, false, &diff, exact, NULL, why, sizeof why), 0);
        for (uint32_t c = 0; c < ALONE_DIM && !filter; c++)
            x->out[t * ALONE_DIM + c] = (float)exact[c];
    }
    kvb_single_free(single);
}

/* Sums continue over calls, each with its own V rows. A call beyond the number of units is left out. */
TEST(calls_by_themselves_are_filtered)
{
    static alone calls[3];
    const kvb_problem problem = {.k_dim = ALONE_DIM, .v_dim = ALONE_DIM, .scale = 0.25f};
    for (int stale = 0; stale < 2; stale++) {
        kvb_single_filter *filter;
        kvb_filter_peak peaks[KVB_FILTER_KINDS];
        char words[200];
        assert_int_equal(kvb_single_filter_open(&problem, 2, ALONE_CELLS, 2, &filter), 0);
        for (uint32_t i = 0; i < 3; i++) {
            alone_make(&calls[i], 40 + i);
            alone_judge(&calls[i], stale && i == 1, NULL, 0, 0);
            alone_judge(&calls[i], false, filter, 5, i);
        }
        const kvb_filter *sums = kvb_single_filter_sums(filter);
        const double z = kvb_filter_peaks(sums, peaks);
        kvb_filter_words(peaks, words, sizeof words);
        assert_true(kvb_filter_rows(sums) > 150 && kvb_filter_rows(sums) <= 2 * ALONE_QUERIES);
        assert_int_equal(z > KVB_FILTER_LIMIT, stale);
        if (stale)
            assert_contains(words, "token 7 is missing from, or has a wrong V row in, the outputs of KV head 1, "
                                   "sequence 5");
        kvb_single_filter_free(filter);
    }
    assert_null(kvb_single_filter_sums(NULL));
    kvb_single_filter_free(NULL);
}
