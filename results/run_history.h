/* SPDX-License-Identifier: Apache-2.0 */
/* Runs over time: baselines kept by machine and name, and where times changed their level from one run to the next. */
#ifndef KVB_RUN_HISTORY_H
#define KVB_RUN_HISTORY_H

#include "results/compare.h"
#include "results/statistics.h"

/* ---- baselines: result files FOLDER/FINGERPRINT/NAME.jsonl ---------------------------------------------- */

/* *path, from malloc: where the baseline NAME of the manifest's machine is. -EINVAL with why if NAME has other
 * characters than letters, digits, '.', '_' and '-', or begins with '.'. */
int kvb_baseline_path(const char *folder, const kvb_manifest *manifest, const char *name, char **path, char *why,
                      size_t why_bytes);

/* Keeps a file as a baseline, complete or not at all. *path as above, for a message. -EEXIST if there is one, unless
 * force. */
int kvb_baseline_save(const char *folder, const kvb_result_file *file, const char *name, bool force, char **path,
                      char *why, size_t why_bytes);

/* The baselines of the manifest's machine: paths from malloc, in an array from malloc. -ENOENT with why if there are
 * none. */
int kvb_baselines_list(const char *folder, const kvb_manifest *manifest, char ***paths, size_t *n, char *why,
                       size_t why_bytes);

/* ---- changes of level ------------------------------------------------------------------------------------ */

typedef struct kvb_run_history_change {
    const kvb_result *from, *to; /* the last of the old level, and the first of the new one */
    size_t from_file, to_file;   /* indices of their files */
    kvb_changepoint change;
    kvb_verdict verdict; /* SLOWER or FASTER */
} kvb_run_history_change;

typedef struct kvb_run_history {
    kvb_run_history_change *changes; /* by to_file, then the largest first */
    size_t n;
    size_t series;     /* combinations that passed in two runs or more */
    double resolution; /* the middle run's 99 % quantile of null differences; NaN: there is none */
} kvb_run_history;

/* Sorts files by the dates of their manifests. */
void kvb_run_history_sort(kvb_result_file **files, size_t n);

/* Looks at files in their order. A change matters if it reaches the combination's time threshold; the confidence of the
 * thresholds holds for all series together. The files must outlive the history. 0; -ENOMEM; -EINVAL with why when one
 * file has a combination twice. */
int kvb_run_history_find(kvb_result_file *const *files, size_t n, const kvb_thresholds *thresholds,
                         kvb_run_history *history, char *why, size_t why_bytes);
void kvb_run_history_free(kvb_run_history *history);

#endif
