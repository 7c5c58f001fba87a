/* SPDX-License-Identifier: Apache-2.0 */
/* The summary of a run for people: readable in ten seconds. */
#ifndef KVB_SUMMARY_H
#define KVB_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>

#include "results/result.h"

/* Results with one status and one reason, up to names and numbers. */
typedef struct kvb_reason_group {
    const kvb_result *first;
    size_t n;
    bool varies; /* the reasons have different numbers */
} kvb_reason_group;

/* Copies the first line of the reason without the line of the trace and the names of this record's pools and cache. */
void kvb_reason_reduce(const kvb_result *r, char text[KVB_REASON]);

/* Groups of the skipped results, or of the failed ones, from malloc; NULL: no memory. */
kvb_reason_group *kvb_reason_groups(const kvb_result *results, size_t n, bool skips, size_t *n_groups);

/* same: the ways (kvb_same_kind) in which single calls gave the same bits, "alignment, again". Else those with other
 * bits: "batch 0.071, threads 0.0019", in units of the bound. */
void kvb_same_words(const kvb_result *result, bool same, char *text, size_t bytes);

/* Makes "softcap=30,5 k=(18)" of "softcap=30,5 k=f32,f16,...": many values are only counted. */
void kvb_axes_shorten(const char *list, char *text, size_t bytes);

typedef enum kvb_summary_rows {
    KVB_ROWS_NONE,
    KVB_ROWS_FEW, /* rows of combinations that ran, if they are few */
    KVB_ROWS_ALL, /* all rows, skipped ones included */
} kvb_summary_rows;

typedef struct kvb_summary {
    const char *path;        /* of the result file; NULL: none */
    const char *note;        /* openblas_note of the manifest; "": none */
    const char *coverage;    /* which combinations the run has, and how many it leaves out; NULL or "": all */
    const char *pools_alone; /* pools that were also judged alone; NULL or "": none */
    bool untimed;            /* the run measured no times */
    bool unfinished;         /* the run goes on or was stopped: only `show` reads its records */
    bool counters;           /* print counters */
    double seconds;          /* duration of the run; NaN: unknown */
    kvb_summary_rows rows;
    bool is_markdown; /* lists and tables in Markdown */
} kvb_summary;

/* Prints warnings, rows, statuses and what was judged, failures, the fastest and the smallest of each workload, reasons
 * of skipped combinations, and commands that show more, in lines of KVB_PAGE_COLUMNS if names allow it. Markdown begins
 * with the verdict, and has statuses and failures before the rows. Failures and skips of one kind are counted, not
 * repeated. 0, -ENOMEM or -EIO. */
int kvb_summary_print(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out);

/* Prints a few lines: what was judged and whether all is right; failures with their reasons, and the command that
 * repeats the first one. 0, -ENOMEM or -EIO. */
int kvb_summary_right(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out);

/* Writes "lin12, k=lin12,v=f16 and 3 more": pools over which only witnesses passed, so that no output was compared with
 * the truth; skipped_too: also pools that nothing ran over. Returns how many; none: "". */
size_t kvb_results_unjudged(const kvb_result *results, size_t n, bool skipped_too, char text[KVB_REASON]);

/* Counts the different words that replays with judged outputs have at this offset. length: bytes of a word that count. */
size_t kvb_results_distinct(const kvb_result *results, size_t n, size_t offset, size_t (*length)(const char *word));

#endif
