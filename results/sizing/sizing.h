/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model's context takes: KV rows, recurrent states, weights, activations, runtime, for a length, a number of
 * sequences and a storage format, as each engine allocates it; and what fits a budget. All sizes are bytes on ONE rank of
 * tp x pp. Arithmetic that would leave 64 bits is refused with -EOVERFLOW.
 */
#ifndef KVB_SIZING_SIZING_H
#define KVB_SIZING_SIZING_H

#include "results/sizing/model.h"

/* A way of storing rows. A row is one head's K or V of one token, or the one row of MLA. Names are those of the pools
 * (`kvbench list pools`); `also` is what engines call the same. */
typedef struct kvb_kv_format {
    const char *name; /* f32 f16 bf16 e4m3 int8 q8_0 a4g64 nvfp4 fp8_ds_mla … */
    const char *also; /* int8-token; NULL */
    const char *summary;
    uint32_t group;       /* elements stored together; a row must be a multiple */
    uint32_t group_bytes; /* with the scales and zeros inside the group */
    uint32_t extra_bytes; /* of each row: its own scale */
} kvb_kv_format;

const kvb_kv_format *kvb_kv_format_find(const char *name); /* by either name; NULL: none such */
const kvb_kv_format *kvb_kv_format_at(size_t i);           /* in order; NULL at the end */
/* Bytes of a row; 0: it is no multiple of the group. */
uint64_t kvb_kv_row_bytes(const kvb_kv_format *format, uint64_t elements);

/* What is asked. Zero fields mean their default where one is named. */
typedef struct kvb_size_ask {
    uint64_t context; /* tokens of each sequence */
    uint64_t sequences;
    const kvb_kv_format *k, *v;
    const char *state;   /* dtype of recurrent states: "f32", "bf16", "f16"; NULL: what the engine does */
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
    uint32_t batch;     /* most tokens of one forward pass unless asked; 0: one for each sequence */
    /* 0; -ENOTSUP with why: this engine has no such layer or format; -EOVERFLOW. Never less for a longer context or for
     * more sequences. */
    int (*allocate)(const kvb_model *model, const kvb_size_ask *ask, kvb_allocation *out, char *why, size_t why_bytes);
} kvb_engine;

extern const kvb_engine kvb_engine_ideal, kvb_engine_llama_cpp, kvb_engine_vllm;

/* What comes on top of the context, on one rank, and what all of it must fit. */
typedef struct kvb_size_terms {
    bool weights_known;
    uint64_t weight_bytes, runtime_bytes;
    uint32_t margin; /* thousandths of a per cent of all the rest: 5 % is 5000 */
    uint64_t budget; /* bytes; 0: none */
} kvb_size_terms;

#define KVB_SIZE_UNBOUNDED UINT64_MAX /* a limit that is none */

typedef struct kvb_size {
    kvb_allocation held;
    uint64_t weight_bytes, activation_bytes, runtime_bytes, margin_bytes, total_bytes;
    uint64_t max_context;   /* tokens of each of the asked sequences that fit the budget, at most the model's own */
    uint64_t max_sequences; /* of the asked context */
    bool at_model_limit;    /* max_context is the model's own, not the budget's */
} kvb_size;

/* All terms of one row; without a budget the two limits are 0. Errors as of allocate. Weights that are not known count
 * nothing: it is the caller's to say so. */
int kvb_size_compute(const kvb_model *model, const kvb_engine *engine, const kvb_size_ask *ask,
                     const kvb_size_terms *terms, kvb_size *out, char *why, size_t why_bytes);

#endif
