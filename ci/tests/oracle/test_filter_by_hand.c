/* SPDX-License-Identifier: Apache-2.0 */
/* Shows by numbers worked out by hand how large an honest |a| of the filter may be, for each field of a declaration,
 * and which rows count. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/made_rows.h"

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

/* z of a kind where residuals are `share` of (1, 1, 1, 1) / 2. out: that, in all cases; what it is compared with lies
 * beside it. */
static double z_of(made *m, const kvb_arithmetic *a, kvb_filter_kind kind, kvb_elem out_elem, double share)
{
    static const float wide[] = {0.5f, 0.5f, 0.5f, 0.5f};
    static const uint16_t f16[] = {0x3800, 0x3800, 0x3800, 0x3800}, bf16[] = {0x3f00, 0x3f00, 0x3f00, 0x3f00};
    kvb_filter *filter;
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    assert_int_equal(kvb_filter_open(&m->oracle, &filter), 0);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t c = 0; c < 4; c++)
            m->terms[r][c].o = 0.5 * (1 - share);
        kvb_filter_add(filter, &m->expect[r], &m->expect[r], a, out_elem,
                       out_elem == KVB_F32   ? (const void *)wide
                       : out_elem == KVB_F16 ? f16
                                             : bf16);
    }
    kvb_filter_peaks(filter, peaks);
    kvb_filter_free(filter);
    return peaks[kind].z;
}

/* From `want` on a share stands out: by the square root of the number of rows that count. */
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

static void honest_sizes_by_hand(void **state)
{
    static made m;
    const double base = 2e-6, f32 = 0x1p-24 / 2; /* of an output in f32: u sqrt(4) / 4 */
    const kvb_arithmetic
        plain = {.accumulator = KVB_F32},
        /* an accumulator of f16: (sqrt(64) / 2 + sqrt(16)) / 2048 = 1/256 */
        chains = {.accumulator = KVB_F16, .cell_chain = 64, .rescales = 16},
        cells = {.accumulator = KVB_F16, .cell_chain = 64},       /* 1/512 */
        rescales = {.accumulator = KVB_F16, .rescales = 16},      /* 1/512 */
        exponents = {.accumulator = KVB_F32, .exp_error = 0.125}, /* 1/4 */
        /* weights of bf16: (1/4 + 0.425 / 2) / 256 = 0.4625 / 256 and three more of 1/256; of e4m3, all are
           alike: 1.2125 / 16 */
        weights = {.accumulator = KVB_F32, .sums = {.rounding = KVB_BF16, .chain = 3}},
        coarse = {.accumulator = KVB_F32, .sums.rounding = KVB_E4M3},
        /* in f32: shares of 2^-24; a chain counts where something is narrow */
        wide = {.accumulator = KVB_F32, .sums.chain = 3},
        /* steps of 1/8: 1/16, no product below 1/8 * 3/4, and 3 of 2^-24 */
        steps = {.accumulator = KVB_F32, .sums = {.step = 0.125, .chain = 3}},
        /* products below 1/2 * 3/4 are unclear: the cell of 1/4; below half of that they are lost: none */
        floor = {.accumulator = KVB_F32, .sums.floor = 0.5}, drops = {.accumulator = KVB_F32, .exp_floor = 0.5},
        quarter = {.accumulator = KVB_F32, .sums.floor = 0.25};
    (void)state;
    plain_make(&m);
    stands_out_from(&m, &plain, KVB_FILTER_SIZE, KVB_F32, base + f32, ROWS);
    stands_out_from(&m, &plain, KVB_FILTER_SIZE, KVB_F16, base + 0x1p-12, ROWS);
    stands_out_from(&m, &plain, KVB_FILTER_SIZE, KVB_BF16, base + 0x1p-9, ROWS);
    stands_out_from(&m, &chains, KVB_FILTER_SIZE, KVB_F32, base + f32 + 1.0 / 256, ROWS);
    stands_out_from(&m, &cells, KVB_FILTER_SIZE, KVB_F32, base + f32 + 1.0 / 512, ROWS);
    stands_out_from(&m, &rescales, KVB_FILTER_SIZE, KVB_F32, base + f32 + 1.0 / 512, ROWS);
    stands_out_from(&m, &exponents, KVB_FILTER_SIZE, KVB_F32, base + f32 + 0.25, ROWS);
    stands_out_from(&m, &steps, KVB_FILTER_SIZE, KVB_F32, base + f32 + 1.0 / 16 + 3 * 0x1p-24, ROWS);
    stands_out_from(&m, &floor, KVB_FILTER_SIZE, KVB_F32, base + f32 + 0.25, ROWS);
    stands_out_from(&m, &drops, KVB_FILTER_SIZE, KVB_F32, base + f32 + 0.25, ROWS);
    /* half a step is 1/8, and 1/4: what is as large as a step is clear, what is as large as half of one is not lost */
    for (uint32_t r = 0; r < ROWS; r++)
        m.expect[r].row.v_largest = 4.0 / 3;
    assert_true(0.75 * (4.0 / 3) == 1);
    stands_out_from(&m, &quarter, KVB_FILTER_SIZE, KVB_F32, base + f32, ROWS);
    stands_out_from(&m, &floor, KVB_FILTER_SIZE, KVB_F32, base + f32 + 0.25, ROWS);
    for (uint32_t r = 0; r < ROWS; r++) {
        m.row[r].alike[KVB_BF16] = 0.25;
        m.row[r].apart = 0.5;
    }
    stands_out_from(&m, &weights, KVB_FILTER_SIZE, KVB_F32, base + f32 + 0.4625 / 256 + 3.0 / 256, ROWS);
    stands_out_from(&m, &coarse, KVB_FILTER_SIZE, KVB_F32, base + f32 + 1.2125 / 16, ROWS);
    stands_out_from(&m, &wide, KVB_FILTER_SIZE, KVB_F32, base + f32 + 0.2125 * 0x1p-24, ROWS);
    /* beside a softcap the cell of 3/4 is alike in all rows, if it is less than 1/256 below the cap */
    for (uint32_t r = 0; r < ROWS; r++)
        m.row[r].cap = 0.75 * exp(1.0 / 257);
    stands_out_from(&m, &weights, KVB_FILTER_SIZE, KVB_F32, base + f32 + 1.2125 / 256 + 3.0 / 256, ROWS);
    for (uint32_t r = 0; r < ROWS; r++)
        m.row[r].cap = 0.75 * exp(1.0 / 255);
    stands_out_from(&m, &weights, KVB_FILTER_SIZE, KVB_F32, base + f32 + 0.4625 / 256 + 3.0 / 256, ROWS);
}

