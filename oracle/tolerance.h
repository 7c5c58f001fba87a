/* SPDX-License-Identifier: Apache-2.0 */
/* Rules by which other projects' tests pass an output (kvb_tolerance of kernels/attend.h), over exact outputs. */
#ifndef KVB_TOLERANCE_H
#define KVB_TOLERANCE_H

#include "kernels/attend.h"
#include "oracle/oracle.h"

extern const char *const kvb_tolerance_names[]; /* by kind: "none", "nmse", "close" */

/* Outputs taken so far: all zero at first. Where the exact one is not finite there is nothing to compare. */
typedef struct kvb_closeness {
    double error2, exact2; /* sums of squares */
    double farthest;       /* |error| over what the rule allows one output; of CLOSE */
    uint64_t elements;
} kvb_closeness;

/* One row of out_elem; exact output c is at exact + c * step doubles. */
void kvb_closeness_row(kvb_closeness *c, const kvb_tolerance *rule, kvb_elem out_elem, const void *out, uint32_t v_dim,
                       const double *exact, size_t step);

/* Takes what another has taken. */
void kvb_closeness_add(kvb_closeness *c, const kvb_closeness *other);

/* What was found, over what the rule allows: above 1 is refused. NaN counts as infinite. */
double kvb_closeness_share(const kvb_closeness *c, const kvb_tolerance *rule);

#endif
