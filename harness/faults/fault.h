/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planted faults, which test the checks. A fault makes one part of an honest combination do one thing wrong by the part's
 * contract (attend.h, scan.h, store.h, pool.h). It is a row of a table: fault.c calls the honest part and the row's
 * hooks, which change inputs or outputs. So a fault can be planted in any kernel, cache or pool, and a rename breaks none.
 * It is planted in the child, before the replay.
 */
#ifndef KVB_FAULT_H
#define KVB_FAULT_H

#include "caches/stores/prefix.h"
#include "harness/replay/pool_watch.h"
#include "harness/replay/replay.h"
#include "results/result.h"

/* ---- hooks: NULL and 0 leave the part honest --------------------------------------------------------------------- */

#pragma GCC diagnostic ignored "-Wunused-parameter" /* a hook need not use all that it gets */

/* Each macro defines a hook. KVB_HOOK makes a change. _IF makes it if a condition holds. _EACH makes it for each i below
 * n. _EACH_IF makes it for each i for which the condition holds. _OF returns a value. */
#define KVB_HOOK(name, given, change)                                                                                  \
    static void name(given)                                                                                            \
    {                                                                                                                  \
        change;                                                                                                        \
    }
#define KVB_HOOK_IF(name, given, condition, change) KVB_HOOK(name, given, if (condition) change)
#define KVB_HOOK_EACH(name, given, n, change)       KVB_HOOK(name, given, for (size_t i = 0; i < (n); i++) change)
#define KVB_HOOK_OF(type, name, given, value)                                                                          \
    static type name given                                                                                             \
    {                                                                                                                  \
        return value;                                                                                                  \
    }
#define KVB_HOOK_EACH_IF(name, given, n, condition, change) KVB_HOOK_EACH(name, given, n, if (condition) change)

/* One query's row of a call's mask. */
typedef struct kvb_fault_row {
    const kvb_attend *call;
    uint32_t query;
    uint64_t *bits; /* [call->mask.row_words] of the cells that the query sees, to be changed */
} kvb_fault_row;

typedef struct kvb_wrong_kernel {
    uint32_t every, at; /* the hooks up to `after` run in call n = 1, 2, … if n % every == at; every 0: in all */
    bool bits;          /* the kernel gets masks as bit rows; implied by `sight` */
    void (*sight)(const kvb_fault_row *r);                    /* changes the cells that a query sees */
    size_t (*q_from)(const kvb_problem *problem, size_t row); /* takes a row of q from another row [n_tok][n_heads] */
    float (*q_element)(float value, float largest);           /* changes an element; largest: |q| of its row */
    void (*k)(kvb_view *k), (*v)(kvb_view *v);                /* change the views of K and of V */
    void (*before)(kvb_attend *call);                         /* changes the arguments of attend() */
    void (*after)(const kvb_attend *call); /* changes its outputs; call: with the unchanged arguments */
    int returns;                           /* in place of 0 */
    void (*supports)(void);                /* called before supports() */
    uint32_t scratch_halvings;
    void (*declares)(kvb_arithmetic *a);
    size_t declares_by;              /* offset of a double in kvb_arithmetic that is declared to be `by`; 0: none */
    void (*orders)(kvb_order *o);    /* changes the declared order */
    void (*tile)(kvb_order_tile *t); /* changes each tile of that order */
    /* Changes the q [k_dim] of round_query(), or q itself if the honest kernel has no such function. */
    void (*rounds)(const kvb_problem *problem, const float *q, double *rounded);
    uint32_t flags;          /* added to the kernel's own */
    kvb_tolerance tolerance; /* replaces the kernel's own; KVB_TOLERANCE_NONE: does not */
} kvb_wrong_kernel;

typedef struct kvb_wrong_scan {
    void (*slots)(const kvb_scan *call, uint32_t *from); /* changes the slots [n_tok] that tokens begin with */
    void (*before)(kvb_scan *call);
    void (*after)(const kvb_scan *call); /* as for attend() */
    void (*declares)(kvb_scan_arithmetic *a);
    void (*orders)(kvb_scan_order *o);
} kvb_wrong_scan;

/* A call of prepare() or adopt(); for room() only store and change are set. */
typedef struct kvb_fault_call {
    kvb_store *store;
    const kvb_change *change;
    const kvb_feed *feed;
    kvb_plan *plan;   /* of prepare() */
    kvb_change given; /* the change that the policy gets; adopt() starts with that of the last prepare() */
    bool skips;       /* the policy is not called */
    int error;        /* returned by prepare(); if preparing() sets it, the policy is not called */
} kvb_fault_call;

/* A query of a step that sees runs of cells. */
typedef struct kvb_fault_query {
    kvb_fault_call *call;
    uint32_t number, n;
    kvb_run *runs, *last; /* [n], and the last of them */
} kvb_fault_query;

