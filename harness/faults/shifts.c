/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that move positions and turn K rows wrongly. */
#include "harness/faults/fault.h"

#define HONEST kvb_fault_honest.cache

/* ---- which rows are turned, and how far: changed once the honest policy has named them --------------------------- */

static int (*turns_change)(kvb_store *store);

static int prepare(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    int error = HONEST->prepare(store, change, feed, plan);
    return error || change->kind != KVB_CHANGE_SHIFT ? error : turns_change(store);
}

static void turns_changed(kvb_cache_type *wrong, int (*how)(kvb_store *store))
{
    turns_change = how;
    wrong->prepare = prepare;
}

static int none(kvb_store *store)
{
    for (size_t i = 0; i < store->n_turns; i++)
        store->turns[i].delta = 0;
    return 0;
}

static int backwards(kvb_store *store)
{
    for (size_t i = 0; i < store->n_turns; i++)
        store->turns[i].delta = -store->turns[i].delta;
    return 0;
}

static int one_further(kvb_store *store)
{
    for (size_t i = 0; i < store->n_turns; i++)
        store->turns[i].delta++;
    return 0;
}

static int but_last(kvb_store *store)
{
    if (store->n_turns)
        store->turns[store->n_turns - 1].delta = 0;
    return 0;
}

static int but_first_group(kvb_store *store)
{
    return store->group->window ? 0 : none(store);
}

/* What was copied for the sequence that moves is turned where it lay, as well. */
static int in_place(kvb_store *store)
{
    int error = 0;
    for (size_t i = 0; i < store->n_moves && !error; i++)
        error = kvb_store_turn(store, store->moves[i].from, store->turns[0].delta);
    return error;
}

/* Of a division all rows by the first one's distance: what is divided is taken for a shift. */
static int all_alike(kvb_store *store)
{
    for (size_t i = 1; i < store->n_turns; i++)
        store->turns[i].delta = store->turns[0].delta;
    return 0;
}

static void divided_alike(kvb_cache_type *wrong)
{
    turns_changed(wrong, all_alike);
}

static void forgotten(kvb_cache_type *wrong)
{
    turns_changed(wrong, none);
}

static void turned_backwards(kvb_cache_type *wrong)
{
    turns_changed(wrong, backwards);
}

static void turned_further(kvb_cache_type *wrong)
{
    turns_changed(wrong, one_further);
}

static void last_forgotten(kvb_cache_type *wrong)
{
    turns_changed(wrong, but_last);
}

static void group_forgotten(kvb_cache_type *wrong)
{
    turns_changed(wrong, but_first_group);
}

static void shared_turned(kvb_cache_type *wrong)
{
    turns_changed(wrong, in_place);
}

/* ---- what is pending -------------------------------------------------------------------------------------------- */

static void adopt_last_delta(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    HONEST->adopt(store, change, feed, plan);
    for (size_t i = 0; change->kind == KVB_CHANGE_SHIFT && i < store->n_turns; i++)
        store->pending[store->turns[i].cell] = store->turns[i].delta;
}

static void pending_overwritten(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_last_delta;
}

/* ---- how pairs are turned ---------------------------------------------------------------------------------------- */

static void (*rope_change)(kvb_rope *rope);

static int with_rope(kvb_store *store)
{
    static kvb_group groups[KVB_MODEL_GROUPS];
    static uint32_t n;
    for (uint32_t i = 0; i < n; i++)
        if (store->group == &groups[i])
            return 0;
    groups[n] = *store->group;
    rope_change(&groups[n].rope);
    store->group = &groups[n++];
    return 0;
}

static void rope_pairs(kvb_rope *rope)
{
    rope->neighbours = !rope->neighbours;
}

static void rope_base(kvb_rope *rope)
{
    rope->base *= 1.01;
}

static void pairing_swapped(kvb_cache_type *wrong)
{
    rope_change = rope_pairs;
    turns_changed(wrong, with_rope);
}

static void base_off(kvb_cache_type *wrong)
{
    rope_change = rope_base;
    turns_changed(wrong, with_rope);
}

/* ---- compaction -------------------------------------------------------------------------------------------------- */

static void (*moves_change)(kvb_store *store);

static int prepare_moves(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    int error = HONEST->prepare(store, change, feed, plan);
    if (!error && change->kind == KVB_CHANGE_DEFRAG)
        moves_change(store);
    return error;
}

