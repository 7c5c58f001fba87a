/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-reading: the read kernel that roofs rest on, beside another implementation: one stream of vector additions by each
 * thread. Medians of the ratio of neighbours, in turns, so that drift and strangers cancel; near 1 both read the memory as
 * fast as it goes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "harness/machine/profile.h"
#include "harness/machine/rate.h"
#include "harness/machine/read_kernel.h"
#include "harness/machine/team.h"

/* As wide as the CPU has: with loads of 8 or 16 bytes a core has too few cache lines under way. */
#define ADDING(name, width, target)                                                                                    \
    target static uint64_t name(const char *p, size_t bytes)                                                           \
    {                                                                                                                  \
        typedef uint64_t vector __attribute__((vector_size(width)));                                                   \
        const vector *v = (const void *)p;                                                                             \
        vector a = {0}, b = a, c = a, d = a;                                                                           \
        for (size_t i = 0; i + 4 <= bytes / sizeof *v; i += 4) {                                                       \
            a += v[i];                                                                                                 \
            b += v[i + 1];                                                                                             \
            c += v[i + 2];                                                                                             \
            d += v[i + 3];                                                                                             \
        }                                                                                                              \
        a += b + c + d;                                                                                                \
        return a[0] + a[1];                                                                                            \
    }

ADDING(add_16, 16, )
#if defined(__x86_64__)
ADDING(add_32, 32, __attribute__((target("avx2"))))
ADDING(add_64, 64, __attribute__((target("avx512f"))))
#endif

typedef uint64_t (*adding)(const char *p, size_t bytes);

static adding widest(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return add_64;
    if (__builtin_cpu_supports("avx2"))
        return add_32;
#endif
    return add_16;
}

typedef struct job {
    adding add;
    const kvb_probe_memory *memory;
    uint64_t sums[64];
} job;

static void part_add(void *ctx, uint32_t i, uint32_t n)
{
    job *j = ctx;
    size_t part = j->memory->bytes / n;
    j->sums[i] = j->add(j->memory->base + i * part, part);
}

static double add_ns(job *j, const kvb_team *team)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    team->run(team, part_add, j);
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
}

int main(void)
{
    enum { PAIRS = 31, MOST = 3 << 29 };
    kvb_machine_profile profile;
    kvb_threads *threads;
    kvb_probe_memory memory;
    double ratio[PAIRS];
    kvb_rate rate;
    uint32_t n = kvb_cores() < 2 ? 1 : 2;
    if (kvb_profile_describe("", &profile) || kvb_threads_start(n, true, &threads))
        return EXIT_FAILURE;
    size_t set = profile.level[3].working_set, bytes = set < MOST ? set : MOST;
    const kvb_team *team = kvb_threads_team(threads);
    if (kvb_probe_memory_open(team, bytes, &memory))
        return EXIT_FAILURE;
    job j = {.add = widest(), .memory = &memory};
    for (int i = 0; i < PAIRS; i++) {
        double first = i % 2 ? add_ns(&j, team) : 0, ours = kvb_read_pass(team, &memory, bytes, 1);
        ratio[i] = ours / (i % 2 ? first : add_ns(&j, team));
    }
    kvb_rate_of(ratio, PAIRS, &rate);
    printf("%u threads, %zu MiB: read kernel %s takes %.3f (%.3f to %.3f) of a plain loop's time\n", n, bytes >> 20,
           kvb_read_isa(), rate.median, rate.low, rate.high);
    kvb_probe_memory_close(&memory);
    kvb_threads_end(threads);
    return EXIT_SUCCESS;
}
