/* SPDX-License-Identifier: Apache-2.0 */
/* Binary segmentation over medians. */
#include "results/changepoint.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "results/statistics.h"
#include "results/student.h"

#define MEDIAN_LOSS 1.2533141373155 /* sqrt(pi / 2): the median's standard error over the mean's, of normal values */
#define FEW         6               /* values from which on a series' own scatter says something */

typedef struct search {
    const double *logs;
    double *scratch;
    bool *begins;               /* [n] a level begins here */
    double noise, reach, least; /* reach: standard errors that chance does not make */
} search;

static double level_of(const search *s, size_t first, size_t end)
{
    memcpy(s->scratch, s->logs + first, (end - first) * sizeof *s->scratch);
    return kvb_quantile(s->scratch, end - first, 0.5);
}

/* Standard deviation of one value by the differences of neighbours: a step moves one of them only. */
static double scatter_of(const double *logs, size_t n, double *scratch)
{
    if (n < FEW)
        return 0;
    for (size_t i = 0; i + 1 < n; i++)
        scratch[i] = fabs(logs[i + 1] - logs[i]);
    return 1.4826 * kvb_quantile(scratch, n - 1, 0.5) / sqrt(2);
}

/* A median of one or two values is their mean. */
static double level_error(double noise, size_t n)
{
    return noise * (n > 2 ? MEDIAN_LOSS : 1) / sqrt((double)n);
}

/* From [first, at) to [at, end): the change of level, with its interval. */
static kvb_step step_of(const search *s, size_t first, size_t at, size_t end)
{
    double change = level_of(s, at, end) - level_of(s, first, at);
    double reach = s->reach * hypot(level_error(s->noise, at - first), level_error(s->noise, end - at));

    return (kvb_step){.at = at, .change = change, .low = change - reach, .high = change + reach};
}

static bool is_step(const search *s, const kvb_step *step)
{
    return (step->low > 0 || step->high < 0) && fabs(step->change) >= s->least;
}

/* Sum of the distances from the level: what a split makes less. */
static double distances(const search *s, size_t first, size_t end)
{
    double level = level_of(s, first, end), sum = 0;

    for (size_t i = first; i < end; i++)
        sum += fabs(s->logs[i] - level);
    return sum;
}

static void segment_search(search *s, size_t first, size_t end)
{
    double least = INFINITY;
    size_t best = first;

    for (size_t at = first + 1; at < end; at++) {
        double sum = distances(s, first, at) + distances(s, at, end);

        if (sum < least) {
            least = sum;
            best = at;
        }
    }
    if (best == first)
        return;
    kvb_step step = step_of(s, first, best, end);
    if (!is_step(s, &step))
        return;
    s->begins[best] = true;
    segment_search(s, first, best);
    segment_search(s, best, end);
}

/* The levels are known: each step is from its neighbour on one side to that on the other. */
static size_t steps_take(const search *s, size_t n, kvb_step *steps, size_t most)
{
    size_t found = 0, first = 0;

    for (size_t at = 1, end; at < n; at = end) {
        for (end = at + 1; end < n && !s->begins[end];)
            end++;
        if (!s->begins[at])
            continue; /* the first level */
        kvb_step step = step_of(s, first, at, end);
        if (!is_step(s, &step))
            continue;
        if (found < most)
            steps[found] = step;
        found++;
        first = at;
    }
    return found;
}

long kvb_changepoints_find(const double *logs, size_t n, double noise, unsigned freedom, double tail, double least,
                           kvb_step *steps, size_t most)
{
    if (n < 2)
        return 0;
    search s = {
        .logs = logs, .scratch = malloc(n * sizeof *s.scratch), .begins = calloc(n, sizeof *s.begins), .least = least};
    long found = -ENOMEM;
    if (s.scratch && s.begins) {
        s.noise = fmax(noise, scatter_of(logs, n, s.scratch));
        s.reach = kvb_student_quantile(tail / (double)(n - 1), freedom);
        segment_search(&s, 0, n);
        found = (long)steps_take(&s, n, steps, most);
    }
    free(s.scratch);
    free(s.begins);
    return found;
}
