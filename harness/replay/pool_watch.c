/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of a pool, recorded and passed on. */
#include "harness/replay/pool_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "workloads/array.h"
#include "workloads/files.h"

static const kvb_pool_type *own_of(const kvb_pool_type *type)
{
    return ((const kvb_pool_wrap *)(const void *)type)->own;
}

/* Runs `call` while the pool has its own type; the pool may be const, as its type is changed back. */
#define AS_OWN(pool, call)                                                                                             \
    do {                                                                                                               \
        kvb_pool *changed = (kvb_pool *)(uintptr_t)(pool);                                                             \
        const kvb_pool_type *outer = changed->type, *own = own_of(outer);                                              \
        changed->type = own;                                                                                           \
        call;                                                                                                          \
        changed->type = outer;                                                                                         \
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
    AS_OWN(pool, own->view(pool, cells, view));
}

static size_t pass_reserved(const kvb_pool *pool)
{
    size_t bytes;
    AS_OWN(pool, bytes = own->reserved(pool));
    return bytes;
}

static size_t pass_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n)
{
    size_t bytes;
    AS_OWN(pool, bytes = own->raw_bytes(pool, cells, n));
    return bytes;
}

static void pass_read_raw(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw)
{
    AS_OWN(pool, own->read_raw(pool, cells, n, raw));
}

static void pass_write_raw(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    AS_OWN(pool, own->write_raw(pool, cells, n, raw));
}

static bool pass_check_raw(const kvb_pool *pool, uint32_t n, const void *raw)
{
    bool right;
    AS_OWN(pool, right = !own->check_raw || own->check_raw(pool, n, raw));
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

/* The type in place of a pool type. */
typedef struct watched_type {
    kvb_pool_wrap wrap;
    kvb_pool_watch *watch;
    bool is_v;
} watched_type;

/* A pool. known: a write has told its layer. */
typedef struct watched {
    const kvb_pool *pool; /* NULL: closed. A cache that is opened again opens its pools in the same order. */
    bool is_v, known;
    uint32_t layer;   /* if known */
    uint32_t written; /* rows since the last tell */
} watched;

/* One call of a verb: cells first .. first+n-1 of the list. */
typedef struct note {
    size_t pool, first;
    uint32_t n, base;
    bool moves; /* the cells move to base, base + 1, …; else they are written */
} note;

struct kvb_pool_watch {
    watched_type types[2];
    const volatile uint32_t *layer;
    watched *pools;
    note *notes;
    uint32_t *cells;
    size_t n_pools, room_pools, n_notes, room_notes, n_cells, room_cells;
    bool no_memory;
};

static const watched_type *type_of(const kvb_pool_type *type)
{
    return (const watched_type *)(const void *)type;
}

/* Records a call. cells NULL: base, base + 1, … */
static void note_add(kvb_pool *pool, bool moves, uint32_t base, const uint32_t *cells, uint32_t n)
{
    kvb_pool_watch *w = type_of(pool->type)->watch;
    size_t at = 0;
    while (at < w->n_pools && w->pools[at].pool != pool)
        at++;
    w->no_memory |= at == w->n_pools ||
                    kvb_array_reserve(&w->notes, &w->room_notes, w->n_notes + 1, sizeof *w->notes) ||
                    kvb_array_reserve(&w->cells, &w->room_cells, w->n_cells + n, sizeof *w->cells);
    if (w->no_memory)
        return;
    watched *of = &w->pools[at];
    if (!moves && !of->known) {
        of->known = true;
        of->layer = *w->layer;
    }
    w->notes[w->n_notes++] = (note){.pool = at, .first = w->n_cells, .n = n, .base = base, .moves = moves};
    for (uint32_t i = 0; i < n; i++)
        w->cells[w->n_cells++] = cells ? cells[i] : base + i;
}

/* ---- verbs ------------------------------------------------------------------------------------------------------ */

static int watched_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    const watched_type *t = type_of(type);
    kvb_pool_watch *w = t->watch;
    size_t at = 0;
    while (at < w->n_pools && (w->pools[at].pool || w->pools[at].is_v != t->is_v))
        at++;
    if (at == w->n_pools && kvb_array_reserve(&w->pools, &w->room_pools, at + 1, sizeof *w->pools))
        return -ENOMEM;
    int error = kvb_pool_passing.open(type, options, pool);
    if (!error && at == w->n_pools)
        w->pools[w->n_pools++] = (watched){.is_v = t->is_v};
    if (!error)
        w->pools[at].pool = *pool;
    return error;
}

