/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's own judge. Shows that its solve in double agrees with the definition of attention in floats of 113 bits
 * (MPFR), which shares no code with it: each element within 16 roundings of a double, relative to what is added up for
 * it, for logits from -700 to 4000, rows of one to 3000 cells, softcap, sinks, cancelling and equal values.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <mpfr.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/attention.h"

enum { BITS = 113, DIM = 6 };

static const struct scene {
    const char *name;
    uint32_t n;       /* cells */
    double logit;     /* standard deviation of the logits, about */
    double offset;    /* added to all of them */
    double v, v_step; /* values: v + v_step * gauss */
    double softcap;
    float sink; /* NAN: none */
} scenes[] = {
    {"one cell", 1, 1, 0, 0, 1, 0, NAN},
    {"few cells", 7, 2, 0, 0, 1, 0, NAN},
    {"many cells", 3000, 3, 0, 0, 1, 0, NAN},
    {"equal weights", 1000, 0, 0, 0, 1, 0, NAN},
    {"one cell takes all", 300, 300, 0, 0, 1, 0, NAN},
    {"large logits", 300, 4, 4000, 0, 1, 0, NAN},
    {"small logits", 300, 4, -700, 0, 1, 0, NAN},
    {"values that cancel", 300, 1, 0, 1e8, 1, 0, NAN},
    {"tiny values", 300, 1, 0, 0, 1e-300, 0, NAN},
    {"softcap", 300, 20, 0, 0, 1, 5, NAN},
    {"softcap far above", 300, 2, 0, 0, 1, 1e6, NAN},
    {"sink", 300, 2, 0, 0, 1, 0, 3.5f},
    {"sink takes all", 300, 2, 0, 0, 1, 0, 800},
    {"sink is nothing", 300, 2, 0, 0, 1, 0, -800},
    {"softcap and sink", 300, 40, 10, 0, 1, 30, 29},
};

typedef struct precise {
    mpfr_t out[DIM], mass[DIM], lse;
} precise;

static void precise_init(precise *p)
{
    for (int c = 0; c < DIM; c++)
        mpfr_inits2(BITS, p->out[c], p->mass[c], NULL);
    mpfr_init2(p->lse, BITS);
}

static void precise_clear(precise *p)
{
    for (int c = 0; c < DIM; c++)
        mpfr_clears(p->out[c], p->mass[c], NULL);
    mpfr_clear(p->lse);
}

/* s = softcap tanh(scale q.k / softcap) */
static void logit_of(const kvb_attention *a, const double *k, mpfr_t s)
{
    mpfr_t x;
    mpfr_init2(x, BITS);
    mpfr_set_zero(s, 1);
    for (uint32_t d = 0; d < a->k_dim; d++) {
        mpfr_set_d(x, a->q[d], MPFR_RNDN);
        mpfr_mul_d(x, x, k[d], MPFR_RNDN);
        mpfr_add(s, s, x, MPFR_RNDN);
    }
    mpfr_mul_d(s, s, a->scale, MPFR_RNDN);
    if (a->softcap > 0) {
        mpfr_div_d(s, s, a->softcap, MPFR_RNDN);
        mpfr_tanh(s, s, MPFR_RNDN);
        mpfr_mul_d(s, s, a->softcap, MPFR_RNDN);
    }
    mpfr_clear(x);
}

/* The definition: exp of each logit as it is, for which the exponents of MPFR have room. */
static void solve(const kvb_attention *a, precise *p)
{
    mpfr_t s, weight, term;
    mpfr_inits2(BITS, s, weight, term, NULL);
    for (uint32_t c = 0; c < a->v_dim; c++) {
        mpfr_set_zero(p->out[c], 1);
        mpfr_set_zero(p->mass[c], 1);
    }
    mpfr_set_zero(p->lse, 1); /* holds the sum of weights first */
    if (a->sink) {
        mpfr_set_d(p->lse, (double)*a->sink, MPFR_RNDN);
        mpfr_exp(p->lse, p->lse, MPFR_RNDN);
    }
    for (uint32_t i = 0; i < a->visible; i++) {
        logit_of(a, a->k + (size_t)i * a->k_dim, s);
        mpfr_exp(weight, s, MPFR_RNDN);
        mpfr_add(p->lse, p->lse, weight, MPFR_RNDN);
        for (uint32_t c = 0; c < a->v_dim; c++) {
            mpfr_mul_d(term, weight, a->v[(size_t)i * a->v_row + c], MPFR_RNDN);
            mpfr_add(p->out[c], p->out[c], term, MPFR_RNDN);
            mpfr_abs(term, term, MPFR_RNDN);
            mpfr_add(p->mass[c], p->mass[c], term, MPFR_RNDN);
        }
    }
    for (uint32_t c = 0; c < a->v_dim; c++) {
        mpfr_div(p->out[c], p->out[c], p->lse, MPFR_RNDN);
        mpfr_div(p->mass[c], p->mass[c], p->lse, MPFR_RNDN);
    }
    mpfr_log(p->lse, p->lse, MPFR_RNDN);
    mpfr_clears(s, weight, term, NULL);
}

