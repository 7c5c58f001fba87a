/* SPDX-License-Identifier: Apache-2.0 */
/* What is alive while a trace is read, as the rules of events see it. Private to trace_state.c and files of single
 * rules. */
#ifndef KVB_TRACE_ALIVE_H
#define KVB_TRACE_ALIVE_H

#include "workloads/trace_internal.h"

/* Tokens id .. id+n-1 at positions pos .. pos+n-1. A token that moves while others hold it goes on under another number
 * here. */
typedef struct token_run {
    uint32_t pos, id, n;
} token_run;

typedef struct sequence {
    token_run *runs;
    size_t n_runs, room;
    uint32_t tokens;   /* held; 0: dead */
    uint32_t entering; /* tokens of the event that is being checked */
    uint32_t pending;  /* proposed nodes */
    uint32_t furthest; /* next position that it, or what it was copied from, ever had: kvb_trace_needs.rollback */
} sequence;

/* A proposed tree node that is not yet committed or dropped; a parent is a number among the nodes of its sequence. */
typedef struct pending_node {
    int32_t parent;
    uint32_t seq, depth, id;
} pending_node;

/* What was saved of a sequence, or of all. */
typedef struct saved {
    bool is, all;
    uint32_t n;
    struct saved_seq {
        uint32_t id;
        sequence seq;
    } * at; /* [n] */
} saved;

struct kvb_trace_state {
    sequence seqs[KVB_TRACE_MAX_SEQS]; /* [needs.seqs] */
    saved slots[KVB_TRACE_SLOTS];
    bool shifted;      /* by seq_add or seq_div, since the last step */
    uint16_t *holders; /* [n_ids] sequences that hold a token */
    uint32_t n_ids;    /* numbers of tokens given out */
    size_t holders_room;
    pending_node *pending;
    size_t n_pending, pending_room;
    uint32_t live;    /* distinct tokens alive, pending ones too */
    uint32_t alive;   /* sequences, also empty ones that have nodes: a commit may bring them to life */
    int unknown_rope; /* the first group of which the header says no rope; -1: there is none */
    kvb_trace_needs needs;
};

/* An event names the sequence: the cache must know its id. */
static inline void sequence_name(kvb_trace_state *state, uint32_t s)
{
    if (s + 1 > state->needs.seqs)
        state->needs.seqs = s + 1;
}

/* A sequence without tokens or nodes is about to get some. */
static inline void sequence_begin(kvb_trace_state *state, uint32_t s)
{
    state->alive++;
    if (state->alive > state->needs.alive)
        state->needs.alive = state->alive;
    sequence_name(state, s);
}

/* What a run has at positions p0 .. p1-1. */
static inline token_run run_clip(const token_run *run, uint32_t p0, uint32_t p1)
{
    uint32_t begin = p0 > run->pos ? p0 : run->pos, end = p1 < run->pos + run->n ? p1 : run->pos + run->n;
    return (token_run){.pos = begin, .id = run->id + (begin - run->pos), .n = begin < end ? end - begin : 0};
}

/* Position that the next token of a sequence has. */
static inline uint32_t sequence_next(const sequence *seq)
{
    return seq->n_runs ? seq->runs[seq->n_runs - 1].pos + seq->runs[seq->n_runs - 1].n : 0;
}

/* Notes how far the sequence is behind the furthest position whose rows it draws on. */
static inline void rollback_note(kvb_trace_state *state, sequence *seq)
{
    uint32_t next = sequence_next(seq);
    if (seq->n_runs == 0)
        seq->furthest = 0;
    else if (seq->furthest - next > state->needs.rollback)
        state->needs.rollback = seq->furthest - next;
}

/* Checks change nothing that is alive. They say what every cache is to answer: 0, -EINVAL or -ENOSPC; or NO_CALL: that
 * the line says what is no call, or one that caches take though it is no part of a workload. */
#define NO_CALL (-EPROTO)

/* Of trace_state.c. */
int kvb_sequence_append(kvb_trace_state *state, uint32_t s, uint32_t pos, uint32_t id);
int kvb_tokens_admit(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes);
int kvb_step_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);

/* Of trace_tree.c. */
int kvb_propose_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
int kvb_propose_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes);
int kvb_commit_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
int kvb_commit_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes);

/* Of trace_reorder.c. */
int kvb_reorder_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
int kvb_reorder_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes);
/* Of trace_shift.c. */
int kvb_shift_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
int kvb_shift_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes);
/* Of trace_state.c. */
int kvb_state_clear(kvb_trace_state *state); /* every sequence lets go of all: 0 or -ENOMEM */

/* Of trace_slots.c. */
int kvb_save_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
int kvb_save_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes);
int kvb_load_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
int kvb_load_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes);
void kvb_slots_free(kvb_trace_state *state);

#endif
