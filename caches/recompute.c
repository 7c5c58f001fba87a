/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recompute: no cache. Nothing survives a step: it asks for the rows of every token that the step's
 * sequences hold, writes them anew from cell 0, and all of them are queries again. What it keeps is
 * integers: which tokens are alive, at which position, of which sequences, and the pending tree nodes.
 *
 * An old token may belong to several sequences of the step; it then sees as a token of the lowest of
 * them. Old tokens are fed grouped by that sequence, in order of admission, so that what a token sees
 * comes before it and its runs are few; new tokens come last.
 */
#include "caches/core.h"

#include <errno.h>
#include <string.h>

#include "caches/bookkeeping/grow.h"
#include "caches/bookkeeping/ledger.h"
#include "caches/bookkeeping/tree_nodes.h"
#include "caches/bookkeeping/visible.h"

typedef struct recompute_cache {
    kvb_core core;
    kvb_ledger ledger;       /* committed tokens */
    kvb_tree_nodes nodes;    /* pending */
    uint64_t *node_ordinals; /* [nodes.n] */
    uint64_t *fed_seqs;      /* [plan.n] sequences of the step that each fed token belongs to */
    size_t node_ordinals_room, fed_seqs_room;
    kvb_visible visible;
} recompute_cache;

static uint32_t tokens_live(const recompute_cache *c)
{
    return c->ledger.n + c->nodes.n;
}

static bool recompute_can_extend(const kvb_cache *cache, uint32_t n)
{
    const recompute_cache *c = (const recompute_cache *)cache;
    return n <= c->core.options.capacity - tokens_live(c);
}

/* ---- feeding ---------------------------------------------------------------------------------------- */

static uint32_t tokens_count(const kvb_ledger *ledger, uint64_t step_seqs)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ledger->n; i++)
        n += (ledger->seqs[i] & step_seqs) != 0;
    return n;
}

/* Begin core->next with all old tokens of the step's sequences and room for n more: 0 or -ENOMEM. */
static int feed_start(recompute_cache *c, uint64_t step_seqs, uint32_t n)
{
    kvb_core *core = &c->core;
    kvb_plan *plan = &core->next;
    const kvb_ledger *ledger = &c->ledger;
    uint32_t n_feed = tokens_count(ledger, step_seqs) + n;
    void *p = kvb_grow(core->options.allocator, c->fed_seqs, &c->fed_seqs_room, n_feed, sizeof *c->fed_seqs);
    if (p)
        c->fed_seqs = p;
    if (!p || kvb_plan_start(plan, n_feed))
        return kvb_core_fail(core, -ENOMEM, "no memory for a plan of %u tokens", n_feed);
    uint32_t fed = 0;
    for (uint64_t left = step_seqs; left; left &= left - 1) {
        for (uint32_t i = 0; i < ledger->n; i++) {
            uint64_t seqs = ledger->seqs[i] & step_seqs;
            if (!seqs || kvb_seq_lowest(seqs) != kvb_seq_lowest(left))
                continue;
            plan->ordinals[fed] = ledger->ordinal[i];
            plan->positions[fed] = ledger->pos[i];
            c->fed_seqs[fed++] = seqs;
        }
    }
    for (uint32_t i = 0; i < n_feed; i++)
        plan->cells[i] = i;
    kvb_plan_cells_finish(plan);
    return kvb_core_ensure(core, n_feed);
}

static int mask_make(recompute_cache *c, uint64_t step_seqs)
{
    kvb_plan *plan = &c->core.next;
    bool single = !(step_seqs & (step_seqs - 1));
    if (single) { /* all fed tokens are queries, in the order of their positions */
        kvb_plan_mask_dense(plan, plan->n);
        return 0;
    }
    int error = kvb_visible_cut(&c->visible, plan->positions, c->fed_seqs, plan->n, step_seqs);
    for (uint32_t i = 0; !error && i < plan->n; i++)
        error = kvb_visible_see(&c->visible, kvb_seq_lowest(c->fed_seqs[i]), plan->positions[i], plan);
    if (!error)
        kvb_plan_mask_runs(plan, plan->n);
    return error;
}

