/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen rows, which are filled once, and their references. */
#include "caches/front.h"

#include <errno.h>
#include <string.h>

#include "caches/store_host.h"

static size_t struct_bytes(size_t n_pools)
{
    return sizeof(kvb_front) + n_pools * (sizeof(kvb_pool *) + sizeof(kvb_view));
}

static void front_close(kvb_front *f)
{
    for (size_t i = 0; i < f->n_pools; i++)
        if (f->pools[i])
            f->pools[i]->type->close(f->pools[i]);
    kvb_free(f->allocator, f, struct_bytes(f->n_pools));
}

/* Notes the view of pool i, K or V of a layer. */
static void view_note(kvb_front *f, const kvb_store *s, size_t i)
{
    const kvb_pool *pool = f->pools[i];
    if (pool) {
        pool->type->view(pool, f->cells, &f->views[i]);
        f->reserved_bytes += pool->type->reserved(pool);
    } else if (i % 2 && f->pools[i - 1]) {
        f->views[i] = f->views[i - 1];
        f->views[i].dim = s->group->v_dim;
    }
}

int kvb_front_open(const kvb_store *s, uint32_t cells, kvb_allocator *a, kvb_front **front)
{
    kvb_front *f = kvb_alloc_zeroed(a, struct_bytes(s->n_pools));
    if (!f)
        return -ENOMEM;
    f->holders = 1;
    f->allocator = a;
    f->cells = cells;
    f->kv_heads = s->group->kv_heads;
    f->n_pools = s->n_pools;
    f->views = (kvb_view *)(f + 1);
    f->pools = (kvb_pool **)(f->views + f->n_pools);
    int error = 0;
    for (size_t i = 0; i < f->n_pools && !error; i++) {
        if (s->pools[i])
            error = kvb_store_pool_open(s, (uint32_t)(i / 2), i % 2, cells, cells, a, &f->pools[i]);
        if (!error && f->pools[i])
            error = f->pools[i]->type->ensure(f->pools[i], cells);
        if (!error)
            view_note(f, s, i);
    }
    if (error)
        front_close(f);
    else
        *front = f;
    return error;
}

size_t kvb_front_row_bytes(const kvb_store *s)
{
    size_t most = 0;
    for (size_t i = 0; i < s->n_pools; i++) {
        const size_t bytes = s->pools[i] ? s->pools[i]->type->raw_bytes(s->pools[i], &(uint32_t){0}, 1) : 0;
        most = most > bytes ? most : bytes;
    }
    return most;
}

void kvb_front_fill(kvb_front *f, uint32_t to, kvb_pool *const *pools, uint32_t from, uint32_t n, void *raw)
{
    for (size_t i = 0; i < f->n_pools; i++)
        for (uint32_t c = 0; c < n && pools[i]; c++) {
            pools[i]->type->read_raw(pools[i], &(uint32_t){from + c}, 1, raw);
            pools[i]->type->write_raw(f->pools[i], &(uint32_t){to + c}, 1, raw);
        }
}

kvb_front *kvb_front_hold(kvb_front *f)
{
    atomic_fetch_add(&f->holders, 1);
    return f;
}

void kvb_front_release(kvb_front *f)
{
    if (f && atomic_fetch_sub(&f->holders, 1) == 1)
        front_close(f);
}

bool kvb_front_fits(const kvb_front *f, const kvb_store *s)
{
    bool fits = f && f->n_pools == s->n_pools && f->kv_heads == s->group->kv_heads;
    for (size_t i = 0; i < s->n_pools && fits; i++) {
        kvb_view own;
        fits = !f->pools[i] == !s->pools[i];
        if (!fits || !s->pools[i])
            continue;
        s->pools[i]->type->view(s->pools[i], 0, &own);
        fits = f->pools[i]->type == s->pools[i]->type && f->views[i].dim == own.dim &&
               (!own.head_scales ||
                !memcmp(own.head_scales, f->views[i].head_scales, f->kv_heads * sizeof *own.head_scales));
    }
    return fits;
}

kvb_frozen *kvb_frozen_open(kvb_allocator *a, uint32_t n, uint32_t n_groups)
{
    kvb_frozen *p = kvb_alloc_zeroed(a, sizeof *p);
    if (p)
        *p = (kvb_frozen){.holders = 1, .allocator = a, .n = n, .n_groups = n_groups};
    return p;
}

void kvb_frozen_release(kvb_frozen *p)
{
    if (!p || atomic_fetch_sub(&p->holders, 1) != 1)
        return;
    for (uint32_t g = 0; g < p->n_groups; g++)
        kvb_front_release(p->front[g]);
    kvb_free(p->allocator, p, sizeof *p);
}

kvb_frozen *kvb_frozen_hold(kvb_frozen *p)
{
    atomic_fetch_add(&p->holders, 1);
    return p;
}

uint32_t kvb_frozen_length(const kvb_frozen *p)
{
    return p->n;
}
