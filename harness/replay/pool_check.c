/* SPDX-License-Identifier: Apache-2.0 */
/* A pool's memory, against what it says of it. */
#include "harness/replay/pool_check.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/codec/codec.h"
#include "harness/replay/poison.h"
#include "workloads/array.h"
#include "workloads/rng.h"

#define CHUNK    8u  /* cells of the first growth */
#define CAPACITY 40u /* cells: no power of two times that */
#define FEW      5u  /* cells of a pool whose bytes are looked at */
#define REWRITES                                                                                                       \
    16u /* of a cell, each with values of another size: no byte of theirs keeps its value in all of them               \
         */

typedef struct pool_check {
    const kvb_pool_type *type;
    kvb_pool_options options;
    kvb_allocator allocator;
    kvb_pool *pool;
    char *why;
    size_t why_bytes;
} pool_check;

static int blame(pool_check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int blame(pool_check *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, c->why_bytes, format, args);
    va_end(args);
    return -EILSEQ;
}

/* ---- blocks that the pool has of its allocator ----------------------------------------------------------------- */

typedef struct block {
    unsigned char *at;
    size_t bytes;
} block;

static block *blocks; /* a memory source has no context */
static size_t n_blocks, blocks_room;

static void *block_take(const char *name, size_t bytes)
{
    if (kvb_array_reserve(&blocks, &blocks_room, n_blocks + 1, sizeof *blocks))
        return NULL;
    unsigned char *at = kvb_memory_take(NULL, name, bytes);
    if (at) {
        memset(at, 0, bytes);
        blocks[n_blocks++] = (block){at, bytes};
    }
    return at;
}

static void block_give(void *at, size_t bytes)
{
    size_t i = 0;
    (void)bytes;
    while (i < n_blocks && blocks[i].at != at)
        i++;
    if (i < n_blocks)
        blocks[i] = blocks[--n_blocks];
    kvb_memory_give(NULL, at, bytes);
}

static const kvb_memory_source blocks_source = {block_take, block_give};

/* The block in which all of the span lies, or NULL. */
static const block *block_of(const void *at, size_t bytes)
{
    const uintptr_t from = (uintptr_t)at;
    for (size_t i = 0; i < n_blocks; i++) {
        const uintptr_t first = (uintptr_t)blocks[i].at;
        if (from >= first && bytes <= blocks[i].bytes && from - first <= blocks[i].bytes - bytes)
            return &blocks[i];
    }
    return NULL;
}

/* ---- bytes() --------------------------------------------------------------------------------------------------- */

static int held_check(pool_check *c, uint32_t cells)
{
    const size_t says = c->type->bytes(c->type, &c->options, cells), holds = c->allocator.current_bytes;
    if (says == holds)
        return 0;
    return blame(c, "bytes() says %zu for %u cells of %u x %u, and the allocator holds %zu", says, cells,
                 c->options.n_kv_heads, c->options.dim, holds);
}

static int pool_ensure(pool_check *c, uint32_t cells)
{
    int error = c->type->ensure(c->pool, cells);
    return error == -ENOMEM ? error
           : error          ? blame(c, "ensure() returns %d for %u cells of %u", error, cells, c->options.capacity)
                            : held_check(c, cells);
}

static int pool_open(pool_check *c, kvb_growth growth, const kvb_memory_source *source)
{
    c->allocator = (kvb_allocator){.source = source};
    c->options.growth = growth;
    int error = c->type->open(c->type, &c->options, &c->pool);
    if (error)
        c->pool = NULL;
    return error && error != -ENOMEM ? blame(c, "open() returns %d", error) : error;
}

static int pool_close(pool_check *c)
{
    if (c->pool)
        c->type->close(c->pool);
    c->pool = NULL;
    return c->allocator.current_bytes
               ? blame(c, "close() leaves %zu bytes of the allocator", c->allocator.current_bytes)
               : 0;
}

static int growth_check(pool_check *c, kvb_growth growth)
{
    static const uint32_t cells[] = {1, CHUNK, CHUNK + 1, 3 * CHUNK, CAPACITY};
    int error = pool_open(c, growth, NULL);
    error = error ? error : held_check(c, 0);
    for (size_t i = 0; i < sizeof cells / sizeof *cells && !error; i++)
        error = pool_ensure(c, cells[i]);
    const double rows = c->type->row_bytes(c->type, c->options.dim) * c->options.n_kv_heads * CAPACITY;
    if (!error && !(rows <= (double)c->allocator.current_bytes))
        error = blame(
            c, "row_bytes() says %g for rows of %u, which makes %g for %u cells of %u, and the allocator holds %zu",
            c->type->row_bytes(c->type, c->options.dim), c->options.dim, rows, CAPACITY, c->options.n_kv_heads,
            c->allocator.current_bytes);
    int closed = pool_close(c);
    return error ? error : closed;
}

/* ---- row_bytes() ---------------------------------------------------------------------- */

/* Spans of rows. */
typedef struct span {
    const unsigned char *at;
    size_t bytes;
} span;

typedef struct spans {
    span *span;
    size_t n, room;
} spans;

static int span_note(void *ctx, const void *at, size_t bytes)
{
    spans *s = ctx;
    int error = bytes ? kvb_array_reserve(&s->span, &s->room, s->n + 1, sizeof *s->span) : 0;
    if (bytes && !error)
        s->span[s->n++] = (span){at, bytes};
    return error;
}

