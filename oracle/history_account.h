/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the oracle's account of a trace is made of. A sequence is the list of its (position, row), ascending by
 * position: what a query of a step sees is then a stretch of one list, and the sinks before it. Private to history.c
 * and history_sight.c.
 */
#ifndef KVB_HISTORY_ACCOUNT_H
#define KVB_HISTORY_ACCOUNT_H

#include <assert.h>

#include "oracle/history.h"

typedef struct sequence {
    uint32_t *pos;
    uint64_t *token; /* its rows' numbers: identities, as long as they are not moved */
    size_t n, room;
} sequence;

#define NOBODY UINT64_MAX

/* A token that was ever admitted, where prefixes are known. */
typedef struct known {
    bool whole; /* all tokens of its prefix are known, without a hole */
    int32_t tok;
    uint32_t pos;
    uint64_t key;   /* extra key of its prompt */
    uint64_t first; /* identity of the first token with this prefix */
    uint64_t prev;  /* `first` of the token before it; position 0: none */
    uint64_t older; /* the token noted before at its position, or NOBODY */
} known;

typedef struct node {
    uint32_t seq;
    int32_t parent; /* number of an earlier node of the sequence; -1: a root */
    uint64_t token;
} node;

/* What was saved: of one sequence, or of all there were. */
typedef struct slot {
    bool all;
    sequence *seq; /* [n] */
    uint32_t n;
} slot;

struct kvb_history {
    sequence seq[KVB_TRACE_MAX_SEQS];
    uint32_t n_seq; /* largest id that was given tokens + 1 */
    slot slots[KVB_TRACE_SLOTS];
    node *pending; /* tree nodes proposed and not yet committed */
    size_t n_pending, room_pending;
    const kvb_event *last; /* the event whose queries may be asked about, or NULL */
    size_t last_node;      /* propose: number of its first node */
    bool knows;
    known *known;     /* [n_known] by identity */
    uint64_t *newest; /* [n_newest] by position */
    size_t n_known, room_known, n_newest, room_newest;
    uint64_t *answer; /* of a query whose rows do not lie together */
    size_t room_answer;
    uint64_t tokens;      /* of the trace: number of the first moved row */
    kvb_moved_row *moved; /* by number */
    size_t n_moved, room_moved;
    size_t settled; /* moved rows that were there at the last step */
};

/* How many entries have a position below p. */
static inline size_t sequence_below(const sequence *s, uint64_t p)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->pos[middle] < p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The place of a sequence's node of that number; nodes of a sequence are numbered as they come. */
static inline size_t node_of(const kvb_history *h, uint32_t seq, uint32_t number)
{
    for (size_t i = 0; i < h->n_pending; i++)
        if (h->pending[i].seq == seq && number-- == 0)
            return i;
    assert(false && "the trace reader has seen to it that there is one");
    return 0;
}

/* Of tokens with one prefix, the row of the first. */
static inline uint64_t row_of(const kvb_history *h, uint64_t row)
{
    return row < h->n_known ? h->known[row].first : row;
}

#endif
