/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the queries of a trace see: first only how much (to choose what is checked), then for the chosen ones
 * which tokens. Two walks over the history. Inside the oracle only.
 */
#ifndef KVB_CENSUS_H
#define KVB_CENSUS_H

#include "oracle/attention.h"
#include "workloads/trace.h"

/* Queries are numbered through the trace. */
typedef struct kvb_census {
    size_t n_events;
    size_t *first;     /* [n_events + 1] number of the first query of each event */
    uint32_t *visible; /* [first[n_events]] tokens seen */
    /* of gathered queries: the tokens of query q are the runs run_first[q] .. run_first[q + 1] - 1 */
    size_t *run_first; /* [first[n_events] + 1] */
    kvb_token_run *runs;
    size_t n_runs, room_runs;
} kvb_census;

int kvb_census_take(const kvb_trace *trace, kvb_census *census); /* 0 or -ENOMEM */
/* Adds the runs of those queries for which wanted[number] is set; the others have none. */
int kvb_census_gather(const kvb_trace *trace, const bool *wanted, kvb_census *census); /* 0 or -ENOMEM */
void kvb_census_free(kvb_census *census);

#endif
