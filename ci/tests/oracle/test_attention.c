/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: exact attention of a row and all its sums agree with hand-computed cases and with long double. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/attention.h"

#define NEAR(a, b) assert_true(fabs((double)(a) - (double)(b)) <= 1e-12 * (1 + fabs((double)(b))))

/* Logits 0 and log 3, so weights 1/4 and 3/4; values 8 and 0. */
static void two_cells_by_hand(void **state)
{
    (void)state;
    const double q[1] = {2};
    const double k[2] = {0, 1.0986122886681098}, k_sum[2] = {0, 1.0986122886681098}, v[4] = {8, -4, 0, 4};
    kvb_token_run run = {0, 2};
    kvb_attention a = {.q = q,
                       .k = k,
                       .k_sum = k_sum,
                       .v = v,
                       .k_dim = 1,
                       .v_dim = 2,
                       .v_row = 2,
                       .scale = 0.5,
                       .runs = &run,
                       .n_runs = 1,
                       .visible = 2};
    double scratch[64], lse;
    kvb_bound_row row;
    kvb_bound_term t[2];
    assert_true(kvb_attention_scratch(2, 2) <= 64);
    kvb_attention_solve(&a, scratch, &row, &lse, t);

    const double log3 = 1.0986122886681098;
    NEAR(lse, log(4));
    NEAR(t[0].o, 2);                                    /* 8/4 */
    NEAR(t[1].o, 2);                                    /* -4/4 + 4*3/4 */
    NEAR(t[0].spread, 0.25 * 6 + 0.75 * 2);             /* |8-2|, |0-2| */
    NEAR(t[1].spread, 0.25 * 6 + 0.75 * 2);             /* |-4-2|, |4-2| */
    NEAR(t[0].mass, 2);                                 /* 8/4 */
    NEAR(t[1].mass, 4);                                 /* 4/4 + 4*3/4 */
    NEAR(t[0].spread_a, 0.75 * 2 * 2 * log3);           /* A = 0, 2 log 3 */
    NEAR(t[0].spread_q, 0.75 * 2 * 2 * log3);           /* Q = A: there is one channel */
    NEAR(t[0].spread_s, 1.5 * (log3 / 2) + 1.5 * log3); /* S = 0 + log3/2, log3 */
    NEAR(row.a_mean, 0.75 * 2 * log3);
    NEAR(row.s_mean, 0.25 * log3 / 2 + 0.75 * log3);
    NEAR(row.a_max, 2 * log3);
    NEAR(row.s_max, log3);
    NEAR(row.q_max, 2 * log3);
    NEAR(row.q_mean, 0.75 * 2 * log3);
    NEAR(row.p_max, 0.75);
    NEAR(row.v_largest, 8);
    NEAR(row.q_largest, fabs((double)q[0]));
    NEAR(row.logit_max, log3);
    NEAR(row.weight_sum, 4.0 / 3); /* 1/3 + 1 */
    assert_true(t[0].v_max == 8 && t[1].v_max == 4);
    assert_int_equal(row.visible, 2);
    NEAR(scratch[0], 0); /* the logits are left */
    NEAR(scratch[1], log3);
    assert_true(t[0].steps == 0 && row.step == 0); /* no step was asked for */

    /* Weights in steps: most = 0.1 of 3/4 of 8 = 0.6. Products |8|/4 and 0; |-4|/4 and 4*3/4 */
    a.step = 0.2;
    kvb_attention_solve(&a, scratch, &row, &lse, t);
    NEAR(row.step, 0.2);
    NEAR(t[0].steps, 0.6);
    NEAR(t[0].steps2, 0.36);
    NEAR(t[1].steps, 0.6 + 0.6);
    NEAR(t[1].steps2, 0.72);
    a.step = 0.4; /* most = 1.2: above the first product of channel 1, which is its own limit */
    kvb_attention_solve(&a, scratch, &row, &lse, t);
    NEAR(t[1].steps, 1 + 1.2);
    NEAR(t[1].lost, 1); /* |-4| / 4, which may become 0 */
    NEAR(t[0].lost, 0); /* 0 of the second cell */
    a.v_offset = true;  /* where codes have a zero, the row's largest is the limit: 8/4 */
    kvb_attention_solve(&a, scratch, &row, &lse, t);
    NEAR(t[1].steps, 1.2 + 1.2);
}

