/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays of step times, and their statistics pass by pass. */
#include "harness/replay/samples.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/statistics.h"
#include "workloads/array.h"

#define CONFIDENCE       0.95
#define BOOTSTRAP_ROUNDS 400u
#define MANY_PASSES      4u   /* with so many passes, passes are compared; with fewer, steps */
#define STEADY_WINDOW    3u   /* passes */
#define STEADY_TOLERANCE 0.05 /* of the median */

/* The steps that attend: what `time` of a result is about. */
static const kvb_step_kind attending[] = {KVB_KIND_PREFILL, KVB_KIND_DECODE, KVB_KIND_FORK, KVB_KIND_VERIFY};
#define ATTENDING (sizeof attending / sizeof *attending)

int kvb_sample_add(kvb_samples *s, double ns)
{
    int error = kvb_array_reserve(&s->ns, &s->room, s->n + 1, sizeof *s->ns);
    if (!error)
        s->ns[s->n++] = ns;
    return error;
}

void kvb_samples_free(kvb_samples *s)
{
    free(s->ns);
    *s = (kvb_samples){0};
}

double kvb_samples_pass(const kvb_samples *s, size_t passes, size_t pass)
{
    size_t each = s->n / passes;
    double sum = 0;
    for (size_t i = pass * each; i < (pass + 1) * each; i++)
        sum += s->ns[i];
    return sum;
}

kvb_step_kind kvb_kind_main(const double flops[KVB_STEP_KINDS])
{
    kvb_step_kind most = attending[0];
    for (size_t k = 1; k < ATTENDING; k++)
        if (flops[attending[k]] > flops[most])
            most = attending[k];
    return most;
}

size_t kvb_warmup_passes(const kvb_samples times[KVB_STEP_KINDS], size_t passes)
{
    double *totals = calloc(passes, sizeof *totals);
    size_t warmup = passes / 2;
    if (passes < 2 * STEADY_WINDOW || !totals) {
        free(totals);
        return passes > 1; /* too few to compare: leave out the first, which was judged and found cold memory */
    }
    for (size_t p = 0; p < passes; p++)
        for (size_t k = 0; k < ATTENDING; k++)
            totals[p] += kvb_samples_pass(&times[attending[k]], passes, p);
    for (size_t n = 2 * STEADY_WINDOW; n <= passes; n++)
        if (kvb_series_steady(totals, n, STEADY_WINDOW, STEADY_TOLERANCE)) {
            warmup = n - STEADY_WINDOW < warmup ? n - STEADY_WINDOW : warmup; /* the later window is steady */
            break;
        }
    free(totals);
    return warmup ? warmup : 1;
}

/* Median of each pass from `warmup` on; from malloc. */
static double *pass_medians(const kvb_samples *s, size_t passes, size_t warmup)
{
    size_t each = s->n / passes;
    double *medians = malloc((passes - warmup) * sizeof *medians), *copy = malloc((each + 1) * sizeof *copy);
    for (size_t p = warmup; p < passes && medians && copy; p++) {
        memcpy(copy, s->ns + p * each, each * sizeof *copy);
        medians[p - warmup] = kvb_quantile(copy, each, 0.5);
    }
    if (!copy) {
        free(medians);
        medians = NULL;
    }
    free(copy);
    return medians;
}

double kvb_samples_width(const kvb_samples *s, size_t passes, size_t warmup)
{
    double low, high, width = INFINITY;
    double *medians = passes >= MANY_PASSES + warmup && s->n ? pass_medians(s, passes, warmup) : NULL;
    if (medians && !kvb_median_interval(medians, passes - warmup, CONFIDENCE, BOOTSTRAP_ROUNDS, 1, &low, &high))
        width = (high - low) / low;
    free(medians);
    return width;
}

/* Fills time.series from the pass medians: blocks of the latest passes, so that all are equal. */
static int series_fill(const kvb_samples *all, size_t passes, size_t warmup, kvb_result *result)
{
    size_t n = passes - warmup, block = (n + KVB_SERIES - 1) / KVB_SERIES;
    if (n < MANY_PASSES || !all->n)
        return 0;
    double *medians = pass_medians(all, passes, warmup);
    if (!medians)
        return -ENOMEM;
    result->time.n_series = (uint32_t)(n / block);
    for (uint32_t i = 0; i < result->time.n_series; i++)
        result->time.series[i] = kvb_quantile(medians + n % block + i * block, block, 0.5);
    free(medians);
    return 0;
}

/* Statistics of one series; difference NULL: no null comparison is asked for. */
static int series_report(const kvb_samples *s, size_t passes, size_t warmup, kvb_time_stats *stats, double *difference)
{
    size_t each = s->n / passes, n = s->n - warmup * each, n_values = n;
    const double *values = s->ns + warmup * each;
    double *medians = NULL, *copy = malloc((n + 1) * sizeof *copy), low, high;
    int error = copy ? 0 : -ENOMEM;
    if (n == 0 || error)
        goto out;
    if (passes - warmup >= MANY_PASSES) {
        values = medians = pass_medians(s, passes, warmup);
        n_values = passes - warmup;
        error = medians ? 0 : -ENOMEM;
    }
    if (!error && difference)
        *difference = kvb_null_difference(values, n_values);
    if (!error)
        error = kvb_median_interval(values, n_values, CONFIDENCE, BOOTSTRAP_ROUNDS, 1, &low, &high);
    if (error)
        goto out;
    memcpy(copy, s->ns + warmup * each, n * sizeof *copy);
    kvb_time_stats_of(copy, n, stats);
    if (medians)
        stats->median = kvb_quantile(medians, n_values, 0.5);
    stats->low = low;
    stats->high = high;
    stats->outliers = kvb_outliers_count(copy, n);
out:
    free(copy);
    free(medians);
    return error;
}

int kvb_samples_report(const kvb_samples times[KVB_STEP_KINDS], kvb_step_kind most, size_t passes, size_t warmup,
                       kvb_result *result)
{
    kvb_samples all = {0};
    int error = 0;
    for (size_t p = 0; p < passes; p++)
        for (size_t k = 0; k < ATTENDING; k++) {
            const kvb_samples *s = &times[attending[k]];
            size_t each = s->n / passes;
            for (size_t i = p * each; i < (p + 1) * each && !error; i++)
                error = kvb_sample_add(&all, s->ns[i]);
        }
    result->time.passes = passes;
    result->time.warmup = warmup;
    if (!error)
        error = series_report(&all, passes, warmup, &result->time.all, NULL);
    if (!error)
        error = series_fill(&all, passes, warmup, result);
    for (int k = 0; k < KVB_STEP_KINDS && !error; k++)
        error = series_report(&times[k], passes, warmup, &result->time.kinds[k],
                              k == (int)most ? &result->time.null_difference : NULL);
    kvb_samples_free(&all);
    return error;
}
