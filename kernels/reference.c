/* SPDX-License-Identifier: Apache-2.0 */
/* The plain statements: attention and scans in scalar f32. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "kernels/softmax.h"

/*
 * The reference kernel: plain scalar f32, written for reading. Two passes over the cells that a query sees, for some query
 * heads of one KV head: scores and the largest of each head; then weights, their sums and the weighted sums of V rows.
 * Rows of any format are decoded each time they are needed, at most CELLS at once.
 * Scratch per thread, all f32: scores [HEADS][n_cells], sums [HEADS][v_dim], largest scores [HEADS], sums of weights
 * [HEADS], K rows [CELLS][k_dim], one V row [v_dim].
 */

enum { HEADS = KVB_REFERENCE_HEADS, CELLS = 8 };

static size_t thread_floats(const kvb_problem *p)
{
    size_t floats = HEADS * ((size_t)p->n_cells + p->v_dim + 2) + (size_t)CELLS * p->k_dim + p->v_dim;
    return (floats + 15) / 16 * 16; /* whole cache lines: threads share none */
}

static size_t scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    return thread_floats(p) * sizeof(float) * n_threads;
}

static bool order(const kvb_attend *call, kvb_order *order)
{
    (void)call;
    *order = (kvb_order){.softmax = KVB_SOFTMAX_TWO_PASSES, .tile.dot.n = 1};
    return true;
}

/* Products of q with rows, each summed in order. The sums are made side by side, because each addition waits for the one
 * before it. */
static void dots(const float *q, const float *const rows[CELLS], uint32_t n, float sums[CELLS])
{
    float sum[CELLS] = {0};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < CELLS; c++)
            sum[c] += q[i] * rows[c][i];
    for (uint32_t c = 0; c < CELLS; c++)
        sums[c] = sum[c];
}

/* Query heads first .. first + heads - 1, at most HEADS, all of one KV head. */
static void heads_attend(const kvb_attend *args, uint32_t t, uint32_t first, uint32_t heads, float *scratch)
{
    const kvb_problem *p = &args->problem;
    const uint32_t kv_head = first / (p->n_heads / p->n_kv_heads);
    const size_t cells = p->n_cells;
    const float *q = args->q + ((size_t)t * p->n_heads + first) * p->k_dim;
    float *scores = scratch, *acc = scores + heads * cells, *max = acc + (size_t)heads * p->v_dim, *sum = max + heads;
    float *k_rows = sum + heads, *v_row = p->v_in_k ? k_rows : k_rows + (size_t)CELLS * p->k_dim;
    const kvb_view *v_view = p->v_in_k ? &args->k : &args->v;
    uint32_t cursor = 0, n = 0, i = 0;
    kvb_run run;

    for (uint32_t h = 0; h < heads; h++)
        max[h] = kvb_sink_logit(args, first + h);
    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run))
        for (uint32_t c = run.begin, some; c < run.end; c += some, n += some) {
            const float *k[CELLS];
            some = run.end - c < CELLS ? run.end - c : CELLS;
            for (uint32_t j = 0; j < CELLS; j++) /* the last row fills the places that are left */
                k[j] = j < some ? kvb_row_read(&args->k, kv_head, c + j, k_rows + (size_t)j * p->k_dim) : k[j - 1];
            for (uint32_t h = 0; h < heads; h++) {
                float *score = scores + h * cells + n, sums[CELLS];
                dots(q + (size_t)h * p->k_dim, k, p->k_dim, sums);
                for (uint32_t j = 0; j < some; j++) {
                    score[j] = kvb_logit(p, sums[j]);
                    if (score[j] > max[h])
                        max[h] = score[j];
                }
            }
        }

    for (uint32_t h = 0; h < heads; h++)
        sum[h] = kvb_weights(scores + h * cells, n, max[h], kvb_sink_weight(args, first + h, max[h]));
    for (size_t d = 0; d < (size_t)heads * p->v_dim; d++)
        acc[d] = 0.0f;
    cursor = 0;
    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run))
        for (uint32_t c = run.begin; c < run.end; c++, i++) {
            const float *v = kvb_row_read(v_view, kv_head, c, v_row);
            for (uint32_t h = 0; h < heads; h++)
                for (uint32_t d = 0; d < p->v_dim; d++)
                    acc[(size_t)h * p->v_dim + d] += scores[h * cells + i] * v[d];
        }
    for (uint32_t h = 0; h < heads; h++)
        kvb_row_finish(args, t, first + h, acc + (size_t)h * p->v_dim, max[h], sum[h]);
}

