/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.h: the contract of recurrent layers, version KVB_ABI_VERSION. Element types and team are those of view.h; attend.h has the
 * struct of a kernel and that of a plug-in. Copy the three files into your repository, and load with `--plugin ./yours.so`. C11.
 *
 * A layer keeps one state S [heads][d_k][d_v] for each sequence, of one size however long the sequence is. Each token changes
 * the state and reads it. Head h takes q and k of group h / (heads / groups). With all values of token t, a head computes:
 *
 *   MAMBA1     S[i][c] = exp(gate[c] a[i][c]) S[i][c] + gate[c] k[i] v[c]      out = q^T S
 *   MAMBA2     S[i][c] = exp(gate a) S[i][c] + gate k[i] v[c]                  out = q^T S
 *   LIGHTNING  S[i][c] = exp(a) S[i][c] + k[i] v[c]                            out = q^T S
 *   DELTA      S = exp(gate) S;  S[i][c] += k[i] beta (v[c] - (k^T S)[c])      out = q^T S
 *   CONV       out[c] = act(bias[c] + sum over i <= d_k of a[i][c] x[i][c]), where x[0] .. x[d_k-1] are the rows of S and x[d_k] is v;
 *              then S's rows are x[1] .. x[d_k].  act(z) = z / (1 + exp(-z)) with `silu`, else z
 *
 * In the words of the papers:
 *   MAMBA1     selective scan: Gu, Dao: Mamba, arXiv 2312.00752, algorithm 2. heads = 1, d_k = d_state, d_v = channels; q, k, v,
 *              gate, a are C, B, x, Delta (softplus taken) and A, here with channels last. B is discretised as Delta B.
 *   MAMBA2     Dao, Gu: Transformers are SSMs, arXiv 2405.21060, section 6. d_k = d_state, d_v = head dim, groups = groups of B and C.
 *   LIGHTNING  Qin et al.: Lightning Attention-2, arXiv 2401.04658. a = log of the head's fixed decay.
 *   DELTA      Yang, Kautz, Hatamizadeh: Gated Delta Networks, arXiv 2412.06464, equation 10. gate = log alpha; k has norm 1.
 *   CONV       the causal depthwise convolution before each of them: d_k = width - 1, d_v = channels, heads = groups = 1, q and k NULL.
 * The model computes the rest, token by token: softplus, norms of q and k, the factor on q, the skip term D x, the gate z.
 *
 * States lie in numbered slots. Token t begins with the state in slot from[t], with the state after token t - 1
 * (KVB_SCAN_PREVIOUS), or with zeros (KVB_SCAN_ZERO). Its new state is written to slot to[t], unless that is KVB_SCAN_NONE. Tokens
 * are taken in order: a slot read after an earlier token of the call wrote it holds that token's state, rounded to the state's
 * type. So one call does
 *   decoding of a batch   from = to = the slot of each sequence, which is changed in place
 *   a prompt              from = slot or ZERO, then PREVIOUS …; to = NONE …, at last the slot
 *   a fork                from = the slot that is shared, to = one of its own: copied by the first write
 *   snapshots             to = the next slot of a ring for each token: a rollback is another `from` later
 *   a tree of drafts      to = a slot for each node; from = the slot of its parent, which may be a token of this call
 *
 * Rules that every kernel keeps:
 *  - scan() allocates nothing, keeps no state between calls, starts no thread and never prints.
 *  - It runs its parallel parts on args->team, uses only args->scratch for working memory, and gives the same bits whatever the
 *    size of the team.
 *  - It writes every element of out and of the slots in `to`, and nothing else. It reads only the slots in `from`: any other slot may
 *    hold NaN, also a slot in `to` until it is written.
 *  - No padding behind the last token changes a state.
 *  - It declares its arithmetic truthfully. The error bound that it is judged by is derived from that (oracle/recurrence.h).
 *
 * Callers give finite values, gate >= 0 and a <= 0 for MAMBA1 and MAMBA2, a <= 0 for LIGHTNING, gate <= 0 and 0 <= beta <= 2 for DELTA:
 * decays are at most 1. Errors: functions return 0 or a negative errno; why[] gets one line without a newline.
 */
