/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: a kernel that rounds q and its weights to the steps that it declares stays within the bound, is near it where
 * the roundings add up, and passes it with steps twice as coarse. What sums of f16 declare widens it as bound.h says.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/attention.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"

enum { MAX_DIM = 128, MAX_CELLS = 512 };

/* One query; V of one channel. An element of K is code + zero, zero that of its row. */
typedef struct problem {
    uint32_t n, dim;
    double scale, step; /* of the weights, for the terms' sums */
    double q[MAX_DIM];
    double code[MAX_CELLS * MAX_DIM], zero[MAX_CELLS];
    double k[MAX_CELLS * MAX_DIM], k_size[MAX_CELLS * MAX_DIM], k_sum[MAX_CELLS], v[MAX_CELLS];
    kvb_bound_term term;
    kvb_expect expect;
} problem;

/* From codes and zeros; `sized`: with |code| + |zero| for magnitudes, else with |k|. */
static void problem_solve(problem *p, bool sized)
{
    double *scratch = malloc(kvb_attention_scratch(p->n, 1) * sizeof *scratch);
    kvb_token_run all = {0, p->n};
    kvb_attention a = {.q = p->q,
                       .k = p->k,
                       .k_size = p->k_size,
                       .k_sum = p->k_sum,
                       .v = p->v,
                       .v_mix = 1,
                       .k_dim = p->dim,
                       .v_dim = 1,
                       .v_row = 1,
                       .scale = p->scale,
                       .step = p->step,
                       .runs = &all,
                       .n_runs = 1,
                       .visible = p->n};
    for (uint32_t i = 0; i < p->n; i++) {
        p->k_sum[i] = 0;
        for (uint32_t at = i * p->dim; at < (i + 1) * p->dim; at++) {
            p->k[at] = p->code[at] + p->zero[i];
            p->k_size[at] = sized ? fabs(p->code[at]) + fabs(p->zero[i]) : fabs(p->k[at]);
            p->k_sum[i] += p->k_size[at];
        }
    }
    p->expect = (kvb_expect){.visible = p->n, .terms = &p->term};
    kvb_attention_solve(&a, scratch, &p->expect.row, &p->expect.lse, &p->term);
    free(scratch);
}

static double step_round(double x, double step)
{
    return step > 0 ? round(x / step) * step : x;
}

/*
 * A kernel that rounds nothing else: q to q_step of its largest, the weights to p_step of theirs. Zeros meet q itself
 * or what it was rounded to. rho of what it makes when it declares the steps declared[2].
 */
static kvb_diff attend(const problem *p, double q_step, double p_step, bool zero_meets_q, const double *declared)
{
    kvb_arithmetic arithmetic = {.accumulator = KVB_F32, .query.step = declared[0], .sums.step = declared[1]};
    double s[MAX_CELLS], q_largest = 0, max = -INFINITY, sum = 0, o = 0;
    kvb_diff diff = {0};
    for (uint32_t d = 0; d < p->dim; d++)
        q_largest = fmax(q_largest, fabs(p->q[d]));
    for (uint32_t i = 0; i < p->n; i++) {
        double dot = 0;
        for (uint32_t d = 0; d < p->dim; d++) {
            double rounded = step_round(p->q[d], q_step * q_largest);
            dot += rounded * p->code[i * p->dim + d] + (zero_meets_q ? p->q[d] : rounded) * p->zero[i];
        }
        s[i] = dot * p->scale;
        max = fmax(max, s[i]);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        double w = exp(s[i] - max);
        sum += w;
        o += step_round(w, p_step) * p->v[i]; /* the largest weight is 1 */
    }
    float out = (float)(o / sum), lse = (float)(max + log(sum));
    kvb_diff_row(&diff, &p->expect, 1, &arithmetic, p->scale, 0, KVB_F32, &out, &lse);
    return diff;
}

#define Q_STEP (1.0 / 127)
#define P_STEP (1.0 / 16383)
static const double q_only[2] = {Q_STEP, 0}, p_only[2] = {0, P_STEP}, both[2] = {Q_STEP, P_STEP};

/*
 * Every channel of q lies `residue` steps above an even multiple, so that all roundings point one way, as do two keys,
 * one to each side; half of the channels are negative, so that the logits are small.
 */
