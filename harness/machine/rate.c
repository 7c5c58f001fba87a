/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a rate. */
#include "harness/machine/rate.h"

#include <errno.h>
#include <stdlib.h>

#include "harness/clock.h"

#define SAMPLES_MIN 5u
#define SAMPLES_MAX 4096u
#define SAMPLE_NS   1e6 /* much longer than starting a team, shorter than a time slice */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void kvb_rate_of(double *samples, uint32_t n, kvb_rate *rate)
{
    qsort(samples, n, sizeof *samples, ascending);
    rate->samples = n;
    rate->median = n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
    rate->low = samples[(n + 9) / 10 - 1];
    rate->high = samples[n - (n + 9) / 10];
}

/* Passes that take about SAMPLE_NS, found by doubling; warms caches and clocks on the way. */
static uint32_t passes_find(kvb_rate_work *work, void *ctx)
{
    uint32_t passes = 1;
    work(ctx, passes);
    while (work(ctx, passes) < SAMPLE_NS && passes < 1u << 24)
        passes *= 2;
    return passes;
}

int kvb_rate_sample(kvb_rate_work *work, void *ctx, double amount, double seconds, kvb_rate *rate)
{
    double *samples = malloc(SAMPLES_MAX * sizeof *samples);
    if (!samples)
        return -ENOMEM;
    double end = kvb_now_ns() + seconds * 1e9;
    uint32_t passes = passes_find(work, ctx), n = 0;
    while (n < SAMPLES_MIN || (n < SAMPLES_MAX && kvb_now_ns() < end))
        samples[n++] = amount * passes / work(ctx, passes);
    kvb_rate_of(samples, n, rate);
    free(samples);
    return 0;
}
