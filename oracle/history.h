/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's own account of a trace: which rows each sequence holds, in order of position; which tree
 * nodes are pending. No cells, no capacity, no cache code: an independent witness of visible sets.
 *
 * A row is what is stored of a token: (identity, revision). Its number is identity + revision x tokens of the trace; a row that
 * is written once and never moved has revision 0, and its token's identity for a number.
 */
#ifndef KVB_HISTORY_H
#define KVB_HISTORY_H

#include "workloads/trace.h"

typedef struct kvb_history kvb_history;

int kvb_history_open(kvb_history **history); /* 0 or -ENOMEM */
void kvb_history_free(kvb_history *history);

/* Apply the next event of a validated trace. After an event that brings tokens, its queries may be asked
 * about until the next call. 0 or -ENOMEM. */
int kvb_history_apply(kvb_history *history, const kvb_event *event);

/* Rows that query i of the event last applied may see in a layer of the group (kernels/model.h), its own included, ascending by
 * position. *rows belongs to the history until the next call. Returns the count, or -ENOMEM. */
int64_t kvb_history_visible(kvb_history *history, const kvb_group *group, uint32_t i, const uint64_t **rows);

#endif
