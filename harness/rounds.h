/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock, and measurements in rounds. */
#ifndef KVB_ROUNDS_H
#define KVB_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "kernels/view.h"

static inline double kvb_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds that this thread ran; time of other threads on the core does not count. */
static inline double kvb_thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline double kvb_now_seconds(void)
{
    return 1e-9 * kvb_now_ns();
}

/*
 * The one loop that measures: kernels and limits (bench), settings (tune), children (duels) and the machine's probes.
 * Each contestant takes one sample per round, and so do the limits that contestants are compared with. A disturbance of
 * the machine hits all of them, so samples of one round are compared.
 */
typedef struct kvb_contestant {
    double (*take)(void *ctx); /* takes one sample, in any unit; NAN: the contestant leaves */
    void *ctx;
    double *samples;      /* [most], the caller's; NAN: not taken. NULL: samples are not kept */
    const kvb_team *team; /* its threads are woken before each sample. A sample during which the system gave a core to
                           * another program is taken again, up to four times in all; the smallest counts if all were
                           * disturbed. NULL: each first sample counts */
    bool limit;           /* it stays in every round, however slow */
    uint32_t n;           /* samples taken, in the first n rounds */
    double used;          /* seconds */
    bool gone;
} kvb_contestant;

typedef struct kvb_rounds {
    uint32_t least, most; /* rounds; `least` are made in any case */
    double seconds;       /* for all contestants together */
    bool together;        /* no further round once a contestant has left */
} kvb_rounds;

/*
 * Makes rounds until the time is over, or until kvb_stopped; an incomplete round then does not count. Each contestant has
 * an equal share of the seconds. One that would take more than its share for `least` samples leaves after `least` rounds;
 * the others keep their shares. Returns the number of rounds.
 */
uint32_t kvb_rounds_run(const kvb_rounds *rounds, kvb_contestant *contestants, uint32_t n);

/*
 * The index of the i-th contestant of a round. Each round begins with the next contestant, and every other n rounds go
 * backwards: in 2n rounds each contestant has each place equally often, and follows each one, itself included, equally
 * often.
 */
size_t kvb_rounds_place(size_t n, size_t round, size_t i);

#endif
