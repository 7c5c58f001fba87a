/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that show too much or too little of windows, trees and batches, and that refuse or misdirect control calls. */
#include "harness/faults/fault.h"

#include <errno.h>

#define HONEST kvb_fault_honest.cache

/* ---- what queries see: changed once the honest policy has made a plan -------------------------------------------- */

static void (*plan_change)(const kvb_store *store, kvb_plan *plan);

static int prepare_changed(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    int error = HONEST->prepare(store, change, feed, plan);
    if (!error && feed)
        plan_change(store, plan);
    return error;
}

static void plans_changed(kvb_cache_type *wrong, void (*how)(const kvb_store *store, kvb_plan *plan))
{
    plan_change = how;
    wrong->prepare = prepare_changed;
}

/* The runs of a query, and how many: never none, since it sees itself. */
static uint32_t runs_of(const kvb_plan *plan, uint32_t query, kvb_run **runs)
{
    *runs = &plan->runs[plan->row_start[query]];
    return plan->row_start[query + 1] - plan->row_start[query];
}

static void one_before(const kvb_store *store, kvb_plan *plan)
{
    kvb_run *run;
    (void)store;
    for (uint32_t i = 0; i < plan->n; i++) {
        uint32_t n = runs_of(plan, i, &run), *begin = &run[n - 1].begin;
        if (*begin > (n > 1 ? run[n - 2].end : 0))
            --*begin;
    }
}

static void one_less(const kvb_store *store, kvb_plan *plan)
{
    kvb_run *run;
    for (uint32_t i = 0; i < plan->n; i++) {
        uint32_t n = runs_of(plan, i, &run);
        if (kvb_group_limits(store->group) && run[n - 1].end - run[n - 1].begin > 1)
            run[n - 1].begin++;
    }
}

static void from_first_cell(const kvb_store *store, kvb_plan *plan)
{
    kvb_run *run;
    (void)store;
    for (uint32_t i = 0; i < plan->n; i++) {
        runs_of(plan, i, &run);
        run->begin = 0;
    }
}

static void up_to_last(const kvb_store *store, kvb_plan *plan)
{
    kvb_run *run, *last;
    (void)store;
    uint32_t end = runs_of(plan, plan->n - 1, &last) - 1;
    for (uint32_t i = 0; i < plan->n; i++) {
        uint32_t n = runs_of(plan, i, &run) - 1;
        if (run[n].begin == last[end].begin) /* of the same sequence */
            run[n].end = last[end].end;
    }
}

static void as_query_before(const kvb_store *store, kvb_plan *plan)
{
    kvb_run *run, *before;
    (void)store;
    for (uint32_t i = plan->n; i-- > 1;)
        if (runs_of(plan, i, &run) == 1 && runs_of(plan, i - 1, &before) == 1)
            *run = *before;
}

static void sees_one_before(kvb_cache_type *wrong)
{
    plans_changed(wrong, one_before);
}

static void window_short(kvb_cache_type *wrong)
{
    plans_changed(wrong, one_less);
}

static void sees_from_first_cell(kvb_cache_type *wrong)
{
    plans_changed(wrong, from_first_cell);
}

static void sees_followers(kvb_cache_type *wrong)
{
    plans_changed(wrong, up_to_last);
}

static void sees_as_query_before(kvb_cache_type *wrong)
{
    plans_changed(wrong, as_query_before);
}

/* ---- control calls ----------------------------------------------------------------------------------------------- */

static int no_change(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    return feed ? HONEST->prepare(store, change, feed, plan)
                : kvb_store_fail(store, -ENOSPC, "no room for a change of kind %d", (int)change->kind);
}

static int no_twentieth(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    static uint32_t steps;
    return feed && ++steps == 20 ? kvb_store_fail(store, -ENOSPC, "no room for step %u", steps)
                                 : HONEST->prepare(store, change, feed, plan);
}

static uint32_t room_never_written(const kvb_store *store, const kvb_change *change)
{
    (void)change;
    return store->cells_written < store->pool_cells ? store->pool_cells - (uint32_t)store->cells_written : 0;
}

