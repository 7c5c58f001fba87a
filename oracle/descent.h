/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The truth of layers that scan, over a whole trace. A token's state follows from the state of the token before it in
 * its sequence, or of its parent in a draft tree. So states form a tree over identities, which also covers forks,
 * rollbacks and loads. The history gives each token's parent. The slots that a cache names are not trusted; only the
 * lengths of its runs and its writes of slots enter the bound (oracle/recurrence.h).
 *
 * A lane is a stretch of columns of one head and depends on no other column. The first and the last lane of each layer's
 * recurrence, and of its convolution, are followed, and as many more as the budget allows. Other lanes get a second
 * opinion (oracle/recurrence.h), as far as its own budget goes. A row is a token of a lane.
 */
#ifndef KVB_DESCENT_H
#define KVB_DESCENT_H

#include "kernels/scan.h"
#include "oracle/recurrence.h"
#include "oracle/oracle.h"
#include "workloads/array.h"

/* The parts of a layer that scans: the recurrence, and the convolution before it. */
typedef enum kvb_scan_part { KVB_PART_STATE, KVB_PART_CONV, KVB_SCAN_PARTS } kvb_scan_part;

typedef struct kvb_scan_lane {
    uint32_t head, first, n;    /* columns */
    const kvb_glance_row *rows; /* [tokens] of a lane with a second opinion; NULL: the lane is followed */
} kvb_scan_lane;

/* Made once for all child processes. */
typedef struct kvb_descent {
    const kvb_trace *trace;
    const kvb_values *values;
    uint32_t *parent;   /* [tokens] identity; KVB_DESCENT_ROOT: the first of its sequence */
    uint32_t *youngest; /* [tokens] largest identity among a token's children; 0: no child */
    kvb_scan_lane *lanes;
    size_t *lane_first;   /* [layers][KVB_SCAN_PARTS] + 1: each part's first lane; layers that attend have none */
    size_t *lane_glanced; /* [layers][KVB_SCAN_PARTS]: first lane with a second opinion; lanes before are followed */
    uint64_t total;       /* lanes of all layers, with those that are not chosen */
    kvb_glance_row *rows; /* of second opinions; a mapping of their own */
    kvb_arena arena;      /* of all else */
} kvb_descent;

#define KVB_DESCENT_ROOT UINT32_MAX

/* A visit is a token at one element of a state; 16 visits cost about as much as a (query, head, cell) of attention.
 * options->max_pairs: budget of visits for lanes that are followed. options->opinion_pairs: budget of second opinions, 16
 * visits each. *descent is NULL if no layer scans. 0 or -ENOMEM. */
int kvb_descent_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                     kvb_descent **descent);
void kvb_descent_free(kvb_descent *descent);
/* Lanes of a layer that are followed. */
size_t kvb_descent_lanes(const kvb_descent *descent, uint32_t layer);

/* The states of all lanes in one pass over the trace. */
typedef struct kvb_heirs kvb_heirs;
int kvb_heirs_open(const kvb_descent *descent, kvb_heirs **heirs); /* 0 or -ENOMEM */
void kvb_heirs_free(kvb_heirs *heirs);

/* A finished call. */
typedef struct kvb_scan_made {
    uint32_t event, layer;
    kvb_scan_part part;
    const kvb_scan *call;   /* with out, and slots as it left them; inputs are not read: the oracle has its own */
    const uint64_t *tokens; /* [n_tok] identities */
    uint32_t n_own;         /* the last n_own tokens are the event's own: their rows are compared */
    uint32_t query;         /* index of the first of these among the event's tokens */
    const kvb_scan_arithmetic *arithmetic;
} kvb_scan_made;

/* Where comparisons go; each NULL: not made. */
typedef struct kvb_scan_diffs {
    kvb_diff *out, *states; /* lanes that are followed: out, and what slots hold */
    kvb_diff *opinion;      /* lanes with a second opinion: out */
    double *exact, *bound;  /* [n_tok][heads][d_v] of the call: filled where out is compared */
} kvb_scan_diffs;

/* Follows the lanes through the call, and compares. 0, -ENOMEM; -EILSEQ: a token comes before its parent. */
int kvb_heirs_follow(kvb_heirs *heirs, const kvb_scan_made *made, const kvb_scan_diffs *diffs);

#endif
