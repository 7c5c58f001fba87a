/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab: max_seqs rows of seq_capacity cells, all reserved at open. Prefill one sequence, then clone it
 * into the others: a fork copies rows, and no two sequences ever share a cell.
 */
#include "caches/core.h"

#include <errno.h>
#include <stdio.h>

#include "caches/bookkeeping/grow.h"
#include "caches/bookkeeping/row_slots.h"

typedef struct slab_cache {
    kvb_core core;
    kvb_row_slots slots;
    uint32_t *moves; /* cells of a clone */
    size_t moves_room;
} slab_cache;

/* ---- steps ------------------------------------------------------------------------------------------ */

/* slots: as they will be after the step. */
static int mask_make(slab_cache *c, const kvb_row_slots *slots, const uint32_t *seq_ids, uint64_t step_seqs)
{
    kvb_plan *plan = &c->core.next;
    bool single = !(step_seqs & (step_seqs - 1));
    uint32_t first = kvb_seq_lowest(step_seqs);
    if (single && kvb_row_slots_base(slots, first) == 0) {
        kvb_plan_mask_dense(plan, slots->lens.next[first]);
        return 0;
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        uint32_t row = kvb_row_slots_base(slots, seq_ids ? seq_ids[i] : 0);
        int error = kvb_plan_see(plan, row, row + plan->positions[i] + 1);
        if (error)
            return error;
        kvb_plan_next_query(plan);
    }
    kvb_plan_mask_runs(plan, kvb_row_slots_high_water(slots));
    return 0;
}

/* seq_ids NULL: all of sequence 0. */
static int step_plan(slab_cache *c, const uint32_t *seq_ids, uint32_t n)
{
    kvb_core *core = &c->core;
    kvb_plan *plan = &core->next;
    uint64_t step_seqs;
    kvb_step_limits limits = {core->options.capacity - c->slots.live, core->options.seq_capacity,
                              core->options.max_seqs};
    int error =
        kvb_step_check(&c->slots.lens, seq_ids, n, &limits, &step_seqs, core->cache.why, sizeof core->cache.why);
    if (error)
        return error;
    if (kvb_plan_start(plan, n))
        return kvb_core_fail(core, -ENOMEM, "no memory for a plan of %u tokens", n);
    kvb_row_slots after = c->slots;
    kvb_step_positions(&c->slots.lens, seq_ids, n, plan->positions);
    for (uint32_t i = 0; i < n; i++)
        plan->cells[i] = kvb_row_slots_add(&after, seq_ids ? seq_ids[i] : 0);
    kvb_core_feed_new(core, n);
    kvb_plan_cells_finish(plan);
    if (mask_make(c, &after, seq_ids, step_seqs))
        return kvb_core_fail(core, -ENOMEM, "no memory for the mask of %u tokens", n);
    c->slots = after;
    kvb_core_adopt(core, n, c->slots.live, kvb_row_slots_high_water(&c->slots));
    return 0;
}

static int slab_begin_step(kvb_cache *cache, const uint32_t *seq_ids, uint32_t n)
{
    slab_cache *c = (slab_cache *)cache;
    if (!seq_ids)
        return kvb_core_fail(&c->core, -EINVAL, "sequence ids must be given");
    return step_plan(c, seq_ids, n);
}

static int slab_begin_step_single(kvb_cache *cache, uint32_t n)
{
    return step_plan((slab_cache *)cache, NULL, n);
}

/* ---- sequences -------------------------------------------------------------------------------------- */

/* Clone positions 0 .. n-1 of src into a row of its own. */
static int row_clone(slab_cache *c, uint32_t src, uint32_t dst, uint32_t n)
{
    kvb_core *core = &c->core;
    if (n == 0)
        return 0;
    if (n > core->options.capacity - c->slots.live)
        return kvb_core_fail(core, -ENOSPC, "no room to clone %u tokens: %u cells are free", n,
                             core->options.capacity - c->slots.live);
    if (kvb_seq_lens_alive(&c->slots.lens) >= c->slots.n_rows)
        return kvb_core_fail(core, -ENOSPC, "no row is free: all %u are in use", c->slots.n_rows);
    uint32_t *moves = kvb_grow(core->options.allocator, c->moves, &c->moves_room, n, sizeof *moves);
    if (!moves)
        return kvb_core_fail(core, -ENOMEM, "no memory to clone %u tokens", n);
    c->moves = moves;
    for (uint32_t i = 0; i < n; i++) {
        moves[i] = kvb_row_slots_base(&c->slots, src) + i;
        kvb_row_slots_add(&c->slots, dst);
    }
    kvb_core_gather(core, kvb_row_slots_base(&c->slots, dst), moves, n);
    kvb_core_note(core, c->slots.live, kvb_row_slots_high_water(&c->slots));
    return 0;
}

