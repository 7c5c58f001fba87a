/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel, of either kind, and how its single calls are made and judged. */
#ifndef KVB_CALLS_SUBJECT_H
#define KVB_CALLS_SUBJECT_H

#include "harness/calls/pairwise.h"
#include "harness/calls/verdict.h"

typedef struct kvb_call_subject {
    const char *kernel; /* its name */
    const kvb_space *space;
    const void *definition, *shapes; /* for the functions below */
    /* Is the point a call that the kernel takes? Else why. Asked in a process of its own. */
    bool (*fits)(const struct kvb_call_subject *subject, const kvb_point *point, char *why, size_t why_bytes);
    double (*cost)(const struct kvb_call_subject *subject, const kvb_point *point);
    uint32_t (*mutes)(const struct kvb_call_subject *subject,
                      const kvb_point *point); /* as in kvb_point_rules, or NULL */
    /* Makes and judges the call. 0; or a negative errno with why: it could not be judged. */
    int (*judge)(const struct kvb_call_subject *subject, const kvb_point *point, uint64_t seed, kvb_call_teams *teams,
                 kvb_call_verdict *verdict, char *why, size_t why_bytes);
} kvb_call_subject;

#endif
