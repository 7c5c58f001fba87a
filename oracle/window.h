/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pools of a cache hold, by the oracle's own codecs over the order in which the cache wrote and moved rows:
 * for formats with residual cells, where what is stored depends on that order. Of such a format the `residual_blocks`
 * blocks of `residual_cells` cells that were written last are f16. A block that gives way to another is encoded, all
 * rows together that it ever held; one that is written again is decoded to f16 first, but for the cells that are
 * written. A moved row is its source's f16, or what was decoded of it. Rows of other formats are what their own token's
 * row becomes.
 *
 * It is told of writes and moves pool by pool; encodes and decodes only what is asked for. One thread at a time.
 */
#ifndef KVB_WINDOW_H
#define KVB_WINDOW_H

#include "oracle/opinion.h"
#include "oracle/oracle.h"

typedef struct kvb_window kvb_window;

/* For the pools of a cache that is empty. The oracle must outlive it. 0 or -ENOMEM. */
int kvb_window_open(const kvb_oracle *oracle, kvb_window **window);
void kvb_window_free(kvb_window *window);

/* Tokens' rows were written to n cells of a layer's K or V pool, in this order. 0 or -ENOMEM. */
int kvb_window_write(kvb_window *window, uint32_t layer, bool is_v, const uint32_t *cells, uint32_t n,
                     const uint64_t *tokens);
/* The rows of n cells were copied to cells base, base + 1, …, in this order. Cells that hold nothing stay so. 0 or
 * -ENOMEM. */
int kvb_window_move(kvb_window *window, uint32_t layer, bool is_v, uint32_t base, const uint32_t *cells, uint32_t n);

/* A query of a call, number `query` of n_tok, over n_cells readable cells. */
typedef struct kvb_attend_of {
    const kvb_mask *mask;
    uint32_t n_cells, n_tok, query;
} kvb_attend_of;

/* What an expected row is over what the pools hold. *actual is filled, its terms live until the next call. 0, -ENOMEM,
 * or -EILSEQ: a cell that the query sees holds no row, or they are not as many as it may see. */
int kvb_window_solve(kvb_window *window, const kvb_expect *expect, const kvb_attend_of *of, kvb_expect *actual);
/* Looks at what a query of a layer's call sees, for kvb_window_opinion(). 0, -ENOMEM, or -EILSEQ: a cell holds no row.
 */
int kvb_window_look(kvb_window *window, uint32_t layer, const kvb_attend_of *of);
/* The second opinion of a row of that query. Its output, and the head that is returned, live in the window. */
const kvb_opinion_head *kvb_window_opinion(kvb_window *window, const kvb_expect *place, kvb_opinion_row *row);

/* The whole cache is saved in a slot (workloads/trace.h), or becomes again what was saved there. 0 or -ENOMEM. */
int kvb_window_save(kvb_window *window, uint32_t slot);
void kvb_window_load(kvb_window *window, uint32_t slot);

#endif
