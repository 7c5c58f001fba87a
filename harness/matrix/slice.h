/* SPDX-License-Identifier: Apache-2.0 */
/* The combinations of one workload, one choice of values and one pair of pools: what they are judged by is common to all. */
#ifndef KVB_BLOCK_H
#define KVB_BLOCK_H

#include "harness/matrix/matrix.h"
#include "harness/selection/selection.h"
#include "workloads/trace.h"
#include "workloads/values.h"

/* One workload with one choice of values, and what is shared by its combinations. */
typedef struct kvb_lane {
    const kvb_matrix_options *options;
    const char *name;    /* of the workload */
    const char *profile; /* NULL: its own values */
    const kvb_trace *trace;
    kvb_values *values; /* for kernels that attend; NULL: values_why says why not */
    kvb_values *tags;   /* for witnesses, likewise */
    char values_why[KVB_REASON], tags_why[KVB_REASON];
    const double *peaks;   /* f32 multiply-add, GFLOP/s, for each thread count of the selection */
    const bool *wanted;    /* of each combination of the selection: is it to be run? */
    struct kvb_crew *crew; /* judges and times children, and goes on with the next block meanwhile; NULL: of a duel */
} kvb_lane;

/* An empty result with the names of a combination; a stand-in for a kernel is replaced where an earlier run knows by what.
 * Else why says why not. The kernel, or NULL. */
const kvb_kernel *kvb_combination_name(const kvb_matrix_options *options, kvb_spot at, kvb_result *result,
                                       char why[KVB_REASON]);

/* "f32", "f16", "bf16": of outputs. */
bool kvb_out_parse(const char *name, kvb_elem *elem);

/* Does the pair store rows of the trace's model, and do what the trace does with them? */
bool kvb_pair_fits(const kvb_pool_pair *pair, const kvb_trace *trace, char *why, size_t why_bytes);

/* Runs those that are wanted among the kvb_block_size combinations from `first` on. What kvb_matrix_run returns. */
int kvb_block_run(const kvb_lane *lane, size_t first, char *why, size_t why_bytes);

#endif
