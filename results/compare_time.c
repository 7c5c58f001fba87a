/* SPDX-License-Identifier: Apache-2.0 */
/* Computes an interval of new / base from two series of passes, and the verdict, as compare.h describes. */
#include "results/compare_time.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/statistics.h"

#define BOOTSTRAP_ROUNDS 500
#define FEW_PASSES       4  /* fewest passes of a series */
#define FEW_RUNS         3  /* fewest runs of a build that show how runs differ */
#define FEW_SCATTERS     2  /* fewest combinations with several runs of each build */
#define FEW_NULLS        3  /* fewest null comparisons that show how noisy a run is */
#define FEW_PAIRS        12 /* fewest combinations with a bandwidth on both sides that show the machine's shift */

/* An interval that reaches further from its middle than a factor of four is unknown. */
#define WIDEST log(4)

/* ---- noise -------------------------------------------------------------------------------------------------- */

double kvb_null_log(double difference)
{
    return difference < 1 ? -log1p(-difference) : log1p(difference);
}

double kvb_common_reach(double common, double tail, size_t nulls)
{
    /* the middle of n distances is worth 0.37 n values for a standard deviation (Rousseeuw, Croux, JASA 88, 1993) */
    return common * kvb_student_quantile(tail, (uint32_t)fmax(0.37 * (double)nulls, 1));
}

#define PRIOR 3u /* prior degrees of freedom of the variance from run to run */

/* The half-width of an interval for so many runs of each build. squares: sum over distances from the builds' means. */
static double between_runs(double between, double squares, double tail, const size_t runs[2])
{
    size_t freedom = runs[0] + runs[1] - 2, lesser = runs[0] < runs[1] ? runs[0] : runs[1];
    double variance = (PRIOR * between * between + squares) / (double)(PRIOR + freedom);

    return kvb_student_quantile(tail, (uint32_t)(PRIOR + 2 * (lesser - 1))) * sqrt(fmax(variance, between * between)) *
           sqrt(1 / (double)runs[0] + 1 / (double)runs[1]);
}

int kvb_noise_of(const kvb_result *base, size_t n_base, const kvb_result *new, size_t n_new, size_t compared,
                 double confidence, bool paired, const size_t runs[2], kvb_compare_noise *noise)
{
    bool alone = runs[0] + runs[1] == 2; /* one run on each side */
    const struct {
        const kvb_result *results;
        size_t n;
    } sides[] = {{base, n_base}, {new, n_new}};

    *noise = (kvb_compare_noise){
        .resolution = NAN, .tail = (1 - confidence) / (double)(compared ? compared : 1), .paired = paired};
    for (int i = 0; i < 2; i++) {
        double quantile, middle;
        uint32_t nulls;
        int error = kvb_results_null_quantile(sides[i].results, sides[i].n, 0.99, &quantile, &nulls);

        if (!error)
            error = kvb_results_null_quantile(sides[i].results, sides[i].n, 0.5, &middle, &nulls);
        if (error)
            return error;
        if (!paired || i == 0) /* paired sides have the same null comparisons */
            noise->nulls += nulls;
        if (!nulls || (nulls < FEW_NULLS && !paired))
            continue;
        /* Passes of paired sides show how processes differ. Else the 99 % quantile of single comparisons is scaled to
         * the confidence of all together, by Student's factor for so many null differences. */
        double wider = paired ? 1 : kvb_student_quantile(noise->tail, nulls) / KVB_NORMAL_99;
        if (!paired)
            noise->between = fmax(noise->between, KVB_BETWEEN_RUNS * kvb_null_log(middle) / KVB_NORMAL_50);
        noise->common = noise->between * sqrt(1 / (double)runs[0] + 1 / (double)runs[1]);
        noise->floor = fmax(noise->floor, fmax(wider, 1) * kvb_null_log(quantile));
        noise->known = true;
        double half = fmax(alone ? noise->floor : 0, between_runs(noise->between, 0, noise->tail, runs));
        noise->resolution = nulls < FEW_NULLS || half > WIDEST ? NAN : expm1(half);
    }
    return 0;
}

int kvb_run_resolution(const kvb_result *results, size_t n, double *resolution, size_t *nulls)
{
    kvb_compare_noise noise;
    size_t times = 0;

    for (size_t i = 0; i < n; i++)
        times += results[i].status == KVB_STATUS_PASS && results[i].time.all.median > 0; /* false for NaN */
    int error = kvb_noise_of(results, n, NULL, 0, times, KVB_CONFIDENCE, false, (const size_t[]){1, 1}, &noise);
    *resolution = error ? NAN : noise.resolution;
    *nulls = error ? 0 : noise.nulls;
    return error;
}

void kvb_resolution_text(double resolution, size_t nulls, char text[KVB_RESOLUTION_TEXT])
{
    int n = isnan(resolution) ? snprintf(text, KVB_RESOLUTION_TEXT, "unknown")
                              : snprintf(text, KVB_RESOLUTION_TEXT, "%.1f %%", 100 * resolution);

    snprintf(text + n, KVB_RESOLUTION_TEXT - (size_t)n, " (%zu null comparison%s)", nulls, nulls == 1 ? "" : "s");
}

