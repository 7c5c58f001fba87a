/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that plan, move, free, count, turn, save or refuse wrongly, under any policy. */
#include "harness/faults/fault.h"

#include <errno.h>
#include <string.h>

/* Combinations that many faults are planted in. */
#define DECODES "plain-decode contiguous f32 witness"
#define BATCHES "batched-multi-seq slab f32 witness"
#define FORKS   "agent-fork seq f32 witness"
#define SLABS   "agent-fork slab f32 witness"
#define TREES   "eagle-tree tree f32 witness"
#define SHIFTS  "context-shift seq f32 flash"

#define HONEST   kvb_fault_here.cache
#define OF(kind) (UINT32_C(1) << KVB_CHANGE_##kind)
#define BRINGS   (OF(STEP) | OF(PROPOSE)) /* changes that bring tokens */

/* ---- the plan of a step ------------------------------------------------------------------------------------------ */

/* The last run of a query; NULL: it has none, or reads pages. */
static kvb_run *last_of(const kvb_plan *plan, uint32_t query)
{
    const uint32_t end = plan->row_start[query + 1];
    return end > plan->row_start[query] ? &plan->runs[end - 1] : NULL;
}

KVB_HOOK(own_unseen, const kvb_fault_query *q, q->last->end -= q->last->end - q->last->begin > 1)
KVB_HOOK(first_unseen, const kvb_fault_query *q, q->runs->begin += q->runs->end - q->runs->begin > 1)

static void one_more_seen(const kvb_fault_query *q)
{
    uint32_t cells, high;
    HONEST->occupied(q->call->store, &cells, &high);
    q->last->end += q->last->end < high;
}

KVB_HOOK(seen_twice, const kvb_fault_query *q, *q->last = *q->runs)
KVB_HOOK(one_before_seen, const kvb_fault_query *q, q->last->begin -= q->last->begin > (q->n > 1 ? q->last[-1].end : 0))
KVB_HOOK(window_short, const kvb_fault_query *q,
         q->last->begin += kvb_group_limits(q->call->store->group) && q->last->end - q->last->begin > 1)
KVB_HOOK(from_first_cell, const kvb_fault_query *q, q->runs->begin = 0)

static void followers_seen(const kvb_fault_query *q)
{
    const kvb_run *end = last_of(q->call->plan, q->call->plan->n - 1);
    if (end && q->last->begin == end->begin) /* of the same sequence */
        q->last->end = end->end;
}

static void as_query_before(const kvb_fault_query *q)
{
    const kvb_plan *plan = q->call->plan;
    const kvb_run *before = q->number ? last_of(plan, q->number - 1) : NULL;
    if (q->n == 1 && before && before == &plan->runs[plan->row_start[q->number - 1]])
        *q->runs = *before;
}

static void neighbours_swapped(kvb_fault_call *c)
{
    uint32_t *cells = c->plan->cells;
    for (uint32_t i = 0; i + 1 < c->plan->n; i += 2) {
        const uint32_t kept = cells[i];
        cells[i] = cells[i + 1];
        cells[i + 1] = kept;
    }
}

KVB_HOOK(short_as_full, kvb_fault_call *c, c->error = -ENOSPC)

/* Once both cells hold rows. */
static void short_moves(kvb_fault_call *c)
{
    const uint32_t from = 1;
    uint32_t cells, high;
    HONEST->occupied(c->store, &cells, &high);
    for (size_t i = 0; i < c->store->n_pools && cells > 1; i++)
        if (c->store->pools[i])
            c->store->pools[i]->type->gather_into(c->store->pools[i], 0, &from, 1);
}

KVB_HOOK(memory_kept, kvb_fault_call *c, kvb_realloc(c->store->allocator, NULL, 0, 64))

/* Asks for memory, and refuses the change as if the cache were full if there is none. */
static void memory_or_full(kvb_fault_call *c)
{
    void *block = kvb_alloc(c->store->allocator, 64);
    c->error = block ? 0 : -ENOSPC;
    kvb_free(c->store->allocator, block, 64);
}

/* The first step gives back what open() has taken; an open() that fails later does not. */
static void *taken;
KVB_HOOK_IF(open_takes, kvb_store *store, !taken, taken = kvb_realloc(store->allocator, NULL, 0, 64))
KVB_HOOK(step_gives, kvb_fault_call *c, taken = kvb_realloc(c->store->allocator, taken, taken ? 64 : 0, 0))

/* Once rows are there to be lost. */
KVB_HOOK_IF(over_first_cell, kvb_fault_call *c, c->plan->n && c->plan->cells[c->plan->n - 1] > 8, c->plan->cells[0] = 0)

