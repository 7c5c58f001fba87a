/* SPDX-License-Identifier: Apache-2.0 */
/* seq: cells shared by up to 64 sequences; a fork copies no bytes, the last to leave frees a cell. */
#include "caches/core.h"

#include <errno.h>

#include "caches/bookkeeping/cells.h"
#include "caches/bookkeeping/visible.h"

typedef struct seq_cache {
    kvb_core core;
    kvb_cells cells;
    kvb_visible visible;
} seq_cache;

/* ---- steps ------------------------------------------------------------------------------------------ */

/* The mask of core->next, whose tokens already occupy their cells. */
static int mask_make(seq_cache *c, const uint32_t *seq_ids, uint64_t step_seqs)
{
    kvb_plan *plan = &c->core.next;
    const kvb_cells *cells = &c->cells;
    /* Rule 8. The new tokens have the highest positions, so in a table in order they are the tail. */
    bool single = !(step_seqs & (step_seqs - 1));
    if (single && kvb_cells_in_order(cells, kvb_seq_lowest(step_seqs))) {
        kvb_plan_mask_dense(plan, cells->high_water);
        return 0;
    }
    int error = kvb_visible_cut(&c->visible, cells->pos, cells->seqs, cells->high_water, step_seqs);
    for (uint32_t i = 0; !error && i < plan->n; i++)
        error = kvb_visible_see(&c->visible, seq_ids ? seq_ids[i] : 0, plan->positions[i], plan);
    if (!error)
        kvb_plan_mask_runs(plan, cells->high_water);
    return error;
}

/* seq_ids NULL: all of sequence 0. */
static int step_plan(seq_cache *c, const uint32_t *seq_ids, uint32_t n)
{
    kvb_core *core = &c->core;
    kvb_plan *plan = &core->next;
    uint64_t step_seqs;
    kvb_step_limits limits = {core->options.capacity - c->cells.live, core->options.seq_capacity,
                              core->options.max_seqs};
    int error =
        kvb_step_check(&c->cells.lens, seq_ids, n, &limits, &step_seqs, core->cache.why, sizeof core->cache.why);
    if (error)
        return error;
    if (kvb_plan_start(plan, n))
        return kvb_core_fail(core, -ENOMEM, "no memory for a plan of %u tokens", n);
    kvb_cells_pick(&c->cells, n, plan->cells);
    kvb_step_positions(&c->cells.lens, seq_ids, n, plan->positions);
    kvb_core_feed_new(core, n);
    kvb_plan_cells_finish(plan);
    uint32_t end = plan->cells[n - 1] + 1;
    if (kvb_cells_reserve(&c->cells, end))
        return kvb_core_fail(core, -ENOMEM, "no memory for a table of %u cells", end);
    error = kvb_core_ensure(core, end);
    if (error)
        return error;
    kvb_cells before = c->cells;
    kvb_cells_occupy(&c->cells, plan->cells, seq_ids, plan->positions, n);
    if (mask_make(c, seq_ids, step_seqs)) {
        kvb_cells_vacate(&c->cells, &before, plan->cells, n);
        return kvb_core_fail(core, -ENOMEM, "no memory for the mask of %u tokens", n);
    }
    kvb_core_adopt(core, n, c->cells.live, c->cells.high_water);
    return 0;
}

static int seq_begin_step(kvb_cache *cache, const uint32_t *seq_ids, uint32_t n)
{
    seq_cache *c = (seq_cache *)cache;
    if (!seq_ids)
        return kvb_core_fail(&c->core, -EINVAL, "sequence ids must be given");
    return step_plan(c, seq_ids, n);
}

static int seq_begin_step_single(kvb_cache *cache, uint32_t n)
{
    return step_plan((seq_cache *)cache, NULL, n);
}

/* ---- sequences -------------------------------------------------------------------------------------- */

