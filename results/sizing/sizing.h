/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model's context takes: KV rows, recurrent states, weights, activations, runtime, for a length, a number of
 * sequences and a storage format, as each engine allocates it; and what fits a budget. All sizes are bytes on ONE rank of
 * tp x pp. Arithmetic that would leave 64 bits is refused with -EOVERFLOW.
 */
#ifndef KVB_SIZING_SIZING_H
#define KVB_SIZING_SIZING_H

#include "results/sizing/model.h"

/* A way of storing K and V: name as for --kv, bytes of a row with its scales. */
typedef struct kvb_kv_format {
    const char *
        name; /* f32 f16 bf16 e4m3 e5m2 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl nvfp4 mxfp4 a8g64 a4g64 … int8-token, fp8_ds_mla */
    const char *summary;
    uint32_t group; /* elements that share their scales; 1: none. 0: the whole row */
    uint32_t
        group_bytes; /* of the group's codes, scales and zeros; of a whole row: per element, then extra_bytes once */
    uint32_t extra_bytes;
} kvb_kv_format;

/* What is asked. Zero fields mean their default where one is named. */
typedef struct kvb_size_ask {
    uint64_t context; /* tokens of each sequence */
    uint64_t sequences;
    const kvb_kv_format *k, *v;
    const char *state;   /* dtype of recurrent states: "f32", "bf16"; NULL: what the engine does */
    uint32_t tp, pp;     /* ranks; 1 */
    uint32_t spec_depth; /* drafted tokens per step; multiplies recurrent states by 1 + depth */
    bool mtp;            /* the model's own multi-token prediction layers are served */
    uint32_t block;      /* tokens of a block; 0: the engine's */
    uint32_t batch;      /* most tokens of one forward pass (prefill chunk); 0: the engine's */
} kvb_size_ask;

/* What an engine holds of the past. Recurrent states are kept apart: they do not grow. */
typedef struct kvb_allocation {
    double bytes_per_token;            /* marginal, of one long sequence: layers whose memory grows */
    uint64_t fixed_bytes_per_sequence; /* windows and states: what does not grow any more */
    uint64_t kv_bytes;                 /* of all sequences at this context, KV rows (windows included) */
    uint64_t state_bytes;              /* of all sequences, recurrent states and convolutions */
} kvb_allocation;

/* How one engine allocates. Entries are pure functions of their arguments. */
typedef struct kvb_engine {
    const char *name; /* what --engine takes */
    const char *summary;
    const char *source; /* of the formulas */
    /* 0; -ENOTSUP with why: this engine has no such layer or format; -EOVERFLOW. */
    int (*allocate)(const kvb_model *model, const kvb_size_ask *ask, kvb_allocation *out, char *why, size_t why_bytes);
} kvb_engine;

#endif
