/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace format: a recorded workload as JSON Lines. Line 1 is the header, every further line one event.
 *
 *   {"kvbench_trace":1, "name":"plain-decode", "source":"…",
 *    "model":{"kv_cache.schema_version":1, "kv_cache.layers":2, "kv_cache.heads":4, "kv_cache.kv_heads":2,
 *             "kv_cache.k_dim":16, "kv_cache.v_dim":16, "scale":0.25},
 *    "values":{"tensors":"plain-decode.safetensors"}}            or {"profile":"llama","seed":1}
 *   optional in the header: "capacity" (cells; a step that needs more is an error), "note" (free text)
 *
 * In version 1, as above, all layers are alike. Version 1 also takes the published names kv_cache.n_layers, n_heads,
 * n_kv_heads and head_dim (of K and V). Version 2, of trace and model, has groups of layers (kernels/model.h):
 *
 *   {"kvbench_trace":2, "name":"windows", "source":"…",
 *    "model":{"kv_cache.schema_version":2, "kv_cache.layers":3, "groups":[
 *      {"layers":[0,2], "heads":4, "kv_heads":2, "k_dim":16, "v_dim":16, "window":8, "sinks":1,
 *       "sink_logits":[0,0.5,1,2]},
 *      {"layers":[1], "heads":4, "kv_heads":1, "k_dim":32, "v_dim":16, "latent":true, "scale":0.2, "softcap":30}]},
 *    "values":{"profile":"llama","seed":1}}
 *   Every layer is in one group. Optional in a group: "kind":"attend", "scale" (1/sqrt(k_dim)), "latent", "window" with
 *   "sinks", "chunk", "softcap", "sink_logits" (one for each query head), and
 *      "rope":{"base":10000,"dims":16,"first":0,"pairing":"halves"}
 *   rope: the elements of a K row that are turned with the position, in pairs (i, i + dims/2), or with "neighbours"
 *   (2i, 2i+1). "dims":0: none. Default of "first": 0, in latent rows v_dim. Events that move positions need every
 *   attending group's rope. So does "before_rope":true in "values": a replay then turns q and K to their positions as
 *   they enter the cache.
 *   A group of kind "scan" has layers with a recurrence (kernels/scan.h), and no other members than these:
 *      {"layers":[0,1], "kind":"scan",
 *       "scan":{"recurrence":"mamba2", "heads":8, "groups":1, "k_dim":16, "v_dim":16,
 *               "conv":{"width":4, "channels":160, "silu":true, "state":"bf16"}, "state":"f32"}}
 *   recurrence: mamba1, mamba2, lightning or delta. Optional: "conv", the convolution before it; "silu" (false);
 *   "state", the type in which states are stored: f32 (default of conv: the recurrence's type), f16 or bf16
 *
 * Recorded values can have an engine's attention outputs beside them: for each layer L a tensor out.L
 * [tokens][heads][v_dim] in F32. The header then has
 *    "outputs":{"engine":"llama.cpp v0.5.0", "model":"seeded llama", "setup":"kv f16, flash attention off",
 *               "rows":"f16", "arithmetic":"ggml-f16"}
 *   rows: the format of the K and V rows that were multiplied; arithmetic: as for `kvbench judge`, a preset or a
 *   declaration in JSON
 *
 *   {"step":{"pos":[0,1],"seq":[0,0],"tok":[17,4]}}    tok (vocabulary ids) optional
 *   {"prefill":{"seq":0,"from":0,"n":32}}              short form of a step; optional tok
 *   {"prefill":{"seq":0,"from":0,"n":2,"tok":[1,2],"reuse":0}}
 *                                                      the prompt of an empty sequence. A cache may have rows of its
 *                                                      beginning, under this extra key; those tokens ask no queries
 *   {"fill":{"seq":0,"n":32768}}                       rows enter the cache without queries
 *   {"step":{"pos":[0,1],"seq":[[0,1,2],3]}}           step, prefill, fill: a list of sequences in place of one. The
 *                                                      token belongs to the first; after the event the others hold it,
 *                                                      too. Read and written as the event and copies (seq_cp)
 *   {"seq_cp":{"src":0,"dst":1,"p0":0,"p1":32}}        p0, p1 optional: the whole sequence
 *   {"seq_rm":{"seq":1,"p0":8,"p1":12}}                p0, p1 optional
 *   {"seq_keep":{"seq":3}}
 *   {"propose":{"parents":[-1,0,0,1]}}                 a step over tree nodes; optional tok; optional seq, of each node
 *   {"commit":{"accepted":[0,2]}}                      optional seq (absent: 0)
 *   {"rewind":{"len":40}}                              sequence 0
 *   {"clear":{}}
 *   {"reorder":{"dst":[0,1,2],"src":[1,1,0]}}          dst[i] gets what src[i] held before, all i at once; no dst twice
 *   {"seq_add":{"seq":0,"p0":64,"p1":128,"delta":-32}} the tokens at p0 .. p1-1 move by delta; p0, p1 optional
 *   {"seq_div":{"seq":0,"p0":64,"p1":128,"d":4}}       they move to position / d, rounded down, several to one position
 *   {"defrag":{}}                                      the cache may compact its cells; no query sees a difference
 *   {"save":{"slot":2,"seq":1}}                        saves a sequence in slot 0 .. 63; without seq: all sequences
 *   {"load":{"slot":2,"seq":4}}                        the saved sequence becomes sequence 4; without seq: the saved
 *                                                      sequences replace all
 *   {"step":{"pos":[8],"seq":[0]},"refused":"ENOSPC"}  any event: caches must refuse it with ENOSPC or EINVAL
 *   {"step":{"pos":[8,0],"seq":[0,1]},"sees":[[0,5,6],null]}
 *                                                      step, prefill, propose: the identities of the tokens that each
 *                                                      query sees, its own included; null: not stated. If groups
 *                                                      differ, a list for each group. The reader checks it; it is not
 *                                                      written again
 *
 * Every token that a step, prefill, fill or propose brings has an identity, its ordinal in the trace. The identity keys
 * its values (workloads/values.h) and is its row number in recorded tensors. In a trace with "reuse" all tokens behind
 * the same prefix have the values of the first of them (workloads/history.h).
 *
 * The reader checks each line: JSON, keys, types, ranges, and these rules:
 *   - A position is the next one of its sequence (largest live + 1), and of all others that share the token. A later
 *     token of the same event belongs to none of those others.
 *   - p0 <= p1. If the sequence holds nothing in the range, nothing is copied or removed.
 *   - seq_cp adds no position that the destination holds.
 *   - parents are earlier nodes; accepted is a path from a root. Both are numbers among the nodes of one sequence.
 *   - While a sequence has pending nodes, only propose and commit may name it, and no event may concern all sequences.
 *   - seq_add and seq_div move no token below position 0, or onto or across a token that stays.
 *   - rewind: only sequence 0 is alive, and len is at most its length.
 *   - load: the slot was saved, of one sequence or of all as in the event, and the sequence is empty.
 *   - save does not come between a seq_add or seq_div and the next step.
 *   - An event with "refused" breaks a rule: ENOSPC of capacity, EINVAL of what is alive or pending.
 *   - Sequence ids are 0 .. 4095. An event brings at most KVB_TRACE_MAX_STEP tokens, a fill KVB_TRACE_MAX_FILL.
 *
 * Errors: -EINVAL for bad content, else -EIO or the error of fopen; why gets "file:line: what was expected". Nothing is
 * printed.
 */
#ifndef KVB_TRACE_H
#define KVB_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/model.h"
#include "workloads/files.h"

#define KVB_TRACE_VERSION   2 /* the newest; 1 is also read, and written where it suffices */
#define KVB_TRACE_MAX_SEQS  4096u
#define KVB_TRACE_MAX_STEP  65536u
#define KVB_TRACE_MAX_FILL  (1u << 24)
#define KVB_TRACE_MAX_CELLS (1u << 26) /* most tokens alive at once, and in a trace */

/* Where the outputs of a recorded trace come from. */
typedef struct kvb_trace_outputs {
    char *engine; /* with its build; NULL: no outputs, all members are NULL */
    char *model, *setup, *rows, *arithmetic;
} kvb_trace_outputs;

typedef struct kvb_trace_header {
    char *name;
    char *source;
    char *note;      /* or NULL */
    kvb_model model; /* its sink_logits are the header's own, from malloc */
    char *tensors;   /* path of recorded values, as resolved beside the trace; NULL when seeded */
    char *profile;   /* name of the value profile; NULL when recorded */
    uint64_t seed;
    bool before_rope;  /* q and K rows are those of position 0: a replay turns them (kvb_rope_turn) */
    uint32_t capacity; /* 0: not stated */
    kvb_trace_outputs outputs;
} kvb_trace_header;

typedef enum kvb_event_kind {
    KVB_EVENT_STEP,
    KVB_EVENT_PREFILL, /* a step that is timed separately */
    KVB_EVENT_FILL,
    KVB_EVENT_PROPOSE,
    KVB_EVENT_COMMIT,
    KVB_EVENT_SEQ_CP,
    KVB_EVENT_SEQ_RM,
    KVB_EVENT_SEQ_KEEP,
    KVB_EVENT_REWIND,
    KVB_EVENT_CLEAR,
    KVB_EVENT_REORDER,
    KVB_EVENT_SEQ_ADD,
    KVB_EVENT_SEQ_DIV,
    KVB_EVENT_DEFRAG,
    KVB_EVENT_SAVE,
    KVB_EVENT_LOAD,
    KVB_EVENT_REFUSED, /* a call that must fail and change nothing */
    KVB_EVENT_KINDS
} kvb_event_kind;

#define KVB_TRACE_POS_END UINT32_MAX
#define KVB_TRACE_ALL     UINT32_MAX /* as the sequence of save and load */
#define KVB_TRACE_SLOTS   64u

const char *kvb_event_kind_name(kvb_event_kind kind); /* the key of its line */
const char *kvb_refusal_name(int error);              /* "ENOSPC" of -ENOSPC; NULL: no event is refused with it */

typedef struct kvb_event {
    kvb_event_kind kind;
    uint64_t line;  /* 1-based, in the trace */
    uint32_t n;     /* step, prefill, fill, propose: tokens; commit: accepted nodes; seq_cp, load: tokens that it adds;
                            reorder: destinations; seq_add, seq_div: tokens that it moves */
    uint64_t first; /* identity of the first of the n tokens; the others follow */
    uint32_t *pos;  /* [n] position of each token, computed for every kind that brings tokens */
    uint32_t *seq;  /* [n] */
    int32_t *tok;   /* [n] vocabulary ids, or NULL */
    int32_t *parents;    /* propose: [n], numbers among the pending nodes of the same sequence; -1: a root */
    uint32_t *accepted;  /* commit: [n], of src's nodes */
    bool reuse;          /* prefill: the cache may have rows of the prompt's beginning */
    uint64_t extra_key;  /* of reuse, at most 2^63 - 1; else 0 */
    bool several;        /* step: a sequence has more than one of the tokens */
    bool branches;       /* step: two of its sequences begin with the same row, the trunk of both */
    uint32_t *dsts;      /* reorder: [n] sequences, */
    uint32_t *srcs;      /* and the sequences from which they get their content */
    uint32_t src, dst;   /* seq_cp; src also for seq_rm, seq_keep, seq_add, seq_div, commit, save and load */
    uint32_t p0, p1;     /* seq_cp, seq_rm, seq_add, seq_div */
    int32_t delta;       /* seq_add */
    uint32_t divisor;    /* seq_div; else 0 */
    uint32_t len;        /* rewind */
    uint32_t slot;       /* save, load */
    kvb_event_kind call; /* refused: the kind of the call, to which the other members belong */
    int error;           /* refused: the answer that caches must give, -EINVAL or -ENOSPC; else 0 */
} kvb_event;

/* The position to which a seq_add or seq_div moves a token; it may be out of range. */
static inline int64_t kvb_event_moved(const kvb_event *event, int64_t pos)
{
    return event->divisor ? pos / event->divisor : pos + event->delta;
}
/* Does a seq_add or seq_div change positions at all? */
static inline bool kvb_event_moves(const kvb_event *event)
{
    return event->divisor ? event->divisor > 1 : event->delta != 0;
}

int kvb_event_copy(kvb_event *copy, const kvb_event *event); /* with arrays of its own. 0 or -ENOMEM */
void kvb_event_clear(kvb_event *event);                      /* frees its arrays */

/* "line 12: step of 8 tokens in sequences 0 to 7" */
void kvb_event_words(const kvb_event *event, char *text, size_t bytes);
/* "heads 0 to 3, 7": a set of numbers below n in words. set: bits [(n + 63) / 64]; what: "head". */
void kvb_set_words(const char *what, const uint64_t *set, uint32_t n, char *text, size_t bytes);
/* The pattern of a set of numbers below n: "every query", "every 8th query", "the last query", "queries 3 to 9", "17 of
 * 48 queries". */
void kvb_set_pattern(const char *what, const uint64_t *set, uint32_t n, char *text, size_t bytes);

/* What a cache needs in order to replay the trace. */
typedef struct kvb_trace_needs {
    bool seq, tree, rewind, fill, reorder, shift, divide, defrag; /* calls and events that occur */
    bool slots;                                                   /* something is saved */
    bool reuse;        /* a cache with KVB_CACHE_PREFIX may have rows of a prompt's beginning */
    uint32_t full;     /* capacity with which a cache refuses what it must refuse with ENOSPC; 0: no such event */
    uint32_t cells;    /* most tokens alive at once (shared ones once, pending ones too) */
    uint32_t seqs;     /* largest sequence id + 1 */
    uint32_t alive;    /* most sequences alive at once */
    uint32_t seq_len;  /* longest sequence */
    uint32_t step;     /* most tokens in one step, prefill or propose */
    uint32_t nodes;    /* most that are pending at once */
    uint32_t rollback; /* most positions by which a sequence, or a copy of it, falls behind its furthest one */
    uint64_t tokens;   /* in the whole trace */
    uint64_t queries;  /* tokens with queries: all but those of fill */
    uint64_t events;
    uint64_t pairs; /* sum over queries of the tokens in their past and their own, without groups' limits */
} kvb_trace_needs;

/* ---- a whole trace in memory ------------------------------------------------------------------------- */

typedef struct kvb_trace {
    char *path;
    kvb_trace_header header;
    kvb_trace_needs needs;
    kvb_event *events;
    size_t n_events;
    uint32_t *like; /* [needs.tokens] the first token with the same rows; NULL: each token has its own */
} kvb_trace;

/* capacity > 0 replaces the header's, except for events that must be refused. */
int kvb_trace_load(const char *path, uint32_t capacity, kvb_trace **trace, char *why, size_t why_bytes);
int kvb_trace_load_header(const char *path, kvb_trace **trace, char *why, size_t why_bytes); /* has no events */
void kvb_trace_free(kvb_trace *trace);

/* Traces loaded from now on get this model and seeded values in place of their headers'; NULL: their own again.
 * Attending groups get the scale 1/sqrt(k_dim) and the usual rope. The model is copied; it has no sink logits. */
void kvb_trace_model_set(const kvb_model *model);

/* Changes of a trace's logits that a run asks for. */
typedef struct kvb_logit_changes {
    float softcap; /* of every group; 0: as the header has it */
    double scale;  /* of q.k in every group; 0: as the header has it */
    bool sinks;    /* every group gets sink logits, N(0,1) by seed, group and head */
    uint64_t seed;
    bool before_rope; /* values are taken as before rope; a group without a known one gets base 10000 over all of K's
                       * positional elements */
} kvb_logit_changes;
int kvb_trace_change_logits(kvb_trace *trace, const kvb_logit_changes *changes); /* 0 or -ENOMEM */

/* ---- writer ------------------------------------------------------------------------------------------- */

/* Opens the file and writes the header. header->tensors is written as its base name. On failure nothing is open, and
 * file->stream is NULL. */
int kvb_trace_create(const char *path, const kvb_trace_header *header, kvb_output_file *file, char *why,
                     size_t why_bytes);
/* Prints the line of an event. `first`, `line` and computed positions are ignored, if the line's form does not hold
 * them. Errors show when the file is closed. */
void kvb_event_print(FILE *out, const kvb_event *event);

#endif
