/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one account of a trace outside caches/: which rows each sequence holds at which positions, which tree nodes are
 * pending, what slots keep, which events are refused and why, what a cache needs, and which rows a query sees. The trace
 * reader checks events by it, the oracle and the witness ask it what queries see. It knows integers only, no cells, and
 * shares no line with caches/bookkeeping.
 *
 * A row is what is stored of a token: (identity, revision). A row that is written once and never moved has its token's
 * identity for a number. seq_add and seq_div make other rows of the tokens that they move: those are numbered on from
 * the tokens of the trace, in the order in which they are made.
 */
#ifndef KVB_HISTORY_H
#define KVB_HISTORY_H

#include "workloads/trace.h"

typedef struct kvb_history kvb_history;

/* tokens: of the trace, the number of the first moved row; KVB_TRACE_MAX_CELLS while it is not known. 0 or -ENOMEM. */
int kvb_history_open(uint64_t tokens, kvb_history **history);
void kvb_history_free(kvb_history *history); /* NULL: nothing */

/* ---- events --------------------------------------------------------------------------------------------- */

/* The first group of which the header states no rope: nothing can then be moved. -1, the ordinary case: there is none. */
void kvb_history_rope_unknown(kvb_history *history, int group);

/*
 * What every cache answers to an event whose numbers lie in their ranges, were it the next one: 0, -EINVAL or, with
 * capacity, -ENOSPC; -EPROTO: no trace may hold it, and a cache may take it or not. Changes nothing; why: of what is not
 * 0. The event has its positions.
 */
int kvb_history_check(kvb_history *history, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
/*
 * Checks the next event of a trace against what is alive, completes it (first, n, positions, what its sequences share),
 * applies it and adds up what a cache needs. An event that must be refused becomes KVB_EVENT_REFUSED and changes
 * nothing. capacity: of the cache, in cells; 0: no limit. 0, -EINVAL with why, or -ENOMEM with why; after a failure the
 * history is of no further use.
 */
int kvb_history_take(kvb_history *history, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
/* Applies the next event of a trace that was checked before. 0 or -ENOMEM. */
int kvb_history_apply(kvb_history *history, const kvb_event *event);

const kvb_trace_needs *kvb_history_needs(const kvb_history *history); /* of the events so far */
/* The position that the sequence's next token has; how many of its nodes are pending. */
uint32_t kvb_history_next(const kvb_history *history, uint32_t seq);
uint32_t kvb_history_pending(const kvb_history *history, uint32_t seq);

/* ---- what queries see ----------------------------------------------------------------------------------- */

/* Rows row .. row + n - 1. */
typedef struct kvb_row_run {
    uint32_t row, n;
} kvb_row_run;

/* The rows that query i of the last event sees in a layer of the group (kernels/model.h), its own row included,
 * ascending by position. The last event must have brought tokens; a save after it changes nothing. *runs belongs to the
 * history until the next call. Returns how many runs there are, or -ENOMEM. */
int64_t kvb_history_visible(kvb_history *history, const kvb_group *group, uint32_t i, const kvb_row_run **runs);

/* How a moved row was made: the K part of row `of` is turned by delta positions and stored again. Moves between two
 * steps add up: `of` is then the row of the last step. delta 0: row `of` as it is. */
typedef struct kvb_moved_row {
    uint32_t of, token;
    int32_t delta;
} kvb_moved_row;

/* The rows that moves have made so far, those numbered from the trace's tokens on, until the next event. How many. */
size_t kvb_history_moved(const kvb_history *history, const kvb_moved_row **moved);
/* The token whose row this is; where prefixes are known, the first token with the same prefix. */
uint64_t kvb_history_token(const kvb_history *history, uint64_t row);

/* ---- tokens of one prefix ------------------------------------------------------------------------------- */

/*
 * Tokens have one prefix if they are of one vocabulary id, at one position, behind one and the same prefix, under one
 * extra key. All of them have the values of the first, so that a cache may share their rows. A token that is not known,
 * follows such a token, stands behind a hole, was moved or was a draft has a prefix of its own.
 */

/* Before any event: prefixes are to be known. */
void kvb_history_know_prefixes(kvb_history *history);
/* Has token `claimed` the prefix of the later token `own`, itself included? Else why states where they differ. */
bool kvb_history_same_prefix(const kvb_history *history, uint64_t claimed, uint64_t own, char *why, size_t why_bytes);
/* *like [needs.tokens], from malloc: by identity the first token with the same prefix, perhaps itself. 0 or -ENOMEM. */
int kvb_alike_find(const kvb_trace *trace, uint32_t **like);

#endif
