/* SPDX-License-Identifier: Apache-2.0 */
/* Declared orders, step by step as in the contract. */
#include "oracle/exact.h"
#include "oracle/codec.h"
#include "oracle/oracle.h"
#include "workloads/array.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG2_E 1.4426950408889634
#define LN_2   0.6931471805599453
#define RAISE  8.0f /* KVB_SOFTMAX_POWERS */

static float add_product(bool fused, float sum, float a, float b)
{
    return fused ? fmaf(a, b, sum) : sum + a * b;
}

static float lanes_join(const kvb_sum_lanes *l, float lane[KVB_SUM_LANES])
{
    for (size_t f = 0; f < sizeof l->folds / sizeof *l->folds && l->folds[f]; f++) {
        float was[KVB_SUM_LANES];
        for (uint32_t i = 0; i < KVB_SUM_LANES; i++)
            was[i] = lane[i];
        for (uint32_t i = 0; i < KVB_SUM_LANES; i++)
            lane[i] = was[i] + was[(i ^ l->folds[f]) % KVB_SUM_LANES];
    }
    return lane[0];
}

/* ---- attention: one row of q ------------------------------------------------------------------------------------- */

/* A row's softmax so far. */
typedef struct part {
    float max;
    double z;
    float *sums; /* [v_dim] */
} part;

typedef struct row {
    const kvb_attend *call;
    const kvb_order *order;
    const kvb_exact_rows *rows;
    const float *q;
    float sink; /* -infinity: none */
    part now, before;
    bool parted;   /* `before` has the earlier parts */
    bool looks;    /* TWO_PASSES: this is the first pass, which finds max */
    uint8_t *seen; /* [rows->cells] 1: yet to be met in this pass; 0: not to be met */
    float *block;  /* [v_dim] */
    float *s;      /* [room] of a tile: s, then weights */
    size_t room;
    int error;
    char *why;
    size_t why_bytes;
} row;

KVB_WIDE static float dot_of(const row *x, const kvb_sum_lanes *l, const double *k)
{
    float lane[KVB_SUM_LANES] = {0};
    const uint32_t dim = x->call->problem.k_dim;
    for (uint32_t first = 0; first < dim; first += l->n)
        for (uint32_t i = 0, c = first; i < l->n && c < dim; i++, c++)
            lane[i] = add_product(x->order->fused, lane[i], x->q[c], (float)k[c]);
    return lanes_join(l, lane);
}

static float logit_of(const row *x, float dot)
{
    const kvb_problem *p = &x->call->problem;
    if (x->order->softmax == KVB_SOFTMAX_POWERS)
        return (float)((double)p->scale * LOG2_E) * dot;
    const float s = p->scale * dot;
    return p->softcap > 0 ? p->softcap * tanhf(s / p->softcap) : s;
}

static float exp_of(const row *x, float s)
{
    return x->order->exp ? x->order->exp(s) : expf(s);
}

static void part_begin(const row *x, part *a)
{
    const bool online = x->order->softmax == KVB_SOFTMAX_ONLINE && x->sink > -INFINITY;
    a->max = online ? x->sink : -INFINITY;
    a->z = online;
    for (uint32_t c = 0; c < x->call->problem.v_dim; c++)
        a->sums[c] = 0;
}

/* Adds the current part to the earlier ones. */
static void part_end(row *x)
{
    part *a = &x->before, *b = &x->now;
    const float max = fmaxf(a->max, b->max);
    if (b->max == -INFINITY && b->z == 0) /* nothing was seen there */
        return;
    const double of_a = a->max == -INFINITY ? 0 : exp2((double)(a->max - max)), of_b = exp2((double)(b->max - max));
    for (uint32_t c = 0; c < x->call->problem.v_dim; c++)
        a->sums[c] = (float)of_a * a->sums[c] + (float)of_b * b->sums[c];
    a->z = of_a * a->z + of_b * b->z;
    a->max = max;
}

/* Begins a part; the current part joins the earlier ones. */
static void part_next(row *x)
{
    if (x->parted)
        part_end(x);
    else {
        const part kept = x->before;
        x->before = x->now;
        x->now = kept;
        x->parted = true;
    }
    part_begin(x, &x->now);
}

static void max_raise(row *x, float max, float factor)
{
    x->now.max = max;
    x->now.z *= (double)factor;
    for (uint32_t c = 0; c < x->call->problem.v_dim && factor != 1; c++)
        x->now.sums[c] *= factor;
}

