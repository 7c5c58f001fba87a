/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/rounds.h"

#include <math.h>
#include <sys/resource.h>

#include "harness/program.h"

#define TRIES        4u   /* of a sample that other programs disturb */
#define LONG_SECONDS 0.02 /* a sample that takes longer is not tried again */

size_t kvb_rounds_place(size_t n, size_t round, size_t i)
{
    const size_t first = round % n;
    return (first + (round / n & 1 ? n - i : i)) % n;
}

static long switches(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
}

static void part_nothing(void *ctx, uint32_t i, uint32_t n)
{
    (void)ctx, (void)i, (void)n;
}

static double sample_quietly(const kvb_contestant *c)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < TRIES; i++) {
        c->team->run(c->team, part_nothing, NULL);
        const long before = switches();
        const double start = kvb_now_seconds(), sample = c->take(c->ctx);
        least = fmin(least, sample);
        if (isnan(sample) || switches() == before)
            return sample;
        if (kvb_now_seconds() - start > LONG_SECONDS || kvb_stopped)
            break;
    }
    return least;
}

/* Do the contestants that have not left have time left? part: each one's share in seconds. */
static bool time_left(const kvb_contestant *contestants, uint32_t n, double part)
{
    double left = 0;
    for (uint32_t i = 0; i < n; i++)
        left += contestants[i].gone ? 0 : part - contestants[i].used;
    return left > 0;
}

/* Takes one sample. part: each contestant's share in seconds. */
static void sample_take(const kvb_rounds *r, kvb_contestant *c, double part)
{
    const double start = kvb_now_seconds(), sample = c->team ? sample_quietly(c) : c->take(c->ctx),
                 took = kvb_now_seconds() - start;
    c->used += took;
    if (c->samples)
        c->samples[c->n] = sample;
    c->n += !isnan(sample);
    c->gone = isnan(sample) || (!c->limit && c->n >= r->least && took * r->least > part);
}

uint32_t kvb_rounds_run(const kvb_rounds *r, kvb_contestant *contestants, uint32_t n)
{
    const double part = r->seconds / n;
    uint32_t round = 0, gone = 0;
    for (uint32_t i = 0; i < n; i++) {
        kvb_contestant *c = &contestants[i];
        c->n = 0;
        c->used = 0;
        c->gone = false;
        for (uint32_t s = 0; c->samples && s < r->most; s++)
            c->samples[s] = NAN;
    }
    while (round < r->most && !kvb_stopped && gone < (r->together ? 1 : n) &&
           (round < r->least || time_left(contestants, n, part))) {
        for (uint32_t i = 0; i < n && !kvb_stopped; i++) {
            kvb_contestant *c = &contestants[kvb_rounds_place(n, round, i)];
            if (!c->gone) {
                sample_take(r, c, part);
                gone += c->gone;
            }
        }
        round += !kvb_stopped;
    }
    for (uint32_t i = 0; i < n; i++)
        contestants[i].n = contestants[i].n < round ? contestants[i].n : round;
    return round;
}
