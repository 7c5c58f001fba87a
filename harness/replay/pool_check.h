/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a pool take the memory that it says? A pool of few cells is opened, grown and closed, over an allocator of its
 * own. bytes() must be what the allocator holds, and row_bytes() what each row has of it: two cells are rewritten, and
 * what changes with one of them alone must be no more. Where only the pool knows how rows are encoded, row_bytes() also
 * says where they end: no row may lie in another.
 */
#ifndef KVB_POOL_CHECK_H
#define KVB_POOL_CHECK_H

#include "harness/replay/job.h"

/* The replay's pools, for rows of each of its groups that attends. 0; -EILSEQ with why, which begins with the pool's
 * name; -ENOMEM. */
int kvb_pools_check(const kvb_replay_options *options, char *why, size_t why_bytes);

#endif
