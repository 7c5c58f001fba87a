/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: how outputs are compared, against the bound and to the bit. */
#include "ci/tests/tests.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/codec.h"
#include "oracle/exact.h"
#include "oracle/oracle.h"
#include "oracle/recurrence.h"

/* Shows: a diff measures error against bound, counts NaN and unwritten output as infinite, and keeps their place. */

static const kvb_arithmetic plain = {.accumulator = KVB_F32, .dot_chain = 16, .cell_chain = 100};
static const kvb_bound_term terms[3] = {
    {.o = 1, .spread = 1, .spread_a = 1, .spread_s = 1, .mass = 1.5, .v_max = 3},
    {.o = -0.5, .spread = 1, .spread_a = 1, .spread_s = 1, .mass = 1, .v_max = 2},
    {.o = 2, .spread = 1, .spread_a = 1, .spread_s = 1, .mass = 2, .v_max = 4},
};

static kvb_expect expect_row(void)
{
    return (kvb_expect){
        .event = 7,
        .layer = 3,
        .query = 5,
        .head = 2,
        .visible = 10,
        .lse = 3,
        .row = {.visible = 10,
                .a_max = 2,
                .s_max = 2,
                .a_mean = 1,
                .s_mean = 1,
                .logit_max = 1,
                .weight_sum = 7,
                .v_mix = 1},
        .terms = terms,
    };
}

static kvb_diff diff_of(const kvb_expect *e, kvb_elem elem, const void *out, const float *lse)
{
    kvb_diff diff = {0};
    kvb_diff_row(&diff, e, 3, &plain, 1, 0, elem, out, lse);
    return diff;
}

static void assert_place(const kvb_diff *d, uint32_t channel)
{
    assert_int_equal(d->worst.event, 7);
    assert_int_equal(d->worst.layer, 3);
    assert_int_equal(d->worst.query, 5);
    assert_int_equal(d->worst.head, 2);
    assert_int_equal(d->worst.channel, channel);
}

TEST(exact_row_has_rho_zero)
{
    kvb_expect e = expect_row();
    const float out[3] = {1, -0.5f, 2}, lse = 3;
    kvb_diff d = diff_of(&e, KVB_F32, out, &lse);
    assert_true(d.rho == 0 && d.rho_worst == 0 && d.max_abs == 0 && d.rel_l2 == 0);
    assert_int_equal(d.rows, 1);
    assert_place(&d, 0);
    assert_true(d.worst.want == 1 && d.worst.bound > 0);
}

TEST(error_over_bound)
{
    kvb_expect e = expect_row();
    const float out[3] = {1, -0.5f + 0x1p-10f, 2}, lse = 3;
    kvb_diff d = diff_of(&e, KVB_F32, out, &lse);
    double bound = kvb_bound_output(&plain, KVB_BOUND_STATISTICAL, &e.row, &terms[1], 1, 0, KVB_F32);
    double worst = kvb_bound_output(&plain, KVB_BOUND_WORST, &e.row, &terms[1], 1, 0, KVB_F32);
    assert_true(d.rho == 0x1p-10 / bound && d.rho_worst == 0x1p-10 / worst);
    assert_true(d.worst.bound == bound && d.worst.want == -0.5 && d.worst.got == -0.5 + 0x1p-10);
    assert_true(d.max_abs == 0x1p-10);
    assert_true(fabs(d.rel_l2 - 0x1p-10 / sqrt(1 + 0.25 + 4)) < 1e-15);
    assert_place(&d, 1);
}

