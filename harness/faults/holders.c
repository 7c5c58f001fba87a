/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that count wrongly how many sequences hold a page. */
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

const kvb_fault kvb_holder_faults[] = {
    {"holders-in-8-bits",
     "256 sequences that hold a page are counted as none",
     KVB_CHECK_WITNESS,
     {"many-holders paged f32 witness"},
     .cache = eight_bits},
    {"holders-in-4-bits",
     "16 sequences that hold a page are counted as none",
     KVB_CHECK_WITNESS,
     {"many-holders paged f32 witness"},
     .cache = four_bits},
    {"first-frees",
     "a page is free when the first of its sequences leaves",
     KVB_CHECK_WITNESS,
     {"agent-fork paged f32 witness", "many-holders paged f32 witness"},
     .cache = first_frees},
    {.name = NULL},
};