/* In slab a cut lowers the place where a sequence continues, but not the end of its single queries' runs. */
static void cut_unheard(kvb_fault_call *c)
{
    static uint32_t longest[KVB_MAX_SEQS]; /* [row] tokens that have ever been there */
    const kvb_feed *feed = c->feed;
    const uint32_t cells = c->store->options->seq_capacity;
    for (uint32_t i = 0; i < feed->n; i++) {
        const uint32_t row = c->plan->cells[i] / cells, len = c->plan->cells[i] % cells + 1;
        const bool alone =
            (i == 0 || feed->seqs[i - 1] != feed->seqs[i]) && (i + 1 == feed->n || feed->seqs[i + 1] != feed->seqs[i]);
        kvb_run *last = &c->plan->runs[c->plan->row_start[i + 1] - 1];
        longest[row] = longest[row] > len ? longest[row] : len;
        if (alone && last->end < row * cells + longest[row])
            last->end = row * cells + longest[row];
    }
}

/* ---- pages behind a window --------------------------------------------------------------------------------------- */

KVB_HOOK_EACH(whole_pages, kvb_fault_call *c, c->plan->page_cells ? c->plan->n_rows : 0,
              c->plan->runs[i].begin -= c->plan->runs[i].begin % c->plan->page_cells)

/* The policy frees pages by other limits than its queries' masks. */
static kvb_group limits;
static kvb_cache_options rollback;

static void limits_take(kvb_fault_call *c)
{
    limits = *c->store->group;
    rollback = *c->store->options;
    c->store->group = &limits;
    c->store->options = &rollback;
}

static void one_early(kvb_fault_call *c)
{
    limits_take(c);
    limits.window -= limits.window > 1;
}

static void early(kvb_fault_call *c)
{
    one_early(c);
    rollback.rollback = 0;
}

static void sinkless(kvb_fault_call *c)
{
    limits_take(c);
    limits.sinks = 0;
}

/* Masks follow the group's limits again; an entry of a freed page leads to page 0. */
static void pages_seen(kvb_fault_call *c)
{
    for (uint32_t i = 0; c->plan && c->plan->page_cells && i < c->plan->n_rows; i++)
        c->plan->runs[i].begin = kvb_first_seen(c->store->group, c->plan->runs[i].end - 1);
    for (size_t i = 0; c->plan && c->plan->page_cells && i < c->plan->n_pages; i++)
        c->plan->pages[i] = c->plan->pages[i] == UINT32_MAX ? 0 : c->plan->pages[i];
    if (c->plan)
        c->plan->sinks = c->store->group->sinks;
}

/* ---- changes that do not happen, or are refused ------------------------------------------------------------------ */

KVB_HOOK(skip, kvb_fault_call *c, c->skips = true)
KVB_HOOK(refuse, kvb_fault_call *c,
         c->error = kvb_store_fail(c->store, -ENOSPC, "no room for a change of kind %d", (int)c->change->kind))

static void refuse_twentieth(kvb_fault_call *c)
{
    static uint32_t steps;
    if (++steps == 20)
        refuse(c);
}

static void refuse_as_memory(kvb_fault_call *c)
{
    uint32_t cells, high;
    HONEST->occupied(c->store, &cells, &high);
    if (c->change->n > c->store->options->capacity - cells)
        c->error = kvb_store_fail(c->store, -ENOMEM, "no memory");
}

/* From the second reordering on, only the group of layer 0 is reordered. The first reordering makes the sequences. */
static void skip_second_group(kvb_fault_call *c)
{
    static uint32_t reorders;
    const bool first = c->store->pools[0];
    reorders += first;
    c->skips = !first && reorders > 1;
}

/* ---- changes that are mistaken for others ------------------------------------------------------------------------ */

KVB_HOOK(copy_elsewhere, kvb_fault_call *c, c->given.dst = (c->given.dst + 1) % KVB_MAX_SEQS)

/* A removed or copied range ends one position too early, or begins one too late. */
KVB_HOOK(range_short, kvb_fault_call *c, c->given.p1 -= c->given.p1 != KVB_POS_END && c->given.p1 > c->given.p0 + 1)
KVB_HOOK(range_late, kvb_fault_call *c, c->given.p0 += c->given.p1 == KVB_POS_END)

