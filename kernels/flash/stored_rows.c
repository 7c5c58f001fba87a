/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of one side of a problem: used where they lie, or converted to floats in a tile. */
#include "kernels/convert.h"
#include "kernels/flash/flash.h"

#include <stdio.h>
#include <string.h>

/* Plain elements that fill whole vectors. An orthogonal transform does not change how they are read. */
static bool is_plain(const kvb_format *f, uint32_t dim)
{
    return kvb_elem_bytes(f->elem) && f->group == 0 && !f->head_scale && !f->residual_cells && dim % 16 == 0;
}

/* Small floats that dots() and sums() decode in registers. */
static bool is_fp8(const kvb_format *f, uint32_t dim, uint32_t values)
{
    return (f->elem == KVB_E4M3 || f->elem == KVB_E5M2) && f->group == 0 && !f->residual_cells && dim % FP8_DIM == 0 &&
           values % FP8_DIM == 0;
}

bool kvb_rows_fit(const kvb_format *f, const char *products, const char *reason, uint32_t step, uint32_t most,
                  uint32_t dim, char *why, size_t why_bytes)
{
    if (reason)
        snprintf(why, why_bytes, "%s: no %s: %s", f->name, products, reason);
    else if (!dim || dim > most || dim % step)
        snprintf(why, why_bytes, "%s: %s take rows of a multiple of %u channels, at most %u, not %u", f->name, products,
                 step, most, dim);
    else
        return true;
    return false;
}

bool kvb_side_tiled(const kvb_format *format, uint32_t dim)
{
    return !is_plain(format, dim);
}

bool kvb_side_in_place(const kvb_format *f, const kvb_vector *vector, uint32_t dim, uint32_t values)
{
    return is_plain(f, dim) || (is_fp8(f, dim, values) && vector->load_of(f));
}

void kvb_side_init(kvb_side *side, const kvb_vector *vector, const kvb_view *view, uint32_t values, uint32_t width)
{
    const kvb_format *f = view->format;
    const bool plain = is_plain(f, view->dim);
    *side = (kvb_side){.view = view, .width = width};
    if (!plain)
        side->load = vector->load_of(f);
    if (kvb_side_in_place(f, vector, view->dim, values)) {
        side->in_place = true;
        side->elem = f->elem;
        side->row_bytes = view->dim * (plain ? kvb_elem_bytes(f->elem) : 1);
    }
    if (side->in_place || side->load) { /* format->read does both itself */
        side->transform = f->transform;
        side->head_scaled = f->head_scale != KVB_STATIC_NONE;
    }
}

float kvb_side_factor(const kvb_side *side, uint32_t h)
{
    return side->head_scaled ? side->view->head_scales[h] : 1.0f;
}

void kvb_rows_in_place(const kvb_flash *f, const kvb_side *side, const kvb_row_group *g, const void **at)
{
    const kvb_view *v = side->view; /* as kvb_view_row(): a side has one region */
    f->loops->vector->rows_at((const char *)v->base + g->kv_head * v->head_stride, v->cell_stride, g->cell, g->n_cells,
                              g->neighbours, at);
}

kvb_stored_rows kvb_side_rows(const kvb_flash *f, const kvb_side *side, const kvb_row_group *g, const void **at,
                              bool found)
{
    if (!found)
        kvb_rows_in_place(f, side, g, at);
    return (kvb_stored_rows){.elem = side->view->format->elem,
                             .n = g->n_cells,
                             .dim = side->width,
                             .at = at,
                             .ahead = kvb_group_row_ahead(f, g, side),
                             .view = side->view,
                             .cells = g->cell,
                             .kv_head = g->kv_head};
}

void kvb_rows_in_tile(const kvb_side *side, const kvb_row_group *g, uint32_t c, uint32_t n, float *tile,
                      const void **at)
{
    const uint32_t dim = side->view->dim, padded = kvb_padded(dim);
    if (side->load)
        side->load(side->view, g->kv_head, g->cell + c, n, tile, padded);
    for (uint32_t i = 0; i < n; i++) {
        float *row = tile + (size_t)i * padded;
        if (!side->load) {
            kvb_rows_decode(side->view, g->kv_head, g->cell[c + i], 1, row);
            memset(row + dim, 0, (padded - dim) * sizeof *row);
        }
        at[i] = row;
    }
}
