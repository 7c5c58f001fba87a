/* SPDX-License-Identifier: Apache-2.0 */
/* Exact attention of one row: plain double loops. Errors here are below 1e-12 of a kernel's f32 ones. */
#include "oracle/attention.h"

#include <math.h>
#include <string.h>

#include "kernels/model.h"

/* For loops over channels: compiled for wider vectors as well. Each element goes through the same operations (products and
 * sums are never contracted), so the bits are the same. Sanitizers cannot run before main(), where one is chosen. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WIDE
#else
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

size_t kvb_attention_scratch(uint32_t visible, uint32_t v_dim)
{
    return 5 * (size_t)visible + 10 * (size_t)v_dim;
}

/* q.k and |q|.|k|. Many partial sums each: only so that additions need not wait for one another. */
WIDE static double dot_with_reach(const double *q, const double *k, uint32_t dim, double *reach)
{
    enum { SUMS = 16 };
    double dot[SUMS] = {0}, mass[SUMS] = {0};
    uint32_t d = 0;
    for (; d + SUMS <= dim; d += SUMS)
        for (uint32_t j = 0; j < SUMS; j++) {
            double product = q[d + j] * k[d + j];
            dot[j] += product;
            mass[j] += fabs(product);
        }
    for (; d < dim; d++) {
        double product = q[d] * k[d];
        dot[0] += product;
        mass[0] += fabs(product);
    }
    for (uint32_t n = SUMS / 2; n > 0; n /= 2)
        for (uint32_t j = 0; j < n; j++) {
            dot[j] += dot[j + n];
            mass[j] += mass[j + n];
        }
    *reach = mass[0];
    return dot[0];
}

/* q.k alone. */
WIDE static double dot(const double *restrict q, const double *restrict k, uint32_t dim)
{
    enum { SUMS = 32 };
    double sum[SUMS] = {0};
    uint32_t d = 0;
    for (; d + SUMS <= dim; d += SUMS)
        for (uint32_t j = 0; j < SUMS; j++)
            sum[j] += q[d + j] * k[d + j];
    for (; d < dim; d++)
        sum[0] += q[d] * k[d];
    for (uint32_t n = SUMS / 2; n > 0; n /= 2)
        for (uint32_t j = 0; j < n; j++)
            sum[j] += sum[j + n];
    return sum[0];
}

/* A_i from magnitudes: |q|.size, or the product of the norms where a transform mixes channels. */
static double reach_of(const kvb_attention *a, const double *size, double q_norm)
{
    double sum[4] = {0};
    for (uint32_t d = 0; d < a->k_dim; d++)
        sum[d % 4] += size[d] * (a->k_turned ? size[d] : fabs(a->q[d]));
    double all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return a->k_turned ? q_norm * sqrt(all) : all;
}

static double norm_of(const double *q, uint32_t dim)
{
    double sum = 0;
    for (uint32_t d = 0; d < dim; d++)
        sum += q[d] * q[d];
    return sqrt(sum);
}

static double largest_of(const double *q, uint32_t dim)
{
    double largest = 0;
    for (uint32_t d = 0; d < dim; d++)
        largest = fmax(largest, fabs(q[d]));
    return largest;
}

static double capped(const kvb_attention *a, double s)
{
    return a->softcap > 0 ? a->softcap * tanh(s / a->softcap) : s;
}

