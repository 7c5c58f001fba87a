/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk of tokens by matrix products: vector.h has the formulas. */
#include <math.h>

#include "kernels/convert.h"
#include "kernels/vector/vec.h"
#include "kernels/vector/vector.h"

#define C SCAN_CHUNK

/*
 * Log decays in units of two, summed in double from the begin of the chunk, each as the sum of two floats: multiples of
 * 2^-9, whose differences are exact below 2^15, and the rest. A token's own is at least LEAST, below which a decay is 0
 * anyhow.
 */
#define LEAST (-288.0)

typedef struct decays {
    float high[C], low[C];
} decays;

typedef struct work {
    const kvb_scan_chunk *c;
    uint32_t d_k, d_v;
    const float *q[C], *k[C];
    float *keys;    /* [d_k][C]: k transposed, zeros from n on */
    float *qk, *kk; /* [C][C] products of rows */
    float *weights; /* [C][C] */
    float *scaled;  /* [C][d_k] rows times their decay; [d_k][C] keys times theirs */
    float *u;       /* [C][d_v] */
    float *reads;   /* [C][d_v] */
    float *out;     /* [C][d_v] */
    decays log;
} work;

VEC_INLINE void multiply(uint32_t rows, uint32_t depth, uint32_t width, const float *a, size_t a_row, const float *b,
                         float *c, size_t c_row, bool add)
{
    const float *from[128];
    float *to[128];
    for (uint32_t r = 0, n; r < rows; r += n) {
        n = rows - r < 128 ? rows - r : 128;
        for (uint32_t i = 0; i < n; i++) {
            from[i] = a + (r + i) * a_row;
            to[i] = c + (r + i) * c_row;
        }
        KVB_ISA_NAME(kvb_product)(n, depth, width, from, b, width, to, add);
    }
}

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

/* Products of the group's rows with all keys. */
static void rows_multiply(work *w, const float *const *rows, float *to)
{
    float *at[C];
    for (uint32_t t = 0; t < w->c->n; t++)
        at[t] = to + (size_t)t * C;
    KVB_ISA_NAME(kvb_product)(w->c->n, w->d_k, C, rows, w->keys, C, at, false);
}

static void logs_sum(work *w, uint32_t h)
{
    const kvb_scan *x = w->c->args;
    double sum = 0;
    for (uint32_t t = 0; t < C; t++) {
        if (t < w->c->n) {
            const size_t row = (size_t)(w->c->first + t) * x->problem.heads + h;
            const double own = (x->gate ? (double)x->gate[row] : 1.0) * (x->a ? (double)x->a[h] : 1.0);
            sum += fmax(own * 0x1.71547652b82fep+0, LEAST);
        }
        const double high = nearbyint(sum * 512) / 512;
        w->log.high[t] = (float)high;
        w->log.low[t] = (float)(sum - high);
    }
}

/* exp of the log decay between tokens i .. i + VL - 1 and one whose sums are high and low; no more than 1. */
VEC_INLINE vf decay_between(const decays *log, float high, float low, uint32_t i)
{
    const vf apart = (vf_set(high) - vf_load(log->high + i)) + (vf_set(low) - vf_load(log->low + i));
    return vf_exp2(vf_min(apart, vf_set(0)));
}

/* weights[t][i] = products[t][i] times the decay from i to t, for i < t, and i = t unless `strict`; else 0. */
static void weights_make(work *w, const float *products, bool strict)
{
    for (uint32_t t = 0; t < w->c->n; t++) {
        float *row = w->weights + (size_t)t * C;
        for (uint32_t i = 0; i < C; i += VL)
            vf_store(row + i,
                     vf_load(products + (size_t)t * C + i) * decay_between(&w->log, w->log.high[t], w->log.low[t], i));
        for (uint32_t i = t + !strict; i < C; i++)
            row[i] = 0;
    }
}

/* scaled[t] = rows[t] times the decay from the chunk's begin to t. */
static void rows_decay(work *w, const float *const *rows)
{
    static const decays begin; /* zeros */
    for (uint32_t t = 0; t < w->c->n; t++) {
        const vf decay = decay_between(&begin, w->log.high[t], w->log.low[t], 0);
        for (uint32_t d = 0; d < w->d_k; d += VL)
            vf_store(w->scaled + (size_t)t * w->d_k + d, vf_load(rows[t] + d) * decay);
    }
}

static const float *value_of(const work *w, uint32_t t, uint32_t h)
{
    const kvb_scan *x = w->c->args;
    return x->v + ((size_t)(w->c->first + t) * x->problem.heads + h) * w->d_v;
}

/* Rows of a head, or of a group, lie far apart: those of the next chunk are prefetched. */
VEC_INLINE void next_prefetch(const work *w, uint32_t t, const float *row, size_t stride, uint32_t n)
{
    if (w->c->first + t + C < w->c->args->problem.n_tok)
        for (uint32_t i = 0; i < n; i += 16)
            __builtin_prefetch(row + C * stride + i, 0, 3);
}

