/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The truth of layers that scan, over a whole trace. A token's state follows from that of the token before it in its
 * sequence, or of its parent in a tree: so states form a tree over identities, which is all that forks, rollback,
 * drafts and loads are here. The history gives each token's parent; slots that a cache names are not believed, but how
 * long its runs are and what it stores is counted by the bound (oracle/recurrence.h).
 *
 * A lane is a stretch of columns of one head, which needs nothing of the others: of each layer's recurrence, and of its
 * convolution, the first and the last are followed, and as many more as the budget allows. A row is a token of a lane.
 * Of the other lanes there is a second opinion (oracle/recurrence.h), as far as its own budget goes.
 */
#ifndef KVB_DESCENT_H
#define KVB_DESCENT_H

#include "kernels/scan.h"
#include "oracle/recurrence.h"
#include "oracle/oracle.h"
#include "workloads/array.h"

/* Of a layer, the recurrence or the convolution before it. */
typedef enum kvb_scan_part { KVB_PART_STATE, KVB_PART_CONV, KVB_SCAN_PARTS } kvb_scan_part;

typedef struct kvb_scan_lane {
    uint32_t head, first, n;    /* columns */
    const kvb_glance_row *rows; /* [tokens] of a lane of which there is a second opinion; NULL: it is followed */
} kvb_scan_lane;

/* Made once for all children. */
typedef struct kvb_descent {
    const kvb_trace *trace;
    const kvb_values *values;
    uint32_t *parent;   /* [tokens] identity; KVB_DESCENT_ROOT: the first of its sequence */
    uint32_t *youngest; /* [tokens] the largest identity among those that follow it; 0: none does */
    kvb_scan_lane *lanes;
    size_t *lane_first;   /* [layers][KVB_SCAN_PARTS] + 1: of each part in lanes; none of layers that attend */
    size_t *lane_glanced; /* [layers][KVB_SCAN_PARTS]: of each part, the first of which there is a second opinion; those
                             before it are followed */
    uint64_t total;       /* lanes that there are */
    kvb_glance_row *rows; /* their own mapping */
    kvb_arena arena;      /* of all else */
} kvb_descent;

#define KVB_DESCENT_ROOT UINT32_MAX

/* max_pairs: the budget, in visits of a row of a state's column by a token, 16 of which cost about what a (query, head,
 * cell) of attention does. opinion_pairs: that of second opinions, 16 visits each. *descent is NULL if no layer scans.
 * 0 or -ENOMEM. */
int kvb_descent_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                     kvb_descent **descent);
void kvb_descent_free(kvb_descent *descent);
/* Lanes of a layer that are followed. */
size_t kvb_descent_lanes(const kvb_descent *descent, uint32_t layer);

/* What is followed in one pass. */
typedef struct kvb_heirs kvb_heirs;
int kvb_heirs_open(const kvb_descent *descent, kvb_heirs **heirs); /* 0 or -ENOMEM */
void kvb_heirs_free(kvb_heirs *heirs);

/* A call that was made. */
typedef struct kvb_scan_made {
    uint32_t event, layer;
    kvb_scan_part part;
    const kvb_scan
        *call; /* with out, and the slots as they are after it. Inputs are not looked at: the oracle has its own */
    const uint64_t *tokens; /* [n_tok] identities */
    uint32_t n_own;         /* the last so many are the event's own: their rows are compared */
    uint32_t query;         /* number of the first of these among the event's tokens */
    const kvb_scan_arithmetic *arithmetic;
} kvb_scan_made;

/* What calls are compared by, each NULL: not. */
typedef struct kvb_scan_diffs {
    kvb_diff *out, *states; /* lanes that are followed: out, and what slots hold */
    kvb_diff *opinion;      /* out of the others */
    double *exact, *bound;  /* [n_tok][heads][d_v] of the call: filled where they are known */
} kvb_scan_diffs;

/* Follows the lanes through the call, and compares. 0, -ENOMEM; -EILSEQ: the call comes before its parents'. */
int kvb_heirs_follow(kvb_heirs *heirs, const kvb_scan_made *made, const kvb_scan_diffs *diffs);

#endif
