/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what the machine can do into a manifest. */
#include <math.h>

#include "harness/machine/profile.h"

#define PROBE_SECONDS 0.1 /* for each probe */

static double rate_or_none(const kvb_rate *rate)
{
    return rate->samples ? rate->median : NAN;
}

void kvb_profile_record(const uint32_t *threads, uint32_t n_threads, kvb_manifest *manifest)
{
    kvb_machine_profile profile;
    if (kvb_profile_describe("", &profile) || kvb_profile_measure_threads(&profile, threads, n_threads, PROBE_SECONDS))
        return; /* oversubscribed: there is no such machine */
    for (uint32_t i = 0; i < profile.n_rows && i < KVB_MACHINE_ROWS; i++) {
        kvb_machine_rates *to = &manifest->machine[manifest->n_machine++];
        to->threads = profile.row[i].threads;
        for (size_t level = 0; level < KVB_LEVELS; level++) {
            to->read[level] = rate_or_none(&profile.row[i].read[level]);
            to->triad[level] = rate_or_none(&profile.row[i].triad[level]);
        }
        for (size_t kind = 0; kind < KVB_PEAK_KINDS; kind++)
            to->peak[kind] = rate_or_none(&profile.row[i].peak[kind]);
    }
}
