/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's own account of a trace: which rows each sequence holds, in order of position; which tree
 * nodes are pending. No cells, no capacity, no cache code: an independent witness of visible sets.
 *
 * A row is what is stored of a token: (identity, revision). One that is written once and never moved has its token's
 * identity for a number. A shift makes other rows of the tokens that it moves: those are numbered on from the tokens of
 * the trace, in the order in which they are made.
 */
#ifndef KVB_HISTORY_H
#define KVB_HISTORY_H

#include "workloads/trace.h"

typedef struct kvb_history kvb_history;

/* What a shift has made: what is stored is row `of`, its K part turned by so many positions and stored again. Shifts
 * between two steps add up: `of` is then the row that was there at the last step. delta 0: the row `of` as it is. */
typedef struct kvb_moved_row {
    uint64_t of, token;
    int32_t delta;
} kvb_moved_row;

/* tokens: of the trace. 0 or -ENOMEM. */
int kvb_history_open(uint64_t tokens, kvb_history **history);
void kvb_history_free(kvb_history *history);

/* From now on, before any event: tokens are known by their prefixes, and those of one prefix go by the identity of the
 * first of them (workloads/alike.h says the same of their values). */
void kvb_history_know_prefixes(kvb_history *history);

/* Has a token `claimed` the prefix of token `own`, itself included: ids, one position after the other, and the extra
 * key? Else why says where they differ. */
bool kvb_history_same_prefix(const kvb_history *history, uint64_t claimed, uint64_t own, char *why, size_t why_bytes);

/* Apply the next event of a validated trace. After an event that brings tokens, its queries may be asked
 * about until the next call, of a save after it, too. 0 or -ENOMEM. */
int kvb_history_apply(kvb_history *history, const kvb_event *event);

/* Rows that query i of the event last applied may see in a layer of the group (kernels/model.h), its own included,
 * ascending by position. *rows belongs to the history until the next call. Returns the count, or -ENOMEM. */
int64_t kvb_history_visible(kvb_history *history, const kvb_group *group, uint32_t i, const uint64_t **rows);

/* The rows that shifts have made so far, those numbered from the trace's tokens on. They belong to the history until
 * the next event. Returns how many. */
size_t kvb_history_moved(const kvb_history *history, const kvb_moved_row **moved);
/* Whose row it is. */
uint64_t kvb_history_token(const kvb_history *history, uint64_t row);

#endif
