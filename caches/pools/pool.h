/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool stores the K rows or the V rows of one layer: encoding, growth, addressing. A pool moves bytes and knows no
 * sequence. Encodings differ only in pools: rows come in as f32 and are read through a view. A cell holds one token's
 * row for every KV head.
 *
 * `kvbench run` also judges a plug-in's pool by itself, with the first workload that it runs: every function, hard rows
 * of many dims, growth, saving. A pool with the name of a built-in format must store rows as that format does,
 * including NaN, infinities and the sign of zero. An opaque format is judged by its own reference, with finite rows.
 *
 * Contract: cells passed to write_run, scatter and gather_into lie below the count last given to ensure(); anything
 * else is a bug (assert), not an error.
 */
#ifndef KVB_POOL_H
#define KVB_POOL_H

#include "caches/allocator.h"
#include "caches/pools/growth.h"
#include "kernels/view.h"

typedef struct kvb_pool kvb_pool;

typedef struct kvb_pool_options {
    uint32_t n_kv_heads;
    uint32_t dim;       /* elements of a row */
    uint32_t min_chunk; /* cells of the first growth, at least 1 */
    uint32_t capacity;  /* most cells */
    kvb_growth growth;
    /* [n_kv_heads] largest |element| to expect, after the format's transform; head scales are computed from it. Only
     * open() reads it. NULL: head scales are 1. */
    const float *amax;
    kvb_allocator *allocator;
} kvb_pool_options;

typedef struct kvb_pool_type {
    const char *name;    /* for --pool: as a kernel's name, and underscores; also the name of its format */
    const char *summary; /* one line for `kvbench list` */
    const kvb_format *format;
    /* The pool of the same format with KVB_TRANSFORM_HADAMARD ("+had"), or NULL. */
    const struct kvb_pool_type *rotated;
    /* Can the pool store rows of this dim? NULL: always. why: a dim or pool that works. */
    bool (*supports)(const struct kvb_pool_type *type, uint32_t dim, char *why, size_t why_bytes);
    /*
     * Bytes of one row at view.base and of its scales and zeros; those that rows share count in equal parts. In an
     * OPAQUE format `group`, `axis`, `scale_elem` and `zero_elem` give the size of scales and zeros (kvb_view); without
     * `group` only the pool knows it. The rest of row_bytes lies at view.base and ends before the next cell or head
     * there. All of it is memory of options->allocator and belongs to no other row: a check overwrites rows that no
     * query sees.
     */
    double (*row_bytes)(const struct kvb_pool_type *type, uint32_t dim);
    /* Bytes that the allocator holds for an open pool after ensure(cells), with the largest count so far: the pool
     * itself, scales, padding and reserves. Exact. Does not read options->amax and ->allocator. */
    size_t (*bytes)(const struct kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells);
    /* Opens a pool without cells: 0, or -ENOMEM with nothing left behind. */
    int (*open)(const struct kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool);
    void (*close)(kvb_pool *pool);
    /* Makes cells 0 .. cells-1 usable: 0, -ENOSPC above capacity, or -ENOMEM with the pool unchanged. */
    int (*ensure)(kvb_pool *pool, uint32_t cells);
    /* Writes rows [n][n_kv_heads][dim], f32, to cells start .. start+n-1. */
    void (*write_run)(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows);
    /* The same to the given cells, in order. */
    void (*scatter)(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows);
    /* Copies stored rows of the given cells to base, base+1, ... without encoding them again (if cells share a scale:
     * as closely as the format allows). No source is overwritten before it is read: each cells[i] >= base + i, or no
     * source lies in base .. base+n-1. */
    void (*gather_into)(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n);
    /* The view of cells 0 .. cells-1. Valid until the next change. */
    void (*view)(const kvb_pool *pool, uint32_t cells, kvb_view *view);
    /* Current bytes for cells: lanes, windows and slack, without the pool's own struct and fixed tables. */
    size_t (*reserved)(const kvb_pool *pool);
    /*
     * Copy stored bytes out and in, for saving: exact, in a layout that depends only on type, heads and dim, not on the
     * pool's history. cells: [n] in any order, each by itself; NULL: the pool's whole content for cells 0 .. n-1, n at
     * most the count last given to ensure(). All functions NULL: this pool cannot be saved.
     */
    size_t (*raw_bytes)(const kvb_pool *pool, const uint32_t *cells,
                        uint32_t n); /* 0: cells share scales or slots, only NULL works */
    void (*read_raw)(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw);
    void (*write_raw)(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw);
    /* Are these bytes valid for write_raw(NULL, n)? NULL: any are. */
    bool (*check_raw)(const kvb_pool *pool, uint32_t n, const void *raw);
} kvb_pool_type;

/* Every pool begins with its type and the cost of its growth; the rest is its own. */
struct kvb_pool {
    const kvb_pool_type *type;
    uint64_t growths, copied_bytes, copy_ns;
};

/* Opens a pool without rows: the allocator counts the bytes that a pool of that type would take. The pool can grow and
 * be closed. Copying rows does nothing; writing and reading rows is not allowed. 0 or -ENOMEM. */
int kvb_counted_open(const kvb_pool_type *of, const kvb_pool_options *options, kvb_pool **pool);

/* Ends with NULL. Forms with "+had" are not listed: `rotated` leads to them. */
extern const kvb_pool_type *const kvb_builtin_pools[];

#endif
