/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poison: all that belongs to hidden cells alone is filled with 0xff bytes, which are NaN in every type of float, and
 * restored afterwards: codes, rows that are still f16, scales and zeros. Scales that cells share (KVB_AXIS_TOKENS) are
 * filled where all of the cells are hidden. Works on any view, whoever's cache and pool it came from; the memory must
 * be writable.
 */
#ifndef KVB_POISON_H
#define KVB_POISON_H

#include <stddef.h>

#include "kernels/attend.h"

/* What was there before. Zero at first. */
typedef struct kvb_poison {
    struct kvb_poison_span *spans; /* in the order of filling */
    size_t n_spans, spans_room;
    char *saved; /* their bytes, one span after the other */
    size_t n_saved, saved_room;
} kvb_poison;

/* Takes a span of bytes: 0 or an error, which ends the walk. */
typedef int kvb_span_take(void *ctx, const void *at, size_t bytes);
/*
 * Every span that belongs to the cells of the view that are not in `visible` (bits of cells), for n_kv_heads heads.
 * row_bytes: the pool's row_bytes(), which says how long an OPAQUE row is (caches/pools/pool.h); no span of it reaches
 * the next row.
 */
int kvb_hidden_walk(const kvb_view *view, uint32_t n_kv_heads, size_t row_bytes, const uint64_t *visible,
                    kvb_span_take *take, void *ctx);
/* Fills all of these. 0 or -ENOMEM; then some may be filled, as after a call for another view, all of which restoring
 * undoes. */
int kvb_poison_fill(kvb_poison *poison, const kvb_view *view, uint32_t n_kv_heads, size_t row_bytes,
                    const uint64_t *visible);
void kvb_poison_restore(kvb_poison *poison);
void kvb_poison_free(kvb_poison *poison);

#endif
