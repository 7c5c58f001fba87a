/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk of tokens by matrix products: vector.h has the formulas. */
#include <math.h>
#include <string.h>

#include "kernels/convert.h"
#include "kernels/vector/vec.h"
#include "kernels/vector/vector.h"

#define C SCAN_CHUNK

/*
 * Log decays to base 2, summed in double from the beginning of the chunk. Each sum is two floats: a multiple of 2^-9
 * (differences below 2^15 are exact) and the rest. A token's own log is at least LEAST: below, a decay is 0 anyhow.
 */
#define LEAST  (-288.0)
#define LOG2_E 0x1.71547652b82fep+0

typedef struct decays {
    float high[C], low[C];
} decays;

/* Rows of C tokens, n floats each, that are read next. */
typedef struct rows_ahead {
    const float *first;
    size_t apart;
    uint32_t n;
} rows_ahead;

typedef struct work {
    const kvb_scan_chunk *c;
    uint32_t d_k, d_v, h;
    const float *q[C], *k[C];
    float *keys;    /* [d_k][C]: k transposed, zeros from n on */
    float *decayed; /* [d_k][C]: keys that the state gets; where rows are shorter than keys, `keys` itself */
    float *qk, *kk; /* [C][C] products of rows */
    float *weights; /* [C][C] */
    float *u;       /* [C][d_v] of DELTA: beta (v - what the state has); then what tokens add, decayed */
    float *out;     /* [C][d_v], or outputs where the call wants them */
    decays log;
    size_t out_row;      /* floats from one of `out` to the next */
    float since[C];      /* decays from the beginning of the chunk to each token */
    float gate[C];       /* of MAMBA2, else 1 */
    float over[2 * C];   /* of LIGHTNING: over[C - n] is the decay over n tokens, over[C + i] is 1 */
    const float *writes; /* what tokens add along their keys, times `gate`: rows of d_v floats, u or v itself */
    uint32_t writes_row; /* floats from one to the next */
    rows_ahead ahead[3];
    uint32_t n_ahead;
    bool streamed;
} work;

static void keys_transpose(work *w)
{
    for (uint32_t t = 0; t < C; t += VL)
        for (uint32_t d = 0; d < w->d_k; d += VL) {
            vf x[VL];
#pragma GCC unroll 16
            for (uint32_t i = 0; i < VL; i++)
                x[i] = t + i < w->c->n ? vf_load(w->k[t + i] + d) : vf_set(0);
            vf_transpose(x);
#pragma GCC unroll 16
            for (uint32_t i = 0; i < VL; i++)
                vf_store(w->keys + (size_t)(d + i) * C + t, x[i]);
        }
}

/* Products of the group's rows with all keys, eight rows at once: with fewer a CPU waits for additions. */
static void rows_multiply(work *w, const float *const *rows, float *to)
{
    const uint32_t last = w->c->n - 1;
    for (uint32_t t = 0; t <= last; t += 8)
        for (uint32_t i = 0; i < C; i += VL) {
            const float *eight[8];
            vf sum[8];
#pragma GCC unroll 8
            for (uint32_t r = 0; r < 8; r++) {
                eight[r] = rows[t + r < last ? t + r : last];
                sum[r] = vf_set(0);
            }
            float_product(8, 1, w->d_k, eight, w->keys + i, C, sum);
#pragma GCC unroll 8
            for (uint32_t r = 0; r < 8; r++) /* C is a multiple of 8 */
                vf_store(to + (size_t)(t + r) * C + i, sum[r]);
        }
}

/* LIGHTNING: every token decays alike, so 2^exponent is needed once for each number of tokens. */
static void decays_make(work *w, uint32_t h)
{
    const double own = (double)w->c->args->a[h] * LOG2_E, bits = own > LEAST ? own : LEAST;
    float exponents[2 * C];
    for (uint32_t i = 0; i < 2 * C; i++)
        exponents[i] = i < C ? (float)(bits * (C - i)) : 0;
    for (uint32_t i = 0; i < 2 * C; i += VL)
        vf_store(w->over + i, vf_exp2(vf_load(exponents + i)));
    for (uint32_t t = 0; t < C; t++) {
        w->since[t] = w->over[C - 1 - t];
        w->gate[t] = 1;
    }
}

