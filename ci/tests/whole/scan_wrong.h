/* SPDX-License-Identifier: Apache-2.0 */
/* A plain scan kernel of one thread, in f32, token by token, that makes one mistake on demand; with none it is honest.
 */
#ifndef KVB_TEST_SCAN_WRONG_H
#define KVB_TEST_SCAN_WRONG_H

#include "ci/tests/whole/scan_rig.h"

#define WRONG_CHUNK 64u
#define WRONG_ROWS  128u           /* of a state at most */
#define WRONG_STATE (128u * 1536u) /* elements of one at most */

/* X(name, kinds in which it is one (bits), what is wrong) */
#define KIND(K)   (1u << KVB_SCAN_##K)
#define ALL_KINDS (KIND(CONV) | STATES)
#define STATES    (KIND(MAMBA1) | KIND(MAMBA2) | KIND(LIGHTNING) | KIND(DELTA))
#define GATED     (KIND(MAMBA1) | KIND(MAMBA2) | KIND(DELTA))
#define WRONGS(X)                                                                                                      \
    X(NOTHING, 0, "nothing")                                                                                           \
    X(NOT_CARRIED, ALL_KINDS, "a call begins with zeros")                                                              \
    X(NOT_CLEARED, ALL_KINDS, "a new sequence begins with the state of slot 0")                                        \
    X(BORDER, STATES, "the decay is left out at the border of a chunk of 64")                                          \
    X(PADDING, ALL_KINDS, "one token of padding moves the state")                                                      \
    X(LATE, STATES, "out is read before the token writes")                                                             \
    X(EARLY_DECAY, STATES, "a token's write is decayed by itself")                                                     \
    X(SKIPPED, ALL_KINDS, "the last token of a run writes nothing")                                                    \
    X(BF16_STATE, STATES, "the state is held in bf16, f32 is declared")                                                \
    X(BF16_OPERANDS, STATES, "products of bf16, f32 is declared")                                                      \
    X(GROUP, KIND(MAMBA2) | KIND(LIGHTNING) | KIND(DELTA), "groups of q and k are taken in turn")                      \
    X(SHARED, ALL_KINDS, "a fork writes to the slot that it shares")                                                   \
    X(SLOT, ALL_KINDS, "the state is written to the slot behind its own")                                              \
    X(PARENT, ALL_KINDS, "a node of a tree begins with its neighbour's state")                                         \
    X(GATE, GATED, "the next head's (channel's) gate")                                                                 \
    X(DECAY, STATES, "decays are too large by one part in a thousand")                                                 \
    X(BETA, KIND(DELTA), "beta is left out")                                                                           \
    X(STALE_READ, KIND(DELTA), "the key reads the state before its decay")                                             \
    X(TAPS, KIND(CONV), "taps in the opposite order")                                                                  \
    X(BIAS, KIND(CONV), "no bias")

#define WRONG_ENUM(NAME, KINDS, TEXT) WRONG_##NAME,
enum wrong { WRONGS(WRONG_ENUM) WRONG_COUNT };
#define WRONG_ROW(NAME, KINDS, TEXT) {#NAME, TEXT, KINDS},
static const struct wrong_row {
    const char *name, *what;
    uint32_t kinds;
} wrongs[WRONG_COUNT] = {WRONGS(WRONG_ROW)};

static enum wrong wrong_now;

static inline float wrong_bf16(bool wanted, float x)
{
    uint16_t bits;
    if (wanted) {
        kvb_elems_encode(KVB_BF16, &bits, &x, 1);
        kvb_elems_decode(KVB_BF16, &x, &bits, 1);
    }
    return x;
}

static inline bool wrong_is(enum wrong wrong)
{
    return wrong_now == wrong;
}

static inline void wrong_token(const kvb_scan *x, uint32_t t, uint32_t first, uint32_t h, float *s, float *out)
{
    const kvb_scan_problem *p = &x->problem;
    const bool each = p->kind == KVB_SCAN_MAMBA1, delta = p->kind == KVB_SCAN_DELTA,
               narrow = wrong_is(WRONG_BF16_OPERANDS);
    const uint32_t group = wrong_is(WRONG_GROUP) ? h % p->groups : h / (p->heads / p->groups);
    const float *q = x->q + ((size_t)t * p->groups + group) * p->d_k,
                *k = x->k + ((size_t)t * p->groups + group) * p->d_k;
    const size_t row = (size_t)t * p->heads + h, next = (size_t)t * p->heads + (h + 1) % p->heads;

    for (uint32_t c = 0; c < p->d_v; c++) {
        const uint32_t other = wrong_is(WRONG_GATE) ? (c + 1) % p->d_v : c;
        const float gate = each      ? x->gate[row * p->d_v + other]
                           : x->gate ? x->gate[wrong_is(WRONG_GATE) ? next : row]
                                     : 1;
        float read = 0, write, sum = 0, decay[WRONG_ROWS];
        for (uint32_t i = 0; i < p->d_k; i++) {
            const float a = each ? x->a[((size_t)h * p->d_k + i) * p->d_v + c] : delta ? 1 : x->a[h];
            decay[i] = wrong_is(WRONG_BORDER) && t > first && (t - first) % WRONG_CHUNK == 0 ? 1 : expf(gate * a);
            decay[i] *= wrong_is(WRONG_DECAY) ? 1.001f : 1;
            read += k[i] * s[i * p->d_v + c] * (wrong_is(WRONG_STALE_READ) ? 1 : decay[i]);
        }
        write = x->v[row * p->d_v + c] * (delta ? 1 : gate) - (delta ? read : 0);
        write *= delta && !wrong_is(WRONG_BETA) ? x->beta[row] : 1;
        if (wrong_is(WRONG_SKIPPED) && t + 1 == kvb_scan_run_end(x, first))
            write = 0;
        for (uint32_t i = 0; i < p->d_k; i++) {
            float *at = &s[i * p->d_v + c], old = *at;
            const float product = wrong_bf16(narrow, k[i]) * wrong_bf16(narrow, write);
            *at = wrong_is(WRONG_EARLY_DECAY) ? decay[i] * (old + product) : decay[i] * old + product;
            *at = wrong_bf16(wrong_is(WRONG_BF16_STATE), *at);
            sum += q[i] * (wrong_is(WRONG_LATE) ? decay[i] * old : *at);
        }
        out[c] = sum;
    }
}