static void moves_changed(kvb_cache_type *wrong, void (*how)(kvb_store *store))
{
    moves_change = how;
    wrong->prepare = prepare_moves;
}

static void no_moves(kvb_store *store)
{
    store->n_moves = 0;
}

static void moves_turned_round(kvb_store *store)
{
    for (size_t i = 0, j = store->n_moves; i + 1 < j; i++) {
        const kvb_move kept = store->moves[i];
        store->moves[i] = store->moves[--j];
        store->moves[j] = kept;
    }
}

static void last_move_lost(kvb_store *store)
{
    store->n_moves -= store->n_moves > 0;
}

static void adopt_pending_left(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    HONEST->adopt(store, change, feed, plan);
    for (size_t i = 0; change->kind == KVB_CHANGE_DEFRAG && store->turns_pending && i < store->n_moves; i++)
        store->pending[store->moves[i].to] = 0;
}

static void defrag_forgets_rows(kvb_cache_type *wrong)
{
    moves_changed(wrong, no_moves);
}

static void defrag_turned_round(kvb_cache_type *wrong)
{
    moves_changed(wrong, moves_turned_round);
}

static void defrag_loses_last(kvb_cache_type *wrong)
{
    moves_changed(wrong, last_move_lost);
}

static void defrag_leaves_pending(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_pending_left;
}

const kvb_fault kvb_shift_faults[] = {
    {"shift-forgotten", "positions move, K rows are not turned", KVB_CHECK_BOUND,
     "context-shift seq f32 flash, context-shift-8x128 slab q8_0 flash", .cache = forgotten},
    {"shift-backwards", "K rows are turned the other way", KVB_CHECK_BOUND,
     "context-shift seq f32 flash, context-shift window bf16 flash", .cache = turned_backwards},
    {"shift-one-further", "K rows are turned one position too far", KVB_CHECK_BOUND,
     "context-shift slab f16 flash, context-shift-8x128 seq q8_0 flash", .cache = turned_further},
    {"shift-last-forgotten", "the last token that moves is not turned", KVB_CHECK_BOUND,
     "context-shift seq f32 flash, context-shift window f32 flash", .cache = last_forgotten},
    {"shift-group-forgotten", "K rows are turned in the first group of layers only", KVB_CHECK_BOUND,
     "context-shift seq f32 flash, context-shift-8x128 seq a4g64+had flash", .cache = group_forgotten},
    {"shift-pending-overwritten", "a second shift before a step takes the place of the first one's delta",
     KVB_CHECK_BOUND, "context-shift seq f32 flash, context-shift-8x128 slab f16 flash", .cache = pending_overwritten},
    {"shift-divided-alike", "of positions that are divided all rows are turned by the first one's distance",
     KVB_CHECK_BOUND, "self-extend seq f32 flash, self-extend-8x128 seq q8_0 flash", .cache = divided_alike},
    {"shift-shared-turned", "rows that another sequence holds are turned where they lie", KVB_CHECK_BOUND,
     "context-shift seq f32 flash, context-shift window f32 flash", .cache = shared_turned},
    {"shift-pairing", "elements are turned in the other pairs", KVB_CHECK_BOUND,
     "context-shift seq f32 flash, context-shift-8x128 slab bf16 flash", .cache = pairing_swapped},
    {"shift-base-off", "K rows are turned by a base that is a hundredth too large", KVB_CHECK_BOUND,
     "context-shift seq f32 flash, context-shift-8x128 seq f16 flash", .cache = base_off},
    {"defrag-forgets-rows", "cells trade places, rows do not", KVB_CHECK_WITNESS,
     "context-shift seq f32 witness, context-shift window f32 witness", .cache = defrag_forgets_rows},
    {"defrag-turned-round", "rows are copied in the wrong order, over rows that are not copied yet", KVB_CHECK_WITNESS,
     "context-shift window f32 witness, context-shift-8x128 window q8_0 witness", .cache = defrag_turned_round},
    {"defrag-loses-last", "the last row that trades places is not copied", KVB_CHECK_WITNESS,
     "context-shift seq f32 witness, context-shift-8x128 window q8_0 witness", .cache = defrag_loses_last},
    {"defrag-leaves-pending", "rows that are yet to be turned trade places and are not", KVB_CHECK_BOUND,
     "context-shift seq f32 flash, context-shift-8x128 window q8_0 flash", .cache = defrag_leaves_pending},
    {.name = NULL},
};
