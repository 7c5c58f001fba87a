/* SPDX-License-Identifier: Apache-2.0 */
/* The combinations of one workload, one choice of values and one pair of pools. They share an oracle. */
#ifndef KVB_SLICE_H
#define KVB_SLICE_H

#include <errno.h>

#include "harness/matrix/matrix.h"
#include "harness/replay/child.h"
#include "harness/selection/selection.h"
#include "workloads/trace.h"
#include "workloads/values.h"

/* The rows of one profile for one scale of q.k, as some profiles depend on the scale. */
typedef struct kvb_lane_values {
    const char *profile; /* NULL: the workload's own */
    double scale;        /* as in kvb_logit_changes */
    kvb_values *values;  /* NULL: not possible, and why says why */
    kvb_values *turned;  /* the same rows after rope, for the oracle of a trace with rows before rope; made on demand */
    char why[KVB_REASON];
} kvb_lane_values;

/* Turns an error of a file into -EINVAL: bad input. -ENOMEM and -EINTR stay. */
static inline int kvb_bad_file(int error)
{
    return error && error != -ENOMEM && error != -EINTR ? -EINVAL : error;
}

/* A workload with the logits of a setting. Children read it, so it is kept until all have ended. */
typedef struct kvb_changed_trace {
    kvb_logit_changes logits;
    kvb_trace *trace;
    struct kvb_changed_trace *next;
} kvb_changed_trace;

/* One workload with one choice of values, and the data that its combinations share. */
typedef struct kvb_lane {
    const kvb_matrix_options *options;
    const char *name;    /* of the workload */
    const char *profile; /* NULL: its own values */
    const kvb_trace *trace;
    kvb_lane_values values[KVB_MAX_PROFILES]; /* the ones needed so far */
    size_t n_values;
    kvb_changed_trace **changed; /* of all lanes */
    const double *peaks;         /* f32 multiply-add, GFLOP/s, for each thread count of the selection */
    const bool *wanted;          /* [combinations of the selection] is it to be run? */
    struct kvb_crew *crew;       /* judges and times children while the next block is prepared; NULL: a duel */
} kvb_lane;

/* Finds, or makes, the values of a profile for the lane's workload with that scale: `trace`. 0, also if the profile does
 * not fit the model; else a negative errno with why. */
int kvb_lane_values_find(kvb_lane *lane, const char *profile, const kvb_trace *trace, double scale,
                         const kvb_lane_values **found, char *why, size_t why_bytes);

/* Fills an empty result with the names of the i-th combination, and returns its kernel. In place of kvb_kernel_best
 * stands the fastest kernel of an earlier run. NULL with why: there is none. */
const kvb_kernel *kvb_combination_name(const kvb_matrix_options *options, size_t i, kvb_result *result,
                                       char why[KVB_REASON]);

/* Can the pair store rows of the trace's model, and shift and copy them if the trace does? */
bool kvb_pair_fits(const kvb_pool_pair *pair, const kvb_trace *trace, char *why, size_t why_bytes);

/* Runs the wanted ones of the kvb_block_size combinations from `first` on. Returns as kvb_matrix_run does. */
int kvb_block_run(kvb_lane *lane, size_t first, char *why, size_t why_bytes);

/*
 * Child processes. Results come back in the order of the requests. A child that is only judged runs beside others. One
 * that is timed runs alone: the others have ended before it begins.
 *
 * A kernel that hangs costs the time limit each time. After KVB_CREW_HANGS such combinations, its later ones in the order
 * are skipped, even those that have ended meanwhile: the choice does not depend on the number of children.
 */

#define KVB_CREW_HANGS 3u

typedef struct kvb_crew kvb_crew;

typedef struct kvb_crew_options {
    uint32_t jobs;                                    /* judged children at once */
    int (*take)(void *ctx, const kvb_result *result); /* a negative return is passed on */
    void *ctx;
} kvb_crew_options;

int kvb_crew_open(const kvb_crew_options *options, kvb_crew **crew); /* 0 or -ENOMEM */

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
