/* SPDX-License-Identifier: Apache-2.0 */
/* contiguous: one growing sequence; position p lies in cell p. */
#include "caches/core.h"

#include <errno.h>

typedef struct contiguous_cache {
    kvb_core core;
    uint32_t len; /* tokens = cells in use */
} contiguous_cache;

static uint32_t most_tokens(const contiguous_cache *c)
{
    const kvb_cache_options *o = &c->core.options;
    return o->capacity < o->seq_capacity ? o->capacity : o->seq_capacity;
}

static bool contiguous_can_extend(const kvb_cache *cache, uint32_t n)
{
    const contiguous_cache *c = (const contiguous_cache *)cache;
    return n <= most_tokens(c) - c->len;
}

static uint32_t contiguous_length(const kvb_cache *cache)
{
    return ((const contiguous_cache *)cache)->len;
}

static int contiguous_begin_step(kvb_cache *cache, uint32_t n)
{
    contiguous_cache *c = (contiguous_cache *)cache;
    kvb_core *core = &c->core;
    if (n == 0)
        return kvb_core_fail(core, -EINVAL, "a step needs at least one token");
    if (!contiguous_can_extend(cache, n))
        return kvb_core_fail(core, -ENOSPC, "no room for %u tokens: %u of %u are in use", n, c->len, most_tokens(c));
    if (kvb_plan_start(&core->next, n))
        return kvb_core_fail(core, -ENOMEM, "no memory for a plan of %u tokens", n);
    for (uint32_t i = 0; i < n; i++)
        core->next.cells[i] = core->next.positions[i] = c->len + i;
    kvb_core_feed_new(core, n);
    kvb_plan_cells_finish(&core->next);
    kvb_plan_mask_dense(&core->next, c->len + n);
    int error = kvb_core_ensure(core, c->len + n);
    if (error)
        return error;
    c->len += n;
    kvb_core_adopt(core, n, c->len, c->len);
    return 0;
}

static int contiguous_rewind(kvb_cache *cache, uint32_t len)
{
    contiguous_cache *c = (contiguous_cache *)cache;
    if (len > c->len)
        return kvb_core_fail(&c->core, -EINVAL, "cannot rewind to %u: the length is %u", len, c->len);
    c->len = len;
    kvb_core_invalidate(&c->core);
    return 0;
}

static int contiguous_clear(kvb_cache *cache)
{
    return contiguous_rewind(cache, 0);
}

static void contiguous_usage(const kvb_cache *cache, kvb_cache_usage *usage)
{
    const contiguous_cache *c = (const contiguous_cache *)cache;
    kvb_core_usage(&c->core, c->len, usage);
}

static int contiguous_open(const kvb_cache_type *type, const kvb_model_facts *facts, const kvb_cache_options *options,
                           kvb_cache **cache, char *why, size_t why_bytes)
{
    kvb_core *core;
    int error = kvb_core_open(type, facts, options, options->capacity, &core, why, why_bytes);
    if (!error)
        *cache = &core->cache;
    return error;
}

static void contiguous_close(kvb_cache *cache)
{
    kvb_core_close((kvb_core *)cache);
}

static const kvb_base_face base_face = {
    .can_extend = contiguous_can_extend,
    .capacity = kvb_core_capacity,
    .length = contiguous_length,
    .clear = contiguous_clear,
    .begin_step = contiguous_begin_step,
    .usage = contiguous_usage,
};

static const kvb_contiguous_face contiguous_face = {.rewind = contiguous_rewind};

const kvb_cache_type kvb_cache_contig = {
    .name = "contiguous",
    .summary = "one growing sequence that can be cut back",
    .base = &base_face,
    .bytes = &kvb_core_bytes,
    .contiguous = &contiguous_face,
    .open = contiguous_open,
    .close = contiguous_close,
    .struct_bytes = sizeof(contiguous_cache),
};