static kvb_change elsewhere(const kvb_change *change)
{
    kvb_change other = *change;
    if (other.kind == KVB_CHANGE_COPY)
        other.dst = (other.dst + 1) % KVB_MAX_SEQS;
    return other;
}

static int prepare_elsewhere(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_change other = elsewhere(change);
    return HONEST->prepare(store, &other, feed, plan);
}

static void adopt_elsewhere(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    kvb_change other = elsewhere(change);
    HONEST->adopt(store, &other, feed, plan);
}

/* What a loop does that puts one sequence after the other in its place: a source may have been overwritten. */
static kvb_change one_by_one(const kvb_change *change)
{
    static uint32_t srcs[KVB_MAX_SEQS];
    kvb_change other = *change;
    for (uint32_t i = 0; other.kind == KVB_CHANGE_REORDER && i < other.n; i++) {
        srcs[i] = change->srcs[i];
        for (uint32_t j = 0; j < i; j++)
            if (change->dsts[j] == change->srcs[i])
                srcs[i] = srcs[j];
    }
    other.srcs = srcs;
    return other;
}

/* A source that several destinations want goes to the first; the others keep what they had. */
static kvb_change once_each(const kvb_change *change)
{
    static uint32_t dsts[KVB_MAX_SEQS], srcs[KVB_MAX_SEQS];
    kvb_change other = *change;
    for (uint32_t i = other.n = 0; change->kind == KVB_CHANGE_REORDER && i < change->n; i++) {
        bool first = true;
        for (uint32_t j = 0; j < other.n; j++)
            first = first && srcs[j] != change->srcs[i];
        dsts[other.n] = change->dsts[i];
        srcs[other.n] = change->srcs[i];
        other.n += first;
    }
    if (change->kind != KVB_CHANGE_REORDER)
        return *change;
    other.dsts = dsts;
    other.srcs = srcs;
    return other;
}

static kvb_change (*reorder_change)(const kvb_change *change);

static int prepare_reordered(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    const kvb_change other = change->kind == KVB_CHANGE_REORDER ? reorder_change(change) : *change;
    return HONEST->prepare(store, &other, feed, plan);
}

static void adopt_reordered(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    const kvb_change other = change->kind == KVB_CHANGE_REORDER ? reorder_change(change) : *change;
    HONEST->adopt(store, &other, feed, plan);
}

/* Groups but that of layer 0 stay as they were, from the second reordering on: the first makes the sequences. */
static void adopt_in_first(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    static uint32_t reorders;
    const bool first = store->pools[0];
    reorders += change->kind == KVB_CHANGE_REORDER && first;
    if (change->kind != KVB_CHANGE_REORDER || first || reorders == 1)
        HONEST->adopt(store, change, feed, plan);
}

static void reordered_as(kvb_cache_type *wrong, kvb_change (*how)(const kvb_change *change))
{
    reorder_change = how;
    wrong->prepare = prepare_reordered;
    wrong->adopt = adopt_reordered;
}

static void reorder_overwrites(kvb_cache_type *wrong)
{
    reordered_as(wrong, one_by_one);
}

static void reorder_once(kvb_cache_type *wrong)
{
    reordered_as(wrong, once_each);
}

static void reorder_first_group(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_in_first;
}

static int prepare_backwards(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    int error = HONEST->prepare(store, change, feed, plan);
    for (size_t i = 0; i < store->n_moves / 2; i++) {
        kvb_move first = store->moves[i];
        store->moves[i] = store->moves[store->n_moves - 1 - i];
        store->moves[store->n_moves - 1 - i] = first;
    }
    return error;
}

static int prepare_and_move(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_run *run;
    int error = HONEST->prepare(store, change, feed, plan);
    if (error || !feed)
        return error;
    uint32_t last = runs_of(plan, plan->n - 1, &run) - 1;
    run += last;
    return run->end - run->begin > plan->n + 1 ? kvb_store_move(store, run->begin + 1, run->begin) : 0;
}

static void changes_refused(kvb_cache_type *wrong)
{
    wrong->prepare = no_change;
}

static void step_refused(kvb_cache_type *wrong)
{
    wrong->prepare = no_twentieth;
}

