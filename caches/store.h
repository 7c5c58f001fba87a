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
 *                   kvb_plan_attend(), of a node kvb_plan_attend_node(), with the spans (position -> cell) of its sequence, the
 *                   new tokens included
 *   COMMIT, COPY    prepare: kvb_store_move() for each row that is to be copied, in order
 *   REMOVE          nothing, as a rule; adopt frees cells
 *   MATCH           prepare: the sequence's first change->n positions lie where match() found them; with change->frozen in its
 *                   front of the group
 *   FREEZE          prepare: the rows of src's first p1 positions, into a front; adopt gives it to change->frozen. KVB_CACHE_FREEZES
 *   REORDER         prepare: what dsts are to hold, made aside, since a source may be a destination; adopt puts it there. Asked of
 *                   a policy with KVB_CACHE_REORDER only
 *   SHIFT           prepare: rows that others hold, too, or that lie elsewhere from now on, are copied with kvb_store_move(); then
 *                   kvb_store_turn() for the cell of each token that is moved. Adopt lets the positions lie in them
 *   DEFRAG          prepare: kvb_store_move() for each row that is to lie elsewhere. A policy whose cells follow from positions,
 *                   or are read as well wherever they lie, has nothing to do
 *   LOAD            of a sequence, prepare: kvb_store_move() from each row of store->load that has no cell yet (by its number in the
 *                   file) to a cell. Of all: nothing is moved, the rows are put where they lay; prepare only looks whether its
 *                   tables can say so (-EINVAL), adopt takes them over. KVB_CACHE_SAVES alone
 *
 * account->changed are the sequences that a call changes; account->alive is as the account is. Tables by sequence id have room
 * for account->n_ids. A step costs by its sequences or by those alive, never by n_ids.
 *
 * Cells are below pool_cells(). A cell may be written again as soon as no sequence has it.
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
    uint32_t step;         /* most tokens of a step, and nodes beside it, in a store that drops rows; 0: capacity */
    uint32_t rollback;     /* positions by which a sequence may fall behind its furthest one, in such a store */
    uint32_t state_depth;  /* tokens by which a sequence of a model with recurrent layers can be rolled back; 0: none */
    uint32_t min_chunk;    /* cells of the first growth */
    uint32_t page_cells;   /* of a page, in a store that has pages: 1 .. 256; 0: 16 */
    uint64_t
        prefix_bytes; /* most that a cache keeps of prompts that no sequence holds, in whole pages; 0: what room there is */
    kvb_growth growth; /* of the pools */
    const kvb_pool_type *k_pool, *v_pool;
    /* [layers] of [kv_heads]: largest magnitudes to expect, as kvb_pool_options.amax; NULL: unknown. They outlive the
     * cache. */
    const float *const *k_amax, *const *v_amax;
    kvb_allocator *allocator; /* outlives the cache */
    /* So many low bits of a hash of a prompt's tokens count, so that unlike prompts meet under one hash, as a judge may
     * want it. 0: all. Of caches with KVB_CACHE_PREFIX. */
    uint32_t hash_bits;
    /* For a question of size. The allocator counts what the pools would take, and they take nothing (kvb_counted_open);
     * tables are real. Every call works that needs no row; the others are -ENOTSUP: shifts, saving, loading, and rows
     * themselves. */
    bool counted;
} kvb_cache_options;

/* A row to be copied inside the pools. */
typedef struct kvb_move {
    uint32_t from, to;
} kvb_move;

/* A cell whose token moves by so many positions. */
typedef struct kvb_turn {
    uint32_t cell;
    int32_t delta;
} kvb_turn;
/* Of a store, what is being loaded; in the order of the sequences in kvb_change.loaded->alive. */
typedef struct kvb_store_load {
    const kvb_spans *rows;  /* position -> number of its row in the file; of the whole cache: the cell that it lay in */
    uint32_t n_rows, cells; /* in the file; to which the pools had grown */
    const uint32_t *cell;   /* [n_rows] ascending, of the whole cache: where each row lay */
    const char *const *raw; /* [layers][2] the rows' bytes, as pools read them */
    void *scratch;          /* for a row's bytes */
    bool apart;             /* rows are stored by themselves, in all groups; else the whole of each pool is written */
} kvb_store_load;

struct kvb_cache_type;
struct kvb_front; /* frozen rows: caches/front.h */

