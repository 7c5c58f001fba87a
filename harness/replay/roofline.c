/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidth probes between passes, and the fractions they give. */
#include "harness/replay/roofline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attend.h"
#include "results/statistics.h"

#define PROBE_BYTES (4u << 20) /* a probe reads at least so much, so that looking at the clock does not matter */
#define PROBE_LINE  64u        /* a thread reads at least so many bytes */

int kvb_roofline_open(kvb_roofline *r, const kvb_team *team, double working_set)
{
    *r = (kvb_roofline){.team = team, .working_set = (size_t)working_set};
    if (r->working_set < (size_t)team->n * PROBE_LINE)
        r->working_set = 0;
    return r->working_set ? kvb_probe_memory_open(team, r->working_set, &r->memory) : 0;
}

int kvb_roofline_probe(kvb_roofline *r)
{
    if (!r->working_set)
        return 0;
    uint32_t passes = (uint32_t)(PROBE_BYTES / r->working_set) + 1;
    kvb_read_pass(r->team, &r->memory, r->working_set, 1); /* the CPU's caches hold other data after a pass */
    double ns = kvb_read_pass(r->team, &r->memory, r->working_set, passes);
    return kvb_sample_add(&r->rates, (double)r->working_set * passes / ns);
}

void kvb_roofline_close(kvb_roofline *r)
{
    kvb_samples_free(&r->rates);
    if (r->working_set)
        kvb_probe_memory_close(&r->memory);
}

void kvb_roofline_report(const kvb_roofline *r, double bytes, double flops, double ns, double peak, kvb_result *result)
{
    double *copy = malloc((r->rates.n + 1) * sizeof *copy), read = NAN;
    if (copy && r->rates.n) {
        memcpy(copy, r->rates.ns, r->rates.n * sizeof *copy);
        read = kvb_quantile(copy, r->rates.n, 0.5);
    }
    free(copy);
    result->traffic.gb_per_s = bytes / ns; /* a byte a nanosecond is 1 GB/s */
    result->traffic.gflop_per_s = flops / ns;
    result->traffic.read_gb_per_s = read;
    result->traffic.peak_gflop_per_s = peak;
    result->traffic.of_read = bytes / ns / read;
    result->traffic.of_limit = fmax(bytes / read, flops / peak) / ns;
    if (isnan(read) || isnan(peak))
        result->traffic.of_limit = NAN;
}