double kvb_machine_shift(const kvb_finding *findings, size_t n)
{
    double *shifts = malloc((n + 1) * sizeof *shifts), shift;
    size_t pairs = 0;

    for (size_t i = 0; i < n && shifts; i++) {
        const kvb_finding *f = &findings[i];
        if (f->metric == KVB_METRIC_TIME && f->base->traffic.read_gb_per_s > 0 && f->new->traffic.read_gb_per_s > 0)
            shifts[pairs++] = log(f->base->traffic.read_gb_per_s / f->new->traffic.read_gb_per_s);
    }
    shift = pairs < FEW_PAIRS ? NAN : kvb_quantile(shifts, pairs, 0.5);
    free(shifts);
    return shift;
}

/* ---- one combination -------------------------------------------------------------------------------------- */

bool kvb_time_is_same_measurement(const kvb_result *base, const kvb_result *new)
{
    const kvb_time_stats *a = &base->time.all, *b = &new->time.all;

    return a->samples == b->samples && a->median == b->median && a->p99 == b->p99 && a->total == b->total &&
           a->min == b->min && a->max == b->max && base->time.n_series == new->time.n_series &&
           !memcmp(base->time.series, new->time.series, base->time.n_series * sizeof(double));
}

/* The centre of a series of logarithms, its standard error, and its worth: the number of independent values. */
typedef struct centre {
    double at, error, worth;
} centre;

static centre centre_of(const double *logs, size_t n)
{
    double copy[KVB_SERIES], r = kvb_autocorrelation(logs, n);

    memcpy(copy, logs, n * sizeof *copy);
    return (centre){.at = kvb_quantile(copy, n, 0.5),
                    .error = kvb_median_error(logs, n, BOOTSTRAP_ROUNDS) * sqrt((1 + r) / (1 - r)),
                    .worth = (double)n * (1 - r) / (1 + r)};
}

static centre centre_of_side(const kvb_result *result)
{
    double logs[KVB_SERIES];
    size_t n = result->time.n_series;

    const kvb_time_stats *steps = &result->time.all;
    if (n < FEW_PASSES) /* the median of all steps, with its own interval (95 %) */
        return (centre){.at = log(steps->median),
                        .error = log(steps->high / steps->low) / (2 * 1.959964),
                        .worth = (double)steps->samples};
    for (size_t i = 0; i < n; i++)
        logs[i] = log(result->time.series[i]);
    return centre_of(logs, n);
}

/* log(new / base): the estimate, its standard error, and degrees of freedom in `worth`. */
static centre difference_of(const kvb_result *base, const kvb_result *new, bool paired)
{
    double logs[KVB_SERIES];
    size_t n = base->time.n_series < new->time.n_series ? base->time.n_series : new->time.n_series;

    if (!paired || n < FEW_PASSES) {
        centre before = centre_of_side(base), after = centre_of_side(new);
        return (centre){after.at - before.at, hypot(after.error, before.error), after.worth + before.worth - 2};
    }
    for (size_t i = 0; i < n; i++)
        logs[i] = log(new->time.series[i] / base->time.series[i]);
    centre difference = centre_of(logs, n);
    difference.worth -= 1;
    return difference;
}

kvb_verdict kvb_interval_judge(double estimate, double *low, double *high, double faster, double slower,
                               double threshold)
{
    double reach = log1p(threshold);

    *low -= slower;
    *high -= faster;
    if (*low > -reach && *high < reach)
        return KVB_VERDICT_SAME;
    if (*low > 0 && estimate - slower >= reach)
        return KVB_VERDICT_SLOWER;
    if (*high < 0 && estimate - faster <= -reach)
        return KVB_VERDICT_FASTER;
    return KVB_VERDICT_UNDECIDED;
}

/* Fills in why an interval is undecided: noise between runs, noise within a run, or the place of the interval. */
static void undecided_say(kvb_finding *f, double sampling, double half, double threshold)
{
    const kvb_result *b = f->base, *n = f->new;

    if (half > sampling && half > log1p(threshold))
        snprintf(f->reason, sizeof f->reason, "runs of one build may differ by %.1f %%, the threshold is %.3g %%",
                 100 * expm1(half), 100 * threshold);
    else if (sampling > log1p(threshold))
        snprintf(f->reason, sizeof f->reason, "%llu and %llu passes resolve %.1f %%, the threshold is %.3g %%",
                 (unsigned long long)(b->time.passes - b->time.warmup),
                 (unsigned long long)(n->time.passes - n->time.warmup), 100 * expm1(sampling), 100 * threshold);
    else
        snprintf(f->reason, sizeof f->reason, "%s to %s lies on both sides of the threshold %.3g %%",
                 kvb_change_text(f->low).text, kvb_change_text(f->high).text, 100 * threshold);
}