/* rho is that of the channel nearest to its bound. */
TEST(rho_is_the_largest_of_the_channels)
{
    static const double shares[][3] = {{0.1, 0.5, 0.3}, {0.6, 0.5, 0.1}, {0.1, 0.2, 0.7}};
    kvb_expect e = expect_row();
    for (size_t s = 0; s < 3; s++) {
        float out[3];
        double rho[2] = {0, 0};
        for (uint32_t c = 0; c < 3; c++) {
            double bound[2] = {
                kvb_bound_output(&plain, KVB_BOUND_STATISTICAL, &e.row, &terms[c], 1, 0, KVB_F32),
                kvb_bound_output(&plain, KVB_BOUND_WORST, &e.row, &terms[c], 1, 0, KVB_F32),
            };
            out[c] = (float)(terms[c].o + shares[s][c] * bound[0]);
            for (int b = 0; b < 2; b++)
                rho[b] = fmax(rho[b], fabs((double)out[c] - terms[c].o) / bound[b]);
        }
        kvb_diff d = diff_of(&e, KVB_F32, out, NULL);
        assert_true(d.rho < 1 && d.rho == rho[0] && d.rho_worst == rho[1]);
    }
}

TEST(log_sum_exp_is_judged)
{
    kvb_expect e = expect_row();
    const float out[3] = {1, -0.5f, 2}, lse = 3.001f;
    kvb_diff d = diff_of(&e, KVB_F32, out, &lse);
    assert_true(d.rho > 1 && d.rho_lse == d.rho);
    char words[256];
    kvb_diff_words(&d, 3, words, sizeof words);
    assert_ptr_equal(strstr(words, "lse of query "), words);
    assert_null(strstr(words, "channel"));
    assert_true(d.max_abs == 0);
    assert_place(&d, 3);
    d = diff_of(&e, KVB_F32, out, NULL); /* lse is not wanted */
    assert_true(d.rho == 0 && d.rho_lse == 0);
}

TEST(the_worst_row_keeps_its_place)
{
    kvb_expect e = expect_row();
    kvb_diff d = {0};
    const float bad[3] = {1, -0.5f, 2.01f}, good[3] = {1, -0.5f, 2};
    kvb_diff_row(&d, &e, 3, &plain, 1, 0, KVB_F32, good, NULL);
    kvb_diff_row(&d, &e, 3, &plain, 1, 0, KVB_F32, bad, NULL);
    e.event = 8;
    kvb_diff_row(&d, &e, 3, &plain, 1, 0, KVB_F32, good, NULL);
    assert_place(&d, 2);
    assert_int_equal(d.rows, 3);
}

TEST(the_first_failure_and_its_call_are_counted)
{
    kvb_expect e = expect_row();
    kvb_diff d = {0};
    const float good[3] = {1, -0.5f, 2}, bad[3] = {1.01f, -0.5f, 2.01f}, worse[3] = {1, -0.6f, 2};
    const float *const rows[] = {good, good, bad, bad, worse}; /* two rows of each call; the last alone */
    for (uint32_t i = 0; i < 5; i++) {
        e.event = i / 2;
        e.head = 64 + i;
        e.query = i;
        kvb_diff_row(&d, &e, 3, &plain, 1, 0, KVB_F32, rows[i], NULL);
    }
    for (int round = 0; round < 2; round++) {
        assert_true(d.first.event == 1 && d.first.query == 2 && d.first.head == 66 && d.first.channel == 0);
        assert_true(d.first.got == (double)1.01f && d.worst.event == 2 && d.worst.channel == 1);
        assert_true(d.elements == 15 && d.failed == 5 && d.first_elements == 6 && d.first_failed == 4);
        assert_true(d.first_heads[1] == 12 && d.first_queries[0] == 12);
        d.again = true;
        kvb_diff_row(&d, &e, 3, &plain, 1, 0, KVB_F32, bad, NULL);
    }
}

