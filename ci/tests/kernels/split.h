/* SPDX-License-Identifier: Apache-2.0 */
/* Views cut into two regions, each in memory of its own. */
#ifndef KVB_TEST_SPLIT_H
#define KVB_TEST_SPLIT_H

#include "ci/tests/kernels/fixture.h"

struct split {
    kvb_view whole[2], front[2];
    void *blocks[4];
};

/* Cells c .. c+n-1 of all heads, close together. */
static inline void *split_part(const kvb_view *v, uint32_t heads, uint32_t c, uint32_t n, kvb_view *part)
{
    char *rows = exact_alloc(heads * (size_t)n * v->cell_stride, 0xff);
    for (uint32_t h = 0; h < heads && n; h++)
        memcpy(rows + h * (size_t)n * v->cell_stride, kvb_view_row(v, h, c), n * v->cell_stride);
    *part = *v;
    part->base = rows;
    part->head_stride = n * v->cell_stride;
    part->cells = n;
    return rows;
}

/* The first cells of both sides become a front. Rows without side tables. */
static inline void split_make(struct split *s, struct fixture *f, uint32_t front)
{
    const uint32_t heads = f->args.problem.n_kv_heads;
    kvb_view *views[] = {&f->args.k, &f->args.v};
    for (int v = 0; v < 2; v++) {
        s->whole[v] = *views[v];
        s->blocks[2 * v] = split_part(&s->whole[v], heads, 0, front, &s->front[v]);
        s->blocks[2 * v + 1] = split_part(&s->whole[v], heads, front, s->whole[v].cells - front, views[v]);
        views[v]->cells = s->whole[v].cells;
        views[v]->front = &s->front[v];
    }
    if (f->args.problem.v_in_k) { /* one place */
        s->front[1].base = s->front[0].base;
        f->args.v.base = f->args.k.base;
    }
}

static inline void split_undo(struct split *s, struct fixture *f)
{
    f->args.k = s->whole[0];
    f->args.v = s->whole[1];
    for (int i = 0; i < 4; i++)
        free(s->blocks[i]);
}

#endif