/* |got - want| in roundings of a double relative to `of`. */
static double roundings(double got, mpfr_t want, double of)
{
    mpfr_t x;
    mpfr_init2(x, BITS);
    mpfr_d_sub(x, got, want, MPFR_RNDN);
    double error = fabs(mpfr_get_d(x, MPFR_RNDN));
    mpfr_clear(x);
    return error == 0 ? 0 : error / (of * 0x1p-53);
}

/* Cells of one row: gaussian logits around an offset, which the first channel of q and k makes. */
static void rows_make(const struct scene *s, uint64_t *seed, double *q, double *k, double *v)
{
    for (uint32_t d = 0; d < DIM; d++)
        q[d] = d ? (float)hand_gauss(seed) : 1;
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t d = 0; d < DIM; d++) {
            k[i * DIM + d] = d ? s->logit * hand_gauss(seed) / 2 : s->offset * 2;
            v[i * DIM + d] = s->v + s->v_step * hand_gauss(seed);
        }
}

static void scene_check(const struct scene *s, uint64_t seed, double *worst, double *worst_lse)
{
    double q[DIM];
    double *k = malloc(s->n * DIM * sizeof *k), *v = malloc(s->n * DIM * sizeof *v), *k_sum = calloc(s->n, sizeof *k);
    rows_make(s, &seed, q, k, v);
    const kvb_token_run run = {0, s->n};
    const kvb_attention a = {.q = q,
                             .k = k,
                             .k_sum = k_sum,
                             .v = v,
                             .k_dim = DIM,
                             .v_dim = DIM,
                             .v_row = DIM,
                             .scale = 0.5,
                             .softcap = s->softcap,
                             .sink = isnan(s->sink) ? NULL : &s->sink,
                             .runs = &run,
                             .n_runs = 1,
                             .visible = s->n};
    double *scratch = malloc(kvb_attention_scratch(s->n, DIM) * sizeof *scratch), lse;
    kvb_bound_row row;
    kvb_bound_term terms[DIM];
    precise p;
    precise_init(&p);
    kvb_attention_solve(&a, scratch, &row, &lse, terms);
    solve(&a, &p);
    /* A logit's own rounding moves its weight: that many are part of any sum in double. */
    double largest = row.a_max + fabs(row.logit_max) + 1;
    for (uint32_t c = 0; c < DIM; c++) {
        double mass = mpfr_get_d(p.mass[c], MPFR_RNDN);
        *worst = fmax(*worst, roundings(terms[c].o, p.out[c], mass) / largest);
        assert_true(roundings(terms[c].mass, p.mass[c], mass) <=
                    8 * largest + s->n); /* a plain sum: bounds need no more */
    }
    *worst_lse = fmax(*worst_lse, roundings(lse, p.lse, largest));
    precise_clear(&p);
    free(scratch);
    free(k_sum);
    free(k);
    free(v);
}

static void test_scenes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        double worst = 0, worst_lse = 0;
        for (uint64_t seed = 1; seed <= 20; seed++)
            scene_check(&scenes[i], seed, &worst, &worst_lse);
        print_message("# %s: %.2f roundings of an output, %.2f of a log-sum-exp\n", scenes[i].name, worst, worst_lse);
        assert_true(worst <= 16);
        assert_true(worst_lse <= 8);
    }
    mpfr_free_cache();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scenes)};
    return cmocka_run_group_tests_name("the oracle against 113 bits", tests, NULL, NULL);
}