TEST(not_a_number_is_infinity)
{
    kvb_expect e = expect_row();
    const float lse = 3;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        float out[3] = {1, -0.5f, bad[i]};
        kvb_diff d = diff_of(&e, KVB_F32, out, &lse);
        assert_true(isinf(d.rho) && isinf(d.rho_worst) && isinf(d.max_abs));
        assert_int_equal(d.not_finite, 1);
        assert_place(&d, 2);
        float ok[3] = {1, -0.5f, 2};
        d = diff_of(&e, KVB_F32, ok, &bad[i]);
        assert_true(isinf(d.rho) && isinf(d.rho_lse));
        assert_int_equal(d.not_finite, 1);
        assert_place(&d, 3);
    }
    float unwritten[3];
    memset(unwritten, 0xff, sizeof unwritten);
    kvb_diff d = diff_of(&e, KVB_F32, unwritten, &lse);
    assert_true(isinf(d.rho));
    assert_int_equal(d.not_finite, 3);
    assert_place(&d, 0); /* the first */
}

TEST(sixteen_bit_outputs)
{
    kvb_expect e = expect_row();
    kvb_bound_term near[3];
    memcpy(near, terms, sizeof near);
    near[1].o = -0.5 + 0x1p-13; /* rounds to -0.5 in f16 and bf16 */
    e.terms = near;
    uint16_t f16[3] = {kvb_codec_code(KVB_F16, 1), kvb_codec_code(KVB_F16, -0.5f), kvb_codec_code(KVB_F16, 2)};
    uint16_t bf16[3] = {kvb_codec_code(KVB_BF16, 1), kvb_codec_code(KVB_BF16, -0.5f), kvb_codec_code(KVB_BF16, 2)};
    const float f32[3] = {1, -0.5f, 2};
    kvb_diff d = diff_of(&e, KVB_F16, f16, NULL);
    assert_true(d.rho > 0.1 && d.rho < 1 && d.max_abs == 0x1p-13);
    d = diff_of(&e, KVB_BF16, bf16, NULL);
    assert_true(d.rho > 0.01 && d.rho < 0.2 && d.max_abs == 0x1p-13);
    d = diff_of(&e, KVB_F32, f32, NULL);
    assert_true(d.rho > 1); /* f32 must be closer */
    f16[0]++;               /* one spacing too far */
    assert_true(diff_of(&e, KVB_F16, f16, NULL).rho > 1);
    bf16[2]++;
    assert_true(diff_of(&e, KVB_BF16, bf16, NULL).rho > 1);
}

/* One exact element, o, and an output type that cannot hold it: allowed bits, and wrong ones. */
TEST(ends_of_the_output_type)
{
    static const struct {
        kvb_elem elem;
        double o;
        uint32_t good, bad[2]; /* bits */
    } cases[] = {
        {KVB_F16, 70000, 0x7c00, {0xfc00, 0x7bff}},   /* infinity, not of the other sign, nor the largest number */
        {KVB_F16, -70000, 0xfc00, {0x7c00, 0x7e00}},  /* nor NaN */
        {KVB_F16, 60000, 0x7b53, {0x7c00, 0x7b55}},   /* infinity only beyond the type's range */
        {KVB_F16, 3e-6, 50, {0, 52}},                 /* subnormals are not flushed, and their steps are 2^-24 */
        {KVB_F16, 2e-8, 0, {2, 0x8002}},              /* less than half of the smallest */
        {KVB_BF16, 3.4e38, 0x7f80, {0xff80, 0x7f7e}}, /* the largest one is 3.39e38 */
        {KVB_BF16, 1e-40, 0x0001, {0x0003, 0x0080}},
        {KVB_F32, 3e38, 0x7f61b1e6, {0x7f800000, 0x7f61b2e6}},
        {KVB_F32, 1e-40, 0x000116c2, {0, 0x000117c2}},
    };
    const kvb_arithmetic exact = {.accumulator = KVB_F32};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int way = 0; way < 3; way++) {
            const kvb_bound_term term = {.o = cases[i].o, .v_max = fabs(cases[i].o)};
            const kvb_expect e = {.lse = 1, .row = {.visible = 1, .weight_sum = 1, .v_mix = 1}, .terms = &term};
            uint32_t bits = way ? cases[i].bad[way - 1] : cases[i].good;
            kvb_diff d = {0};
            kvb_diff_row(&d, &e, 1, &exact, 1, 0, cases[i].elem, &bits, NULL);
            if (way ? !(d.rho > 1) : !(d.rho <= 1))
                fail_msg("%g as %x: rho %g", cases[i].o, bits, d.rho);
        }
}

