/* SPDX-License-Identifier: Apache-2.0 */
/* The plain statements: attention and scans in scalar f32. */
#include <math.h>
#include <stdio.h>

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
 * scan-reference: plain scalar f32, token by token, written for reading. No column of a head's state needs another one:
 * each is taken through all tokens of the call by itself. Scratch per thread: one column [d_k] f32.
 */

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
    return ((size_t)p->d_k + 15) / 16 * 16; /* whole cache lines: threads share none */
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

/* One token: changes column c of head h, and reads it. */
static float column_step(const kvb_scan *x, uint32_t t, uint32_t h, uint32_t c, float *s)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = (size_t)t * p->heads + h;
    const float *q = kvb_scan_row(x, x->q, t, h), *k = kvb_scan_row(x, x->k, t, h);
    float v = x->v[row * p->d_v + c], decay = 1, gate = 1, read = 0, out = 0;

    switch (p->kind) {
    case KVB_SCAN_MAMBA1:
        gate = x->gate[row * p->d_v + c];
        break;
    case KVB_SCAN_MAMBA2:
        gate = x->gate[row];
        decay = expf(gate * x->a[h]);
        break;
    case KVB_SCAN_LIGHTNING:
        decay = expf(x->a[h]);
        break;
    default: /* KVB_SCAN_DELTA */
        decay = expf(x->gate[row]);
        for (uint32_t i = 0; i < p->d_k; i++)
            read += k[i] * (decay * s[i]);
        v = x->beta[row] * (v - read);
    }
    for (uint32_t i = 0; i < p->d_k; i++) {
        if (p->kind == KVB_SCAN_MAMBA1)
            decay = expf(gate * x->a[((size_t)h * p->d_k + i) * p->d_v + c]);
        s[i] = decay * s[i] + gate * k[i] * v;
        out += q[i] * s[i];
    }
    return out;
}

static float channel_convolve(const kvb_scan *x, uint32_t t, uint32_t c, float *s)
{
    const kvb_scan_problem *p = &x->problem;
    const float v = x->v[(size_t)t * p->d_v + c];
    float z = x->bias ? x->bias[c] : 0;

    for (uint32_t i = 0; i < p->d_k; i++) {
        z += x->a[(size_t)i * p->d_v + c] * s[i];
        s[i] = i + 1 < p->d_k ? s[i + 1] : v;
    }
    z += x->a[(size_t)p->d_k * p->d_v + c] * v;
    return p->silu ? z / (1 + expf(-z)) : z;
}

/* Element i of column c of a state. f32, the usual element, is read and written without a call for each. */
static float element_read(const kvb_scan *x, const void *state, uint32_t i, uint32_t c)
{
    const size_t at = (size_t)i * x->problem.d_v + c;
    float value;
    if (x->problem.state_elem == KVB_F32)
        return ((const float *)state)[at];
    kvb_elems_decode(x->problem.state_elem, &value, (const char *)state + at * kvb_elem_bytes(x->problem.state_elem),
                     1);
    return value;
}

static void element_write(const kvb_scan *x, void *state, uint32_t i, uint32_t c, float value)
{
    const size_t at = (size_t)i * x->problem.d_v + c;
    if (x->problem.state_elem == KVB_F32)
        ((float *)state)[at] = value;
    else
        kvb_elems_encode(x->problem.state_elem, (char *)state + at * kvb_elem_bytes(x->problem.state_elem), &value, 1);
}

static void column_scan(const kvb_scan *x, uint32_t h, uint32_t c, float *s)
{
    const kvb_scan_problem *p = &x->problem;
    for (uint32_t t = 0, end; t < p->n_tok; t = end) {
        const uint32_t slot = kvb_scan_source(x, t);
        const void *from = slot == KVB_SCAN_ZERO ? NULL : kvb_scan_state(x, slot, h);
        end = kvb_scan_run_end(x, t);
        for (uint32_t i = 0; i < p->d_k; i++)
            s[i] = from ? element_read(x, from, i, c) : 0;
        for (uint32_t u = t; u < end; u++) {
            const size_t at = ((size_t)u * p->heads + h) * p->d_v + c;
            float out = p->kind == KVB_SCAN_CONV ? channel_convolve(x, u, c, s) : column_step(x, u, h, c, s);
            kvb_elems_encode(p->out_elem, (char *)x->out + at * kvb_elem_bytes(p->out_elem), &out, 1);
        }
        void *to = x->to[end - 1] == KVB_SCAN_NONE ? NULL : kvb_scan_state(x, x->to[end - 1], h);
        for (uint32_t i = 0; i < p->d_k && to; i++)
            element_write(x, to, i, c, s[i]);
    }
}

static void scan_part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_scan *x = ctx;
    const uint64_t columns = (uint64_t)x->problem.heads * x->problem.d_v;
    float *column = (float *)x->scratch + i * scan_thread_floats(&x->problem);

    for (uint64_t c = columns * i / n; c < columns * (i + 1) / n; c++)
        column_scan(x, (uint32_t)(c / x->problem.d_v), (uint32_t)(c % x->problem.d_v), column);
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
