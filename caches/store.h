/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h: how a cache is written. A cache is a policy over the groups of a model. For each group the host keeps a
 * store: bookkeeping (this header, integers only) and pools (the host's). The policy decides in which cells the rows of
 * new tokens are written, in which cells the positions of a sequence lie, which rows are moved, and when a cell is free
 * again. The host (caches/cache.c) does the rest: it checks every call, keeps the account of sequences, bounds steps by
 * capacity, grows and writes pools, applies windows, makes masks, and hands out specs.
 *
 * A control call is a kvb_change. The host calls prepare() for every store, and if all succeed adopt() for every store:
 * a call happens in every layer or in none. prepare() does all that can fail. The policy's other functions see none of
 * its changes, or undo() takes them back: it is called when something fails after prepare(). During prepare() the
 * account already holds the new tokens of a STEP or PROPOSE and is otherwise as before the call; during adopt() it is
 * as after the call.
 *
 *   STEP, PROPOSE   prepare: plan->cells[i] is where fed token i is written, no cell twice. kvb_plan_attend() for each
 *                   fed token in order (a node: kvb_plan_attend_node()), with its sequence's spans (position -> cell),
 *                   new tokens included
 *   COMMIT, COPY    prepare: kvb_store_move() for each row to be copied, in order
 *   REMOVE          prepare: usually nothing. adopt: frees cells
 *   MATCH           prepare: the sequence's first change->n positions lie where match() found them; with change->frozen
 *                   in that prefix's front of the group
 *   FREEZE          prepare: copies the rows of src's first p1 positions to a front. adopt: gives it to change->frozen.
 *                   KVB_CACHE_FREEZES
 *   REORDER         prepare: sets copies of the sources' tables aside, since a source may be a destination. adopt: puts
 *                   them in the destinations' place. KVB_CACHE_REORDER
 *   SHIFT           prepare: kvb_store_move() for each row that another sequence holds, too, or that changes its cell;
 *                   then kvb_store_turn() for the cell of each moved token. adopt: the new positions lie in these cells
 *   DEFRAG          prepare: kvb_store_move() for each row that changes its cell; nothing if cells follow from
 *                   positions, or are read as well wherever they lie
 *   LOAD            prepare, one sequence: kvb_store_move() to a cell, from each row of store->load (its number in the
 *                   file) that has no cell yet. prepare, all: the host puts rows back in their cells; the policy only
 *                   checks that its tables can express them (-EINVAL). adopt: takes them over. KVB_CACHE_SAVES
 *
 * account->changed lists the sequences that a call changes, account->alive those alive. Tables by sequence id have
 * account->n_ids entries. The cost of a step depends on its sequences or on those alive, never on n_ids.
 *
 * Cells are below pool_cells(). A cell may be written again as soon as no sequence holds it.
 * Errors: 0; -ENOSPC, -ENOMEM, -ENOTSUP (this policy cannot do that) with kvb_store_fail().
 */
#ifndef KVB_STORE_H
#define KVB_STORE_H

#include "caches/bookkeeping/plan.h"
#include "caches/pools/pool.h"

#define KVB_MAX_PAGE 256u /* cells */

/* What the caller of a cache wants. Model facts are not here. */
typedef struct kvb_cache_options {
    uint32_t capacity;     /* most cells in use at once, in each group */
    uint32_t seq_capacity; /* longest sequence, in tokens (slab: cells of one row) */
    uint32_t seq_ids;      /* sequence ids are 0 .. seq_ids-1, at most KVB_MAX_SEQS; 0: KVB_SEQ_IDS */
    uint32_t max_seqs;     /* most sequences alive at once, 1 .. seq_ids (slab: rows) */
    uint32_t step;         /* most tokens of a step plus pending nodes, in a store that drops rows; 0: capacity */
    uint32_t rollback;     /* positions by which a sequence can be cut back from its furthest one, in such a store */
    uint32_t state_depth;  /* tokens by which a sequence of a model with recurrent layers can be rolled back; 0: none */
    uint32_t min_chunk;    /* cells of the first growth */
    uint32_t page_cells;   /* cells of a page, in a store that has pages: 1 .. 256; 0: 16 */
    uint64_t prefix_bytes; /* KVB_CACHE_PREFIX: most bytes of pages that no sequence holds; 0: all free room */
    kvb_growth growth;     /* of the pools */
    const kvb_pool_type *k_pool, *v_pool;
    /* [layers] of [kv_heads]: largest magnitudes to expect, as kvb_pool_options.amax; they must outlive the cache.
     * NULL: unknown. */
    const float *const *k_amax, *const *v_amax;
    kvb_allocator *allocator; /* must outlive the cache */
    /* KVB_CACHE_PREFIX: number of low bits of a prompt's hash that count. With few, different prompts collide, for
     * tests. 0: all. */
    uint32_t hash_bits;
    /* For sizing: the allocator counts the bytes of pools, which take no memory (kvb_counted_open); tables are real.
     * Calls that need rows are -ENOTSUP: shifts, save, load, and fetching. */
    bool counted;
} kvb_cache_options;

/* A row to be copied inside the pools. */
typedef struct kvb_move {
    uint32_t from, to;
} kvb_move;

/* The token in a cell moves by delta positions. */
typedef struct kvb_turn {
    uint32_t cell;
    int32_t delta;
} kvb_turn;
/* What a store loads. */
typedef struct kvb_store_load {
    kvb_spans *rows; /* by sequence, as kvb_change.loaded->alive: position -> number of the row in the file; whole
                               cache: -> the row's cell when it was saved */
    uint32_t n_rows, cells; /* rows in the file; cells to which the pools had grown */
    uint32_t *cell;         /* whole cache: [n_rows] the cell of each row, ascending */
    const char **raw;       /* [layers][2] the rows' bytes, as from read_raw() */
    void *scratch;          /* for a row's bytes */
    bool apart;             /* rows of all groups are stored one by one; else each pool is written as a whole */
} kvb_store_load;

struct kvb_cache_type;
struct kvb_front; /* frozen rows: caches/front.h */

/* The common part of every policy's store. The policy's own part follows it in the same block. */
typedef struct kvb_store {
    const struct kvb_cache_type *type;  /* of this store: kvb_state_policy in a group that scans, else `cache` */
    const struct kvb_cache_type *cache; /* of the whole cache */
    const kvb_group *group;
    uint32_t number; /* of the group */
    const kvb_account *account;
    const kvb_cache_options *options;
    kvb_allocator *allocator; /* for the policy's own tables */
    char *why;                /* the host's: kvb_store_fail() writes it */
    size_t why_bytes;
    /* the host's own: */
    uint32_t pool_cells; /* most cells that the pools ever hold */
    uint64_t cell_bytes; /* of a cell's K and V rows in all layers of the model, rounded up */
    /* [layers of the model][2]: K and V, or in a group that scans states and the convolution's states. NULL: a layer of
     * another group, V of latent rows, no convolution. */
    kvb_pool **pools;
    size_t n_pools;
    kvb_plan plan, next; /* in force; being made */
    /* The front that the queries of a STEP see before the cells of the pools. The policy sets front_next; a sequence of
     * the step holds it. Cell c of the pools is front->cells + c in the mask, and c in plan->cells. NULL: none. */
    const struct kvb_front *front, *front_next;
    size_t frozen_bytes; /* of the fronts that the policy holds */
    /* from[t], to[t]: where fed token t of the STEP or PROPOSE in force reads and writes its state (kernels/scan.h).
     * Only kvb_state_policy has them: its cells are state slots. */
    const uint32_t *from, *to;
    uint32_t slots_taken; /* largest slot + 1 that the one being prepared takes */
    kvb_move *moves;
    size_t n_moves, moves_room;
    kvb_turn *turns; /* of the SHIFT being prepared */
    size_t n_turns, turns_room;
    /* [pending_room] positions by which each cell's token has moved since its K row was stored; beyond that, 0. The row
     * is turned by this sum when the next step begins. */
    int32_t *pending;
    size_t pending_room;
    bool turns_pending; /* one of them is not 0 */
    float *turned;      /* scratch for turning rows */
    size_t turned_room;
    bool stored;      /* a layer's rows have been written under the plan in force */
    uint32_t ensured; /* cells that the pools have grown to */
    const kvb_store_load *load;
    uint64_t cells_written, cells_moved;
    uint32_t cells_peak, high_water_peak;
} kvb_store;

/* What a policy can do besides one sequence that grows. */
enum {
    KVB_CACHE_SEQ = 1,          /* several sequences: seq_cp, seq_rm, seq_keep */
    KVB_CACHE_TREE = 2,         /* pending nodes behind sequence 0, or with _SEQ behind any: propose, commit */
    KVB_CACHE_REWIND = 4,       /* one sequence that can be cut back */
    KVB_CACHE_PREALLOCATES = 8, /* pools hold all their cells from the start */
    KVB_CACHE_FORGETS = 16,     /* keeps no rows: each step is fed its sequences' whole history */
    KVB_CACHE_EXACT = 32,       /* capacity counts exactly the tokens that are alive, a shared one once */
    KVB_CACHE_REORDER = 64,     /* sequences can take each other's places: seq_reorder */
    KVB_CACHE_SHIFT = 128,      /* positions of a sequence can be moved: seq_add */
    KVB_CACHE_PREFIX = 256,     /* finds the beginning of a prompt among the rows that it has: seq_match */
    KVB_CACHE_SAVES = 512,      /* save and load: the policy takes LOAD, and has lies() unless it FORGETS */
    KVB_CACHE_FREEZES = 1024,   /* frozen prefixes, which sequences and other caches read in place: freeze, seq_over */
    KVB_CACHE_DIVIDE = 2048,    /* positions can be divided, so that one holds several tokens: seq_div */
    KVB_CACHE_PAGES = 4096      /* cells come in pages of options->page_cells */
};

typedef struct kvb_cache_type {
    const char *name;    /* for --cache; characters as in a kernel's name (attend.h) */
    const char *summary; /* one line for `kvbench list` */
    uint32_t flags;      /* KVB_CACHE_… */
    size_t store_bytes;  /* of the policy's store, which begins with a kvb_store. The host zeroes it */
    /* Is the cache useful for this model? NULL: always. */
    bool (*serves)(const kvb_model *model, char *why, size_t why_bytes);
    /* Called when the common part is set, before pools are opened: 0, or a negative errno with nothing left behind.
     * NULL: nothing to do. */
    int (*open)(kvb_store *store);
    void (*close)(kvb_store *store); /* gives back all that the policy took from its allocator; NULL: it took nothing */
    /* Most cells that the pools ever hold; NULL: options->capacity. */
    uint64_t (*pool_cells)(const kvb_store *store);
    /* Cells in use now, and the largest of them + 1. */
    void (*occupied)(const kvb_store *store, uint32_t *cells, uint32_t *high_water);
    /* Most tokens that this STEP or PROPOSE, checked and not admitted yet, may bring. Exact: up to that number no step
     * is refused for lack of cells, above it every step is. NULL: capacity less the cells in use. */
    uint32_t (*room)(const kvb_store *store, const kvb_change *change);
    /* Number of the first of these n tokens of a new sequence that have rows in the store; sets their ordinals [n].
     * NULL: none. */
    uint32_t (*match)(const kvb_store *store, const int32_t *tokens, uint32_t n, uint64_t extra_key,
                      uint64_t *ordinals);
    /* Lists where a sequence's rows lie, position -> cell, in an empty list: 0 or -ENOMEM. NULL: the cache cannot be
     * saved, or keeps no rows. */
    int (*lies)(kvb_store *store, uint32_t seq, kvb_spans *cells);
    /* feed and plan are NULL unless the change is a STEP or PROPOSE. */
    int (*prepare)(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan);
    void (*undo)(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan);  /* or NULL */
    void (*adopt)(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan); /* or NULL */
} kvb_cache_type;

extern const kvb_cache_type kvb_state_policy; /* of groups that scan: stores/state.c */

/* Sets why a call failed and returns its error: `return kvb_store_fail(store, -ENOSPC, "…", …)`. */
KVB_HOST int kvb_store_fail(kvb_store *store, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Requests the copy of a row; copies are made in the order of requests. 0 or -ENOMEM. from and to may be the same. */
KVB_HOST int kvb_store_move(kvb_store *store, uint32_t from, uint32_t to);
/* Requests that a cell's K row is turned by delta positions, after all copies; a cell once. 0 or -ENOMEM. */
KVB_HOST int kvb_store_turn(kvb_store *store, uint32_t cell, int32_t delta);
/* Does the cell hold the same bits as this row of store->load, in every layer? */
bool kvb_store_holds(const kvb_store *store, uint32_t row, uint32_t cell);

#endif
