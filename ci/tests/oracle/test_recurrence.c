/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The judge of the oracle's recurrences. Shows that they agree with the definitions told in another way, which shares
 * no code with them: sums over all earlier tokens in floats of 64 bits (MAMBA1, MAMBA2, LIGHTNING), products of
 * matrices (DELTA), a sum over inputs (CONV), and closed forms. And that the bound is the sum that its header says,
 * where that can be told by hand.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/recurrence.h"

enum { TOKENS = 60, DK = 5, DV = 3 };

static const kvb_scan_arithmetic honest = {.chunk = 1, .state_chain = 3, .read_chain = 9, .solve_chain = 9};

static uint64_t random_state = 1;

static float uniform(float low, float high)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return low + (high - low) * (float)(random_state >> 40) * 0x1p-24f;
}

/* ---- definitions, told anew -------------------------------------------------------------------------------------- */

typedef struct stream {
    kvb_scan_kind kind;
    bool silu;
    float q[TOKENS][DK], k[TOKENS][DK], v[TOKENS][DV], gate[TOKENS][DV], beta[TOKENS], a[(DK + 1) * DV], bias[DV];
} stream;

static void stream_draw(stream *s, kvb_scan_kind kind)
{
    const bool delta = kind == KVB_SCAN_DELTA;
    s->kind = kind;
    s->silu = uniform(0, 1) < 0.5f;
    for (int t = 0; t < TOKENS; t++) {
        float norm2 = 0;
        for (int i = 0; i < DK; i++) {
            s->q[t][i] = uniform(-1, 1);
            s->k[t][i] = uniform(-1, 1);
            norm2 += s->k[t][i] * s->k[t][i];
        }
        for (int i = 0; i < DK && delta; i++)
            s->k[t][i] /= sqrtf(norm2);
        for (int c = 0; c < DV; c++) {
            s->v[t][c] = uniform(-1, 1);
            s->gate[t][c] = delta ? uniform(-0.2f, 0) : uniform(0, 0.3f);
        }
        s->beta[t] = uniform(0, 2);
    }
    for (int i = 0; i < (DK + 1) * DV; i++)
        s->a[i] = kind == KVB_SCAN_CONV ? uniform(-1, 1) : uniform(-1, 0);
    for (int c = 0; c < DV; c++)
        s->bias[c] = uniform(-1, 1);
}

/* The exponent that a token's decay of element (i, c) has. */
static long double exponent(const stream *s, int t, int i, int c)
{
    switch (s->kind) {
    case KVB_SCAN_MAMBA1:
        return (long double)s->gate[t][c] * (long double)s->a[i * DV + c];
    case KVB_SCAN_MAMBA2:
        return (long double)s->gate[t][0] * (long double)s->a[0];
    case KVB_SCAN_LIGHTNING:
        return s->a[0];
    default:
        return s->gate[t][0];
    }
}

/* S[i][c] after token t, as the sum of what each token wrote, decayed by all that came since. */
static long double summed(const stream *s, int t, int i, int c)
{
    long double sum = 0;
    for (int j = 0; j <= t; j++) {
        long double since = 0, gate = s->kind == KVB_SCAN_MAMBA1   ? s->gate[j][c]
                                      : s->kind == KVB_SCAN_MAMBA2 ? s->gate[j][0]
                                                                   : 1;
        for (int l = j + 1; l <= t; l++)
            since += exponent(s, l, i, c);
        sum += expl(since) * gate * (long double)s->k[j][i] * (long double)s->v[j][c];
    }
    return sum;
}

/* S <- alpha (I - beta k k^T) S + beta k v^T, with the matrix written out: equation 10 of the paper, transposed. */
static void multiplied(const stream *s, int t, long double state[DK][DV])
{
    long double next[DK][DV];
    for (int i = 0; i < DK; i++)
        for (int c = 0; c < DV; c++) {
            next[i][c] = (long double)s->beta[t] * s->k[t][i] * s->v[t][c];
            for (int j = 0; j < DK; j++)
                next[i][c] += expl(exponent(s, t, 0, 0)) *
                              ((i == j) - (long double)s->beta[t] * s->k[t][i] * s->k[t][j]) * state[j][c];
        }
    memcpy(state, next, sizeof next);
}

