/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan-reference: plain scalar f32, token by token, written for reading. No column of a head's state needs another one:
 * each is taken through all tokens of the call by itself. Scratch per thread: one column [d_k] f32.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "kernels/softmax.h"

static bool is_plain(kvb_elem elem)
{
    return elem == KVB_F32 || elem == KVB_F16 || elem == KVB_BF16;
}

static bool supports(const kvb_scan_problem *p, char *why, size_t why_bytes)
{
    const char *lack = p->kind >= KVB_SCAN_KINDS                            ? "no such recurrence"
                       : !is_plain(p->state_elem) || !is_plain(p->out_elem) ? "states and out are of f32, f16 or bf16"
                       : !p->heads || !p->groups || p->heads % p->groups    ? "heads are no multiple of groups"
                       : p->kind >= KVB_SCAN_CONV && p->heads * p->groups != 1 ? "a convolution has one head"
                                                                               : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

static size_t thread_floats(const kvb_scan_problem *p)
{
    return ((size_t)p->d_k + 15) / 16 * 16; /* whole cache lines: threads share none */
}

static size_t scratch_bytes(const kvb_scan_problem *p, uint32_t n_threads)
{
    return thread_floats(p) * sizeof(float) * n_threads;
}

/* A new product passes so many roundings until it is part of the state: its own, the addition, and the gate's. */
static void arithmetic(const kvb_scan_problem *p, kvb_scan_arithmetic *a)
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

/* One token: column c of head h is changed, and read. */
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

/* Element i of column c of a state. */
static void *element(const kvb_scan *x, uint32_t slot, uint32_t h, uint32_t i, uint32_t c)
{
    const size_t at = (size_t)i * x->problem.d_v + c;
    return (char *)kvb_scan_state(x, slot, h) + at * kvb_elem_bytes(x->problem.state_elem);
}

static void column_scan(const kvb_scan *x, uint32_t h, uint32_t c, float *s)
{
    const kvb_scan_problem *p = &x->problem;
    for (uint32_t t = 0, end; t < p->n_tok; t = end) {
        const uint32_t slot = kvb_scan_source(x, t);
        end = kvb_scan_run_end(x, t);
        for (uint32_t i = 0; i < p->d_k; i++)
            if (slot == KVB_SCAN_ZERO)
                s[i] = 0;
            else
                kvb_elems_decode(p->state_elem, &s[i], element(x, slot, h, i, c), 1);
        for (uint32_t u = t; u < end; u++) {
            const size_t at = ((size_t)u * p->heads + h) * p->d_v + c;
            float out = p->kind == KVB_SCAN_CONV ? channel_convolve(x, u, c, s) : column_step(x, u, h, c, s);
            kvb_elems_encode(p->out_elem, (char *)x->out + at * kvb_elem_bytes(p->out_elem), &out, 1);
        }
        for (uint32_t i = 0; i < p->d_k && x->to[end - 1] != KVB_SCAN_NONE; i++)
            kvb_elems_encode(p->state_elem, element(x, x->to[end - 1], h, i, c), &s[i], 1);
    }
}

static void part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_scan *x = ctx;
    const uint64_t columns = (uint64_t)x->problem.heads * x->problem.d_v;
    float *column = (float *)x->scratch + i * thread_floats(&x->problem);

    for (uint64_t c = columns * i / n; c < columns * (i + 1) / n; c++)
        column_scan(x, (uint32_t)(c / x->problem.d_v), (uint32_t)(c % x->problem.d_v), column);
}

static int scan(const kvb_scan *args)
{
    kvb_scan copy = *args; /* the team's context is not const */
    args->team->run(args->team, part, &copy);
    return 0;
}

static const kvb_scan_face face = {
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .arithmetic = arithmetic,
    .scan = scan,
};

const kvb_kernel kvb_kernel_scan_reference = {
    .name = "scan-reference",
    .summary = "plain scalar f32, token by token: the one to read",
    .scan = &face,
};