static void logs_sum(work *w, uint32_t h)
{
    const kvb_scan *x = w->c->args;
    double sum = 0, sums[C];
    for (uint32_t t = 0; t < w->c->n; t++) {
        const size_t row = (size_t)(w->c->first + t) * x->problem.heads + h;
        const double bits = (double)x->gate[row] * (x->a ? (double)x->a[h] : 1.0) * LOG2_E;
        sums[t] = sum += bits > LEAST ? bits : LEAST;
        w->gate[t] = x->problem.kind == KVB_SCAN_MAMBA2 ? x->gate[row] : 1;
    }
    for (uint32_t t = w->c->n; t < C; t++) {
        sums[t] = sum;
        w->gate[t] = 1;
    }
    for (uint32_t t = 0; t < C; t++) {
        const double high = nearbyint(sums[t] * 512) / 512;
        w->log.high[t] = (float)high;
        w->log.low[t] = (float)(sums[t] - high);
    }
    for (uint32_t t = 0; t < C; t += VL)
        vf_store(w->since + t, vf_exp2(vf_min(vf_load(w->log.high + t) + vf_load(w->log.low + t), vf_set(0))));
}

/* Decays from tokens i .. i + VL - 1 to token t; at most 1. */
VEC_INLINE vf decays_to(const work *w, uint32_t t, uint32_t i)
{
    const decays *log = &w->log;
    if (w->c->args->problem.kind == KVB_SCAN_LIGHTNING)
        return vf_load(w->over + C - t + i);
    const vf apart = (vf_set(log->high[t]) - vf_load(log->high + i)) + (vf_set(log->low[t]) - vf_load(log->low + i));
    return vf_exp2(vf_min(apart, vf_set(0)));
}

/* weights[t][i] = products[t][i] times gate[i] and the decay from i to t, for i < t, and i = t unless `strict`; else 0. */
static void weights_make(work *w, const float *products, bool strict)
{
    for (uint32_t t = 0; t < w->c->n; t++) {
        float *row = w->weights + (size_t)t * C;
        const uint32_t seen = ((2u << t) - 1) >> strict; /* a bit for each i */
        for (uint32_t i = 0; i < C; i += VL)
            vf_store(row + i,
                     vf_select(seen >> i,
                               vf_load(products + (size_t)t * C + i) * vf_load(w->gate + i) * decays_to(w, t, i),
                               vf_set(0)));
    }
}

/* Finds the rows that are read after head h of this chunk: v of the next head; after the last head q and k, too. Lines of
 * q and k behind the first are left to state_make(). */
static void ahead_find(work *w, uint32_t h)
{
    const kvb_scan_chunk *c = w->c;
    const kvb_scan *x = c->args;
    const kvb_scan_problem *p = &x->problem;
    const bool last = h + 1 == c->head + c->heads;
    const uint32_t t = last ? c->then_first : c->first, head = last ? c->then_head : h + 1;
    w->n_ahead = t >= p->n_tok ? 0 : last ? 3 : 1;
    w->ahead[0] = (rows_ahead){x->v + ((size_t)t * p->heads + head) * w->d_v, (size_t)p->heads * w->d_v, w->d_v};
    w->ahead[1] = (rows_ahead){kvb_scan_row(x, x->q, t, head), (size_t)p->groups * w->d_k, C};
    w->ahead[2] = (rows_ahead){kvb_scan_row(x, x->k, t, head), (size_t)p->groups * w->d_k, C};
}

/* Prefetches every fourth line of the rows ahead. All lines at once would be more than a CPU requests at a time. */
static void quarter_prefetch(const work *w, uint32_t quarter)
{
    for (const rows_ahead *rows = w->ahead; rows < w->ahead + w->n_ahead; rows++)
        for (uint32_t i = 16 * quarter; i < rows->n; i += 64)
            for (uint32_t t = 0; t < C; t++)
                __builtin_prefetch(rows->first + i + t * rows->apart, 0, 2);
}

/* ---- outputs and the next state, by tiles of rows x vectors that stay in registers -------------------------------- */

typedef void tile_make(work *w, float *state, uint32_t rows, uint32_t vecs, uint32_t first, uint32_t c);