typedef struct kvb_wrong_cache {
    void (*opened)(kvb_store *store); /* after an open() without error */
    uint32_t of; /* kinds of changes for which preparing() to adopted() run, 1 << kind; 0: all. query(): steps alone */
    void (*preparing)(kvb_fault_call *c);    /* store->group and store->options are restored after prepare() */
    void (*prepared)(kvb_fault_call *c);     /* after a prepare() without error */
    void (*failed)(kvb_fault_call *c);       /* after a prepare() with an error of its own */
    bool no_undo;                            /* undo() does nothing */
    void (*query)(const kvb_fault_query *q); /* then, for each query of a step, the last one first */
    void (*adopting)(kvb_fault_call *c), (*adopted)(kvb_fault_call *c); /* before and after adopt() */
    uint32_t (*room)(const kvb_fault_call *c, uint32_t left); /* replaces room(); left: capacity - cells in use */
    uint64_t (*pool_cells)(uint32_t capacity);                /* replaces pool_cells() */
    int (*lies)(kvb_store *store, kvb_spans *cells);          /* changes a list that is not empty */
    /* Returns the number of tokens that match() finds, in place of `found` of n. */
    uint32_t (*match)(const kvb_store *store, uint32_t found, uint32_t n, uint64_t *ordinals);
    kvb_prefix_rules prefix; /* members that are not NULL replace those of kvb_prefix_by */
} kvb_wrong_cache;

typedef struct kvb_fault_write {
    kvb_pool *pool;
    const uint32_t *cells; /* [n]; NULL: start .. start + n - 1 */
    uint32_t start, n;
    const float *rows; /* [n][heads][dim] */
} kvb_fault_write;

/* A head's row in a cell, stored by the honest pool. */
typedef struct kvb_fault_stored {
    const kvb_view *view;
    uint32_t head, cell;
    const float *row; /* [dim] before encoding */
} kvb_fault_stored;

/* A row that gather_into() copies. */
typedef struct kvb_fault_copy {
    kvb_pool *pool;
    uint32_t to, from, first; /* cells; first: `from` of the call's first row */
} kvb_fault_copy;

typedef struct kvb_wrong_pool {
    void (*open)(kvb_pool_options *options);
    void (*write)(kvb_fault_write *w);               /* changes the rows of a write, or their cells */
    void (*row)(float *row);                         /* changes each row [dim] before it is stored */
    float (*element)(float value, uint32_t channel); /* changes each of its elements */
    void (*stored)(const kvb_fault_stored *row);     /* changes its bytes afterwards */
    void (*copy)(const kvb_fault_copy *c);           /* replaces each copy */
    void (*grown)(kvb_pool *pool);                   /* after each growth except the first */
    void (*short_of_memory)(kvb_pool *pool);         /* after one that lacks memory, the same */
    void (*view)(kvb_view *view);
    void (*load)(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw); /* replaces write_raw() */
    int bytes, row_bytes;                                                             /* added to the pool's answers */
} kvb_wrong_pool;

/* ---- rows -------------------------------------------------------------------------------------------------------- */

typedef struct kvb_fault {
    const char *name;
    const char *breaks; /* the fault in words */
    kvb_check check;    /* the first one that must catch it */
    /* Honest combinations, separated by ", ": "workload cache pool kernel", and words of harness/commands/faults.c;
     * "calls none any kernel": single calls of the kernel. */
    const char *where;
    double by; /* a number for the hooks */
    /* hooks; a part without any is not changed */
    kvb_wrong_kernel kernel;
    kvb_wrong_scan scan;
    kvb_wrong_cache cache;
    kvb_wrong_pool k_pool, v_pool;
    /* As in kvb_replay_options: all parts are honest, and an engine counts the length of a sequence wrongly. */
    uint32_t (*length)(const kvb_trace *trace, size_t event, uint32_t seq, uint32_t length);
} kvb_fault;

/* Each ends with a name of NULL. */
extern const kvb_fault kvb_kernel_faults[], kvb_conduct_faults[], kvb_scan_faults[], kvb_cache_faults[],
    kvb_store_faults[], kvb_pool_faults[], kvb_position_faults[];
extern const kvb_fault *const kvb_fault_tables[]; /* all of these; ends with NULL */

/* ---- for hooks, in the child ------------------------------------------------------------------------------------- */

typedef struct kvb_fault_site {
    double by; /* of the fault */
    /* the honest part */
    const kvb_kernel *kernel;
    const kvb_scan_face *scan;
    const kvb_cache_type *cache;
    uint32_t heads, dim;  /* of the pool opened last */
    const kvb_pool *pool; /* viewed last */
} kvb_fault_site;
extern kvb_fault_site kvb_fault_here;

/* For kvb_child_options.enter: plants a kvb_fault. */
int kvb_fault_plant(const void *fault, kvb_replay_options *replay, char *why, size_t why_bytes);

#endif
