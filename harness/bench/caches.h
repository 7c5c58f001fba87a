/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What caches cost: each cache over histories of real size, the work that a cache saves, requests in a fixed memory.
 * Histories are recipes with recorded lengths (a row of `histories` in caches.c each), and plain decoding from an empty
 * cache. Each is replayed alone, in a child.
 */
#ifndef KVB_BENCH_CACHES_H
#define KVB_BENCH_CACHES_H

#include "harness/selection/registry.h"
#include "results/result.h"

typedef struct kvb_caches_options {
    const kvb_registry *registry; /* whose caches take part */
    kvb_words histories;          /* patterns of names; none: all */
    uint32_t cells;   /* tokens of a history, about; fewer than recorded: its lengths shrink. 0: as recorded */
    uint32_t threads; /* of the timed replays */
    double seconds;   /* for the passes of one cache */
    bool untimed;     /* one judged pass of each: memory and no times */
} kvb_caches_options;

/* One cache over one history. */
typedef struct kvb_caches_row {
    kvb_result result;  /* of a cache that cannot replay the history: skip, with the reason */
    uint32_t tokens;    /* of the history */
    double live_bytes;  /* rows of the tokens alive at once, each token once, at most */
    double moved_bytes; /* rows copied by the cache, and by growth */
    uint32_t cells, alive,
        used; /* of chat requests: cells of the memory, requests that it held at once, cells that these took */
    double rows, pairs; /* token rows computed, (query, cell) pairs attended, in a layer; NaN: not counted */
} kvb_caches_row;

typedef struct kvb_caches {
    kvb_caches_row *at;
    size_t n, room;
} kvb_caches; /* zero at first; the owner frees `at` */

#define KVB_CACHES_SESSION "agent-session"

/*
 * Each cache over each history, in f16 with the kernel flash, and its work without a cache and with one; the work of
 * decoding some thousand tokens without a cache and with one, and what growth of one copies; requests in a fixed
 * memory. A cache that does not pass is a row, too. 0, -EINTR, or a negative errno with why; -EINVAL: no history has
 * such a name.
 */
int kvb_caches_measure(const kvb_caches_options *options, kvb_caches *rows, char *why, size_t why_bytes);

/* "small?" of `kvbench run`: four lines of at most 80 columns, of the session alone. */
void kvb_caches_small_print(const kvb_caches *rows, FILE *out);
/* Both as tables for people, or as one table for programs. 0, -ENOMEM or -EIO. */
int kvb_caches_print(const kvb_caches *rows, kvb_table_format format, FILE *out);

#endif
