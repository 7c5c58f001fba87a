/* SPDX-License-Identifier: Apache-2.0 */
/* A pool judged by itself. */
#ifndef KVB_POOL_ALONE_H
#define KVB_POOL_ALONE_H

#include "caches/pools/pool.h"
#include "harness/replay/replay.h"

/*
 * Does a pool take the memory that it says? A pool of few cells is opened, grown and closed, over an allocator of its
 * own. bytes() must be what the allocator holds, and row_bytes() what each row has of it: two cells are rewritten, and
 * what changes with one of them alone must be no more. Where only the pool knows how rows are encoded, row_bytes() also
 * says where they end: no row may lie in another.
 */

/* The replay's pools, for rows of each of its groups that attends. 0; -EILSEQ with why, which begins with the pool's
 * name; -ENOMEM. */
int kvb_pools_check(const kvb_replay_options *options, char *why, size_t why_bytes);

/*
 * A pool judged by itself, without a history: rows that formats find hard, of many dims, through every verb of its
 * contract (caches/pools/pool.h). What is stored is compared with what the format's name stands for (oracle/codec.h)
 * or, of an opaque format, with the plug-in's own reference. Rows of an opaque format are finite and of at most 65504;
 * what such a format makes of NaN and infinity is its own affair.
 */

/* 0; -EILSEQ: the pool breaks its contract, and why says where, with what was expected and found; -ENOMEM. A pool that
 * touches memory that it did not ask for may end the process; `place` says then, as why would, where it was. */
int kvb_pool_alone(const kvb_pool_type *type, char *place, size_t place_bytes, char *why, size_t why_bytes);

#endif
