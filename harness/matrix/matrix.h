/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix: every combination of a selection, one child process each, checked against one oracle for
 * each workload and pair of pools. */
#ifndef KVB_MATRIX_H
#define KVB_MATRIX_H

#include "harness/selection/kernel_support.h"
#include "harness/duel/duel.h"
#include "harness/replay/replay.h"
#include "harness/selection/selection.h"
#include "results/result.h"

/* Pools of plug-ins that were judged by themselves, each beside the first combination that runs over it. */
typedef struct kvb_judged_pools {
    const kvb_pool_type *at[2 * KVB_REGISTRY_MAX];
    size_t n;
} kvb_judged_pools;

typedef struct kvb_matrix_options {
    const kvb_selection *selection; /* dealt */
    size_t first;                   /* number of its first combination, counted from that of the first selection on */
    const kvb_duel *duel;           /* each combination with its parts of both sides, in turns; NULL: as selected */
    const kvb_best *best;           /* for selections with kvb_kernel_best; else NULL */
    kvb_setting setting;            /* the run's own: of combinations for which the selection has chosen no other */
    const char *model;              /* the name of the model that all workloads have in place of their own; or NULL */
    const kvb_knobs *knobs;         /* oracle_pairs is the oracle's budget, in (query, head, cell) visits */
    double seconds;                 /* time limit of a combination */
    bool untimed;                   /* judge only */
    uint32_t jobs;                  /* children that are judged at once; what is timed is alone */
    bool pools_must_fit; /* where no pool stores the rows of any workload, that is bad input, not a reason to skip */
    FILE *timeline;      /* NULL: none */
    /* As of kvb_child_options: called in each child before its replay. NULL: none. */
    int (*enter)(const void *ctx, kvb_replay_options *replay, char *why, size_t why_bytes);
    const void *enter_ctx;
    kvb_judged_pools *judged; /* are added to; NULL: no pool is judged by itself */
    const kvb_only *only;     /* the calls that are made; NULL: all */
    const char *dump;         /* NULL, or a folder for the first call that fails */
    const char *command;      /* that runs one of these combinations alone: its begin (kvb_replay_begin); NULL: none */
    /* Is the combination of this number and these names to be run? 1 or 0; a negative return ends the run. All are
     * asked about before the first is run. */
    int (*wants)(void *ctx, size_t number, const kvb_result *names);
    /* Takes each combination that was wanted, in order, when nothing is to be added to it. A negative return ends the
     * run. */
    int (*take)(void *ctx, const kvb_result *result);
    void *ctx, *new_ctx; /* of wants() and take(); new_ctx: of take() for the new side of a duel */
} kvb_matrix_options;

/* 0; -EINVAL for bad input (a trace or its tensors, unreadable or wrong); what wants() or take() returned; -EINTR when
 * asked to stop (harness/program.h); -ENOMEM and what fork() says. why names what was at fault. */
int kvb_matrix_run(const kvb_matrix_options *options, char *why, size_t why_bytes);

#endif