static inline void wrong_convolve(const kvb_scan *x, uint32_t t, bool last, float *s, float *out)
{
    const kvb_scan_problem *p = &x->problem;
    const uint32_t rows = p->d_k, w = p->d_v;
    for (uint32_t c = 0; c < w; c++) {
        float z = x->bias && !wrong_is(WRONG_BIAS) ? x->bias[c] : 0;
        for (uint32_t i = 0; i <= rows; i++) {
            const uint32_t tap = wrong_is(WRONG_TAPS) ? rows - i : i;
            z += x->a[(size_t)tap * w + c] * (i < rows ? s[i * w + c] : x->v[(size_t)t * w + c]);
        }
        for (uint32_t i = 0; i < rows && !(last && wrong_is(WRONG_SKIPPED)); i++)
            s[i * w + c] = i + 1 < rows ? s[(i + 1) * w + c] : x->v[(size_t)t * w + c];
        out[c] = p->silu ? z / (1 + expf(-z)) : z;
    }
}

/* One more token: k and v are zero, its gate is the last token's. */
static inline void wrong_pad(const kvb_scan *x, uint32_t t, uint32_t h, float *s)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = (size_t)t * p->heads + h, n = (size_t)p->d_k * p->d_v;
    for (size_t at = 0; at < n; at++)
        if (p->kind == KVB_SCAN_CONV)
            s[at] = at + p->d_v < n ? s[at + p->d_v] : 0;
        else if (p->kind == KVB_SCAN_MAMBA1)
            s[at] *= expf(x->gate[row * p->d_v + at % p->d_v] * x->a[h * n + at]);
        else
            s[at] *= expf(p->kind == KVB_SCAN_MAMBA2 ? x->gate[row] * x->a[h] : x->gate ? x->gate[row] : x->a[h]);
}

static inline int wrong_scan(const kvb_scan *x)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t n = (size_t)p->d_k * p->d_v;
    static float s[WRONG_STATE], out[WRONG_STATE]; /* one thread, and no allocation in a call */
    for (uint32_t t = 0, end; t < p->n_tok; t = end) {
        end = kvb_scan_run_end(x, t);
        uint32_t from = kvb_scan_source(x, t), to = x->to[end - 1];
        const uint32_t place = from;
        if (wrong_is(WRONG_NOT_CARRIED))
            from = KVB_SCAN_ZERO;
        if (wrong_is(WRONG_NOT_CLEARED) && from == KVB_SCAN_ZERO)
            from = 0;
        if (wrong_is(WRONG_PARENT) && t > 0 && from != KVB_SCAN_ZERO && x->to[t - 1] != KVB_SCAN_NONE)
            from = x->to[t - 1];
        if (wrong_is(WRONG_SHARED) && to != KVB_SCAN_NONE && place != KVB_SCAN_ZERO)
            to = place;
        if (wrong_is(WRONG_SLOT) && to != KVB_SCAN_NONE)
            to = (to + 1) % x->states.slots;
        for (uint32_t h = 0; h < p->heads; h++) {
            memset(s, 0, n * sizeof *s);
            if (from != KVB_SCAN_ZERO)
                kvb_elems_decode(p->state_elem, s, kvb_scan_state(x, from, h), n);
            for (uint32_t u = t; u < end; u++) {
                char *at = (char *)x->out + ((size_t)u * p->heads + h) * p->d_v * kvb_elem_bytes(p->out_elem);
                if (p->kind == KVB_SCAN_CONV)
                    wrong_convolve(x, u, u + 1 == end, s, out);
                else
                    wrong_token(x, u, t, h, s, out);
                kvb_elems_encode(p->out_elem, at, out, p->d_v);
            }
            if (wrong_is(WRONG_PADDING))
                wrong_pad(x, end - 1, h, s);
            if (to != KVB_SCAN_NONE)
                kvb_elems_encode(p->state_elem, kvb_scan_state(x, to, h), s, n);
        }
    }
    return 0;
}

static inline bool wrong_supports(const kvb_scan_problem *p, char *why, size_t why_bytes)
{
    return p->d_k <= WRONG_ROWS && p->d_k * p->d_v <= WRONG_STATE &&
           kvb_kernel_scan_reference.scan->supports(p, why, why_bytes);
}

static inline void wrong_arithmetic(const kvb_scan_problem *p, kvb_scan_arithmetic *a)
{
    kvb_kernel_scan_reference.scan->arithmetic(p, a);
}

static const kvb_scan_face wrong_face = {
    .supports = wrong_supports, .arithmetic = wrong_arithmetic, .scan = wrong_scan};
static const kvb_kernel wrong_kernel = {.name = "wrong", .summary = "one mistake on demand", .scan = &wrong_face};

#endif