static void watched_close(kvb_pool *pool)
{
    const kvb_pool_watch *w = type_of(pool->type)->watch;
    for (size_t i = 0; i < w->n_pools; i++)
        if (w->pools[i].pool == pool)
            w->pools[i].pool = NULL;
    kvb_pool_passing.close(pool);
}

static void watched_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    note_add(pool, false, start, NULL, n);
    kvb_pool_passing.write_run(pool, start, n, rows);
}

static void watched_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    note_add(pool, false, 0, cells, n);
    kvb_pool_passing.scatter(pool, cells, n, rows);
}

static void watched_gather(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    note_add(pool, true, base, cells, n);
    kvb_pool_passing.gather_into(pool, base, cells, n);
}

/* ---- the watch -------------------------------------------------------------------------------------------------- */

int kvb_pool_watch_open(const kvb_pool_type *k, const kvb_pool_type *v, const volatile uint32_t *layer,
                        kvb_pool_watch **watch)
{
    kvb_pool_watch *w = calloc(1, sizeof *w);
    *watch = w;
    if (!w)
        return -ENOMEM;
    w->layer = layer;
    for (int is_v = 0; is_v < 2; is_v++) {
        kvb_pool_wrap wrap = kvb_pool_wrap_of(is_v ? v : k);
        wrap.type.open = watched_open;
        wrap.type.close = watched_close;
        wrap.type.write_run = watched_write_run;
        wrap.type.scatter = watched_scatter;
        wrap.type.gather_into = watched_gather;
        w->types[is_v] = (watched_type){.wrap = wrap, .watch = w, .is_v = is_v};
    }
    return 0;
}

void kvb_pool_watch_free(kvb_pool_watch *w)
{
    if (!w)
        return;
    free(w->pools);
    free(w->notes);
    free(w->cells);
    free(w);
}

const kvb_pool_type *kvb_pool_watch_type(const kvb_pool_watch *watch, bool is_v)
{
    return &watch->types[is_v].wrap.type;
}

static int note_tell(kvb_pool_watch *w, const note *one, kvb_window *window, const uint64_t *tokens, uint32_t n)
{
    watched *pool = &w->pools[one->pool];
    const uint32_t *cells = w->cells + one->first;
    if (one->moves)
        return pool->known ? kvb_window_move(window, pool->layer, pool->is_v, one->base, cells, one->n) : 0;
    pool->written += one->n;
    return pool->written > n
               ? -EILSEQ
               : kvb_window_write(window, pool->layer, pool->is_v, cells, one->n, tokens + pool->written - one->n);
}

int kvb_pool_watch_tell(kvb_pool_watch *w, kvb_window *window, const uint64_t *tokens, uint32_t n, char *why,
                        size_t why_bytes)
{
    int error = w->no_memory ? -ENOMEM : 0;
    for (size_t i = 0; i < w->n_notes && !error; i++)
        error = note_tell(w, &w->notes[i], window, tokens, n);
    for (size_t i = 0; i < w->n_pools; i++) {
        watched *pool = &w->pools[i];
        bool is_whole = pool->written == n || !pool->known || pool->layer != *w->layer;
        error = error || is_whole ? error : -EILSEQ;
        pool->written = 0;
    }
    w->n_notes = w->n_cells = 0;
    return kvb_why_set(error, why, why_bytes, "%s",
                       error == -EILSEQ ? "the rows that reached the pools are not those that were fed" : "");
}