/* sum = since x^T S + weights U for `rows` tokens from `first` on. x: their rows of q or k. U: the first n rows of u. */
VEC_INLINE void tokens_read(const work *w, const float *const *x, const float *state, const float *u, uint32_t u_row,
                            uint32_t n, uint32_t rows, uint32_t vecs, uint32_t first, uint32_t c, vf *sum)
{
    const float *weights[PRODUCT_ROWS];
#pragma GCC unroll 32
    for (uint32_t i = 0; i < rows * vecs; i++)
        sum[i] = vf_set(0);
    float_product(rows, vecs, w->d_k, x + first, state + c, w->d_v, sum);
#pragma GCC unroll 32
    for (uint32_t i = 0; i < rows * vecs; i++)
        sum[i] *= vf_set(w->since[first + i / vecs]);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        weights[r] = w->weights + (first + r) * C;
    float_product(rows, vecs, n, weights, u + c, u_row, sum);
}

/* The delta rule's writes, u = beta (v - since k^T S - weights u), for tokens from `first` on: by substitution. */
VEC_INLINE void writes_solve(work *w, float *state, uint32_t rows, uint32_t vecs, uint32_t first, uint32_t c)
{
    const kvb_scan *x = w->c->args;
    vf sum[PRODUCT_ROWS * PRODUCT_VECS];
    tokens_read(w, w->k, state, w->u, w->d_v, first, rows, vecs, first, c, sum);
    const size_t row = (size_t)x->problem.heads * w->d_v, at = (size_t)(w->c->first + first) * x->problem.heads + w->h;
    const float *v = x->v + at * w->d_v + c, *beta = x->beta + at, *by = w->weights + first * C + first;
    float *u = w->u + (size_t)first * w->d_v + c;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++, v += row, u += w->d_v, beta += x->problem.heads)
#pragma GCC unroll 4
        for (uint32_t i = 0; i < vecs; i++) {
            const vf own = vf_set(*beta) * (vf_load(v + i * VL) - sum[r * vecs + i]);
            vf_store(u + i * VL, own);
#pragma GCC unroll 8
            for (uint32_t then = r + 1; then < rows; then++)
                sum[then * vecs + i] = vf_fma(vf_set(by[then * C + r]), own, sum[then * vecs + i]);
        }
}

/* out = since q^T S + weights writes, for tokens from `first` on: a token sees itself and those before it. */
VEC_INLINE void outputs_make(work *w, float *state, uint32_t rows, uint32_t vecs, uint32_t first, uint32_t c)
{
    vf sum[PRODUCT_ROWS * PRODUCT_VECS];
    tokens_read(w, w->q, state, w->writes, w->writes_row, first + rows, rows, vecs, first, c, sum);
    float *to = w->out + first * w->out_row + c;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++, to += w->out_row)
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++)
            if (w->streamed)
                vf_stream(to + v * VL, sum[r * vecs + v]);
            else
                vf_store(to + v * VL, sum[r * vecs + v]);
}

/* S = since S + keys u, for rows of the state from `first` on. */
VEC_INLINE void state_make(work *w, float *state, uint32_t rows, uint32_t vecs, uint32_t first, uint32_t c)
{
    const vf keep = vf_set(w->since[w->c->n - 1]);
    const float *keys[PRODUCT_ROWS];
    vf sum[PRODUCT_ROWS * PRODUCT_VECS];
#pragma GCC unroll 32
    for (uint32_t i = 0; i < rows * vecs; i++)
        sum[i] = vf_set(0);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        keys[r] = w->decayed + (size_t)(first + r) * C;
    /* Each row of the state prefetches a line of the next q and of the next k. A CPU waits for its own requests if they
     * come in bursts. */
    for (uint32_t d = first > C ? first : C; d < first + rows && c == 0 && w->n_ahead == 3; d++)
        for (const rows_ahead *next = w->ahead + 1; next < w->ahead + 3; next++)
            __builtin_prefetch(next->first + d % C * next->apart + d / C * C, 0, 2);
    float_product(rows, vecs, w->c->n, keys, w->writes + c, w->writes_row, sum);
    float *to = state + (size_t)first * w->d_v + c;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++, to += w->d_v)
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++)
            vf_store(to + v * VL, vf_fma(keep, vf_load(to + v * VL), sum[r * vecs + v]));
}

VEC_INLINE void strips_make(tile_make *make, work *w, float *state, uint32_t rows, uint32_t first)
{
    uint32_t c = 0;
#define STRIPS(VECS)                                                                                                   \
    if (VECS <= PRODUCT_VECS)                                                                                          \
        for (; w->d_v - c >= VECS * VL; c += VECS * VL)                                                                \
            make(w, state, rows, VECS, first, c);
    STRIPS(4)
    STRIPS(2)
    STRIPS(1)
#undef STRIPS
}