double kvb_attention_weigh(const kvb_attention *a, double *logits, double *reach, double *shift)
{
    double q_norm = a->k_turned ? norm_of(a->q, a->k_dim) : 0, q_largest = largest_of(a->q, a->k_dim);
    double max = a->sink ? (double)*a->sink : -INFINITY;
    uint32_t i = 0;
    for (size_t r = 0; r < a->n_runs; r++)
        for (uint32_t t = a->runs[r].begin; t < a->runs[r].end; t++, i++) {
            size_t row = a->k_gathered ? i : t, at = row * a->k_dim;
            double mass, s = a->scale * dot_with_reach(a->q, a->k + at, a->k_dim, &mass);
            logits[i] = capped(a, s);
            if (reach) {
                reach[i] = a->k_size ? reach_of(a, a->k_size + at, q_norm) : mass;
                shift[i] = q_largest * a->k_sum[row];
            }
            max = fmax(max, logits[i]);
        }
    if (a->visible == 0 && !a->sink)
        return -INFINITY;
    double sum = a->sink ? exp((double)*a->sink - max) : 0;
    for (i = 0; i < a->visible; i++)
        sum += exp(logits[i] - max);
    return max + log(sum);
}

/* Sums of the whole row, and size[i] = S_i = |s_i| + (s_max - s_i) / 2 (oracle/bound.h). Returns the S of
 * the sink, 0 without one. */
static double row_sums(const kvb_attention *a, const double *weights, const double *logits, const double *reach,
                       const double *shift, double sink_weight, double lse, double *size, kvb_bound_row *row)
{
    *row = (kvb_bound_row){.visible = a->visible,
                           .q_largest = largest_of(a->q, a->k_dim),
                           .logit_max = a->sink ? (double)*a->sink : -INFINITY,
                           .v_mix = a->v_mix,
                           .step = a->step};
    if (a->visible == 0 && !a->sink)
        return 0;
    for (uint32_t i = 0; i < a->visible; i++)
        row->logit_max = fmax(row->logit_max, logits[i]);
    row->weight_sum = exp(lse - row->logit_max);
    for (uint32_t i = 0; i < a->visible; i++) {
        size[i] = fabs(logits[i]) + (row->logit_max - logits[i]) / 2;
        row->a_max = fmax(row->a_max, reach[i]);
        row->q_max = fmax(row->q_max, shift[i]);
        row->s_max = fmax(row->s_max, size[i]);
        row->p_max = fmax(row->p_max, weights[i]);
        row->a_mean += weights[i] * reach[i];
        row->q_mean += weights[i] * shift[i];
        row->s_mean += weights[i] * size[i];
    }
    if (!a->sink)
        return 0;
    double sink_size = fabs((double)*a->sink) + (row->logit_max - (double)*a->sink) / 2;
    row->s_max = fmax(row->s_max, sink_size);
    row->s_mean += sink_weight * sink_size;
    return sink_size;
}

/* o, mass and v_max of every channel. mass and v_max may be NULL together. */
WIDE static void output_sums(const kvb_attention *a, const double *weights, double *restrict o, double *restrict mass,
                             double *restrict v_max)
{
    uint32_t i = 0, dim = a->v_dim;
    memset(o, 0, dim * sizeof *o);
    if (mass) {
        memset(mass, 0, dim * sizeof *mass);
        memset(v_max, 0, dim * sizeof *v_max);
    }
    for (size_t r = 0; r < a->n_runs; r++)
        for (uint32_t t = a->runs[r].begin; t < a->runs[r].end; t++, i++) {
            size_t at = (size_t)(a->v_gathered ? i : t) * a->v_row;
            const double *restrict v = a->v + at, *restrict sizes = a->v_size ? a->v_size + at : v;
            double p = weights[i];
            for (uint32_t c = 0; c < dim; c++)
                o[c] += p * v[c];
            for (uint32_t c = 0; mass && c < dim; c++) {
                double size = fabs(v[c]);
                size = size < sizes[c] ? sizes[c] : size;
                mass[c] += p * size;
                v_max[c] = v_max[c] > size ? v_max[c] : size;
            }
        }
}

/* The sums of p_i |v_ic - o_c| alone, times A_i, times Q_i, times S_i: one channel after the other. */
typedef struct spreads {
    double *alone, *by_a, *by_q, *by_s; /* [v_dim] */
} spreads;

