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
    const uint8_t *codes, *scales, *zeros, *recent; /* of the head */
    place_block page;                               /* at: its first cell in storage */
    place_block window;                             /* at: its slot, or KVB_SLOT_NONE */
    place_block group;                              /* at: its number */
} place;

/* One row: NULL for what the format has not. */
typedef struct place_row {
    const uint8_t *codes, *scales, *zeros;
    const uint8_t *recent; /* f16 in place of all these */
} place_row;

static inline place place_open(const kvb_view *v, uint32_t h)
{
    const uint8_t *codes = v->base, *scales = v->scales, *zeros = v->zeros, *recent = v->recent;
    const kvb_format *f = v->format;
    return (place){
        .view = v,
        .codes = codes + h * v->head_stride,
        .scales = scales ? scales + h * v->scale_head_stride : NULL,
        .zeros = zeros ? zeros + h * v->zero_head_stride : NULL,
        .recent = recent ? recent + h * v->recent_head_stride : NULL,
        .page = {.n = 0},
        .window = {.n = 0},
        .group = {.n = f->axis == KVB_AXIS_TOKENS ? 0 : 1},
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

static inline place_row place_at(place *p, uint32_t cell)
{
    const kvb_view *v = p->view;
    const kvb_format *f = v->format;
    if (v->block_table) {
        if (!place_turn(&p->page, cell, v->block_cells))
            p->page.at = v->block_table[p->page.at] * v->block_cells;
        cell = p->page.at + (cell - p->page.start);
    }
    if (f->window_cells) {
        if (!place_turn(&p->window, cell, f->window_cells))
            p->window.at = v->recent_slot[p->window.at];
        if (p->window.at != KVB_SLOT_NONE)
            return (place_row){.recent = p->recent + p->window.at * v->recent_slot_stride +
                                         (size_t)(cell - p->window.start) * v->dim * sizeof(uint16_t)};
    }
    size_t group = cell;
    if (f->axis == KVB_AXIS_TOKENS) {
        place_turn(&p->group, cell, f->group);
        group = p->group.at;
    }
    return (place_row){.codes = p->codes + cell * v->cell_stride,
                       .scales = p->scales ? p->scales + group * v->scale_cell_stride : NULL,
                       .zeros = p->zeros ? p->zeros + group * v->zero_cell_stride : NULL};
}

#endif
