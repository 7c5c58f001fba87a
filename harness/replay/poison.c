/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes are saved span by span, neighbours as one, and restored last first: places that overlap come back right. */
#include "harness/replay/poison.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "caches/pools/codec/codec.h"
#include "workloads/array.h"

#define FILL 0xff

typedef struct kvb_poison_span {
    char *at;
    size_t bytes;
} span;

static int span_fill(void *ctx, const void *at, size_t bytes)
{
    kvb_poison *p = ctx;
    char *to = (char *)(uintptr_t)at;
    if (kvb_array_reserve(&p->saved, &p->saved_room, p->n_saved + bytes, 1) ||
        kvb_array_reserve(&p->spans, &p->spans_room, p->n_spans + 1, sizeof *p->spans))
        return -ENOMEM;
    span *last = p->n_spans ? &p->spans[p->n_spans - 1] : NULL;
    memcpy(p->saved + p->n_saved, to, bytes);
    memset(to, FILL, bytes);
    p->n_saved += bytes;
    if (last && last->at + last->bytes == to)
        last->bytes += bytes;
    else
        p->spans[p->n_spans++] = (span){to, bytes};
    return 0;
}

void kvb_poison_restore(kvb_poison *p)
{
    for (; p->n_spans; p->n_spans--) {
        const span *last = &p->spans[p->n_spans - 1];
        p->n_saved -= last->bytes;
        memcpy(last->at, p->saved + p->n_saved, last->bytes);
    }
}

static bool bit(const uint64_t *bits, uint32_t c)
{
    return bits[c / 64] >> (c % 64) & 1;
}

/* ---- what belongs to them ---------------------------------------------------------------------------------------- */

/* Whose spans are taken, and by what. */
typedef struct walk {
    uint32_t n_kv_heads;
    size_t row_bytes;
    const uint64_t *visible;
    kvb_span_take *take;
    void *ctx;
} walk;

/* Entries of `bytes`, one for each `cells` neighbouring cells. */
typedef struct table {
    const void *base;
    size_t head_stride, stride, bytes;
    uint32_t cells;
} table;

/* Of a region of a view, whose first cell is `first` to the mask. */
static int table_walk(const walk *w, const kvb_view *v, uint32_t first, const table *t)
{
    int error = 0;
    for (uint32_t h = 0; h < w->n_kv_heads && t->base && !error; h++)
        for (uint32_t c = 0; c < v->cells && !error; c += t->cells) {
            uint32_t end = v->cells - c < t->cells ? v->cells : c + t->cells, hidden = c;
            while (hidden < end && !bit(w->visible, first + hidden))
                hidden++;
            if (hidden == end)
                error =
                    w->take(w->ctx, (const char *)t->base + h * t->head_stride + c / t->cells * t->stride, t->bytes);
        }
    return error;
}

/* Rows that are not encoded yet. */
static int recent_walk(const walk *x, const kvb_view *v)
{
    const uint32_t w = v->format->residual_cells;
    const size_t row = v->dim * sizeof(uint16_t);
    int error = 0;
    for (uint32_t c = 0; c < v->cells && w && v->recent && !error; c++) {
        const uint32_t slot = v->recent_slot[c / w];
        for (uint32_t h = 0; h < x->n_kv_heads && slot != KVB_SLOT_NONE && !bit(x->visible, c) && !error; h++)
            error = x->take(
                x->ctx,
                (const char *)v->recent + slot * v->recent_slot_stride + h * v->recent_head_stride + c % w * row, row);
    }
    return error;
}

/* What a row has at `base`. OPAQUE: all but its side tables, and less than reaches the next row. */
static size_t codes_bytes(const walk *w, const kvb_view *v, size_t tables)
{
    if (v->format->elem != KVB_OPAQUE)
        return kvb_codes_bytes(v->format, v->dim);
    const size_t codes = w->row_bytes > tables ? w->row_bytes - tables : 0;
    const size_t next = w->n_kv_heads > 1 && v->head_stride < v->cell_stride ? v->head_stride : v->cell_stride;
    return codes < next ? codes : next;
}

static int region_walk(const walk *w, const kvb_view *v, uint32_t first)
{
    const kvb_format *f = v->format;
    const bool shared = f->axis == KVB_AXIS_TOKENS && f->group;
    const size_t entries = shared ? v->dim : f->group && f->group != KVB_GROUP_ROW ? v->dim / f->group : 1;
    const uint32_t cells = shared ? f->group : 1;
    const size_t scales = entries * kvb_scale_bytes(f->scale_elem), zeros = entries * kvb_scale_bytes(f->zero_elem);
    const void *scales_at = f->group ? v->scales : NULL,
               *zeros_at = f->group ? v->zeros : NULL; /* else sizes are unknown */
    const size_t beside = ((scales_at ? scales : 0) + (zeros_at ? zeros : 0) + cells - 1) / cells;
    const table tables[] = {
        {v->base, v->head_stride, v->cell_stride, codes_bytes(w, v, beside), 1},
        {scales_at, v->scale_head_stride, v->scale_cell_stride, scales, cells},
        {zeros_at, v->zero_head_stride, v->zero_cell_stride, zeros, cells},
    };
    int error = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !error; i++)
        error = table_walk(w, v, first, &tables[i]);
    return error ? error : recent_walk(w, v);
}

int kvb_hidden_walk(const kvb_view *v, uint32_t n_kv_heads, size_t row_bytes, const uint64_t *visible,
                    kvb_span_take *take, void *ctx)
{
    const walk w = {n_kv_heads, row_bytes, visible, take, ctx};
    const kvb_view own = kvb_view_own(v);
    int error = v->front ? region_walk(&w, v->front, 0) : 0;
    return error ? error : region_walk(&w, &own, kvb_view_front_cells(v));
}

int kvb_poison_fill(kvb_poison *p, const kvb_view *v, uint32_t n_kv_heads, size_t row_bytes, const uint64_t *visible)
{
    return kvb_hidden_walk(v, n_kv_heads, row_bytes, visible, span_fill, p);
}

void kvb_poison_free(kvb_poison *p)
{
    free(p->spans);
    free(p->saved);
    *p = (kvb_poison){0};
}
