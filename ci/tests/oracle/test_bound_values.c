/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the bound is the formula at the head of oracle/bound.h, and holds for kernels that round to steps. */

#include "ci/tests/tests.h"
#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/attention.h"
#include "oracle/bound.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"

/*
 * Shows that the bound is the formula at the head of oracle/bound.h, to 9 digits: computed once more here, in long
 * double, over random values of each field of a declaration and of a row; and by hand if a field is at its limit.
 */

/* ---- the formula, written anew ----------------------------------------------------------------------------------- */

static long double roundoff(kvb_elem elem)
{
    return elem == KVB_F32    ? 0x1p-24L
           : elem == KVB_F16  ? 0x1p-11L
           : elem == KVB_BF16 ? 0x1p-8L
           : elem == KVB_E4M3 ? 0x1p-4L
           : elem == KVB_E5M2 ? 0x1p-3L
                              : 0x1p-2L;
}

static long double subnormal(kvb_elem elem)
{
    return elem == KVB_F32    ? 0x1p-149L
           : elem == KVB_F16  ? 0x1p-24L
           : elem == KVB_BF16 ? 0x1p-133L
           : elem == KVB_E4M3 ? 0x1p-9L
           : elem == KVB_E5M2 ? 0x1p-16L
                              : 0x1p-1L;
}

static long double gamma_of(long double m, long double u, bool worst)
{
    const long double most = m * u < 1 ? m * u / (1 - m * u) : INFINITY, likely = 7 * sqrtl(m) * u;
    return worst || most < likely ? most : likely;
}

typedef struct told {
    long double out, lse;
} told;

static told bound_told(const kvb_arithmetic *a, bool worst, const kvb_bound_row *row, const kvb_bound_term *t,
                       long double scale, long double softcap, kvb_elem out_elem, long double lse)
{
    const long double u = roundoff(a->accumulator), tau = fabsl(scale), n = row->visible, z = row->weight_sum;
    const long double u_q = a->query.rounding == KVB_F32 ? 0 : roundoff(a->query.rounding);
    const long double u_w = a->sums.rounding == KVB_F32 ? 0 : roundoff(a->sums.rounding);
    const long double one_gamma_d =
        (1 + gamma_of(a->dot_chain, u, worst)) * (1 + gamma_of(a->scores.chain, roundoff(a->scores.rounding), worst));
    const long double one_u_p = (1 + u_w) * (1 + gamma_of(a->sums.chain, roundoff(a->sums.rounding), worst));
    const long double gamma = gamma_of((long double)a->cell_chain + a->rescales, u, worst);
    const long double eta = -logl(1 - (a->exp_error + a->rescales * (a->exp_error + u)));
    const long double per_a = tau * (one_gamma_d * (1 + u_q) - 1),
                      per_q = tau * one_gamma_d * ((long double)a->query.step / 2 + a->query.floor), per_s = 2 * u,
                      flat = tau * a->scores.floor * row->q_largest + 4 * u * softcap + eta;
    const long double d_max = per_a * row->a_max + per_q * row->q_max + per_s * row->s_max + flat,
                      d_mean = per_a * row->a_mean + per_q * row->q_mean + per_s * row->s_mean + flat;
    const long double grows = d_max > 0 ? expm1l(d_max) / d_max : 1, raised = expl(d_max + d_mean);
    const long double mix = worst ? (long double)row->v_mix : 1, v_max = mix * t->v_max, o = fabsl((long double)t->o);
    const long double f = fminl(
        grows * expl(d_mean) * (per_a * t->spread_a + per_q * t->spread_q + per_s * t->spread_s + flat * t->spread),
        o + v_max);
    const long double m = fminl(raised * mix * t->mass, v_max);
    const long double h = (long double)a->sums.step / 2, h0 = row->step, some = worst ? n : fminl(n, 7 * sqrtl(n));
    const long double largest = fminl(row->p_max * raised, 1) * row->v_largest;
    const long double norm = worst || a->sums.step > h0 ? (long double)t->steps
                                                        : fminl(t->steps, t->lost + 7 * sqrtl((long double)t->steps2));
    const long double r = h == 0    ? 0
                          : h0 == 0 ? some * h * largest
                                    : fminl(n * h * largest, raised * norm * fmaxl(1, 2 * h / h0));
    const long double rounded =
        ((1 + gamma) * one_u_p - 1) * m + (1 + gamma) * r + gamma * (o + f); /* B_c without F, u_out and omega */
    const long double before = f + rounded / (1 - gamma);
    const long double omega = 2 * n * a->exp_floor * v_max / z +
                              (u_w > 0 ? n * v_max / z * subnormal(a->sums.rounding) / 2 : 0) +
                              (n * subnormal(a->accumulator) + some * a->sums.floor) / z + subnormal(out_elem);
    return (told){before + (roundoff(out_elem) + 2 * u) * (o + before) + omega,
                  grows * d_mean + gamma / (1 - gamma) + 2 * u * fabsl(lse) + 4 * u * logl(z) + n * a->exp_floor / z +
                      0x1p-149L};
}