static int seq_cp(kvb_cache *cache, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    seq_cache *c = (seq_cache *)cache;
    int error = kvb_seq_lens_check_copy(&c->cells.lens, src, dst, p0, p1, cache->why, sizeof cache->why);
    if (error)
        return error;
    if (kvb_seq_lens_alive(&c->cells.lens) >= c->core.options.max_seqs)
        return kvb_core_fail(&c->core, -ENOSPC, "no room for another sequence: at most %u may be alive",
                             c->core.options.max_seqs);
    kvb_cells_share(&c->cells, src, dst, p0, p1);
    kvb_core_invalidate(&c->core);
    return 0;
}

static int seq_rm(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1)
{
    seq_cache *c = (seq_cache *)cache;
    int error = kvb_seq_lens_check_source(&c->cells.lens, seq, cache->why, sizeof cache->why);
    if (!error)
        error = kvb_seq_lens_check_range(p0, p1, cache->why, sizeof cache->why);
    if (error)
        return error;
    kvb_cells_leave(&c->cells, seq, p0, p1);
    kvb_core_invalidate(&c->core);
    return 0;
}

static int seq_keep(kvb_cache *cache, uint32_t seq)
{
    seq_cache *c = (seq_cache *)cache;
    int error = kvb_seq_lens_check_source(&c->cells.lens, seq, cache->why, sizeof cache->why);
    if (error)
        return error;
    kvb_cells_keep(&c->cells, seq);
    kvb_core_invalidate(&c->core);
    return 0;
}

static uint32_t seq_len(const kvb_cache *cache, uint32_t seq)
{
    return seq < KVB_MAX_SEQS ? ((const seq_cache *)cache)->cells.lens.next[seq] : 0;
}

/* ---- base ------------------------------------------------------------------------------------------- */

static bool seq_can_extend(const kvb_cache *cache, uint32_t n)
{
    const seq_cache *c = (const seq_cache *)cache;
    return n <= c->core.options.capacity - c->cells.live;
}

static uint32_t seq_length(const kvb_cache *cache)
{
    return seq_len(cache, 0);
}

static int seq_clear(kvb_cache *cache)
{
    seq_cache *c = (seq_cache *)cache;
    kvb_cells_clear(&c->cells);
    kvb_core_invalidate(&c->core);
    return 0;
}

static void seq_usage(const kvb_cache *cache, kvb_cache_usage *usage)
{
    const seq_cache *c = (const seq_cache *)cache;
    kvb_core_usage(&c->core, c->cells.live, usage);
}

static int seq_open(const kvb_cache_type *type, const kvb_model_facts *facts, const kvb_cache_options *options,
                    kvb_cache **cache, char *why, size_t why_bytes)
{
    kvb_core *core;
    int error = kvb_core_open(type, facts, options, options->capacity, &core, why, why_bytes);
    if (error)
        return error;
    seq_cache *c = (seq_cache *)core;
    kvb_cells_open(&c->cells, options->allocator, options->capacity);
    kvb_visible_open(&c->visible, options->allocator);
    *cache = &core->cache;
    return 0;
}

static void seq_close(kvb_cache *cache)
{
    seq_cache *c = (seq_cache *)cache;
    kvb_cells_close(&c->cells);
    kvb_visible_close(&c->visible);
    kvb_core_close(&c->core);
}

static const kvb_base_face base_face = {
    .can_extend = seq_can_extend,
    .capacity = kvb_core_capacity,
    .length = seq_length,
    .clear = seq_clear,
    .begin_step = seq_begin_step_single,
    .usage = seq_usage,
};

static const kvb_seq_face seq_face = {
    .begin_step = seq_begin_step,
    .seq_cp = seq_cp,
    .seq_rm = seq_rm,
    .seq_keep = seq_keep,
    .seq_len = seq_len,
};

const kvb_cache_type kvb_cache_seq_cells = {
    .name = "seq",
    .summary = "cells shared by up to 64 sequences; a fork copies nothing",
    .base = &base_face,
    .bytes = &kvb_core_bytes,
    .seq = &seq_face,
    .open = seq_open,
    .close = seq_close,
    .struct_bytes = sizeof(seq_cache),
};
