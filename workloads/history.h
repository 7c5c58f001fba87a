/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only account of a trace outside caches/: the rows that each sequence holds at which positions, pending tree
 * nodes, saved slots, the events that are refused and why, what a cache needs, and the rows that a query sees. The
 * trace reader checks events with it; the oracle and the witness take from it what queries see. It knows integers only,
 * no cells, and shares no line with caches/bookkeeping.
 *
 * A row is one stored version of a token: (identity, revision). The first row of a token has the token's identity as
 * its number. seq_add and seq_div make new rows of the tokens that they move. These are numbered in the order in which
 * they are made, beginning with the number of tokens in the trace.
 */
#ifndef KVB_HISTORY_H
#define KVB_HISTORY_H

#include "workloads/trace.h"

typedef struct kvb_history kvb_history;

/* tokens: of the trace; also the number of the first moved row. KVB_TRACE_MAX_CELLS: not known yet. 0 or -ENOMEM. */
int kvb_history_open(uint64_t tokens, kvb_history **history);
void kvb_history_free(kvb_history *history); /* NULL: nothing */

/* ---- events --------------------------------------------------------------------------------------------- */

/* Sets the first group whose rope is unknown: no token can be moved then. -1, the default: all ropes are known. */
void kvb_history_rope_unknown(kvb_history *history, int group);

/*
 * The answer that every cache would give to this event as the next one: 0, -EINVAL or, with capacity, -ENOSPC; -EPROTO:
 * no trace may hold the event, and caches may take it or not. why: the reason if not 0. The event has its positions,
 * and its numbers lie in their ranges. Changes nothing.
 */
int kvb_history_check(kvb_history *history, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
/*
 * Checks the next event of a trace against what is alive, completes the event (first, n, positions, several, branches),
 * applies it and adds up what a cache needs. An event that must be refused becomes KVB_EVENT_REFUSED and changes
 * nothing. capacity: of the cache, in cells; 0: no limit. 0, or -EINVAL or -ENOMEM with why; after a failure the
 * history cannot be used any more.
 */
int kvb_history_take(kvb_history *history, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
/* Applies the next event of a trace that was checked before. 0 or -ENOMEM. */
int kvb_history_apply(kvb_history *history, const kvb_event *event);

const kvb_trace_needs *kvb_history_needs(const kvb_history *history); /* of the events so far */
/* Rows that live sequences hold: shared ones once, pending ones too. */
uint32_t kvb_history_held(const kvb_history *history);
/* The position of the sequence's next token. */
uint32_t kvb_history_next(const kvb_history *history, uint32_t seq);

/* ---- what queries see ----------------------------------------------------------------------------------- */

/* Rows row .. row + n - 1. */
typedef struct kvb_row_run {
    uint32_t row, n;
} kvb_row_run;

/* The rows that query i of the last event sees in a layer of the group (kernels/model.h), its own row included,
 * ascending by position. The last event must have brought tokens; a save after it changes nothing. *runs belongs to the
 * history until the next call. Returns how many runs there are, or -ENOMEM. */
int64_t kvb_history_visible(kvb_history *history, const kvb_group *group, uint32_t i, const kvb_row_run **runs);

/* How a moved row is made: the K part of row `of` is turned by delta positions and stored again. Moves between two
 * steps add up: `of` is the row at the last step. delta 0: row `of` unchanged. */
typedef struct kvb_moved_row {
    uint32_t of, token;
    int32_t delta;
} kvb_moved_row;

/* All moved rows so far, in the order of their numbers; valid until the next event. Returns their number. */
size_t kvb_history_moved(const kvb_history *history, const kvb_moved_row **moved);
/* The token of a row; if prefixes are known, the first token with the same prefix. */
uint64_t kvb_history_token(const kvb_history *history, uint64_t row);

/* ---- tokens of one prefix ------------------------------------------------------------------------------- */

/*
 * Two tokens have the same prefix if they have the same vocabulary id and extra key and lie at the same position behind
 * the same prefix. All of them have the values of the first, so that a cache may share their rows. A token has a prefix
 * of its own if its id is unknown, it follows such a token or a hole, it was moved, or it was a draft.
 */

/* Keeps account of prefixes. To be called before any event. */
void kvb_history_know_prefixes(kvb_history *history);
/* Do token `claimed` and the later token `own` have the same prefix? If not, why says where they differ. */
bool kvb_history_same_prefix(const kvb_history *history, uint64_t claimed, uint64_t own, char *why, size_t why_bytes);
/* *like [needs.tokens], from malloc: for each token the first one with the same prefix, or itself. 0 or -ENOMEM. */
int kvb_alike_find(const kvb_trace *trace, uint32_t **like);

#endif