/* Nothing to see: 0 and -infinity; with a sink, 0 and its logit. */
static void nothing_visible(void **state)
{
    (void)state;
    const double q[1] = {1};
    const float sink = -2.5f;
    kvb_attention a = {.q = q, .k_dim = 1, .v_dim = 1, .v_row = 1, .scale = 1};
    double scratch[16], lse;
    kvb_bound_row row;
    kvb_bound_term t;
    kvb_attention_solve(&a, scratch, &row, &lse, &t);
    assert_true(isinf(lse) && lse < 0);
    assert_true(t.o == 0 && t.spread == 0 && t.mass == 0 && t.v_max == 0);
    a.sink = &sink;
    kvb_attention_solve(&a, scratch, &row, &lse, &t);
    NEAR(lse, -2.5);
    assert_true(t.o == 0 && t.mass == 0);
}

/* The same formulas once more, directly: no maximum taken out, one cell at a time, long double. */
static void check_directly(const kvb_attention *a, const uint32_t *cells)
{
    uint32_t n = a->visible;
    double *scratch = malloc(kvb_attention_scratch(n, a->v_dim) * sizeof *scratch), lse;
    kvb_bound_term *terms = malloc(a->v_dim * sizeof *terms);
    long double *s = malloc(n * sizeof *s), *reach = malloc(n * sizeof *reach), *shift = malloc(n * sizeof *shift);
    kvb_bound_row row;
    kvb_attention_solve(a, scratch, &row, &lse, terms);

    long double z = a->sink ? expl((long double)*a->sink) : 0, top = a->sink ? (long double)*a->sink : -1e9L;
    for (uint32_t i = 0; i < n; i++) {
        long double dot = 0, q2 = 0, size2 = 0, size1 = 0, q_largest = 0;
        const double *k = a->k + (a->k_gathered ? i : cells[i]) * a->k_dim;
        reach[i] = 0;
        for (uint32_t d = 0; d < a->k_dim; d++) {
            long double q = (long double)a->q[d],
                        size = a->k_size ? a->k_size[(a->k_gathered ? i : cells[i]) * a->k_dim + d] : fabs(k[d]);
            dot += q * k[d];
            reach[i] += fabsl(q) * size;
            q2 += q * q;
            size2 += size * size;
            size1 += size;
            q_largest = fabsl(q) > q_largest ? fabsl(q) : q_largest;
        }
        shift[i] = q_largest * size1;
        assert_true(row.q_largest == (double)q_largest);
        if (a->k_turned)
            reach[i] = sqrtl(q2) * sqrtl(size2);
        s[i] = dot * a->scale;
        if (a->softcap > 0)
            s[i] = a->softcap * tanhl(s[i] / a->softcap);
        top = s[i] > top ? s[i] : top;
        z += expl(s[i]);
    }
    NEAR(lse, logl(z));
    NEAR(row.weight_sum, z / expl(top));
    assert_true(row.v_mix == a->v_mix);
    long double a_mean = 0, a_max = 0, q_mean = 0, q_max = 0, s_mean = 0, s_max = 0, p_max = 0, v_largest = 0;
    for (uint32_t i = 0; i < n + (a->sink != NULL); i++) { /* the sink last: a cell of which only S counts */
        long double x = i < n ? s[i] : (long double)*a->sink, size = fabsl(x) + (top - x) / 2;
        s_mean += expl(x) / z * size;
        s_max = size > s_max ? size : s_max;
    }
    for (uint32_t i = 0; i < n; i++) {
        long double p = expl(s[i]) / z;
        a_mean += p * reach[i];
        q_mean += p * shift[i];
        a_max = reach[i] > a_max ? reach[i] : a_max;
        q_max = shift[i] > q_max ? shift[i] : q_max;
        p_max = p > p_max ? p : p_max;
    }
    NEAR(row.a_mean, a_mean);
    NEAR(row.a_max, a_max);
    NEAR(row.q_mean, q_mean);
    NEAR(row.q_max, q_max);
    NEAR(row.s_mean, s_mean);
    NEAR(row.s_max, s_max);
    NEAR(row.p_max, p_max);
    for (uint32_t c = 0; c < a->v_dim; c++) {
        long double o = 0, spread = 0, spread_a = 0, spread_q = 0, spread_s = 0, mass = 0, v_max = 0;
        for (uint32_t i = 0; i < n; i++)
            o += expl(s[i]) / z * a->v[(a->v_gathered ? i : cells[i]) * a->v_row + c];
        for (uint32_t i = 0; i < n; i++) {
            size_t at = (a->v_gathered ? i : cells[i]) * a->v_row + c;
            long double p = expl(s[i]) / z, v = a->v[at], size = fabsl(v);
            if (a->v_size && a->v_size[at] > size)
                size = a->v_size[at];
            spread += p * fabsl(v - o);
            spread_a += p * fabsl(v - o) * reach[i];
            spread_q += p * fabsl(v - o) * shift[i];
            spread_s += p * fabsl(v - o) * (fabsl(s[i]) + (top - s[i]) / 2);
            mass += p * size;
            v_max = size > v_max ? size : v_max;
        }
        if (a->sink) {
            long double p = expl((long double)*a->sink) / z, x = (long double)*a->sink;
            spread += p * fabsl(o);
            spread_s += p * fabsl(o) * (fabsl(x) + (top - x) / 2);
        }
        NEAR(terms[c].o, o);
        NEAR(terms[c].spread, spread);
        NEAR(terms[c].spread_a, spread_a);
        NEAR(terms[c].spread_q, spread_q);
        NEAR(terms[c].spread_s, spread_s);
        NEAR(terms[c].mass, mass);
        assert_true(terms[c].v_max == (double)v_max);
        v_largest = v_max > v_largest ? v_max : v_largest;
    }
    assert_true(row.v_largest == (double)v_largest);
    free(scratch);
    free(terms);
    free(s);
    free(reach);
    free(shift);
}