VEC_INLINE void panels_make(tile_make *make, work *w, float *state, uint32_t rows)
{
    for (uint32_t r = 0, some; r < rows; r += some) {
        some = product_panel_rows(rows - r);
#define CASE(PANEL, N)                                                                                                 \
    case N:                                                                                                            \
        PANEL(make, w, state, N, r);                                                                                   \
        break;
        switch (some) {
            EACH_PANEL(CASE, strips_make)
        }
#undef CASE
    }
}

/* Gates, and decays until the end of the chunk: factors of the keys, or of writes where their rows are shorter. */
static void writes_decay(work *w)
{
    const uint32_t last = w->c->n - 1;
    float until[C];
    for (uint32_t i = 0; i < C; i += VL)
        vf_store(until + i, vf_load(w->gate + i) * decays_to(w, last, i));
    if (w->decayed != w->keys) {
        for (uint32_t at = 0; at < w->d_k * C; at += VL)
            vf_store(w->decayed + at, vf_load(until + at % C) * vf_load(w->keys + at));
        return;
    }
    for (uint32_t i = 0; i <= last; i++)
        for (uint32_t c = 0; c < w->d_v; c += VL)
            vf_store(w->u + (size_t)i * w->d_v + c,
                     vf_set(until[i]) * vf_load(w->writes + (size_t)i * w->writes_row + c));
    w->writes = w->u;
    w->writes_row = w->d_v;
}

static void head_take(work *w, uint32_t h, float *state)
{
    const kvb_scan *x = w->c->args;
    const kvb_elem elem = x->problem.out_elem;
    const size_t row = (size_t)x->problem.heads * w->d_v, at = w->c->first * row + (size_t)h * w->d_v;

    w->h = h;
    ahead_find(w, h);
    quarter_prefetch(w, 0);
    if (x->problem.kind == KVB_SCAN_LIGHTNING)
        decays_make(w, h);
    else
        logs_sum(w, h);
    if (x->problem.kind == KVB_SCAN_DELTA) {
        weights_make(w, w->kk, true);
        panels_make(writes_solve, w, state, w->c->n);
        w->writes = w->u;
        w->writes_row = w->d_v;
    } else {
        w->writes = x->v + at;
        w->writes_row = (uint32_t)row;
    }
    if (elem == KVB_F32) {
        w->out = (float *)x->out + at;
        w->out_row = row;
    }
    quarter_prefetch(w, 1);
    weights_make(w, w->qk, false);
    panels_make(outputs_make, w, state, w->c->n);
    quarter_prefetch(w, 2);
    writes_decay(w);
    quarter_prefetch(w, 3);
    panels_make(state_make, w, state, w->d_k);
    for (uint32_t t = 0; t < w->c->n && elem != KVB_F32; t++)
        kvb_elems_encode(elem, (char *)x->out + (at + t * row) * kvb_elem_bytes(elem), w->out + t * w->out_row, w->d_v);
}

void KVB_ISA_NAME(kvb_scan_take)(const kvb_scan_chunk *c)
{
    const kvb_scan *x = c->args;
    const uint32_t d_k = x->problem.d_k, d_v = x->problem.d_v;
    work w = {.c = c, .d_k = d_k, .d_v = d_v, .out_row = d_v};
    w.streamed = kvb_scan_streams(x);
    float **parts[] = {&w.keys, &w.decayed, &w.u, &w.out, &w.qk, &w.kk, &w.weights};
    const uint32_t widths[] = {d_k, d_k, d_v, d_v, C, C, C};
    float *at = c->scratch;
    for (uint32_t i = 0; i < sizeof parts / sizeof *parts; at += (size_t)C * widths[i++])
        *parts[i] = at;
    if (d_k > d_v)
        w.decayed = w.keys;
    for (uint32_t t = 0; t < c->n; t++) {
        w.q[t] = kvb_scan_row(x, x->q, c->first + t, c->head);
        w.k[t] = kvb_scan_row(x, x->k, c->first + t, c->head);
    }
    keys_transpose(&w);
    rows_multiply(&w, w.q, w.qk);
    if (x->problem.kind == KVB_SCAN_DELTA)
        rows_multiply(&w, w.k, w.kk);
    for (uint32_t h = 0; h < c->heads; h++)
        head_take(&w, c->head + h, c->states + (size_t)h * d_k * d_v);
    vf_stream_end();
}
