/* SPDX-License-Identifier: Apache-2.0 */
/* What a person wants to know of a run in ten seconds. Pure: records in, text out. */
#ifndef KVB_SUMMARY_H
#define KVB_SUMMARY_H

#include "results/result.h"

#define KVB_SUMMARY_FAILURES 5u /* what a person looks at before the file */

typedef struct kvb_summary {
    const char *path;  /* of the result file; NULL: there is none */
    const char *note;  /* of the manifest, openblas_note; "": none */
    double seconds;    /* that the run took; NaN: not known */
    size_t n_failures; /* how many to list at most */
    bool is_markdown;  /* lists and tables in Markdown */
} kvb_summary;

/* How many of each status, and the largest rho; what failed and why; for each workload the fastest combination, how much
 * faster its kernel is than the next one there, what fraction of the hardware's limit it reaches and which limit that
 * is, and memory; the smallest difference that the run can resolve; what to do next. 0, -ENOMEM or -EIO. */
int kvb_summary_print(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out);

#endif
