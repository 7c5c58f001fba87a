/* SPDX-License-Identifier: Apache-2.0 */
/* Shows by numbers worked out by hand how large an honest |a| of the filter may be, for each field of a declaration, and which
 * rows count. */
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

/* z of a kind where residuals are `share` of (1, 1, 1, 1) / 2. out: that, in all cases; what it is compared with lies beside it. */
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
        /* weights of e4m3: (1/4 + 0.425 / 2) / 16 = 0.4625 / 16 and three more of 1/16 */
        weights = {.accumulator = KVB_F32, .sums = {.rounding = KVB_E4M3, .chain = 3}},
        /* in f32: the same shares of 2^-24; a chain counts where something is narrow */
        wide = {.accumulator = KVB_F32, .sums.chain = 3},
        /* steps of 1/8: 1/16, no product below 1/8 * 3/4, and 3 of 2^-24 */
        steps = {.accumulator = KVB_F32, .sums = {.step = 0.125, .chain = 3}},
        /* products below 1/2 * 3/4 are unclear: the cell of 1/4; below half of that they are lost: none */
        floor = {.accumulator = KVB_F32, .sums.floor = 0.5}, drops = {.accumulator = KVB_F32, .exp_floor = 0.5};
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
    for (uint32_t r = 0; r < ROWS; r++) {
        m.row[r].alike = 0.25;
        m.row[r].apart = 0.5;
    }
    stands_out_from(&m, &weights, KVB_FILTER_SIZE, KVB_F32, base + f32 + 0.4625 / 16 + 3.0 / 16, ROWS);
    stands_out_from(&m, &wide, KVB_FILTER_SIZE, KVB_F32, base + f32 + 0.4625 * 0x1p-24, ROWS);
}

/* A residual of `share` (1, 1, 1, 1) / 2 in the other directions: cells' are 3/4 (1/2) and -1/4 (3/2) in each channel, so that a is
 * 4/3 and -4/3 of the share; of the slope, 2 in each, 1/4. */
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
    /* logits must spread over 8 roundings of a weight, each of 2^-7 or a step; of a quarter of which the slope may be off */
    assert_true(z_of(&m, &bf16, KVB_FILTER_SCALE, KVB_F32, 0.5) == 0);
    for (uint32_t r = 0; r < ROWS; r++)
        m.row[r].spread = r % 2 ? 1.0 / 16 : 0.0624;
    stands_out_from(&m, &bf16, KVB_FILTER_SCALE, KVB_F32, 4 * 0.0005, ROWS / 2);
    assert_true(z_of(&m, &steps, KVB_FILTER_SCALE, KVB_F32, 0.5) == 0);
    for (uint32_t r = 0; r < ROWS; r++)
        m.row[r].spread = r % 2 ? 0.5 : 0.4999;
    stands_out_from(&m, &steps, KVB_FILTER_SCALE, KVB_F32, 4 * (0.0005 + 1.0 / 64), ROWS / 2);
}

/* Rows that count: with at least 1 % of the weight beside the largest cell, and at most a quarter of that below half a step. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_sizes_by_hand),
        cmocka_unit_test(least_sizes_by_hand),
        cmocka_unit_test(rows_that_count_by_hand),
    };
    return cmocka_run_group_tests_name("sizes of the filter, by hand", tests, NULL, NULL);
}
