/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls of scan kernels, judged by the oracle. The rig keeps the oracle's state of each slot and head, and never
 * reads it from the slots. All that a kernel must not read or must overwrite is NaN: scratch, out, and slots before
 * their first write.
 */
#ifndef KVB_TEST_SCAN_RIG_H
#define KVB_TEST_SCAN_RIG_H

#include "ci/tests/tests.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "kernels/model.h"
#include "oracle/oracle.h"
#include "oracle/recurrence.h"

static const kvb_kernel *const scan_kernels[] = {&kvb_kernel_scan_reference, &kvb_kernel_scan, NULL};

typedef struct scan_rig {
    kvb_scan args; /* the current call */
    const kvb_kernel *kernel;
    kvb_scan_arithmetic arithmetic;
    uint32_t slots, room;  /* room: most tokens of a call */
    kvb_recurrence **book; /* [slots][heads] states in the slots */
    kvb_recurrence **now;  /* [heads] states in the call */
    bool *written;         /* [slots] */
    float *inputs[6];      /* q k v gate beta a, as args has them */
    float *bias;
    uint32_t *from, *to; /* [room] */
    char *before;        /* the slots before the call */
    uint64_t random;
    double memory;                    /* about how many tokens decays remember: DELTA and LIGHTNING */
    double rho_out, rho_state, worst; /* largest so far; worst: error of out / worst-case bound */
    double error, bound;              /* last call: largest error and bound of out, relative to the largest |out| */
} scan_rig;

static inline uint64_t rig_bits(scan_rig *r)
{
    uint64_t z = r->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t rig_below(scan_rig *r, uint32_t n)
{
    return (uint32_t)(rig_bits(r) >> 33) % n;
}

static inline double rig_unit(scan_rig *r)
{
    return (double)(rig_bits(r) >> 11) * 0x1p-53;
}

/* About normal: twelve uniform numbers. */
static inline float rig_gauss(scan_rig *r)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += rig_unit(r);
    return (float)sum;
}

static inline double rig_log_uniform(scan_rig *r, double low, double high)
{
    return low * pow(high / low, rig_unit(r));
}

static inline void rig_part(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    for (uint32_t i = team->n; i-- > 0;) /* last part first: a kernel must not rely on the order */
        part(ctx, i, team->n);
}

static const kvb_team rig_teams[] = {{1, rig_part}, {2, rig_part}, {3, rig_part}};

static inline void *rig_memory(size_t bytes)
{
    void *block = NULL;
    bytes = (bytes + 64) / 64 * 64;
    assert_int_equal(posix_memalign(&block, 64, bytes), 0);
    memset(block, 0xff, bytes); /* NaN of every type */
    return block;
}

static inline size_t rig_state_bytes(const kvb_scan_problem *p)
{
    return (size_t)p->heads * p->d_k * p->d_v * kvb_elem_bytes(p->state_elem);
}

/* Allocates inputs, outputs and slots, and draws the layer's constants. p->n_tok: most tokens of a call. */
static inline void rig_open(scan_rig *r, const kvb_kernel *kernel, const kvb_scan_problem *p, uint32_t slots,
                            uint64_t seed)
{
    const bool each = p->kind == KVB_SCAN_MAMBA1, conv = p->kind == KVB_SCAN_CONV, delta = p->kind == KVB_SCAN_DELTA;
    const size_t state = (size_t)p->heads * p->d_k * p->d_v, values = (size_t)p->heads * p->d_v, n = p->n_tok;
    char why[128] = "";

    *r = (scan_rig){.kernel = kernel, .slots = slots, .room = p->n_tok, .random = seed, .memory = 100};
    if (!kernel->scan->supports(p, why, sizeof why))
        fail_msg("%s: %s", kernel->name, why);
    kernel->scan->arithmetic(p, &r->arithmetic);
    const size_t floats[6] = {conv ? 0 : n * p->groups * p->d_k,
                              conv ? 0 : n * p->groups * p->d_k,
                              n * values,
                              each                            ? n * values
                              : conv                          ? 0
                              : p->kind == KVB_SCAN_LIGHTNING ? 0
                                                              : n * p->heads,
                              delta ? n * p->heads : 0,
                              each    ? state
                              : conv  ? (size_t)(p->d_k + 1) * p->d_v
                              : delta ? 0
                                      : p->heads};
    for (int i = 0; i < 6; i++)
        r->inputs[i] = floats[i] ? rig_memory(floats[i] * sizeof(float)) : NULL;
    r->bias = conv && rig_below(r, 2) ? rig_memory(p->d_v * sizeof(float)) : NULL;
    for (uint32_t c = 0; r->bias && c < p->d_v; c++)
        r->bias[c] = rig_gauss(r);
    r->from = rig_memory(n * sizeof *r->from);
    r->to = rig_memory(n * sizeof *r->to);
    r->args = (kvb_scan){.problem = *p,
                         .q = r->inputs[0],
                         .k = r->inputs[1],
                         .v = r->inputs[2],
                         .gate = r->inputs[3],
                         .beta = r->inputs[4],
                         .a = r->inputs[5],
                         .bias = r->bias,
                         .from = r->from,
                         .to = r->to,
                         .out = rig_memory(n * values * kvb_elem_bytes(p->out_elem)),
                         .scratch = rig_memory(kernel->scan->scratch_bytes ? kernel->scan->scratch_bytes(p, 3) : 0)};
    r->args.states.slot_bytes = (rig_state_bytes(p) + 63) / 64 * 64 + 64;
    r->args.states.slots = slots;
    r->args.states.base = rig_memory(slots * r->args.states.slot_bytes);
    r->before = rig_memory(slots * r->args.states.slot_bytes);
    r->book = calloc((size_t)slots * p->heads, sizeof *r->book);
    r->now = calloc(p->heads, sizeof *r->now);
    r->written = calloc(slots, sizeof *r->written);
    for (uint32_t i = 0; i < slots * p->heads; i++)
        assert_non_null(r->book[i] = kvb_recurrence_open(p, &r->arithmetic));
    for (uint32_t h = 0; h < p->heads; h++)
        assert_non_null(r->now[h] = kvb_recurrence_open(p, &r->arithmetic));
    for (size_t i = 0; i < floats[5]; i++)
        r->inputs[5][i] = conv                            ? rig_gauss(r)
                          : p->kind == KVB_SCAN_LIGHTNING ? -(float)rig_log_uniform(r, 1 / r->memory, 1)
                                                          : -(float)rig_log_uniform(r, 1, 16);
}