/* A query that sees nothing must get exactly 0 and -infinity. */
TEST(empty_row)
{
    static const kvb_bound_term none[3];
    kvb_expect e = {.lse = -INFINITY, .row = {.logit_max = -INFINITY}, .terms = none};
    float out[3] = {0, -0.0f, 0}, lse = -INFINITY;
    assert_true(diff_of(&e, KVB_F32, out, &lse).rho == 0);
    lse = NAN;
    assert_true(isinf(diff_of(&e, KVB_F32, out, &lse).rho));
    lse = INFINITY;
    assert_true(isinf(diff_of(&e, KVB_F32, out, &lse).rho));
    lse = -1e30f;
    assert_true(isinf(diff_of(&e, KVB_F32, out, &lse).rho));
    lse = -INFINITY;
    out[1] = 1e-45f;
    assert_true(isinf(diff_of(&e, KVB_F32, out, &lse).rho));
}

/* Three elements of a scan; the second is off by twice its bound. */
TEST(elements_of_a_scan_by_hand)
{
    const kvb_recurrence_want want[3] = {{1, 0.5, 1}, {2, 0.25, 0.5}, {-3, 1, 2}};
    const float got[3] = {1.25f, 2.5f, -3}, zeros[3] = {0, 0, 0}, last[3] = {1, 2, -1};
    const kvb_diff_place first = {.event = 4, .layer = 2, .query = 9, .head = 64, .channel = 16, .part = 1, .row = 5};
    kvb_diff d = {0};
    kvb_diff_take(&d, &first, want, 3, KVB_F32, got);
    assert_true(d.rho == 2 && d.rho_worst == 1 && d.max_abs == 0.5);
    assert_true(d.sum_error2 == 0.0625 + 0.25 && d.sum_exact2 == 1 + 4 + 9 && d.rel_l2 == sqrt(0.3125 / 14));
    assert_true(d.elements == 3 && d.failed == 1 && d.first_elements == 3 && d.first_failed == 1 && d.rows == 0);
    assert_true(d.first.channel == 17 && d.worst.channel == 17 && d.worst.row == 5 && d.worst.part == 1);
    assert_true(d.worst.got == 2.5 && d.worst.want == 2 && d.worst.bound == 0.25);
    assert_true(d.first_heads[0] == 0 && d.first_heads[1] == 1 && d.first_queries[0] == 1 << 9);
    kvb_diff_take(&d, &first, want, 3, KVB_F32, last); /* the third is off by twice its bound, and by its worst */
    assert_true(d.rho == 2 && d.rho_worst == 1 && d.max_abs == 2 && d.worst.channel == 17 && d.failed == 2);
    /* NaN exceeds an infinite bound, too */
    const kvb_recurrence_want endless = {1, INFINITY, INFINITY};
    const float no_number = NAN;
    d = (kvb_diff){0};
    kvb_diff_take(&d, &first, &endless, 1, KVB_F32, &no_number);
    assert_true(d.rho == INFINITY && d.failed == 1 && d.not_finite == 1);
    /* an error equal to the bound passes */
    const float ends[3] = {1.5f, 2.25f, -2};
    d = (kvb_diff){0};
    kvb_diff_take(&d, &first, want, 3, KVB_F32, ends);
    assert_true(d.rho == 1 && d.failed == 0 && !d.any_failed);
    /* exact zeros have no error, relative or not */
    const kvb_recurrence_want none[3] = {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}};
    const kvb_bound_term nothing[3] = {{.v_max = 1}};
    d = (kvb_diff){0};
    kvb_diff_take(&d, &first, none, 3, KVB_F32, zeros);
    assert_true(d.rho == 0 && d.rho_worst == 0 && d.rel_l2 == 0 && d.failed == 0);
    kvb_expect e = expect_row();
    e.terms = nothing;
    d = diff_of(&e, KVB_F32, zeros, NULL);
    assert_true(d.rho == 0 && d.rel_l2 == 0);
    kvb_diff_take(&d, &first, none, 3, KVB_F32, got); /* with a bound of 0 every error is too large */
    assert_true(d.rho == INFINITY && d.rho_worst == INFINITY && d.failed == 3 && d.rel_l2 == INFINITY);
}

