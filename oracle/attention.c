/* SPDX-License-Identifier: Apache-2.0 */
/* Exact attention of one row: loops over doubles, eight at a time, the same for every instruction set. Errors here are below 1e-12 of a kernel's f32 ones. */
#include "oracle/attention.h"

#include <math.h>
#include <string.h>

#include "kernels/model.h"
#include "oracle/wide.h"

#define INLINE static inline __attribute__((always_inline)) /* into those */

size_t kvb_attention_scratch(uint32_t visible, uint32_t v_dim)
{
    return 5 * (size_t)visible + 10 * (size_t)v_dim;
}

typedef double eight __attribute__((vector_size(64)));
typedef int64_t eight_bits __attribute__((vector_size(64)));

/* The sums of eight vectors: lane i is that of in[i]. */
#define EIGHT_SUMS(in, out)                                                                                            \
    do {                                                                                                               \
        eight two[4], four[2];                                                                                         \
        for (int p = 0; p < 4; p++)                                                                                    \
            two[p] = __builtin_shufflevector((in)[2 * p], (in)[2 * p + 1], 0, 8, 2, 10, 4, 12, 6, 14) +                \
                     __builtin_shufflevector((in)[2 * p], (in)[2 * p + 1], 1, 9, 3, 11, 5, 13, 7, 15);                 \
        for (int p = 0; p < 2; p++)                                                                                    \
            four[p] = __builtin_shufflevector(two[2 * p], two[2 * p + 1], 0, 1, 8, 9, 4, 5, 12, 13) +                  \
                      __builtin_shufflevector(two[2 * p], two[2 * p + 1], 2, 3, 10, 11, 6, 7, 14, 15);                 \
        (out) = __builtin_shufflevector(four[0], four[1], 0, 1, 2, 3, 8, 9, 10, 11) +                                  \
                __builtin_shufflevector(four[0], four[1], 4, 5, 6, 7, 12, 13, 14, 15);                                 \
    } while (0)

typedef enum product { PLAIN, MAGNITUDES, SQUARES } product; /* of q and k; |q k|; of k with itself */

/* A sum of products over channels, for each of n rows that lie one after the other: eight rows at a time, and eight sums for each,
 * so that additions need not wait for one another. */
INLINE void rows_sum(product kind, const double *restrict q, const double *restrict k, uint32_t n, uint32_t dim,
                     double *restrict sums)
{
    for (uint32_t i = 0; i < n; i += 8) {
        const double *row[8];
        eight sum[8] = {{0}}, all, rest = {0}, of_k, of_q;
        uint32_t d = 0, some = n - i < 8 ? n - i : 8;
        for (uint32_t j = 0; j < 8; j++)
            row[j] = k + (size_t)(i + (j < some ? j : 0)) * dim;
        for (; d + 8 <= dim; d += 8) {
            memcpy(&of_q, q + d, sizeof of_q);
            for (uint32_t j = 0; j < 8; j++) {
                memcpy(&of_k, row[j] + d, sizeof of_k);
                of_k *= kind == SQUARES ? of_k : of_q;
                sum[j] += kind == MAGNITUDES ? (eight)((eight_bits)of_k & INT64_MAX) : of_k;
            }
        }
        for (; d < dim; d++)
            for (uint32_t j = 0; j < 8; j++) {
                double each = row[j][d] * (kind == SQUARES ? row[j][d] : q[d]);
                rest[j] += kind == MAGNITUDES ? fabs(each) : each;
            }
        EIGHT_SUMS(sum, all);
        all += rest;
        memcpy(sums + i, &all, some * sizeof *sums);
    }
}

WIDE static void dots(const double *q, const double *k, uint32_t n, uint32_t dim, double *sums)
{
    rows_sum(PLAIN, q, k, n, dim, sums);
}

WIDE static void masses(const double *q, const double *k, uint32_t n, uint32_t dim, double *sums)
{
    rows_sum(MAGNITUDES, q, k, n, dim, sums);
}

WIDE static void squares(const double *q, const double *k, uint32_t n, uint32_t dim, double *sums)
{
    rows_sum(SQUARES, q, k, n, dim, sums);
}

static double norm_of(const double *q, uint32_t dim)
{
    double sum = 0;
    for (uint32_t d = 0; d < dim; d++)
        sum += q[d] * q[d];
    return sqrt(sum);
}

/* fmax(), inline; where one is not a number: a. */
static inline double larger(double a, double b)
{
    return a < b ? b : a;
}

static double largest_of(const double *q, uint32_t dim)
{
    double largest = 0;
    for (uint32_t d = 0; d < dim; d++)
        largest = larger(largest, fabs(q[d]));
    return largest;
}

static double capped(const kvb_attention *a, double s)
{
    return a->softcap > 0 ? a->softcap * tanh(s / a->softcap) : s;
}