/* The sums of rows of K that an attention is to be given. */
static void rows_sum(const double *rows, uint32_t n, uint32_t dim, double *sums)
{
    for (uint32_t i = 0; i < n; i++) {
        sums[i] = 0;
        for (uint32_t d = 0; d < dim; d++)
            sums[i] += fabs(rows[i * dim + d]);
    }
}

static void against_long_double(void **state)
{
    (void)state;
    enum { TOKENS = 400, K = 37, V = 19 };
    static double k[TOKENS * K], v[TOKENS * V], k_sum[TOKENS];
    static uint32_t cells[TOKENS];
    double q[K];
    float sink = 2.25f;
    uint64_t seed = 3;
    for (int i = 0; i < TOKENS * K; i++)
        k[i] = hand_gauss(&seed);
    for (int i = 0; i < TOKENS * V; i++)
        v[i] = hand_gauss(&seed) + 0.5;
    for (int i = 0; i < K; i++)
        q[i] = (float)hand_gauss(&seed);
    const kvb_token_run runs[] = {{5, 6}, {9, 200}, {201, 203}, {390, 400}};
    uint32_t n = 0;
    for (int r = 0; r < 4; r++)
        for (uint32_t t = runs[r].begin; t < runs[r].end; t++)
            cells[n++] = t;
    rows_sum(k, TOKENS, K, k_sum);
    kvb_attention a = {.q = q,
                       .k = k,
                       .k_sum = k_sum,
                       .v = v,
                       .k_dim = K,
                       .v_dim = V,
                       .v_row = V,
                       .scale = 0.31,
                       .runs = runs,
                       .n_runs = 4,
                       .visible = n};
    check_directly(&a, cells);
    a.softcap = 1.5;
    check_directly(&a, cells);
    a.sink = &sink;
    check_directly(&a, cells);
    a.softcap = 0;
    check_directly(&a, cells);
    sink = -40; /* hardly a weight, but the largest S */
    check_directly(&a, cells);
    sink = 2.25f;

    /* magnitudes of their own, those of V sometimes below |v| */
    static double k_size[TOKENS * K], v_size[TOKENS * V];
    for (int i = 0; i < TOKENS * K; i++)
        k_size[i] = fabs(k[i]) + 3 * hand_uniform(&seed);
    for (int i = 0; i < TOKENS * V; i++)
        v_size[i] = 2 * hand_uniform(&seed);
    a.k_size = k_size;
    rows_sum(k_size, TOKENS, K, k_sum);
    check_directly(&a, cells);
    a.k_turned = true;
    check_directly(&a, cells);
    a.v_size = v_size;
    a.v_mix = 5;
    check_directly(&a, cells);

    /* one side gathered, then both: other rows than those of the tokens */
    a.k_gathered = true;
    check_directly(&a, cells);
    a.v_gathered = true;
    check_directly(&a, cells);
    a.k_gathered = false;
    check_directly(&a, cells);

    /* latent: V is the beginning of K's rows, and has their magnitudes */
    a.v = k;
    a.v_size = k_size;
    a.v_row = K;
    for (int gathered = 0; gathered < 2; gathered++) {
        a.k_gathered = a.v_gathered = gathered;
        check_directly(&a, cells);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_cells_by_hand),
        cmocka_unit_test(nothing_visible),
        cmocka_unit_test(against_long_double),
    };
    return cmocka_run_group_tests_name("oracle/attention", tests, NULL, NULL);
}