static long double convolved(const stream *s, int t, int c)
{
    long double z = s->bias[c];
    for (int i = 0; i <= DK; i++)
        if (t - DK + i >= 0)
            z += (long double)s->a[i * DV + c] * s->v[t - DK + i][c];
    return s->silu ? z / (1 + expl(-z)) : z;
}

/* ---- the oracle over a stream ------------------------------------------------------------------------------------ */

static kvb_scan_problem problem_of(kvb_scan_kind kind, kvb_elem state)
{
    return (kvb_scan_problem){.kind = kind, .heads = 1, .groups = 1, .d_k = DK, .d_v = DV, .state_elem = state};
}

static kvb_recurrence_token token_of(const stream *s, int t)
{
    return (kvb_recurrence_token){s->q[t], s->k[t], s->v[t], s->gate[t], &s->beta[t], s->a, s->bias};
}

static void close_to(double got, long double want, double size, const char *what, int t)
{
    if (!(fabsl((long double)got - want) <= 64 * TOKENS * 0x1p-53L * (long double)size))
        fail_msg("%s, token %d: %.17g in place of %.17Lg", what, t, got, want);
}

static void agrees_with_definitions(void **state)
{
    static stream s;
    (void)state;
    for (int i = 0; i < 20 * KVB_SCAN_KINDS; i++) {
        long double matrix[DK][DV] = {{0}};
        kvb_recurrence_want out[DV], all[DK * DV];
        stream_draw(&s, (kvb_scan_kind)(i % KVB_SCAN_KINDS));
        kvb_scan_problem p = problem_of(s.kind, KVB_F32);
        p.silu = s.silu;
        kvb_recurrence *r = kvb_recurrence_open(&p, &honest);
        for (int t = 0; t < TOKENS; t++) {
            const kvb_recurrence_token token = token_of(&s, t);
            kvb_recurrence_step(r, &token, out);
            if (t % 7 == 0)
                kvb_recurrence_rest(r, true);
            kvb_recurrence_state(r, all);
            if (s.kind == KVB_SCAN_DELTA)
                multiplied(&s, t, matrix);
            for (int c = 0; c < DV; c++) {
                long double want = s.kind == KVB_SCAN_CONV ? convolved(&s, t, c) : 0;
                for (int j = 0; j < DK && s.kind != KVB_SCAN_CONV; j++) {
                    const long double x = s.kind == KVB_SCAN_DELTA ? matrix[j][c] : summed(&s, t, j, c);
                    close_to(all[j * DV + c].value, x, TOKENS, "state", t);
                    want += (long double)s.q[t][j] * x;
                }
                close_to(out[c].value, want, TOKENS, "out", t);
                for (int j = 0; j < DK && s.kind == KVB_SCAN_CONV; j++)
                    assert_true(all[j * DV + c].value == (t - DK + 1 + j < 0 ? 0 : (double)s.v[t - DK + 1 + j][c]));
            }
        }
        kvb_recurrence_close(r);
    }
}

/* The delta rule with one key of norm 1, beta 1, no decay: what is read is what was written last. */
static void one_key_holds_its_last_value(void **state)
{
    const kvb_scan_problem p = problem_of(KVB_SCAN_DELTA, KVB_F32);
    const float key[DK] = {0, 0, 1, 0, 0}, other[DK] = {0, 1, 0, 0, 0}, none = 0, one = 1;
    kvb_recurrence *r = kvb_recurrence_open(&p, &honest);
    kvb_recurrence_want out[DV];
    (void)state;
    for (int t = 0; t < 20; t++) {
        const float v[DV] = {(float)t, (float)-t, 1};
        kvb_recurrence_step(r, &(kvb_recurrence_token){.q = key, .k = key, .v = v, .gate = &none, .beta = &one}, out);
        for (int c = 0; c < DV; c++)
            assert_true(out[c].value == (double)v[c]);
        kvb_recurrence_step(r, &(kvb_recurrence_token){.q = key, .k = other, .v = v, .gate = &none, .beta = &one}, out);
        assert_true(out[0].value == (double)v[0]); /* another key leaves it */
    }
    kvb_recurrence_close(r);
}

/* ---- the bound --------------------------------------------------------------------------------------------------- */

