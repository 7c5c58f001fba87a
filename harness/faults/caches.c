/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that plan, move, free or count wrongly. */
#include "harness/faults/fault.h"

#include <errno.h>
#include <string.h>

#define HONEST kvb_fault_honest.cache

static bool brings_tokens(const kvb_change *change)
{
    return change->kind == KVB_CHANGE_STEP || change->kind == KVB_CHANGE_PROPOSE;
}

/* ---- the plan of a step: changed once the honest policy has made it ---------------------------------------------- */

static void (*plan_change)(const kvb_store *store, kvb_plan *plan);

static int prepare(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    int error = HONEST->prepare(store, change, feed, plan);
    if (!error && brings_tokens(change))
        plan_change(store, plan);
    return error;
}

static void plan_changed(kvb_cache_type *wrong, void (*how)(const kvb_store *store, kvb_plan *plan))
{
    plan_change = how;
    wrong->prepare = prepare;
}

static kvb_run *first_run(kvb_plan *plan, uint32_t query)
{
    return &plan->runs[plan->row_start[query]];
}

static kvb_run *last_run(kvb_plan *plan, uint32_t query)
{
    return &plan->runs[plan->row_start[query + 1] - 1];
}

static bool sees(const kvb_plan *plan, uint32_t query)
{
    return plan->row_start[query + 1] > plan->row_start[query];
}

static void own_unseen(const kvb_store *store, kvb_plan *plan)
{
    (void)store;
    for (uint32_t i = 0; i < plan->n; i++)
        if (sees(plan, i) && last_run(plan, i)->end - last_run(plan, i)->begin > 1)
            last_run(plan, i)->end--;
}

static void first_unseen(const kvb_store *store, kvb_plan *plan)
{
    (void)store;
    for (uint32_t i = 0; i < plan->n; i++)
        if (sees(plan, i) && first_run(plan, i)->end - first_run(plan, i)->begin > 1)
            first_run(plan, i)->begin++;
}

static void one_more_seen(const kvb_store *store, kvb_plan *plan)
{
    uint32_t cells, high;
    HONEST->occupied(store, &cells, &high);
    for (uint32_t i = 0; i < plan->n; i++)
        if (sees(plan, i) && last_run(plan, i)->end < high)
            last_run(plan, i)->end++;
}

static void seen_twice(const kvb_store *store, kvb_plan *plan)
{
    (void)store;
    for (uint32_t i = 0; i < plan->n; i++)
        if (sees(plan, i) && first_run(plan, i) != last_run(plan, i))
            *last_run(plan, i) = *first_run(plan, i);
}

static void neighbours_swapped(const kvb_store *store, kvb_plan *plan)
{
    (void)store;
    for (uint32_t i = 0; i + 1 < plan->n; i += 2)
        if (plan->cells[i] != plan->cells[i + 1]) {
            uint32_t kept = plan->cells[i];
            plan->cells[i] = plan->cells[i + 1];
            plan->cells[i + 1] = kept;
        }
}

static void over_first_cell(const kvb_store *store, kvb_plan *plan)
{
    (void)store;
    if (plan->n && plan->cells[plan->n - 1] > 8) /* once there is something to lose */
        plan->cells[0] = 0;
}

static void query_sees_less(kvb_cache_type *wrong)
{
    plan_changed(wrong, own_unseen);
}

static void query_misses_first(kvb_cache_type *wrong)
{
    plan_changed(wrong, first_unseen);
}

static void query_sees_more(kvb_cache_type *wrong)
{
    plan_changed(wrong, one_more_seen);
}

static void query_sees_twice(kvb_cache_type *wrong)
{
    plan_changed(wrong, seen_twice);
}

static void rows_swapped(kvb_cache_type *wrong)
{
    plan_changed(wrong, neighbours_swapped);
}

static void shared_cell_written(kvb_cache_type *wrong)
{
    plan_changed(wrong, over_first_cell);
}

/* ---- pages behind a window --------------------------------------------------------------------------------------- */