/* seq_ids NULL: all of sequence 0. */
static int step_plan(recompute_cache *c, const uint32_t *seq_ids, uint32_t n)
{
    kvb_core *core = &c->core;
    kvb_plan *plan = &core->next;
    uint64_t step_seqs;
    if (c->nodes.n > 0)
        return kvb_core_fail(core, -EINVAL, "%u nodes are pending: commit first", c->nodes.n);
    kvb_step_limits limits = {core->options.capacity - tokens_live(c), core->options.seq_capacity,
                              core->options.max_seqs};
    int error =
        kvb_step_check(&c->ledger.lens, seq_ids, n, &limits, &step_seqs, core->cache.why, sizeof core->cache.why);
    if (!error)
        error = feed_start(c, step_seqs, n);
    if (error)
        return error;
    uint32_t old = plan->n - n;
    kvb_step_positions(&c->ledger.lens, seq_ids, n, plan->positions + old);
    for (uint32_t i = 0; i < n; i++) {
        plan->ordinals[old + i] = core->next_ordinal + i;
        c->fed_seqs[old + i] = kvb_seq_bit(seq_ids ? seq_ids[i] : 0);
    }
    if (mask_make(c, step_seqs) || kvb_ledger_reserve(&c->ledger, n))
        return kvb_core_fail(core, -ENOMEM, "no memory for a step of %u tokens", plan->n);
    for (uint32_t i = 0; i < n; i++)
        kvb_ledger_add(&c->ledger, plan->ordinals[old + i], plan->positions[old + i], seq_ids ? seq_ids[i] : 0);
    kvb_core_adopt(core, n, tokens_live(c), plan->n);
    return 0;
}

static int recompute_begin_step(kvb_cache *cache, const uint32_t *seq_ids, uint32_t n)
{
    recompute_cache *c = (recompute_cache *)cache;
    if (!seq_ids)
        return kvb_core_fail(&c->core, -EINVAL, "sequence ids must be given");
    return step_plan(c, seq_ids, n);
}

static int recompute_begin_step_single(kvb_cache *cache, uint32_t n)
{
    return step_plan((recompute_cache *)cache, NULL, n);
}

/* ---- the tree --------------------------------------------------------------------------------------- */

/* Mask of a feed of `prefix` committed tokens and all pending nodes behind them. */
static int tree_mask_make(recompute_cache *c, uint32_t prefix)
{
    kvb_plan *plan = &c->core.next;
    int error = 0;
    if (c->nodes.chain) {
        kvb_plan_mask_dense(plan, plan->n);
        return 0;
    }
    for (uint32_t i = 0; !error && i < prefix; i++) {
        error = kvb_plan_see(plan, 0, i + 1);
        kvb_plan_next_query(plan);
    }
    for (uint32_t i = 0; !error && i < c->nodes.n; i++) {
        uint32_t n_path = kvb_tree_nodes_path(&c->nodes, i);
        error = kvb_plan_see(plan, 0, prefix);
        for (uint32_t j = 0; !error && j < n_path; j++)
            error = kvb_plan_see(plan, prefix + c->nodes.path[j], prefix + c->nodes.path[j] + 1);
        kvb_plan_next_query(plan);
    }
    if (!error)
        kvb_plan_mask_runs(plan, plan->n);
    return error;
}

/* All memory that n more nodes and a commit of any of them will want. */
static int nodes_reserve(recompute_cache *c, uint32_t n)
{
    size_t pending = (size_t)c->nodes.n + n;
    uint64_t *p = kvb_grow(c->core.options.allocator, c->node_ordinals, &c->node_ordinals_room, pending, sizeof *p);
    if (!p)
        return -ENOMEM;
    c->node_ordinals = p;
    int error = kvb_tree_nodes_reserve(&c->nodes, n);
    return error ? error : kvb_ledger_reserve(&c->ledger, (uint32_t)pending);
}

