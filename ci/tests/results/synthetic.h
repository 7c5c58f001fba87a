/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up runs: combinations with known true times, and noise like that of real machines. */
#ifndef KVB_SYNTHETIC_H
#define KVB_SYNTHETIC_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "results/result.h"

/* Noise of a run: standard deviations of the logarithms of times. */
typedef struct synthetic_noise {
    double pass;    /* between passes */
    double follows; /* first-order autocorrelation of passes */
    double drift;   /* from the first pass to the last, up or down */
    double process; /* between processes: page placement, a neighbour */
    unsigned passes;
    double run; /* between runs, by Student's distribution of 3 degrees: null comparisons do not show it */
} synthetic_noise;

/* xorshift64* (Vigna, 2016): another generator than the program's. */
static inline double synthetic_uniform(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return ((double)(*state * 0x2545f4914f6cdd1d >> 12) + 0.5) * 0x1p-52;
}

/* Box-Muller. */
static inline double synthetic_normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(synthetic_uniform(state)));
    return radius * cos(6.283185307179586 * synthetic_uniform(state));
}

static inline double synthetic_student3(uint64_t *state)
{
    double squares = 0;

    for (int i = 0; i < 3; i++) {
        double x = synthetic_normal(state);
        squares += x * x;
    }
    return synthetic_normal(state) / sqrt(squares / 3);
}

/* Fills the series of one process: the true time `ns` with noise. Returns the geometric mean, which is near its
 * median. */
static inline double synthetic_series(const synthetic_noise *noise, double ns, double *series, uint64_t *state)
{
    double level = noise->process * synthetic_normal(state), slope = noise->drift * synthetic_normal(state);
    double last = synthetic_normal(state), sum = 0;

    for (unsigned i = 0; i < noise->passes; i++) {
        double fresh = sqrt(1 - noise->follows * noise->follows);
        last = noise->follows * last + fresh * synthetic_normal(state);
        double at = level + slope * ((double)i / noise->passes - 0.5) + noise->pass * last;
        series[i] = ns * exp(at);
        sum += at;
    }
    return ns * exp(sum / noise->passes);
}

/* Fills a passed combination, with its null comparison against another process. */
static inline void synthetic_fill(kvb_result *r, const char *workload, const char *pool, const char *kernel,
                                  const synthetic_noise *noise, double ns, uint64_t *state)
{
    double again[KVB_SERIES];

    kvb_result_begin(r, workload, "seq", pool, pool, kernel);
    r->status = KVB_STATUS_PASS;
    r->rho = 0.1;
    r->memory.allocator_peak = 1 << 20;
    r->traffic.bytes_read = 1 << 24;
    r->time.passes = noise->passes + 1;
    r->time.warmup = 1;
    r->time.n_series = noise->passes;
    double here = synthetic_series(noise, ns, r->time.series, state);
    r->time.null_difference = fabs(synthetic_series(noise, ns, again, state) / here - 1);
    double level = noise->run > 0 ? exp(noise->run * synthetic_student3(state)) : 1;
    for (unsigned i = 0; i < noise->passes; i++)
        r->time.series[i] *= level;
    for (unsigned i = 0; i < noise->passes; i++)
        again[i] = r->time.series[i];
    kvb_time_stats_of(again, noise->passes, &r->time.all);
}

/* n combinations: n / kernels pairs of workload and pool, with so many kernels each. The last kernel's times are
 * multiplied by `last`. The caller frees them. */
static inline kvb_result *synthetic_run(size_t n, size_t kernels, double last, const synthetic_noise *noise,
                                        uint64_t seed)
{
    static const char *const names[] = {"alpha", "beta", "gamma"};
    kvb_result *run = malloc(n * sizeof *run);

    for (size_t i = 0; run && i < n; i++) {
        char workload[32], pool[32];
        size_t place = i / kernels, kernel = i % kernels;
        snprintf(workload, sizeof workload, "work-%02zu", place / 3);
        snprintf(pool, sizeof pool, "pool-%zu", place % 3);
        synthetic_fill(&run[i], workload, pool, names[kernel], noise, 1e5 * (kernel + 1 == kernels ? last : 1), &seed);
    }
    return run;
}

#endif
