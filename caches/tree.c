/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree: one committed sequence in cells 0 .. len-1, and the pending nodes of a speculative tree behind
 * it: node i lies in cell len + i. A commit moves the rows of the accepted path down to len.
 */
#include "caches/core.h"

#include <errno.h>

#include "caches/bookkeeping/grow.h"
#include "caches/bookkeeping/tree_nodes.h"

typedef struct tree_cache {
    kvb_core core;
    uint32_t len; /* committed tokens */
    kvb_tree_nodes nodes;
    uint32_t *moves; /* cells of the accepted path; room for all pending nodes */
    size_t moves_room;
} tree_cache;

static uint32_t cells_live(const tree_cache *c)
{
    return c->len + c->nodes.n;
}

static bool tree_can_extend(const kvb_cache *cache, uint32_t n)
{
    const tree_cache *c = (const tree_cache *)cache;
    return n <= c->core.options.capacity - cells_live(c);
}

/* Fill core->next with n tokens behind all cells in use; positions and mask are left to the caller. */
static int step_start(tree_cache *c, uint32_t n)
{
    kvb_core *core = &c->core;
    if (!tree_can_extend(&core->cache, n))
        return kvb_core_fail(core, -ENOSPC, "no room for %u tokens: %u of %u cells are in use", n, cells_live(c),
                             core->options.capacity);
    if (kvb_plan_start(&core->next, n))
        return kvb_core_fail(core, -ENOMEM, "no memory for a plan of %u tokens", n);
    for (uint32_t i = 0; i < n; i++)
        core->next.cells[i] = cells_live(c) + i;
    kvb_core_feed_new(core, n);
    kvb_plan_cells_finish(&core->next);
    return kvb_core_ensure(core, cells_live(c) + n);
}

static int tree_begin_step(kvb_cache *cache, uint32_t n)
{
    tree_cache *c = (tree_cache *)cache;
    kvb_core *core = &c->core;
    if (n == 0)
        return kvb_core_fail(core, -EINVAL, "a step needs at least one token");
    if (c->nodes.n > 0)
        return kvb_core_fail(core, -EINVAL, "%u nodes are pending: commit first", c->nodes.n);
    if (n > core->options.seq_capacity || c->len > core->options.seq_capacity - n)
        return kvb_core_fail(core, -ENOSPC, "the sequence would pass its %u positions", core->options.seq_capacity);
    int error = step_start(c, n);
    if (error)
        return error;
    for (uint32_t i = 0; i < n; i++)
        core->next.positions[i] = c->len + i;
    kvb_plan_mask_dense(&core->next, c->len + n);
    c->len += n;
    kvb_core_adopt(core, n, c->len, c->len);
    return 0;
}

/* ---- the tree --------------------------------------------------------------------------------------- */

/* Positions and mask of the nodes from number `first` on: the committed prefix, the ancestors, the node. */
static int nodes_plan(tree_cache *c, uint32_t first)
{
    kvb_plan *plan = &c->core.next;
    for (uint32_t i = 0; i < plan->n; i++)
        plan->positions[i] = c->len + c->nodes.depth[first + i];
    if (c->nodes.chain) {
        kvb_plan_mask_dense(plan, cells_live(c));
        return 0;
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        uint32_t n_path = kvb_tree_nodes_path(&c->nodes, first + i);
        int error = kvb_plan_see(plan, 0, c->len);
        for (uint32_t j = 0; !error && j < n_path; j++) {
            uint32_t cell = c->len + c->nodes.path[j];
            error = kvb_plan_see(plan, cell, cell + 1);
        }
        if (error)
            return error;
        kvb_plan_next_query(plan);
    }
    kvb_plan_mask_runs(plan, cells_live(c));
    return 0;
}