/* Lightning Attention with k = v = 1 and decay d: S_t = (1 - d^t) / (1 - d), and errors are a geometric sum as well. */
static kvb_recurrence *steady(const kvb_scan_arithmetic *a, kvb_elem elem, float log_decay, int tokens, bool store)
{
    const kvb_scan_problem p = problem_of(KVB_SCAN_LIGHTNING, elem);
    const float ones[DK] = {1, 1, 1, 1, 1};
    kvb_recurrence_want out[DV];
    kvb_recurrence *r = kvb_recurrence_open(&p, a);
    assert_non_null(r);
    for (int t = 0; t < tokens; t++) {
        kvb_recurrence_step(r, &(kvb_recurrence_token){.q = ones, .k = ones, .v = ones, .a = &log_decay}, out);
        if (store || t + 1 == tokens)
            kvb_recurrence_rest(r, store);
    }
    return r;
}

static void is_about(double got, double want, double within)
{
    if (!(fabs(got - want) <= within * want))
        fail_msg("%g in place of %g", got, want);
}

static void errors_decay_as_the_state_does(void **state)
{
    const double d = exp((double)-0.01f), limit = 1 / (1 - d), u = 0x1p-24;
    kvb_recurrence_want all[DK * DV];
    kvb_recurrence *r;
    (void)state;

    /* One rounding of f32 a token, of S itself: u S / (1 - d) in the end; by chance 7 u S / sqrt(1 - d^2), if it
     * changes. */
    const kvb_scan_arithmetic once = {.chunk = 1, .state_chain = 1};
    r = steady(&once, KVB_F32, -0.01f, 4000, false);
    kvb_recurrence_state(r, all);
    is_about(all[0].value, limit, 1e-9);
    is_about(all[0].worst, u * limit * limit, 1e-3);
    is_about(all[0].bound, all[0].worst, 1e-9); /* it hardly changes any more: every rounding is alike */
    kvb_recurrence_close(r);
    r = steady(&once, KVB_F32, -0.01f, 200, false);
    kvb_recurrence_state(r, all);
    double variance = 0, s = 0;
    for (int t = 0; t < 200; t++) {
        s = d * s + 1;
        variance = d * d * variance + u * u * s * s;
    }
    is_about(all[3].bound, 7 * sqrt(variance), 1e-2);
    kvb_recurrence_close(r);

    /* A chunk's end adds once, but relative to all that the chunk added up. */
    const kvb_scan_arithmetic chunks = {.chunk = 50, .state_chain = 1};
    r = steady(&chunks, KVB_F32, -0.01f, 4000, false);
    kvb_recurrence_state(r, all);
    is_about(all[0].worst, u * limit / (1 - pow(d, 50)), 1e-3);
    kvb_recurrence_close(r);

    /* A decay that is off by eps: S is off by eps S / (1 - d) at either strength. */
    const kvb_scan_arithmetic decays = {.chunk = 1, .exp_error = 1e-6};
    r = steady(&decays, KVB_F32, -0.01f, 4000, false);
    kvb_recurrence_state(r, all);
    is_about(all[0].bound, 1e-6 * limit * limit, 1e-2);
    kvb_recurrence_close(r);

    /* States of bf16 count where they are written, and only there. */
    r = steady(&once, KVB_BF16, -0.5f, 400, true);
    kvb_recurrence_state(r, all);
    is_about(all[0].worst, 0x1p-8 * all[0].value / (1 - exp(-0.5) * (1 + 0x1p-8)), 0.02);
    kvb_recurrence_close(r);
    r = steady(&once, KVB_BF16, -0.5f, 400, false);
    kvb_recurrence_state(r, all);
    assert_true(all[0].worst < 1e-6);
    kvb_recurrence_close(r);
}

/* What a chunk adds is relative to its own terms: M forgets those before. Here S is 1 and 0 in turn, nearly. */
static void sums_reach_back_one_chunk(void **state)
{
    const kvb_scan_problem p = problem_of(KVB_SCAN_LIGHTNING, KVB_F32);
    const kvb_scan_arithmetic once = {.chunk = 1, .state_chain = 1};
    const float ones[DK] = {1, 1, 1, 1, 1}, v[2][DV] = {{1, 1, 1}, {-1, -1, -1}}, log_decay = -0.001f;
    kvb_recurrence *r = kvb_recurrence_open(&p, &once);
    kvb_recurrence_want out[DV], all[DK * DV];
    (void)state;
    for (int t = 0; t < 10000; t++)
        kvb_recurrence_step(r, &(kvb_recurrence_token){.q = ones, .k = ones, .v = v[t % 2], .a = &log_decay}, out);
    kvb_recurrence_rest(r, false);
    kvb_recurrence_state(r, all);
    is_about(all[0].worst, 0x1p-24 * 1.5 / 0.001, 0.01); /* |S| + 1: 1.5 and 1.5 */
    kvb_recurrence_close(r);
}