static void whole_pages(const kvb_store *store, kvb_plan *plan)
{
    (void)store;
    for (uint32_t i = 0; i < plan->n_rows && plan->page_cells; i++)
        plan->runs[i].begin -= plan->runs[i].begin % plan->page_cells;
}

static void (*limits_change)(kvb_group *group, kvb_cache_options *options);

/* The policy lets go of pages by other limits than its queries see by; an entry that is gone leads to the first page.
 */
static int prepare_by_limits(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    const kvb_group *group = store->group;
    const kvb_cache_options *options = store->options;
    kvb_group wrong = *group;
    kvb_cache_options too = *options;
    limits_change(&wrong, &too);
    store->group = &wrong;
    store->options = &too;
    int error = HONEST->prepare(store, change, feed, plan);
    store->group = group;
    store->options = options;
    for (uint32_t i = 0; !error && plan && plan->page_cells && i < plan->n_rows; i++)
        plan->runs[i].begin = kvb_first_seen(group, plan->runs[i].end - 1);
    for (size_t i = 0; !error && plan && plan->page_cells && i < plan->n_pages; i++)
        plan->pages[i] = plan->pages[i] == UINT32_MAX ? 0 : plan->pages[i];
    if (!error && plan)
        plan->sinks = group->sinks;
    return error;
}

static void early(kvb_group *group, kvb_cache_options *options)
{
    group->window -= group->window > 1;
    options->rollback = 0;
}

static void one_early(kvb_group *group, kvb_cache_options *options)
{
    (void)options;
    group->window -= group->window > 1;
}

static void sinkless(kvb_group *group, kvb_cache_options *options)
{
    (void)options;
    group->sinks = 0;
}

static void window_of_pages(kvb_cache_type *wrong)
{
    plan_changed(wrong, whole_pages);
}

static void page_dropped_early(kvb_cache_type *wrong)
{
    limits_change = early;
    wrong->prepare = prepare_by_limits;
}

static void page_dropped_one_early(kvb_cache_type *wrong)
{
    limits_change = one_early;
    wrong->prepare = prepare_by_limits;
}

static void sinks_page_dropped(kvb_cache_type *wrong)
{
    limits_change = sinkless;
    wrong->prepare = prepare_by_limits;
}

/* ---- other changes: one kind of them does not happen, or only by half ------------------------------------------- */

static kvb_change_kind idle;

static void adopt_but_one(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    if (change->kind != idle && HONEST->adopt)
        HONEST->adopt(store, change, feed, plan);
}

static void copy_forgotten(kvb_cache_type *wrong)
{
    idle = KVB_CHANGE_COPY;
    wrong->adopt = adopt_but_one;
}

static void removal_forgotten(kvb_cache_type *wrong)
{
    idle = KVB_CHANGE_REMOVE;
    wrong->adopt = adopt_but_one;
}

static void step_forgotten(kvb_cache_type *wrong)
{
    idle = KVB_CHANGE_STEP;
    wrong->adopt = adopt_but_one;
}

/* A range that is removed or copied is one position short, or begins one too early. */
static int range_short(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_change less = *change;
    if (!brings_tokens(change) && change->kind != KVB_CHANGE_COMMIT && less.p1 != KVB_POS_END && less.p1 > less.p0 + 1)
        less.p1--;
    return HONEST->prepare(store, &less, feed, plan);
}

static void adopt_short(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    kvb_change less = *change;
    if (!brings_tokens(change) && change->kind != KVB_CHANGE_COMMIT) {
        if (less.p1 == KVB_POS_END)
            less.p0++;
        else if (less.p1 > less.p0 + 1)
            less.p1--;
    }
    HONEST->adopt(store, &less, feed, plan);
}

static void ranges_short(kvb_cache_type *wrong)
{
    wrong->prepare = range_short;
    if (wrong->adopt)
        wrong->adopt = adopt_short;
}

/* ---- rows that are moved ----------------------------------------------------------------------------------------- */

static void (*moves_change)(kvb_store *store);