/* If outputs are right, the log-sum-exp's own bounds decide. */
TEST(a_log_sum_exp_by_hand)
{
    const kvb_expect e = expect_row();
    const double bound = kvb_bound_lse(&plain, KVB_BOUND_STATISTICAL, &e.row, 3, 1, 0),
                 worst = kvb_bound_lse(&plain, KVB_BOUND_WORST, &e.row, 3, 1, 0);
    const float out[3] = {1, -0.5f, 2}, lse = (float)(3 + bound / 2);
    kvb_diff d = diff_of(&e, KVB_F32, out, &lse);
    assert_true(d.rho == ((double)lse - 3) / bound && d.rho_lse == d.rho && d.rho_worst == ((double)lse - 3) / worst);
    assert_true(d.elements == 4 && d.failed == 0 && d.worst.bound == bound && d.worst.want == 3);
}

/* Queries beyond KVB_DIFF_QUERIES are counted, but their numbers are not kept. */
TEST(last_query_that_is_told_apart)
{
    kvb_expect e = expect_row();
    const float bad[3] = {1.01f, -0.5f, 2};
    for (uint32_t query = KVB_DIFF_QUERIES - 1; query <= KVB_DIFF_QUERIES; query++) {
        e.query = query;
        e.head = 63;
        kvb_diff d = diff_of(&e, KVB_F32, bad, NULL);
        assert_true(d.first_failed == 1 && d.first_heads[0] == UINT64_C(1) << 63 && d.first_heads[1] == 0);
        for (uint32_t w = 0; w < KVB_DIFF_QUERIES / 64; w++)
            assert_true(d.first_queries[w] ==
                        (query / 64 == w && query < KVB_DIFF_QUERIES ? UINT64_C(1) << query % 64 : 0));
    }
}

/* Shows: other projects' rules pass errors within their limits, and refuse larger ones and all that is not finite. */

static const kvb_tolerance nmse = {KVB_TOLERANCE_NMSE, 1e-2, 0, "here"};
static const kvb_tolerance close_to = {KVB_TOLERANCE_CLOSE, 0.5, 0.25, "here"};

static double share(const kvb_tolerance *rule, const float *got, const double *exact, uint32_t n)
{
    kvb_closeness c = {0};
    kvb_closeness_row(&c, rule, KVB_F32, got, n, exact, 1);
    return kvb_closeness_share(&c, rule);
}

TEST(squares_are_of_all_outputs)
{
    const double exact[] = {3, -4, 0, 5};
    assert_true(share(&nmse, (const float[]){3, -4, 0, 5}, exact, 4) == 0);
    assert_true(fabs(share(&nmse, (const float[]){3, -4.5f, 0.5f, 5}, exact, 4) - 0.5 / 50 / 1e-2) < 1e-12); /* just */
    assert_true(share(&nmse, (const float[]){3, -4.5f, 0.51f, 5}, exact, 4) > 1);
}

TEST(an_output_counts_for_itself)
{
    const double exact[] = {2, -2, 0};
    assert_true(share(&close_to, (const float[]){3, -2, 0}, exact, 3) == 1);
    assert_true(share(&close_to, (const float[]){3, -2, -0.51f}, exact, 3) > 1);
    assert_true(share(&close_to, (const float[]){2, -1.5f, 0}, exact, 3) == 0.5);
}

