/* SPDX-License-Identifier: Apache-2.0 */
/* Storage of plain float rows: growth, addressing, writing, moving. The encoding comes from the kind. */
#include "caches/pools/float_rows.h"
#include "caches/pools/growth.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

typedef struct rows {
    kvb_pool pool;
    const kvb_float_rows *kind;
    kvb_pool_options options;
    uint32_t usable; /* cells last ensured */
    uint32_t held;   /* cells reserved */
    size_t row_bytes;
    char *base; /* [n_kv_heads][held][row_bytes] */
} rows;

static rows *rows_of(kvb_pool *pool)
{
    return (rows *)(void *)pool;
}

static const rows *const_rows_of(const kvb_pool *pool)
{
    return (const rows *)(const void *)pool;
}

static size_t storage_bytes(const rows *r, uint32_t cells)
{
    return (size_t)r->options.n_kv_heads * cells * r->row_bytes;
}

static char *row_at(const rows *r, uint32_t h, uint32_t cell)
{
    return r->base + ((size_t)h * r->held + cell) * r->row_bytes;
}

int kvb_float_rows_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    const kvb_float_rows *kind = (const kvb_float_rows *)(const void *)type;
    rows *r;

    assert(options->n_kv_heads && options->dim && options->min_chunk && options->allocator);
    r = kvb_alloc(options->allocator, sizeof *r);
    if (!r)
        return -ENOMEM;
    *r = (rows){
        .pool.type = type,
        .kind = kind,
        .options = *options,
        .row_bytes = options->dim * kind->elem_bytes,
    };
    *pool = &r->pool;
    return 0;
}

void kvb_float_rows_close(kvb_pool *pool)
{
    rows *r = rows_of(pool);
    kvb_allocator *a = r->options.allocator;

    kvb_free(a, r->base, storage_bytes(r, r->held));
    kvb_free(a, r, sizeof *r);
}

/* A fresh block and not kvb_realloc: each head's rows move to another place in it. */
static int grow(rows *r, uint32_t held)
{
    kvb_allocator *a = r->options.allocator;
    char *base = kvb_alloc(a, storage_bytes(r, held));

    if (!base)
        return -ENOMEM;
    for (uint32_t h = 0; h < r->options.n_kv_heads && r->usable; h++)
        memcpy(base + (size_t)h * held * r->row_bytes, row_at(r, h, 0), r->usable * r->row_bytes);
    kvb_free(a, r->base, storage_bytes(r, r->held));
    r->base = base;
    r->held = held;
    return 0;
}

int kvb_float_rows_ensure(kvb_pool *pool, uint32_t cells)
{
    rows *r = rows_of(pool);
    int rc = 0;

    if (cells > r->options.capacity)
        return -ENOSPC;
    if (cells > r->held)
        rc = grow(r, kvb_growth_double(r->held, cells, r->options.min_chunk, r->options.capacity));
    /* Never lowered: rows above a lower count must survive a later growth. */
    if (rc == 0 && cells > r->usable)
        r->usable = cells;
    return rc;
}

void kvb_float_rows_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *src)
{
    rows *r = rows_of(pool);
    uint32_t heads = r->options.n_kv_heads, dim = r->options.dim;

    assert(start <= r->usable && n <= r->usable - start);
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < n; i++)
            r->kind->encode(row_at(r, h, start + i), src + ((size_t)i * heads + h) * dim, dim);
}

void kvb_float_rows_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *src)
{
    for (uint32_t i = 0; i < n; i++)
        kvb_float_rows_write_run(pool, cells[i], 1,
                                 src + (size_t)i * rows_of(pool)->options.n_kv_heads * rows_of(pool)->options.dim);
}

void kvb_float_rows_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    rows *r = rows_of(pool);

    assert(base <= r->usable && n <= r->usable - base);
    for (uint32_t h = 0; h < r->options.n_kv_heads; h++)
        for (uint32_t i = 0; i < n; i++) {
            assert(cells[i] < r->usable);
            if (cells[i] != base + i)
                memcpy(row_at(r, h, base + i), row_at(r, h, cells[i]), r->row_bytes);
        }
}

void kvb_float_rows_view(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    const rows *r = const_rows_of(pool);

    assert(cells <= r->usable);
    *view = (kvb_view){
        .base = r->base,
        .head_stride = r->held * r->row_bytes,
        .cell_stride = r->row_bytes,
        .cells = cells,
        .dim = r->options.dim,
        .format = pool->type->format,
    };
}

size_t kvb_float_rows_reserved(const kvb_pool *pool)
{
    const rows *r = const_rows_of(pool);
    return storage_bytes(r, r->held);
}