/* reach, shift, size: A, Q and S of each cell. A sink is a cell with v = 0, A = 0 and Q = 0. */
WIDE static void spread_sums(const kvb_attention *a, const double *weights, const double *reach, const double *shift,
                             const double *size, double sink_weight, double sink_size, const double *restrict o,
                             const spreads *sums)
{
    uint32_t i = 0, dim = a->v_dim;
    double *restrict alone = sums->alone, *restrict by_a = sums->by_a, *restrict by_q = sums->by_q,
                     *restrict by_s = sums->by_s;
    for (uint32_t c = 0; c < dim; c++) {
        alone[c] = sink_weight * fabs(o[c]);
        by_a[c] = by_q[c] = 0;
        by_s[c] = alone[c] * sink_size;
    }
    for (size_t r = 0; r < a->n_runs; r++)
        for (uint32_t t = a->runs[r].begin; t < a->runs[r].end; t++, i++) {
            const double *restrict v = a->v + (size_t)(a->v_gathered ? i : t) * a->v_row;
            double p = weights[i], cell_a = reach[i], cell_q = shift[i], cell_s = size[i];
            for (uint32_t c = 0; c < dim; c++) {
                double part = p * fabs(v[c] - o[c]);
                alone[c] += part;
                by_a[c] += part * cell_a;
                by_q[c] += part * cell_q;
                by_s[c] += part * cell_s;
            }
        }
}

/* W_ic (oracle/bound.h) of the row at v and size. */
static inline double whole_of(double v, double size)
{
    v = fabs(v);
    return v < size ? size : v;
}

/* The sums of what rounding weights to steps may do. most: sums.step/2 of the largest weight times the largest V. */
WIDE static void step_sums(const kvb_attention *a, const double *weights, double most, double *restrict steps,
                           double *restrict steps2, double *restrict lost)
{
    uint32_t i = 0, dim = a->v_dim;
    memset(steps, 0, dim * sizeof *steps);
    memset(steps2, 0, dim * sizeof *steps2);
    memset(lost, 0, dim * sizeof *lost);
    for (size_t r = 0; r < a->n_runs; r++)
        for (uint32_t t = a->runs[r].begin; t < a->runs[r].end; t++, i++) {
            size_t at = (size_t)(a->v_gathered ? i : t) * a->v_row;
            const double *restrict v = a->v + at, *restrict sizes = a->v_size ? a->v_size + at : v;
            double p = weights[i], row = 0;
            for (uint32_t c = 0; a->v_offset && c < a->v_row; c++) {
                double whole = whole_of(v[c], sizes[c]);
                row = row < whole ? whole : row;
            }
            for (uint32_t c = 0; c < dim; c++) {
                double whole = whole_of(v[c], sizes[c]), itself = p * (whole < row ? row : whole);
                double off = itself < most ? itself : most;
                steps[c] += off;
                steps2[c] += off * off;
                lost[c] += itself > most ? 0 : a->v_offset ? itself : p * v[c];
            }
        }
}