TEST(what_is_not_finite)
{
    const kvb_tolerance *const rules[] = {&nmse, &close_to};
    for (int i = 0; i < 2; i++) {
        assert_true(share(rules[i], (const float[]){NAN, 1}, (const double[]){1, 1}, 2) == INFINITY);
        assert_true(share(rules[i], (const float[]){1, -INFINITY}, (const double[]){1, 1}, 2) == INFINITY);
        assert_true(share(rules[i], (const float[]){NAN, 1}, (const double[]){INFINITY, 1}, 2) == 0); /* exact */
        assert_true(share(rules[i], NULL, NULL, 0) == 0);
    }
    assert_true(share(&nmse, (const float[]){0, 1e-9f}, (const double[]){0, 0}, 2) == INFINITY);
    assert_true(share(&nmse, (const float[]){0, 0}, (const double[]){0, 0}, 2) == 0);
}

TEST(rows_of_16_bits_and_steps)
{
    const uint16_t got[] = {0x3c00, 0xc000}; /* 1, -2 */
    const double exact[] = {1, 9, -2.5, 9};
    kvb_closeness c = {0};
    kvb_closeness_row(&c, &nmse, KVB_F16, got, 2, exact, 2);
    assert_int_equal(c.elements, 2);
    assert_true(c.error2 == 0.25 && c.exact2 == 7.25);
    kvb_closeness both = c;
    kvb_closeness_add(&both, &c);
    assert_true(both.error2 == 0.5 && both.elements == 4);
    assert_true(kvb_closeness_share(&both, &nmse) == kvb_closeness_share(&c, &nmse));
}

/*
 * Shows: an order of additions is repeated to the bit with the lanes, folds, multiply-adds, tiles and parts that it
 * declares, on numbers that give another sum in any other order. Tiles must be the visible cells, each once.
 */

#define TINY 0x1p-24 /* 1 + TINY is 1, TINY + TINY + 1 is more */

enum { CELLS = 3 };
static const kvb_format f32 = {.name = "f32", .elem = KVB_F32};

/* One query of one head over cells with rows k [cells][dim] and v [cells]. */
static int row_exact(const kvb_order *order, uint32_t cells, uint32_t dim, const float *q, const double *k,
                     const double *v, float *out, float *lse, char *why, size_t why_bytes)
{
    const kvb_attend call = {.problem = {.n_tok = 1,
                                         .n_heads = 1,
                                         .n_kv_heads = 1,
                                         .k_dim = dim,
                                         .v_dim = 1,
                                         .n_cells = cells,
                                         .scale = 1,
                                         .k_format = &f32,
                                         .v_format = &f32},
                             .q = q};
    const kvb_token_run run = {0, cells};
    const kvb_exact_rows rows = {
        .k = k, .v = v, .k_width = dim, .v_width = 1, .cells = cells, .runs = &run, .n_runs = 1};
    return kvb_exact_row(&call, order, &rows, 0, 0, out, lse, why, why_bytes);
}

/* The lse of one cell: the dot product of its row k and the query q. */
static float dot(const kvb_order *order, const float *q, const double *k, uint32_t dim)
{
    float out, lse;
    char why[128];
    assert_int_equal(row_exact(order, 1, dim, q, k, k, &out, &lse, why, sizeof why), 0);
    return lse;
}

TEST(lanes_add_as_declared)
{
    static const float ones[] = {1, 1, 1, 1};
    static const double ascending[] = {TINY, TINY, 1, 0}, apart[] = {TINY, 1, TINY, 0};
    const kvb_order one = {.tile.dot = {.n = 1}}, two = {.tile.dot = {2, {1}}}, far = {.tile.dot = {4, {2, 1}}},
                    near = {.tile.dot = {4, {1, 2}}};
    assert_true(dot(&one, ones, ascending, 4) == 1 + 0x1p-23f);
    assert_true(dot(&two, ones, ascending, 4) == 1);        /* TINY + 1, and TINY */
    assert_true(dot(&far, ones, apart, 4) == 1 + 0x1p-23f); /* TINY + TINY first */
    assert_true(dot(&near, ones, apart, 4) == 1);
}