/* A_i of n rows from row `at` on: from magnitudes, or by the norms where a transform mixes channels. */
static void reaches(const kvb_attention *a, size_t at, uint32_t n, double q_norm, double *reach)
{
    const double *rows = (a->k_size ? a->k_size : a->k) + at * a->k_dim;
    if (!a->k_size || !a->k_turned) {
        masses(a->q, rows, n, a->k_dim, reach);
        return;
    }
    squares(a->q, rows, n, a->k_dim, reach);
    for (uint32_t i = 0; i < n; i++)
        reach[i] = q_norm * sqrt(reach[i]);
}

/* Logits and their maximum; reach unless it is NULL, and then shift as well. size_norm: as kvb_attention_glance(), or NULL. */
static double logits_of(const kvb_attention *a, const double *size_norm, double *logits, double *reach, double *shift)
{
    const double q_norm = norm_of(a->q, a->k_dim), q_largest = largest_of(a->q, a->k_dim);
    double max = a->sink ? (double)*a->sink : -INFINITY;
    uint32_t i = 0;
    for (size_t r = 0; r < a->n_runs; r++) {
        size_t at = a->k_gathered ? i : a->runs[r].begin;
        const uint32_t n = a->runs[r].end - a->runs[r].begin, end = i + n;
        dots(a->q, a->k + at * a->k_dim, n, a->k_dim, logits + i);
        if (reach && !size_norm)
            reaches(a, at, n, q_norm, reach + i);
        for (; i < end; i++, at++) {
            logits[i] = capped(a, a->scale * logits[i]);
            max = larger(max, logits[i]);
            if (reach && size_norm)
                reach[i] = q_norm * size_norm[at];
            if (reach)
                shift[i] = q_largest * a->k_sum[at];
        }
    }
    return max;
}

double kvb_attention_weigh(const kvb_attention *a, double *logits, double *reach, double *shift)
{
    double max = logits_of(a, NULL, logits, reach, shift);
    if (a->visible == 0 && !a->sink)
        return -INFINITY;
    double sum = a->sink ? exp((double)*a->sink - max) : 0;
    for (uint32_t i = 0; i < a->visible; i++)
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
        row->logit_max = larger(row->logit_max, logits[i]);
    row->weight_sum = exp(lse - row->logit_max);
    for (uint32_t i = 0; i < a->visible; i++) {
        size[i] = fabs(logits[i]) + (row->logit_max - logits[i]) / 2;
        row->a_max = larger(row->a_max, reach[i]);
        row->q_max = larger(row->q_max, shift[i]);
        row->s_max = larger(row->s_max, size[i]);
        row->p_max = larger(row->p_max, weights[i]);
        row->a_mean += weights[i] * reach[i];
        row->q_mean += weights[i] * shift[i];
        row->s_mean += weights[i] * size[i];
    }
    if (!a->sink)
        return 0;
    double sink_size = fabs((double)*a->sink) + (row->logit_max - (double)*a->sink) / 2;
    row->s_max = larger(row->s_max, sink_size);
    row->s_mean += sink_weight * sink_size;
    return sink_size;
}

/* Some V rows, one after the other, with the weights that they have, and their sizes (or the rows themselves). */
typedef struct some_rows {
    const double *v, *sizes, *weights;
    size_t first; /* of the row's visible cells */
} some_rows;

enum { TOGETHER = 4 }; /* rows for each of which a sum is not loaded and stored again */

/* Calls `some(n, …)` for the V rows of all runs, with n of TOGETHER as often as it can be, else of 1. */
#define ALL_V_ROWS(a, weight, some, ...)                                                                               \
    do {                                                                                                               \
        size_t i = 0;                                                                                                  \
        for (size_t r = 0; r < (a)->n_runs; r++)                                                                       \
            for (size_t t = (a)->runs[r].begin, end = (a)->runs[r].end, n; t < end; t += n, i += n) {                  \
                size_t at = ((a)->v_gathered ? i : t) * (a)->v_row;                                                    \
                some_rows rows = {(a)->v + at, ((a)->v_size ? (a)->v_size : (a)->v) + at, (weight) + i, i};            \
                n = end - t < TOGETHER ? 1 : TOGETHER;                                                                 \
                if (n == 1)                                                                                            \
                    some(1, a, &rows, __VA_ARGS__);                                                                    \
                else                                                                                                   \
                    some(TOGETHER, a, &rows, __VA_ARGS__);                                                             \
            }                                                                                                          \
    } while (0)

INLINE void rows_mix(uint32_t n, const kvb_attention *a, const some_rows *rows, double *restrict o)
{
    const double *restrict v = rows->v, *restrict p = rows->weights;
    for (uint32_t c = 0; c < a->v_dim; c++) {
        double sum = o[c];
        for (uint32_t i = 0; i < n; i++)
            sum += p[i] * v[(size_t)i * a->v_row + c];
        o[c] = sum;
    }
}

