/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An example plug-in: a scan kernel for Mamba-2 and Lightning Attention with states and out in f32, from attend.h
 * and scan.h alone. It works in the slots themselves: if a run ends in another slot than it begins with, the state is
 * copied first. Build with make, list with `kvbench list scans --plugin kernels/example-plugin/running.so`.
 */
#include "attend.h"
#include "scan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool supports(const kvb_scan_problem *p, char *why, size_t why_bytes)
{
    if ((p->kind == KVB_SCAN_MAMBA2 || p->kind == KVB_SCAN_LIGHTNING) && p->state_elem == KVB_F32 &&
        p->out_elem == KVB_F32)
        return true;
    snprintf(why, why_bytes, "mamba2 and lightning, states and out in f32 only");
    return false;
}

/* One head's state for each thread, for runs that store none. */
static size_t scratch_bytes(const kvb_scan_problem *p, uint32_t n_threads)
{
    return (size_t)p->d_k * p->d_v * sizeof(float) * n_threads;
}

/* gate k v: two products; decay times the old state: one; their sum: one. expf: 1 ulp (glibc manual). */
static void arithmetic(const kvb_scan_problem *p, kvb_scan_arithmetic *a)
{
    *a = (kvb_scan_arithmetic){.chunk = 1, .state_chain = 3, .read_chain = 4 + p->d_k, .exponent_chain = 1};
    a->exp_error = 0x1p-23;
    a->exp_floor = 0x1p-126;
}

static void token(const kvb_scan *x, uint32_t t, uint32_t h, float *state)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = (size_t)t * p->heads + h;
    const float *q = kvb_scan_row(x, x->q, t, h), *k = kvb_scan_row(x, x->k, t, h), *v = x->v + row * p->d_v;
    const float gate = x->gate ? x->gate[row] : 1.0f, decay = expf(gate * x->a[h]);
    float *out = (float *)x->out + row * p->d_v;

    memset(out, 0, p->d_v * sizeof *out);
    for (uint32_t i = 0; i < p->d_k; i++, state += p->d_v)
        for (uint32_t c = 0; c < p->d_v; c++) {
            state[c] = decay * state[c] + gate * k[i] * v[c];
            out[c] += q[i] * state[c];
        }
}

static void head_scan(const kvb_scan *x, uint32_t h, float *mine)
{
    const size_t bytes = (size_t)x->problem.d_k * x->problem.d_v * sizeof(float);
    for (uint32_t t = 0, end; t < x->problem.n_tok; t = end) {
        end = kvb_scan_run_end(x, t);
        const uint32_t from = kvb_scan_source(x, t), to = x->to[end - 1];
        float *state = to == KVB_SCAN_NONE ? mine : kvb_scan_state(x, to, h);
        if (from == KVB_SCAN_ZERO)
            memset(state, 0, bytes);
        else
            memmove(state, kvb_scan_state(x, from, h), bytes);
        for (uint32_t u = t; u < end; u++)
            token(x, u, h, state);
    }
}

static void part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_scan *x = ctx;
    float *mine = (float *)x->scratch + (size_t)i * x->problem.d_k * x->problem.d_v;
    for (uint32_t h = i; h < x->problem.heads; h += n)
        head_scan(x, h, mine);
}

static int scan(const kvb_scan *args)
{
    kvb_scan copy = *args;
    args->team->run(args->team, part, &copy);
    return 0;
}

static const kvb_scan_face face = {
    .supports = supports, .scratch_bytes = scratch_bytes, .arithmetic = arithmetic, .scan = scan};

KVB_PLUGIN_KERNEL("running", "example plug-in: mamba2 and lightning, scalar f32", .scan = &face);
