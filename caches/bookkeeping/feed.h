/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The feed of a step: the tokens whose rows its plan wants. As a rule those that are new; of a cache that keeps no rows the
 * whole history of the step's sequences before them.
 */
#ifndef KVB_FEED_H
#define KVB_FEED_H

#include "caches/bookkeeping/account.h"

typedef struct kvb_feed {
    uint32_t n, n_new;            /* tokens; the new ones are the last */
    uint64_t *ordinals;           /* [n] */
    uint32_t *positions;          /* [n] */
    uint32_t *seqs;               /* [n] sequence that each is fed for */
    kvb_spans seen[KVB_MAX_SEQS]; /* whole histories: of each sequence in the step, position -> place in the feed */
    size_t ordinals_room, positions_room, seqs_room;
} kvb_feed;

/* Admits the tokens of a STEP or PROPOSE, for which the account has reserved, and says what is fed. An old token is fed once,
 * for the lowest of the step's sequences that hold it. 0, or -ENOMEM with nothing admitted. */
int kvb_feed_make(kvb_feed *feed, kvb_account *account, const kvb_change *change, bool whole_histories);
void kvb_feed_close(kvb_feed *feed, kvb_allocator *allocator);

/* Positions of the new tokens. */
static inline const uint32_t *kvb_feed_new(const kvb_feed *feed)
{
    return feed->positions + (feed->n - feed->n_new);
}

#endif
