/* SPDX-License-Identifier: Apache-2.0 */
/* In place, loaded, or read by the format's own function. */
#include "kernels/flash/rows.h"
#include "kernels/convert.h"

#include <string.h>

/* Plain elements that fill whole vectors; an orthogonal transform does not change how they are read. */
static bool is_plain(const kvb_format *f, uint32_t dim)
{
    return kvb_elem_bytes(f->elem) && f->group == 0 && !f->head_scale && !f->window_cells && dim % 16 == 0;
}

/* Small floats that dots() and sums() decode in registers. */
static bool is_fp8(const kvb_format *f, uint32_t dim, uint32_t values)
{
    return (f->elem == KVB_E4M3 || f->elem == KVB_E5M2) && f->group == 0 && !f->window_cells && dim % FP8_DIM == 0 &&
           values % FP8_DIM == 0;
}

bool kvb_side_tiled(const kvb_format *format, uint32_t dim)
{
    return !is_plain(format, dim);
}

bool kvb_side_in_place(const kvb_format *f, const kvb_vector *vector, uint32_t dim, uint32_t values)
{
    return is_plain(f, dim) || (is_fp8(f, dim, values) && vector->load_of(f));
}

void kvb_side_init(kvb_side *side, const kvb_vector *vector, const kvb_view *view, uint32_t values)
{
    const kvb_format *f = view->format;
    const bool plain = is_plain(f, view->dim);
    *side = (kvb_side){.view = view, .width = kvb_padded(view->dim)};
    if (!plain)
        side->load = vector->load_of(f);
    if (kvb_side_in_place(f, vector, view->dim, values)) {
        side->in_place = true;
        side->elem = f->elem;
        side->row_bytes = view->dim * (plain ? kvb_elem_bytes(f->elem) : 1);
        side->stride = view->cell_stride;
    }
    if (side->in_place || side->load) {
        side->transform = f->transform;
        side->head_scaled = f->head_scale != KVB_STATIC_NONE;
    }
}

/* Through format->read, which undoes the transform and applies the head scale. */
static void rows_read(const kvb_side *side, uint32_t h, const uint32_t *cells, uint32_t n, float *tile)
{
    uint32_t dim = side->view->dim;
    for (uint32_t i = 0; i < n; i++) {
        float *row = tile + (size_t)i * side->width;
        kvb_rows_decode(side->view, h, cells[i], 1, row);
        memset(row + dim, 0, (side->width - dim) * sizeof *row);
    }
}

static void rows_find(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, const void **at)
{
    for (uint32_t i = 0; i < n; i++)
        at[i] = kvb_view_row(view, h, cells[i]);
}

void kvb_side_rows(const kvb_side *side, uint32_t h, const uint32_t *cells, uint32_t n, uint32_t ahead, bool again,
                   float *tile, const void **at)
{
    if (!tile && again && !side->view->block_table) {
        for (uint32_t i = 0; i < n; i++)
            at[i] = (const char *)at[i] + ahead * side->view->cell_stride;
        return;
    }
    if (!tile) {
        rows_find(side->view, h, cells, n, at);
        return;
    }
    if (side->load)
        side->load(side->view, h, cells, n, tile, side->width);
    else
        rows_read(side, h, cells, n, tile);
    for (uint32_t i = 0; i < n; i++)
        at[i] = tile + (size_t)i * side->width;
}

float kvb_side_factor(const kvb_side *side, uint32_t h)
{
    return side->head_scaled ? side->view->head_scales[h] : 1.0f;
}
