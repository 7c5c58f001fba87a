/* SPDX-License-Identifier: Apache-2.0 */
/* The combinations of one workload, one choice of values and one pair of pools: what they are judged by is common to
 * all. */
#ifndef KVB_SLICE_H
#define KVB_SLICE_H

#include <errno.h>

#include "harness/matrix/matrix.h"
#include "harness/replay/child.h"
#include "harness/selection/selection.h"
#include "workloads/trace.h"
#include "workloads/values.h"

/* Rows of one profile, as some profiles depend on it for one scale of q.k. */
typedef struct kvb_lane_values {
    const char *profile; /* NULL: the workload's own */
    double scale;        /* as in kvb_logit_changes */
    kvb_values *values;  /* NULL: why says why not */
    kvb_values *turned;  /* the same for the oracle of rows before rope, once asked for */
    char why[KVB_REASON];
} kvb_lane_values;

/* Whatever is wrong with a file is bad input; having no memory, or no time, is not. */
static inline int kvb_bad_file(int error)
{
    return error && error != -ENOMEM && error != -EINTR ? -EINVAL : error;
}

/* A workload whose logits a setting has changed. Children read it, so that it is kept until they have all ended. */
typedef struct kvb_changed_trace {
    kvb_logit_changes logits;
    kvb_trace *trace;
    struct kvb_changed_trace *next;
} kvb_changed_trace;

/* One workload with one choice of values, and what is shared by its combinations. */
typedef struct kvb_lane {
    const kvb_matrix_options *options;
    const char *name;    /* of the workload */
    const char *profile; /* NULL: its own values */
    const kvb_trace *trace;
    kvb_lane_values values[KVB_MAX_PROFILES]; /* those that were asked for */
    size_t n_values;
    kvb_changed_trace **changed; /* of all lanes */
    const double *peaks;         /* f32 multiply-add, GFLOP/s, for each thread count of the selection */
    const bool *wanted;          /* of each combination of the selection: is it to be run? */
    struct kvb_crew *crew; /* judges and times children, and goes on with the next block meanwhile; NULL: of a duel */
} kvb_lane;

/* Values of a profile for the lane's workload with that scale, which is `trace`, made when they are first asked for. 0,
 * also where the profile does not fit the model; else a negative errno with why. */
int kvb_lane_values_find(kvb_lane *lane, const char *profile, const kvb_trace *trace, double scale,
                         const kvb_lane_values **found, char *why, size_t why_bytes);

/* An empty result with the names of the i-th combination; a stand-in for a kernel is replaced where an earlier run
 * knows by what. Else why says why not. The kernel, or NULL. */
const kvb_kernel *kvb_combination_name(const kvb_matrix_options *options, size_t i, kvb_result *result,
                                       char why[KVB_REASON]);

/* Does the pair store rows of the trace's model, and do what the trace does with them? */
bool kvb_pair_fits(const kvb_pool_pair *pair, const kvb_trace *trace, char *why, size_t why_bytes);

/* Runs those that are wanted among the kvb_block_size combinations from `first` on. What kvb_matrix_run returns. */
int kvb_block_run(kvb_lane *lane, size_t first, char *why, size_t why_bytes);

/*
 * Child processes. Results come back in the order of the requests. A child that is only judged runs beside others. One
 * that is timed runs alone: the others have ended before it begins.
 *
 * A kernel that has no end costs the time limit each time. When it had none in KVB_CREW_HANGS combinations, those that
 * come later in the order are skipped, even those that ended meanwhile: which are skipped does not depend on the
 * number of children.
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