static int recompute_propose(kvb_cache *cache, const int32_t *parents, uint32_t n)
{
    recompute_cache *c = (recompute_cache *)cache;
    kvb_core *core = &c->core;
    kvb_plan *plan = &core->next;
    uint32_t first = c->nodes.n;
    int error = kvb_tree_nodes_check(&c->nodes, parents, n, cache->why, sizeof cache->why);
    if (error)
        return error;
    if (!recompute_can_extend(cache, n))
        return kvb_core_fail(core, -ENOSPC, "no room for %u nodes: %u of %u cells are in use", n, tokens_live(c),
                             core->options.capacity);
    error = feed_start(c, kvb_seq_bit(0), first + n);
    if (error)
        return error;
    if (nodes_reserve(c, n))
        return kvb_core_fail(core, -ENOMEM, "no memory for %u more nodes", n);
    uint32_t prefix = plan->n - first - n;
    kvb_tree_nodes_add(&c->nodes, parents, n);
    for (uint32_t i = 0; i < n; i++)
        c->node_ordinals[first + i] = core->next_ordinal + i;
    for (uint32_t i = 0; i < c->nodes.n; i++) {
        plan->ordinals[prefix + i] = c->node_ordinals[i];
        plan->positions[prefix + i] = c->ledger.lens.next[0] + c->nodes.depth[i];
    }
    if (tree_mask_make(c, prefix)) {
        kvb_tree_nodes_cut(&c->nodes, first);
        return kvb_core_fail(core, -ENOMEM, "no memory for the mask of %u nodes", n);
    }
    kvb_core_adopt(core, n, tokens_live(c), plan->n);
    return 0;
}

static int recompute_commit(kvb_cache *cache, const uint32_t *accepted, uint32_t n)
{
    recompute_cache *c = (recompute_cache *)cache;
    kvb_core *core = &c->core;
    uint32_t len = c->ledger.lens.next[0];
    if (n > 0 && !accepted)
        return kvb_core_fail(core, -EINVAL, "accepted nodes must be given");
    int error = kvb_tree_nodes_check_path(&c->nodes, accepted, n, cache->why, sizeof cache->why);
    if (error)
        return error;
    if (n > core->options.seq_capacity || len > core->options.seq_capacity - n)
        return kvb_core_fail(core, -ENOSPC, "the sequence would pass its %u positions", core->options.seq_capacity);
    for (uint32_t i = 0; i < n; i++)
        kvb_ledger_add(&c->ledger, c->node_ordinals[accepted[i]], len + i, 0);
    kvb_tree_nodes_cut(&c->nodes, 0);
    kvb_core_invalidate(core);
    return 0;
}

static uint32_t recompute_pending(const kvb_cache *cache)
{
    return ((const recompute_cache *)cache)->nodes.n;
}

/* ---- sequences -------------------------------------------------------------------------------------- */

/* Sequences stand still while nodes are pending. */
static int pending_check(recompute_cache *c)
{
    if (c->nodes.n == 0)
        return 0;
    return kvb_core_fail(&c->core, -EINVAL, "%u nodes are pending: commit first", c->nodes.n);
}

static int recompute_seq_cp(kvb_cache *cache, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    recompute_cache *c = (recompute_cache *)cache;
    int error = pending_check(c);
    if (!error)
        error = kvb_seq_lens_check_copy(&c->ledger.lens, src, dst, p0, p1, cache->why, sizeof cache->why);
    if (error)
        return error;
    if (kvb_seq_lens_alive(&c->ledger.lens) >= c->core.options.max_seqs)
        return kvb_core_fail(&c->core, -ENOSPC, "no room for another sequence: at most %u may be alive",
                             c->core.options.max_seqs);
    kvb_ledger_share(&c->ledger, src, dst, p0, p1);
    kvb_core_invalidate(&c->core);
    return 0;
}

static int recompute_seq_rm(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1)
{
    recompute_cache *c = (recompute_cache *)cache;
    int error = pending_check(c);
    if (!error)
        error = kvb_seq_lens_check_source(&c->ledger.lens, seq, cache->why, sizeof cache->why);
    if (!error)
        error = kvb_seq_lens_check_range(p0, p1, cache->why, sizeof cache->why);
    if (error)
        return error;
    kvb_ledger_leave(&c->ledger, seq, p0, p1);
    kvb_core_invalidate(&c->core);
    return 0;
}

