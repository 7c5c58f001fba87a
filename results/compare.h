/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares two sets of results. Each combination gets a verdict on its status and time, and one for each exact quantity
 * (memory, bytes, rho) that changed. Each kernel and each cache gets a verdict on all its combinations together, which
 * finds changes that no single combination of a noisy run can show.
 *
 * Times are compared by x, the logarithm of new / base. Runs of one build differ by more than the passes of a run do.
 * With K runs of the base and M of the new build the half-width of the interval is
 *   t(3 + 2 min(K, M) - 2) s sqrt(1/K + 1/M),   s^2 = max(s0^2, (3 s0^2 + sum (x - mean of its build)^2) / (3 + K + M - 2))
 * This is the moderated t statistic (Smyth, Linear models and empirical Bayes methods, Stat. Appl. Genet. Mol. Biol. 3,
 * 2004, 3) with 3 prior degrees of freedom: a few combinations vary far more from run to run than the others. An odd
 * run shows only beside other runs of its build, so the freedom grows with the smaller side. From three runs of each
 * build on, s0 is the middle of the combinations' scatters; with fewer it is KVB_BETWEEN_RUNS times the middle null
 * comparison as a standard deviation. With one run on each side the half-width is the largest of this, of
 *   t se   se: bootstrap standard error of the medians of the pass series, enlarged for the passes' autocorrelation
 *          (first-order: Priestley, Spectral Analysis and Time Series, 1981, 5.3); t: Student's quantile,
 * of the 99 % quantile of the null comparisons, scaled to the same confidence, and of the combination's own null
 * differences. The confidence holds for all combinations together (Bonferroni's intervals: Dunn, Multiple comparisons
 * among means, 1961), so the printed intervals are those that decide:
 *   SAME       the whole interval lies within the threshold (two one-sided tests: Schuirmann, 1987)
 *   SLOWER     the whole interval lies above 0, and the estimate reaches the threshold; FASTER: below 0
 *   UNDECIDED  otherwise, with the reason
 * The noise is unknown with fewer than three null comparisons of separate runs. An interval that reaches further than a
 * factor of four is unknown, too.
 */
#ifndef KVB_COMPARE_H
#define KVB_COMPARE_H

#include "results/result.h"
#include "results/statistics.h"

#define KVB_CONFIDENCE 0.99 /* default, for all combinations together */

/* Standard deviation from run to run / that of null comparisons within a run. Chosen so that 44 runs of `run` and 44 of
 * `bench`, of one build on a busy machine of two cores, raise no alarm. results/power.md measures it on other runs. */
#define KVB_BETWEEN_RUNS 2.0
#define KVB_RUNS         32u /* most runs of one build */

/* ---- thresholds --------------------------------------------------------------------------- */

/*
 * The changes that a comparison allows, from a small JSON file:
 *
 *   {"kvbench_thresholds": 1, "time": 0.05, "memory": 0, "bytes": 0, "rho": null, "counts": 0.001,
 *    "misses": 0.03, "confidence": 0.99,
 *    "patterns": [{"match": "long-decode/STAR/flash/STAR", "time": 0.10}, …]}      (STAR: an asterisk)
 *
 * time, memory (allocator_peak, scratch, staged, copied bytes), bytes (read, walked) and rho are relative: 0.05 allows
 * 5 % more; null allows any growth. counts (instructions, data reads and writes) and misses (modelled ones) are those
 * of `run --count`. Only the first key is required. fnmatch matches a pattern against kvb_key_name
 * ("workload/cache/pool/kernel/threads/growth"; an asterisk also matches slashes). If several match, the last one
 * counts, key by key. confidence holds for all combinations together.
 */
#define KVB_THRESHOLD_PATTERNS 64u

typedef enum kvb_limit {
    KVB_LIMIT_TIME,
    KVB_LIMIT_MEMORY,
    KVB_LIMIT_BYTES,
    KVB_LIMIT_RHO,
    KVB_LIMIT_COUNTS,
    KVB_LIMIT_MISSES,
    KVB_LIMITS
} kvb_limit;

typedef struct kvb_threshold_pattern {
    char match[512];
    double limit[KVB_LIMITS]; /* NaN: not given; infinity: any growth */
    bool met;                 /* matched a result of kvb_thresholds_meet() */
} kvb_threshold_pattern;

