/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says, as lines of a table: one for each contestant, one for a gain of one over the other. */
#ifndef KVB_BENCH_REPORT_H
#define KVB_BENCH_REPORT_H

#include "ci/bench/bench.h"
#include "results/result.h"

/* A work's target counts once, whichever of its contestants meets it. */
typedef struct bench_score {
    uint32_t targets, met;
} bench_score;

extern const char *const bench_headings[]; /* for kvb_table_new */

/* Ratios and gains are medians of those of single turns, +- their median absolute deviation. 0 or -ENOMEM. */
int bench_run_report(kvb_table *table, const bench_run *run, bench_score *score);

#endif
