/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock. */
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

static inline double kvb_now_seconds(void)
{
    return 1e-9 * kvb_now_ns();
}

/*
 * One clock. Contestants, and the limits that they are compared with, each take one sample a round: a disturbance of
 * the machine hits all of them, so samples of one round are compared. Kernels and limits (bench), settings (tune),
 * children (duels) and the machine's probes are measured by this loop.
 */
typedef struct kvb_contestant {
    double (*take)(void *ctx); /* one sample, in a unit of its own; NAN: it leaves */
    void *ctx;
    double *samples;      /* [most], of the caller; NAN where none was taken. NULL: they are not kept */
    const kvb_team *team; /* NULL: each sample counts. Else its threads are woken before each, and a sample during which
                           * the system gave a core to another program is taken again, up to four times; if none was
                           * left alone, the least counts. */
    bool limit;           /* it is in every round, however slow */
    uint32_t n;           /* taken: those of the first n rounds */
    double used;          /* seconds */
    bool gone;
} kvb_contestant;

typedef struct kvb_rounds {
    uint32_t least, most; /* rounds; `least` are made whatever their time */
    double seconds;       /* of all contestants */
    bool together;        /* no further round once a contestant has left */
} kvb_rounds;

/*
 * Makes rounds until the time is over, or until kvb_stopped; then the round that is not complete does not count. A
 * contestant of which `least` samples take its part of the seconds leaves after `least` rounds; the others keep their
 * parts. Returns the number of rounds.
 */
uint32_t kvb_rounds_run(const kvb_rounds *rounds, kvb_contestant *contestants, uint32_t n);

/*
 * Which contestant is the i-th of a round? Each round begins with the next one, and every other n rounds go backwards:
 * in 2n rounds each has each place equally often, and comes after all, itself too, as often as any other does.
 */
size_t kvb_rounds_place(size_t n, size_t round, size_t i);

#endif
