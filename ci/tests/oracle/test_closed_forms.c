/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the oracle's attention has the properties that follow from its definition, whatever the numbers: equal
 * scores give the mean of V; a score far above the others its row; the order of cells does not count; what it is of a
 * sum of values is the sum of what it is of each; a factor may be in q or in the scale; a high cap is none, a low one
 * makes scores equal; a sink takes its share, and no more.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/attention.h"

enum { CELLS = 257, DIM = 8 };

typedef struct scene {
    double q[DIM];
    double k[CELLS * DIM], v[CELLS * DIM], k_sum[CELLS];
    double softcap, scale;
    const float *sink;
    double out[DIM], lse;
} scene;

static uint64_t seed = 1;

static scene scene_make(void)
{
    scene s = {.scale = 0.4};
    for (int d = 0; d < DIM; d++)
        s.q[d] = (float)hand_gauss(&seed);
    for (int i = 0; i < CELLS * DIM; i++) {
        s.k[i] = hand_gauss(&seed);
        s.v[i] = hand_gauss(&seed);
    }
    return s;
}

static void solve(scene *s)
{
    static double scratch[1 << 14];
    const kvb_token_run run = {0, CELLS};
    const kvb_attention a = {.q = s->q,
                             .k = s->k,
                             .k_sum = s->k_sum,
                             .v = s->v,
                             .k_dim = DIM,
                             .v_dim = DIM,
                             .v_row = DIM,
                             .scale = s->scale,
                             .softcap = s->softcap,
                             .sink = s->sink,
                             .runs = &run,
                             .n_runs = 1,
                             .visible = CELLS};
    kvb_bound_row row;
    kvb_bound_term terms[DIM];
    assert_true(kvb_attention_scratch(CELLS, DIM) <= sizeof scratch / sizeof *scratch);
    kvb_attention_solve(&a, scratch, &row, &s->lse, terms);
    for (int c = 0; c < DIM; c++)
        s->out[c] = terms[c].o;
}

static void near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-13 * (1 + fabs(b)));
}

static void same(const scene *a, const scene *b)
{
    for (int c = 0; c < DIM; c++)
        near(a->out[c], b->out[c]);
    near(a->lse, b->lse);
}

static double mean_of(const scene *s, int c)
{
    double sum = 0;
    for (int i = 0; i < CELLS; i++)
        sum += s->v[i * DIM + c];
    return sum / CELLS;
}

static void equal_scores_give_the_mean(void **state)
{
    (void)state;
    scene s = scene_make();
    for (int i = DIM; i < CELLS * DIM; i++)
        s.k[i] = s.k[i % DIM];
    double score = 0;
    for (int d = 0; d < DIM; d++)
        score += s.scale * s.q[d] * s.k[d];
    solve(&s);
    for (int c = 0; c < DIM; c++)
        near(s.out[c], mean_of(&s, c));
    near(s.lse, score + log(CELLS));
}

static void one_high_score_gives_its_row(void **state)
{
    (void)state;
    for (int hot = 0; hot < CELLS; hot += 64) {
        scene s = scene_make();
        for (int d = 0; d < DIM; d++)
            s.k[hot * DIM + d] = 1e4 * s.q[d];
        solve(&s);
        for (int c = 0; c < DIM; c++)
            assert_true(s.out[c] == s.v[hot * DIM + c]); /* the others' weights are 0 in double */
    }
}

static void order_does_not_count(void **state)
{
    (void)state;
    scene s = scene_make(), t = s;
    for (int i = 0; i < CELLS; i++) {
        int from = (int)((unsigned)i * 100 % CELLS); /* 257 is prime */
        memcpy(t.k + i * DIM, s.k + from * DIM, DIM * sizeof *s.k);
        memcpy(t.v + i * DIM, s.v + from * DIM, DIM * sizeof *s.v);
    }
    solve(&s);
    solve(&t);
    same(&s, &t);
}

static void values_are_mixed_linearly(void **state)
{
    (void)state;
    scene a = scene_make(), b = a, sum = a;
    for (int i = 0; i < CELLS * DIM; i++) {
        b.v[i] = hand_gauss(&seed);
        sum.v[i] = 3 * a.v[i] - 0.5 * b.v[i];
    }
    solve(&a);
    solve(&b);
    solve(&sum);
    for (int c = 0; c < DIM; c++)
        near(sum.out[c], 3 * a.out[c] - 0.5 * b.out[c]);
    assert_true(sum.lse == a.lse && a.lse == b.lse);
}

static void factors_of_scores(void **state)
{
    (void)state;
    scene a = scene_make(), b = a;
    for (int d = 0; d < DIM; d++)
        b.q[d] *= 4;
    b.scale /= 4;
    solve(&a);
    solve(&b);
    same(&a, &b);
    for (int i = 0; i < CELLS * DIM; i++) /* one more score for all of them moves the log-sum-exp alone */
        b.k[i] += i % DIM == 0 ? 2 / (b.q[0] * b.scale) : 0;
    solve(&b);
    b.lse -= 2;
    same(&a, &b);
}

static void caps(void **state)
{
    (void)state;
    scene a = scene_make(), high = a, low = a;
    high.softcap = 1e9;
    low.softcap = 1e-9;
    solve(&a);
    solve(&high);
    solve(&low);
    same(&a, &high);
    for (int c = 0; c < DIM; c++)
        assert_true(fabs(low.out[c] - mean_of(&low, c)) < 1e-8);
    assert_true(fabs(low.lse - log(CELLS)) < 1e-8);
}

static void sinks(void **state)
{
    (void)state;
    scene a = scene_make(), b = a;
    const float logits[] = {-1000, -3, 0, 4.5f, 30};
    solve(&a);
    for (size_t i = 0; i < sizeof logits / sizeof *logits; i++) {
        b.sink = &logits[i];
        solve(&b);
        double share = 1 / (1 + exp((double)logits[i] - a.lse));
        for (int c = 0; c < DIM; c++)
            near(b.out[c], share * a.out[c]);
        near(b.lse, a.lse - log(share));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_scores_give_the_mean),
        cmocka_unit_test(one_high_score_gives_its_row),
        cmocka_unit_test(order_does_not_count),
        cmocka_unit_test(values_are_mixed_linearly),
        cmocka_unit_test(factors_of_scores),
        cmocka_unit_test(caps),
        cmocka_unit_test(sinks),
    };
    return cmocka_run_group_tests_name("closed forms", tests, NULL, NULL);
}
