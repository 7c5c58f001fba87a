/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/replay/pool_wrap.h"

static const kvb_pool_type *own_of(const kvb_pool_type *type)
{
    return ((const kvb_pool_wrap *)(const void *)type)->own;
}

/* Runs `call` on a pool of its own type. */
#define AS_OWN(pool, call)                                                                                             \
    do {                                                                                                               \
        const kvb_pool_type *outer = (pool)->type, *own = own_of(outer);                                               \
        (pool)->type = own;                                                                                            \
        call;                                                                                                          \
        (pool)->type = outer;                                                                                          \
    } while (0)

static bool pass_supports(const kvb_pool_type *type, uint32_t dim, char *why, size_t why_bytes)
{
    const kvb_pool_type *own = own_of(type);
    return !own->supports || own->supports(own, dim, why, why_bytes);
}

static double pass_row_bytes(const kvb_pool_type *type, uint32_t dim)
{
    return own_of(type)->row_bytes(own_of(type), dim);
}

static size_t pass_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells)
{
    return own_of(type)->bytes(own_of(type), options, cells);
}

static int pass_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    int error = own_of(type)->open(own_of(type), options, pool);
    if (!error)
        (*pool)->type = type;
    return error;
}

static void pass_close(kvb_pool *pool)
{
    pool->type = own_of(pool->type);
    pool->type->close(pool);
}

static int pass_ensure(kvb_pool *pool, uint32_t cells)
{
    int error;
    AS_OWN(pool, error = own->ensure(pool, cells));
    return error;
}

static void pass_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    AS_OWN(pool, own->write_run(pool, start, n, rows));
}

static void pass_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    AS_OWN(pool, own->scatter(pool, cells, n, rows));
}

static void pass_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    AS_OWN(pool, own->gather_into(pool, base, cells, n));
}

static void pass_view(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    kvb_pool *changed = (kvb_pool *)(uintptr_t)pool; /* and changed back */
    AS_OWN(changed, own->view(pool, cells, view));
}

static size_t pass_reserved(const kvb_pool *pool)
{
    kvb_pool *changed = (kvb_pool *)(uintptr_t)pool;
    size_t bytes;
    AS_OWN(changed, bytes = own->reserved(pool));
    return bytes;
}

static size_t pass_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n)
{
    kvb_pool *changed = (kvb_pool *)(uintptr_t)pool;
    size_t bytes;
    AS_OWN(changed, bytes = own->raw_bytes(pool, cells, n));
    return bytes;
}

static void pass_read_raw(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw)
{
    kvb_pool *changed = (kvb_pool *)(uintptr_t)pool;
    AS_OWN(changed, own->read_raw(pool, cells, n, raw));
}

static void pass_write_raw(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    AS_OWN(pool, own->write_raw(pool, cells, n, raw));
}

static bool pass_check_raw(const kvb_pool *pool, uint32_t n, const void *raw)
{
    kvb_pool *changed = (kvb_pool *)(uintptr_t)pool;
    bool right;
    AS_OWN(changed, right = !own->check_raw || own->check_raw(pool, n, raw));
    return right;
}

const kvb_pool_type kvb_pool_passing = {.supports = pass_supports,
                                        .row_bytes = pass_row_bytes,
                                        .bytes = pass_bytes,
                                        .open = pass_open,
                                        .close = pass_close,
                                        .ensure = pass_ensure,
                                        .write_run = pass_write_run,
                                        .scatter = pass_scatter,
                                        .gather_into = pass_gather_into,
                                        .view = pass_view,
                                        .reserved = pass_reserved,
                                        .raw_bytes = pass_raw_bytes,
                                        .read_raw = pass_read_raw,
                                        .write_raw = pass_write_raw,
                                        .check_raw = pass_check_raw};

kvb_pool_wrap kvb_pool_wrap_of(const kvb_pool_type *own)
{
    kvb_pool_wrap wrap = {.type = kvb_pool_passing, .own = own};
    wrap.type.name = own->name;
    wrap.type.summary = own->summary;
    wrap.type.format = own->format;
    wrap.type.rotated = own->rotated;
    if (!own->raw_bytes) {
        wrap.type.raw_bytes = NULL;
        wrap.type.read_raw = NULL;
        wrap.type.write_raw = NULL;
        wrap.type.check_raw = NULL;
    }
    return wrap;
}