static void cells_leak(kvb_cache_type *wrong)
{
    wrong->room = room_never_written;
}

static void copy_elsewhere(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_elsewhere;
    wrong->adopt = adopt_elsewhere;
}

static void seen_moved_over(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_and_move;
}

static void moves_backwards(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_backwards;
}

/* ---- removals ---------------------------------------------------------------------------------------------------- */

static kvb_change removal; /* in hand, as the policy is told it */

/* The range is compared with the cells of a sequence's last span, not with positions. */
static kvb_change by_cell(kvb_store *store, const kvb_change *change)
{
    kvb_change other = *change;
    kvb_spans cells = {0};
    if (change->kind == KVB_CHANGE_REMOVE && !change->others && !HONEST->lies(store, change->src, &cells) && cells.n) {
        const uint64_t off = cells.span[cells.n - 1].at - cells.span[cells.n - 1].pos;
        other.p0 = change->p0 > off ? change->p0 - (uint32_t)off : 0;
        other.p1 = change->p1 == KVB_POS_END ? change->p1 : change->p1 > off ? change->p1 - (uint32_t)off : 0;
    }
    kvb_spans_free(&cells, store->allocator);
    return other;
}

static int prepare_by_cell(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    removal = by_cell(store, change);
    return HONEST->prepare(store, &removal, feed, plan);
}

static void adopt_by_cell(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    (void)change;
    HONEST->adopt(store, &removal, feed, plan);
}

static void removal_by_cell(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_by_cell;
    wrong->adopt = adopt_by_cell;
}

static uint32_t longest[KVB_MAX_SEQS]; /* [row] of slab: tokens that have ever been there */

/* Of slab: a cut lowers where a sequence goes on, but not where its single queries end. */
static int prepare_uncut(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    const uint32_t cells = store->options->seq_capacity;
    const int error = HONEST->prepare(store, change, feed, plan);
    for (uint32_t i = 0; !error && change->kind == KVB_CHANGE_STEP && i < feed->n; i++) {
        const uint32_t row = plan->cells[i] / cells, len = plan->cells[i] % cells + 1;
        const bool alone =
            (i == 0 || feed->seqs[i - 1] != feed->seqs[i]) && (i + 1 == feed->n || feed->seqs[i + 1] != feed->seqs[i]);
        kvb_run *last = &plan->runs[plan->row_start[i + 1] - 1];
        longest[row] = longest[row] > len ? longest[row] : len;
        if (alone && last->end < row * cells + longest[row])
            last->end = row * cells + longest[row];
    }
    return error;
}

static void cut_unheard(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_uncut;
}

static int32_t moved_by; /* positions of the sequence that has moved last */
static uint32_t moved_seq;

/* What was at these positions before they moved. */
static kvb_change by_old_positions(const kvb_change *change)
{
    kvb_change other = *change;
    if (change->kind == KVB_CHANGE_REMOVE && !change->others && change->src == moved_seq && change->p1 != KVB_POS_END) {
        other.p0 = change->p0 - (uint32_t)moved_by;
        other.p1 = change->p1 - (uint32_t)moved_by;
    }
    return other;
}

static int prepare_by_old(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    removal = by_old_positions(change);
    return HONEST->prepare(store, &removal, feed, plan);
}

static void adopt_by_old(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    HONEST->adopt(store, &removal, feed, plan);
    if (change->kind == KVB_CHANGE_SHIFT) {
        moved_seq = change->src;
        moved_by = change->delta;
    }
}

static void removal_by_old_positions(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_by_old;
    wrong->adopt = adopt_by_old;
}

/* Of all sequences that are to go the last one stays. */
static void adopt_but_last(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    kvb_account *account = (kvb_account *)(uintptr_t)store->account;
    const uint32_t n = account->n_changed;
    account->n_changed -= change->kind == KVB_CHANGE_REMOVE && change->others && n;
    HONEST->adopt(store, change, feed, plan);
    account->n_changed = n;
}

static void removal_misses_last(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_but_last;
}

