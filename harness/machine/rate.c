/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a rate. */
#include "harness/machine/rate.h"

#include <errno.h>
#include <stdlib.h>

#include "harness/rounds.h"

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

typedef struct sampling {
    kvb_rate_work *work;
    void *ctx;
    uint32_t passes;
} sampling;

static double pass_take(void *ctx)
{
    const sampling *s = ctx;
    return s->work(s->ctx, s->passes) / s->passes;
}

int kvb_rate_sample(kvb_rate_work *work, void *ctx, double amount, double seconds, kvb_rate *rate)
{
    double *samples = malloc(SAMPLES_MAX * sizeof *samples);
    if (!samples)
        return -ENOMEM;
    const kvb_rounds rounds = {.least = SAMPLES_MIN, .most = SAMPLES_MAX, .seconds = seconds};
    sampling s = {work, ctx, passes_find(work, ctx)};
    kvb_contestant probe = {.take = pass_take, .ctx = &s, .samples = samples, .limit = true};
    const uint32_t n = kvb_rounds_run(&rounds, &probe, 1);
    for (uint32_t i = 0; i < n; i++)
        samples[i] = amount / samples[i];
    if (n)
        kvb_rate_of(samples, n, rate);
    free(samples);
    return n ? 0 : -EINTR;
}
