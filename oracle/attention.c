/* SPDX-License-Identifier: Apache-2.0 */
/* Exact attention of rows that see the same cells. Cells are taken in tiles, so each is read from memory once for all
 * rows. Errors here are below 1e-12 of a kernel's f32 ones. */
#include "oracle/attention.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/model.h"
#include "oracle/products.h"
#include "workloads/array.h"

/* Which of the compiled loops this CPU runs. */

extern const kvb_products kvb_products_portable, kvb_products_avx2, kvb_products_avx512;

const kvb_products *kvb_products_at(unsigned level)
{
#ifdef __x86_64__
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
               avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const kvb_products *const here[] = {&kvb_products_portable, avx2 ? &kvb_products_avx2 : NULL,
                                        avx512 ? &kvb_products_avx512 : NULL};
#else
    const kvb_products *const here[] = {&kvb_products_portable, NULL, NULL};
#endif
    return level < sizeof here / sizeof *here ? here[level] : NULL;
}

size_t kvb_attention_scratch(uint32_t visible, uint32_t v_dim)
{
    return KVB_ATTENTION_CELLS * (size_t)visible + KVB_ATTENTION_CHANNELS * (size_t)v_dim;
}

/* A row's scratch: arrays by visible cell, then arrays by channel. */
enum { LOGITS, WEIGHTS, REACH, SHIFT, SIZES, BY_CELL };
enum { OUTPUT, MASS, V_MAX, ALONE, BY_A, BY_Q, BY_S, STEPS, STEPS2, LOST, MEAN, BY_CHANNEL };
_Static_assert(BY_CELL <= KVB_ATTENTION_CELLS && BY_CHANNEL <= KVB_ATTENTION_CHANNELS, "arrays of a row");

static void row_begin(kvb_attention_row *r)
{
    const kvb_attention *a = &r->a;
    for (size_t i = 0; i < BY_CELL; i++)
        r->cells[i] = r->scratch + i * a->visible;
    for (size_t i = 0; i < BY_CHANNEL; i++)
        r->channels[i] = r->scratch + BY_CELL * (size_t)a->visible + i * a->v_dim;
    for (unsigned level = 0; kvb_products_at(level); level++) /* the highest level of this CPU */
        r->products = kvb_products_at(level);
    r->logit_max = a->sink ? (double)*a->sink : -INFINITY;
    double sum = 0, largest = 0;
    for (uint32_t d = 0; d < a->k_dim; d++) {
        sum += a->q[d] * a->q[d];
        largest = kvb_larger(largest, fabs(a->q[d]));
    }
    r->q_norm = sqrt(sum);
    r->q_largest = largest;
}

#define LOGITS_ALIKE 0x1p-20 /* largest difference of logits that make equal weights */

/* Bytes of a tile of cells: it stays in the first-level cache while one row after the other reads it. */
#define TILE_BYTES (16u << 10)
#define TILE_CELLS 128u /* at most */

/* Some of the cells that rows see, of one run or of many; begin with {0}. */
typedef struct tile {
    size_t i, n, run;        /* visible cells i .. i + n - 1; the next run */
    uint32_t next, end;      /* tokens of this run that are left */
    uint32_t at[TILE_CELLS]; /* their rows */
} tile;

/* Fills in the next tile of rows, each of `dim` doubles. If gathered, memory holds only the rows that are seen, one
 * after the other. Returns false at the end. */
static bool tile_next(const kvb_attention *a, uint32_t dim, bool gathered, tile *t)
{
    size_t most = TILE_BYTES / sizeof(double) / dim / 8 * 8;
    most = most < 8 ? 8 : most > TILE_CELLS ? TILE_CELLS : most;
    t->i += t->n;
    t->n = 0;
    while (t->n < most && (t->next < t->end || t->run < a->n_runs)) {
        if (t->next == t->end) {
            t->next = a->runs[t->run].begin;
            t->end = a->runs[t->run++].end;
            continue;
        }
        t->at[t->n] = gathered ? (uint32_t)(t->i + t->n) : t->next;
        t->n++;
        t->next++;
    }
    return t->n > 0;
}

