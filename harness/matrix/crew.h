/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVB_CREW_H
#define KVB_CREW_H

#include "harness/replay/child.h"

/*
 * Child processes. Results come back in the order of the requests. A child that is only judged runs beside others. One
 * that is timed runs alone: the others have ended before it begins.
 *
 * A kernel that hangs costs the time limit each time. After KVB_CREW_HANGS such combinations, its later ones in the order
 * are skipped, even those that have ended meanwhile: the choice does not depend on the number of children.
 */

#define KVB_CREW_HANGS 3u

typedef struct kvb_crew kvb_crew;

/* jobs: judged children at once. take() gets each result; a negative return is passed on. 0 or -ENOMEM. */
int kvb_crew_open(uint32_t jobs, int (*take)(void *ctx, const kvb_result *result), void *ctx, kvb_crew **crew);

/*
 * Adds the next combination: its names, and how to run it. Waits until a child can be made. From then on the caller may
 * free all that the child inherits, except the trace. The caller has no threads running. child: copied; NULL: the result
 * is already final. null: a second child repeats a timed one, unless its passes are long; the two differ by noise alone:
 * time.null_difference. 0; what take() returned; -EINTR (harness/program.h); or why no child could be made.
 */
int kvb_crew_add(kvb_crew *crew, const kvb_child_options *child, bool null, const kvb_result *result);

int kvb_crew_finish(kvb_crew *crew); /* waits for all children; returns as kvb_crew_add does */
void kvb_crew_close(kvb_crew *crew); /* kills the children that still run; NULL: nothing */

#endif