INLINE void rows_weigh(uint32_t n, const kvb_attention *a, const some_rows *rows, double *restrict mass,
                       double *restrict v_max)
{
    const double *restrict v = rows->v, *restrict sizes = rows->sizes, *restrict p = rows->weights;
    for (uint32_t c = 0; c < a->v_dim; c++) {
        double sum = mass[c], most = v_max[c];
        for (uint32_t i = 0; i < n; i++) {
            size_t at = (size_t)i * a->v_row + c;
            double size = fabs(v[at]);
            size = size < sizes[at] ? sizes[at] : size;
            sum += p[i] * size;
            most = most > size ? most : size;
        }
        mass[c] = sum;
        v_max[c] = most;
    }
}

/* o of every channel. */
WIDE static void output_sums(const kvb_attention *a, const double *weights, double *o)
{
    memset(o, 0, a->v_dim * sizeof *o);
    ALL_V_ROWS(a, weights, rows_mix, o);
}

WIDE static void mass_sums(const kvb_attention *a, const double *weights, double *mass, double *v_max)
{
    memset(mass, 0, a->v_dim * sizeof *mass);
    memset(v_max, 0, a->v_dim * sizeof *v_max);
    ALL_V_ROWS(a, weights, rows_weigh, mass, v_max);
}

/* The sums of p_i |v_ic - o_c| alone, times A_i, times Q_i, times S_i: one channel after the other. */
typedef struct spreads {
    double *alone, *by_a, *by_q, *by_s; /* [v_dim] */
    const double *reach, *shift, *size; /* [visible] A, Q and S of each cell */
} spreads;

INLINE void rows_spread(uint32_t n, const kvb_attention *a, const some_rows *rows, const double *restrict o,
                        const spreads *sums)
{
    const double *restrict v = rows->v, *restrict p = rows->weights;
    const double *restrict cell_a = sums->reach + rows->first, *restrict cell_q = sums->shift + rows->first,
                           *restrict cell_s = sums->size + rows->first;
    double *restrict alone = sums->alone, *restrict by_a = sums->by_a, *restrict by_q = sums->by_q,
                     *restrict by_s = sums->by_s;
    for (uint32_t c = 0; c < a->v_dim; c++) {
        double s1 = alone[c], sa = by_a[c], sq = by_q[c], ss = by_s[c];
        for (uint32_t i = 0; i < n; i++) {
            double part = p[i] * fabs(v[(size_t)i * a->v_row + c] - o[c]);
            s1 += part;
            sa += part * cell_a[i];
            sq += part * cell_q[i];
            ss += part * cell_s[i];
        }
        alone[c] = s1;
        by_a[c] = sa;
        by_q[c] = sq;
        by_s[c] = ss;
    }
}

/* A sink is a cell with v = 0, A = 0 and Q = 0. */
WIDE static void spread_sums(const kvb_attention *a, const double *weights, double sink_weight, double sink_size,
                             const double *o, const spreads *sums)
{
    for (uint32_t c = 0; c < a->v_dim; c++) {
        sums->alone[c] = sink_weight * fabs(o[c]);
        sums->by_a[c] = sums->by_q[c] = 0;
        sums->by_s[c] = sums->alone[c] * sink_size;
    }
    ALL_V_ROWS(a, weights, rows_spread, o, sums);
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
    spreads sums = {.alone = spread,
                    .by_a = spread + dim,
                    .by_q = spread + 2 * dim,
                    .by_s = spread + 3 * dim,
                    .reach = reach,
                    .shift = shift,
                    .size = size};
    double *steps = spread + 4 * dim, *steps2 = steps + dim, *lost = steps2 + dim;

    *lse = kvb_attention_weigh(a, logits, reach, shift);
    for (size_t i = 0; i < n; i++)
        weights[i] = exp(logits[i] - *lse);
    double sink_weight = a->sink ? exp((double)*a->sink - *lse) : 0;
    double sink_size = row_sums(a, weights, logits, reach, shift, sink_weight, *lse, size, row);
    output_sums(a, weights, o);
    mass_sums(a, weights, mass, v_max);
    spread_sums(a, weights, sink_weight, sink_size, o, &sums);
    for (size_t c = 0; c < dim; c++) {
        terms[c] = (kvb_bound_term){.o = o[c],
                                    .spread = sums.alone[c],
                                    .spread_a = sums.by_a[c],
                                    .spread_q = sums.by_q[c],
                                    .spread_s = sums.by_s[c],
                                    .mass = mass[c],
                                    .v_max = v_max[c]};
        row->v_largest = larger(row->v_largest, v_max[c]);
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
    double max = logits_of(a, size_norm, logits, reach, shift);
    double sink = a->sink ? exp((double)*a->sink - max) : 0, sum = sink;
    for (uint32_t i = 0; i < n; i++)
        sum += weights[i] = exp(logits[i] - max);
    *lse = n || a->sink ? max + log(sum) : -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        weights[i] /= sum;
    row_sums(a, weights, logits, reach, shift, a->sink ? sink / sum : 0, *lse, size, row);
    output_sums(a, weights, o);
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
    output_sums(original, weights, o);

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