/* The logarithm of the median of a run's passes, or of its steps if passes are few. */
static double middle_of_side(const kvb_result *result)
{
    double copy[KVB_SERIES];
    size_t n = result->time.n_series;

    memcpy(copy, result->time.series, n * sizeof *copy);
    return log(n < FEW_PASSES ? result->time.all.median : kvb_quantile(copy, n, 0.5));
}

/* log(new / base) of several runs: the difference of the medians. *squares: sum of squares about the builds' means. */
static double difference_of_runs(const kvb_time_runs *runs, double *squares)
{
    double logs[KVB_RUNS], middle[2];

    *squares = 0;
    for (int side = 0; side < 2; side++) {
        double mean = 0;
        size_t n = runs->n[side];
        for (size_t i = 0; i < n; i++) {
            logs[i] = middle_of_side(runs->of[side][i]);
            mean += logs[i] / (double)n;
        }
        for (size_t i = 0; i < n; i++)
            *squares += (logs[i] - mean) * (logs[i] - mean);
        middle[side] = kvb_quantile(logs, n, 0.5);
    }
    return middle[1] - middle[0];
}

double kvb_time_scatter(const kvb_time_runs *runs)
{
    size_t freedom = runs->n[0] + runs->n[1] - 2;
    double squares = NAN;

    if (freedom)
        difference_of_runs(runs, &squares);
    return squares / (double)(freedom ? freedom : 1);
}

void kvb_noise_see(kvb_compare_noise *noise, double *scatters, size_t n, const size_t runs[2])
{
    double freedom = (double)(runs[0] + runs[1] - 2);

    if (runs[0] < FEW_RUNS || runs[1] < FEW_RUNS || n < FEW_SCATTERS)
        return;
    /* the median of a chi square (Wilson, Hilferty, PNAS 17, 1931) */
    noise->between = sqrt(kvb_quantile(scatters, n, 0.5) / pow(1 - 2 / (9 * freedom), 3));
    noise->common = noise->between * sqrt(1 / (double)runs[0] + 1 / (double)runs[1]);
    noise->known = true;
    double half = between_runs(noise->between, 0, noise->tail, runs);
    noise->resolution = half > WIDEST ? NAN : expm1(half);
}

void kvb_time_judge(const kvb_compare_noise *noise, double threshold, const kvb_time_runs *runs, kvb_finding *f)
{
    bool several = runs->n[0] + runs->n[1] > 2;
    const kvb_result *b = f->base, *n = f->new;

    f->before = b->time.all.median;
    f->after = n->time.all.median;
    f->verdict = KVB_VERDICT_UNDECIDED;
    if (!(f->before > 0) || !(f->after > 0)) {
        snprintf(f->reason, sizeof f->reason, "no time was measured in %s", f->before > 0 ? "the new run" : "the base");
        return;
    }
    if (kvb_time_is_same_measurement(b, n)) {
        f->verdict = KVB_VERDICT_SAME;
        f->ratio = f->low = f->high = 1;
        return;
    }
    centre difference;
    double half, sampling = 0, squares = 0;
    if (several) { /* the scatter of runs includes that of passes and null comparisons */
        difference = (centre){.at = difference_of_runs(runs, &squares)};
        half = 0;
    } else {
        difference = difference_of(b, n, noise->paired);
        uint32_t freedom = difference.worth < 1 ? 1 : (uint32_t)fmin(difference.worth, 1000);
        sampling = kvb_student_quantile(noise->tail, freedom) * difference.error;
        /* fmax ignores a NaN */
        double own = kvb_null_log(fmax(fmax(b->time.null_difference, n->time.null_difference), 0));
        half = fmax(fmax(sampling, own), noise->floor);
    }
    if (!noise->paired)
        half = fmax(half, between_runs(noise->between, squares, noise->tail, runs->n));
    f->ratio = exp(difference.at);
    f->after = f->before * f->ratio; /* medians of paired passes or runs would give another ratio */

    if (isnan(sampling) || !noise->known) {
        snprintf(f->reason, sizeof f->reason,
                 isnan(sampling) ? "too few passes for an interval"
                 : noise->nulls  ? "unknown interval: too few null comparisons (%zu)"
                                 : "neither run compared a combination with itself",
                 noise->nulls);
        return;
    }
    double low = difference.at - half, high = difference.at + half;
    f->verdict =
        kvb_interval_judge(difference.at, &low, &high, fmin(noise->machine, 0), fmax(noise->machine, 0), threshold);
    if (f->verdict == KVB_VERDICT_UNDECIDED && half > WIDEST) {
        snprintf(f->reason, sizeof f->reason, "unknown interval: %s say too little",
                 half > sampling ? "null comparisons" : "so few passes");
        return;
    }
    f->low = exp(low);
    f->high = exp(high);
    if (f->verdict == KVB_VERDICT_UNDECIDED)
        undecided_say(f, sampling, half, threshold);
}