static int recompute_seq_keep(kvb_cache *cache, uint32_t seq)
{
    recompute_cache *c = (recompute_cache *)cache;
    int error = pending_check(c);
    if (!error)
        error = kvb_seq_lens_check_source(&c->ledger.lens, seq, cache->why, sizeof cache->why);
    if (error)
        return error;
    kvb_ledger_keep(&c->ledger, seq);
    kvb_core_invalidate(&c->core);
    return 0;
}

static uint32_t recompute_seq_len(const kvb_cache *cache, uint32_t seq)
{
    return seq < KVB_MAX_SEQS ? ((const recompute_cache *)cache)->ledger.lens.next[seq] : 0;
}

static int recompute_rewind(kvb_cache *cache, uint32_t len)
{
    recompute_cache *c = (recompute_cache *)cache;
    int error = pending_check(c);
    if (error)
        return error;
    if (len > c->ledger.lens.next[0])
        return kvb_core_fail(&c->core, -EINVAL, "cannot rewind to %u: the length is %u", len, c->ledger.lens.next[0]);
    kvb_ledger_leave(&c->ledger, 0, len, KVB_POS_END);
    kvb_core_invalidate(&c->core);
    return 0;
}

/* ---- base ------------------------------------------------------------------------------------------- */

static uint32_t recompute_length(const kvb_cache *cache)
{
    return recompute_seq_len(cache, 0);
}

static int recompute_clear(kvb_cache *cache)
{
    recompute_cache *c = (recompute_cache *)cache;
    kvb_ledger_clear(&c->ledger);
    kvb_tree_nodes_cut(&c->nodes, 0);
    kvb_core_invalidate(&c->core);
    return 0;
}

static void recompute_usage(const kvb_cache *cache, kvb_cache_usage *usage)
{
    const recompute_cache *c = (const recompute_cache *)cache;
    kvb_core_usage(&c->core, tokens_live(c), usage);
}

static int recompute_open(const kvb_cache_type *type, const kvb_model_facts *facts, const kvb_cache_options *options,
                          kvb_cache **cache, char *why, size_t why_bytes)
{
    kvb_core *core;
    int error = kvb_core_open(type, facts, options, options->capacity, &core, why, why_bytes);
    if (error)
        return error;
    recompute_cache *c = (recompute_cache *)core;
    kvb_ledger_open(&c->ledger, options->allocator);
    kvb_tree_nodes_open(&c->nodes, options->allocator);
    kvb_visible_open(&c->visible, options->allocator);
    *cache = &core->cache;
    return 0;
}

static void recompute_close(kvb_cache *cache)
{
    recompute_cache *c = (recompute_cache *)cache;
    kvb_allocator *a = c->core.options.allocator;
    kvb_ledger_close(&c->ledger);
    kvb_tree_nodes_close(&c->nodes);
    kvb_visible_close(&c->visible);
    kvb_free(a, c->node_ordinals, c->node_ordinals_room * sizeof *c->node_ordinals);
    kvb_free(a, c->fed_seqs, c->fed_seqs_room * sizeof *c->fed_seqs);
    kvb_core_close(&c->core);
}

static const kvb_base_face base_face = {
    .can_extend = recompute_can_extend,
    .capacity = kvb_core_capacity,
    .length = recompute_length,
    .clear = recompute_clear,
    .begin_step = recompute_begin_step_single,
    .usage = recompute_usage,
};

static const kvb_seq_face seq_face = {
    .begin_step = recompute_begin_step,
    .seq_cp = recompute_seq_cp,
    .seq_rm = recompute_seq_rm,
    .seq_keep = recompute_seq_keep,
    .seq_len = recompute_seq_len,
};

static const kvb_tree_face tree_face = {
    .propose = recompute_propose,
    .commit = recompute_commit,
    .pending = recompute_pending,
};

static const kvb_contiguous_face contiguous_face = {.rewind = recompute_rewind};

const kvb_cache_type kvb_cache_recompute = {
    .name = "recompute",
    .summary = "no cache: every step is handed the whole history again",
    .base = &base_face,
    .bytes = &kvb_core_bytes,
    .seq = &seq_face,
    .tree = &tree_face,
    .contiguous = &contiguous_face,
    .open = recompute_open,
    .close = recompute_close,
    .struct_bytes = sizeof(recompute_cache),
};
