/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: exact attention agrees with its definition, by hand and in long double; the loops of every level give the same
 * bits. */
#include <stdbool.h>

#include "ci/tests/tests.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/attention.h"
#include "oracle/products.h"

/* Shows: exact attention of a row and all its sums agree with hand-computed cases and with long double. */

#define NEAR(a, b) assert_true(fabs((double)(a) - (double)(b)) <= 1e-12 * (1 + fabs((double)(b))))

/* Logits 0 and log 3, so weights 1/4 and 3/4; values 8 and 0. */
TEST(two_cells_by_hand)
{
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
    NEAR(scratch[0], 0); /* scratch keeps the logits */
    NEAR(scratch[1], log3);
    assert_true(t[0].steps == 0 && row.step == 0); /* no step was given */

    /* Weights in steps: most = 0.1 of 3/4 of 8 = 0.6. Products |8|/4 and 0; |-4|/4 and 4*3/4 */
    a.step = 0.2;
    kvb_attention_solve(&a, scratch, &row, &lse, t);
    NEAR(row.step, 0.2);
    NEAR(t[0].steps, 0.6);
    NEAR(t[0].steps2, 0.36);
    NEAR(t[1].steps, 0.6 + 0.6);
    NEAR(t[1].steps2, 0.72);
    a.step = 0.4; /* most = 1.2 exceeds the first product of channel 1: its error is limited to itself */
    kvb_attention_solve(&a, scratch, &row, &lse, t);
    NEAR(t[1].steps, 1 + 1.2);
    NEAR(t[1].lost, 1); /* |-4| / 4, which may become 0 */
    NEAR(t[0].lost, 0); /* the second cell's V is 0 */
    a.v_offset = true;  /* if codes have a zero, the limit is the row's largest product: 8/4 */
    kvb_attention_solve(&a, scratch, &row, &lse, t);
    NEAR(t[1].steps, 1.2 + 1.2);
}

/* Several tiles of cells; a row is one and a half vectors long. */
TEST(steps_of_many_cells)
{
    enum { DIM = 11, CELLS = 500 };
    static double k[CELLS], v[CELLS * DIM], sums[CELLS], scratch[16 * (CELLS + DIM)];
    const double q = 1;
    uint64_t seed = 5;
    double lse, total = 0, weights[CELLS], p_max = 0, v_max = 0;
    kvb_bound_row row;
    kvb_bound_term t[DIM];
    for (uint32_t i = 0; i < CELLS; i++) {
        k[i] = hand_gauss(&seed);
        weights[i] = exp(k[i]);
        total += weights[i];
    }
    for (uint32_t i = 0; i < CELLS * DIM; i++) {
        v[i] = hand_gauss(&seed);
        v_max = fmax(v_max, fabs(v[i]));
    }
    for (uint32_t i = 0; i < CELLS; i++)
        p_max = fmax(p_max, weights[i] /= total);
    kvb_token_run run = {0, CELLS};
    kvb_attention a = {.q = &q,
                       .k = k,
                       .v = v,
                       .k_sum = sums,
                       .k_dim = 1,
                       .v_dim = DIM,
                       .v_row = DIM,
                       .scale = 1,
                       .step = 0.1,
                       .v_offset = true,
                       .runs = &run,
                       .n_runs = 1,
                       .visible = CELLS};
    assert_true(kvb_attention_scratch(CELLS, DIM) <= sizeof scratch / sizeof *scratch);
    kvb_attention_solve(&a, scratch, &row, &lse, t);
    double steps = 0, lost = 0;
    for (uint32_t i = 0; i < CELLS; i++) {
        double largest = 0;
        for (uint32_t c = 0; c < DIM; c++)
            largest = fmax(largest, fabs(v[i * DIM + c]));
        const double itself = weights[i] * largest, most = 0.05 * p_max * v_max;
        steps += fmin(itself, most);
        lost += itself > most ? 0 : itself;
    }
    for (uint32_t c = 0; c < DIM; c++) {
        NEAR(t[c].steps, steps);
        NEAR(t[c].lost, lost);
    }
}