/* q k of a tile's rows, and A_i (oracle/bound.h): from magnitudes, or by the norms where a transform mixes channels. */
static void reaches_and_dots(const kvb_attention_row *r, const tile *t, double *dots, double *reach)
{
    const kvb_attention *a = &r->a;
    const uint32_t n = (uint32_t)t->n;
    if (!a->k_size) {
        r->products->row_sums(a->q, a->k, t->at, n, a->k_dim, dots, reach);
        return;
    }
    r->products->row_sums(a->q, a->k, t->at, n, a->k_dim, dots, NULL);
    if (!a->k_turned) {
        r->products->row_sums(a->q, a->k_size, t->at, n, a->k_dim, NULL, reach);
        return;
    }
    r->products->row_sums(NULL, a->k_size, t->at, n, a->k_dim, reach, NULL);
    for (uint32_t i = 0; i < n; i++)
        reach[i] = r->q_norm * sqrt(reach[i]);
}

/* Logits of a tile; with reaches: A_i and Q_i (oracle/bound.h) as well. size_norm: as kvb_attention_glance(), or NULL.
 */
static void tile_weigh(kvb_attention_row *r, const tile *t, bool with_reaches, const double *size_norm)
{
    const kvb_attention *a = &r->a;
    double *logits = r->cells[LOGITS] + t->i, *reach = r->cells[REACH] + t->i, *shift = r->cells[SHIFT] + t->i;
    if (with_reaches && !size_norm)
        reaches_and_dots(r, t, logits, reach);
    else
        r->products->row_sums(a->q, a->k, t->at, (uint32_t)t->n, a->k_dim, logits, NULL);
    for (size_t i = 0; i < t->n; i++) {
        logits[i] *= a->scale;
        logits[i] = a->softcap > 0 ? a->softcap * tanh(logits[i] / a->softcap) : logits[i];
        r->logit_max = kvb_larger(r->logit_max, logits[i]);
    }
    for (size_t i = 0; with_reaches && i < t->n; i++) {
        if (size_norm)
            reach[i] = r->q_norm * size_norm[t->at[i]];
        shift[i] = r->q_largest * a->k_sum[t->at[i]];
    }
}

/* Logits of n rows that see the same cells, and the largest logit of each row. */
static void rows_weigh_all(kvb_attention_row *rows, uint32_t n, bool with_reaches, const double *size_norm)
{
    const kvb_attention *a = &rows->a;
    for (uint32_t r = 0; r < n; r++)
        row_begin(&rows[r]);
    for (tile t = {0}; tile_next(a, a->k_dim, a->k_gathered, &t);)
        for (uint32_t r = 0; r < n; r++)
            tile_weigh(&rows[r], &t, with_reaches, size_norm);
}

/* Weights of the cells, from logits. Returns the log-sum-exp. */
static double row_weigh(const kvb_attention_row *r)
{
    const kvb_attention *a = &r->a;
    const double *logits = r->cells[LOGITS], max = r->logit_max;
    double *weights = r->cells[WEIGHTS];
    if (a->visible == 0 && !a->sink)
        return -INFINITY;
    double sum = a->sink ? exp((double)*a->sink - max) : 0;
    for (uint32_t i = 0; i < a->visible; i++)
        sum += weights[i] = exp(logits[i] - max);
    for (uint32_t i = 0; i < a->visible; i++)
        weights[i] /= sum;
    return max + log(sum);
}

/* Sums of the whole row, and S_i = |s_i| + (s_max - s_i) / 2 (oracle/bound.h) of each cell. Returns the S of the sink,
 * 0 without one. */
