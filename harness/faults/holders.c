/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that do not notice, or not rightly, that a sequence left: its pages, or where the others go on. */
#include "caches/stores/paged.h"
#include "harness/faults/fault.h"

#define HONEST kvb_fault_honest.cache

static uint32_t most; /* that a counter can be */

static void adopt_wrapped(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    const paged_store *p = (const paged_store *)store;
    HONEST->adopt(store, change, feed, plan);
    for (uint32_t page = 0; page < p->n_pages; page++)
        if (p->refs[page] > most)
            p->refs[page] &= most;
}

static void eight_bits(kvb_cache_type *wrong)
{
    most = UINT8_MAX;
    wrong->adopt = adopt_wrapped;
}

static void four_bits(kvb_cache_type *wrong)
{
    most = 15;
    wrong->adopt = adopt_wrapped;
}

/* The first sequence that leaves takes its pages with it, whichever others hold them. */
static void adopt_freeing(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    const paged_store *p = (const paged_store *)store;
    for (uint32_t entry = 0; change->kind == KVB_CHANGE_REMOVE && entry < p->tables[change->src].room; entry++)
        if (page_at(p, change->src, entry) != PAGE_NONE && change->p0 == 0 && change->p1 == KVB_POS_END)
            p->refs[page_at(p, change->src, entry)] = 1;
    HONEST->adopt(store, change, feed, plan);
}

static void first_frees(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_freeing;
}

/* omlx 2172: rows of a slab have one place to append at, which becomes the end of the longest sequence that is left. */
static bool has_left;

static void adopt_leaving(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    has_left |= change->kind == KVB_CHANGE_REMOVE && change->p0 == 0 && change->p1 == KVB_POS_END;
    HONEST->adopt(store, change, feed, plan);
}

static int prepare_appending(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    const int error = HONEST->prepare(store, change, feed, plan);
    uint32_t longest = 0;
    for (uint32_t seq = 0; seq < store->account->n_ids; seq++) {
        const uint32_t next = kvb_spans_next(&store->account->seq[seq]);
        longest = longest > next ? longest : next;
    }
    for (uint32_t i = 0; !error && feed && has_left && i < feed->n; i++)
        if (feed->positions[i] + 1 == kvb_spans_next(&store->account->seq[feed->seqs[i]])) /* decoded */
            plan->cells[i] += longest - 1 - feed->positions[i];
    return error;
}

static void appends_at_longest(kvb_cache_type *wrong)
{
    has_left = false;
    wrong->adopt = adopt_leaving;
    wrong->prepare = prepare_appending;
}

const kvb_fault kvb_holder_faults[] = {
    {"holders-in-8-bits", "256 sequences that hold a page are counted as none", KVB_CHECK_WITNESS,
     "many-holders paged f32 witness", .cache = eight_bits},
    {"holders-in-4-bits", "16 sequences that hold a page are counted as none", KVB_CHECK_WITNESS,
     "many-holders paged f32 witness", .cache = four_bits},
    {"first-frees", "a page is free when the first of its sequences leaves", KVB_CHECK_WITNESS,
     "agent-fork paged f32 witness, many-holders paged f32 witness", .cache = first_frees},
    {"appends-at-longest", "once a sequence has left, the others append where the longest that is left ends",
     KVB_CHECK_WITNESS, "batched-multi-seq slab f32 witness, many-holders slab f32 witness",
     .cache = appends_at_longest},
    {.name = NULL},
};