/* Raises max, where the order says so, for a tile with the largest s `top`. */
static void max_follow(row *x, float top)
{
    const float old = x->now.max;
    if (x->order->softmax == KVB_SOFTMAX_POWERS && top > old + RAISE)
        max_raise(x, ceilf(top), old == -INFINITY ? 1 : exp2f(old - ceilf(top)));
    if (x->order->softmax == KVB_SOFTMAX_ONLINE && top > old)
        max_raise(x, top, exp_of(x, old - top));
}

static int wrong(row *x, const char *what, uint32_t cell)
{
    if (!x->error)
        snprintf(x->why, x->why_bytes, "%s %u", what, cell);
    return x->error = -EILSEQ;
}

/* The row of a cell, which the query must see and this pass must not have met. */
static uint32_t row_at(row *x, uint32_t cell)
{
    const kvb_exact_rows *r = x->rows;
    const uint32_t at = r->apart && cell >= r->apart ? cell - r->apart : cell;
    if (at >= r->cells || !x->seen[at]) {
        wrong(x, "its order meets, unseen or again, cell", cell);
        return 0;
    }
    x->seen[at] = 0;
    return at;
}

static void weights_add(row *x, uint32_t n, const uint32_t *cells)
{
    const kvb_sum_lanes *l = &x->order->weights;
    float lane[KVB_SUM_LANES] = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (cells[i] == KVB_CELL_NONE)
            continue;
        x->s[i] = exp_of(x, x->s[i] - (x->now.max > -INFINITY ? x->now.max : 0));
        if (l->n)
            lane[i % l->n] += x->s[i];
        else
            x->now.z += (double)x->s[i];
    }
    if (l->n)
        x->now.z += (double)lanes_join(l, lane);
}

KVB_WIDE static void values_add(row *x, const kvb_order_tile *tile, const uint32_t *cells, const uint32_t *at)
{
    const uint32_t dim = x->call->problem.v_dim, some = tile->v_cells ? tile->v_cells : tile->cells;
    for (uint32_t b = 0; b < tile->cells; b += some) {
        float *sums = tile->v_cells ? x->block : x->now.sums;
        for (uint32_t c = 0; c < dim && tile->v_cells; c++)
            sums[c] = 0;
        for (uint32_t i = b; i < b + some && i < tile->cells; i++)
            for (uint32_t c = 0; c < dim && cells[i] != KVB_CELL_NONE; c++)
                sums[c] = add_product(x->order->fused, sums[c], x->s[i],
                                      (float)x->rows->v[(size_t)at[i] * x->rows->v_width + c]);
        for (uint32_t c = 0; c < dim && tile->v_cells; c++)
            x->now.sums[c] += sums[c];
    }
}

static void tile_take(void *ctx, const kvb_order_tile *tile, const uint32_t *cells)
{
    row *x = ctx;
    const uint32_t n = tile->cells;
    float top = -INFINITY;
    if (!tile->dot.n || tile->dot.n > KVB_SUM_LANES || x->order->weights.n > KVB_SUM_LANES)
        wrong(x, "its order has another number of lanes than 1 to", KVB_SUM_LANES);
    uint32_t *at = x->error ? NULL : malloc((n + 1) * sizeof *at);
    if (!x->error && (!at || kvb_array_reserve(&x->s, &x->room, n, sizeof *x->s)))
        x->error = -ENOMEM;
    if (!x->error && tile->part)
        part_next(x);
    for (uint32_t i = 0; i < n && !x->error; i++) {
        if (cells[i] == KVB_CELL_NONE)
            continue;
        at[i] = row_at(x, cells[i]);
        x->s[i] = logit_of(x, dot_of(x, &tile->dot, x->rows->k + (size_t)at[i] * x->rows->k_width));
        top = x->s[i] > top ? x->s[i] : top;
    }
    if (!x->error && x->looks)
        x->now.max = top > x->now.max ? top : x->now.max;
    else if (!x->error) {
        max_follow(x, top);
        weights_add(x, n, cells);
        values_add(x, tile, cells, at);
    }
    free(at);
}

/* The tiles of an order that gives only their size. */
static void plain_tiles(row *x, uint32_t t)
{
    const kvb_problem *p = &x->call->problem;
    uint32_t *cells = malloc(((size_t)x->rows->cells + 1) * sizeof *cells), cursor = 0;
    kvb_order_tile tile = x->order->tile;
    const uint32_t most = tile.cells && tile.cells < x->rows->cells ? tile.cells : x->rows->cells;
    kvb_run run;
    tile.cells = 0;
    x->error = cells ? 0 : -ENOMEM;
    while (!x->error && kvb_mask_next(&x->call->mask, p->n_tok, p->n_cells, t, &cursor, &run))
        for (uint32_t c = run.begin; c < run.end; c++) {
            cells[tile.cells++] = c;
            if (tile.cells < most)
                continue;
            tile_take(x, &tile, cells);
            tile.cells = 0;
        }
    if (!x->error && tile.cells)
        tile_take(x, &tile, cells);
    free(cells);
}

