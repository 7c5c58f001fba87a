/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poison: the bytes that belong to hidden cells alone (codes, residual cells' f16 rows, scales, zeros) are filled with
 * 0xff, which is NaN in every float type, and restored afterwards. Scales that cells share (KVB_AXIS_TOKENS) are filled
 * if all of these cells are hidden. Works on the view of any cache and pool; its memory must be writable.
 */
#ifndef KVB_POISON_H
#define KVB_POISON_H

#include <stddef.h>

#include "kernels/view.h"

/* The bytes that poison replaced. Zero at first. */
typedef struct kvb_poison {
    struct kvb_poison_span *spans; /* in the order of filling */
    size_t n_spans, spans_room;
    char *saved; /* their bytes, one span after the other */
    size_t n_saved, saved_room;
} kvb_poison;

/* Takes a span of bytes: 0 or an error, which ends the walk. */
typedef int kvb_span_take(void *ctx, const void *at, size_t bytes);
/*
 * Passes every span of bytes that belongs to hidden cells of the view to `take`, for n_kv_heads heads. visible: bits of
 * the cells that are not hidden. row_bytes: the pool's row_bytes(), the length of an OPAQUE row (caches/pools/pool.h);
 * no span of such a row reaches the next row.
 */
int kvb_hidden_walk(const kvb_view *view, uint32_t n_kv_heads, size_t row_bytes, const uint64_t *visible,
                    kvb_span_take *take, void *ctx);
/* Fills all of these spans; several views may be filled before one restore. 0, or -ENOMEM with some of them filled:
 * restoring undoes these too. */
int kvb_poison_fill(kvb_poison *poison, const kvb_view *view, uint32_t n_kv_heads, size_t row_bytes,
                    const uint64_t *visible);
void kvb_poison_restore(kvb_poison *poison);
void kvb_poison_free(kvb_poison *poison);

/*
 * Does a kernel read cells that the mask hides? A judged call is repeated with poison in the rows that the kernel gets
 * (the cache's, or staged copies). The calls alternate between two kinds:
 *   - all cells that no query sees are poisoned; every finite row must stay finite;
 *   - all cells that one query does not see are poisoned, a query with rows of the oracle; its rows must stay finite.
 * Rows with changed bits are judged by the oracle again, if it has them. Then the cells are restored.
 * The repeated calls may cost KVB_POISON_FREE (query, head, cell) visits plus 1 / KVB_POISON_SHARE of the visits of the
 * workload's calls so far: a small workload has nearly all of its calls poisoned, a large one a sample.
 */

struct kvb_pass;
struct kvb_made; /* pass.h */

typedef struct kvb_poison_check {
    kvb_poison poison;
    uint64_t *visible; /* bits of cells */
    size_t visible_room;
    uint64_t visits, spent; /* of the workload's calls so far; of the calls with poison */
    uint64_t calls;         /* with poison so far */
    uint32_t query;         /* of the planned call: does not see the poisoned cells; KVB_POISON_ALL: no query does */
} kvb_poison_check;

#define KVB_POISON_ALL   UINT32_MAX
#define KVB_POISON_FREE  (UINT64_C(1) << 18)
#define KVB_POISON_SHARE 8u

/* Repeats the last judged call with poison, if it hides cells and the budget allows. 0 or an error; the pass has ended
 * if the kernel is to blame. */
int kvb_poison_check_run(struct kvb_pass *pass, struct kvb_made *made);
void kvb_poison_check_free(kvb_poison_check *check);

#endif
