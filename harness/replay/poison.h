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

#include "kernels/view.h"

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

/*
 * Does a kernel read what the mask hides? A call that was judged is made again with poison in what the kernel was given (the
 * cache's rows, or the staged copies):
 *   - in all cells that no query sees; every row is then as finite as before; or, in turns,
 *   - in all cells that one of its queries does not see, one that the oracle has rows of; that query's rows are as finite.
 * Rows whose bits changed are judged by the oracle again, where it has them. What was poisoned is restored.
 * These calls may cost KVB_POISON_FREE (query, head, cell) visits, and one in KVB_POISON_SHARE of what the workload's calls cost
 * so far: small workloads have nearly all of their calls poisoned, of others a sample.
 */

struct kvb_pass;
struct kvb_made; /* pass.h */

typedef struct kvb_poison_check {
    kvb_poison poison;
    uint64_t *visible; /* bits of cells */
    size_t visible_room;
    char *out; /* of the call as it was judged: out, then lse */
    size_t out_room;
    uint64_t visits, spent; /* of the workload's calls so far, and of those with poison */
    uint64_t calls;         /* with poison so far */
    uint32_t query;         /* of the planned call: it does not see the poisoned cells; KVB_POISON_ALL: no query does */
} kvb_poison_check;

#define KVB_POISON_ALL   UINT32_MAX
#define KVB_POISON_FREE  (UINT64_C(1) << 18)
#define KVB_POISON_SHARE 8u

/* Makes the call that was judged last again, where something is hidden and it may cost so much. 0; or an error, with
 * the pass ended where the kernel is to blame. */
int kvb_poison_check_run(struct kvb_pass *pass, struct kvb_made *made);
void kvb_poison_check_free(kvb_poison_check *check);

#endif