/* A residual of `share` (1, 1, 1, 1) / 2 in the other directions: cells' are 3/4 (1/2) and -1/4 (3/2) in each channel,
 * so that a is 4/3 and -4/3 of the share; of the slope, 2 in each, 1/4. */
static void least_sizes_by_hand(void **state)
{
    static made m;
    const kvb_arithmetic bf16 = {.accumulator = KVB_F32, .sums.rounding = KVB_BF16},
                         steps = {.accumulator = KVB_F32, .sums.step = 1.0 / 16};
    (void)state;
    plain_make(&m);
    stands_out_from(&m, &bf16, KVB_FILTER_TOKEN, KVB_F32, 0.75 * 0.25, ROWS / 2); /* of one of the two units */
    stands_out_from(&m, &bf16, KVB_FILTER_FROM_FIRST, KVB_F32, 0.75 * 0.25, ROWS);
    stands_out_from(&m, &bf16, KVB_FILTER_FROM_LAST, KVB_F32, 0.75 * 0.25, ROWS);
    /* half a step is 1/32 of 3/4: beside products of 3/4 and 1/4 that is 1/32 and 3/32 */
    stands_out_from(&m, &steps, KVB_FILTER_FROM_FIRST, KVB_F32, 0.75 * (0.25 + 1.0 / 32), ROWS);
    /* logits must spread over 8 roundings of a weight, each of 2^-7 or a step; of a quarter of which the slope may be
     * off */
    assert_true(z_of(&m, &bf16, KVB_FILTER_SCALE, KVB_F32, 0.5) == 0);
    for (uint32_t r = 0; r < ROWS; r++)
        m.row[r].spread = r % 2 ? 1.0 / 16 : 0.0624;
    stands_out_from(&m, &bf16, KVB_FILTER_SCALE, KVB_F32, 4 * 0.0005, ROWS / 2);
    assert_true(z_of(&m, &steps, KVB_FILTER_SCALE, KVB_F32, 0.5) == 0);
    /* and no logit may lie within as many below the softcap: the cell of 3/4 does in a quarter of the rows */
    for (uint32_t r = 0; r < ROWS; r++)
        m.row[r].cap = 0.75 * exp(r % 4 == 1 ? 0.0624 : 0.0626);
    stands_out_from(&m, &bf16, KVB_FILTER_SCALE, KVB_F32, 4 * 0.0005, ROWS / 4);
    for (uint32_t r = 0; r < ROWS; r++) {
        m.row[r].cap = INFINITY;
        m.row[r].spread = r % 2 ? 0.5 : 0.4999;
    }
    stands_out_from(&m, &steps, KVB_FILTER_SCALE, KVB_F32, 4 * (0.0005 + 1.0 / 64), ROWS / 2);
}