/* ---- random values ----------------------------------------------------------------------------------------------- */

static uint64_t draw_seed = 11;

/* 0 once in four times, else between 1e-low and 1. */
static double small(int low)
{
    return hand_uniform(&draw_seed) < 0.25 ? 0 : pow(10, -low * hand_uniform(&draw_seed));
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)(hand_uniform(&draw_seed) * n);
}

/* Returns chains with a finite worst-case error. An infinite error would pass any output. */
static kvb_rounding rounding_draw(void)
{
    static const kvb_elem types[] = {KVB_F32, KVB_F16, KVB_BF16, KVB_E4M3, KVB_E5M2, KVB_E2M1};
    const kvb_elem type = below(2) ? KVB_F32 : types[below(6)];
    const uint32_t chain = below(3) ? 0 : below(9);
    return (kvb_rounding){.rounding = type,
                          .chain = (double)chain * (double)roundoff(type) < 0.9 ? chain : 0,
                          .step = below(2) ? 0 : small(4),
                          .floor = below(2) ? 0 : small(4)};
}

static void is_told(double got, long double want, const char *what, int draw)
{
    if (!(fabsl((long double)got - want) <= 1e-9L * want || (isinf(got) && isinf(want))))
        fail_msg("draw %d, %s: %.17g in place of %.17Lg", draw, what, got, want);
}

TEST(the_formula_is_told_twice)
{
    static const kvb_elem outs[] = {KVB_F32, KVB_F16, KVB_BF16};
    for (int i = 0; i < 20000; i++) {
        const kvb_arithmetic a = {.accumulator = below(2) ? KVB_F32 : KVB_F16,
                                  .dot_chain = below(300),
                                  .cell_chain = below(1200),
                                  .rescales = below(2) ? 0 : below(300),
                                  .exp_error = small(8) / 1e3,
                                  .exp_floor = small(6) / 10,
                                  .query = rounding_draw(),
                                  .scores = rounding_draw(),
                                  .sums = rounding_draw()};
        const double size = small(3); /* scale of logits and their errors */
        kvb_bound_row row = {.visible = 1 + below(200),
                             .a_mean = size * small(2),
                             .q_mean = size * small(2),
                             .s_mean = size * small(2),
                             .q_largest = small(2),
                             .p_max = hand_uniform(&draw_seed),
                             .v_largest = 1 + small(2),
                             .weight_sum = 1 + (below(2) ? 100 * small(3) : 0),
                             .v_mix = below(2) ? 1 : 8,
                             .step = below(2)   ? 0
                                     : below(2) ? a.sums.step
                                                : small(4)};
        row.a_max = row.a_mean + size * small(2);
        row.q_max = row.q_mean + size * small(2);
        row.s_max = row.s_mean + size * small(2);
        const double largest = small(2);
        const kvb_bound_term term = {.o = (hand_uniform(&draw_seed) - 0.5) * small(3),
                                     .spread = largest * small(3),
                                     .spread_a = largest * row.a_mean * small(1),
                                     .spread_q = largest * row.q_mean * small(1),
                                     .spread_s = largest * row.s_mean * small(1),
                                     .mass = largest * small(3),
                                     .v_max = below(8) ? largest : 1e6,
                                     .steps = small(3),
                                     .steps2 = small(4) / 100,
                                     .lost = small(3)};
        const double scale = (below(2) ? -1 : 1) * pow(10, -hand_uniform(&draw_seed)),
                     softcap = below(2) ? 0 : 50 * small(2), lse = 30 * (hand_uniform(&draw_seed) - 0.5);
        const kvb_elem out_elem = outs[below(3)];
        for (int worst = 0; worst < 2; worst++) {
            const kvb_bound_strength strength = worst ? KVB_BOUND_WORST : KVB_BOUND_STATISTICAL;
            const told want =
                bound_told(&a, worst, &row, &term, (long double)scale, (long double)softcap, out_elem, lse);
            const bool known = gamma_of((long double)a.cell_chain + a.rescales, roundoff(a.accumulator), worst) < 1;
            is_told(kvb_bound_output(&a, strength, &row, &term, scale, softcap, out_elem),
                    known ? want.out : (long double)INFINITY, "out", i);
            is_told(kvb_bound_lse(&a, strength, &row, lse, scale, softcap), known ? want.lse : (long double)INFINITY,
                    "lse", i);
        }
    }
}

