/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step's feed: the tokens whose rows the plan wants. Most caches want the new tokens. A cache that keeps no rows
 * also wants the whole history of the step's sequences, before the new tokens.
 */
#ifndef KVB_FEED_H
#define KVB_FEED_H

#include "caches/bookkeeping/account.h"

typedef struct kvb_feed {
    uint32_t n, n_new;   /* tokens; the new ones are the last */
    uint64_t *ordinals;  /* [n] */
    uint32_t *positions; /* [n] */
    uint32_t *seqs;      /* [n] sequence that each is fed for */
    kvb_spans *seen;     /* whole histories: [n_seen] of each sequence in the step, position -> place in the feed */
    uint32_t n_seen;     /* ids */
    uint32_t *node;      /* whole histories: [account's n_nodes] place of each pending node that is fed */
    size_t ordinals_room, positions_room, seqs_room, node_room;
} kvb_feed;

/* A feed of whole histories of n_ids sequences (0: of new tokens only): 0 or -ENOMEM. */
int kvb_feed_open(kvb_feed *feed, kvb_allocator *allocator, uint32_t n_ids);

/* Admits the tokens of a STEP or PROPOSE, for which the account has reserved, and says what is fed. An old token is fed
 * once, for the lowest of the step's sequences that hold it. 0, or -ENOMEM with nothing admitted. */
int kvb_feed_make(kvb_feed *feed, kvb_account *account, const kvb_change *change);
void kvb_feed_close(kvb_feed *feed, kvb_allocator *allocator);

/* Positions of the new tokens. */
static inline const uint32_t *kvb_feed_new(const kvb_feed *feed)
{
    return feed->positions + (feed->n - feed->n_new);
}

#endif