static int prepare_moves(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    int error = HONEST->prepare(store, change, feed, plan);
    if (!error && store->n_moves)
        moves_change(store);
    return error;
}

static void no_moves(kvb_store *store)
{
    store->n_moves = 0;
}

static void one_move_less(kvb_store *store)
{
    store->n_moves--;
}

static void moves_one_off(kvb_store *store)
{
    for (size_t i = 0; i < store->n_moves; i++)
        store->moves[i].from += store->moves[i].from > 0 ? -1u : 0;
}

static void moves_forgotten(kvb_cache_type *wrong)
{
    moves_change = no_moves;
    wrong->prepare = prepare_moves;
}

static void last_move_forgotten(kvb_cache_type *wrong)
{
    moves_change = one_move_less;
    wrong->prepare = prepare_moves;
}

static void moves_from_beside(kvb_cache_type *wrong)
{
    moves_change = moves_one_off;
    wrong->prepare = prepare_moves;
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

static uint32_t room_none(const kvb_store *store, const kvb_change *change)
{
    (void)store;
    (void)change;
    return 0;
}

static void room_denied(kvb_cache_type *wrong)
{
    wrong->room = room_none;
}

/* Any step fits, which then is refused after all, or taken. */
static uint32_t room_all(const kvb_store *store, const kvb_change *change)
{
    (void)store;
    (void)change;
    return UINT32_MAX;
}

static int prepare_when_full(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    uint32_t cells, high;
    HONEST->occupied(store, &cells, &high);
    if (brings_tokens(change) && change->n > store->options->capacity - cells)
        return kvb_store_fail(store, -ENOMEM, "no memory");
    return HONEST->prepare(store, change, feed, plan);
}

static void room_refused_as_memory(kvb_cache_type *wrong)
{
    wrong->room = room_all;
    wrong->prepare = prepare_when_full;
}

/* The last cell counts as two. */
static uint32_t room_one_more(const kvb_store *store, const kvb_change *change)
{
    uint32_t cells, high;
    (void)change;
    HONEST->occupied(store, &cells, &high);
    return store->options->capacity - cells + 1;
}

static uint64_t one_cell_more(const kvb_store *store)
{
    return store->options->capacity + 1;
}

static void capacity_exceeded(kvb_cache_type *wrong)
{
    wrong->room = room_one_more;
    wrong->pool_cells = one_cell_more;
}

static uint32_t room_that_counts(const kvb_store *store, const kvb_change *change)
{
    uint32_t cells, high;
    HONEST->occupied(store, &cells, &high);
    ((kvb_store *)(uintptr_t)store)->cells_moved += change->n > store->options->capacity - cells;
    return store->options->capacity - cells;
}

static void refusal_counted(kvb_cache_type *wrong)
{
    wrong->room = room_that_counts;
}

static uint64_t few_cells(const kvb_store *store)
{
    return store->options->capacity / 2;
}

static void pools_too_small(kvb_cache_type *wrong)
{
    wrong->pool_cells = few_cells;
}

const kvb_fault kvb_cache_faults[] = {
    {"sees-not-itself", "a query does not see its own token", KVB_CHECK_WITNESS,
     "plain-decode contiguous f32 witness, agent-fork seq f32 witness, eagle-tree tree f32 witness, "
     "sink-window window f32 witness",
     .cache = query_sees_less},
    {"sees-not-first", "a query does not see the first token of its sequence", KVB_CHECK_WITNESS,
     "plain-decode contiguous f32 witness, agent-fork seq f32 witness, agent-fork slab f32 witness, "
     "eagle-tree tree f32 witness",
     .cache = query_misses_first},
    {"sees-one-more", "a query sees the cell behind its last", KVB_CHECK_WITNESS,
     "agent-fork seq f32 witness, batched-multi-seq slab f32 witness, eagle-tree tree f32 witness",
     .cache = query_sees_more},
    {"sees-twice", "a query sees a stretch of cells twice", KVB_CHECK_WITNESS,
     "agent-fork seq f32 witness, batched-multi-seq seq f32 witness", .cache = query_sees_twice},
    {"rows-swapped", "rows of two new tokens lie in each other's cell", KVB_CHECK_WITNESS,
     "batched-multi-seq seq f32 witness, batched-multi-seq slab f32 witness", .cache = rows_swapped},
    {"shared-written", "a new row is written over the first one", KVB_CHECK_WITNESS,
     "plain-decode contiguous f32 witness, batched-multi-seq slab f32 witness", .cache = shared_cell_written},
    {"fork-forgotten", "a fork holds nothing", KVB_CHECK_WITNESS,
     "agent-fork seq f32 witness, parallel-sample seq f32 witness", .cache = copy_forgotten},
    {"removal-forgotten", "what is removed stays", KVB_CHECK_CRASH, "agent-fork seq f32 witness",
     .cache = removal_forgotten},
    {"step-forgotten", "a step's cells are not held", KVB_CHECK_WITNESS, "agent-fork seq f32 witness",
     .cache = step_forgotten},
    {"ranges-short", "a range that is copied or removed is one position short", KVB_CHECK_WITNESS,
     "agent-fork seq f32 witness, agent-fork slab f32 witness", .cache = ranges_short},
    {"moves-forgotten", "rows that are to be copied are not", KVB_CHECK_WITNESS,
     "agent-fork slab f32 witness, eagle-tree tree f32 witness", .cache = moves_forgotten},
    {"last-move-forgotten", "the last row that is to be copied is not", KVB_CHECK_WITNESS,
     "agent-fork slab f32 witness, eagle-tree tree f32 witness", .cache = last_move_forgotten},
    {"moves-from-beside", "rows are copied from the cell beside", KVB_CHECK_WITNESS,
     "agent-fork slab f32 witness, eagle-tree tree f32 witness", .cache = moves_from_beside},
    {"room-denied", "no step fits", KVB_CHECK_PROTOCOL, "plain-decode seq f32 witness, eagle-tree tree f32 witness",
     .cache = room_denied},
    {"capacity-exceeded", "one cell more than the capacity is taken", KVB_CHECK_PROTOCOL,
     "full-cache contiguous f32 witness, full-cache seq f32 witness, full-cache tree f32 witness",
     .cache = capacity_exceeded},
    {"refused-as-memory", "a step that passes the capacity is refused as if memory were short", KVB_CHECK_PROTOCOL,
     "full-cache contiguous f32 witness, full-cache seq f32 witness", .cache = room_refused_as_memory},
    {"refusal-changes", "a step that is refused is counted", KVB_CHECK_PROTOCOL,
     "full-cache contiguous f32 witness, full-cache seq f32 witness", .cache = refusal_counted},
    {"pools-too-small", "pools hold half of the cells", KVB_CHECK_PROTOCOL, "plain-decode seq f32 witness",
     .cache = pools_too_small},
    {"sees-not-first-kivi", "a query over pools with residual cells does not see the first token", KVB_CHECK_STORED,
     "agent-fork-8x128 seq kivi4 flash", .cache = query_misses_first},
    {"window-of-pages", "a query sees the whole page that its window begins in", KVB_CHECK_WITNESS,
     "sliding-window paged f32 witness, sink-window paged f32 witness", .cache = window_of_pages},
    {"page-dropped-early", "a page is dropped one position before its last one leaves the window", KVB_CHECK_WITNESS,
     "sliding-window paged f32 witness, sink-window paged f32 witness", .cache = page_dropped_early},
    {"page-dropped-one-early", "a page is dropped one position before its last one leaves the window and the rollback",
     KVB_CHECK_WITNESS, "window-edge paged f32 witness", .cache = page_dropped_one_early},
    {"sinks-page-dropped", "the page of the first tokens is dropped with those behind it", KVB_CHECK_WITNESS,
     "sink-window paged f32 witness, sink-window-8x128 paged f32 witness", .cache = sinks_page_dropped},
    {.name = NULL},
};
