/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Position shifts in a store: cells are noted with how far their tokens have moved, and their K rows are turned when
 * the next step begins. So shifts that follow each other are one turn by their sum, and rows are encoded once for all
 * of them.
 */
#include "caches/store_host.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CELLS_AT_ONCE 32u

bool kvb_turns_support(const kvb_model *model, const kvb_format *f, char *why, size_t why_bytes)
{
    const int unknown = kvb_model_unknown_rope(model);
    const char *lack = f->residual_cells       ? "rows are encoded together with others"
                       : f->elem == KVB_OPAQUE ? "the encoding is its own affair"
                                               : NULL;
    if (unknown >= 0)
        snprintf(why, why_bytes, "positions cannot be shifted: the rope of group %d is unknown", unknown);
    bool turns = false;
    for (uint32_t g = 0; g < model->n_groups; g++)
        turns = turns || model->groups[g].rope.dims;
    if (unknown < 0 && lack && turns)
        snprintf(why, why_bytes, "K rows of format '%s' cannot be turned to another position: %s", f->name, lack);
    return unknown < 0 && (!lack || !turns);
}

/* Floats of one cell's K rows. */
static size_t cell_floats(const kvb_store *s)
{
    return (size_t)s->group->kv_heads * s->group->k_dim;
}

/* Floats of a table of angles: cosines, then sines. */
static size_t table_floats(const kvb_store *s)
{
    return s->group->rope.dims;
}

int kvb_turns_reserve(kvb_store *s)
{
    /* Cells that a move reaches may get what is pending elsewhere. */
    size_t cells = 0, had = s->pending_room;
    for (size_t i = 0; i < s->n_turns; i++)
        cells = cells > s->turns[i].cell ? cells : (size_t)s->turns[i].cell + 1;
    for (size_t i = 0; i < s->n_moves && (s->n_turns || s->turns_pending); i++)
        for (int to = 0; to < 2; to++) {
            uint32_t cell = to ? s->moves[i].to : s->moves[i].from;
            cells = cells > cell ? cells : (size_t)cell + 1;
        }
    int error = cells ? kvb_grow(s->allocator, &s->pending, &s->pending_room, cells) : 0;
    if (s->pending_room > had)
        memset(s->pending + had, 0, (s->pending_room - had) * sizeof *s->pending);
    if (!error && s->n_turns && s->group->rope.dims)
        error = kvb_grow(s->allocator, &s->turned, &s->turned_room, CELLS_AT_ONCE * cell_floats(s) + table_floats(s));
    return error;
}

void kvb_turns_close(kvb_store *s)
{
    kvb_free(s->allocator, s->turns, s->turns_room * sizeof *s->turns);
    kvb_free(s->allocator, s->pending, s->pending_room * sizeof *s->pending);
    kvb_free(s->allocator, s->turned, s->turned_room * sizeof *s->turned);
}

void kvb_turns_adopt(kvb_store *s)
{
    for (size_t i = 0; i < s->n_turns && s->group->rope.dims; i++)
        s->pending[s->turns[i].cell] += s->turns[i].delta;
    s->turns_pending |= s->n_turns && s->group->rope.dims;
}

static void table_make(const kvb_rope *rope, int32_t delta, float *table)
{
    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        double angle = delta * pow(rope->base, -2.0 * i / rope->dims);
        table[i] = (float)cos(angle);
        table[rope->dims / 2 + i] = (float)sin(angle);
    }
}

/* One KV head's row, in the steps that cache.h states. */
static void row_turn(const kvb_rope *rope, const float *table, float *row)
{
    const uint32_t half = rope->dims / 2, apart = rope->neighbours ? 1 : half, step = rope->neighbours ? 2 : 1;
    for (uint32_t i = 0; i < half; i++) {
        float *a = row + rope->first + (size_t)step * i, *b = a + apart;
        float c = table[i], s = table[half + i], x = *a, y = *b;
        *a = x * c - y * s;
        *b = x * s + y * c;
    }
}

/* n cells of a pool, all by the same angles. */
static void cells_turn(const kvb_store *s, kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *table,
                       float *rows)
{
    const uint32_t heads = s->group->kv_heads, dim = s->group->k_dim;
    kvb_view view;
    pool->type->view(pool, cells[n - 1] + 1, &view); /* they ascend */
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < heads; h++) {
            float *row = rows + ((size_t)i * heads + h) * dim;
            view.format->read(&view, h, cells[i], 1, row);
            row_turn(&s->group->rope, table, row);
        }
    pool->type->scatter(pool, cells, n, rows);
}

void kvb_turns_make(kvb_store *s)
{
    uint32_t cells[CELLS_AT_ONCE];
    for (uint32_t begin = 0, end; begin < s->pending_room && s->turns_pending; begin = end) {
        const int32_t delta = s->pending[begin];
        uint32_t n = 0;
        for (end = begin; end < s->pending_room && n < CELLS_AT_ONCE && s->pending[end] == delta; end++)
            cells[n++] = end;
        if (delta == 0)
            continue;
        float *table = s->turned + CELLS_AT_ONCE * cell_floats(s);
        table_make(&s->group->rope, delta, table);
        for (size_t i = 0; i < s->n_pools; i += 2)
            if (s->pools[i])
                cells_turn(s, s->pools[i], cells, n, table, s->turned);
        memset(s->pending + begin, 0, (end - begin) * sizeof *s->pending);
    }
    s->turns_pending = false;
}
