/* SPDX-License-Identifier: Apache-2.0 */
/* What the built-in caches have in common: opening, pools of all layers, plans, the byte face. */
#include "caches/core.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- opening and closing ------------------------------------------------------------------------- */

static int options_check(const kvb_model_facts *f, const kvb_cache_options *o, uint64_t pool_cells, char *why,
                         size_t why_bytes)
{
    const struct {
        bool good;
        const char *what;
    } checks[] = {
        {f->layers > 0, "layers must be at least 1"},
        {f->kv_heads > 0, "kv_heads must be at least 1"},
        {f->k_dim > 0 && f->v_dim > 0, "k_dim and v_dim must be at least 1"},
        {o->capacity > 0, "capacity must be at least 1 cell"},
        {o->seq_capacity > 0, "seq_capacity must be at least 1 token"},
        {o->max_seqs > 0 && o->max_seqs <= KVB_MAX_SEQS, "max_seqs must be 1 .. 64"},
        {o->min_chunk > 0, "min_chunk must be at least 1 cell"},
        {o->k_pool && o->v_pool && o->allocator, "both pools and an allocator must be given"},
        {pool_cells <= UINT32_MAX, "more cells than can be numbered"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].good)
            continue;
        snprintf(why, why_bytes, "%s", checks[i].what);
        return -EINVAL;
    }
    if ((o->k_pool->supports && !o->k_pool->supports(o->k_pool, f->k_dim, why, why_bytes)) ||
        (o->v_pool->supports && !o->v_pool->supports(o->v_pool, f->v_dim, why, why_bytes)))
        return -ENOTSUP;
    return 0;
}

static int pools_open(kvb_core *core, uint32_t pool_cells)
{
    const kvb_cache_options *o = &core->options;
    size_t n = 2 * (size_t)core->facts.layers;
    core->pools = kvb_alloc(o->allocator, n * sizeof *core->pools);
    if (!core->pools)
        return -ENOMEM;
    memset(core->pools, 0, n * sizeof *core->pools);
    for (size_t i = 0; i < n; i++) {
        const kvb_pool_type *type = i % 2 ? o->v_pool : o->k_pool;
        const float *amax = i % 2 ? o->v_amax : o->k_amax;
        kvb_pool_options options = {
            .n_kv_heads = core->facts.kv_heads,
            .dim = i % 2 ? core->facts.v_dim : core->facts.k_dim,
            .min_chunk = o->min_chunk < pool_cells ? o->min_chunk : pool_cells,
            .capacity = pool_cells,
            .growth = o->growth,
            .amax = amax ? amax + i / 2 * core->facts.kv_heads : NULL,
            .allocator = o->allocator,
        };
        int error = type->open(type, &options, &core->pools[i]);
        if (error)
            return error;
    }
    return 0;
}

int kvb_core_open(const kvb_cache_type *type, const kvb_model_facts *facts, const kvb_cache_options *options,
                  uint64_t pool_cells, kvb_core **core_out, char *why, size_t why_bytes)
{
    int error = options_check(facts, options, pool_cells, why, why_bytes);
    if (error)
        return error;
    kvb_core *core = kvb_alloc(options->allocator, type->struct_bytes);
    if (!core) {
        snprintf(why, why_bytes, "no memory for the cache");
        return -ENOMEM;
    }
    memset(core, 0, type->struct_bytes);
    core->cache.type = type;
    core->facts = *facts;
    core->options = *options;
    kvb_plan_open(&core->plan, options->allocator);
    kvb_plan_open(&core->next, options->allocator);
    error = pools_open(core, (uint32_t)pool_cells);
    if (error) {
        snprintf(why, why_bytes, "cannot open the pools: %s", strerror(-error));
        kvb_core_close(core);
        return error;
    }
    *core_out = core;
    return 0;
}

void kvb_core_close(kvb_core *core)
{
    kvb_allocator *a = core->options.allocator;
    size_t n = 2 * (size_t)core->facts.layers;
    for (size_t i = 0; core->pools && i < n; i++)
        if (core->pools[i])
            core->pools[i]->type->close(core->pools[i]);
    kvb_free(a, core->pools, core->pools ? n * sizeof *core->pools : 0);
    kvb_plan_close(&core->plan);
    kvb_plan_close(&core->next);
    kvb_free(a, core, core->cache.type->struct_bytes);
}

int kvb_core_fail(kvb_core *core, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(core->cache.why, sizeof core->cache.why, format, args);
    va_end(args);
    return error;
}

/* ---- plans ----------------------------------------------------------------------------------------- */

int kvb_core_ensure(kvb_core *core, uint32_t cells)
{
    for (size_t i = 0; i < 2 * (size_t)core->facts.layers; i++) {
        int error = core->pools[i]->type->ensure(core->pools[i], cells);
        if (error)
            return kvb_core_fail(core, error, "the pools cannot grow to %u cells: %s", cells, strerror(-error));
    }
    return 0;
}

