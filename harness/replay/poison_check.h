/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a kernel read what the mask hides? A call that was judged is made again with poison in what the kernel was given (the
 * cache's rows, or the staged copies):
 *   - in all cells that no query sees; every row is then as finite as before; or, in turns,
 *   - in all cells that one of its queries does not see, one that the oracle has rows of; that query's rows are as finite.
 * Rows whose bits changed are judged by the oracle again, where it has them. What was poisoned is restored.
 * These calls may cost KVB_POISON_FREE (query, head, cell) visits, and one in KVB_POISON_SHARE of what the workload's calls cost
 * so far: small workloads have nearly all of their calls poisoned, of others a sample.
 */
#ifndef KVB_POISON_CHECK_H
#define KVB_POISON_CHECK_H

#include "caches/cache.h"
#include "harness/replay/poison.h"

struct kvb_pass;
struct kvb_made; /* checks.h */

typedef struct kvb_poison_check {
    kvb_poison poison;
    uint64_t *visible; /* bits of cells */
    size_t visible_room;
    char *out; /* of the call as it was judged: out, then lse */
    size_t out_room;
    uint64_t visits, spent; /* of the workload's calls so far, and of those with poison */
    uint64_t calls;         /* with poison so far */
    uint32_t query;         /* of the planned call: from whom the poisoned cells are hidden; KVB_POISON_ALL: from all */
} kvb_poison_check;

#define KVB_POISON_ALL   UINT32_MAX
#define KVB_POISON_FREE  (UINT64_C(1) << 18)
#define KVB_POISON_SHARE 8u

/* Makes the call that was judged last again, where something is hidden and it may cost so much. 0; or an error, with
 * the pass ended where the kernel is to blame. */
int kvb_poison_check_run(struct kvb_pass *pass, struct kvb_made *made);
void kvb_poison_check_free(kvb_poison_check *check);

#endif
