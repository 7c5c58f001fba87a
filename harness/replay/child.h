/* SPDX-License-Identifier: Apache-2.0 */
/* Work in a process of its own, so that what a plug-in's function does ends that process alone. */
#ifndef KVB_CHILD_H
#define KVB_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "harness/replay/replay.h"

/*
 * Does the work in a child process, which leaves what it finds in memory that the caller shares. 0; -ECHILD: it
 * crashed, ended itself, or took longer than `seconds` (0: no limit); or what fork() says. The caller has no threads
 * running.
 */
int kvb_apart(void (*work)(void *ctx), void *ctx, double seconds);

/* Forks. The child calls main(ctx) and ends. It leaves no core, and dies when its parent dies, even while it is
 * stopped. Returns the child, or -errno. */
pid_t kvb_process_start(void (*main)(void *ctx), void *ctx);

/* Has the child ended? Where a system has no descriptors of processes (Valgrind 3.19), it is asked so often. */
#define KVB_LOOK_MS 5
bool kvb_process_ended(pid_t pid);

/* Waits until the process has ended or its time is up (below 0: for ever); then it is killed. Returns whether it was in
 * time. */
bool kvb_process_wait(pid_t pid, double seconds, int *status);

/*
 * One combination in one child process: whatever the parts do, the run goes on. The child leaves its result
 * in memory shared with the parent; a crash, an exit or a time-out becomes the status, with the place.
 */
typedef struct kvb_child_options {
    kvb_replay_options replay; /* team is made in the child */
    uint32_t threads;
    double seconds; /* time limit; 0: none */
    /* Called in the child before the replay, which it may change. Below 0: the combination fails, why says why. NULL:
     * none. */
    int (*enter)(const void *ctx, kvb_replay_options *replay, char *why, size_t why_bytes);
    const void *enter_ctx;
} kvb_child_options;

/* A child under way. */
typedef struct kvb_child {
    const kvb_child_options *options;
    struct kvb_child_shared *shared; /* what it leaves behind */
    pid_t pid;
    int turns; /* of a child that takes turns: it asks here, by a byte, and gets one; else -1 */
} kvb_child;

/*
 * Begin to run n children, each into a result whose names are the caller's. All are forked from the same state of
 * memory, so that what each maps lies at the same addresses: code runs some percent faster at one address than at
 * another. 0, or -errno when a child could not be made: then there is none. The caller has no threads running.
 */
int kvb_children_start(const kvb_child_options *options, const kvb_result *results, size_t n, bool take_turns,
                       kvb_child *children);
/* Wait until the child has ended, or kill it when `seconds` are up (below 0: wait for ever). Fills status, reason and
 * measurements of the result. */
void kvb_child_end(kvb_child *child, double seconds, kvb_result *result);

/* Had the child no end within its time, in a function of the kernel? */
bool kvb_child_hung_in_kernel(const kvb_result *result);

/* Both of these, with the time limit of the options. */
int kvb_child_run(const kvb_child_options *options, kvb_result *result);

#endif
