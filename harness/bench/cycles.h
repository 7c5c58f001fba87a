/* SPDX-License-Identifier: Apache-2.0 */
/* Time of one core, for the benches of single functions. */
#ifndef KVB_BENCH_CYCLES_H
#define KVB_BENCH_CYCLES_H

#include <stdint.h>
#include <time.h>

/* Of this thread's running: others may have the core for a while. */
static inline double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds of a cycle: additions that wait for each other take one each (not those of constants, which some CPUs
 * do in renaming). */
static inline double cycle_ns(void)
{
    uint64_t x = 1, y = 3;
    __asm__ volatile("" : "+r"(y));
    double start = now_ns();
    for (int i = 0; i < 20000; i++)
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) {
            x += y;
            __asm__ volatile("" : "+r"(x));
        }
    return (now_ns() - start) / (20000 * 16);
}

/* cycle_ns() as a contestant's take (harness/rounds.h). */
static inline double cycle_take(void *ctx)
{
    (void)ctx;
    return cycle_ns();
}

#endif