/* One pass over all tiles, which must meet each visible cell once. */
static void pass_make(row *x, uint32_t t, uint32_t head)
{
    const kvb_exact_rows *r = x->rows;
    for (size_t n = 0; n < r->n_runs; n++)
        for (uint32_t c = r->runs[n].begin; c < r->runs[n].end; c++)
            x->seen[c] = 1;
    if (x->order->tiles)
        x->order->tiles(x->call, t * x->call->problem.n_heads + head, tile_take, x);
    else
        plain_tiles(x, t);
    for (uint32_t c = 0; c < r->cells && !x->error; c++)
        if (x->seen[c])
            wrong(x, "its order does not meet the cell of row", c);
}

static void row_end(row *x, float *out, float *lse)
{
    if (x->parted)
        part_end(x);
    const part *a = x->parted ? &x->before : &x->now;
    const kvb_softmax softmax = x->order->softmax;
    double max = (double)a->max, z = a->z, factor = 1;
    if (softmax == KVB_SOFTMAX_TWO_PASSES)
        z = (double)(float)z;
    if (softmax == KVB_SOFTMAX_POWERS && x->sink > -INFINITY) {
        const double s = (double)x->sink * LOG2_E;
        if (s > max) {
            factor = max == -INFINITY ? 0 : exp2(max - ceil(s));
            max = ceil(s);
        }
        z = z * factor + exp2(s - max);
    }
    for (uint32_t c = 0; c < x->call->problem.v_dim; c++)
        out[c] = z == 0                              ? 0
                 : softmax == KVB_SOFTMAX_TWO_PASSES ? a->sums[c] / (float)z
                 : softmax == KVB_SOFTMAX_ONLINE     ? (float)((double)a->sums[c] / z)
                                                     : a->sums[c] * (float)(factor / z);
    *lse = z == 0                              ? -INFINITY
           : softmax == KVB_SOFTMAX_TWO_PASSES ? a->max + logf((float)z)
                                               : (float)(max * (softmax == KVB_SOFTMAX_POWERS ? LN_2 : 1) + log(z));
}

int kvb_exact_row(const kvb_attend *call, const kvb_order *order, const kvb_exact_rows *rows, uint32_t t, uint32_t head,
                  float *out, float *lse, char *why, size_t why_bytes)
{
    const kvb_problem *p = &call->problem;
    row x = {.call = call,
             .order = order,
             .rows = rows,
             .q = call->q + ((size_t)t * p->n_heads + head) * p->k_dim,
             .sink = p->has_sinks ? call->sinks[head] : -INFINITY,
             .why = why,
             .why_bytes = why_bytes};
    float *sums = malloc(3 * (size_t)p->v_dim * sizeof *sums);
    x.seen = calloc((size_t)rows->cells + 1, 1);
    x.error = sums && x.seen ? 0 : -ENOMEM;
    if (!x.error) {
        x.now.sums = sums;
        x.before.sums = sums + p->v_dim;
        x.block = sums + 2 * (size_t)p->v_dim;
        part_begin(&x, &x.now);
        x.looks = order->softmax == KVB_SOFTMAX_TWO_PASSES;
        if (x.looks) {
            x.now.max = x.sink;
            pass_make(&x, t, head);
            x.looks = false;
            x.now.z = x.sink == -INFINITY ? 0 : (double)exp_of(&x, x.sink - x.now.max);
        }
        if (!x.error)
            pass_make(&x, t, head);
        if (!x.error)
            row_end(&x, out, lse);
    }
    free(sums);
    free(x.seen);
    free(x.s);
    return x.error;
}

/* ---- scans: one column of a head's state ------------------------------------------------------------------------- */