/* No visible cell: 0 and -infinity; with a sink, 0 and its logit. */
TEST(nothing_visible)
{
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

/* s = softcap tanh(scale q.k / softcap) */
static long double logit_of(const kvb_attention *a, const double *k)
{
    long double dot = 0;
    for (uint32_t d = 0; d < a->k_dim; d++)
        dot += (long double)a->q[d] * k[d];
    dot *= a->scale;
    return a->softcap > 0 ? a->softcap * tanhl(dot / a->softcap) : dot;
}

/* The same formulas computed directly: no maximum subtracted, one cell at a time, in long double. */
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
        long double q2 = 0, size2 = 0, size1 = 0, q_largest = 0;
        const double *k = a->k + (a->k_gathered ? i : cells[i]) * a->k_dim;
        reach[i] = 0;
        for (uint32_t d = 0; d < a->k_dim; d++) {
            long double q = (long double)a->q[d],
                        size = a->k_size ? a->k_size[(a->k_gathered ? i : cells[i]) * a->k_dim + d] : fabs(k[d]);
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
        s[i] = logit_of(a, k);
        top = s[i] > top ? s[i] : top;
        z += expl(s[i]);
    }
    NEAR(lse, logl(z));
    NEAR(row.weight_sum, z / expl(top));
    assert_true(row.v_mix == a->v_mix);
    long double a_mean = 0, a_max = 0, q_mean = 0, q_max = 0, s_mean = 0, s_max = 0, p_max = 0, v_largest = 0;
    for (uint32_t i = 0; i < n + (a->sink != NULL); i++) { /* the sink comes last, as a cell with only an S */
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

/* The sums of K's rows that an attention takes as input. */
static void rows_sum(const double *rows, uint32_t n, uint32_t dim, double *sums)
{
    for (uint32_t i = 0; i < n; i++) {
        sums[i] = 0;
        for (uint32_t d = 0; d < dim; d++)
            sums[i] += fabs(rows[i * dim + d]);
    }
}

TEST(against_long_double)
{
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
    sink = -40; /* almost no weight, but the largest S */
    check_directly(&a, cells);
    sink = 2.25f;

    /* separate magnitudes, those of V sometimes below |v| */
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

    /* rows in another order than the tokens': one side, then both */
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

/*
 * Judges the oracle. Shows that its solve in double agrees with the definition of attention in long double, which shares
 * no code with it: each element within 16 roundings of a double, relative to the sum of its terms' magnitudes, for logits
 * from -700 to 4000, rows of one to 3000 cells, softcap, sinks, cancelling and equal values.
 */

enum { DIM = 6 };

static const struct scene {
    const char *name;
    uint32_t n;       /* cells */
    double logit;     /* standard deviation of the logits, about */
    double offset;    /* added to all logits */
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
    long double out[DIM], mass[DIM], lse;
} precise;

/* Computes attention by its definition. It takes exp of each logit as it is: a long double can hold that. */
static void solve(const kvb_attention *a, precise *p)
{
    *p = (precise){.lse = a->sink ? expl((long double)*a->sink) : 0}; /* first the sum of weights */
    for (uint32_t i = 0; i < a->visible; i++) {
        const long double weight = expl(logit_of(a, a->k + (size_t)i * a->k_dim));
        p->lse += weight;
        for (uint32_t c = 0; c < DIM; c++) {
            p->out[c] += weight * a->v[(size_t)i * a->v_row + c];
            p->mass[c] += weight * fabs(a->v[(size_t)i * a->v_row + c]);
        }
    }
    for (uint32_t c = 0; c < DIM; c++) {
        p->out[c] /= p->lse;
        p->mass[c] /= p->lse;
    }
    p->lse = logl(p->lse);
}

/* |got - want| in roundings of a double relative to `of`. */
static double roundings(double got, long double want, double of)
{
    const double error = (double)fabsl((long double)got - want);
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
    kvb_attention_solve(&a, scratch, &row, &lse, terms);
    solve(&a, &p);
    /* Rounding a logit moves its weight, by this many roundings in any sum in double. */
    double largest = row.a_max + fabs(row.logit_max) + 1;
    for (uint32_t c = 0; c < DIM; c++) {
        const double mass = (double)p.mass[c];
        *worst = fmax(*worst, roundings(terms[c].o, p.out[c], mass) / largest);
        assert_true(roundings(terms[c].mass, p.mass[c], mass) <=
                    8 * largest + s->n); /* a plain sum is exact enough for bounds */
    }
    *worst_lse = fmax(*worst_lse, roundings(lse, p.lse, largest));
    free(scratch);
    free(k_sum);
    free(k);
    free(v);
}

TEST(test_scenes)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        double worst = 0, worst_lse = 0;
        for (uint64_t seed = 1; seed <= 20; seed++)
            scene_check(&scenes[i], seed, &worst, &worst_lse);
        print_message("# %s: %.2f roundings of an output, %.2f of a log-sum-exp\n", scenes[i].name, worst, worst_lse);
        assert_true(worst <= 16);
        assert_true(worst_lse <= 8);
    }
}

/* Shows: the oracle's loops give the same bits at every level that this CPU has, also with NaN, and the sums of a plain
 * loop within rounding. */

enum { ROWS = 40, MOST = 192, CELLS = 13 };
#define THERE 0.5

static double k[ROWS * MOST], sizes[ROWS * MOST], q[MOST];
static uint32_t at[CELLS];

static void inputs_make(void)
{
    uint32_t state = 1;
    for (size_t i = 0; i < (size_t)ROWS * MOST; i++) {
        state = state * 1664525u + 1013904223u;
        k[i] = (double)(int32_t)state * 0x1p-31;
        sizes[i] = fabs(k[i]) * (i % 3 ? 1.25 : 0.5);
        q[i % MOST] = k[i] - 0.25;
    }
    for (uint32_t i = 0; i < CELLS; i++)
        at[i] = (i * 17 + 5) % ROWS;
}

typedef struct outcome {
    double dots[2][CELLS], masses[2][CELLS], squares[CELLS], outputs[MOST], mass[2][MOST], v_max[2][MOST],
        spread[4][MOST];
} outcome;

static void all_run(const kvb_products *p, uint32_t dim, outcome *to)
{
    kvb_tile_rows rows = {k, k, at, dim, CELLS, q, q + 20, q + 40, q + 60};
    memset(to, 0, sizeof *to);
    for (uint32_t c = 0; c < dim; c++) { /* sums are added to the old values */
        to->outputs[c] = to->mass[0][c] = to->mass[1][c] = to->v_max[0][c] = to->v_max[1][c] = THERE;
        for (int s = 0; s < 4; s++)
            to->spread[s][c] = THERE;
    }
    p->row_sums(q, k, at, CELLS, dim, to->dots[0], NULL);
    p->row_sums(q, k, at, CELLS, dim, NULL, to->masses[0]);
    p->row_sums(q, k, at, CELLS, dim, to->dots[1], to->masses[1]);
    p->row_sums(NULL, k, at, CELLS, dim, to->squares, NULL);
    p->output_sums(&rows, dim, to->outputs);
    p->mass_sums(&rows, dim, to->mass[0], to->v_max[0]);
    p->spread_sums(&rows, dim, q, (double *[4]){to->spread[0], to->spread[1], to->spread[2], to->spread[3]});
    rows.sizes = sizes;
    p->mass_sums(&rows, dim, to->mass[1], to->v_max[1]);
}

static void close_to(double a, double b)
{
    assert_true(fabs(a - b) < 1e-12);
}

static void plain_agrees(const outcome *o, uint32_t dim)
{
    for (uint32_t i = 0; i < CELLS; i++) {
        double dot = 0, mass = 0, square = 0;
        for (uint32_t d = 0; d < dim; d++) {
            const double x = k[at[i] * dim + d];
            dot += q[d] * x;
            mass += fabs(q[d] * x);
            square += x * x;
        }
        for (int s = 0; s < 2; s++) {
            close_to(o->dots[s][i], dot);
            close_to(o->masses[s][i], mass);
        }
        close_to(o->squares[i], square);
    }
    for (uint32_t c = 0; c < dim; c++) {
        double out = THERE, mass[2] = {THERE, THERE}, most[2] = {THERE, THERE},
               spread[4] = {THERE, THERE, THERE, THERE};
        for (uint32_t i = 0; i < CELLS; i++) {
            const double v = k[at[i] * dim + c], off = q[i] * fabs(v - q[c]);
            const double size[2] = {fabs(v), fmax(fabs(v), sizes[at[i] * dim + c])};
            out += q[i] * v;
            for (int s = 0; s < 2; s++) {
                mass[s] += q[i] * size[s];
                most[s] = fmax(most[s], size[s]);
            }
            for (int s = 0; s < 4; s++)
                spread[s] += s ? off * q[20 * s + (int)i] : off;
        }
        close_to(o->outputs[c], out);
        for (int s = 0; s < 2; s++) {
            close_to(o->mass[s][c], mass[s]);
            close_to(o->v_max[s][c], most[s]);
        }
        for (int s = 0; s < 4; s++)
            close_to(o->spread[s][c], spread[s]);
    }
}

static void levels_agree_on(uint32_t dim, bool finite)
{
    static outcome portable, other;
    all_run(kvb_products_at(0), dim, &portable);
    if (finite)
        plain_agrees(&portable, dim);
    for (unsigned level = 1; kvb_products_at(level); level++) {
        all_run(kvb_products_at(level), dim, &other);
        assert_memory_equal(&portable, &other, sizeof other);
    }
}

TEST(levels_agree)
{
    static const uint32_t dims[] = {1, 3, 8, 16, 20, 31, 64, 80, 127, 128, 129, 192};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
        inputs_make();
        levels_agree_on(dims[d], true);
        sizes[at[1] * dims[d]] = k[at[2] * dims[d] + dims[d] / 2] = NAN; /* a maximum must not depend on the order */
        levels_agree_on(dims[d], false);
    }
}
