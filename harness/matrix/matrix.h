/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix: runs every combination of a selection in a child process of its own. One oracle checks all combinations of
 * a workload and a pair of pools. */
#ifndef KVB_MATRIX_H
#define KVB_MATRIX_H

#include "harness/selection/kernel_support.h"
#include "harness/duel/duel.h"
#include "harness/replay/replay.h"
#include "harness/selection/selection.h"
#include "results/result.h"

/* Pools of plug-ins that were judged by themselves, each in the child of the first combination that uses it. */
typedef struct kvb_judged_pools {
    const kvb_pool_type *at[2 * KVB_REGISTRY_MAX];
    size_t n;
} kvb_judged_pools;

typedef struct kvb_matrix_options {
    const kvb_selection *selection; /* after kvb_selection_deal */
    size_t first;                   /* number of its first combination; the run's selections are counted in order */
    const kvb_duel *duel;           /* runs each combination with both sides' parts, in turns; NULL: as selected */
    const kvb_best *best;           /* for selections with kvb_kernel_best; else NULL */
    kvb_setting setting;            /* the run's own, for combinations without a chosen one */
    const char *model;              /* name of the model that replaces that of all workloads; or NULL */
    const kvb_knobs *knobs;         /* oracle_pairs: the oracle's budget in (query, head, cell) visits */
    double seconds;                 /* time limit of a combination */
    bool untimed;                   /* judge only */
    uint32_t jobs;                  /* children that are judged at once; a timed one runs alone */
    bool pools_must_fit; /* it is bad input, not a reason to skip, if no pool stores the rows of any workload */
    FILE *timeline;      /* NULL: none */
    /* Called in each child before its replay, as in kvb_child_options. NULL: none. */
    int (*enter)(const void *ctx, kvb_replay_options *replay, char *why, size_t why_bytes);
    const void *enter_ctx;
    kvb_judged_pools *judged; /* grows; NULL: no pool is judged by itself */
    const kvb_only *only;     /* the calls that are made; NULL: all */
    const char *dump;         /* folder for the first failing call; NULL: none */
    const char *command;      /* beginning of the command that runs one combination (kvb_replay_begin); NULL: none */
    /* Is the combination with this number and these names to be run? 1 or 0; a negative return ends the run. Called for
     * all combinations before the first one runs. NULL: all are. */
    int (*wants)(void *ctx, size_t number, const kvb_result *names);
    /* Receives each wanted combination's final result, in order. A negative return ends the run. */
    int (*take)(void *ctx, const kvb_result *result);
    void *ctx, *new_ctx; /* of wants() and take(); new_ctx: of take() for the new side of a duel */
} kvb_matrix_options;

/* Can the pair store rows of the trace's model, and shift and copy them if the trace does? */
bool kvb_pair_fits(const kvb_pool_pair *pair, const kvb_trace *trace, char *why, size_t why_bytes);

/* 0; -EINVAL for bad input (a trace or its tensors, unreadable or wrong); what wants() or take() returned; -EINTR if a
 * signal asked to stop (harness/program.h); -ENOMEM; an error of fork(). why names the cause. */
int kvb_matrix_run(const kvb_matrix_options *options, char *why, size_t why_bytes);

#endif