/* Column c of head h at token t; s [d_k] is changed. */
KVB_WIDE static float token_take(const kvb_scan *x, const kvb_scan_order *o, uint32_t t, uint32_t h, uint32_t c,
                                 float *s)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t at = (size_t)t * p->heads + h;
    const uint32_t d_k = p->d_k;
    const bool each = p->kind == KVB_SCAN_MAMBA1, fused = o->fused, on_v = o->gate_on_v;
    const float *q = kvb_scan_row(x, x->q, t, h), *k = kvb_scan_row(x, x->k, t, h);
    const float v = x->v[at * p->d_v + c];
    const float gate = each ? x->gate[at * p->d_v + c] : p->kind == KVB_SCAN_MAMBA2 ? x->gate[at] : 1;
    float decay = each ? 0 : p->kind == KVB_SCAN_DELTA ? o->decay(1, x->gate[at]) : o->decay(gate, x->a[h]);
    float write = v, read = 0, out = 0;
    if (p->kind == KVB_SCAN_DELTA) {
        for (uint32_t i = 0; i < d_k; i++)
            read = add_product(fused, read, k[i], o->decay_last ? s[i] : decay * s[i]);
        write = x->beta[at] * (v - (o->decay_last ? decay * read : read));
    }
    for (uint32_t i = 0; i < d_k; i++) {
        if (each)
            decay = o->decay(gate, x->a[((size_t)h * d_k + i) * p->d_v + c]);
        s[i] = add_product(fused, on_v ? k[i] * (gate * write) : gate * k[i] * write, decay, s[i]);
    }
    for (uint32_t i = 0; i < d_k; i++)
        out = add_product(fused, out, q[i], s[i]);
    return out;
}

static float token_convolve(const kvb_scan *x, const kvb_scan_order *o, uint32_t t, uint32_t c, float *s)
{
    const kvb_scan_problem *p = &x->problem;
    const float v = x->v[(size_t)t * p->d_v + c];
    float z = x->bias ? x->bias[c] : 0;
    for (uint32_t i = 0; i <= p->d_k; i++)
        z = add_product(o->fused, z, x->a[(size_t)i * p->d_v + c], i < p->d_k ? s[i] : v);
    for (uint32_t i = 0; i < p->d_k; i++)
        s[i] = i + 1 < p->d_k ? s[i + 1] : v;
    return p->silu ? o->act(z) : z;
}

/* Element i of a column in slots that begin at `base`. */
static double state_at(const kvb_scan *x, const void *base, uint32_t slot, uint32_t h, uint32_t i, uint32_t c)
{
    const kvb_scan_problem *p = &x->problem;
    return kvb_output_value(p->state_elem, (const char *)base + slot * x->states.slot_bytes,
                            ((size_t)h * p->d_k + i) * p->d_v + c);
}

/* 1: equal; 0 with why: different; -EDOM: the wanted number is not finite. */
static int alike(double got, double want, const char *what, uint32_t n, uint32_t h, uint32_t c, char *why,
                 size_t why_bytes)
{
    if (!isfinite(want))
        return -EDOM;
    if (got != want)
        snprintf(why, why_bytes, "%s %u, head %u, channel %u is %a, in the declared order %a", what, n, h, c, got,
                 want);
    return got == want;
}

int kvb_exact_scan(const kvb_scan *x, const kvb_scan_order *order, const void *before, uint32_t h, uint32_t c,
                   char *why, size_t why_bytes)
{
    const kvb_scan_problem *p = &x->problem;
    const uint32_t slots = x->states.slots, d_k = p->d_k;
    double *held = malloc(((size_t)slots * d_k + 1) * sizeof *held); /* [slots][d_k] */
    float *s = malloc(((size_t)d_k + 1) * sizeof *s);
    bool *left = calloc((size_t)slots + 1, sizeof *left); /* [slots] a token has left its state there */
    int right = held && s && left ? 1 : -ENOMEM;
    for (uint32_t t = 0, end; t < p->n_tok && right > 0; t = end) {
        const uint32_t from = kvb_scan_source(x, t), to = x->to[(end = kvb_scan_run_end(x, t)) - 1];
        for (uint32_t i = 0; i < d_k; i++)
            s[i] = from == KVB_SCAN_ZERO ? 0
                   : left[from]          ? (float)held[(size_t)from * d_k + i]
                                         : (float)state_at(x, before, from, h, i, c);
        for (uint32_t u = t; u < end && right > 0; u++) {
            const float out =
                p->kind == KVB_SCAN_CONV ? token_convolve(x, order, u, c, s) : token_take(x, order, u, h, c, s);
            right = alike(kvb_output_value(p->out_elem, x->out, ((size_t)u * p->heads + h) * p->d_v + c),
                          kvb_codec_rounded(p->out_elem, out), "out of token", u, h, c, why, why_bytes);
        }
        for (uint32_t i = 0; i < d_k && to != KVB_SCAN_NONE; i++)
            held[(size_t)to * d_k + i] = kvb_codec_rounded(p->state_elem, s[i]);
        if (to != KVB_SCAN_NONE)
            left[to] = true;
    }
    for (uint32_t slot = 0; slot < slots && right > 0; slot++)
        for (uint32_t i = 0; i < d_k && left[slot] && right > 0; i++)
            right = alike(state_at(x, x->states.base, slot, h, i, c), held[(size_t)slot * d_k + i], "the state in slot",
                          slot, h, c, why, why_bytes);
    free(left);
    free(held);
    free(s);
    return right;
}
