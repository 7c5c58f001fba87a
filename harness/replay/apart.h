/* SPDX-License-Identifier: Apache-2.0 */
/* Work in a process of its own, so that what a plug-in's function does there ends nobody else. */
#ifndef KVB_APART_H
#define KVB_APART_H

#include <stdbool.h>
#include <sys/types.h>

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

#endif
