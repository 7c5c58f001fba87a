/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidth: the read and triad kernels on a team, sampled within a time budget. */
#include "harness/clock.h"
#include "harness/machine/bandwidth.h"

#include <errno.h>
#include <stdatomic.h>

#include "harness/machine/rate.h"
#include "harness/machine/read_kernel.h"
#include "kernels/attend.h"

#define LINE 64u

typedef struct read_job {
    const kvb_read_kernel *kernel;
    const char *base;
    size_t part, bytes; /* from one thread's part to the next; how much of each is read */
    uint32_t passes;
    atomic_uint_fast64_t seen; /* the sums of what was read, so that reading is not optimised away */
} read_job;

static void part_read(void *ctx, uint32_t i, uint32_t n)
{
    read_job *job = ctx;
    uint64_t seen = 0;
    (void)n;
    for (uint32_t pass = 0; pass < job->passes; pass++) {
        const char *base = job->base + i * job->part;
        __asm__ volatile("" : "+r"(base) : : "memory"); /* each pass reads anew */
        seen ^= job->kernel->run(base, job->bytes);
    }
    atomic_fetch_add_explicit(&job->seen, seen, memory_order_relaxed);
}

/* How much of `bytes` each of n threads reads: whole lines, at least one, at most its part. */
static size_t share_of(const kvb_probe_memory *memory, size_t bytes, uint32_t n)
{
    size_t share = bytes / n / LINE * LINE, part = memory->bytes / n;
    if (share < LINE)
        share = LINE;
    return share < part ? share : part;
}

double kvb_read_pass(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, uint32_t passes)
{
    read_job job = {.kernel = kvb_read_kernel_choose(),
                    .base = memory->base,
                    .part = memory->bytes / team->n,
                    .bytes = share_of(memory, bytes, team->n),
                    .passes = passes};
    double start = kvb_now_ns();
    team->run(team, part_read, &job);
    return kvb_now_ns() - start;
}

const char *kvb_read_isa(void)
{
    return kvb_read_kernel_choose()->isa;
}

typedef struct probe {
    const kvb_team *team;
    const kvb_probe_memory *memory;
    size_t bytes;
} probe;

static double read_sample(void *ctx, uint32_t passes)
{
    probe *p = ctx;
    return kvb_read_pass(p->team, p->memory, p->bytes, passes);
}

int kvb_read_bandwidth(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, double seconds,
                       kvb_rate *rate)
{
    probe p = {.team = team, .memory = memory, .bytes = bytes};
    double moved = (double)team->n * (double)share_of(memory, bytes, team->n);
    return kvb_rate_sample(read_sample, &p, moved, seconds, rate);
}

typedef struct triad_job {
    const kvb_triad_kernel *kernel;
    char *base;
    size_t part, elements; /* bytes from one part to the next; elements of each of the three arrays in a part */
    uint32_t passes;
} triad_job;

/* The arrays of a thread lie one after the other in its part, each a whole number of lines. */
static void part_triad(void *ctx, uint32_t i, uint32_t n)
{
    const triad_job *job = ctx;
    double *a = (void *)(job->base + i * job->part);
    (void)n;
    for (uint32_t pass = 0; pass < job->passes; pass++) {
        __asm__ volatile("" : "+r"(a) : : "memory");
        job->kernel->run(a, a + job->elements, a + 2 * job->elements, 0.5, job->elements);
    }
}

static size_t triad_elements(size_t share)
{
    size_t elements = share / 3 / LINE * (LINE / sizeof(double));
    return elements ? elements : LINE / sizeof(double);
}

static double triad_sample(void *ctx, uint32_t passes)
{
    probe *p = ctx;
    triad_job job = {.kernel = kvb_triad_kernel_choose(),
                     .base = p->memory->base,
                     .part = p->memory->bytes / p->team->n,
                     .elements = triad_elements(share_of(p->memory, p->bytes, p->team->n)),
                     .passes = passes};
    double start = kvb_now_ns();
    p->team->run(p->team, part_triad, &job);
    return kvb_now_ns() - start;
}

int kvb_triad_bandwidth(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, double seconds,
                        kvb_rate *rate)
{
    probe p = {.team = team, .memory = memory, .bytes = bytes};
    double moved = 24.0 * (double)team->n * (double)triad_elements(share_of(memory, bytes, team->n));
    return kvb_rate_sample(triad_sample, &p, moved, seconds, rate);
}