static void q_aligned(problem *p, double residue)
{
    *p = (problem){.n = 2, .dim = 64, .scale = 0.125};
    for (uint32_t d = 0; d < p->dim; d++) {
        double steps = (d % 2 ? -20.0 : 20.0) + residue;
        p->q[d] = d < 2 ? (d ? -1.0 : 1.0) : steps / 127;
        p->code[d] = 0.1;
        p->code[p->dim + d] = -0.1;
    }
    p->v[0] = 1;
    p->v[1] = -1;
    problem_solve(p, true);
}

/* Short sums of f16, by hand. */
static void short_sums_of_f16(void **state)
{
    (void)state;
    const double u = 0x1p-24;
    /* dot products of 3 roundings to f16, of which one is q's; floors of 1/1000: of 100 cells 70 add up, over Z = 2 */
    kvb_arithmetic halves = {.query.rounding = KVB_F16, .scores = {.rounding = KVB_F16, .chain = 2, .floor = 0.001}};
    kvb_bound_row loud = {.visible = 100, .weight_sum = 2, .v_mix = 1, .a_max = 6, .a_mean = 3, .q_largest = 8};
    kvb_bound_term by_a = {.spread = 2, .spread_a = 7, .v_max = 1e9};
    double two = 2 * 0x1p-11 / (1 - 2 * 0x1p-11), three = two + 0x1p-11 + two * 0x1p-11, floor_of = 0.5 * 0.008;
    double d_max = 0.5 * three * 6 + floor_of, d_mean = 0.5 * three * 3 + floor_of;
    double expected = expm1(d_max) / d_max * exp(d_mean) * (0.5 * three * 7 + floor_of * 2) * (1 + 3 * u);
    assert_true(fabs(kvb_bound_output(&halves, KVB_BOUND_STATISTICAL, &loud, &by_a, -0.5, 0, KVB_F32) - expected) <
                1e-12);
    kvb_arithmetic short_sums = {.sums = {.rounding = KVB_F16, .chain = 2, .floor = 0.001}};
    kvb_bound_row plain_row = {.visible = 100, .weight_sum = 2, .v_mix = 1};
    kvb_bound_term heavy = {.mass = 3, .v_max = 4};
    expected = three * 3 * (1 + 3 * u) + 100 * 0x1p-25 / 2 * 4 + 70 * 0.001 / 2;
    assert_true(fabs(kvb_bound_output(&short_sums, KVB_BOUND_STATISTICAL, &plain_row, &heavy, 1, 0, KVB_F32) -
                     expected) < 1e-12);
    expected += 30 * 0.001 / 2;
    assert_true(fabs(kvb_bound_output(&short_sums, KVB_BOUND_WORST, &plain_row, &heavy, 1, 0, KVB_F32) - expected) <
                1e-12);
}

static void rounding_q(void **state)
{
    (void)state;
    problem *p = malloc(sizeof *p);
    q_aligned(p, 0.499);
    kvb_diff diff = attend(p, Q_STEP, 0, false, q_only);
    print_message("# q, residue 0.499: rho %.3g, worst %.3g\n", diff.rho, diff.rho_worst);
    assert_true(diff.rho <= 1 && diff.rho > 0.8);
    assert_true(diff.rho_worst <= 1 && diff.rho_worst > 0.8);
    q_aligned(p, 0.7);
    diff = attend(p, Q_STEP, 0, false, q_only);
    kvb_diff coarse = attend(p, 2 * Q_STEP, 0, false, q_only);
    print_message("# q, residue 0.7: rho %.3g, steps twice as coarse %.3g\n", diff.rho, coarse.rho);
    assert_true(diff.rho <= 0.8 && coarse.rho > 1.2);
    free(p);
}

/* Zeros that meet q itself leave code's error alone, which k does not show: here k is 0 and its codes are not. */
static void zeros_may_meet_q_itself(void **state)
{
    (void)state;
    problem *p = malloc(sizeof *p);
    q_aligned(p, 0.45);
    for (uint32_t i = 0; i < p->n; i++)
        p->zero[i] = -p->code[i * p->dim];
    problem_solve(p, true);
    double rho = attend(p, Q_STEP, 0, true, q_only).rho;
    assert_true(rho <= 1 && rho > 0.3);
    problem_solve(p, false);
    assert_true(attend(p, Q_STEP, 0, true, q_only).rho > 1);
    free(p);
}

/* A cell of weight 1 and others whose weights lie `residue` steps above an even multiple; all of V is 1. */
static void p_aligned(problem *p, uint32_t n, double residue)
{
    *p = (problem){.n = n, .dim = 1, .scale = 1, .q = {1}};
    for (uint32_t i = 0; i < n; i++) {
        p->code[i] = i ? log((200 + 2 * (i % 50) + residue) * P_STEP) : 0;
        p->v[i] = 1;
    }
    problem_solve(p, true);
}