static inline void rig_close(scan_rig *r)
{
    const uint32_t heads = r->args.problem.heads;
    for (uint32_t i = 0; i < r->slots * heads; i++)
        kvb_recurrence_close(r->book[i]);
    for (uint32_t h = 0; h < heads; h++)
        kvb_recurrence_close(r->now[h]);
    for (int i = 0; i < 6; i++)
        free(r->inputs[i]);
    void *rest[] = {r->bias,   r->from, r->to,  r->args.out, r->args.scratch, r->args.states.base,
                    r->before, r->book, r->now, r->written};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        free(rest[i]);
}

/* Draws the inputs of n tokens as in models: Mamba's Delta from 0.001 to 0.1; DELTA's keys of norm 1. */
static inline void rig_draw(scan_rig *r, uint32_t n)
{
    const kvb_scan_problem *p = &r->args.problem;
    const size_t keys = (size_t)p->groups * p->d_k, values = (size_t)p->heads * p->d_v;
    const size_t gates = p->kind == KVB_SCAN_MAMBA1 ? values : p->heads;

    for (size_t i = 0; r->inputs[0] && i < n * keys; i++) {
        r->inputs[0][i] = rig_gauss(r) / sqrtf((float)p->d_k);
        r->inputs[1][i] = rig_gauss(r);
    }
    for (size_t row = 0; p->kind == KVB_SCAN_DELTA && row < n * p->groups; row++) {
        float *k = r->inputs[1] + row * p->d_k, norm2 = 0;
        for (uint32_t i = 0; i < p->d_k; i++)
            norm2 += k[i] * k[i];
        for (uint32_t i = 0; i < p->d_k; i++)
            k[i] /= sqrtf(norm2);
    }
    for (size_t i = 0; i < n * values; i++)
        r->inputs[2][i] = rig_gauss(r);
    for (size_t i = 0; r->inputs[3] && i < n * gates; i++)
        r->inputs[3][i] = p->kind == KVB_SCAN_DELTA ? -(float)rig_log_uniform(r, 0.1 / r->memory, 10 / r->memory)
                                                    : (float)rig_log_uniform(r, 1e-3, 0.1);
    for (size_t i = 0; r->inputs[4] && i < n * p->heads; i++)
        r->inputs[4][i] = (float)rig_unit(r);
}

static inline void rig_rho(double *most, double rho)
{
    *most = rho > *most ? rho : *most;
}

static inline void rig_compare(double *most, const kvb_recurrence_want *want, kvb_elem elem, const void *got, size_t n)
{
    kvb_diff diff = {0};
    kvb_diff_take(&diff, &(kvb_diff_place){0}, want, n, elem, got);
    rig_rho(most, diff.rho);
}

