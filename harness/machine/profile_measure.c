/* SPDX-License-Identifier: Apache-2.0 */
/* Measure a machine: every level and peak for each number of threads. */
#include <assert.h>
#include <errno.h>
#include <sched.h>

#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "kernels/attend.h"

/* All levels are probed in one block, large enough for the largest: touching a block of several last-level caches takes
 * longer than measuring it. */
static int levels_measure(const kvb_machine_profile *profile, const kvb_team *team, double seconds,
                          kvb_profile_row *row)
{
    kvb_probe_memory memory;
    uint64_t bytes[KVB_LEVELS], most = 0;
    for (size_t i = 0; i < KVB_LEVELS; i++) {
        bytes[i] = kvb_working_set_total(profile->level, team->n, i);
        most = bytes[i] > most ? bytes[i] : most;
    }
    int error = most ? kvb_probe_memory_open(team, most, &memory) : 0;
    if (error || !most)
        return error;
    for (size_t i = 0; i < KVB_LEVELS && !error; i++) {
        if (!bytes[i])
            continue;
        error = kvb_read_bandwidth(team, &memory, bytes[i], seconds, &row->read[i]);
        if (!error)
            error = kvb_triad_bandwidth(team, &memory, bytes[i], seconds, &row->triad[i]);
    }
    kvb_probe_memory_close(&memory);
    return error;
}

static int peaks_measure(kvb_machine_profile *profile, const kvb_team *team, double seconds, kvb_profile_row *row)
{
    int error = 0;
    for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS && !error; k++) {
        error = kvb_multiply_add_peak(team, k, seconds, &row->peak[k], profile->peak_unavailable[k],
                                      sizeof profile->peak_unavailable[k]);
        if (error == -ENOTSUP)
            error = 0;
    }
    return error;
}

int kvb_profile_measure_threads(kvb_machine_profile *profile, const uint32_t *threads, uint32_t n, double seconds)
{
    cpu_set_t before;
    assert(n <= KVB_PROFILE_THREADS);
    bool bound = !sched_getaffinity(0, sizeof before, &before); /* false: more CPUs than the set holds */
    int error = 0;
    profile->n_rows = 0;
    for (uint32_t i = 0; i < n && !error; i++) {
        kvb_threads *team;
        kvb_profile_row *row = &profile->row[i];
        *row = (kvb_profile_row){.threads = threads[i]};
        error = kvb_threads_start(threads[i], true, &team);
        if (error)
            break;
        error = levels_measure(profile, kvb_threads_team(team), seconds, row);
        if (!error)
            error = peaks_measure(profile, kvb_threads_team(team), seconds, row);
        kvb_threads_end(team);
        profile->n_rows += !error;
    }
    if (bound)
        sched_setaffinity(0, sizeof before, &before);
    return error;
}

int kvb_profile_measure(kvb_machine_profile *profile, bool quick)
{
    uint32_t threads[KVB_PROFILE_THREADS], n = 0, cores = kvb_cores();
    for (uint32_t t = 1; t < cores && n + 1 < KVB_PROFILE_THREADS && (!quick || t == 1); t *= 2)
        threads[n++] = t;
    threads[n++] = cores;
    return kvb_profile_measure_threads(profile, threads, n, quick ? KVB_PROFILE_QUICK_SECONDS : KVB_PROFILE_SECONDS);
}