#ifndef KVB_SCAN_H
#define KVB_SCAN_H

#include "view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kvb_scan_kind {
    KVB_SCAN_MAMBA1,
    KVB_SCAN_MAMBA2,
    KVB_SCAN_LIGHTNING,
    KVB_SCAN_DELTA,
    KVB_SCAN_CONV,
    KVB_SCAN_KINDS
} kvb_scan_kind;

/* supports(), scratch_bytes() and arithmetic() depend on nothing else. */
typedef struct kvb_scan_problem {
    kvb_scan_kind kind;
    uint32_t n_tok;      /* tokens of the call, of all its sequences */
    uint32_t run;        /* most tokens of a run (kvb_scan_run_end()): 1 if each token belongs to another sequence */
    uint32_t heads;      /* of the state, of v and of out */
    uint32_t groups;     /* heads of q and k; divides heads */
    uint32_t d_k, d_v;   /* rows of a head's state; elements of a row */
    kvb_elem state_elem; /* KVB_F32, KVB_F16 or KVB_BF16 */
    kvb_elem out_elem;   /* one of the same */
    bool silu;           /* CONV */
} kvb_scan_problem;

/* Slot s is [heads][d_k][d_v] of state_elem, from base + s * slot_bytes on. Slots are 64-byte aligned. */
typedef struct kvb_scan_states {
    void *base;
    size_t slot_bytes;
    uint32_t slots;
} kvb_scan_states;

#define KVB_SCAN_NONE     UINT32_MAX       /* in `to` */
#define KVB_SCAN_PREVIOUS UINT32_MAX       /* in `from`; not for token 0 */
#define KVB_SCAN_ZERO     (UINT32_MAX - 1) /* in `from` */

typedef struct kvb_scan {
    kvb_scan_problem problem;
    const float *q, *k; /* [n_tok][groups][d_k] */
    const float *v;     /* [n_tok][heads][d_v] */
    const float *gate;  /* MAMBA1 [n_tok][heads][d_v]; MAMBA2, DELTA [n_tok][heads]; else NULL */
    const float *beta;  /* DELTA [n_tok][heads]; else NULL */
    /* The layer's. MAMBA1 [heads][d_k][d_v]; MAMBA2, LIGHTNING [heads]; CONV [d_k + 1][d_v]; else NULL */
    const float *a;
    const float *bias; /* CONV [d_v], or NULL for zeros; else NULL */
    kvb_scan_states states;
    const uint32_t *from, *to; /* [n_tok] */
    void *out;                 /* [n_tok][heads][d_v] of out_elem */
    void *scratch;             /* scratch_bytes(problem, team->n) bytes, 64-byte aligned, content arbitrary */
    const kvb_team *team;
} kvb_scan;

/*
 * Declared arithmetic. A kernel takes a run (kvb_scan_run_end()) `chunk` tokens at a time. Between the chunks of a run
 * the state is held in `carried`. A chain counts the roundings to f32 that one term passes through, at most, products
 * included. A term is what a token of the chunk writes, k v with its factors, or the state before the chunk.
 */
typedef struct kvb_scan_arithmetic {
    kvb_elem carried;        /* KVB_F32 */
    kvb_elem operands;       /* factors of products are rounded to this type; KVB_F32: not at all */
    uint32_t chunk;          /* at least 1: token by token */
    uint32_t state_chain;    /* of a term on its way into the state after the chunk */
    uint32_t read_chain;     /* of a term on its way into out; CONV: into the sum before act() */
    uint32_t solve_chain;    /* DELTA: of a term on its way into beta (v - k^T S) */
    uint32_t exponent_chain; /* roundings of a decay's exponent */
    double exp_error;        /* largest relative error of exp, of a decay over any part of a chunk or in act() */
    double exp_floor;        /* decays below this may be taken as 0 */
} kvb_scan_arithmetic;