typedef struct kvb_thresholds {
    double limit[KVB_LIMITS];
    double confidence;
    kvb_threshold_pattern patterns[KVB_THRESHOLD_PATTERNS];
    size_t n;
} kvb_thresholds;

/* Sets defaults: time 0.05, memory and bytes 0, any rho, counts 0.001, misses 0.03, confidence 0.99, no pattern. */
void kvb_thresholds_init(kvb_thresholds *thresholds);

/* Reads a file. 0 or -errno with why: "file: key: expectation", or "file:line: …" if it is not JSON. */
int kvb_thresholds_load(const char *path, kvb_thresholds *thresholds, char *why, size_t why_bytes);

/* The limit of a combination. */
double kvb_thresholds_of(const kvb_thresholds *thresholds, const kvb_result *result, kvb_limit limit);

/* Marks the patterns that match one of n results. */
void kvb_thresholds_meet(kvb_thresholds *thresholds, const kvb_result *results, size_t n);
/* The first pattern that is not marked; NULL: all are. */
const char *kvb_thresholds_unmet(const kvb_thresholds *thresholds);

/* ---- comparing ------------------------------------------------------------------------------------------- */

typedef enum kvb_verdict {
    /* in the order of printing */
    KVB_VERDICT_BROKEN,    /* fails now, did not before */
    KVB_VERDICT_GONE,      /* ran before, is missing or skipped now */
    KVB_VERDICT_SLOWER,    /* time */
    KVB_VERDICT_MORE,      /* an exact quantity grew by more than its threshold */
    KVB_VERDICT_UNDECIDED, /* time */
    KVB_VERDICT_CHANGED,   /* an exact quantity grew within its threshold, or is no longer measured */
    KVB_VERDICT_FASTER,    /* time */
    KVB_VERDICT_LESS,      /* an exact quantity fell */
    KVB_VERDICT_FIXED,     /* failed before, passes now */
    KVB_VERDICT_NEW,       /* was missing or skipped before, passes now */
    KVB_VERDICT_FAILING,   /* failed before, fails now */
    KVB_VERDICT_SAME,      /* time */
    KVB_VERDICT_SKIPPED,   /* ran on neither side */
    KVB_VERDICTS
} kvb_verdict;
const char *kvb_verdict_name(kvb_verdict verdict); /* "BROKEN", … */
bool kvb_verdict_is_regression(kvb_verdict verdict);

/* The compared quantity of a finding. */
typedef enum kvb_metric {
    KVB_METRIC_STATUS, /* verdicts on the status only */
    KVB_METRIC_TIME,   /* ns, the median of the attending steps */
    KVB_METRIC_EXACT   /* the first of the exact quantities, which are rows of a table in compare.c */
} kvb_metric;

typedef struct kvb_finding {
    const kvb_result *base, *new; /* in the caller's arrays; NULL: missing */
    kvb_metric metric;
    kvb_verdict verdict;
    double before, after;    /* NaN: not measured */
    double ratio, low, high; /* new / base; of a time its interval; NaN: none */
    char reason[KVB_REASON]; /* "": the numbers need no explanation */
} kvb_finding;

/*
 * All combinations of one kernel or one cache: the median of new / base. A run goes through its workloads and pools one
 * after the other, and through kernels and caches within each. So a slow hour of the machine slows all kernels and
 * caches equally; it would be blamed on a workload, which is why workloads are not judged. For the same reason the
 * combinations of one workload and pool count as one value, the median of their ratios. The interval of the median is
 * that of the sign test, which assumes only that noise is as often up as down.
 */
typedef struct kvb_compared_axis {
    const char *axis; /* "kernel" or "cache" */
    char name[2 * KVB_NAME + 8];
    size_t n;            /* combinations with a time on both sides */
    kvb_verdict verdict; /* SAME, SLOWER, FASTER or UNDECIDED */
    double ratio, low, high;
    char reason[KVB_REASON];
} kvb_compared_axis;

