/* SPDX-License-Identifier: Apache-2.0 */
#include "results/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"
#include "results/compare_time.h"
#include "results/statistics.h"
#include "workloads/files.h"

#define MOST_CHANGES 16u /* most changes of a series */

typedef struct value {
    const kvb_result *result;
    size_t file;
} value;

static int dates_order(const void *a, const void *b)
{
    return strcmp((*(kvb_result_file *const *)a)->manifest.date, (*(kvb_result_file *const *)b)->manifest.date);
}

void kvb_run_history_sort(kvb_result_file **files, size_t n)
{
    qsort(files, n, sizeof *files, dates_order);
}

static int values_order(const void *a, const void *b)
{
    const value *x = a, *y = b;
    int order = kvb_key_order(x->result, y->result);

    return order ? order : (x->file > y->file) - (x->file < y->file);
}

/* Takes all records with a time, ordered by combination, then by file. */
static int values_take(kvb_result_file *const *files, size_t n_files, value **values, size_t *n, char *why,
                       size_t why_bytes)
{
    size_t room = 1;

    for (size_t i = 0; i < n_files; i++)
        room += files[i]->n;
    *values = malloc(room * sizeof **values);
    *n = 0;
    if (!*values)
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory");
    for (size_t i = 0; i < n_files; i++)
        for (size_t j = 0; j < files[i]->n; j++) {
            const kvb_result *r = &files[i]->results[j];
            if (r->status == KVB_STATUS_PASS && r->time.all.median > 0) /* false for NaN */
                (*values)[(*n)++] = (value){r, i};
        }
    qsort(*values, *n, sizeof **values, values_order);
    for (size_t i = 1; i < *n; i++)
        if (values_order(&(*values)[i - 1], &(*values)[i]) == 0)
            return kvb_why_set(-EINVAL, why, why_bytes, "the run of %s holds a combination twice: %s",
                               files[(*values)[i].file]->manifest.date, kvb_key_name((*values)[i].result).text);
    return 0;
}

/* The end of the series that begins at values[first]. */
static size_t series_end(const value *values, size_t n, size_t first)
{
    size_t end = first + 1;

    while (end < n && !kvb_key_order(values[first].result, values[end].result))
        end++;
    return end;
}

/* The noise of each run. */
typedef struct deviation {
    double *of;       /* [files] standard deviation of a value; 0: the run has no null comparisons */
    double tail;      /* probability of a false change in one series */
    unsigned freedom; /* degrees of freedom of the deviations */
} deviation;

/* Fills in the noise of each run, and the history's resolution: that of the middle run. */
static int noise_of(kvb_result_file *const *files, size_t n, double confidence, kvb_run_history *history,
                    deviation *noise)
{
    double *quantiles = malloc((n + 1) * sizeof *quantiles);
    size_t known = 0;
    int error = quantiles ? 0 : -ENOMEM;

    noise->tail = (1 - confidence) / (double)(history->series ? history->series : 1);
    noise->freedom = 1000;
    for (size_t i = 0; i < n && !error; i++) {
        uint32_t nulls;
        double quantile;

        error = kvb_results_null_quantile(files[i]->results, files[i]->n, 0.99, &quantile, &nulls);
        if (error || !nulls)
            continue;
        noise->freedom = nulls < noise->freedom ? nulls : noise->freedom;
        noise->of[i] = kvb_null_log(quantile) / (KVB_NORMAL_99 * sqrt(2)); /* a null difference is one of two values */
        quantiles[known++] = quantile;
    }
    history->resolution = known ? kvb_quantile(quantiles, known, 0.5) : NAN;
    for (size_t i = 0; i < n && known; i++) /* runs without are like the others */
        if (noise->of[i] == 0)
            noise->of[i] = kvb_null_log(history->resolution) / (KVB_NORMAL_99 * sqrt(2));
    free(quantiles);
    return error;
}

static int series_search(const value *values, size_t n, const deviation *noise, const kvb_thresholds *thresholds,
                         kvb_run_history *history, size_t *room)
{
    kvb_changepoint changes[MOST_CHANGES];
    double *logs = malloc(2 * n * sizeof *logs);

    if (!logs)
        return -ENOMEM;
    double *of = logs + n;
    for (size_t i = 0; i < n; i++) {
        logs[i] = log(values[i].result->time.all.median);
        of[i] = noise->of[values[i].file];
    }
    double least = log1p(kvb_thresholds_of(thresholds, values->result, KVB_LIMIT_TIME));
    long found = kvb_changepoints_find(logs, n, of, noise->freedom, noise->tail, least, changes, MOST_CHANGES);
    free(logs);
    for (long i = 0; i < found && i < (long)MOST_CHANGES; i++) {
        if (kvb_array_reserve(&history->changes, room, history->n + 1, sizeof *history->changes))
            return -ENOMEM;
        const value *to = &values[changes[i].at];
        history->changes[history->n++] =
            (kvb_run_history_change){.from = to[-1].result,
                                     .from_file = to[-1].file,
                                     .to = to->result,
                                     .to_file = to->file,
                                     .change = changes[i],
                                     .verdict = changes[i].change > 0 ? KVB_VERDICT_SLOWER : KVB_VERDICT_FASTER};
    }
    return found < 0 ? (int)found : 0;
}

static int changes_order(const void *a, const void *b)
{
    const kvb_run_history_change *x = a, *y = b;
    double by_x = fabs(x->change.change), by_y = fabs(y->change.change);

    if (x->to_file != y->to_file)
        return x->to_file < y->to_file ? -1 : 1;
    return by_x != by_y ? (by_x > by_y ? -1 : 1) : kvb_key_order(x->to, y->to);
}

int kvb_run_history_find(kvb_result_file *const *files, size_t n_files, const kvb_thresholds *thresholds,
                         kvb_run_history *history, char *why, size_t why_bytes)
{
    value *values = NULL;
    size_t n = 0, room = 0;
    deviation noise = {.of = calloc(n_files + 1, sizeof *noise.of)};

    *history = (kvb_run_history){.resolution = NAN};
    int error = noise.of ? values_take(files, n_files, &values, &n, why, why_bytes) : -ENOMEM;
    for (size_t i = 0, end; i < n && !error; i = end) {
        end = series_end(values, n, i);
        history->series += end - i > 1;
    }
    if (!error)
        error = noise_of(files, n_files, thresholds->confidence, history, &noise);
    bool known = !error && !isnan(history->resolution);
    for (size_t i = 0, end; i < n && known && !error; i = end) {
        end = series_end(values, n, i);
        error = series_search(&values[i], end - i, &noise, thresholds, history, &room);
    }
    free(values);
    free(noise.of);
    if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory");
    if (error)
        kvb_run_history_free(history);
    else if (history->n)
        qsort(history->changes, history->n, sizeof *history->changes, changes_order);
    return error;
}

void kvb_run_history_free(kvb_run_history *history)
{
    free(history->changes);
    history->changes = NULL;
    history->n = 0;
}
