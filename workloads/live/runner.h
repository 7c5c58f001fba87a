/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live runner: a model over a cache. Its calls name tokens and sequences. It keeps each token's id and position by
 * ordinal and computes rows for all tokens that the cache wants, so it works over caches that keep rows and over one
 * that keeps none.
 */
#ifndef KVB_LIVE_RUNNER_H
#define KVB_LIVE_RUNNER_H

#include "workloads/live/model.h"
#include "workloads/history.h"
#include "workloads/files.h"

typedef struct kvb_runner_options {
    const kvb_weights *weights;
    const kvb_model *model; /* the weights' layers in groups; must outlive the runner */
    const kvb_cache_type *cache;
    const kvb_pool_type *k_pool, *v_pool;
    const kvb_kernel *kernel;
    const kvb_kernel *scan; /* of layers that scan; a model without them needs none */
    kvb_recorder *recorder; /* or NULL */
    uint32_t capacity;      /* cells */
    uint32_t seq_capacity;  /* tokens of one sequence */
    uint32_t max_seqs;
    uint32_t step;     /* most tokens of one step */
    uint32_t rollback; /* positions by which a sequence can be cut back */
} kvb_runner_options;

typedef struct kvb_runner {
    const kvb_weights *weights;
    kvb_allocator allocator; /* of the cache */
    kvb_cache *cache;
    kvb_live_op op;
    /* every token so far, by ordinal */
    int32_t *tok;
    uint32_t *pos;
    uint64_t n_tokens;
    size_t tok_room, pos_room;
    /* of the current step: the fed tokens */
    int32_t *fed_tok;
    uint32_t *fed_pos;
    float *logits; /* [new tokens of the last step][vocab] */
    size_t fed_tok_room, fed_pos_room, logits_room;
    uint32_t not_asked;   /* first tokens of the last step without logits: the cache had their rows */
    kvb_history *history; /* of the events so far; checks each event as the trace reader does */
    kvb_slot_files slots; /* opened by the first save */
    char why[256];        /* one line about the call that failed */
} kvb_runner;

/* All calls: 0 or a negative errno with runner->why. The runner must stay where it is once opened. */
int kvb_runner_open(kvb_runner *runner, const kvb_runner_options *options);
void kvb_runner_close(kvb_runner *runner);

/* One forward pass of n tokens: tok [n], each the next of its sequence seq [n]. kind is KVB_EVENT_STEP or
 * KVB_EVENT_PREFILL (one sequence). runner->logits then holds a row for each. Without KVB_CACHE_SEQ all belong to
 * sequence 0. */
int kvb_runner_step(kvb_runner *runner, kvb_event_kind kind, const uint32_t *seq, const int32_t *tok, uint32_t n);

/* Prefills an empty sequence's prompt. The cache may have rows of its beginning; the last token always gets logits. */
int kvb_runner_prompt(kvb_runner *runner, uint32_t seq, const int32_t *tok, uint32_t n, uint64_t extra_key);

/* Makes a control event's call, and records it. Slots of save are files of the runner's own. */
int kvb_runner_control(kvb_runner *runner, const kvb_event *event);
/* KVB_RUNNER_DO(runner, SEQ_RM, .src = 3, .p1 = KVB_POS_END): the same, with the event's members. */
#define KVB_RUNNER_DO(runner, KIND, ...)                                                                               \
    kvb_runner_control(runner, &(const kvb_event){.kind = KVB_EVENT_##KIND, __VA_ARGS__})

/* One forward pass over n further tree nodes, node i of sequence seq[i]. Needs KVB_CACHE_TREE, and KVB_CACHE_SEQ for
 * sequences other than 0. */
int kvb_runner_propose(kvb_runner *runner, const uint32_t *seq, const int32_t *parents, const int32_t *tok, uint32_t n);

/* The rank-th best next token after new token i of the last step (rank 0: greedy). */
int32_t kvb_runner_best(const kvb_runner *runner, uint32_t i, uint32_t rank);

#endif
