/* SPDX-License-Identifier: Apache-2.0 */
/* Steps sorted by the cells that they read, cut into points, the median time of each. */
#include "harness/replay/contexts.h"

#include <errno.h>
#include <stdlib.h>

#include "results/statistics.h"

/* A step of a pass. */
typedef struct step {
    double cells;
    size_t number;
} step;

static int step_compare(const void *a, const void *b)
{
    const step *x = a, *y = b;
    return (x->cells > y->cells) - (x->cells < y->cells);
}

/* Makes a point of the n steps from steps[0] on. values: room for n times of each pass. */
static void point_make(const kvb_samples *times, size_t passes, size_t warmup, const step *steps, size_t n,
                       double *values, kvb_context_point *point)
{
    size_t each = times->n / passes, n_values = 0;
    for (size_t p = warmup; p < passes; p++)
        for (size_t i = 0; i < n; i++)
            values[n_values++] = times->ns[p * each + steps[i].number];
    double middle = (steps[(n - 1) / 2].cells + steps[n / 2].cells) / 2;
    *point = (kvb_context_point){.cells = middle, .ns = kvb_quantile(values, n_values, 0.5), .samples = n_values};
}

int kvb_contexts_report(const kvb_samples *times, const kvb_samples *cells, size_t passes, size_t warmup,
                        kvb_result *result)
{
    size_t n = cells->n, distinct = 0, first = 0;
    step *steps = malloc((n + 1) * sizeof *steps);
    double *values = malloc((times->n + 1) * sizeof *values);
    uint32_t points = 0;
    for (size_t i = 0; i < n && steps; i++)
        steps[i] = (step){cells->ns[i], i};
    if (steps && values) {
        qsort(steps, n, sizeof *steps, step_compare);
        for (size_t i = 0; i < n; i++)
            distinct += i == 0 || steps[i].cells != steps[i - 1].cells;
        /* A point ends where the number of cells changes. If that makes too many points, each first takes its share of
         * steps. */
        for (size_t i = 1; i <= n; i++) {
            bool changes = i == n || steps[i].cells != steps[i - 1].cells;
            bool full = i == n || distinct <= KVB_CONTEXTS || i * KVB_CONTEXTS >= (points + 1) * n;
            if (!changes || !full)
                continue;
            point_make(times, passes, warmup, steps + first, i - first, values, &result->time.contexts[points++]);
            first = i;
        }
        result->time.n_contexts = points;
    }
    int error = steps && values ? 0 : -ENOMEM;
    free(steps);
    free(values);
    return error;
}