TEST(products_round_unless_fused)
{
    static const float q[] = {-1, 1 + 0x1p-12f};
    static const double k[] = {1 + 0x1p-11, 1 + 0x1p-12};
    const kvb_order rounded = {.tile.dot = {.n = 1}}, fused = {.fused = true, .tile.dot = {.n = 1}};
    assert_true(dot(&rounded, q, k, 2) == 0);
    assert_true(dot(&fused, q, k, 2) == 0x1p-24f);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Cells, each a tile, up to KVB_CELL_NONE. Tile number `part` begins a part; 0: none does. */
static struct {
    uint32_t cells[5], part;
} plan;

static void tiles(const kvb_attend *call, uint32_t row, kvb_tile_take *take, void *ctx)
{
    (void)call, (void)row;
    for (uint32_t i = 0; plan.cells[i] != KVB_CELL_NONE; i++)
        take(ctx, &(kvb_order_tile){.cells = 1, .dot.n = 1, .part = plan.part && i == plan.part}, &plan.cells[i]);
}

static float power(float x)
{
    return exp2f(x);
}

/* The sum with equal weights and V of 1, TINY, TINY; -1: refused. */
static float sum(kvb_softmax softmax, const uint32_t cells[5], uint32_t part, char *why, size_t why_bytes)
{
    static const float q[] = {0};
    static const double k[CELLS] = {0}, v[CELLS] = {1, TINY, TINY};
    const kvb_order order = {.softmax = softmax, .exp = power, .tiles = tiles};
    float out, lse;
    memcpy(plan.cells, cells, sizeof plan.cells);
    plan.part = part;
    const int error = row_exact(&order, CELLS, 1, q, k, v, &out, &lse, why, why_bytes);
    assert_true(!error || error == -EILSEQ);
    return error ? -1 : out;
}

#define NONE KVB_CELL_NONE
TEST(cells_add_as_declared)
{
    static const uint32_t down[] = {0, 1, 2, NONE, NONE}, up[] = {2, 1, 0, NONE, NONE};
    const float third = (float)(1.0 / 3), most = 1 + 0x1p-23f;
    char why[128];
    for (int softmax = KVB_SOFTMAX_TWO_PASSES; softmax <= KVB_SOFTMAX_ONLINE; softmax++) {
        assert_true(sum((kvb_softmax)softmax, down, 0, why, sizeof why) == 1 / 3.0f);
        assert_true(sum((kvb_softmax)softmax, up, 0, why, sizeof why) == most / 3.0f);
    }
    assert_true(sum(KVB_SOFTMAX_POWERS, down, 0, why, sizeof why) == third);
    assert_true(sum(KVB_SOFTMAX_POWERS, up, 0, why, sizeof why) == most * third);
    assert_true(sum(KVB_SOFTMAX_POWERS, down, 1, why, sizeof why) == most * third); /* 1, and TINY + TINY */
}

TEST(other_cells_are_refused)
{
    static const struct {
        uint32_t cells[5];
        const char *why;
    } wrong[] = {
        {{0, 1, NONE, NONE, NONE}, "its order does not meet the cell of row 2"},
        {{0, 1, 2, 1, NONE}, "its order meets, unseen or again, cell 1"},
        {{0, 1, 2, 3, NONE}, "its order meets, unseen or again, cell 3"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char why[128] = "";
        assert_true(sum(KVB_SOFTMAX_ONLINE, wrong[i].cells, 0, why, sizeof why) == -1);
        assert_string_equal(why, wrong[i].why);
    }
}
