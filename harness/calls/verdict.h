/* SPDX-License-Identifier: Apache-2.0 */
/* What came of one call, in memory that a child shares with its parent. */
#ifndef KVB_CALLS_VERDICT_H
#define KVB_CALLS_VERDICT_H

#include <stdint.h>

#include "results/result.h"

typedef struct kvb_call_verdict {
    kvb_check check; /* that failed; KVB_CHECK_NONE: the call is right */
    char words[320]; /* what is wrong: "out of query 3, head 1, channel 12 is -0.0789, exact 0.1107, bound 2e-7" */
    double rho;      /* largest error over its bound, of the rows that were judged */
    uint64_t rows, judged; /* of the call; of those, that the oracle judged (the others are looked at for NaN) */
    uint64_t silent;       /* of the judged: rows for which outputs of 0 pass */
} kvb_call_verdict;

/* Notes what is wrong; what was noted first stays. */
__attribute__((format(printf, 3, 4))) void kvb_call_wrong(kvb_call_verdict *verdict, kvb_check check,
                                                          const char *format, ...);

/* Thread teams by size, started once and kept. */
#define KVB_CALL_TEAM 16u /* most threads */
typedef struct kvb_call_teams {
    struct kvb_threads *of[KVB_CALL_TEAM + 1];
} kvb_call_teams;
const struct kvb_team *kvb_call_team(kvb_call_teams *teams, uint32_t threads); /* NULL: it cannot be started */
void kvb_call_teams_end(kvb_call_teams *teams);

#endif
