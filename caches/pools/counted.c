/* SPDX-License-Identifier: Apache-2.0 */
/* A pool that takes no memory: the allocator counts the bytes that a pool of another type would take. */
#include "caches/pools/pool.h"

#include <errno.h>

typedef struct counted {
    kvb_pool pool;
    const kvb_pool_type *of;
    kvb_pool_options options;
    uint32_t cells; /* largest count so far */
    size_t bytes;   /* counted */
} counted;

static counted *counted_of(kvb_pool *pool)
{
    return (counted *)pool;
}

static int counted_ensure(kvb_pool *pool, uint32_t cells)
{
    counted *c = counted_of(pool);
    if (cells > c->options.capacity)
        return -ENOSPC;
    if (cells <= c->cells && c->bytes)
        return 0;
    const size_t bytes = c->of->bytes(c->of, &c->options, cells);
    if (!kvb_commit(c->options.allocator, bytes - c->bytes))
        return -ENOMEM;
    c->cells = cells;
    c->bytes = bytes;
    return 0;
}

static void counted_close(kvb_pool *pool)
{
    counted *c = counted_of(pool);
    kvb_unreserve(c->options.allocator, NULL, 0, c->bytes);
    kvb_memory_give(c->options.allocator->source, c, sizeof *c);
}

static size_t counted_reserved(const kvb_pool *pool)
{
    return ((const counted *)pool)->bytes;
}

/* ---- rows that do not exist: they can be moved and copied, and are never read ------------------------------------ */

static void counted_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    (void)pool, (void)base, (void)cells, (void)n;
}

static void counted_view(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    (void)pool, (void)cells;
    *view = (kvb_view){0};
}

static size_t counted_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n)
{
    const counted *c = (const counted *)pool;
    (void)cells;
    return n * (size_t)(c->of->row_bytes(c->of, c->options.dim) * c->options.n_kv_heads);
}

static void counted_read_raw(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw)
{
    (void)pool, (void)cells, (void)n, (void)raw;
}

static void counted_write_raw(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    (void)pool, (void)cells, (void)n, (void)raw;
}

static const kvb_pool_type counted_type = {.name = "counted",
                                           .close = counted_close,
                                           .ensure = counted_ensure,
                                           .gather_into = counted_gather_into,
                                           .view = counted_view,
                                           .reserved = counted_reserved,
                                           .raw_bytes = counted_raw_bytes,
                                           .read_raw = counted_read_raw,
                                           .write_raw = counted_write_raw};

int kvb_counted_open(const kvb_pool_type *of, const kvb_pool_options *options, kvb_pool **pool)
{
    counted *c = kvb_memory_take(options->allocator->source, "a counted pool", sizeof *c);
    if (!c)
        return -ENOMEM;
    *c = (counted){.pool.type = &counted_type, .of = of, .options = *options};
    if (counted_ensure(&c->pool, 0)) {
        kvb_memory_give(options->allocator->source, c, sizeof *c);
        return -ENOMEM;
    }
    *pool = &c->pool;
    return 0;
}