/* Parts of the query heads of a KV head are dealt out one by one: under CAUSAL later tokens cost more. */
static void part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_attend *args = ctx;
    const kvb_problem *p = &args->problem;
    float *scratch = (float *)args->scratch + i * thread_floats(p);
    const uint32_t each = p->n_heads / p->n_kv_heads, parts = (each + HEADS - 1) / HEADS;
    const size_t all = (size_t)p->n_tok * p->n_kv_heads * parts;

    for (size_t at = i; at < all; at += n) {
        const uint32_t from = (uint32_t)(at % parts) * HEADS, kv_head = (uint32_t)(at / parts % p->n_kv_heads);
        heads_attend(args, (uint32_t)(at / parts / p->n_kv_heads), kv_head * each + from,
                     each - from < HEADS ? each - from : HEADS, scratch);
    }
}

static int attend(const kvb_attend *args)
{
    args->team->run(args->team, part, (void *)(uintptr_t)args);
    return 0;
}

const kvb_kernel kvb_kernel_reference = {
    .name = "reference",
    .summary = "plain scalar f32, two passes: the one to read",
    .flags = KVB_KERNEL_FRONTS,
    .masks = KVB_MASKS_ALL,
    .supports = kvb_readable_supports,
    .scratch_bytes = scratch_bytes,
    .arithmetic = kvb_softmax_arithmetic,
    .order = order,
    .attend = attend,
};

/*
 * scan-reference: plain f32, token by token, written for reading. The columns of a head's state do not depend on each other:
 * COLUMNS neighbours go through all tokens of the call together. Scratch per thread: [d_k][COLUMNS] f32.
 */

enum { COLUMNS = 8 };

static bool supports(const kvb_scan_problem *p, char *why, size_t why_bytes)
{
    const bool plain = kvb_elem_bytes(p->state_elem) && kvb_elem_bytes(p->out_elem);
    const char *lack = p->kind >= KVB_SCAN_KINDS                               ? "no such recurrence"
                       : !plain                                                ? "states and out are f32, f16 or bf16"
                       : !p->heads || !p->groups || p->heads % p->groups       ? "heads are no multiple of groups"
                       : p->kind >= KVB_SCAN_CONV && p->heads * p->groups != 1 ? "a convolution has one head"
                                                                               : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

static size_t scan_thread_floats(const kvb_scan_problem *p)
{
    return ((size_t)p->d_k * COLUMNS + 15) / 16 * 16; /* whole cache lines: threads share none */
}

static size_t scan_scratch_bytes(const kvb_scan_problem *p, uint32_t n_threads)
{
    return scan_thread_floats(p) * sizeof(float) * n_threads;
}

/* state: roundings of a new product until it is part of the state: its own, the addition's, and the gate's. */
static void scan_arithmetic(const kvb_scan_problem *p, kvb_scan_arithmetic *a)
{
    const uint32_t state = p->kind == KVB_SCAN_CONV ? 0 : p->kind == KVB_SCAN_LIGHTNING ? 2 : 3;
    *a = (kvb_scan_arithmetic){
        .chunk = 1,
        .state_chain = state,
        .read_chain = state + 1 + p->d_k + (p->kind == KVB_SCAN_CONV),
        .solve_chain = p->d_k + 4,
        .exponent_chain = p->kind <= KVB_SCAN_MAMBA2,
        .exp_error = KVB_EXPF_ERROR,
        .exp_floor = KVB_EXPF_FLOOR,
    };
}

/* One token: changes n columns of head h, from column c on, and reads them. s: [d_k][COLUMNS]. A compiler makes vectors of
 * loops over columns that do one thing; subnormal numbers are slow one by one. */
static void columns_step(const kvb_scan *x, uint32_t t, uint32_t h, uint32_t c, uint32_t n, float *restrict s,
                         float out[restrict COLUMNS])
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = (size_t)t * p->heads + h;
    const float *q = kvb_scan_row(x, x->q, t, h), *k = kvb_scan_row(x, x->k, t, h);
    const bool each = p->kind == KVB_SCAN_MAMBA1;
    const float all = p->kind == KVB_SCAN_MAMBA2      ? expf(x->gate[row] * x->a[h])
                      : p->kind == KVB_SCAN_LIGHTNING ? expf(x->a[h])
                      : p->kind == KVB_SCAN_DELTA     ? expf(x->gate[row])
                                                      : 1;
    float v[COLUMNS] = {0}, decay[COLUMNS], gate[COLUMNS], read[COLUMNS] = {0};

    for (uint32_t j = 0; j < COLUMNS; j++) {
        decay[j] = all;
        gate[j] = each && j < n ? x->gate[row * p->d_v + c + j] : p->kind == KVB_SCAN_MAMBA2 ? x->gate[row] : 1;
        out[j] = 0;
    }
    memcpy(v, x->v + row * p->d_v + c, n * sizeof *v);
    for (uint32_t i = 0; i < p->d_k && p->kind == KVB_SCAN_DELTA; i++)
        for (uint32_t j = 0; j < COLUMNS; j++)
            read[j] += k[i] * (decay[j] * s[i * COLUMNS + j]);
    for (uint32_t j = 0; j < COLUMNS && p->kind == KVB_SCAN_DELTA; j++)
        v[j] = x->beta[row] * (v[j] - read[j]);
    for (uint32_t i = 0; i < p->d_k; i++, s += COLUMNS) {
        for (uint32_t j = 0; j < n && each; j++)
            decay[j] = expf(gate[j] * x->a[((size_t)h * p->d_k + i) * p->d_v + c + j]);
        for (uint32_t j = 0; j < COLUMNS; j++)
            s[j] = decay[j] * s[j] + gate[j] * k[i] * v[j];
        for (uint32_t j = 0; j < COLUMNS; j++)
            out[j] += q[i] * s[j];
    }
}

