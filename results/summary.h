/* SPDX-License-Identifier: Apache-2.0 */
/* What a person wants to know of a run in ten seconds. */
#ifndef KVB_SUMMARY_H
#define KVB_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>

#include "results/result.h"

/* Why results did not pass: one reason for all that differ only in names and numbers. */

/* Results of one status with the same kind of reason. */
typedef struct kvb_reason_group {
    const kvb_result *first;
    size_t n;
    bool varies; /* reasons have different numbers in them */
} kvb_reason_group;

/* Copies the first line of the reason without what belongs to this record alone: the line of the trace, and the names
 * of its pools and its cache. */
void kvb_reason_reduce(const kvb_result *r, char text[KVB_REASON]);

/* Groups of the skipped results, or of the failed ones, from malloc; NULL: no memory. */
kvb_reason_group *kvb_reason_groups(const kvb_result *results, size_t n, bool skips, size_t *n_groups);

/* Which values of the axes the single calls of a run covered. */

/* The ways (kvb_same_kind) in which single calls gave the same bits: "alignment, again"; or other bits: "batch 0.071, threads 0.0019",
 * in units of the bound. */
void kvb_same_words(const kvb_result *result, bool same, char *text, size_t bytes);

/* "softcap=30,5 k=(18)" of "softcap=30,5 k=f32,f16,...": many values are counted. */
void kvb_axes_shorten(const char *list, char *text, size_t bytes);

typedef enum kvb_summary_rows {
    KVB_ROWS_NONE,
    KVB_ROWS_FEW, /* those of the combinations that ran, if they are few */
    KVB_ROWS_ALL, /* those of the skipped ones too */
} kvb_summary_rows;

typedef struct kvb_summary {
    const char *path;        /* of the result file; NULL: there is none */
    const char *note;        /* openblas_note of the manifest; "": none */
    const char *coverage;    /* which combinations these are, and how many are left out; NULL or "": all */
    const char *pools_alone; /* pools that were also judged by themselves; NULL or "": none */
    bool untimed;            /* the run did not time anything */
    bool unfinished;         /* the records of a run that goes on, or was stopped: only `show` reads them yet */
    bool counters;           /* what was counted is to be shown */
    double seconds;          /* how long the run took; NaN: not known */
    kvb_summary_rows rows;
    bool is_markdown; /* lists and tables in Markdown */
} kvb_summary;

/*
 * Prints, in lines of KVB_PAGE_COLUMNS where names allow it:
 *  - in Markdown a heading with the verdict, then what comes after the rows here;
 *  - what is to be known before anything else: the run is not finished, or it cannot resolve 10 %;
 *  - the rows;
 *  - how many combinations have each status, how many were only witnessed, which pools nothing judged, the largest rho, the smallest difference that the run can resolve;
 *  - failures with their reasons;
 *  - for each workload: how many passed, the fastest and how near it came to the machine's limit, the one of least memory;
 *  - the reasons of the skipped ones;
 *  - the commands that show more.
 * Failures and skips of the same kind are counted, not repeated. 0, -ENOMEM or -EIO.
 */
int kvb_summary_print(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out);

/*
 * The same in a few lines: what was judged and whether all of it is right; failures with their reasons and the command
 * that repeats the first one. 0, -ENOMEM or -EIO.
 */
int kvb_summary_right(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out);

/*
 * Names the pools over which no kernel's output was compared with the truth, because only witnesses passed there; with
 * skipped_too also those that nothing ran over. "lin12, k=lin12,v=f16 and 3 more", in text. Returns how many; "" for
 * none.
 */
size_t kvb_results_unjudged(const kvb_result *results, size_t n, bool skipped_too, char text[KVB_REASON]);

#endif