static void rounding_weights(void **state)
{
    (void)state;
    problem *p = malloc(sizeof *p);
    for (uint32_t n = 40; n <= 400; n += 360) {
        p_aligned(p, n, 0.499);
        kvb_diff diff = attend(p, 0, P_STEP, false, p_only);
        print_message("# weights, %u cells: rho %.3g, worst %.3g\n", n, diff.rho, diff.rho_worst);
        assert_true(diff.rho_worst <= 1 && diff.rho_worst > 0.8);
        assert_true(n > 49 || diff.rho <= 1);
        /* 400 that all go one way are not independent: 7 * 20 of them are too many */
        assert_true(n < 49 || (diff.rho > 2 && diff.rho < 3));
        assert_true(diff.rho_lse <= 1); /* the sum of the weights is not rounded */
    }
    p_aligned(p, 40, 0.7);
    double fine = attend(p, 0, P_STEP, false, p_only).rho, coarse = attend(p, 0, 2 * P_STEP, false, p_only).rho;
    print_message("# weights, residue 0.7: rho %.3g, steps twice as coarse %.3g\n", fine, coarse);
    assert_true(fine <= 0.8 && coarse > 1.2);
    free(p);
}

/* 40 weights of a fifth of a step all become 0: the bound is what they come to, at worst to a hair. Without the terms'
 * sums each might be off by half a step; sums for a step half as wide are taken twice. */
static void no_weight_errs_by_more_than_itself(void **state)
{
    (void)state;
    problem *p = malloc(sizeof *p);
    *p = (problem){.n = 41, .dim = 1, .scale = 1, .q = {1}, .step = P_STEP};
    for (uint32_t i = 0; i < p->n; i++) {
        p->code[i] = i ? log(0.2 * P_STEP) : 0;
        p->v[i] = i ? 1 : 0; /* what is left is all of the output */
    }
    problem_solve(p, true);
    kvb_diff diff = attend(p, 0, P_STEP, false, p_only);
    print_message("# 40 weights of 0.2 steps: rho %.3g, worst %.3g\n", diff.rho, diff.rho_worst);
    assert_true(diff.rho <= 1 && diff.rho_worst <= 1 && diff.rho_worst > 0.99);
    p->step = 0;
    problem_solve(p, true);
    assert_true(attend(p, 0, P_STEP, false, p_only).rho_worst < 0.41);
    p->step = P_STEP / 2;
    problem_solve(p, true);
    double half = attend(p, 0, P_STEP, false, p_only).rho_worst;
    assert_true(half < 0.51 && half > 0.49);
    free(p);
}

/* Beside a sink all other weights become 0 together; where V lies to one side, so does all that is lost. */
static void what_a_sink_drowns_adds_up(void **state)
{
    (void)state;
    problem *p = malloc(sizeof *p);
    uint64_t seed = 13;
    for (int lean = 0; lean < 2; lean++) {
        *p = (problem){.n = MAX_CELLS, .dim = 1, .scale = 1, .q = {1}, .step = P_STEP};
        for (uint32_t i = 0; i < p->n; i++) {
            p->code[i] = i ? log(0.3 * P_STEP) + 0.3 * hand_gauss(&seed) : 0;
            p->v[i] = (i ? lean : 0) + hand_gauss(&seed);
        }
        problem_solve(p, true);
        double rho = attend(p, 0, P_STEP, false, p_only).rho, lost = p->term.lost;
        p->term.lost = 0;
        double without = attend(p, 0, P_STEP, false, p_only).rho;
        print_message("# beside a sink, V with a mean of %d: rho %.3g; without what is lost %.3g\n", lean, rho,
                      without);
        assert_true(rho <= 1 && lost > 0);
        assert_true(!lean || without > 1.5);
    }
    free(p);
}