void kvb_core_note(kvb_core *core, uint32_t live, uint32_t high_water)
{
    if (core->cells_peak < live)
        core->cells_peak = live;
    if (core->high_water < high_water)
        core->high_water = high_water;
}

void kvb_core_adopt(kvb_core *core, uint32_t n_new, uint32_t live, uint32_t high_water)
{
    kvb_plan old = core->plan;
    core->plan = core->next;
    core->next = old;
    core->plan.valid = true;
    core->next_ordinal += n_new;
    kvb_core_note(core, live, high_water);
}

void kvb_core_invalidate(kvb_core *core)
{
    core->plan.valid = false;
}

void kvb_core_gather(kvb_core *core, uint32_t base, const uint32_t *cells, uint32_t n)
{
    if (n == 0)
        return;
    for (size_t i = 0; i < 2 * (size_t)core->facts.layers; i++)
        core->pools[i]->type->gather_into(core->pools[i], base, cells, n);
    core->cells_moved += n;
}

void kvb_core_feed_new(kvb_core *core, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        core->next.ordinals[i] = core->next_ordinal + i;
}

/* ---- faces ----------------------------------------------------------------------------------------- */

static uint32_t core_feed(const kvb_cache *cache, const uint64_t **ordinals)
{
    const kvb_core *core = (const kvb_core *)cache;
    if (!core->plan.valid)
        return 0;
    *ordinals = core->plan.ordinals;
    return core->plan.n;
}

static int call_check(kvb_core *core, uint32_t layer, const uint32_t *positions, uint32_t n_tok)
{
    const kvb_plan *plan = &core->plan;
    if (!plan->valid)
        return kvb_core_fail(core, -EINVAL, "no plan is in force: begin a step first");
    if (layer >= core->facts.layers)
        return kvb_core_fail(core, -EINVAL, "layer %u is out of range: there are %u", layer, core->facts.layers);
    if (n_tok != plan->n)
        return kvb_core_fail(core, -EINVAL, "%u tokens were handed in, the plan feeds %u", n_tok, plan->n);
    for (uint32_t i = 0; i < n_tok; i++)
        if (positions[i] != plan->positions[i])
            return kvb_core_fail(core, -EINVAL, "token %u has position %u, the plan says %u", i, positions[i],
                                 plan->positions[i]);
    return 0;
}

static void pool_store(kvb_pool *pool, const kvb_plan *plan, const float *rows)
{
    if (plan->is_run)
        pool->type->write_run(pool, plan->cells[0], plan->n, rows);
    else
        pool->type->scatter(pool, plan->cells, plan->n, rows);
}

static int core_update_and_fetch(kvb_cache *cache, uint32_t layer, const uint32_t *positions, const float *k,
                                 const float *v, uint32_t n_tok, kvb_attend_spec *spec)
{
    kvb_core *core = (kvb_core *)cache;
    if (!positions || !k || !v || !spec)
        return kvb_core_fail(core, -EINVAL, "positions, rows and a spec must be given");
    int error = call_check(core, layer, positions, n_tok);
    if (error)
        return error;
    kvb_pool *k_pool = core->pools[2 * (size_t)layer], *v_pool = core->pools[2 * (size_t)layer + 1];
    pool_store(k_pool, &core->plan, k);
    pool_store(v_pool, &core->plan, v);
    if (!core->plan.stored)
        core->cells_written += n_tok;
    core->plan.stored = true;
    memset(spec, 0, sizeof *spec);
    k_pool->type->view(k_pool, core->plan.window, &spec->k);
    v_pool->type->view(v_pool, core->plan.window, &spec->v);
    spec->mask = kvb_plan_mask(&core->plan);
    return 0;
}

const kvb_byte_face kvb_core_bytes = {
    .feed = core_feed,
    .update_and_fetch = core_update_and_fetch,
};

uint32_t kvb_core_capacity(const kvb_cache *cache)
{
    return ((const kvb_core *)cache)->options.capacity;
}

void kvb_core_usage(const kvb_core *core, uint32_t live, kvb_cache_usage *usage)
{
    *usage = (kvb_cache_usage){
        .cells_live = live,
        .cells_peak = core->cells_peak,
        .high_water = core->high_water,
        .cells_written = core->cells_written,
        .cells_moved = core->cells_moved,
    };
    for (size_t i = 0; i < 2 * (size_t)core->facts.layers; i++) {
        const kvb_pool *pool = core->pools[i];
        usage->reserved_bytes += pool->type->reserved(pool);
        usage->growths += pool->growths;
        usage->copied_bytes += pool->copied_bytes;
        usage->copy_ns += pool->copy_ns;
    }
}
