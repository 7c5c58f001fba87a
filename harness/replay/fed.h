/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan of a step feeds: the event's tokens and, over a cache that forgets, the past before them. */
#ifndef KVB_REPLAY_FED_H
#define KVB_REPLAY_FED_H

#include "harness/replay/attend.h"

/* The fed tokens of a step, as every layer takes them. */
typedef struct kvb_fed {
    const kvb_event *event;
    const uint64_t *tokens; /* [n] identities */
    uint32_t n;
    uint32_t own, query; /* the last `own` of them are the event's, from its token `query` on */
} kvb_fed;

/* Takes the tokens that the plan of a step of n own ones wants, and their positions into pass->positions. 0 or an
 * error; the pass may be refused. */
int kvb_pass_feed(kvb_pass *pass, uint32_t n, const uint64_t **tokens, uint32_t *fed);

/* Rows of the fed tokens of a layer [n][heads][dim]: in place if they lie together, else copied. NULL: it has none. */
const float *kvb_pass_rows(kvb_pass *pass, kvb_rows kind, uint32_t layer, const uint64_t *tokens, uint32_t n);

#endif