/* The part of a store that every policy has; its own follows it in the same block. */
typedef struct kvb_store {
    const struct kvb_cache_type *type;
    const struct kvb_cache_type
        *cache; /* of the whole cache. Of a group that scans type is kvb_state_policy, whatever this is */
    const kvb_group *group;
    uint32_t number; /* of the group */
    const kvb_account *account;
    const kvb_cache_options *options;
    kvb_allocator *allocator; /* for the policy's own tables */
    char *why;                /* the host's: kvb_store_fail() writes it */
    size_t why_bytes;
    /* the host's own: */
    uint32_t pool_cells; /* most cells that the pools ever hold */
    uint64_t cell_bytes; /* of K and V rows in all layers of the model, rounded up */
    /* [layers of the model][2]: K, V; or states, those of the convolution. NULL: a layer of another group, V of latent
     * rows, no convolution. */
    kvb_pool **pools;
    size_t n_pools;
    kvb_plan plan, next; /* in force; being made */
    /* The policy's, of a STEP: before its pools' cells the queries see those of this front, so that cell c of its pools
     * is front->cells + c in what they attend; in plan->cells it is c all the same. Held by a sequence of the step;
     * NULL: none. */
    const struct kvb_front *front, *front_next;
    size_t frozen_bytes; /* of the fronts that the policy holds */
    /* That policy's: cells are slots, and in place of a plan each fed token has these (kernels/scan.h), of the STEP or
     * PROPOSE in force; the slots that it takes, + 1, of the one being prepared. */
    const uint32_t *from, *to;
    uint32_t slots_taken;
    kvb_move *moves;
    size_t n_moves, moves_room;
    kvb_turn *turns; /* of the SHIFT being prepared */
    size_t n_turns, turns_room;
    /* Positions by which cells' tokens have moved since their K rows were stored: the rows are turned by the sum when
     * the next step begins. [pending_room]; beyond that, 0. */
    int32_t *pending;
    size_t pending_room;
    bool turns_pending; /* one of them is not 0 */
    float *turned;      /* where rows are turned */
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
    KVB_CACHE_EXACT = 32,       /* capacity is exact: what fits is every token that is alive, a shared one once */
    KVB_CACHE_REORDER = 64,     /* sequences that take each other's places: seq_reorder */
    KVB_CACHE_SHIFT = 128,      /* positions of a sequence can be moved: seq_add */
    KVB_CACHE_PREFIX = 256,     /* finds the beginning of a prompt among the rows that it has: seq_match */
    KVB_CACHE_SAVES = 512,      /* save and load: it has lies() unless it FORGETS, and takes LOAD */
    KVB_CACHE_FREEZES = 1024,   /* beginnings that sequences and other caches read where they lie: freeze, seq_over */
    KVB_CACHE_DIVIDE = 2048,    /* positions can be divided, so that one holds several tokens: seq_div */
    KVB_CACHE_PAGES = 4096      /* cells come in pages of options->page_cells */
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
    /* Most tokens that a STEP of these sequences, or a PROPOSE, may bring: it is checked but not admitted yet. What
     * fits is never refused for want of cells, what does not always is. NULL: capacity less the cells in use. */
    uint32_t (*room)(const kvb_store *store, const kvb_change *change);
    /* Of so many tokens of a new sequence, how many of the first ones it has rows of: theirs in ordinals [n]. NULL:
     * none. */
    uint32_t (*match)(const kvb_store *store, const int32_t *tokens, uint32_t n, uint64_t extra_key,
                      uint64_t *ordinals);
    /* Which cells a sequence's rows lie in, position -> cell, into an empty list: 0 or -ENOMEM. NULL: it cannot be
     * saved, or keeps no rows. */
    int (*lies)(kvb_store *store, uint32_t seq, kvb_spans *cells);
    /* feed and plan are NULL unless the change is a STEP or PROPOSE. */
    int (*prepare)(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan);
    void (*undo)(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan);  /* or NULL */
    void (*adopt)(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan); /* or NULL */
} kvb_cache_type;

extern const kvb_cache_type kvb_state_policy; /* of groups that scan: stores/state.c */

/* Say why a call failed and return its error: `return kvb_store_fail(store, -ENOSPC, "…", …)`. */
KVB_HOST int kvb_store_fail(kvb_store *store, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Have a row copied, after those named before: 0 or -ENOMEM. From and to may be the same cell. */
KVB_HOST int kvb_store_move(kvb_store *store, uint32_t from, uint32_t to);
/* Have the K row of a cell turned to another position, after the moves: 0 or -ENOMEM. Each cell once. */
KVB_HOST int kvb_store_turn(kvb_store *store, uint32_t cell, int32_t delta);
/* Does this cell hold, bit by bit and in every layer, the row of that number of what is being loaded? */
bool kvb_store_holds(const kvb_store *store, uint32_t row, uint32_t cell);

#endif