/* The range of a removal is compared with the cells of the sequence's last span, not with positions. */
static void removal_by_cell(kvb_fault_call *c)
{
    kvb_spans cells = {0};
    if (!c->given.others && !HONEST->lies(c->store, c->given.src, &cells) && cells.n) {
        const uint64_t off = cells.span[cells.n - 1].at - cells.span[cells.n - 1].pos;
        c->given.p0 = c->given.p0 > off ? c->given.p0 - (uint32_t)off : 0;
        c->given.p1 = c->given.p1 == KVB_POS_END ? c->given.p1 : c->given.p1 > off ? c->given.p1 - (uint32_t)off : 0;
    }
    kvb_spans_free(&cells, c->store->allocator);
}

/* A removal takes the tokens that had its positions before the last shift of the sequence. */
static int32_t moved_by;
static uint32_t moved_seq;

static void removal_by_old_positions(kvb_fault_call *c)
{
    if (c->given.kind == KVB_CHANGE_REMOVE && !c->given.others && c->given.src == moved_seq &&
        c->given.p1 != KVB_POS_END) {
        c->given.p0 -= (uint32_t)moved_by;
        c->given.p1 -= (uint32_t)moved_by;
    }
}

static void shift_note(kvb_fault_call *c)
{
    moved_seq = c->change->kind == KVB_CHANGE_SHIFT ? c->change->src : moved_seq;
    moved_by = c->change->kind == KVB_CHANGE_SHIFT ? c->change->delta : moved_by;
}

/* The last of several sequences to be removed stays. */
static uint32_t n_going;

static void removal_misses_last(kvb_fault_call *c)
{
    kvb_account *account = (kvb_account *)(uintptr_t)c->store->account;
    n_going = account->n_changed;
    account->n_changed -= c->change->others && n_going;
}

KVB_HOOK(going_put_back, kvb_fault_call *c, ((kvb_account *)(uintptr_t)c->store->account)->n_changed = n_going)

static uint32_t given_dsts[KVB_MAX_SEQS], given_srcs[KVB_MAX_SEQS];

/* Replaces one sequence after the other: a source may have been overwritten before. */
static void reorder_one_by_one(kvb_fault_call *c)
{
    for (uint32_t i = 0; i < c->given.n; i++) {
        given_srcs[i] = c->change->srcs[i];
        for (uint32_t j = 0; j < i; j++)
            if (c->change->dsts[j] == c->change->srcs[i])
                given_srcs[i] = given_srcs[j];
    }
    c->given.srcs = given_srcs;
}

/* A source of several destinations goes to the first one; the others keep their tokens. */
static void reorder_once_each(kvb_fault_call *c)
{
    for (uint32_t i = c->given.n = 0; i < c->change->n; i++) {
        bool first = true;
        for (uint32_t j = 0; j < c->given.n; j++)
            first = first && given_srcs[j] != c->change->srcs[i];
        given_dsts[c->given.n] = c->change->dsts[i];
        given_srcs[c->given.n] = c->change->srcs[i];
        c->given.n += first;
    }
    c->given.dsts = given_dsts;
    c->given.srcs = given_srcs;
}

/* Commits the first nodes, as many as were accepted: right for a chain. */
static void commit_first_nodes(kvb_fault_call *c)
{
    for (uint32_t i = 0; i < c->given.n; i++)
        given_srcs[i] = i;
    c->given.accepted = given_srcs;
}

/* Commits the next node in place of the last accepted one, if there is one. */
static void commit_sibling(kvb_fault_call *c)
{
    const uint32_t n = c->given.n;
    memcpy(given_srcs, c->given.accepted, n * sizeof *given_srcs);
    if (n)
        given_srcs[n - 1] += given_srcs[n - 1] + 1 < c->store->account->pending[c->given.src];
    c->given.accepted = given_srcs;
}

/* Commits the nodes with the same numbers of another sequence with as many nodes. */
static void commit_elsewhere(kvb_fault_call *c)
{
    const kvb_account *a = c->store->account;
    for (uint32_t i = 0; i < a->n_nodes && c->given.src == c->change->src; i++)
        if (a->pending[a->node[i].seq] == a->pending[c->change->src])
            c->given.src = a->node[i].seq;
}

/* ---- rows that are moved ----------------------------------------------------------------------------------------- */

KVB_HOOK(no_moves, kvb_fault_call *c, c->store->n_moves = 0)
KVB_HOOK(last_move_lost, kvb_fault_call *c, c->store->n_moves -= c->store->n_moves > 0)
KVB_HOOK_EACH(moves_from_beside, kvb_fault_call *c, c->store->n_moves,
              c->store->moves[i].from -= c->store->moves[i].from > 0)

static void moves_backwards(kvb_fault_call *c)
{
    kvb_move *moves = c->store->moves;
    for (size_t i = 0, j = c->store->n_moves; i + 1 < j; i++) {
        const kvb_move kept = moves[i];
        moves[i] = moves[--j];
        moves[j] = kept;
    }
}

