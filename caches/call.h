/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls a kernel with a cache's spec: fills in the problem, converts the mask to a kind that the kernel takes (PAGES to
 * RUNS if it takes those, else EXPLICIT), provides scratch. Every runner calls kernels this way.
 *
 * Staging: if a kernel refuses a problem only because of a format, the rows of that side (K, V) are decoded to f32, all
 * cells of every KV head, and the kernel gets the decoded rows. Each call does this anew, on the team: staging belongs
 * to the cost of such a kernel, as mask conversion does. A witness gets no staged rows: what it refuses is illegible.
 */
#ifndef KVB_CALL_H
#define KVB_CALL_H

#include "caches/cache.h"
#include "kernels/attend.h"

/* A mask converted to another kind, valid for all layers of one group in one step. */
typedef struct kvb_expanded {
    uint64_t generation; /* of the original mask (kvb_attend_spec); 0: none */
    const kvb_group *group;
    kvb_mask mask; /* EXPLICIT or RUNS, in the block */
    void *block;
    size_t bytes;
} kvb_expanded;

typedef struct kvb_call {
    /* set by the caller, constant over a replay */
    const kvb_kernel *kernel;
    const kvb_team *team;
    kvb_elem out_elem;               /* KVB_F32, KVB_F16 or KVB_BF16 */
    bool no_staging;                 /* a kernel that does not read the formats is refused */
    bool deterministic;              /* the same bits whatever the size of the team */
    const kvb_memory_source *source; /* of scratch, masks and staged rows; NULL: the C library */
    /* owned by the call, grown as needed; zero at first */
    void *scratch;
    size_t scratch_bytes;
    kvb_expanded expanded[KVB_MODEL_GROUPS]; /* the last mask of each group met */
    size_t expanded_bytes;                   /* of all */
    void *stage_k, *stage_v;                 /* [n_kv_heads][n_cells][dim] f32 */
    size_t stage_k_bytes, stage_v_bytes;
    size_t staged_bytes; /* of both */
    /* of the call last prepared */
    kvb_attend args;
    bool staged_k, staged_v;           /* the kernel gets f32 rows decoded from the spec's */
    uint32_t k_roundings, v_roundings; /* of that decoding; 0 where nothing is staged */
} kvb_call;

/*
 * Prepares the call for n_tok queries q [n_tok][heads][k_dim]: fills in call->args except out and lse. A mask is
 * converted once for all layers of a group in a step. 0; -ENOTSUP: the kernel refuses (why has its reason), or staging
 * would be needed and is off; -ENOMEM.
 */
int kvb_call_prepare(kvb_call *call, const kvb_attend_spec *spec, const float *q, uint32_t n_tok, char *why,
                     size_t why_bytes);
/* Runs the prepared call and returns the kernel's result. lse may be NULL. */
int kvb_call_run(kvb_call *call, void *out, float *lse);
void kvb_call_free(kvb_call *call);

/* The kernel's declared arithmetic for the problem last prepared, plus the roundings of staging. */
void kvb_call_arithmetic(const kvb_call *call, kvb_arithmetic *arithmetic);

/* The format of staged rows: f32, plain. */
extern const kvb_format kvb_format_staged;

/* Sets bits begin .. end-1 of a row of words. */
void kvb_bits_set(uint64_t *row, uint32_t begin, uint32_t end);

/* Any mask as bit rows; bits: [n_tok][row_words], row_words >= (n_cells + 63) / 64, overwritten. */
void kvb_mask_expand(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t *bits, size_t row_words);

/* The same for a scan kernel and a kvb_scan_spec: fills in the problem, provides scratch. */
typedef struct kvb_scan_call {
    /* set by the caller, constant over a replay */
    const kvb_kernel *kernel; /* its face `scan` */
    const kvb_team *team;
    kvb_elem out_elem;               /* of recurrences; what follows a convolution is f32 */
    const kvb_memory_source *source; /* of scratch; NULL: the C library */
    /* owned by the call, grown as needed; zero at first */
    void *scratch[2]; /* of the recurrence and of the convolution, which are called in turn */
    size_t scratch_bytes[2];
    kvb_scan args; /* of the call last prepared */
} kvb_scan_call;

/* The problem of a layer's recurrence; conv: of the convolution before it. run: tokens of the longest run. */
kvb_scan_problem kvb_scan_call_problem(const kvb_group_scan *scan, bool conv, kvb_elem out_elem, uint32_t n_tok,
                                       uint32_t run);
/*
 * Prepares a call for the tokens of spec. inputs: q, k, v, gate, beta, a and bias as in kernels/scan.h; its other
 * fields are not read. 0; -ENOTSUP with the kernel's reason in why; -ENOMEM.
 */
int kvb_scan_call_prepare(kvb_scan_call *call, const kvb_scan_spec *spec, bool conv, const kvb_scan *inputs, char *why,
                          size_t why_bytes);
/* Runs the prepared call into out and returns the kernel's result. */
int kvb_scan_call_run(kvb_scan_call *call, void *out);
void kvb_scan_call_free(kvb_scan_call *call);

#endif