void kvb_attention_solve(const kvb_attention *a, double *scratch, kvb_bound_row *row, double *lse,
                         kvb_bound_term *terms)
{
    size_t n = a->visible, dim = a->v_dim;
    double *logits = scratch, *reach = logits + n, *shift = reach + n, *weights = shift + n, *size = weights + n;
    double *o = size + n, *mass = o + dim, *v_max = mass + dim, *spread = v_max + dim;
    spreads sums = {.alone = spread, .by_a = spread + dim, .by_q = spread + 2 * dim, .by_s = spread + 3 * dim};
    double *steps = spread + 4 * dim, *steps2 = steps + dim, *lost = steps2 + dim;

    *lse = kvb_attention_weigh(a, logits, reach, shift);
    for (size_t i = 0; i < n; i++)
        weights[i] = exp(logits[i] - *lse);
    double sink_weight = a->sink ? exp((double)*a->sink - *lse) : 0;
    double sink_size = row_sums(a, weights, logits, reach, shift, sink_weight, *lse, size, row);
    output_sums(a, weights, o, mass, v_max);
    spread_sums(a, weights, reach, shift, size, sink_weight, sink_size, o, &sums);
    for (size_t c = 0; c < dim; c++) {
        terms[c] = (kvb_bound_term){.o = o[c],
                                    .spread = sums.alone[c],
                                    .spread_a = sums.by_a[c],
                                    .spread_q = sums.by_q[c],
                                    .spread_s = sums.by_s[c],
                                    .mass = mass[c],
                                    .v_max = v_max[c]};
        row->v_largest = fmax(row->v_largest, v_max[c]);
    }
    if (a->step > 0)
        step_sums(a, weights, a->step / 2 * row->p_max * row->v_largest, steps, steps2, lost);
    for (size_t c = 0; a->step > 0 && c < dim; c++) {
        terms[c].steps = steps[c];
        terms[c].steps2 = steps2[c];
        terms[c].lost = fabs(lost[c]);
    }
}

void kvb_attention_glance(const kvb_attention *a, const double *size_norm, double *scratch, kvb_bound_row *row,
                          double *lse, double *o)
{
    size_t n = a->visible;
    double *logits = scratch, *reach = logits + n, *shift = reach + n, *weights = shift + n, *size = weights + n;
    double q_norm = norm_of(a->q, a->k_dim), q_largest = largest_of(a->q, a->k_dim);
    double max = a->sink ? (double)*a->sink : -INFINITY;
    uint32_t i = 0;
    for (size_t r = 0; r < a->n_runs; r++)
        for (uint32_t t = a->runs[r].begin; t < a->runs[r].end; t++, i++) {
            size_t at = a->k_gathered ? i : t;
            double s = a->scale * dot(a->q, a->k + at * a->k_dim, a->k_dim);
            logits[i] = capped(a, s);
            reach[i] = q_norm * size_norm[at];
            shift[i] = q_largest * a->k_sum[at];
            max = fmax(max, logits[i]);
        }
    double sink = a->sink ? exp((double)*a->sink - max) : 0, sum = sink;
    for (i = 0; i < n; i++)
        sum += weights[i] = exp(logits[i] - max);
    *lse = n || a->sink ? max + log(sum) : -INFINITY;
    for (i = 0; i < n; i++)
        weights[i] /= sum;
    row_sums(a, weights, logits, reach, shift, a->sink ? sink / sum : 0, *lse, size, row);
    output_sums(a, weights, o, NULL, NULL);
}

void kvb_format_row_compare(const kvb_attention *original, const double *stored_logits, double stored_lse,
                            const kvb_bound_term *stored_terms, double *scratch, kvb_format_row *result)
{
    size_t n = original->visible, dim = original->v_dim;
    double *logits = scratch, *weights = logits + n, *o = weights + n;

    double lse = kvb_attention_weigh(original, logits, NULL, NULL);
    double kl = original->sink ? exp((double)*original->sink - lse) * (stored_lse - lse) : 0;
    for (size_t i = 0; i < n; i++) {
        weights[i] = exp(logits[i] - lse);
        /* 0 log 0 = 0; a weight that underflowed in the stored rows only still has a finite logarithm */
        if (weights[i] > 0)
            kl += weights[i] * ((logits[i] - lse) - (stored_logits[i] - stored_lse));
    }
    output_sums(original, weights, o, NULL, NULL);

    *result = (kvb_format_row){.kl = kl < 0 ? 0 : kl}; /* below 0 only by rounding */
    for (size_t c = 0; c < dim; c++) {
        double error = fabs(stored_terms[c].o - o[c]);
        if (isnan(error))
            error = INFINITY;
        result->max_abs = fmax(result->max_abs, error);
        result->error2 += error * error;
        result->exact2 += o[c] * o[c];
    }
}