/* An output of 0 for all that is seen: under steps of 1/127 the bound leaves no room for it. */
static void zero_is_no_answer(void **state)
{
    (void)state;
    problem *p = malloc(sizeof *p);
    const kvb_arithmetic steps = {.accumulator = KVB_F32, .sums.step = 1.0 / 127};
    uint64_t seed = 12;
    double least = INFINITY;
    for (int round = 0; round < 20; round++) {
        *p = (problem){.n = MAX_CELLS, .dim = MAX_DIM, .scale = 0.0884, .step = steps.sums.step};
        for (uint32_t d = 0; d < p->dim; d++)
            p->q[d] = hand_gauss(&seed);
        for (uint32_t i = 0; i < p->n * p->dim; i++)
            p->code[i] = hand_gauss(&seed);
        kvb_diff diff = {0};
        for (int channel = 0; channel < 16; channel++) { /* a row has many: the worst of them counts */
            for (uint32_t i = 0; i < p->n; i++)
                p->v[i] = hand_gauss(&seed);
            problem_solve(p, true);
            float out = 0, lse = (float)p->expect.lse;
            kvb_diff_row(&diff, &p->expect, 1, &steps, p->scale, 0, KVB_F32, &out, &lse);
        }
        least = fmin(least, diff.rho);
    }
    print_message("# all-zero outputs: rho at least %.3g\n", least);
    assert_true(least > 1);
    free(p);
}

/* Rows as they come: held, not vacuous, and what is not declared is seen. */
static void gaussian_rows(void **state)
{
    (void)state;
    problem *p = malloc(sizeof *p);
    uint64_t seed = 11;
    double largest = 0, undeclared = INFINITY;
    for (int round = 0; round < 60; round++) {
        *p = (problem){.n = round % 3 == 0   ? 2
                            : round % 3 == 1 ? 50
                                             : MAX_CELLS,
                       .dim = MAX_DIM,
                       .scale = 0.0884,
                       .step = P_STEP};
        for (uint32_t d = 0; d < p->dim; d++)
            p->q[d] = hand_gauss(&seed);
        for (uint32_t i = 0; i < p->n; i++) {
            p->v[i] = hand_gauss(&seed);
            for (uint32_t d = 0; d < p->dim; d++)
                p->code[i * p->dim + d] = hand_gauss(&seed);
        }
        problem_solve(p, true);
        kvb_diff diff = attend(p, Q_STEP, P_STEP, false, both);
        if (!(diff.rho <= 1))
            fail_msg("round %d: rho %g", round, diff.rho);
        largest = fmax(largest, diff.rho);
        undeclared = fmin(undeclared, attend(p, Q_STEP, P_STEP, false, p_only).rho);
    }
    print_message("# gaussian rows: rho at most %.3g; q not declared, at least %.3g\n", largest, undeclared);
    assert_true(largest > 0.03 && undeclared > 1);
    free(p);
}

/* What the oracle hands to an attention: the sums of the magnitudes that rows are read through. */
static void sums_are_of_sizes(void **state)
{
    (void)state;
    static const kvb_format *const formats[] = {&f32, &int8_asym};
    enum { DIM = 32, ROWS = 3 };
    float row[ROWS][DIM];
    const float *rows[ROWS];
    uint64_t seed = 4;
    char why[128];
    for (int i = 0; i < ROWS; i++) {
        rows[i] = row[i];
        for (int d = 0; d < DIM; d++)
            row[i][d] = (float)hand_gauss(&seed);
    }
    for (size_t f = 0; f < 2; f++) {
        kvb_storage store;
        kvb_stored side;
        kvb_attention attention = {0};
        assert_int_equal(kvb_storage_init(&store, formats[f], DIM, NULL, 1, 0, why, sizeof why), 0);
        assert_int_equal(kvb_stored_open(&side, &store, ROWS + 1), 0);
        double *scratch = malloc(kvb_stored_scratch(&store) * sizeof *scratch);
        kvb_stored_put(&side, &store, 1, rows, ROWS, scratch);
        kvb_attention_take_k(&attention, &store, &side, true);
        for (int i = 1; i <= ROWS; i++) {
            double sum = 0;
            for (int d = 0; d < DIM; d++)
                sum += f ? attention.k_size[i * DIM + d] : fabs(attention.k[i * DIM + d]);
            assert_true(fabs(attention.k_sum[i] - sum) < 1e-12);
        }
        kvb_attention_take_v(&attention, &store, &side, true);
        assert_int_equal(attention.v_offset, f);
        free(scratch);
        kvb_stored_close(&side);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_sums_of_f16),
        cmocka_unit_test(rounding_q),
        cmocka_unit_test(zeros_may_meet_q_itself),
        cmocka_unit_test(rounding_weights),
        cmocka_unit_test(no_weight_errs_by_more_than_itself),
        cmocka_unit_test(what_a_sink_drowns_adds_up),
        cmocka_unit_test(zero_is_no_answer),
        cmocka_unit_test(gaussian_rows),
        cmocka_unit_test(sums_are_of_sizes),
    };
    return cmocka_run_group_tests_name("oracle/bound_steps", tests, NULL, NULL);
}
