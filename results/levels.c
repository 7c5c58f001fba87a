/* SPDX-License-Identifier: Apache-2.0 */
/* Series over runs, and their steps. */
#include "results/levels.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/compare_time.h"
#include "results/key.h"
#include "results/student.h"

#define MOST_STEPS 16u /* of one series */

typedef struct value {
    const kvb_result *result;
    size_t file;
} value;

static int dates_order(const void *a, const void *b)
{
    return strcmp((*(kvb_result_file *const *)a)->manifest.date, (*(kvb_result_file *const *)b)->manifest.date);
}

void kvb_levels_sort(kvb_result_file **files, size_t n)
{
    qsort(files, n, sizeof *files, dates_order);
}

static int values_order(const void *a, const void *b)
{
    const value *x = a, *y = b;
    int order = kvb_key_order(x->result, y->result);

    return order ? order : (x->file > y->file) - (x->file < y->file);
}

/* All records with a time, by combination, then by file. */
static int values_take(kvb_result_file *const *files, size_t n_files, value **values, size_t *n, char *why,
                       size_t why_bytes)
{
    char name[KVB_KEY_TEXT];
    size_t room = 1;

    for (size_t i = 0; i < n_files; i++)
        room += files[i]->n;
    *values = malloc(room * sizeof **values);
    *n = 0;
    if (!*values) {
        snprintf(why, why_bytes, "no memory");
        return -ENOMEM;
    }
    for (size_t i = 0; i < n_files; i++)
        for (size_t j = 0; j < files[i]->n; j++) {
            const kvb_result *r = &files[i]->results[j];
            if (r->status == KVB_STATUS_PASS && r->time.all.median > 0) /* not NaN */
                (*values)[(*n)++] = (value){r, i};
        }
    qsort(*values, *n, sizeof **values, values_order);
    for (size_t i = 1; i < *n; i++)
        if (values_order(&(*values)[i - 1], &(*values)[i]) == 0) {
            kvb_key_name((*values)[i].result, name);
            snprintf(why, why_bytes, "the run of %s holds a combination twice: %s",
                     files[(*values)[i].file]->manifest.date, name);
            return -EINVAL;
        }
    return 0;
}

/* Where the series that begins at values[first] ends. */
static size_t series_end(const value *values, size_t n, size_t first)
{
    size_t end = first + 1;

    while (end < n && !kvb_key_order(values[first].result, values[end].result))
        end++;
    return end;
}

/* What is known of all series before one is looked at: as of a comparison of two runs, for the noisiest of all. */
typedef struct deviation {
    double one, tail; /* of one value */
    unsigned freedom;
} deviation;

static int noise_of(kvb_result_file *const *files, size_t n, double confidence, kvb_levels *levels, deviation *noise)
{
    levels->resolution = NAN;
    noise->tail = (1 - confidence) / (double)(levels->series ? levels->series : 1);
    noise->freedom = 1000;
    for (size_t i = 0; i < n; i++) {
        kvb_noise own;
        unsigned nulls = 0;
        int error = kvb_noise_of(files[i]->results, files[i]->n, NULL, 0, 1, confidence, true, &own);

        if (error)
            return error;
        for (size_t j = 0; j < files[i]->n; j++)
            nulls += files[i]->results[j].time.null_difference >= 0;
        if (nulls > 0 && nulls < noise->freedom)
            noise->freedom = nulls;
        levels->resolution = fmax(levels->resolution, own.resolution); /* passes over a NaN */
    }
    noise->one = kvb_null_log(levels->resolution) / (KVB_NORMAL_99 * sqrt(2)); /* a difference is of two values */
    return 0;
}

static int series_search(const value *values, size_t n, const deviation *noise, const kvb_thresholds *thresholds,
                         kvb_levels *levels, size_t *room)
{
    kvb_step steps[MOST_STEPS];
    double *logs = malloc(n * sizeof *logs);

    if (!logs)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        logs[i] = log(values[i].result->time.all.median);
    double least = log1p(kvb_thresholds_of(thresholds, values->result, KVB_LIMIT_TIME));
    long found = kvb_changepoints_find(logs, n, noise->one, noise->freedom, noise->tail, least, steps, MOST_STEPS);
    free(logs);
    for (long i = 0; i < found && i < (long)MOST_STEPS; i++) {
        if (levels->n == *room) {
            size_t more = *room ? 2 * *room : 16;
            kvb_level_step *grown = realloc(levels->steps, more * sizeof *grown);
            if (!grown)
                return -ENOMEM;
            levels->steps = grown;
            *room = more;
        }
        const value *to = &values[steps[i].at];
        levels->steps[levels->n++] =
            (kvb_level_step){.from = to[-1].result,
                             .from_file = to[-1].file,
                             .to = to->result,
                             .to_file = to->file,
                             .step = steps[i],
                             .verdict = steps[i].change > 0 ? KVB_VERDICT_SLOWER : KVB_VERDICT_FASTER};
    }
    return found < 0 ? (int)found : 0;
}

static int steps_order(const void *a, const void *b)
{
    const kvb_level_step *x = a, *y = b;
    double by_x = fabs(x->step.change), by_y = fabs(y->step.change);

    if (x->to_file != y->to_file)
        return x->to_file < y->to_file ? -1 : 1;
    return by_x != by_y ? (by_x > by_y ? -1 : 1) : kvb_key_order(x->to, y->to);
}

int kvb_levels_find(kvb_result_file *const *files, size_t n_files, const kvb_thresholds *thresholds, kvb_levels *levels,
                    char *why, size_t why_bytes)
{
    value *values;
    deviation noise;
    size_t n, room = 0;

    *levels = (kvb_levels){.resolution = NAN};
    int error = values_take(files, n_files, &values, &n, why, why_bytes);
    for (size_t i = 0, end; i < n && !error; i = end) {
        end = series_end(values, n, i);
        levels->series += end - i > 1;
    }
    if (!error)
        error = noise_of(files, n_files, thresholds->confidence, levels, &noise);
    bool known = !error && !isnan(levels->resolution);
    for (size_t i = 0, end; i < n && known && !error; i = end) {
        end = series_end(values, n, i);
        error = series_search(&values[i], end - i, &noise, thresholds, levels, &room);
    }
    free(values);
    if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory");
    if (error)
        kvb_levels_free(levels);
    else if (levels->n)
        qsort(levels->steps, levels->n, sizeof *levels->steps, steps_order);
    return error;
}

void kvb_levels_free(kvb_levels *levels)
{
    free(levels->steps);
    levels->steps = NULL;
    levels->n = 0;
}
