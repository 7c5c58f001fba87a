/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen fronts that are read wrongly, written, freed too early, or another's. */
#include "caches/stores/shared.h"
#include "harness/faults/fault.h"

#define HONEST kvb_fault_honest.cache

/* Rows of these pools take the place of the front's n first ones. */
static void rows_overwrite(kvb_front *front, kvb_pool *const *pools, uint32_t n)
{
    static char raw[1 << 16];
    kvb_front_fill(front, 0, pools, 0, n < front->cells ? n : front->cells, raw);
}

/* ---- the plan of a step ------------------------------------------------------------------------------------------ */

static void (*plan_change)(uint32_t front, kvb_plan *plan);

static int prepare(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    int error = HONEST->prepare(store, change, feed, plan);
    if (!error && change->kind == KVB_CHANGE_STEP && store->front_next)
        plan_change(store->front_next->cells, plan);
    return error;
}

static void written_behind(uint32_t front, kvb_plan *plan)
{
    for (uint32_t i = 0; i < plan->n; i++)
        plan->cells[i] += front;
}

/* Only where the pools write is wrong: the policy is not told. */
static void adopt_behind(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    const uint32_t front = feed && store->front_next ? store->front_next->cells : 0;
    written_behind(0u - front, &store->next);
    HONEST->adopt(store, change, feed, plan);
    written_behind(front, &store->next);
}

static void tail_written_behind(kvb_cache_type *wrong)
{
    plan_change = written_behind;
    wrong->prepare = prepare;
    wrong->adopt = adopt_behind;
}

static void border_cut(uint32_t front, kvb_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_runs; i++)
        plan->runs[i].end -= plan->runs[i].end == front;
}

static void border_left_out(kvb_cache_type *wrong)
{
    plan_change = border_cut;
    wrong->prepare = prepare;
}

static void border_doubled(uint32_t front, kvb_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_runs; i++)
        plan->runs[i].begin -= i > 0 && plan->runs[i].begin > front && plan->runs[i - 1].end == front
                                   ? plan->runs[i].begin - front + 1
                                   : 0;
}

static void border_read_twice(kvb_cache_type *wrong)
{
    plan_change = border_doubled;
    wrong->prepare = prepare;
}

/* ---- fronts ------------------------------------------------------------------------------------------------------ */

/* As if its memory were somebody else's as soon as a sequence ends. */
static void adopt_freeing(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    shared_store *c = (shared_store *)(void *)store;
    HONEST->adopt(store, change, feed, plan);
    for (size_t i = 0; i < c->n_holding && change->kind == KVB_CHANGE_REMOVE; i++)
        if (!store->account->seq[change->src].tokens)
            rows_overwrite(c->holding[i].front, store->pools, store->ensured);
}

static void front_freed_with_its_maker(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_freeing;
}

/* A tail that begins inside the front is written there, where others read. */
static void adopt_writing(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    static char raw[1 << 16];
    shared_store *c = (shared_store *)(void *)store;
    for (uint32_t i = 0; feed && i < feed->n; i++) {
        const shared_sequence *of = &c->of[feed->seqs[i]];
        const kvb_spans *tail = &c->tails.cells[feed->seqs[i]];
        if (of->front && tail->n && tail->span[0].pos < of->front->cells && feed->positions[i] != tail->span[0].pos)
            kvb_front_fill(of->front, tail->span[0].pos, store->pools, (uint32_t)tail->span[0].at, 1, raw);
    }
    HONEST->adopt(store, change, feed, plan);
}

static void front_written(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_writing;
}

/* The second prompt's rows are the first one's. */
static void adopt_mistaking(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    shared_store *c = (shared_store *)(void *)store;
    HONEST->adopt(store, change, feed, plan);
    if (change->kind == KVB_CHANGE_COPY && c->n_holding > 1)
        rows_overwrite(c->holding[1].front, c->holding[0].front->pools, c->holding[0].front->cells);
}

static void front_of_another(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_mistaking;
}

#define WITNESSED "shared-prompt shared-prefix f32 witness, shared-prompt-8x128 shared-prefix q8_0 witness"

const kvb_fault kvb_front_faults[] = {
    {"tail-written-behind-front", "rows of a tail are written as far behind their cells as the front is long",
     KVB_CHECK_WITNESS, WITNESSED, .cache = tail_written_behind},
    {"border-left-out", "the last cell of a front is not seen", KVB_CHECK_WITNESS, WITNESSED, .cache = border_left_out},
    {"border-read-twice", "the last cell of a front is seen as a tail's first one, too", KVB_CHECK_WITNESS, WITNESSED,
     .cache = border_read_twice},
    {"front-freed-with-its-maker", "a front's memory is used again when a sequence ends, which others read on",
     KVB_CHECK_WITNESS, WITNESSED, .cache = front_freed_with_its_maker},
    {"front-written", "who is cut back into a front goes on by writing there", KVB_CHECK_WITNESS, WITNESSED,
     .cache = front_written},
    {"front-of-another", "a second front holds the rows of the first", KVB_CHECK_WITNESS, WITNESSED,
     .cache = front_of_another},
    {.name = NULL},
};
