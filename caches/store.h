/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h: how a cache is written. A cache is a policy over the groups of a model: for each group the host keeps a store, which
 * is bookkeeping (this header, integers only) and pools (the host's). A policy decides in which cells the rows of new tokens
 * are written, which cells each sequence's positions lie in, which rows are moved, and when a cell is free again. The
 * host (caches/cache.c) does the rest: it checks every call, keeps the account of sequences, bounds steps by capacity, grows and
 * writes pools, applies windows, makes masks, and hands out specs.
 *
 * A control call is a kvb_change. For each store prepare() is called, and when all have succeeded adopt() for each; so a
 * call happens in every layer or in none. prepare() does everything that can fail and changes nothing that its other
 * functions can see, or takes it back in undo(), which is called when a later store has failed. When prepare() runs the
 * account holds the new tokens of a STEP or PROPOSE already, and else is as before; when adopt() runs it is as after.
 *
 *   STEP, PROPOSE   prepare: plan->cells[i] is where fed token i is written, none of them twice; for each fed token in order
 *                   kvb_plan_attend() with the spans (position -> cell) of its sequence, the new tokens included
 *   COMMIT, COPY    prepare: kvb_store_move() for each row that is to be copied, in order
 *   REMOVE          nothing, as a rule; adopt lets go of cells
 *
 * Cells are below pool_cells(). A cell may be written again as soon as no sequence has it.
 * Errors: 0; -ENOSPC, -ENOMEM, -ENOTSUP (this policy cannot do that) with kvb_store_fail().
 */
#ifndef KVB_STORE_H
#define KVB_STORE_H

#include "caches/bookkeeping/feed.h"
#include "caches/bookkeeping/plan.h"
#include "caches/pools/pool.h"

/* What the caller of a cache wants. Model facts are not here. */
typedef struct kvb_cache_options {
    uint32_t capacity;     /* most cells in use at once, in each group */
    uint32_t seq_capacity; /* longest sequence, in tokens (slab: cells of one row) */
    uint32_t max_seqs;     /* most sequences alive at once, 1 .. 64 (slab: rows) */
    uint32_t step;         /* most tokens of one step, by which a store that drops rows bounds its pools; 0: capacity */
    uint32_t rollback;     /* positions by which a sequence may fall behind its furthest one, in such a store */
    uint32_t min_chunk;    /* cells of the first growth */
    kvb_growth growth;     /* of the pools */
    const kvb_pool_type *k_pool, *v_pool;
    /* [layers] of [kv_heads]: largest magnitudes to expect, as kvb_pool_options.amax; NULL: unknown. Read by open only. */
    const float *const *k_amax, *const *v_amax;
    kvb_allocator *allocator; /* outlives the cache */
} kvb_cache_options;

/* A row to be copied inside the pools. */
typedef struct kvb_move {
    uint32_t from, to;
} kvb_move;

struct kvb_cache_type;

/* The part of a store that every policy has; its own follows it in the same block. */
typedef struct kvb_store {
    const struct kvb_cache_type *type;
    const kvb_group *group;
    const kvb_account *account;
    const kvb_cache_options *options;
    kvb_allocator *allocator; /* for the policy's own tables */
    char *why;                /* the host's: kvb_store_fail() writes it */
    size_t why_bytes;
    /* the host's own: */
    uint32_t pool_cells; /* most cells that the pools ever hold */
    kvb_pool **pools;    /* [layers of the model][2]: K, V. NULL: a layer of another group, V of latent rows */
    size_t n_pools;
    kvb_plan plan, next; /* in force; being made */
    kvb_move *moves;
    size_t n_moves, moves_room;
    bool stored; /* a layer's rows have been written under the plan in force */
    uint64_t cells_written, cells_moved;
    uint32_t cells_peak, high_water_peak;
} kvb_store;

/* What a policy can do besides one sequence that grows. */
enum {
    KVB_CACHE_SEQ = 1,          /* several sequences: seq_cp, seq_rm, seq_keep */
    KVB_CACHE_TREE = 2,         /* pending nodes behind sequence 0: propose, commit */
    KVB_CACHE_REWIND = 4,       /* one sequence that can be cut back */
    KVB_CACHE_PREALLOCATES = 8, /* pools hold all their cells from the start */
    KVB_CACHE_FORGETS = 16      /* keeps no rows: each step is fed its sequences' whole history */
};

typedef struct kvb_cache_type {
    const char *name;    /* what --cache takes: as a kernel's (attend.h) */
    const char *summary; /* one line for `kvbench list` */
    uint32_t flags;      /* KVB_CACHE_… */
    size_t store_bytes;  /* of the policy's store, which begins with a kvb_store. The host zeroes it */
    /* Is it of use for this model? NULL: always. */
    bool (*serves)(const kvb_model *model, char *why, size_t why_bytes);
    /* After the common part is set, before pools are opened: 0 or -ENOMEM with nothing left. NULL: nothing to do. */
    int (*open)(kvb_store *store);
    void (*close)(kvb_store *store); /* frees what the policy holds; NULL: nothing */
    /* Most cells that the pools ever hold; NULL: options->capacity. */
    uint64_t (*pool_cells)(const kvb_store *store);
    /* Cells in use now, and the largest of them + 1. */
    void (*occupied)(const kvb_store *store, uint32_t *cells, uint32_t *high_water);
    /* Most tokens that a STEP of these sequences, or a PROPOSE, may bring: it is checked but not admitted yet. What fits is
     * never refused for want of cells, what does not always is. NULL: capacity less the cells in use. */
    uint32_t (*room)(const kvb_store *store, const kvb_change *change);
    /* feed and plan are NULL unless the change is a STEP or PROPOSE. */
    int (*prepare)(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan);
    void (*undo)(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan);  /* or NULL */
    void (*adopt)(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan); /* or NULL */
} kvb_cache_type;

/* Say why a call failed and return its error: `return kvb_store_fail(store, -ENOSPC, "…", …)`. */
KVB_HOST int kvb_store_fail(kvb_store *store, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Have a row copied, after those named before: 0 or -ENOMEM. From and to may be the same cell. */
KVB_HOST int kvb_store_move(kvb_store *store, uint32_t from, uint32_t to);

#endif