static double row_sums(kvb_attention_row *r, double sink_weight)
{
    const kvb_attention *a = &r->a;
    const double *weights = r->cells[WEIGHTS], *logits = r->cells[LOGITS], *reach = r->cells[REACH],
                 *shift = r->cells[SHIFT];
    double *size = r->cells[SIZES];
    kvb_bound_row *row = r->row;
    *row = (kvb_bound_row){.visible = a->visible,
                           .q_largest = r->q_largest,
                           .logit_max = r->logit_max,
                           .v_mix = a->v_mix,
                           .step = a->step};
    if (a->visible == 0 && !a->sink)
        return 0;
    kvb_bound_row sums = *row; /* a copy in registers: the compiler cannot know that *row lies in no array */
    uint32_t heaviest = 0;
    double least = INFINITY, most = -INFINITY;
    sums.weight_sum = exp(*r->lse - row->logit_max);
    for (uint32_t i = 0; i < a->visible; i++) {
        size[i] = fabs(logits[i]) + (sums.logit_max - logits[i]) / 2;
        sums.a_max = kvb_larger(sums.a_max, reach[i]);
        sums.q_max = kvb_larger(sums.q_max, shift[i]);
        sums.s_max = kvb_larger(sums.s_max, size[i]);
        if (weights[i] > sums.p_max)
            sums.p_max = weights[heaviest = i];
        sums.a_mean += weights[i] * reach[i];
        sums.q_mean += weights[i] * shift[i];
        sums.s_mean += weights[i] * size[i];
        least = logits[i] < least ? logits[i] : least;
        most = kvb_larger(most, logits[i]);
    }
    *row = sums;
    r->heaviest = heaviest;
    row->equal = (a->sink || a->v == a->k) && most - least < LOGITS_ALIKE;
    if (!a->sink)
        return 0;
    double sink_size = fabs((double)*a->sink) + (row->logit_max - (double)*a->sink) / 2;
    row->s_max = kvb_larger(row->s_max, sink_size);
    row->s_mean += sink_weight * sink_size;
    return sink_size;
}

static kvb_tile_rows rows_of(const kvb_attention_row *r, const tile *t)
{
    const kvb_attention *a = &r->a;
    return (kvb_tile_rows){.v = a->v,
                           .sizes = a->v_size ? a->v_size : a->v,
                           .at = t->at,
                           .row = a->v_row,
                           .n = t->n,
                           .weights = r->cells[WEIGHTS] + t->i,
                           .reach = r->cells[REACH] + t->i,
                           .shift = r->cells[SHIFT] + t->i,
                           .size = r->cells[SIZES] + t->i};
}

static void output_sums(const kvb_attention_row *r, const tile *t)
{
    const kvb_tile_rows rows = rows_of(r, t);
    r->products->output_sums(&rows, r->a.v_dim, r->channels[OUTPUT]);
}

static void output_and_mass_sums(const kvb_attention_row *r, const tile *t)
{
    const kvb_tile_rows rows = rows_of(r, t);
    r->products->output_sums(&rows, r->a.v_dim, r->channels[OUTPUT]);
    r->products->mass_sums(&rows, r->a.v_dim, r->channels[MASS], r->channels[V_MAX]);
}

static void spread_sums(const kvb_attention_row *r, const tile *t)
{
    const kvb_tile_rows rows = rows_of(r, t);
    r->products->spread_sums(
        &rows, r->a.v_dim, r->channels[OUTPUT],
        (double *[4]){r->channels[ALONE], r->channels[BY_A], r->channels[BY_Q], r->channels[BY_S]});
}

/* W_ic (oracle/bound.h) of the row at v and size. */
static inline double whole_of(double v, double size)
{
    v = fabs(v);
    return v < size ? size : v;
}

#define LANES 8u /* of a maximum: the compiler keeps the order of one, and would compare one element after the other */