/* ---- fields at their limits -------------------------------------------------------------------------------------- */

static void is_about(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * want))
        fail_msg("%.17g in place of %.17g", got, want);
}

TEST(limits_by_hand)
{
    /* An f16 accumulator has u = 1/2048. After 1024 roundings m u = 1/2 and gamma = 1 at worst: a quotient by 1 - gamma
     * has no bound. After 2048 gamma itself has none. */
    const kvb_bound_row nothing = {.v_mix = 1}, far = {.v_mix = 1, .q_largest = INFINITY, .v_largest = INFINITY};
    const kvb_bound_term zero = {0}, one = {.o = -1, .v_max = 2};
    const kvb_arithmetic plain = {.accumulator = KVB_F32}, lost = {.accumulator = KVB_F32, .exp_error = 1};
    for (uint32_t chain = 1024; chain <= 2048; chain *= 2) {
        const kvb_arithmetic wide = {.accumulator = KVB_F16, .cell_chain = chain};
        assert_true(kvb_bound_output(&wide, KVB_BOUND_WORST, &nothing, &zero, 1, 0, KVB_F32) == INFINITY);
        assert_true(kvb_bound_lse(&wide, KVB_BOUND_WORST, &nothing, 0, 1, 0) == INFINITY);
        assert_true(kvb_bound_output(&wide, KVB_BOUND_STATISTICAL, &nothing, &zero, 1, 0, KVB_F32) < 1e-40);
    }
    /* Nothing is visible: the bound is the smallest number of out's type. An infinity in another channel or in q
     * matters only if floors or steps are declared. */
    assert_true(kvb_bound_output(&plain, KVB_BOUND_WORST, &nothing, &zero, 1, 0, KVB_F32) == 0x1p-149);
    assert_true(kvb_bound_lse(&plain, KVB_BOUND_WORST, &nothing, -INFINITY, 1, 0) == 0);
    assert_true(kvb_bound_output(&plain, KVB_BOUND_WORST, &far, &zero, 1, 0, KVB_F32) == 0x1p-149);
    /* An exp with a relative error of 1 leaves weights unknown: the bound is |o| + V, and roundings. */
    is_about(kvb_bound_output(&lost, KVB_BOUND_WORST, &nothing, &one, 1, 0, KVB_F32), 3 + 12 * 0x1p-24);
}

TEST(types_by_hand)
{
    for (int elem = 0; elem < KVB_ELEM_COUNT; elem++) {
        const bool rounds = elem == KVB_F32 || elem == KVB_F16 || elem == KVB_BF16 || elem == KVB_E4M3 ||
                            elem == KVB_E5M2 || elem == KVB_E2M1;
        assert_true(kvb_unit_roundoff((kvb_elem)elem) == (rounds ? (double)roundoff((kvb_elem)elem) : 0));
        assert_true(kvb_smallest_subnormal((kvb_elem)elem) == (rounds ? (double)subnormal((kvb_elem)elem) : 0));
    }
    assert_true(kvb_unit_roundoff(KVB_ELEM_COUNT) == 0 && kvb_smallest_subnormal(KVB_ELEM_COUNT) == 0);
}

