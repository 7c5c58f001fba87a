/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two sets of results against each other: for each combination one verdict on what became of it and its time, and one
 * more for each exact quantity (memory, bytes, rho) that changed; and for each kernel and each cache a
 * verdict on all its combinations together, which finds what no single one of a noisy run can show.
 *
 * Time is compared by the logarithm of new / base. The interval of it is
 *   t se   se: bootstrap standard error of the medians of the pass series, inflated by the passes' autocorrelation
 *          (first-order: Priestley, Spectral Analysis and Time Series, 1981, 5.3); t: Student's quantile,
 * but never narrower than what the runs' null comparisons say that a run can resolve (their 99 % quantile scaled to the
 * same confidence, and the combination's own null differences). The confidence holds for all combinations together
 * (Bonferroni's intervals: Dunn, Multiple comparisons among means, 1961), so that what is printed is what is judged:
 *   SAME       the whole interval lies within the threshold (two one-sided tests: Schuirmann, 1987)
 *   SLOWER     the whole interval lies above 0, and the estimate reaches the threshold; FASTER likewise
 *   UNDECIDED  all else, with the reason
 */
#ifndef KVB_COMPARE_H
#define KVB_COMPARE_H

#include "results/result.h"
#include "results/thresholds.h"

typedef enum kvb_verdict {
    /* in the order in which they are shown; those that are regressions first */
    KVB_VERDICT_BROKEN,    /* fails now, and did not before */
    KVB_VERDICT_GONE,      /* ran before, is not there or skipped now */
    KVB_VERDICT_SLOWER,    /* time */
    KVB_VERDICT_MORE,      /* an exact quantity grew by more than its threshold */
    KVB_VERDICT_UNDECIDED, /* time */
    KVB_VERDICT_CHANGED,   /* an exact quantity grew, which its threshold allows, or is not measured any more */
    KVB_VERDICT_FASTER,    /* time */
    KVB_VERDICT_LESS,      /* an exact quantity fell */
    KVB_VERDICT_FIXED,     /* failed before, passes now */
    KVB_VERDICT_NEW,       /* was not there or skipped before, passes now */
    KVB_VERDICT_FAILING,   /* fails as before */
    KVB_VERDICT_SAME,      /* time */
    KVB_VERDICT_SKIPPED,   /* never ran */
    KVB_VERDICTS
} kvb_verdict;
const char *kvb_verdict_name(kvb_verdict verdict); /* "BROKEN", … */
bool kvb_verdict_is_regression(kvb_verdict verdict);

/* What is compared. */
typedef enum kvb_metric {
    KVB_METRIC_STATUS, /* verdicts on status alone */
    KVB_METRIC_TIME,   /* ns, the median of the attending steps */
    KVB_METRIC_ALLOCATOR_PEAK,
    KVB_METRIC_SCRATCH,
    KVB_METRIC_STAGED,
    KVB_METRIC_COPIED,
    KVB_METRIC_READ,
    KVB_METRIC_WALK,
    KVB_METRIC_RHO,
    KVB_METRICS
} kvb_metric;
const char *kvb_metric_name(kvb_metric metric); /* "time", "allocator_peak", … as in result files */
bool kvb_metric_is_bytes(kvb_metric metric);

typedef struct kvb_finding {
    const kvb_result *base, *new; /* of the caller's arrays; NULL: not there */
    kvb_metric metric;
    kvb_verdict verdict;
    double before, after;    /* NaN: not measured */
    double ratio, low, high; /* of time: new / base with its interval; low and high NaN: exact, or none */
    char reason[KVB_REASON]; /* empty where the numbers say it all */
} kvb_finding;

/* All combinations of one kernel or one cache: median of new / base (compare_groups.h). */
typedef struct kvb_group {
    const char *axis; /* "kernel", … */
    char name[2 * KVB_NAME + 8];
    size_t n;            /* combinations with both times */
    kvb_verdict verdict; /* SAME, SLOWER, FASTER or UNDECIDED */
    double ratio, low, high;
    char reason[KVB_REASON];
} kvb_group;

typedef struct kvb_comparison {
    kvb_finding *findings; /* one of each combination, in kvb_key_order, each followed by its exact changes */
    kvb_group *groups;
    size_t n, n_groups;
    size_t count[KVB_VERDICTS]; /* of findings */
    size_t compared;            /* combinations whose time was compared: what the confidence is corrected for */
    double resolution;          /* what the runs can resolve at all: relative; NaN: they do not say */
    double machine; /* bandwidth of the machine beside the runs, base / new: above 1, it was slower; NaN: paired */
} kvb_comparison;

typedef struct kvb_compare_options {
    const kvb_thresholds *thresholds;
    bool paired; /* time.series[i] of base and new were measured side by side, and null_difference is of that way */
    bool subset; /* new may lack combinations */
    const char *no_time; /* why times cannot be compared ("another machine"); NULL: they can */
} kvb_compare_options;

/* 0; -ENOMEM; -EINVAL with why when one side has a combination twice. The results must outlive the comparison. */
int kvb_compare(const kvb_result *base, size_t n_base, const kvb_result *new, size_t n_new,
                const kvb_compare_options *options, kvb_comparison **comparison, char *why, size_t why_bytes);
void kvb_comparison_free(kvb_comparison *comparison);

/* Findings and groups that are regressions. */
size_t kvb_comparison_regressions(const kvb_comparison *comparison);

/* ---- printing (compare_print.c) -------------------------------------------------------------------------- */

typedef struct kvb_compare_view {
    kvb_table_format format;
    bool all;                 /* the combinations that are the same too */
    bool strict;              /* undecided is a failure */
    const char *base, *new;   /* names of the sides: files or plug-ins */
    const char *const *notes; /* lines on top, ends with NULL: other machine, other version, … */
    const char *command;      /* how to reproduce it */
} kvb_compare_view;

/* Text and md: verdict, notes, groups and findings, a last line that sums up. Csv and json: the findings alone, groups
 * among them. 0, -ENOMEM or -EIO. */
int kvb_comparison_print(const kvb_comparison *comparison, const kvb_compare_view *view, FILE *out);

/* Does the gate close? */
bool kvb_comparison_failed(const kvb_comparison *comparison, bool strict);

#endif