static int slab_seq_cp(kvb_cache *cache, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    slab_cache *c = (slab_cache *)cache;
    int error = kvb_seq_lens_check_copy(&c->slots.lens, src, dst, p0, p1, cache->why, sizeof cache->why);
    if (error)
        return error;
    uint32_t end = p1 < c->slots.lens.next[src] ? p1 : c->slots.lens.next[src];
    if (p0 > 0 && p0 < end)
        return kvb_core_fail(&c->core, -ENOTSUP, "a slab row starts at position 0: it cannot hold %u .. %u alone", p0,
                             end - 1);
    error = row_clone(c, src, dst, p0 < end ? end : 0);
    if (!error)
        kvb_core_invalidate(&c->core);
    return error;
}

static int slab_seq_rm(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1)
{
    slab_cache *c = (slab_cache *)cache;
    int error = kvb_seq_lens_check_source(&c->slots.lens, seq, cache->why, sizeof cache->why);
    if (!error)
        error = kvb_seq_lens_check_range(p0, p1, cache->why, sizeof cache->why);
    if (error)
        return error;
    uint32_t len = c->slots.lens.next[seq];
    if (p0 < p1 && p1 < len)
        return kvb_core_fail(&c->core, -ENOTSUP, "a slab row has no holes: only the end of a sequence can be removed");
    if (p0 < p1)
        kvb_row_slots_cut(&c->slots, seq, p0);
    kvb_core_invalidate(&c->core);
    return 0;
}

static int slab_seq_keep(kvb_cache *cache, uint32_t seq)
{
    slab_cache *c = (slab_cache *)cache;
    int error = kvb_seq_lens_check_source(&c->slots.lens, seq, cache->why, sizeof cache->why);
    if (error)
        return error;
    for (uint64_t left = c->slots.lens.alive & ~kvb_seq_bit(seq); left; left &= left - 1)
        kvb_row_slots_cut(&c->slots, kvb_seq_lowest(left), 0);
    kvb_core_invalidate(&c->core);
    return 0;
}

static uint32_t slab_seq_len(const kvb_cache *cache, uint32_t seq)
{
    return seq < KVB_MAX_SEQS ? ((const slab_cache *)cache)->slots.lens.next[seq] : 0;
}

/* ---- base ------------------------------------------------------------------------------------------- */

static bool slab_can_extend(const kvb_cache *cache, uint32_t n)
{
    const slab_cache *c = (const slab_cache *)cache;
    return n <= c->core.options.capacity - c->slots.live;
}

static uint32_t slab_length(const kvb_cache *cache)
{
    return slab_seq_len(cache, 0);
}

static int slab_clear(kvb_cache *cache)
{
    slab_cache *c = (slab_cache *)cache;
    kvb_row_slots_open(&c->slots, c->slots.n_rows, c->slots.row_cells);
    kvb_core_invalidate(&c->core);
    return 0;
}

static void slab_usage(const kvb_cache *cache, kvb_cache_usage *usage)
{
    const slab_cache *c = (const slab_cache *)cache;
    kvb_core_usage(&c->core, c->slots.live, usage);
}

static void slab_close(kvb_cache *cache)
{
    slab_cache *c = (slab_cache *)cache;
    kvb_free(c->core.options.allocator, c->moves, c->moves_room * sizeof *c->moves);
    kvb_core_close(&c->core);
}

static int slab_open(const kvb_cache_type *type, const kvb_model_facts *facts, const kvb_cache_options *options,
                     kvb_cache **cache, char *why, size_t why_bytes)
{
    kvb_core *core;
    uint64_t cells = (uint64_t)options->max_seqs * options->seq_capacity;
    int error = kvb_core_open(type, facts, options, cells, &core, why, why_bytes);
    if (error)
        return error;
    slab_cache *c = (slab_cache *)core;
    kvb_row_slots_open(&c->slots, options->max_seqs, options->seq_capacity);
    error = kvb_core_ensure(core, (uint32_t)cells);
    if (error) {
        snprintf(why, why_bytes, "%s", core->cache.why);
        slab_close(&core->cache);
        return error;
    }
    *cache = &core->cache;
    return 0;
}

static const kvb_base_face base_face = {
    .can_extend = slab_can_extend,
    .capacity = kvb_core_capacity,
    .length = slab_length,
    .clear = slab_clear,
    .begin_step = slab_begin_step_single,
    .usage = slab_usage,
};

static const kvb_seq_face seq_face = {
    .begin_step = slab_begin_step,
    .seq_cp = slab_seq_cp,
    .seq_rm = slab_seq_rm,
    .seq_keep = slab_seq_keep,
    .seq_len = slab_seq_len,
};

const kvb_cache_type kvb_cache_slab = {
    .name = "slab",
    .summary = "one preallocated row per sequence; a fork copies",
    .base = &base_face,
    .bytes = &kvb_core_bytes,
    .seq = &seq_face,
    .open = slab_open,
    .close = slab_close,
    .struct_bytes = sizeof(slab_cache),
};
