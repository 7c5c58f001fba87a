/* SPDX-License-Identifier: Apache-2.0 */
/*
 * K and V rows of one KV head as its formats store them, in double, where an exact attention can have them: by token
 * identity, or (formats with a window, whose rows depend on their neighbours) gathered for one query. Inside the
 * oracle only.
 */
#ifndef KVB_STORED_ROWS_H
#define KVB_STORED_ROWS_H

#include "oracle/attention.h"
#include "oracle/store.h"

/* The formats of both sides, of one layer and KV head. */
typedef struct kvb_stores {
    kvb_store k, v;
} kvb_stores;

/* One side's rows. */
typedef struct kvb_side {
    double *rows;  /* [n][dim] */
    double *sizes; /* [n][dim], or NULL where they are |row|: see oracle/store.h */
    double *sums;  /* [n]: of each row's sizes */
    uint32_t dim;
} kvb_side;

/* Are all rows stored as they are? */
static inline bool kvb_store_is_exact(const kvb_store *store)
{
    return store->format->elem == KVB_F32 && !store->format->transform;
}

static inline bool kvb_store_has_window(const kvb_store *store)
{
    return store->format->window_cells > 0;
}

/* Room for n rows: 0 or -ENOMEM (to be closed all the same). */
int kvb_side_open(kvb_side *side, const kvb_store *store, size_t n);
void kvb_side_close(kvb_side *side);

/* Doubles of scratch that the calls below need. */
size_t kvb_side_scratch(const kvb_store *store);
/* Rows at .. at+n-1 become what the store makes of these n rows, a sequence of its own. */
void kvb_side_put(const kvb_side *side, const kvb_store *store, size_t at, const float *const *rows, uint32_t n,
                  double *scratch);
/* Row `at` becomes what a view holds. */
void kvb_side_read(const kvb_side *side, const kvb_store *store, size_t at, const kvb_view *view, uint32_t h,
                   uint32_t cell, double *scratch);

/* What an attention must know about its K and V: rows, sizes and transforms. */
void kvb_attention_take_k(kvb_attention *attention, const kvb_store *store, const kvb_side *side, bool gathered);
void kvb_attention_take_v(kvb_attention *attention, const kvb_store *store, const kvb_side *side, bool gathered);

#endif