/* z of the first place, of rows with that much weight on cell 0, of which 0.28 is missing. The two cells' directions
 * are one. Beside a step of 3/1000 of 10 times that weight, cell 0 may lose 0.0015 of itself, cell 1 more than 0.07:
 * there 0.28 is not above 1/4. */
static double first_of(made *m, double weight)
{
    const kvb_arithmetic steps = {.accumulator = KVB_F32, .sums.step = 0.003};
    kvb_filter *filter;
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    assert_int_equal(kvb_filter_open(&m->oracle, &filter), 0);
    for (uint32_t r = 0; r < ROWS; r++) {
        const double o = 10 * (2 * weight - 1);
        float out[4];
        m->p[r][0] = (float)weight;
        m->p[r][1] = (float)(1 - weight);
        m->expect[r].row = (kvb_bound_row){.p_max = weight, .v_largest = 10};
        for (uint32_t c = 0; c < 4; c++) {
            m->o[r][c] = (float)o;
            m->terms[r][c].o = o;
            out[c] = (float)(o - 0.28 * weight * (10 - o));
        }
        kvb_filter_add(filter, &m->expect[r], &m->expect[r], &steps, KVB_F32, out);
    }
    kvb_filter_peaks(filter, peaks);
    assert_int_equal(kvb_filter_rows(filter), ROWS);
    kvb_filter_free(filter);
    return peaks[KVB_FILTER_FROM_FIRST].z;
}

/* A cell that is nearly all of the row has no direction: v - o is what rounding left of v. Of the weights w and 1 - w
 * of v and -v, its square is (2 - 2w)^2 of v's: 0.0016 at w = 0.98, 0.0009 at 0.985. It must be above 0.001. */
