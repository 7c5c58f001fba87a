/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a head's rows lie, cell after cell: the rules of attend.h on views. Divisions are made only where a cell leaves the
 * block of the one before: cells mostly come in runs.
 */
#ifndef KVB_VECTOR_LOAD_PLACE_H
#define KVB_VECTOR_LOAD_PLACE_H

#include "kernels/attend.h"

/* Cells start .. start + n - 1 and what is known of them; `start` wraps, so that one comparison tells. */
typedef struct place_block {
    uint32_t start, n;
    uint32_t at;
} place_block;

typedef struct place {
    const kvb_view *view;
    const uint8_t *codes, *scales, *zeros, *recent; /* of the head; of the codes where there are none */
    place_block page;                               /* at: its first cell in storage */
    place_block window;                             /* at: its slot, or KVB_SLOT_NONE */
    place_block group;                              /* at: its number */
} place;

/* One row; scales and zeros mean nothing where the format has none. */
typedef struct place_row {
    const uint8_t *codes, *scales, *zeros;
    bool recent; /* codes are dim f16, in place of all these */
} place_row;

enum { PLACES = 64 }; /* rows found at a time */

/* A table's part for head h; without a table any address will do. */
static inline const uint8_t *place_head(const kvb_view *v, const void *table, uint32_t h, size_t stride)
{
    return table ? (const uint8_t *)table + h * stride : v->base;
}

static inline place place_open(const kvb_view *v, uint32_t h)
{
    return (place){
        .view = v,
        .codes = place_head(v, v->base, h, v->head_stride),
        .scales = place_head(v, v->scales, h, v->scale_head_stride),
        .zeros = place_head(v, v->zeros, h, v->zero_head_stride),
        .recent = place_head(v, v->recent, h, v->recent_head_stride),
    };
}

/* Does the block hold the cell? Else it becomes the one that does, with `at` its number. */
static inline bool place_turn(place_block *b, uint32_t cell, uint32_t n)
{
    if (cell - b->start < b->n)
        return true;
    *b = (place_block){.start = cell / n * n, .n = n, .at = cell / n};
    return false;
}

static inline uint32_t place_stored(place *p, uint32_t cell)
{
    const kvb_view *v = p->view;
    if (!place_turn(&p->page, cell, v->block_cells))
        p->page.at = v->block_table[p->page.at] * v->block_cells;
    return p->page.at + (cell - p->page.start);
}

/* Of formats with windows. Fields are stored one by one: a struct copied whole would wait for its parts. */
static inline void place_find(place *p, uint32_t cell, place_row *at)
{
    const kvb_view *v = p->view;
    const kvb_format *f = v->format;
    size_t group = cell;
    if (!place_turn(&p->window, cell, f->window_cells))
        p->window.at = v->recent_slot[p->window.at];
    at->recent = p->window.at != KVB_SLOT_NONE;
    if (at->recent) {
        at->codes = p->recent + p->window.at * v->recent_slot_stride +
                    (size_t)(cell - p->window.start) * v->dim * sizeof(uint16_t);
        return;
    }
    if (f->axis == KVB_AXIS_TOKENS) {
        place_turn(&p->group, cell, f->group);
        group = p->group.at;
    }
    at->codes = p->codes + cell * v->cell_stride;
    at->scales = p->scales + group * v->scale_cell_stride;
    at->zeros = p->zeros + group * v->zero_cell_stride;
}

static inline void places_find(place *p, const uint32_t *cells, uint32_t n, place_row *at)
{
    for (uint32_t i = 0; i < n; i++)
        place_find(p, p->view->block_table ? place_stored(p, cells[i]) : cells[i], at + i);
}

#endif
