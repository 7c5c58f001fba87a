/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes whose results come back in the order in which they were asked for. Those that are only judged run
 * several at once. One that is timed runs alone: the others have ended before it begins.
 *
 * A kernel that has no end costs the time limit each time. When it had none in KVB_CREW_HANGS combinations, those that
 * come later in the order are skipped, whatever has come of them meanwhile: which are skipped does not depend on the
 * number of children.
 */
#ifndef KVB_CREW_H
#define KVB_CREW_H

#include "harness/replay/child.h"

#define KVB_CREW_HANGS 3u

typedef struct kvb_crew kvb_crew;

typedef struct kvb_crew_options {
    uint32_t jobs;                                    /* judged children at once */
    int (*take)(void *ctx, const kvb_result *result); /* a negative return is passed on */
    void *ctx;
} kvb_crew_options;

int kvb_crew_open(const kvb_crew_options *options, kvb_crew **crew); /* 0 or -ENOMEM */

/*
 * The next combination: its names, and how to run it (copied; NULL: the result is what it is). Waits until a child can
 * be made; what it inherits may be freed by the caller from then on, but for the trace. 0; what take() returned; -EINTR
 * (harness/program.h); or why no child could be made. The caller has no threads running.
 * null: a timed child is followed by a second one that does the same, unless its passes are long. The two differ by
 * noise alone: time.null_difference.
 */
int kvb_crew_add(kvb_crew *crew, const kvb_child_options *child, bool null, const kvb_result *result);

int kvb_crew_finish(kvb_crew *crew); /* waits for all: as kvb_crew_add */
void kvb_crew_close(kvb_crew *crew); /* kills what still runs; NULL is nothing */

#endif