static int tree_propose(kvb_cache *cache, const int32_t *parents, uint32_t n)
{
    tree_cache *c = (tree_cache *)cache;
    kvb_core *core = &c->core;
    uint32_t first = c->nodes.n;
    int error = kvb_tree_nodes_check(&c->nodes, parents, n, cache->why, sizeof cache->why);
    if (!error)
        error = step_start(c, n);
    if (error)
        return error;
    /* A commit moves no more rows than are pending: with room for them now, it cannot fail for memory. */
    void *moves = kvb_grow(core->options.allocator, c->moves, &c->moves_room, (size_t)first + n, sizeof *c->moves);
    if (moves)
        c->moves = moves;
    if (!moves || kvb_tree_nodes_reserve(&c->nodes, n))
        return kvb_core_fail(core, -ENOMEM, "no memory for %u more nodes", n);
    kvb_tree_nodes_add(&c->nodes, parents, n);
    if (nodes_plan(c, first)) {
        kvb_tree_nodes_cut(&c->nodes, first);
        return kvb_core_fail(core, -ENOMEM, "no memory for the mask of %u nodes", n);
    }
    kvb_core_adopt(core, n, cells_live(c), cells_live(c));
    return 0;
}

static int tree_commit(kvb_cache *cache, const uint32_t *accepted, uint32_t n)
{
    tree_cache *c = (tree_cache *)cache;
    kvb_core *core = &c->core;
    if (n > 0 && !accepted)
        return kvb_core_fail(core, -EINVAL, "accepted nodes must be given");
    int error = kvb_tree_nodes_check_path(&c->nodes, accepted, n, cache->why, sizeof cache->why);
    if (error)
        return error;
    if (n > core->options.seq_capacity || c->len > core->options.seq_capacity - n)
        return kvb_core_fail(core, -ENOSPC, "the sequence would pass its %u positions", core->options.seq_capacity);
    uint32_t in_place = 0;
    while (in_place < n && accepted[in_place] == in_place)
        in_place++;
    for (uint32_t i = in_place; i < n; i++)
        c->moves[i] = c->len + accepted[i];
    if (in_place < n)
        kvb_core_gather(core, c->len + in_place, c->moves + in_place, n - in_place);
    c->len += n;
    kvb_tree_nodes_cut(&c->nodes, 0);
    kvb_core_invalidate(core);
    return 0;
}

static uint32_t tree_pending(const kvb_cache *cache)
{
    return ((const tree_cache *)cache)->nodes.n;
}

/* ---- base ------------------------------------------------------------------------------------------- */

static uint32_t tree_length(const kvb_cache *cache)
{
    return ((const tree_cache *)cache)->len;
}

static int tree_clear(kvb_cache *cache)
{
    tree_cache *c = (tree_cache *)cache;
    c->len = 0;
    kvb_tree_nodes_cut(&c->nodes, 0);
    kvb_core_invalidate(&c->core);
    return 0;
}

static void tree_usage(const kvb_cache *cache, kvb_cache_usage *usage)
{
    const tree_cache *c = (const tree_cache *)cache;
    kvb_core_usage(&c->core, cells_live(c), usage);
}

static int tree_open(const kvb_cache_type *type, const kvb_model_facts *facts, const kvb_cache_options *options,
                     kvb_cache **cache, char *why, size_t why_bytes)
{
    kvb_core *core;
    int error = kvb_core_open(type, facts, options, options->capacity, &core, why, why_bytes);
    if (error)
        return error;
    kvb_tree_nodes_open(&((tree_cache *)core)->nodes, options->allocator);
    *cache = &core->cache;
    return 0;
}

static void tree_close(kvb_cache *cache)
{
    tree_cache *c = (tree_cache *)cache;
    kvb_tree_nodes_close(&c->nodes);
    kvb_free(c->core.options.allocator, c->moves, c->moves_room * sizeof *c->moves);
    kvb_core_close(&c->core);
}

static const kvb_base_face base_face = {
    .can_extend = tree_can_extend,
    .capacity = kvb_core_capacity,
    .length = tree_length,
    .clear = tree_clear,
    .begin_step = tree_begin_step,
    .usage = tree_usage,
};

static const kvb_tree_face tree_face = {
    .propose = tree_propose,
    .commit = tree_commit,
    .pending = tree_pending,
};

const kvb_cache_type kvb_cache_tree_nodes = {
    .name = "tree",
    .summary = "a committed prefix and the pending nodes of a speculative tree",
    .base = &base_face,
    .bytes = &kvb_core_bytes,
    .tree = &tree_face,
    .open = tree_open,
    .close = tree_close,
    .struct_bytes = sizeof(tree_cache),
};
