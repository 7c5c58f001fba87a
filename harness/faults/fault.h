/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planted faults: what the checks are there for. A fault takes one part of an honest combination and does one thing
 * wrong in it, by the part's own contract (attend.h, store.h, pool.h): it calls the honest part and changes what goes
 * in or what comes out. So each fault may lie in any kernel, cache or pool, and no rename breaks it. It is planted in
 * the child, before the replay.
 */
#ifndef KVB_FAULT_H
#define KVB_FAULT_H

#include "harness/replay/job.h"
#include "results/check.h"
#include "harness/replay/pool_wrap.h"

typedef struct kvb_fault {
    const char *name;
    const char *breaks; /* what is wrong, in words */
    kvb_check check;    /* the first one that is to catch it */
    /* Honest combinations, with ", " between them: "workload cache pool kernel", and words of
     * harness/commands/faults.c; "calls none any kernel": its single calls. */
    const char *where;
    /* Of kernels. A fault of `sight` is handed bit rows. */
    void (*sight)(const kvb_attend *call, uint32_t query, uint64_t *row); /* changes the cells that a query sees */
    void (*before)(kvb_attend *call);                                     /* changes what the kernel is handed */
    int (*after)(const kvb_attend *call);                                 /* changes what it left; returned */
    void (*kernel)(kvb_kernel *wrong);                                    /* changes the kernel itself */
    int (*scan)(const kvb_scan *call); /* of scan kernels: in place of scan(), which it finds in kvb_fault_honest */
    void (*scan_arithmetic)(const kvb_scan_problem *problem,
                            kvb_scan_arithmetic *arithmetic); /* with scan: in its place */
    /* Of caches and pools: replaces functions of a copy of the honest type, which they find in kvb_fault_honest. */
    void (*cache)(kvb_cache_type *wrong);
    void (*k_pool)(kvb_pool_type *wrong), (*v_pool)(kvb_pool_type *wrong);
} kvb_fault;

/* Ends with a name of NULL. */
extern const kvb_fault kvb_kernel_faults[], kvb_input_faults[], kvb_output_faults[], kvb_conduct_faults[],
    kvb_claim_faults[], kvb_cache_faults[], kvb_shift_faults[], kvb_plan_faults[], kvb_pool_faults[], kvb_byte_faults[],
    kvb_prompt_faults[], kvb_save_faults[], kvb_tree_faults[], kvb_front_faults[], kvb_scan_faults[], kvb_call_faults[],
    kvb_alone_faults[], kvb_holder_faults[];
extern const kvb_fault *const kvb_fault_tables[]; /* all of these; ends with NULL */

/* What the planted part was, in the child. */
typedef struct kvb_honest {
    const kvb_kernel *kernel;
    const kvb_scan_face *scan;
    const kvb_cache_type *cache;
    const kvb_pool_type *pool;
} kvb_honest;
extern kvb_honest kvb_fault_honest;

extern uint32_t kvb_fault_dim, kvb_fault_heads; /* of the pool last opened */
/* Opens the honest pool. Other functions of a wrong pool call those of kvb_pool_passing. */
int kvb_fault_pool_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool);

/* Rows [dim] of a wrong pool are changed before they are stored. */
void kvb_fault_rows(kvb_pool_type *wrong, void (*how)(float *row));

/* A function for kvb_child_options.enter; fault: a kvb_fault. */
int kvb_fault_plant(const void *fault, kvb_replay_options *replay, char *why, size_t why_bytes);

#endif