/* Compares each token's out and each written slot with the oracle. */
static inline void rig_judge(scan_rig *r, uint32_t n)
{
    const kvb_scan *x = &r->args;
    const kvb_scan_problem *p = &x->problem;
    const size_t elements = (size_t)p->d_k * p->d_v, out_bytes = kvb_elem_bytes(p->out_elem);
    kvb_recurrence_want *want = malloc((elements + p->d_v) * sizeof *want);
    kvb_recurrence *zero = kvb_recurrence_open(p, &r->arithmetic);
    double error = 0, bound = 0, size = 0;

    assert_non_null(want);
    assert_non_null(zero);
    for (uint32_t t = 0, end; t < n; t = end) {
        const uint32_t slot = kvb_scan_source(x, t);
        end = kvb_scan_run_end(x, t);
        for (uint32_t h = 0; h < p->heads; h++) {
            kvb_recurrence *now = r->now[h];
            kvb_recurrence_copy(now, slot == KVB_SCAN_ZERO ? zero : r->book[slot * p->heads + h]);
            for (uint32_t u = t; u < end; u++) {
                const char *out = (const char *)x->out + ((size_t)u * p->heads + h) * p->d_v * out_bytes;
                const kvb_recurrence_token token = kvb_recurrence_token_of(x, u, h, 0);
                kvb_recurrence_step(now, &token, want);
                rig_compare(&r->rho_out, want, p->out_elem, out, p->d_v);
                for (uint32_t c = 0; c < p->d_v; c++) {
                    float got;
                    kvb_elems_decode(p->out_elem, &got, out + c * out_bytes, 1);
                    rig_rho(&error, fabs((double)got - want[c].value));
                    rig_rho(&bound, want[c].bound);
                    rig_rho(&size, fabs(want[c].value));
                    rig_rho(&r->worst, fabs((double)got - want[c].value) / want[c].worst);
                }
            }
            kvb_recurrence_rest(now, x->to[end - 1] != KVB_SCAN_NONE);
            if (x->to[end - 1] == KVB_SCAN_NONE)
                continue;
            kvb_recurrence_copy(r->book[x->to[end - 1] * p->heads + h], now);
            r->written[x->to[end - 1]] = true;
        }
    }
    for (uint32_t s = 0; s < r->slots; s++)
        for (uint32_t h = 0; h < p->heads && r->written[s]; h++) {
            kvb_recurrence_state(r->book[s * p->heads + h], want);
            rig_compare(&r->rho_state, want, p->state_elem, kvb_scan_state(x, s, h), elements);
        }
    r->error = error / size;
    r->bound = bound / size;
    kvb_recurrence_close(zero);
    free(want);
}

/* No memory of the slots may have changed, except states in `to`. */
static inline void rig_untouched(const scan_rig *r, uint32_t n)
{
    const size_t bytes = r->args.states.slot_bytes, used = rig_state_bytes(&r->args.problem);
    for (uint32_t s = 0; s < r->slots; s++) {
        bool due = false;
        for (uint32_t t = 0; t < n; t++)
            due = due || r->to[t] == s;
        const size_t from = due ? used : 0;
        if (memcmp((char *)r->args.states.base + s * bytes + from, r->before + s * bytes + from, bytes - from) != 0)
            fail_msg("%s wrote to slot %u", r->kernel->name, s);
    }
}

/* Makes and judges a call over n tokens; from and to must be set. actual: the kernel to call in place of the declared
 * one; NULL: the declared one. */
static inline void rig_call(scan_rig *r, uint32_t n, uint32_t team, const kvb_kernel *actual)
{
    const kvb_scan_problem *p = &r->args.problem;
    assert_true(n <= r->room);
    rig_draw(r, n);
    r->args.problem.n_tok = n;
    r->args.team = &rig_teams[team];
    memset(r->args.out, 0xff, (size_t)n * p->heads * p->d_v * kvb_elem_bytes(p->out_elem));
    memcpy(r->before, r->args.states.base, r->slots * r->args.states.slot_bytes);
    assert_int_equal((actual ? actual : r->kernel)->scan->scan(&r->args), 0);
    rig_judge(r, n);
}

/* Sets from and to for n tokens of one sequence, from one slot to another. */
static inline void rig_sequence(scan_rig *r, uint32_t from, uint32_t to, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++) {
        r->from[t] = t ? KVB_SCAN_PREVIOUS : from;
        r->to[t] = t + 1 < n ? KVB_SCAN_NONE : to;
    }
}

/* A plain scan kernel (one thread, f32, token by token) that makes the mistake wrong_now. NOTHING: it is honest. */

#define WRONG_CHUNK 64u
#define WRONG_ROWS  128u           /* most rows of a state */
#define WRONG_STATE (128u * 1536u) /* most elements of a state */

/* X(name, kinds to which the mistake applies (bits), what is wrong) */
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

/* Adds one token more: k and v are zero, the gate is the last token's. */
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