/*
 * Declared order, as kvb_order of attend.h: a kernel that declares it is also judged to the bit. The kernel works in f32,
 * token by token. Between the tokens of a run the state is f32. With D = decay(gate, a) (LIGHTNING: gate 1; DELTA: 1 and
 * its gate), for each head and column c:
 *
 *   MAMBA1, MAMBA2   w[i] = (gate * k[i]) * v, with gate_on_v k[i] * (gate * v)
 *   LIGHTNING        w[i] = k[i] * v
 *   DELTA            r = sum of k[i] * (D * S[i]), with decay_last D * (sum of k[i] * S[i]);  w[i] = k[i] * (beta * (v - r))
 *   then             S[i] = D * S[i] + w[i];  out = sum of q[i] * S[i]
 *   CONV             out = act(bias + a[0] * x[0] + a[1] * x[1] + ...)
 *
 * Sums begin with 0 and take i in order. The products that are added in a sum, and D * S[i] in the new state, are rounded
 * first, unless `fused`.
 */
typedef struct kvb_scan_order {
    bool fused, gate_on_v, decay_last;
    float (*decay)(float gate, float a); /* exp(gate a) */
    float (*act)(float z);               /* CONV with silu */
} kvb_scan_order;

/* The face of a kernel for layers that scan: `scan` of a kvb_kernel (attend.h). */
typedef struct kvb_scan_face {
    /* Can it do this problem? Called before any scan() of the problem. NULL: always. */
    bool (*supports)(const kvb_scan_problem *problem, char *why, size_t why_bytes);
    /* Scratch that scan() needs with n_threads threads; NULL: none. */
    size_t (*scratch_bytes)(const kvb_scan_problem *problem, uint32_t n_threads);
    /* NULL: plain f32 loops, token by token. */
    void (*arithmetic)(const kvb_scan_problem *problem, kvb_scan_arithmetic *arithmetic);
    /* Gives the order of additions; false: kvb_scan_order cannot express it. NULL: always false. */
    bool (*order)(const kvb_scan_problem *problem, kvb_scan_order *order);
    int (*scan)(const kvb_scan *args);
} kvb_scan_face;

/* ---- small helpers ----------------------------------------------------------------------------- */

/* The state of head h in a slot. */
static inline void *kvb_scan_state(const kvb_scan *args, uint32_t slot, uint32_t h)
{
    const kvb_scan_problem *p = &args->problem;
    size_t elem_bytes = p->state_elem == KVB_F32 ? 4 : 2;
    return (char *)args->states.base + slot * args->states.slot_bytes + (size_t)h * p->d_k * p->d_v * elem_bytes;
}

/* Row of q or k that head h uses at token t. */
static inline const float *kvb_scan_row(const kvb_scan *args, const float *first, uint32_t t, uint32_t h)
{
    const kvb_scan_problem *p = &args->problem;
    return first + ((size_t)t * p->groups + h / (p->heads / p->groups)) * p->d_k;
}

/*
 * The end of the run that begins with token t. A run is tokens t .. end-1: only the first reads a slot, and only the last
 * may write one.
 */
static inline uint32_t kvb_scan_run_end(const kvb_scan *args, uint32_t t)
{
    uint32_t end = t + 1;
    while (end < args->problem.n_tok && args->from[end] == KVB_SCAN_PREVIOUS && args->to[end - 1] == KVB_SCAN_NONE)
        end++;
    return end;
}

/* The slot that a run with first token t begins with; or KVB_SCAN_ZERO. */
static inline uint32_t kvb_scan_source(const kvb_scan *args, uint32_t t)
{
    return args->from[t] == KVB_SCAN_PREVIOUS ? args->to[t - 1] : args->from[t];
}

#ifdef __cplusplus
}
#endif
#endif
