/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What caches cost: each cache over one history of real size, the work that a cache saves, requests in a fixed memory. Histories are recipes: an agent's
 * session with recorded lengths, and plain decoding from an empty cache. Each is replayed alone, in a child.
 */
#ifndef KVB_BENCH_CACHES_H
#define KVB_BENCH_CACHES_H

#include "results/result.h"

typedef struct kvb_caches_options {
    uint32_t cells;   /* tokens of the session, about; fewer than recorded: all lengths shrink. 0: as recorded */
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

/* Each built-in cache over the session, in f16 with the kernel flash, and the session's work without a cache and with one. A
 * cache that does not pass is a row, too. 0, -EINTR, or a negative errno with why. */
int kvb_caches_session(const kvb_caches_options *options, kvb_caches *rows, char *why, size_t why_bytes);
/* The work of decoding some thousand tokens without a cache and with one, and what growth of one copies. As above. */
int kvb_caches_savings(const kvb_caches_options *options, kvb_caches *rows, char *why, size_t why_bytes);

/* Chat requests with recorded lengths, by cache: how many one memory holds at once, each from its first token to its last, in order of
 * arrival until one does not fit. As above. */
#define KVB_CACHES_CHAT "chat-requests"
int kvb_caches_requests(kvb_caches *rows, char *why, size_t why_bytes);

/* "small?" of `kvbench run`: four lines of at most 80 columns, of the session alone. */
void kvb_caches_small_print(const kvb_caches *rows, FILE *out);
/* Both as tables for people, or as one table for programs. 0, -ENOMEM or -EIO. */
int kvb_caches_print(const kvb_caches *rows, kvb_table_format format, FILE *out);

#endif
