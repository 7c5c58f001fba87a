/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows that the pools of a cache hold, for formats with residual cells: there rows depend on the order in which the
 * cache wrote and moved them. The oracle repeats this order with its own codecs. The `residual_blocks` blocks of
 * `residual_cells` cells that were written last are f16. When one more block is written, the one written longest ago is
 * encoded, with all rows that it ever held. A block that is written again is first decoded to f16, except for the cells
 * that are written. A moved row is the f16 of its source, or decoded from it. A row of another format depends on its
 * token alone.
 *
 * The caller reports writes and moves pool by pool. Only rows that are asked for are encoded and decoded. One thread at a
 * time.
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
/* The rows of n cells were copied to cells base, base + 1, …, in this order. A cell without a row is left out. 0 or
 * -ENOMEM. */
int kvb_window_move(kvb_window *window, uint32_t layer, bool is_v, uint32_t base, const uint32_t *cells, uint32_t n);

/* A query of a call, number `query` of n_tok, over n_cells readable cells. */
typedef struct kvb_attend_of {
    const kvb_mask *mask;
    uint32_t n_cells, n_tok, query;
} kvb_attend_of;

/* Solves an expected row over the pools' rows. Fills *actual; its terms live until the next call. 0, -ENOMEM, or -EILSEQ:
 * a cell that the query sees holds no row, or the query sees more or fewer cells than expected. */
int kvb_window_solve(kvb_window *window, const kvb_expect *expect, const kvb_attend_of *of, kvb_expect *actual);
/* Prepares the rows that a query of a layer's call sees. 0, -ENOMEM, or -EILSEQ: a cell holds no row. */
int kvb_window_look(kvb_window *window, uint32_t layer, const kvb_attend_of *of);
/* The second opinion of a row of the query of kvb_window_look(). The window owns its output and the returned head. */
const kvb_opinion_head *kvb_window_opinion(kvb_window *window, const kvb_expect *place, kvb_opinion_row *row);

/* Saves the whole cache in a slot (workloads/trace.h), or restores it from there. 0 or -ENOMEM. */
int kvb_window_save(kvb_window *window, uint32_t slot);
void kvb_window_load(kvb_window *window, uint32_t slot);

#endif
