/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool stores the K rows or the V rows of one layer: encoding, growth, addressing. It moves bytes and
 * knows no sequence. It is the only place where encodings differ; rows come in as f32 and are read
 * through a view. A cell holds one token's row for every KV head.
 *
 * `kvbench run` judges a plug-in's pool by itself, too, beside the first workload that it runs over: every verb, hard
 * rows of many dims, growth, saving. Under the name of a built-in format rows must become what that format makes of
 * them, NaN, infinities and the sign of zero included; an opaque format has its own reference, of finite rows.
 *
 * Contract: cells passed to write_run, scatter and gather_into lie below the count last given to
 * ensure(); violating it is a bug (assert), not an error.
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
    uint32_t capacity;  /* cells never exceeded */
    kvb_growth growth;
    /* [n_kv_heads] largest |element| to expect, after the format's transform: what formats with a head scale take it
     * from. NULL: head scales are 1. Read by open() only. */
    const float *amax;
    kvb_allocator *allocator;
} kvb_pool_options;

typedef struct kvb_pool_type {
    const char *name;    /* what --pool takes: as a kernel's, and underscores; also the name of its format */
    const char *summary; /* one line for `kvbench list` */
    const kvb_format *format;
    /* The pool of the same format with KVB_TRANSFORM_HADAMARD ("+had"), or NULL. */
    const struct kvb_pool_type *rotated;
    /* Can it store rows of this dim? NULL: always. why says what would work. */
    bool (*supports)(const struct kvb_pool_type *type, uint32_t dim, char *why, size_t why_bytes);
    /*
     * Bytes of one row with all that belongs to it alone or in equal shares: what lies at view.base, and scales and
     * zeros beside it. So it is all that changes with this row and with no other. Of an OPAQUE format side tables are
     * what `group`, `axis`, `scale_elem` and `zero_elem` say (kvb_view); of one without `group` only the pool knows
     * what scales and zeros hold. The rest of row_bytes lies at view.base, and ends where the next cell or head begins
     * there. All of it is memory of options->allocator, and belongs to no other row: a row that no query sees is
     * overwritten in a check.
     */
    double (*row_bytes)(const struct kvb_pool_type *type, uint32_t dim);
    /* Bytes that the allocator holds for an open pool after ensure(cells), the largest so far: the pool itself, scales,
     * padding and reserves included. Exact. Does not look at options->amax and ->allocator. */
    size_t (*bytes)(const struct kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells);
    /* 0 or -ENOMEM (nothing is left behind). Holds no cell yet. */
    int (*open)(const struct kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool);
    void (*close)(kvb_pool *pool);
    /* Make cells 0 .. cells-1 usable: 0, -ENOSPC above capacity, -ENOMEM (the pool is as it was). */
    int (*ensure)(kvb_pool *pool, uint32_t cells);
    /* rows: [n][n_kv_heads][dim] f32, into cells start .. start+n-1. */
    void (*write_run)(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows);
    /* The same into the given cells, in order. */
    void (*scatter)(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows);
    /* Copy stored rows of the given cells to base, base+1, ... as they are, without re-encoding (where cells share a
     * scale: as close as the format allows). A source may not lie at or above base and be overwritten before it is
     * read: each cells[i] >= base + i, or no source lies in base .. base+n-1. */
    void (*gather_into)(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n);
    /* Where rows lie now, cells 0 .. cells-1. Valid until the next change. */
    void (*view)(const kvb_pool *pool, uint32_t cells, kvb_view *view);
    /* Bytes reserved for cells now: of lanes, windows and slack, without the pool's own struct and fixed tables. */
    size_t (*reserved)(const kvb_pool *pool);
    /*
     * Stored bytes out and in, for saving: exact, and the same whatever a pool of this type, heads and dim has lived
     * through. All NULL: this pool cannot be saved. cells: [n], in any order, each by itself; NULL: all that the pool
     * knows of cells 0 .. n-1, n being the count last given to ensure() or less.
     */
    size_t (*raw_bytes)(const kvb_pool *pool, const uint32_t *cells,
                        uint32_t n); /* 0: cells share scales or slots, and go by NULL alone */
    void (*read_raw)(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw);
    void (*write_raw)(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw);
    /* May write_raw(NULL, n) take these? NULL: any bytes. */
    bool (*check_raw)(const kvb_pool *pool, uint32_t n, const void *raw);
} kvb_pool_type;

/* Every pool begins with its type and what growing has cost; the rest is its own. */
struct kvb_pool {
    const kvb_pool_type *type;
    uint64_t growths, copied_bytes, copy_ns;
};

/* A pool without rows: the allocator counts the bytes that a pool of that type would take. It grows and closes; copies
 * of its rows do nothing, and no row may be written or read. 0 or -ENOMEM. */
int kvb_counted_open(const kvb_pool_type *of, const kvb_pool_options *options, kvb_pool **pool);

/* Ends with NULL. Forms with "+had" are not listed: they are reached through `rotated`. */
extern const kvb_pool_type *const kvb_builtin_pools[];

#endif
