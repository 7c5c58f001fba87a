/* SPDX-License-Identifier: Apache-2.0 */
/* Multiply-add peaks of a team. */
#include <errno.h>
#include <stdatomic.h>

#include "harness/clock.h"
#include "harness/machine/peak_kernel.h"
#include "harness/machine/rate.h"
#include "kernels/attend.h"

const char *const kvb_peak_names[KVB_PEAK_KINDS] = {"f32", "f16", "bf16", "int8"};

#define TURNS 4096u /* of one pass: tens of microseconds */

typedef struct peak_job {
    const kvb_team *team;
    const kvb_peak_kernel *kernel;
    uint64_t turns;
    _Atomic double sink;
} peak_job;

static void part_multiply(void *ctx, uint32_t i, uint32_t n)
{
    peak_job *job = ctx;
    (void)i, (void)n;
    atomic_store_explicit(&job->sink, job->kernel->run(job->turns), memory_order_relaxed);
}

static double peak_sample(void *ctx, uint32_t passes)
{
    peak_job *job = ctx;
    job->turns = (uint64_t)passes * TURNS;
    double start = kvb_now_ns();
    job->team->run(job->team, part_multiply, job);
    return kvb_now_ns() - start;
}

int kvb_multiply_add_peak(const kvb_team *team, kvb_peak_kind kind, double seconds, kvb_rate *rate, char *why,
                          size_t why_bytes)
{
    peak_job job = {.team = team, .kernel = kvb_peak_kernel_choose(kind, why, why_bytes)};
    if (!job.kernel)
        return -ENOTSUP;
    return kvb_rate_sample(peak_sample, &job, job.kernel->operations * TURNS * team->n, seconds, rate);
}
