/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One combination in one child process: whatever the parts do, the run goes on. The child leaves its result
 * in memory shared with the parent; a crash, an exit or a time-out becomes the status, with the place.
 */
#ifndef KVB_CHILD_H
#define KVB_CHILD_H

#include "harness/replay/replay.h"

typedef struct kvb_child_options {
    kvb_replay_options replay; /* team is made in the child */
    uint32_t threads;
    bool unbound;              /* threads go where the system puts them */
    bool first_touch;          /* large blocks are first touched by the team's threads in equal parts */
    const char *const *events; /* hardware counters, NULL-terminated; NULL: the default ones */
    double seconds;            /* time limit; 0: none */
} kvb_child_options;

/* Fills status, reason and measurements of result (its names are the caller's). 0, or -errno when no child
 * could be made. The caller has no threads running. */
int kvb_child_run(const kvb_child_options *options, kvb_result *result);

#endif