/*
 * Shows: a kernel that rounds q and its weights to its declared steps stays within the bound, comes near it if the
 * roundings add up, and exceeds it with steps twice as coarse.
 */

enum { MAX_DIM = 128, MAX_CELLS = 512 };

/* One query; V has one channel. An element of K is code + its row's zero. */
typedef struct problem {
    uint32_t n, dim;
    double scale, step; /* step: of the weights, for the terms' sums */
    double q[MAX_DIM];
    double code[MAX_CELLS * MAX_DIM], zero[MAX_CELLS];
    double k[MAX_CELLS * MAX_DIM], k_size[MAX_CELLS * MAX_DIM], k_sum[MAX_CELLS], v[MAX_CELLS];
    kvb_bound_term term;
    kvb_expect expect;
} problem;

/* Solves from codes and zeros. sized: magnitudes are |code| + |zero|, else |k|. */
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
 * Runs a kernel that rounds only q, to q_step of its largest, and weights, to p_step of the largest. Zeros are
 * multiplied with q itself or with rounded q. Judges it as if it declared the steps declared[2].
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
 * Every channel of q lies `residue` steps above an even multiple, so that all roundings point one way. There are two
 * keys, one to each side. Half of the channels are negative, so that logits are small.
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

TEST(rounding_q)
{
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

/* If zeros are multiplied with q itself, only the codes' error stays. |k| hides it: k is 0 here, its codes are not. */
TEST(zeros_may_meet_q_itself)
{
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

TEST(rounding_weights)
{
    problem *p = malloc(sizeof *p);
    for (uint32_t n = 40; n <= 400; n += 360) {
        p_aligned(p, n, 0.499);
        kvb_diff diff = attend(p, 0, P_STEP, false, p_only);
        print_message("# weights, %u cells: rho %.3g, worst %.3g\n", n, diff.rho, diff.rho_worst);
        assert_true(diff.rho_worst <= 1 && diff.rho_worst > 0.8);
        assert_true(n > 49 || diff.rho <= 1);
        /* 400 errors in one direction are not independent: they exceed 7 * 20 */
        assert_true(n < 49 || (diff.rho > 2 && diff.rho < 3));
        assert_true(diff.rho_lse <= 1); /* the sum of the weights is not rounded */
    }
    p_aligned(p, 40, 0.7);
    double fine = attend(p, 0, P_STEP, false, p_only).rho, coarse = attend(p, 0, 2 * P_STEP, false, p_only).rho;
    print_message("# weights, residue 0.7: rho %.3g, steps twice as coarse %.3g\n", fine, coarse);
    assert_true(fine <= 0.8 && coarse > 1.2);
    free(p);
}

/* 40 weights of a fifth of a step all become 0: the bound is just their sum. Without the terms' sums each could be off
 * by half a step. Sums for a step half as wide count twice. */
TEST(no_weight_errs_by_more_than_itself)
{
    problem *p = malloc(sizeof *p);
    *p = (problem){.n = 41, .dim = 1, .scale = 1, .q = {1}, .step = P_STEP};
    for (uint32_t i = 0; i < p->n; i++) {
        p->code[i] = i ? log(0.2 * P_STEP) : 0;
        p->v[i] = i ? 1 : 0; /* the lost weights are the whole output */
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

/* Beside a sink all other weights become 0 together. If V lies to one side, the losses add up. */
TEST(what_a_sink_drowns_adds_up)
{
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

/* An output of 0 in every channel: the bound excludes it under steps of 1/127. */
TEST(zero_is_no_answer)
{
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
        for (int channel = 0; channel < 16; channel++) { /* a row has many channels: the worst counts */
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

/* Random rows: the bound holds, is not vacuous, and catches undeclared roundings. */
TEST(gaussian_rows)
{
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

/* The oracle gives an attention the sums of the magnitudes of stored rows. */
TEST(sums_are_of_sizes)
{
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