static void cells_that_are_the_row_by_hand(void **state)
{
    static made m;
    (void)state;
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

/* Rows that count: with at least 1 % of the weight beside the largest cell, and at most a quarter of that below half a
 * step. */
static uint64_t rows_of(made *m, const kvb_arithmetic *a, double beside, uint32_t lost_in_8)
{
    kvb_filter *filter;
    assert_int_equal(kvb_filter_open(&m->oracle, &filter), 0);
    for (uint32_t r = 0; r < ROWS; r++) {
        m->row[r].visible = 9;
        m->row[r].n_runs = 1;
        m->runs[r][0] = (kvb_token_run){0, 9};
        m->expect[r].row = (kvb_bound_row){.p_max = 1 - beside, .v_largest = 1};
        for (uint32_t i = 0; i < 9; i++)
            m->p[r][i] = (float)(i ? beside / 8 : 1 - beside);
        for (uint32_t c = 0; c < 4; c++)
            m->terms[r][c].o = c;
    }
    for (uint32_t i = 0; i < 9; i++)
        for (uint32_t u = 0; u < UNITS; u++)
            m->magnitude[u][i] = i == 0 || i > lost_in_8 ? 1 : 0.001f;
    static const float out[4] = {9, 9, 9, 9};
    for (uint32_t r = 0; r < ROWS; r++)
        kvb_filter_add(filter, &m->expect[r], &m->expect[r], a, KVB_F32, out);
    uint64_t rows = kvb_filter_rows(filter);
    kvb_filter_free(filter);
    return rows;
}

static void rows_that_count_by_hand(void **state)
{
    static made m;
    const kvb_arithmetic bf16 = {.accumulator = KVB_F32, .sums.rounding = KVB_BF16},
                         steps = {.accumulator = KVB_F32, .sums.step = 0.01};
    (void)state;
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

/* What the exact side keeps of a row: three tokens in two runs, weights 1/2, 1/8, 1/4 beside a sink, one channel that
 * counts twice. */
static void a_row_of_the_truth_by_hand(void **state)
{
    static float v[4 * 2] = {1, 2, -1, 4, 9, 9, 3, -2}, p[3], o[2], slope[2];
    static double inverse[4] = {1, 2};
    static kvb_token_run runs[] = {{3, 4}, {0, 2}}; /* tokens 3, 0, 1 */
    kvb_filter_unit unit = {.dim = 2, .usable = true, .inverse = inverse, .v = v};
    kvb_filter_row row = {.visible = 3, .runs = runs, .n_runs = 2, .p = p, .o = o, .slope = slope};
    uint32_t number[] = {UINT32_MAX, 0};
    kvb_filter_truth truth = {.tokens = 4, .n_units = 1, .units = &unit, .number = number, .rows = &row, .n_rows = 1};
    const double weights[] = {0.5, 0.125, 0.25};
    const kvb_bound_term terms[] = {{.o = 0.75}, {.o = -0.25}};
    (void)state;
    for (int capped = 0; capped < 2; capped++) {
        /* Logits 3, 3, 1: the first two are alike, though no two weights are. slope: those, and with a cap of 6 what
         * d tanh(x) is: 6 atanh(1/2) (3/4), 6 atanh(1/6) (35/36). */
        const double logits[] = {3, 3, 1};
        const kvb_attention a = {.softcap = capped ? 6 : 0};
        const double high = capped ? 4.5 * atanh(0.5) : 3, low = capped ? 35.0 / 6 * atanh(1.0 / 6) : 1;
        const double mean = 0.625 * high + 0.25 * low, square = 0.625 * high * high + 0.25 * low * low;
        slope[0] = slope[1] = 0;
        kvb_filter_truth_row(&truth, 0, &a, logits, weights, 1, terms); /* is not kept */
        assert_true(slope[0] == 0 && slope[1] == 0);
        kvb_filter_truth_row(&truth, 1, &a, logits, weights, 1, terms);
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
    /* logits at the cap do not move, whatever the scale; far apart ones are not alike */
    const double ends[] = {6, -6, 1.0 / 4096};
    const kvb_attention a = {.softcap = 6};
    slope[0] = slope[1] = 0;
    kvb_filter_truth_row(&truth, 1, &a, ends, weights, 0, terms);
    const double low = 6 * atanh(1.0 / 24576) * (1 - 1.0 / 24576 / 24576), mean = low / 4;
    assert_true(fabs(row.spread - sqrt(low * low / 4 - mean * mean)) < 1e-12);
    assert_true(row.alike[KVB_F16] == 0 && row.alike[KVB_BF16] == 0);
    /* 2^-9 apart: less than a rounding of bf16, which is 2^-8, more than two of f16; 2^-12: less than one of f16 */
    const double beside[] = {3 + 0x1p-9, 3, 1}, closer[] = {3 - 0x1p-12, 3, 1};
    kvb_filter_truth_row(&truth, 1, &a, beside, weights, 0, terms);
    assert_true(row.alike[KVB_F16] == 0 && fabs(row.alike[KVB_BF16] - sqrt(2 * 0.5 * 0.125)) < 1e-15);
    kvb_filter_truth_row(&truth, 1, &a, closer, weights, 0, terms);
    assert_true(fabs(row.alike[KVB_F16] - sqrt(2 * 0.5 * 0.125)) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_sizes_by_hand),           cmocka_unit_test(least_sizes_by_hand),
        cmocka_unit_test(cells_that_are_the_row_by_hand), cmocka_unit_test(rows_that_count_by_hand),
        cmocka_unit_test(a_row_of_the_truth_by_hand),
    };
    return cmocka_run_group_tests_name("sizes of the filter, by hand", tests, NULL, NULL);
}
