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
 * The model above is one whose layers are all alike. Version 1 also takes the published names kv_cache.n_layers, n_heads,
 * n_kv_heads and head_dim (K's and V's). Layers that differ are groups (kernels/model.h), of trace and model version 2:
 *
 *   {"kvbench_trace":2, "name":"windows", "source":"…",
 *    "model":{"kv_cache.schema_version":2, "kv_cache.layers":3, "groups":[
 *      {"layers":[0,2], "heads":4, "kv_heads":2, "k_dim":16, "v_dim":16, "window":8, "sinks":1, "sink_logits":[0,0.5,1,2]},
 *      {"layers":[1], "heads":4, "kv_heads":1, "k_dim":32, "v_dim":16, "latent":true, "scale":0.2, "softcap":30}]},
 *    "values":{"profile":"llama","seed":1}}
 *   every layer is in one group; optional in a group: "scale" (1/sqrt(k_dim)), "latent", "window" with "sinks", "chunk",
 *   "softcap", "sink_logits" (one for each query head), "rope":{"base":10000,"dims":16,"first":0,"pairing":"halves"}: which
 *   elements of a K row are turned with the position, in pairs (i, i + dims/2), or "neighbours" (2i, 2i+1); "dims":0: none are.
 *   first is 0, or v_dim of latent rows, unless it is told. What moves positions needs every attending group's rope, and so
 *   do values that are "before_rope":true: whoever replays them turns q and K to their positions as they enter
 *   "kind":"attend" may be said. A group of kind "scan" has layers with a recurrence (kernels/scan.h) and nothing of the above:
 *      {"layers":[0,1], "kind":"scan", "scan":{"recurrence":"mamba2", "heads":8, "groups":1, "k_dim":16, "v_dim":16,
 *                                              "conv":{"width":4, "channels":160, "silu":true, "state":"bf16"}, "state":"f32"}}
 *   recurrence: mamba1, mamba2, lightning or delta; optional: "conv", the convolution before it; "silu" (false); "state", as which
 *   states are stored: f32 (conv: as the recurrence's), f16 or bf16
 *
 * Recorded values may have an engine's outputs of attention beside them: for each layer L a tensor out.L [tokens][heads][v_dim] in
 * F32. The header then has
 *    "outputs":{"engine":"llama.cpp v0.5.0", "model":"seeded llama", "setup":"kv f16, flash attention off", "rows":"f16",
 *               "arithmetic":"ggml-f16"}
 *   rows: the format of the K and V rows that were multiplied; arithmetic: as for `kvbench judge`, a preset or a declaration in JSON
 *
 *   {"step":{"pos":[0,1],"seq":[0,0],"tok":[17,4]}}   tok (vocabulary ids) optional
 *   {"prefill":{"seq":0,"from":0,"n":32}}              sugar for a step; optional tok
 *   {"prefill":{"seq":0,"from":0,"n":2,"tok":[1,2],"reuse":0}}   the beginning of an empty sequence's prompt is taken from what the
 *                                                      cache has, if it can, under that extra key; its queries are not asked
 *   {"fill":{"seq":0,"n":32768}}                       rows enter the cache without queries
 *   {"step":{"pos":[0,1],"seq":[[0,1,2],3]}}           in these three a list of sequences may stand for a sequence: the token is of
 *                                                      the first one, and the others hold it, too, right after the event. It is
 *                                                      read as the event and copies (seq_cp), and written so
 *   {"seq_cp":{"src":0,"dst":1,"p0":0,"p1":32}}        p0, p1 optional: the whole sequence
 *   {"seq_rm":{"seq":1,"p0":8,"p1":12}}                p0, p1 optional
 *   {"seq_keep":{"seq":3}}
 *   {"propose":{"parents":[-1,0,0,1]}}                 a step over tree nodes; optional tok, and seq (of each node; absent: 0)
 *   {"commit":{"accepted":[0,2]}}                      optional seq (absent: 0)
 *   {"rewind":{"len":40}}                              sequence 0
 *   {"clear":{}}
 *   {"reorder":{"dst":[0,1,2],"src":[1,1,0]}}          dst[i] holds what src[i] held before, for all i at once; no dst twice
 *   {"seq_add":{"seq":0,"p0":64,"p1":128,"delta":-32}} its tokens there move by delta positions; p0, p1 optional
 *   {"seq_div":{"seq":0,"p0":64,"p1":128,"d":4}}       its tokens there come to lie at position / d, rounded down, several at one
 *   {"defrag":{}}                                      the cache may order its cells anew: no query sees a difference
 *   {"save":{"slot":2,"seq":1}}                        keeps what a sequence holds in slot 0 .. 63; without seq: all of them
 *   {"load":{"slot":2,"seq":4}}                        what was saved of a sequence becomes sequence 4, or without seq: all
 *                                                      sequences become what was saved of all
 *   {"step":{"pos":[8],"seq":[0]},"refused":"ENOSPC"}  any event: must be refused, with ENOSPC or EINVAL, and change nothing
 *   {"step":{"pos":[8,0],"seq":[0,1]},"sees":[[0,5,6],null]}
 *                                                      step, prefill and propose: the tokens that each query sees, by identity, its
 *                                                      own included; null: not stated. Where groups differ a list of lists, one for
 *                                                      each group. It is checked while the trace is read, and not written again
 *
 * Every token that a step, prefill, fill or propose brings has an identity: its ordinal in the trace.
 * Identity keys its values (workloads/values.h) and is the row number in recorded tensors. In a trace with "reuse" tokens behind
 * the same prefix have the values of the first of them (workloads/history.h).
 *
 * Validated while streaming: JSON, keys, types and ranges; a position must be the next one of its
 * sequence (largest live + 1), and of all others that share it, of which no later token of the same event may be; p0 must not be
 * above p1, but the range may be empty and so may be the sequence, or what it holds of the range: nothing is then copied or removed;
 * what seq_cp adds to a destination that is alive must not overlap its positions; parents
 * must be earlier nodes; accepted must be a path from a root; parents and accepted are numbers among the
 * nodes of one sequence; of a sequence that has nodes pending nothing but propose and commit may speak, nor any seq_keep or clear;
 * what seq_add or seq_div moves may not fall below position 0, or onto or across what stays;
 * rewind needs sequence 0 to be the only one alive, and must not pass the length; load needs a slot that was saved,
 * of a sequence or of all as it says, and a sequence that is empty; between a seq_add or seq_div and the next step nothing can be
 * saved;
 * an event that must be refused is one that breaks a rule: of capacity with ENOSPC, of what is alive or pending with EINVAL;
 * sequence ids are 0 .. 4095, and at most KVB_TRACE_MAX_STEP tokens enter in one event
 * (KVB_TRACE_MAX_FILL for fill).
 *
 * Errors: -EINVAL for bad content, -EIO and what fopen says otherwise; why gets "file:line: what was
 * expected". Nothing is printed.
 */
#ifndef KVB_TRACE_H
#define KVB_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/model.h"

#define KVB_TRACE_VERSION   2 /* the newest; 1 is read as well, and written where it says all */
#define KVB_TRACE_MAX_SEQS  4096u
#define KVB_TRACE_MAX_STEP  65536u
#define KVB_TRACE_MAX_FILL  (1u << 24)
#define KVB_TRACE_MAX_CELLS (1u << 26) /* tokens alive at once, and of a trace in all */

/* Where the outputs of a recorded trace come from. */
typedef struct kvb_trace_outputs {
    char *engine; /* with its build; NULL: there are no outputs, and all else is NULL, too */
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
    bool before_rope;  /* q and K rows are those of position 0: whoever replays them turns them (kvb_rope_turn) */
    uint32_t capacity; /* 0: not stated */
    kvb_trace_outputs outputs;
} kvb_trace_header;

typedef enum kvb_event_kind {
    KVB_EVENT_STEP,
    KVB_EVENT_PREFILL, /* as a step; kept apart so that it is timed apart */
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
const char *kvb_refusal_name(int error);              /* "ENOSPC" of -ENOSPC; NULL: nothing is refused with that */

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
    bool reuse;          /* prefill: of a prompt whose beginning may be taken from what the cache has */
    uint64_t extra_key;  /* under which, at most 2^63 - 1; else 0 */
    bool several;        /* step: a sequence has more than one of the tokens */
    bool branches;       /* step: two of its sequences begin with the same row, the trunk of both */
    uint32_t *dsts;      /* reorder: [n] sequences, */
    uint32_t *srcs;      /* and the sequence from which each of them gets its content */
    uint32_t src, dst;   /* seq_cp; src also for seq_rm, seq_keep, seq_add, seq_div, commit, save and load */
    uint32_t p0, p1;     /* seq_cp, seq_rm, seq_add, seq_div */
    int32_t delta;       /* seq_add */
    uint32_t divisor;    /* seq_div; else 0 */
    uint32_t len;        /* rewind */
    uint32_t slot;       /* save, load */
    kvb_event_kind call; /* refused: of which kind the call is; the other members are that kind's */
    int error;           /* refused: what it must be answered, -EINVAL or -ENOSPC; else 0 */
} kvb_event;

/* Where a seq_add or seq_div moves what is at a position; it may be nowhere. */
static inline int64_t kvb_event_moved(const kvb_event *event, int64_t pos)
{
    return event->divisor ? pos / event->divisor : pos + event->delta;
}
/* Does it move anything, wherever that is? */
static inline bool kvb_event_moves(const kvb_event *event)
{
    return event->divisor ? event->divisor > 1 : event->delta != 0;
}

int kvb_event_copy(kvb_event *copy, const kvb_event *event); /* with arrays of its own. 0 or -ENOMEM */
void kvb_event_clear(kvb_event *event);                      /* frees its arrays */

/* "line 12: step of 8 tokens in sequences 0 to 7" */
void kvb_event_words(const kvb_event *event, char *text, size_t bytes);
/* "heads 0 to 3, 7" of the bits of a set [(n + 63) / 64] of numbers below n; what: "head". */
void kvb_set_words(const char *what, const uint64_t *set, uint32_t n, char *text, size_t bytes);
/* What a set of the numbers 0 .. n-1 has in common: "every query", "every 8th query", "the last query", "queries 3 to
 * 9", "17 of 48 queries". */
void kvb_set_pattern(const char *what, const uint64_t *set, uint32_t n, char *text, size_t bytes);

/* What a cache needs in order to replay the trace. */
typedef struct kvb_trace_needs {
    bool seq, tree, rewind, fill, reorder, shift, divide, defrag; /* faces and events that occur */
    bool slots;                                                   /* something is saved */
    bool reuse;        /* a prompt may be found, in a cache that has the face */
    uint32_t full;     /* capacity that a cache must have to refuse what it must; 0: nothing for want of cells */
    uint32_t cells;    /* most tokens alive at once (shared ones once, pending ones too) */
    uint32_t seqs;     /* largest sequence id + 1 */
    uint32_t alive;    /* most sequences alive at once */
    uint32_t seq_len;  /* longest sequence */
    uint32_t step;     /* most tokens in one step, prefill or propose */
    uint32_t nodes;    /* most that are pending at once */
    uint32_t rollback; /* most positions by which a sequence, or a copy of it, falls behind its furthest one */
    uint64_t tokens;   /* of the trace in all */
    uint64_t queries;  /* tokens that also ask: all but those of fill */
    uint64_t events;
    uint64_t pairs; /* sum over queries of cells that the past holds, whatever a group limits */
} kvb_trace_needs;

/* ---- streaming reader ------------------------------------------------------------------------------ */

typedef struct kvb_trace_reader kvb_trace_reader;

/* Traces that are opened from now on have this model and seeded values, whatever their headers say; NULL: their own
 * again. Attending groups get a scale of 1/sqrt(k_dim) and turn what shifts turn. The model is copied; it has no sink
 * logits. */
void kvb_trace_model_set(const kvb_model *model);

int kvb_trace_open(const char *path, kvb_trace_reader **reader, char *why, size_t why_bytes);
const kvb_trace_header *kvb_trace_reader_header(const kvb_trace_reader *reader);
/* 1: *event is the next one (owned by the reader, until the next call); 0: end; negative errno. */
int kvb_trace_next(kvb_trace_reader *reader, const kvb_event **event, char *why, size_t why_bytes);
/* Needs of what was read so far. */
const kvb_trace_needs *kvb_trace_reader_needs(const kvb_trace_reader *reader);
void kvb_trace_reader_close(kvb_trace_reader *reader);

/* ---- a whole trace in memory ------------------------------------------------------------------------- */

typedef struct kvb_trace {
    char *path;
    kvb_trace_header header;
    kvb_trace_needs needs;
    kvb_event *events;
    size_t n_events;
    uint32_t *like; /* [needs.tokens] the first token with the same rows; NULL: each token has its own */
} kvb_trace;

/* capacity > 0 overrides the header's, but for what must be refused. */
int kvb_trace_load(const char *path, uint32_t capacity, kvb_trace **trace, char *why, size_t why_bytes);
void kvb_trace_free(kvb_trace *trace);

/* What a run asks of a trace's logits that its header does not. */
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

typedef struct kvb_trace_writer kvb_trace_writer;

/* Writes to path.tmp; close(commit = true) syncs it and renames it to path. header->tensors is written as
 * its base name. Events are written as they come; `first`, `line` and computed positions are ignored
 * where the line form does not hold them. */
int kvb_trace_create(const char *path, const kvb_trace_header *header, kvb_trace_writer **writer, char *why,
                     size_t why_bytes);
int kvb_trace_write(kvb_trace_writer *writer, const kvb_event *event, char *why, size_t why_bytes);
int kvb_trace_writer_close(kvb_trace_writer *writer, bool commit, char *why, size_t why_bytes);

#endif