static void channels_convolve(const kvb_scan *x, uint32_t t, uint32_t c, uint32_t n, float *s, float out[COLUMNS])
{
    const kvb_scan_problem *p = &x->problem;
    const float *v = x->v + (size_t)t * p->d_v + c;

    for (uint32_t j = 0; j < n; j++)
        out[j] = x->bias ? x->bias[c + j] : 0;
    for (uint32_t i = 0; i <= p->d_k; i++)
        for (uint32_t j = 0; j < n; j++)
            out[j] += x->a[(size_t)i * p->d_v + c + j] * (i < p->d_k ? s[i * COLUMNS + j] : v[j]);
    for (uint32_t i = 0; i < p->d_k; i++)
        for (uint32_t j = 0; j < n; j++)
            s[i * COLUMNS + j] = i + 1 < p->d_k ? s[(i + 1) * COLUMNS + j] : v[j];
    for (uint32_t j = 0; j < n && p->silu; j++)
        out[j] = out[j] / (1 + expf(-out[j]));
}

static void columns_scan(const kvb_scan *x, uint32_t h, uint32_t c, uint32_t n, float *s)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t bytes = kvb_elem_bytes(p->state_elem), row = p->d_v * bytes;
    float out[COLUMNS];
    for (uint32_t t = 0, end; t < p->n_tok; t = end) {
        const uint32_t slot = kvb_scan_source(x, t);
        const char *from = slot == KVB_SCAN_ZERO ? NULL : (const char *)kvb_scan_state(x, slot, h) + c * bytes;
        end = kvb_scan_run_end(x, t);
        memset(s, 0, (size_t)p->d_k * COLUMNS * sizeof *s);
        for (uint32_t i = 0; i < p->d_k && from; i++)
            kvb_elems_decode(p->state_elem, s + i * COLUMNS, from + i * row, n);
        for (uint32_t u = t; u < end; u++) {
            const size_t at = ((size_t)u * p->heads + h) * p->d_v + c;
            if (p->kind == KVB_SCAN_CONV)
                channels_convolve(x, u, c, n, s, out);
            else
                columns_step(x, u, h, c, n, s, out);
            kvb_elems_encode(p->out_elem, (char *)x->out + at * kvb_elem_bytes(p->out_elem), out, n);
        }
        if (x->to[end - 1] == KVB_SCAN_NONE)
            continue;
        char *to = (char *)kvb_scan_state(x, x->to[end - 1], h) + c * bytes;
        for (uint32_t i = 0; i < p->d_k; i++)
            kvb_elems_encode(p->state_elem, to + i * row, s + i * COLUMNS, n);
    }
}

static void scan_part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_scan *x = ctx;
    const uint32_t d_v = x->problem.d_v, each = (d_v + COLUMNS - 1) / COLUMNS;
    const uint64_t all = (uint64_t)x->problem.heads * each;
    float *columns = (float *)x->scratch + i * scan_thread_floats(&x->problem);

    for (uint64_t at = all * i / n; at < all * (i + 1) / n; at++) {
        const uint32_t c = (uint32_t)(at % each) * COLUMNS;
        columns_scan(x, (uint32_t)(at / each), c, d_v - c < COLUMNS ? d_v - c : COLUMNS, columns);
    }
}

static int scan(const kvb_scan *args)
{
    args->team->run(args->team, scan_part, (void *)(uintptr_t)args);
    return 0;
}

static float scan_decay(float gate, float a)
{
    return expf(gate * a);
}

static float scan_act(float z)
{
    return z / (1 + expf(-z));
}

static bool scan_order(const kvb_scan_problem *p, kvb_scan_order *order)
{
    (void)p;
    *order = (kvb_scan_order){.decay = scan_decay, .act = scan_act};
    return true;
}

static const kvb_scan_face face = {
    .supports = supports,
    .scratch_bytes = scan_scratch_bytes,
    .arithmetic = scan_arithmetic,
    .order = scan_order,
    .scan = scan,
};

const kvb_kernel kvb_kernel_scan_reference = {
    .name = "scan-reference",
    .summary = "plain scalar f32, token by token: the one to read",
    .scan = &face,
};
