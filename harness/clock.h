/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock. */
#ifndef KVB_CLOCK_H
#define KVB_CLOCK_H

#include <time.h>

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

#endif