/* The delta rule without writes (beta 0) and decay keeps each error: a column's is the 2-norm of its elements'. */
static void columns_err_by_norm(void **state)
{
    const kvb_scan_problem p = problem_of(KVB_SCAN_DELTA, KVB_F32);
    const kvb_scan_arithmetic once = {.chunk = 1, .state_chain = 1};
    const float v[DV] = {1, 1, 1}, none = 0, one = 1;
    kvb_recurrence *r = kvb_recurrence_open(&p, &once);
    kvb_recurrence_want out[DV], all[DK * DV];
    (void)state;
    for (int t = 0; t < 5000; t++) {
        float k[DK] = {0};
        k[t % DK] = 1;
        kvb_recurrence_step(
            r, &(kvb_recurrence_token){.q = k, .k = k, .v = v, .gate = &none, .beta = t < DK ? &one : &none}, out);
    }
    kvb_recurrence_rest(r, false);
    kvb_recurrence_state(r, all);
    is_about(all[0].value, 1, 1e-12);
    is_about(all[0].worst, 0x1p-24 * 5000 * sqrt(DK), 0.01);
    kvb_recurrence_close(r);
}

/* A copy goes its own way. */
/* Whatever the head erred by before: a state that is given has no error, and is what sums and floors reach back to. */
static void given_states_are_exact(void **state)
{
    (void)state;
    for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++) {
        const kvb_scan_problem p = problem_of(kind, KVB_BF16);
        const kvb_scan_arithmetic floors = {.chunk = 100, .exp_floor = 0.25, .exp_error = 0.5};
        const float ones[(DK + 1) * DV] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, none[DV] = {0};
        const kvb_recurrence_token token = {.q = ones, .k = ones, .v = ones, .gate = none, .beta = none, .a = none};
        kvb_recurrence *r = kvb_recurrence_open(&p, &floors);
        kvb_recurrence_want out[DV], all[DK * DV];
        double given[DK * DV];
        for (int t = 0; t < 3; t++)
            kvb_recurrence_step(r, &token, out);
        kvb_recurrence_rest(r, true);
        for (int i = 0; i < DK * DV; i++)
            given[i] = i % 2 ? i : -i;
        kvb_recurrence_begin(r, given);
        kvb_recurrence_state(r, all);
        for (int i = 0; i < DK * DV; i++)
            assert_true(all[i].value == given[i] && all[i].bound == 0 && all[i].worst == 0);
        kvb_recurrence_step(r, &token, out);
        if (kind !=
            KVB_SCAN_CONV) /* decays are 1; lightning alone writes, 1 in each row: 0 + 3 - 6 + 9 - 12 and those */
            assert_true(out[0].value == (kind == KVB_SCAN_LIGHTNING ? -1 : -6));
        if (kind != KVB_SCAN_CONV) /* the floor of the largest element in each row, and half of all that is added */
            is_about(out[0].bound, DK * 0.25 * 14 + 0.5 * (30 + DK * (kind == KVB_SCAN_LIGHTNING)), 1e-6);
        kvb_recurrence_close(r);
    }
}

static void forks_are_apart(void **state)
{
    static stream s;
    kvb_recurrence_want out[DV], all[2][DK * DV], again[DK * DV];
    (void)state;
    for (int kind = 0; kind < KVB_SCAN_KINDS; kind++) {
        stream_draw(&s, (kvb_scan_kind)kind);
        const kvb_scan_problem p = problem_of(s.kind, KVB_F16);
        kvb_recurrence *r[2] = {kvb_recurrence_open(&p, &honest), kvb_recurrence_open(&p, &honest)};
        for (int t = 0; t < 20; t++) {
            const kvb_recurrence_token token = token_of(&s, t);
            kvb_recurrence_step(r[0], &token, out);
            if (t == 9)
                kvb_recurrence_copy(r[1], r[0]);
            if (t >= 9)
                kvb_recurrence_state(r[1], all[t == 9 ? 0 : 1]);
        }
        assert_memory_equal(all[0], all[1], sizeof all[0]);
        for (int t = 10; t < 20; t++) {
            const kvb_recurrence_token token = token_of(&s, t);
            kvb_recurrence_step(r[1], &token, out);
        }
        kvb_recurrence_state(r[0], all[0]);
        kvb_recurrence_state(r[1], again);
        assert_memory_equal(all[0], again, sizeof again);
        kvb_recurrence_close(r[0]);
        kvb_recurrence_close(r[1]);
    }
}

