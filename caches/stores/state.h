/* SPDX-License-Identifier: Apache-2.0 */
/* The store of groups that scan: its states, and what can be done with them (state.c); which slots a step takes
 * (state_step.c). */
#ifndef KVB_STATE_H
#define KVB_STATE_H

#include "caches/stores/seq.h"

/* A fed token of the step in hand. */
typedef struct kvb_state_token {
    uint32_t parent; /* place in the feed of the token before it; NOWHERE: */
    uint32_t begins; /* with this slot, or KVB_SCAN_ZERO */
    uint32_t child;  /* place of the last token that has it as its parent */
    bool kept;       /* its state is there after the step */
    bool read;       /* by a token that does not follow it in the feed */
} kvb_state_token;

/* A slot, in the step in hand; zero outside of it. */
typedef struct kvb_slot_use {
    uint32_t reader; /* place of the last token that begins with it, + 1 */
    uint32_t leaves; /* sequences that let go of it */
    uint32_t next;   /* of the slots that can be written again */
} kvb_slot_use;

typedef struct state_store {
    seq_store slots; /* `cells`: position of a token -> slot with the state behind it. `next`: counts of the step in
                        hand, else 0 */
    kvb_state_token *tokens; /* [tokens_room] */
    kvb_slot_use *uses;      /* [uses_room] */
    uint32_t again;          /* the first slot that can be written again */
    uint32_t lowest;         /* no slot below it that is free has not been taken */
    uint32_t *links[2];      /* [2][links_room / 2] from, to: of the step in force, and of the one in hand */
    size_t tokens_room, uses_room, links_room[2];
} state_store;

static inline bool kvb_state_forgets(const kvb_store *s)
{
    return s->cache->flags & KVB_CACHE_FORGETS;
}

/* States that a sequence holds at most. */
static inline uint64_t kvb_state_depth(const kvb_store *s)
{
    return 1 + (uint64_t)s->options->state_depth;
}

/* How many of its oldest states a sequence lets go of for n more. */
static inline uint32_t kvb_state_outgrown(const state_store *c, uint32_t seq, uint32_t n)
{
    const uint64_t most = kvb_state_depth(&c->slots.store), more = n < most ? n : most;
    const uint64_t all = c->slots.cells[seq].tokens + more;
    return all > most ? (uint32_t)(all - most) : 0;
}

/* STEP and PROPOSE: each fed token's slots are in links[1]: 0 or -ENOMEM, with nothing to be undone. */
int kvb_state_step(state_store *store, const kvb_change *change, const kvb_feed *feed);

#endif