static int by_address(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* All rows lie in memory of the allocator, and none in another. */
static int rows_apart(pool_check *c, const kvb_view *view, size_t row)
{
    const uint64_t none = 0;
    spans all = {NULL, 0, 0};
    int error = kvb_hidden_walk(view, c->options.n_kv_heads, row, &none, span_note, &all);
    if (!error && all.n)
        qsort(all.span, all.n, sizeof *all.span, by_address);
    for (size_t i = 0; i < all.n && !error; i++) {
        const span *s = &all.span[i];
        if (!block_of(s->at, s->bytes))
            error = blame(c, "rows of %zu bytes by row_bytes(), pass the memory that it has of the allocator", row);
        else if (i + 1 < all.n && (size_t)(all.span[i + 1].at - s->at) < s->bytes)
            error = blame(c, "rows of %zu bytes by row_bytes(), lie in each other by the strides of view()", row);
    }
    free(all.span);
    return error;
}

/* Rewrites a cell, and marks each byte of the blocks that ever differs from `before`. */
static void cell_rewrite(pool_check *c, uint32_t cell, float *rows, const unsigned char *before, unsigned char *differs)
{
    const unsigned char mark = cell ? 2 : 1;
    const block *own = block_of(c->pool, sizeof *c->pool); /* its padding was never written */
    for (uint32_t i = 0; i < REWRITES; i++) {
        kvb_rng_normals(cell * REWRITES + i + 1, ldexp(1, 2 * (int)(i % 8) - 8), c->options.n_kv_heads * c->options.dim,
                        rows);
        c->type->scatter(c->pool, &cell, 1, rows);
        for (size_t b = 0, at = 0; b < n_blocks; at += blocks[b++].bytes)
            for (size_t j = 0; j < blocks[b].bytes && &blocks[b] != own; j++)
                differs[at + j] |= before[at + j] != blocks[b].at[j] ? mark : 0;
    }
}

/* Bytes that change with one cell alone, its own, are no more than row_bytes() says. What changes with another cell,
 * too, is working memory. */
static int cells_own(pool_check *c, float *rows, size_t row)
{
    const size_t says = row * c->options.n_kv_heads;
    size_t all = 0, own[2] = {0, 0};
    for (size_t b = 0; b < n_blocks; b++)
        all += blocks[b].bytes;
    unsigned char *before = malloc(all + 1), *differs = calloc(all + 1, 1);
    int error = before && differs ? 0 : -ENOMEM;
    for (size_t b = 0, at = 0; b < n_blocks && !error; at += blocks[b++].bytes)
        memcpy(before + at, blocks[b].at, blocks[b].bytes);
    for (uint32_t cell = 0; cell < FEW && !error; cell += FEW - 1)
        cell_rewrite(c, cell, rows, before, differs);
    for (size_t i = 0; i < all && !error; i++) {
        own[0] += differs[i] == 1;
        own[1] += differs[i] == 2;
    }
    for (int i = 0; i < 2 && !error; i++)
        if (own[i] > says)
            error = blame(
                c,
                "row_bytes() says %zu for rows of %u, which makes %zu for a cell, and scatter() changes %zu bytes "
                "of each cell's own",
                row, c->options.dim, says, own[i]);
    free(before);
    free(differs);
    return error;
}

static int rows_check(pool_check *c)
{
    const uint32_t floats = c->options.n_kv_heads * c->options.dim;
    const size_t row = (size_t)ceil(c->type->row_bytes(c->type, c->options.dim));
    float *rows = malloc(FEW * floats * sizeof *rows);
    n_blocks = 0;
    c->options.capacity = FEW;
    int error = rows ? pool_open(c, KVB_GROWTH_DOUBLE, &blocks_source) : -ENOMEM;
    error = error ? error : pool_ensure(c, FEW);
    if (!error) {
        kvb_rng_normals(0, 1, FEW * floats, rows);
        c->type->write_run(c->pool, 0, FEW, rows);
        kvb_view view;
        c->type->view(c->pool, FEW, &view);
        error = view.format->elem == KVB_OPAQUE ? rows_apart(c, &view, row) : 0;
    }
    error = error ? error : cells_own(c, rows, row);
    int closed = rows ? pool_close(c) : 0;
    free(rows);
    free(blocks);
    blocks = NULL;
    n_blocks = blocks_room = 0;
    return error ? error : closed;
}

static int pool_check_run(pool_check *c, kvb_growth growth)
{
    const kvb_format *f = c->type->format;
    int error = growth_check(c, growth);
    /* rows that share scales or wait for each other change together */
    return error || f->axis == KVB_AXIS_TOKENS || f->residual_cells ? error : rows_check(c);
}

int kvb_pools_check(const kvb_replay_options *o, char *why, size_t why_bytes)
{
    const kvb_model *m = &o->trace->header.model;
    int error = 0;
    for (uint32_t i = 0; i < 2 * m->n_groups && !error; i++) {
        const kvb_group *g = &m->groups[i / 2];
        const bool is_v = i % 2;
        const kvb_pool_type *type = is_v ? o->v_pool : o->k_pool;
        if (kvb_group_scans(g) || (is_v && g->latent))
            continue;
        pool_check c = {.type = type, .why = why, .why_bytes = why_bytes};
        c.options = (kvb_pool_options){.n_kv_heads = g->kv_heads,
                                       .dim = is_v ? g->v_dim : g->k_dim,
                                       .min_chunk = CHUNK,
                                       .capacity = CAPACITY,
                                       .allocator = &c.allocator};
        const int used = snprintf(why, why_bytes, "%s: ", type->name);
        c.why += (size_t)used < why_bytes ? (size_t)used : 0;
        c.why_bytes -= (size_t)used < why_bytes ? (size_t)used : 0;
        error = pool_check_run(&c, o->growth);
    }
    return error;
}
