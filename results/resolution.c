/* SPDX-License-Identifier: Apache-2.0 */
/* Null comparisons of a run, taken together. */
#include "results/resolution.h"

#include <errno.h>
#include <stdlib.h>

#include "results/statistics.h"

int kvb_resolution(const kvb_result *results, size_t n, double *quantile, uint32_t *count)
{
    double *values = malloc((n + 1) * sizeof *values);

    *count = 0;
    if (!values)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (results[i].time.null_difference >= 0) /* not NaN */
            values[(*count)++] = results[i].time.null_difference;
    *quantile = kvb_quantile(values, *count, 0.99);
    free(values);
    return 0;
}