const kvb_fault kvb_plan_faults[] = {
    {"sees-one-before",
     "a query sees the cell before its last stretch: a window is one too long, a node sees one that is no ancestor",
     KVB_CHECK_WITNESS,
     "sliding-window seq f32 witness, sink-window window f32 witness, eagle-tree tree f32 witness, "
     "batched-multi-seq slab f32 witness",
     .cache = sees_one_before},
    {"window-short", "a window is one position short", KVB_CHECK_WITNESS,
     "sliding-window seq f32 witness, sliding-window window f32 witness, sink-window window f32 witness",
     .cache = window_short},
    {"sees-from-first-cell", "a query sees what lies before its sequence", KVB_CHECK_WITNESS,
     "batched-multi-seq seq f32 witness, agent-fork slab f32 witness, sliding-window window f32 witness",
     .cache = sees_from_first_cell},
    {"sees-followers", "queries of one prompt see those behind them", KVB_CHECK_WITNESS,
     "plain-decode contiguous f32 witness, agent-fork seq f32 witness, batched-multi-seq recompute f32 witness",
     .cache = sees_followers},
    {"sees-as-query-before", "a query sees what the one before it in the step sees", KVB_CHECK_WITNESS,
     "batched-multi-seq slab f32 witness, plain-decode contiguous f32 witness", .cache = sees_as_query_before},
    {"change-refused", "a copy, removal or commit is refused", KVB_CHECK_PROTOCOL,
     "agent-fork seq f32 witness, batched-multi-seq slab f32 witness, eagle-tree tree f32 witness",
     .cache = changes_refused},
    {"step-refused", "a step is refused that was said to fit", KVB_CHECK_PROTOCOL,
     "plain-decode seq f32 witness, agent-fork slab f32 witness, eagle-tree tree f32 witness", .cache = step_refused},
    {"cells-leak", "cells that are let go of never count as free", KVB_CHECK_PROTOCOL,
     "sink-window window f32 witness, eagle-tree tree f32 witness, spec-batch seq f32 witness", .cache = cells_leak},
    {"copy-elsewhere", "a copy goes to the next sequence", KVB_CHECK_WITNESS,
     "agent-fork seq f32 witness, agent-fork seq f16 witness", .cache = copy_elsewhere},
    {"seen-moved-over", "with a step a row is copied over another that is seen", KVB_CHECK_WITNESS,
     "sliding-window window f32 witness, plain-decode contiguous f32 witness, agent-fork seq f32 witness",
     .cache = seen_moved_over},
    {"moves-backwards", "rows are copied last to first, some over others that are still to be copied",
     KVB_CHECK_WITNESS, "eagle-tree tree f32 witness", .cache = moves_backwards},
    {"reorder-overwritten", "a reordering reads sources that it has overwritten", KVB_CHECK_WITNESS,
     "beam-search seq f32 witness, beam-search paged f32 witness, beam-search slab f32 witness",
     .cache = reorder_overwrites},
    {"reorder-once", "a beam that goes on in two ways goes on in one", KVB_CHECK_WITNESS,
     "beam-search seq f32 witness, beam-search window f32 witness", .cache = reorder_once},
    {"reorder-first-group", "sequences are reordered in the first group of layers only", KVB_CHECK_WITNESS,
     "beam-search seq f32 witness, beam-search paged f32 witness", .cache = reorder_first_group},
    {"removal-by-cell", "what is removed is told by the numbers of cells, not by positions", KVB_CHECK_WITNESS,
     "engine-calls seq f32 witness, shared-prompt seq f32 witness", .cache = removal_by_cell},
    {"cut-unheard", "queries see what lay behind a sequence before it was cut back", KVB_CHECK_WITNESS,
     "agent-fork slab f32 witness", .cache = cut_unheard},
    {"removal-by-old-positions", "what is removed is told by the positions of before the last shift", KVB_CHECK_WITNESS,
     "context-shift seq f32 witness", .cache = removal_by_old_positions},
    {"removal-misses-last", "where all sequences are to go, or all but one, the last one stays", KVB_CHECK_CRASH,
     /* where the sequence begins anew, which an assertion sees */
     "engine-calls seq f32 witness", .cache = removal_misses_last},
    {.name = NULL},
};
