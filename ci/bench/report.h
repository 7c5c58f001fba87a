/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says, as lines of a table: one for each contestant, one for a gain of one over the other. */
#ifndef KVB_BENCH_REPORT_H
#define KVB_BENCH_REPORT_H

#include "ci/bench/bench.h"
#include "kernels/scan.h"
#include "results/result.h"

/* A work's target counts once, whichever of its contestants meets it. */
typedef struct bench_score {
    uint32_t targets, met;
} bench_score;

extern const char *const bench_headings[]; /* for kvb_table_new */

/* Ratios and gains are medians of those of single turns, +- their median absolute deviation. 0 or -ENOMEM. */
int bench_run_report(kvb_table *table, const bench_run *run, bench_score *score);

/* ---- scan kernels: scans.c ------------------------------------------------------------------------------------- */

typedef struct bench_scan_work {
    const char *name;
    kvb_scan_problem problem; /* without n_tok and run */
    uint32_t tokens, run;     /* of a call: a batch (run 1) or a prompt */
    double target;            /* least share of the limit; 0: shown only */
} bench_scan_work;
extern const bench_scan_work bench_scan_works[]; /* ends with name NULL */

/* Measures a work for so long, and adds its lines. cells: a prompt has at most so many tokens, and a batch one set of slots,
 * whatever caches hold; 0: as the work says. 0 or -ENOMEM. */
int bench_scan_run(kvb_table *table, const bench_scan_work *work, const kvb_team *team, uint32_t cells, double seconds,
                   bench_score *score);

#endif