/* u = factor (v - reads), of one token; reads NULL: zeros. */
static void write_make(work *w, uint32_t t, uint32_t h, float factor, const float *reads)
{
    const float *v = value_of(w, t, h);
    float *u = w->u + (size_t)t * w->d_v;
    next_prefetch(w, t, v, (size_t)w->c->args->problem.heads * w->d_v, w->d_v);
    for (uint32_t c = 0; c < w->d_v; c += VL) {
        vf x = vf_load(v + c);
        if (reads)
            x = x - vf_load(reads + c);
        vf_store(u + c, vf_set(factor) * x);
    }
}

/* The delta rule's writes, by substitution. */
static void writes_solve(work *w, uint32_t h, const float *state)
{
    const kvb_scan *x = w->c->args;
    const uint32_t n = w->c->n;
    rows_decay(w, w->k);
    multiply(n, w->d_k, w->d_v, w->scaled, w->d_k, state, w->reads, w->d_v, false);
    weights_make(w, w->kk, true);
    for (uint32_t t = 0; t < n; t++) {
        float *reads = w->reads + (size_t)t * w->d_v;
        if (t)
            multiply(1, t, w->d_v, w->weights + (size_t)t * C, C, w->u, reads, w->d_v, true);
        write_make(w, t, h, x->beta[(size_t)(w->c->first + t) * x->problem.heads + h], reads);
    }
}

static void state_take(work *w, float *state)
{
    const uint32_t last = w->c->n - 1;
    static const decays begin;
    float all[VL], since[C];
    vf_store(all, decay_between(&begin, w->log.high[last], w->log.low[last], 0));
    for (uint32_t i = 0; i < C; i += VL)
        vf_store(since + i, decay_between(&w->log, w->log.high[last], w->log.low[last], i));
    for (uint32_t d = 0; d < w->d_k; d++) {
        KVB_ISA_NAME(kvb_rescale)(state + (size_t)d * w->d_v, state + (size_t)d * w->d_v, w->d_v, all[0]);
        for (uint32_t i = 0; i < C; i += VL)
            vf_store(w->scaled + (size_t)d * C + i, vf_load(w->keys + (size_t)d * C + i) * vf_load(since + i));
    }
    multiply(w->d_k, w->c->n, w->d_v, w->scaled, C, w->u, state, w->d_v, true);
}

static void head_take(work *w, uint32_t h, float *state)
{
    const kvb_scan *x = w->c->args;
    const kvb_scan_problem *p = &x->problem;
    const uint32_t n = w->c->n;
    const size_t out_bytes = kvb_elem_bytes(p->out_elem);

    logs_sum(w, h);
    if (p->kind == KVB_SCAN_DELTA)
        writes_solve(w, h, state);
    else
        for (uint32_t t = 0; t < n; t++)
            write_make(w, t, h, x->gate ? x->gate[(size_t)(w->c->first + t) * p->heads + h] : 1, NULL);
    weights_make(w, w->qk, false);
    rows_decay(w, w->q);
    multiply(n, w->d_k, w->d_v, w->scaled, w->d_k, state, w->out, w->d_v, false);
    multiply(n, n, w->d_v, w->weights, C, w->u, w->out, w->d_v, true);
    state_take(w, state);
    for (uint32_t t = 0; t < n; t++)
        kvb_elems_encode(p->out_elem, (char *)x->out + ((size_t)(w->c->first + t) * p->heads + h) * w->d_v * out_bytes,
                         w->out + (size_t)t * w->d_v, w->d_v);
}

void KVB_ISA_NAME(kvb_scan_take)(const kvb_scan_chunk *c)
{
    const kvb_scan *x = c->args;
    const uint32_t d_k = x->problem.d_k, d_v = x->problem.d_v;
    work w = {.c = c, .d_k = d_k, .d_v = d_v};
    float **parts[] = {&w.keys, &w.scaled, &w.u, &w.reads, &w.out, &w.qk, &w.kk, &w.weights};
    const uint32_t widths[] = {d_k, d_k, d_v, d_v, d_v, C, C, C};
    float *at = c->scratch;
    for (uint32_t i = 0; i < sizeof parts / sizeof *parts; at += (size_t)C * widths[i++])
        *parts[i] = at;
    for (uint32_t t = 0; t < c->n; t++) {
        w.q[t] = kvb_scan_row(x, x->q, c->first + t, c->head);
        w.k[t] = kvb_scan_row(x, x->k, c->first + t, c->head);
        next_prefetch(&w, t, w.q[t], (size_t)x->problem.groups * d_k, d_k);
        next_prefetch(&w, t, w.k[t], (size_t)x->problem.groups * d_k, d_k);
    }
    keys_transpose(&w);
    rows_multiply(&w, w.q, w.qk);
    if (x->problem.kind == KVB_SCAN_DELTA)
        rows_multiply(&w, w.k, w.kk);
    for (uint32_t h = 0; h < c->heads; h++)
        head_take(&w, c->head + h, c->states + (size_t)h * d_k * d_v);
}