static void move_over_seen(kvb_fault_call *c)
{
    const kvb_run *last = last_of(c->plan, c->plan->n - 1);
    if (last && last->end - last->begin > c->plan->n + 1)
        c->error = kvb_store_move(c->store, last->begin + 1, last->begin);
}

/* Layer 0 belongs to another group. */
KVB_HOOK_IF(load_first_group, kvb_fault_call *c, !c->store->pools[0], no_moves(c))

/* ---- rows that are turned ---------------------------------------------------------------------------------------- */

/* by: a factor for the distance by which each row is turned. */
KVB_HOOK_EACH(turns_times, kvb_fault_call *c, c->store->n_turns, c->store->turns[i].delta *= (int32_t)kvb_fault_here.by)

KVB_HOOK_EACH(turns_further, kvb_fault_call *c, c->store->n_turns, c->store->turns[i].delta++)
KVB_HOOK_IF(last_unturned, kvb_fault_call *c, c->store->n_turns, c->store->turns[c->store->n_turns - 1].delta = 0)
KVB_HOOK_IF(group_unturned, kvb_fault_call *c, !c->store->group->window, turns_times(c))

/* Rows that were copied for the shifted sequence are turned in their old cells, too. */
static void shared_turned(kvb_fault_call *c)
{
    for (size_t i = 0; i < c->store->n_moves && !c->error; i++)
        c->error = kvb_store_turn(c->store, c->store->moves[i].from, c->store->turns[0].delta);
}

/* A division turns all rows by the first one's distance, as a shift does. */
KVB_HOOK_EACH(divided_alike, kvb_fault_call *c, c->store->n_turns, c->store->turns[i].delta = c->store->turns[0].delta)

KVB_HOOK_EACH(pending_overwritten, kvb_fault_call *c, c->store->n_turns,
              c->store->pending[c->store->turns[i].cell] = c->store->turns[i].delta)
KVB_HOOK_EACH(pending_left, kvb_fault_call *c, c->store->turns_pending ? c->store->n_moves : 0,
              c->store->pending[c->store->moves[i].to] = 0)

/* From the first shift on, rope's base is `by` times as large; 0: rope turns the other pairs of channels; below 0: rope is
 * the usual one. */
