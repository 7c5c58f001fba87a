/* SPDX-License-Identifier: Apache-2.0 */
/* Work in a child process: a plug-in's function that crashes ends that process alone. */
#ifndef KVB_CHILD_H
#define KVB_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "harness/replay/replay.h"

/*
 * Does the work in a child process, which leaves its findings in memory that it shares with the caller. The caller has
 * no threads running. 0; -ECHILD: the child crashed, exited, or took longer than `seconds` (0: no limit); or the error
 * of fork().
 */
int kvb_apart(void (*work)(void *ctx), void *ctx, double seconds);

/* Forks. The child calls main(ctx) and ends. It leaves no core, and dies when its parent dies, even while it is
 * stopped. Returns the child, or -errno. */
pid_t kvb_process_start(void (*main)(void *ctx), void *ctx);

/* Has the child ended? KVB_LOOK_MS: interval of polls where pidfd_open() is missing (Valgrind 3.19). */
#define KVB_LOOK_MS 5
bool kvb_process_ended(pid_t pid);

/* Waits until the process has ended. Kills it after `seconds` (below 0: never). Returns whether it ended in time. */
bool kvb_process_wait(pid_t pid, double seconds, int *status);

/*
 * One combination in one child process, so that the run goes on whatever a plug-in does. The child leaves its result in
 * memory that it shares with the parent. A crash, an exit or a time-out becomes the status, with the place.
 */
typedef struct kvb_child_options {
    kvb_replay_options replay; /* its team is made in the child */
    uint32_t threads;
    double seconds; /* time limit; 0: none */
    /* Called in the child before the replay; may change its options. Below 0: the combination fails, with why. NULL:
     * none. */
    int (*enter)(const void *ctx, kvb_replay_options *replay, char *why, size_t why_bytes);
    const void *enter_ctx;
} kvb_child_options;

/* A child that runs. */
typedef struct kvb_child {
    const kvb_child_options *options;
    struct kvb_child_shared *shared; /* its result and its place */
    pid_t pid;
    int turns; /* socket on which the child asks for a turn by one byte, and gets one by another; -1: no turns */
} kvb_child;

/*
 * Starts n children, each with a result in which the caller has set the names. All are forked from the same state of
 * memory, so each maps its memory at the same addresses: code runs some percent faster at one address than at another.
 * The caller has no threads running. 0, or -errno if a child could not be made; then none runs.
 */
int kvb_children_start(const kvb_child_options *options, const kvb_result *results, size_t n, bool take_turns,
                       kvb_child *children);
/* Waits until the child has ended. Kills it after `seconds` (below 0: never). Fills status, reason and measurements of
 * the result. */
void kvb_child_end(kvb_child *child, double seconds, kvb_result *result);

/* Did the child exceed its time limit in a function of the kernel? */
bool kvb_child_hung_in_kernel(const kvb_result *result);

/* Starts one child and waits for its end, with the time limit of the options. */
int kvb_child_run(const kvb_child_options *options, kvb_result *result);

#endif
