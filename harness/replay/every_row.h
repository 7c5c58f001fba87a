/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of every call is looked at: those that the oracle's sample leaves out get a second opinion
 * (oracle/opinion.h), and where there is none, no element may be NaN or infinite. */
#ifndef KVB_EVERY_ROW_H
#define KVB_EVERY_ROW_H

#include "caches/cache.h"
#include "oracle/oracle.h"
#include "results/result.h"

struct kvb_pass;
struct kvb_made; /* checks.h */

typedef struct kvb_every_row {
    kvb_diff diff;    /* of second opinions */
    uint64_t scanned; /* rows that were looked at, in all passes */
    uint64_t moved;   /* rows that were checked in full beside the sample, drawn anew in each pass, in all passes */
} kvb_every_row;

/* Looks at the outputs of the event's tokens, the last ones of the call. 0; an error, where the result of the pass says
 * why. */
int kvb_every_row_check(struct kvb_pass *pass, struct kvb_made *made);
/* Adds to the result what was judged, and the verdict. */
void kvb_every_row_judge(struct kvb_pass *pass, kvb_result *result);

#endif
