/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in of scan kernels for mamba1 and its convolution, with f32 states: one is right, the others each do one
 * forbidden thing. */
#include "attend.h"
#include "scan.h"

#include <math.h>
#include <stdlib.h>

/* One token of the recurrence. decays: false: the state does not decay. */
static void token_scan(const kvb_scan *x, uint32_t t, bool decays)
{
    const kvb_scan_problem *p = &x->problem;
    const uint32_t rows = p->d_k, width = p->d_v, source = x->from[t] == KVB_SCAN_PREVIOUS ? KVB_SCAN_NONE : x->from[t];
    const bool conv = p->kind == KVB_SCAN_CONV;
    float *state = x->scratch, *out = (float *)x->out + (size_t)t * width;
    if (x->from[t] != KVB_SCAN_PREVIOUS)
        for (uint32_t i = 0; i < rows * width; i++)
            state[i] = source == KVB_SCAN_ZERO ? 0 : ((float *)kvb_scan_state(x, source, 0))[i];
    for (uint32_t c = 0; c < width; c++) {
        const float v = x->v[(size_t)t * width + c], gate = conv ? 0 : x->gate[(size_t)t * width + c];
        float sum = conv ? x->bias[c] + x->a[rows * width + c] * v : 0;
        for (uint32_t i = 0; i < rows; i++) {
            float *s = &state[i * width + c];
            if (conv) {
                sum += x->a[i * width + c] * *s;
                *s = i + 1 < rows ? s[width] : v;
                continue;
            }
            *s = (decays ? expf(gate * x->a[i * width + c]) : 1) * *s + gate * x->k[(size_t)t * rows + i] * v;
            sum += x->q[(size_t)t * rows + i] * *s;
        }
        out[c] = conv && p->silu ? sum / (1 + expf(-sum)) : sum;
    }
    for (uint32_t i = 0; i < rows * width && x->to[t] != KVB_SCAN_NONE; i++)
        ((float *)kvb_scan_state(x, x->to[t], 0))[i] = state[i];
}

static int right(const kvb_scan *x)
{
    for (uint32_t t = 0; t < x->problem.n_tok; t++)
        token_scan(x, t, true);
    return 0;
}

static int remembers(const kvb_scan *x)
{
    for (uint32_t t = 0; t < x->problem.n_tok; t++)
        token_scan(x, t, false);
    return 0;
}

static int unwritten(const kvb_scan *x)
{
    const float kept = ((float *)x->out)[3];
    right(x);
    ((float *)x->out)[3] = kept;
    return 0;
}

static int input(const kvb_scan *x)
{
    ((float *)(uintptr_t)x->v)[0] += 1;
    return right(x);
}

static int overrun(const kvb_scan *x)
{
    ((volatile float *)x->out)[(size_t)x->problem.n_tok * x->problem.d_v] = 1;
    return right(x);
}

static int allocates(const kvb_scan *x)
{
    static void *volatile block;
    block = malloc(64);
    free(block);
    return right(x);
}

static int error(const kvb_scan *x)
{
    (void)x;
    return 5;
}

static int infinite(const kvb_scan *x)
{
    right(x);
    ((float *)x->out)[x->problem.d_v / 2] = INFINITY;
    return 0;
}

static int moody(const kvb_scan *x)
{
    static unsigned calls;
    right(x);
    ((float *)x->out)[0] *= ++calls > 300 ? 1.0000001f : 1;
    return 0;
}

static bool supports(const kvb_scan_problem *p, char *why, size_t why_bytes)
{
    (void)why, (void)why_bytes;
    return (p->kind == KVB_SCAN_MAMBA1 || p->kind == KVB_SCAN_CONV) && p->state_elem == KVB_F32 &&
           p->out_elem == KVB_F32;
}

static size_t scratch_bytes(const kvb_scan_problem *p, uint32_t n_threads)
{
    (void)n_threads;
    return (size_t)p->d_k * p->d_v * sizeof(float);
}

/* arithmetic() declares plain loops. */
#define KERNEL(NAME)                                                                                                   \
    &(const kvb_kernel)                                                                                                \
    {                                                                                                                  \
        .name = "scan-" #NAME, .summary = #NAME, .scan = &(const kvb_scan_face)                                        \
        {                                                                                                              \
            .supports = supports, .scratch_bytes = scratch_bytes, .scan = NAME                                         \
        }                                                                                                              \
    }
static const kvb_kernel *const kernels[] = {
    KERNEL(right),     KERNEL(remembers), KERNEL(unwritten), KERNEL(input), KERNEL(overrun),
    KERNEL(allocates), KERNEL(error),     KERNEL(infinite),  KERNEL(moody), NULL};
KVB_PLUGIN_EXPORT const kvb_plugin_v1 kvb_plugin = {
    .abi_version = KVB_ABI_VERSION, .name = "scans", .kernels = kernels};