static void rho_is_the_largest_share(void **state)
{
    const kvb_recurrence_want want[3] = {{1, 0.5, 1}, {2, 0.25, 1}, {3, 0, 1}};
    float got[3] = {1.25f, 2.0f, 3.0f};
    size_t at = 9;
    (void)state;
    assert_true(kvb_recurrence_rho(want, KVB_F32, got, 3, &at) == 0.5 && at == 0);
    got[1] = 2.5f;
    assert_true(kvb_recurrence_rho(want, KVB_F32, got, 3, &at) == 2 && at == 1);
    got[2] = 3.5f;
    assert_true(isinf(kvb_recurrence_rho(want, KVB_F32, got, 3, &at)) && at == 2);
    got[2] = 3;
    got[0] = NAN;
    assert_true(isinf(kvb_recurrence_rho(want, KVB_F32, got, 3, &at)) && at == 0);
}

/* Inputs are not rounded where slots hold f32. */
static void inputs_of_f32_are_exact(void **state)
{
    const kvb_scan_problem p = problem_of(KVB_SCAN_CONV, KVB_F32);
    const float v[DV] = {1, 2, 3}, taps[(DK + 1) * DV] = {1};
    kvb_recurrence *r = kvb_recurrence_open(&p, &honest);
    kvb_recurrence_want out[DV], all[DK * DV];
    (void)state;
    kvb_recurrence_step(r, &(kvb_recurrence_token){.v = v, .a = taps}, out);
    kvb_recurrence_rest(r, true);
    kvb_recurrence_state(r, all);
    for (int i = 0; i < DK * DV; i++)
        assert_true(all[i].bound == 0 && all[i].worst == 0);
    kvb_recurrence_close(r);
}

/* A token of a call: by its place, its head, and the head's group; gates and decays as the kind has them. */
static void tokens_of_a_call(void **state)
{
    static const float q[96], k[96], v[96], gate[96], beta[96], a[96], bias[96];
    kvb_scan x = {.problem = {.kind = KVB_SCAN_MAMBA2, .heads = 4, .groups = 2, .d_k = 3, .d_v = 5},
                  .q = q,
                  .k = k,
                  .v = v,
                  .gate = gate,
                  .beta = beta,
                  .a = a,
                  .bias = bias};
    (void)state;
    /* token 2, head 3: row 2 * 4 + 3 of heads, row 2 * 2 + 1 of groups */
    kvb_recurrence_token t = kvb_recurrence_token_of(&x, 2, 3);
    assert_true(t.q == q + 15 && t.k == k + 15 && t.v == v + 55 && t.gate == gate + 11 && t.beta == beta + 11);
    assert_true(t.a == a + 3 && t.bias == bias);
    x.problem.kind = KVB_SCAN_MAMBA1; /* gates and decays for each channel */
    x.problem.heads = x.problem.groups = 1;
    t = kvb_recurrence_token_of(&x, 2, 0);
    assert_true(t.q == q + 6 && t.k == k + 6 && t.v == v + 10 && t.gate == gate + 10 && t.a == a);
    x.problem.heads = 4;
    assert_true(kvb_recurrence_token_of(&x, 0, 1).a == a + 15);
    x.problem.kind = KVB_SCAN_CONV; /* and one row of taps more than of states */
    assert_true(kvb_recurrence_token_of(&x, 0, 1).a == a + 20);
    x = (kvb_scan){.problem = x.problem, .v = v};
    t = kvb_recurrence_token_of(&x, 1, 0);
    assert_true(!t.q && !t.k && !t.gate && !t.beta && !t.a && !t.bias && t.v == v + 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_definitions),        cmocka_unit_test(one_key_holds_its_last_value),
        cmocka_unit_test(errors_decay_as_the_state_does), cmocka_unit_test(forks_are_apart),
        cmocka_unit_test(sums_reach_back_one_chunk),      cmocka_unit_test(columns_err_by_norm),
        cmocka_unit_test(rho_is_the_largest_share),       cmocka_unit_test(tokens_of_a_call),
        cmocka_unit_test(inputs_of_f32_are_exact),        cmocka_unit_test(given_states_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
