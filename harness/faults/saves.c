/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that save or load wrongly. */
#include "harness/faults/fault.h"

#include <string.h>

#define HONEST kvb_fault_honest.cache

/* ---- what is saved ----------------------------------------------------------------------------------------------- */

static int lies_short(kvb_store *store, uint32_t seq, kvb_spans *cells)
{
    int error = HONEST->lies(store, seq, cells);
    const kvb_span *last = error || !cells->n ? NULL : &cells->span[cells->n - 1];
    if (last)
        kvb_spans_cut(cells, last->pos + last->n - 1, KVB_POS_END);
    return error;
}

static void save_ends_early(kvb_cache_type *wrong)
{
    wrong->lies = lies_short;
}

/* The first span as a ring that begins one cell further on. */
static int lies_turned(kvb_store *store, uint32_t seq, kvb_spans *cells)
{
    int error = HONEST->lies(store, seq, cells);
    error = error ? error : kvb_spans_reserve(cells, store->allocator, 1);
    kvb_span *first = error || !cells->n ? NULL : cells->span;
    if (first && first->n > 1) {
        memmove(first + 2, first + 1, (cells->n++ - 1) * sizeof *first);
        first[1] = (kvb_span){first->at, first->pos + first->n - 1, 1};
        first->at++;
        first->n--;
    }
    return error;
}

static void save_of_turned_ring(kvb_cache_type *wrong)
{
    wrong->lies = lies_turned;
}

/* ---- what is loaded ---------------------------------------------------------------------------------------------- */

static int prepare_but_load(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    return change->kind == KVB_CHANGE_LOAD ? 0 : HONEST->prepare(store, change, feed, plan);
}

static void adopt_but_load(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    if (change->kind != KVB_CHANGE_LOAD && HONEST->adopt)
        HONEST->adopt(store, change, feed, plan);
}

static void load_is_empty(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_but_load;
    wrong->adopt = adopt_but_load;
}

static int prepare_first_group(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    int error = HONEST->prepare(store, change, feed, plan);
    if (change->kind == KVB_CHANGE_LOAD && !store->pools[0]) /* layer 0 is of another group */
        store->n_moves = 0;
    return error;
}

static void load_of_first_group(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_first_group;
}

const kvb_fault kvb_save_faults[] = {
    {"save-short", "the last row of a sequence is not saved", KVB_CHECK_WITNESS,
     "save-restore seq f32 witness, save-restore window f32 witness, save-restore paged f32 witness",
     .cache = save_ends_early},
    {"save-ring-turned", "rows are saved as if they lay in a ring that begins one cell further on", KVB_CHECK_WITNESS,
     "save-restore seq f32 witness, save-restore slab f32 witness, save-restore paged f32 witness",
     .cache = save_of_turned_ring},
    {"load-empty", "what is loaded is read, and the sequence stays empty", KVB_CHECK_WITNESS,
     "save-restore seq f32 witness, save-restore window f32 witness, preempt-resume seq f32 witness",
     .cache = load_is_empty},
    {"load-first-group", "rows of the second group of layers are not loaded", KVB_CHECK_WITNESS,
     "save-restore paged f32 witness, save-restore slab f32 witness", .cache = load_of_first_group},
    {.name = NULL},
};