/* The largest W_ic of a row. */
static inline double largest_whole(const double *v, const double *sizes, uint32_t n)
{
    double lanes[LANES] = {0};
    for (uint32_t first = 0; first + LANES <= n; first += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            lanes[l] = kvb_larger(lanes[l], whole_of(v[first + l], sizes[first + l]));
    for (uint32_t c = n / LANES * LANES; c < n; c++)
        lanes[0] = kvb_larger(lanes[0], whole_of(v[c], sizes[c]));
    for (uint32_t l = 1; l < LANES; l++)
        lanes[0] = kvb_larger(lanes[0], lanes[l]);
    return lanes[0];
}

/* Sums of the errors that weights in steps may make. */
KVB_WIDE static void step_sums(const kvb_attention_row *r, const tile *t)
{
    const kvb_attention *a = &r->a;
    const double most = a->step / 2 * r->row->p_max * r->row->v_largest;
    double *restrict steps = r->channels[STEPS], *restrict steps2 = r->channels[STEPS2],
                     *restrict lost = r->channels[LOST];
    for (size_t i = 0; i < t->n; i++) {
        const size_t at = t->at[i] * (size_t)a->v_row;
        const double *restrict v = a->v + at, *restrict sizes = a->v_size ? a->v_size + at : v;
        const double p = r->cells[WEIGHTS][t->i + i], row = a->v_offset ? largest_whole(v, sizes, a->v_row) : 0;
        for (uint32_t c = 0; c < a->v_dim; c++) {
            double whole = whole_of(v[c], sizes[c]), itself = p * (whole < row ? row : whole);
            double off = itself < most ? itself : most;
            steps[c] += off;
            steps2[c] += off * off;
            lost[c] += itself > most ? 0 : a->v_offset ? itself : p * v[c];
        }
    }
}

static void spread_and_step_sums(const kvb_attention_row *r, const tile *t)
{
    spread_sums(r, t);
    step_sums(r, t);
}

/* Sums over all cells, tile by tile, of n rows that see the same cells. */
static void tiles_sum(const kvb_attention_row *rows, uint32_t n,
                      void (*sums)(const kvb_attention_row *r, const tile *t))
{
    for (tile t = {0}; tile_next(&rows->a, rows->a.v_row, rows->a.v_gathered, &t);)
        for (uint32_t r = 0; r < n; r++)
            sums(&rows[r], &t);
}

static void mean_sums(const kvb_attention_row *r, const tile *t)
{
    double ones[TILE_CELLS];
    kvb_tile_rows rows = rows_of(r, t);
    for (size_t i = 0; i < t->n; i++)
        ones[i] = 1;
    rows.weights = ones;
    r->products->output_sums(&rows, r->a.v_dim, r->channels[MEAN]);
}

/* V of visible cell i. */
static const double *v_of(const kvb_attention *a, uint32_t i)
{
    const uint32_t number = i;
    for (size_t r = 0; !a->v_gathered; i -= a->runs[r].end - a->runs[r].begin, r++)
        if (i < a->runs[r].end - a->runs[r].begin)
            return a->v + (size_t)(a->runs[r].begin + i) * a->v_row;
    return a->v + (size_t)number * a->v_row;
}

#define LEAST_REST 0x1p-30 /* least 1 - p: below, (o - p v) / (1 - p) has less than 23 correct bits */

/* Distances of the output from wrong ones (oracle/claim.h). */
static void others_fill(const kvb_attention_row *r, const double *mean)
{
    const double *o = r->channels[OUTPUT], p = r->row->p_max;
    const double *v = v_of(&r->a, r->heaviest);
    for (size_t c = 0; c < r->a.v_dim; c++) {
        r->terms[c].mean_off = (float)fabs(mean[c] - o[c]);
        r->terms[c].rest_off = 1 - p > LEAST_REST ? (float)(p / (1 - p) * fabs(o[c] - v[c])) : 0;
    }
}

static double sink_weight_of(const kvb_attention_row *r)
{
    return r->a.sink ? exp((double)*r->a.sink - *r->lse) : 0;
}

static void terms_fill(const kvb_attention_row *r)
{
    const kvb_attention *a = &r->a;
    const size_t dim = a->v_dim;
    const double *sums = r->channels[OUTPUT];
    for (size_t c = 0; c < dim; c++) {
        r->terms[c] = (kvb_bound_term){.o = sums[OUTPUT * dim + c],
                                       .spread = sums[ALONE * dim + c],
                                       .spread_a = sums[BY_A * dim + c],
                                       .spread_q = sums[BY_Q * dim + c],
                                       .spread_s = sums[BY_S * dim + c],
                                       .mass = sums[MASS * dim + c],
                                       .v_max = sums[V_MAX * dim + c]};
    }
    for (size_t c = 0; c < dim && a->step > 0; c++) {
        r->terms[c].steps = sums[STEPS * dim + c];
        r->terms[c].steps2 = sums[STEPS2 * dim + c];
        r->terms[c].lost = fabs(sums[LOST * dim + c]);
    }
}

void kvb_attention_solve_rows(kvb_attention_row *rows, uint32_t n)
{
    double sink_size[KVB_ATTENTION_ROWS];
    rows_weigh_all(rows, n, true, NULL);
    for (uint32_t i = 0; i < n; i++) {
        kvb_attention_row *r = &rows[i];
        *r->lse = row_weigh(r);
        sink_size[i] = row_sums(r, sink_weight_of(r));
        memset(r->channels[OUTPUT], 0, MEAN * r->a.v_dim * sizeof(double));
    }
    tiles_sum(rows, n, output_and_mass_sums);
    for (uint32_t i = 0; i < n; i++) { /* a sink is a cell with v = 0, A = 0 and Q = 0 */
        const double *o = rows[i].channels[OUTPUT], sink_weight = sink_weight_of(&rows[i]);
        for (uint32_t c = 0; c < rows->a.v_dim; c++) {
            rows[i].channels[ALONE][c] = sink_weight * fabs(o[c]);
            rows[i].channels[BY_S][c] = rows[i].channels[ALONE][c] * sink_size[i];
            rows[i].row->v_largest = kvb_larger(rows[i].row->v_largest, rows[i].channels[V_MAX][c]);
        }
    }
    tiles_sum(rows, n, rows->a.step > 0 ? spread_and_step_sums : spread_sums);
    double *mean = rows->channels[MEAN]; /* of V over all visible cells: the same for all rows */
    memset(mean, 0, rows->a.v_dim * sizeof *mean);
    tiles_sum(rows, 1, mean_sums);
    for (uint32_t c = 0; c < rows->a.v_dim; c++)
        mean[c] /= rows->a.visible;
    for (uint32_t i = 0; i < n; i++) {
        terms_fill(&rows[i]);
        if (rows->a.visible)
            others_fill(&rows[i], mean);
    }
}

void kvb_attention_solve(const kvb_attention *a, double *scratch, kvb_bound_row *row, double *lse,
                         kvb_bound_term *terms)
{
    kvb_attention_solve_rows(&(kvb_attention_row){.a = *a, .scratch = scratch, .row = row, .lse = lse, .terms = terms},
                             1);
}

void kvb_attention_glance(kvb_attention_row *rows, uint32_t n, const double *size_norm)
{
    rows_weigh_all(rows, n, true, size_norm);
    for (uint32_t i = 0; i < n; i++) {
        kvb_attention_row *r = &rows[i];
        *r->lse = row_weigh(r);
        row_sums(r, sink_weight_of(r));
        memset(r->channels[OUTPUT], 0, r->a.v_dim * sizeof(double));
    }
    tiles_sum(rows, n, output_sums);
    for (uint32_t i = 0; i < n; i++)
        memcpy(rows[i].o, rows[i].channels[OUTPUT], rows->a.v_dim * sizeof(double));
}

void kvb_format_rows_compare(kvb_attention_row *originals, const kvb_attention_row *stored, uint32_t n,
                             kvb_format_row *const *results)
{
    rows_weigh_all(originals, n, false, NULL);
    for (uint32_t i = 0; i < n; i++) {
        const kvb_attention_row *r = &originals[i];
        const kvb_attention *a = &r->a;
        const double *weights = r->cells[WEIGHTS], *logits = r->cells[LOGITS], stored_lse = *stored[i].lse;
        const double *stored_logits = stored[i].cells[LOGITS], lse = row_weigh(r);
        double kl = a->sink ? exp((double)*a->sink - lse) * (stored_lse - lse) : 0;
        for (uint32_t c = 0; c < a->visible; c++) {
            /* 0 log 0 = 0; a weight that underflowed in the stored rows only still has a finite logarithm */
            if (weights[c] > 0)
                kl += weights[c] * ((logits[c] - lse) - (stored_logits[c] - stored_lse));
        }
        *results[i] = (kvb_format_row){.kl = kl < 0 ? 0 : kl}; /* below 0 only by rounding */
        memset(r->channels[OUTPUT], 0, a->v_dim * sizeof(double));
    }
    tiles_sum(originals, n, output_sums);
    for (uint32_t i = 0; i < n; i++) {
        const double *o = originals[i].channels[OUTPUT];
        for (uint32_t c = 0; c < originals->a.v_dim; c++) {
            double error = fabs(stored[i].terms[c].o - o[c]);
            if (isnan(error))
                error = INFINITY;
            results[i]->max_abs = fmax(results[i]->max_abs, error);
            results[i]->error2 += error * error;
            results[i]->exact2 += o[c] * o[c];
        }
    }
}
