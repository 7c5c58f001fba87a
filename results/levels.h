/* SPDX-License-Identifier: Apache-2.0 */
/* Many runs in the order of their dates: for each combination, the steps where its time changed level. */
#ifndef KVB_LEVELS_H
#define KVB_LEVELS_H

#include "results/changepoint.h"
#include "results/compare.h"

typedef struct kvb_level_step {
    const kvb_result *from, *to; /* the last of the old level and the first of the new one */
    size_t from_file, to_file;   /* indices of their files */
    kvb_step step;
    kvb_verdict verdict; /* SLOWER or FASTER */
} kvb_level_step;

typedef struct kvb_levels {
    kvb_level_step *steps; /* by file of the step, then the largest first */
    size_t n;
    size_t series;     /* combinations that passed in two runs or more */
    double resolution; /* the largest 99 % quantile of a run's null differences; NaN: none said */
} kvb_levels;

/* Sorts files by the dates of their manifests. */
void kvb_levels_sort(kvb_result_file **files, size_t n);

/* A step matters from the combination's time threshold on, and the thresholds' confidence is of all series together. The
 * files must outlive the levels. 0; -ENOMEM; -EINVAL with why when one file has a combination twice. */
int kvb_levels_find(kvb_result_file *const *files, size_t n, const kvb_thresholds *thresholds, kvb_levels *levels,
                    char *why, size_t why_bytes);
void kvb_levels_free(kvb_levels *levels);

#endif
