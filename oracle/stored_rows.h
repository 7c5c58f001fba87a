/* SPDX-License-Identifier: Apache-2.0 */
/*
 * K and V rows of one KV head as its formats store them, in double, where an exact attention can have them: by token
 * identity, or (formats with residual cells, whose rows depend on their neighbours) gathered for one query. Inside the
 * oracle only.
 */
#ifndef KVB_STORED_ROWS_H
#define KVB_STORED_ROWS_H

#include "oracle/attention.h"
#include "oracle/storage.h"

/* The formats of both sides, of one layer and KV head. */
typedef struct kvb_storages {
    kvb_storage k, v;
} kvb_storages;

/* One side's rows. */
typedef struct kvb_stored {
    double *rows;  /* [n][dim] */
    double *sizes; /* [n][dim], or NULL where they are |row|: see oracle/storage.h */
    double *sums;  /* [n]: of each row's sizes */
    uint32_t dim;
} kvb_stored;

/* Are all rows stored as they are? */
static inline bool kvb_storage_is_exact(const kvb_storage *store)
{
    return store->format->elem == KVB_F32 && !store->format->transform;
}

static inline bool kvb_storage_has_residual(const kvb_storage *store)
{
    return store->format->residual_cells > 0;
}

/* Room for n rows: 0 or -ENOMEM (to be closed all the same). */
int kvb_stored_open(kvb_stored *side, const kvb_storage *store, size_t n);
void kvb_stored_close(kvb_stored *side);

/* Doubles of scratch that the calls below need. */
size_t kvb_stored_scratch(const kvb_storage *store);
/* Rows at .. at+n-1 become what the store makes of these n rows, a sequence of its own. */
void kvb_stored_put(const kvb_stored *side, const kvb_storage *store, size_t at, const float *const *rows, uint32_t n,
                    double *scratch);

/* Row `at` becomes a decoded one, still transformed: row and size are changed. */
void kvb_stored_take(const kvb_stored *side, const kvb_storage *store, size_t at, double *row, double *size);

/* What an attention must know about its K and V: rows, sizes and transforms. */
void kvb_attention_take_k(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered);
void kvb_attention_take_v(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered);

#endif