typedef struct kvb_comparison {
    kvb_finding *findings; /* one for each combination, in kvb_key_order, then its exact quantities that changed */
    kvb_compared_axis *axes;
    size_t n, n_axes;
    size_t count[KVB_VERDICTS]; /* of findings */
    size_t compared;            /* combinations with compared times; the confidence is corrected for this number */
    size_t times;               /* findings on time; count[KVB_VERDICT_UNDECIDED] of them are undecided */
    size_t nulls;               /* null comparisons of both sides */
    size_t runs[2];             /* of the base, of the new build */
    bool paired;                /* the builds took turns */
    double resolution;          /* smallest relative difference that the sides can resolve; NaN: unknown */
    double machine; /* bandwidth of the machine during the runs, base / new; above 1: it was slower; NaN: unknown */
} kvb_comparison;

/* One run: the results of a file. */
typedef struct kvb_compare_run {
    const kvb_result *results;
    size_t n;
} kvb_compare_run;

typedef struct kvb_compare_options {
    const kvb_thresholds *thresholds;
    bool paired; /* time.series[i] of base and new were measured in turns; so was null_difference */
    bool subset; /* new may lack combinations */
    /* Runs of the base [0] and of the new build [1], 1 to KVB_RUNS each. All times count. A combination that fails in
     * any new run is broken. Combinations and exact quantities are those of the first run. */
    const kvb_compare_run *runs[2];
    size_t n_runs[2];
    const char *no_time; /* why times cannot be compared ("another machine"); NULL: they can */
} kvb_compare_options;

/* Compares. 0; -ENOMEM; -EINVAL with why: a run has a combination twice. The results must outlive the comparison. */
int kvb_compare(const kvb_compare_options *options, kvb_comparison **comparison, char *why, size_t why_bytes);
void kvb_comparison_free(kvb_comparison *comparison);

/* The number of regressions among findings, kernels and caches. */
size_t kvb_comparison_regressions(const kvb_comparison *comparison);

/* The outcome of a comparison. */
typedef enum kvb_outcome {
    KVB_OUTCOME_GOOD,
    KVB_OUTCOME_REGRESSION,
    KVB_OUTCOME_PARTLY, /* no regression, but some times are undecided */
    KVB_OUTCOME_NOTHING /* no regression, and all times are undecided, of combinations, kernels and caches */
} kvb_outcome;
kvb_outcome kvb_comparison_outcome(const kvb_comparison *comparison);

/* ---- printing -------------------------------------------------------------------------- */

typedef struct kvb_compare_view {
    kvb_table_format format;
    bool all;                           /* also show combinations that are the same */
    const char *base, *new;             /* names of the sides: files or plug-ins */
    const char (*notes)[KVB_NOTE_TEXT]; /* [n_notes] lines on top: another machine, another version, … */
    size_t n_notes;
    const char *command; /* reproduces the comparison */
    const char *decide;  /* how to decide undecided times */
} kvb_compare_view;

/* Prints, in text and Markdown: verdict, notes, kernels and caches, findings, a summary line. In CSV and JSON: a row
 * for each finding, kernel and cache. 0, -ENOMEM or -EIO. */
int kvb_comparison_print(const kvb_comparison *comparison, const kvb_compare_view *view, FILE *out);

/* ---- the history of runs: changes of a time's level from one run to the next ------------------------------ */

typedef struct kvb_run_history_change {
    const kvb_result *from, *to; /* the last result of the old level, the first of the new one */
    size_t from_file, to_file;   /* indices of their files */
    kvb_changepoint change;
    kvb_verdict verdict; /* SLOWER or FASTER */
} kvb_run_history_change;

typedef struct kvb_run_history {
    kvb_run_history_change *changes; /* by to_file, then largest first */
    size_t n;
    size_t series;     /* combinations that passed in at least two runs */
    double resolution; /* the middle run's 99 % quantile of null differences; NaN: none */
} kvb_run_history;

/* Sorts files by the dates of their manifests. */
void kvb_run_history_sort(kvb_result_file **files, size_t n);

/* Finds changes over the files in their order. A change matters if it reaches the combination's time threshold. The
 * confidence of the thresholds holds for all series together. The files must outlive the history. 0; -ENOMEM; -EINVAL
 * with why: a file has a combination twice. */
int kvb_run_history_find(kvb_result_file *const *files, size_t n, const kvb_thresholds *thresholds,
                         kvb_run_history *history, char *why, size_t why_bytes);
void kvb_run_history_free(kvb_run_history *history);

#endif