static void rope_changed(kvb_fault_call *c)
{
    static kvb_group groups[KVB_MODEL_GROUPS];
    static uint32_t n;
    for (uint32_t i = 0; i < n; i++)
        if (c->store->group == &groups[i])
            return;
    groups[n] = *c->store->group;
    if (kvb_fault_here.by > 0)
        groups[n].rope.base *= kvb_fault_here.by;
    else if (kvb_fault_here.by < 0)
        groups[n].rope = kvb_rope_usual(c->store->group);
    else
        groups[n].rope.neighbours = !groups[n].rope.neighbours;
    c->store->group = &groups[n++];
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

KVB_HOOK_OF(uint32_t, room_fixed, (const kvb_fault_call *c, uint32_t left), (uint32_t)kvb_fault_here.by)

/* One cell more than there is. */
KVB_HOOK_OF(uint32_t, room_one_more, (const kvb_fault_call *c, uint32_t left), left + 1)

static uint32_t room_counted(const kvb_fault_call *c, uint32_t left)
{
    c->store->cells_moved += c->change->n > left;
    return left;
}

static uint32_t room_never_written(const kvb_fault_call *c, uint32_t left)
{
    return c->store->cells_written < c->store->pool_cells ? c->store->pool_cells - (uint32_t)c->store->cells_written
                                                          : 0;
}

/* After clear() there is no room. */
static bool cleared;
KVB_HOOK(clear_seen, kvb_fault_call *c, cleared |= c->change->drops_nodes)
KVB_HOOK_OF(uint32_t, none_after_clear, (const kvb_fault_call *c, uint32_t left), cleared ? 0 : left)

KVB_HOOK_OF(uint64_t, one_cell_more, (uint32_t capacity), capacity + 1)
KVB_HOOK_OF(uint64_t, half_the_cells, (uint32_t capacity), capacity / 2)

/* ---- saving ------------------------------------------------------------------------------------------------------ */

static int lies_short(kvb_store *store, kvb_spans *cells)
{
    const kvb_span *last = &cells->span[cells->n - 1];
    kvb_spans_cut(cells, last->pos + last->n - 1, KVB_POS_END);
    return 0;
}

/* llama.cpp 5840: as many rows are saved as are in use, from the first cell on. */
static int lies_ahead(kvb_store *store, kvb_spans *cells)
{
    uint32_t used, high_water, i = 0;
    store->type->occupied(store, &used, &high_water);
    while (i < cells->n) {
        const kvb_span s = cells->span[i];
        if (s.at + s.n > used)
            kvb_spans_cut(cells, s.at < used ? s.pos + used - (uint32_t)s.at : s.pos, s.pos + s.n);
        i += s.at + s.n <= used || s.at < used;
    }
    return 0;
}

/* Saves the first span as a ring that begins one cell later. */
static int lies_turned(kvb_store *store, kvb_spans *cells)
{
    const int error = kvb_spans_reserve(cells, store->allocator, 1);
    kvb_span *first = cells->span;
    if (!error && first->n > 1) {
        memmove(first + 2, first + 1, (cells->n++ - 1) * sizeof *first);
        first[1] = (kvb_span){first->at, first->pos + first->n - 1, 1};
        first->at++;
        first->n--;
    }
    return error;
}

const kvb_fault kvb_cache_faults[] = {
    {"sees-not-itself", "a query does not see its own token", KVB_CHECK_WITNESS,
     DECODES ", " FORKS ", " TREES ", sink-window window f32 witness", .cache.query = own_unseen},
    {"sees-not-first", "a query does not see the first token of its sequence", KVB_CHECK_WITNESS,
     DECODES ", " FORKS ", " SLABS ", " TREES, .cache.query = first_unseen},
    {"sees-one-more", "a query sees the cell behind its last", KVB_CHECK_WITNESS,
     FORKS ", batched-multi-seq slab f32 witness, " TREES, .cache.query = one_more_seen},
    {"sees-twice", "a query sees a stretch of cells twice", KVB_CHECK_WITNESS,
     FORKS ", batched-multi-seq seq f32 witness", .cache.query = seen_twice},
    {"rows-swapped", "rows of two new tokens lie in each other's cell", KVB_CHECK_WITNESS,
     "batched-multi-seq seq f32 witness, " BATCHES, .cache.of = BRINGS, .cache.prepared = neighbours_swapped},
    {"shared-written", "a new row is written over the first one", KVB_CHECK_WITNESS, DECODES ", " BATCHES,
     .cache.of = BRINGS, .cache.prepared = over_first_cell},
    {"fork-forgotten", "a fork holds nothing", KVB_CHECK_WITNESS, FORKS ", parallel-sample seq f32 witness",
     .cache.of = OF(COPY), .cache.adopting = skip},
    {"removal-forgotten", "what is removed stays", KVB_CHECK_CRASH, FORKS, .cache.of = OF(REMOVE),
     .cache.adopting = skip},
    {"step-forgotten", "a step's cells are not held", KVB_CHECK_WITNESS, FORKS, .cache.of = OF(STEP),
     .cache.adopting = skip},
    {"ranges-short", "a range that is copied or removed is one position short", KVB_CHECK_WITNESS, FORKS ", " SLABS,
     .cache.of = ~(BRINGS | OF(COMMIT)), .cache.preparing = range_short, .cache.adopting = range_late},
    {"moves-forgotten", "rows that are to be copied are not", KVB_CHECK_WITNESS, SLABS ", " TREES,
     .cache.prepared = no_moves},
    {"last-move-forgotten", "the last row that is to be copied is not", KVB_CHECK_WITNESS, SLABS ", " TREES,
     .cache.prepared = last_move_lost},
    {"moves-from-beside", "rows are copied from the cell beside", KVB_CHECK_WITNESS, SLABS ", " TREES,
     .cache.prepared = moves_from_beside},
    {"room-denied", "no step fits", KVB_CHECK_PROTOCOL, "plain-decode seq f32 witness, " TREES, .by = 0,
     .cache.room = room_fixed},
    {"capacity-exceeded", "one cell more than the capacity is taken", KVB_CHECK_PROTOCOL,
     "full-cache contiguous f32 witness, full-cache seq f32 witness, full-cache tree f32 witness",
     .cache.room = room_one_more, .cache.pool_cells = one_cell_more},
    {"refused-as-memory", "a step that passes the capacity is refused as if memory were short", KVB_CHECK_PROTOCOL,
     "full-cache contiguous f32 witness, full-cache seq f32 witness", .by = UINT32_MAX, .cache.of = BRINGS,
     .cache.preparing = refuse_as_memory, .cache.room = room_fixed},
    {"refusal-changes", "a step that is refused is counted", KVB_CHECK_PROTOCOL,
     "full-cache contiguous f32 witness, full-cache seq f32 witness", .cache.room = room_counted},
    {"pools-too-small", "pools hold half of the cells", KVB_CHECK_PROTOCOL, "plain-decode seq f32 witness",
     .cache.pool_cells = half_the_cells},
    {"sees-not-first-kivi", "a query over pools with residual cells does not see the first token", KVB_CHECK_STORED,
     "batched-multi-seq-2x128 seq kivi4 flash", .cache.query = first_unseen},
    {"window-of-pages", "a query sees the whole page that its window begins in", KVB_CHECK_WITNESS,
     "sliding-window paged f32 witness, sink-window paged f32 witness", .cache.of = BRINGS,
     .cache.prepared = whole_pages},
    {"page-dropped-early", "a page is dropped one position before its last one leaves the window", KVB_CHECK_WITNESS,
     "sliding-window paged f32 witness, sink-window paged f32 witness", .cache.preparing = early,
     .cache.prepared = pages_seen},
    {"page-dropped-one-early", "a page is dropped one position before its last one leaves the window and the rollback",
     KVB_CHECK_WITNESS, "window-edge paged f32 witness", .cache.preparing = one_early, .cache.prepared = pages_seen},
    {"sinks-page-dropped", "the page of the first tokens is dropped with those behind it", KVB_CHECK_WITNESS,
     "sink-window paged f32 witness, sink-window-8x128 paged f32 witness", .cache.preparing = sinkless,
     .cache.prepared = pages_seen},
    {"sees-one-before",
     "a query sees the cell before its last stretch: a window is one too long, a node sees one that is no ancestor",
     KVB_CHECK_WITNESS,
     "sliding-window seq f32 witness, sink-window window f32 witness, " TREES ", batched-multi-seq slab f32 witness",
     .cache.query = one_before_seen},
    {"window-short", "a window is one position short", KVB_CHECK_WITNESS,
     "sliding-window seq f32 witness, sliding-window window f32 witness, sink-window window f32 witness",
     .cache.query = window_short},
    {"sees-from-first-cell", "a query sees what lies before its sequence", KVB_CHECK_WITNESS,
     "batched-multi-seq seq f32 witness, " SLABS ", sliding-window window f32 witness", .cache.query = from_first_cell},
    {"sees-followers", "queries of one prompt see those behind them", KVB_CHECK_WITNESS,
     DECODES ", " FORKS ", batched-multi-seq recompute f32 witness", .cache.query = followers_seen},
    {"sees-as-query-before", "a query sees what the one before it in the step sees", KVB_CHECK_WITNESS,
     BATCHES ", " DECODES, .cache.query = as_query_before},
    {"change-refused", "a copy, removal or commit is refused", KVB_CHECK_PROTOCOL,
     FORKS ", batched-multi-seq slab f32 witness, " TREES, .cache.of = ~BRINGS, .cache.preparing = refuse},
    {"step-refused", "a step is refused that was said to fit", KVB_CHECK_PROTOCOL,
     "plain-decode seq f32 witness, " SLABS ", " TREES, .cache.of = BRINGS, .cache.preparing = refuse_twentieth},
    {"cells-leak", "cells that were freed never count as free", KVB_CHECK_PROTOCOL,
     "sink-window window f32 witness, " TREES ", spec-batch seq f32 witness", .cache.room = room_never_written},
    {"clear-fills", "after clear() there is no room", KVB_CHECK_PROTOCOL,
     "plain-decode contiguous f32 witness, agent-fork slab f32 witness", .cache.adopted = clear_seen,
     .cache.room = none_after_clear},
    {"memory-kept", "each step takes memory that close() leaves", KVB_CHECK_PROTOCOL, DECODES ", " FORKS,
     .cache.of = OF(STEP), .cache.prepared = memory_kept},
    {"open-leaves", "an open() that lacks memory leaves what it has taken", KVB_CHECK_PROTOCOL, DECODES ", " FORKS,
     .cache.opened = open_takes, .cache.prepared = step_gives},
    {"match-as-full", "a prompt that lacks memory is refused as if the cache were full", KVB_CHECK_PROTOCOL,
     "prefix-reuse paged-prefix f32 witness", .cache.of = OF(MATCH), .cache.preparing = memory_or_full},
    {"short-as-full", "a step that lacks memory is refused as if the cache were full", KVB_CHECK_PROTOCOL,
     DECODES ", " FORKS ", batched-multi-seq paged f32 witness", .cache.failed = short_as_full},
    {"short-moves", "a step that lacks memory copies a row over another", KVB_CHECK_WITNESS, FORKS,
     .cache.failed = short_moves},
    {"undo-forgotten", "a group of layers keeps its part of a step for which another lacks memory", KVB_CHECK_PROTOCOL,
     "sliding-window paged f32 witness", .cache.no_undo = true},
    {"copy-elsewhere", "a copy goes to the next sequence", KVB_CHECK_WITNESS, FORKS ", agent-fork seq f16 witness",
     .cache.of = OF(COPY), .cache.preparing = copy_elsewhere},
    {"seen-moved-over", "with a step a row is copied over another that is seen", KVB_CHECK_WITNESS,
     "sliding-window window f32 witness, " DECODES ", " FORKS, .cache.of = BRINGS, .cache.prepared = move_over_seen},
    {"moves-backwards", "rows are copied last to first, some over others that are still to be copied",
     KVB_CHECK_WITNESS, TREES, .cache.prepared = moves_backwards},
    {"reorder-overwritten", "a reordering reads sources that it has overwritten", KVB_CHECK_WITNESS,
     "beam-search seq f32 witness, beam-search paged f32 witness, beam-search slab f32 witness",
     .cache.of = OF(REORDER), .cache.preparing = reorder_one_by_one},
    {"reorder-once", "a beam that goes on in two ways goes on in one", KVB_CHECK_WITNESS,
     "beam-search seq f32 witness, beam-search window f32 witness", .cache.of = OF(REORDER),
     .cache.preparing = reorder_once_each},
    {"reorder-first-group", "sequences are reordered in the first group of layers only", KVB_CHECK_WITNESS,
     "beam-search seq f32 witness, beam-search paged f32 witness", .cache.of = OF(REORDER),
     .cache.adopting = skip_second_group},
    {"removal-by-cell", "the range of a removal is taken for numbers of cells, not positions", KVB_CHECK_WITNESS,
     "engine-calls seq f32 witness, shared-prompt seq f32 witness", .cache.of = OF(REMOVE),
     .cache.preparing = removal_by_cell},
    {"cut-unheard", "queries see what lay behind a sequence before it was cut back", KVB_CHECK_WITNESS, SLABS,
     .cache.of = OF(STEP), .cache.prepared = cut_unheard},
    {"removal-by-old-positions", "a removal takes what lay at its positions before the last shift", KVB_CHECK_WITNESS,
     "context-shift seq f32 witness", .cache.preparing = removal_by_old_positions, .cache.adopted = shift_note},
    {"removal-misses-last", "where all sequences are to go, or all but one, the last one stays", KVB_CHECK_CRASH,
     /* the sequence then begins anew, which an assertion catches */
     "engine-calls seq f32 witness", .cache.of = OF(REMOVE), .cache.adopting = removal_misses_last,
     .cache.adopted = going_put_back},
    {"shift-forgotten", "positions move, K rows are not turned", KVB_CHECK_BOUND,
     SHIFTS ", context-shift-8x128 slab q8_0 flash", .by = 0, .cache.of = OF(SHIFT), .cache.prepared = turns_times},
    {"shift-backwards", "K rows are turned the other way", KVB_CHECK_BOUND, SHIFTS ", context-shift window bf16 flash",
     .by = -1, .cache.of = OF(SHIFT), .cache.prepared = turns_times},
    {"shift-one-further", "K rows are turned one position too far", KVB_CHECK_BOUND,
     "context-shift slab f16 flash, context-shift-8x128 seq q8_0 flash", .cache.of = OF(SHIFT),
     .cache.prepared = turns_further},
    {"shift-last-forgotten", "the last token that moves is not turned", KVB_CHECK_BOUND,
     SHIFTS ", context-shift window f32 flash", .cache.of = OF(SHIFT), .cache.prepared = last_unturned},
    {"shift-group-forgotten", "K rows are turned in the first group of layers only", KVB_CHECK_BOUND,
     SHIFTS ", context-shift-8x128 seq a4g64+had flash", .by = 0, .cache.of = OF(SHIFT),
     .cache.prepared = group_unturned},
    {"shift-pending-overwritten", "a second shift before a step takes the place of the first one's delta",
     KVB_CHECK_BOUND, SHIFTS ", context-shift slab f16 flash", .cache.of = OF(SHIFT),
     .cache.adopted = pending_overwritten},
    {"shift-divided-alike", "of positions that are divided all rows are turned by the first one's distance",
     KVB_CHECK_BOUND, "self-extend seq f32 flash, self-extend-8x128 seq q8_0 flash", .cache.of = OF(SHIFT),
     .cache.prepared = divided_alike},
    {"shift-shared-turned", "rows that another sequence holds are turned where they lie", KVB_CHECK_BOUND,
     SHIFTS ", context-shift window f32 flash", .cache.of = OF(SHIFT), .cache.prepared = shared_turned},
    {"shift-pairing", "elements are turned in the other pairs", KVB_CHECK_BOUND,
     SHIFTS ", context-shift slab bf16 flash", .by = 0, .cache.of = OF(SHIFT), .cache.prepared = rope_changed},
    {"shift-base-off", "K rows are turned by a base that is a hundredth too large", KVB_CHECK_BOUND,
     SHIFTS ", context-shift seq f16 flash", .by = 1.01, .cache.of = OF(SHIFT), .cache.prepared = rope_changed},
    {"shift-rope-usual", "K rows are turned by the usual rope, whatever the model's is", KVB_CHECK_BOUND,
     "prompt-shifts seq f32 flash, draft-shifts seq bf16 flash, draft-divisions seq f16 flash", .by = -1,
     .cache.of = OF(SHIFT), .cache.prepared = rope_changed},
    {"defrag-forgets-rows", "cells trade places, rows do not", KVB_CHECK_WITNESS,
     "context-shift seq f32 witness, context-shift window f32 witness", .cache.of = OF(DEFRAG),
     .cache.prepared = no_moves},
    {"defrag-turned-round", "rows are copied in the wrong order, over rows that are not copied yet", KVB_CHECK_WITNESS,
     "context-shift window f32 witness, context-shift-8x128 window q8_0 witness", .cache.of = OF(DEFRAG),
     .cache.prepared = moves_backwards},
    {"defrag-loses-last", "the last row that trades places is not copied", KVB_CHECK_WITNESS,
     "context-shift seq f32 witness, context-shift-8x128 window q8_0 witness", .cache.of = OF(DEFRAG),
     .cache.prepared = last_move_lost},
    {"defrag-leaves-pending", "rows that are yet to be turned trade places and are not", KVB_CHECK_BOUND,
     SHIFTS ", context-shift-8x128 window q8_0 flash", .cache.of = OF(DEFRAG), .cache.adopted = pending_left},
    {"save-short", "the last row of a sequence is not saved", KVB_CHECK_WITNESS,
     "save-restore seq f32 witness, save-restore window f32 witness, save-restore paged f32 witness",
     .cache.lies = lies_short},
    {"save-ahead", "as many rows are saved as are in use, from the first cell on", KVB_CHECK_WITNESS,
     "save-restore seq f32 witness, agent-fork seq f32 witness restart, batched-multi-seq seq f32 witness restart",
     .cache.lies = lies_ahead},
    {"save-ring-turned", "rows are saved as if they lay in a ring that begins one cell further on", KVB_CHECK_WITNESS,
     "save-restore seq f32 witness, save-restore slab f32 witness, save-restore paged f32 witness",
     .cache.lies = lies_turned},
    {"load-empty", "what is loaded is read, and the sequence stays empty", KVB_CHECK_WITNESS,
     "save-restore seq f32 witness, save-restore window f32 witness, preempt-resume seq f32 witness",
     .cache.of = OF(LOAD), .cache.preparing = skip, .cache.adopting = skip},
    {"load-no-rows", "the whole cache is loaded without its rows", KVB_CHECK_WITNESS,
     "plain-decode seq f32 witness restart, agent-fork paged f32 witness restart", .cache.of = OF(LOAD),
     .cache.prepared = no_moves},
    {"load-first-group", "rows of the second group of layers are not loaded", KVB_CHECK_WITNESS,
     "save-restore paged f32 witness, save-restore slab f32 witness", .cache.of = OF(LOAD),
     .cache.prepared = load_first_group},
    {"commit-first-nodes", "of a tree the first nodes are kept, as many as are accepted: right for chains",
     KVB_CHECK_WITNESS, "spec-batch seq f32 witness, eagle-tree paged f32 witness, " TREES, .cache.of = OF(COMMIT),
     .cache.preparing = commit_first_nodes},
    {"commit-sibling", "a rejected sibling is kept in place of the last node that is accepted", KVB_CHECK_WITNESS,
     "spec-batch seq f32 witness, spec-batch paged f32 witness, " TREES, .cache.of = OF(COMMIT),
     .cache.preparing = commit_sibling},
    {"commit-elsewhere", "a commit takes the nodes of another sequence", KVB_CHECK_CRASH,
     /* the nodes have positions of another sequence, which an assertion catches */
     "spec-batch seq f32 witness", .cache.of = OF(COMMIT), .cache.preparing = commit_elsewhere},
    {.name = NULL},
};
