/* SPDX-License-Identifier: Apache-2.0 */
/* Words of the result schema, the empty result, and the order statistics of step times. */
#include "results/result.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *kvb_status_name(kvb_status status)
{
    static const char *const names[KVB_STATUSES] = {"pass", "fail", "skip", "crash", "timeout"};

    assert(status < KVB_STATUSES);
    return names[status];
}

const char *kvb_step_kind_name(kvb_step_kind kind)
{
    static const char *const names[KVB_STEP_KINDS] = {"prefill", "decode", "fork", "verify", "fill", "control"};

    assert(kind < KVB_STEP_KINDS);
    return names[kind];
}

static const kvb_time_stats no_time = {
    .median = NAN, .p99 = NAN, .mad = NAN, .min = NAN, .max = NAN, .total = NAN, .low = NAN, .high = NAN};

void kvb_result_init(kvb_result *result)
{
    memset(result, 0, sizeof *result);
    result->status = KVB_STATUS_SKIP;
    result->rho = NAN;
    result->error.rho_worst = result->error.rho_lse = result->error.max_abs = result->error.rel_l2 = NAN;
    result->error.got = result->error.want = result->error.bound = NAN;
    result->error.bits_k = result->error.bits_v = NAN;
    result->error.format_max_abs = result->error.format_rel_l2 = NAN;
    result->error.format_kl_mean = result->error.format_kl_max = NAN;
    result->time.all = no_time;
    for (int i = 0; i < KVB_STEP_KINDS; i++)
        result->time.kinds[i] = no_time;
    result->time.null_difference = result->time.harness_share = NAN;
    result->traffic.bytes_read = result->traffic.bytes_walk = result->traffic.cells_read = NAN;
    result->traffic.flops = result->traffic.working_set = NAN;
    result->traffic.gb_per_s = result->traffic.gflop_per_s = NAN;
    result->traffic.read_gb_per_s = result->traffic.peak_gflop_per_s = NAN;
    result->traffic.of_read = result->traffic.of_limit = NAN;
    result->memory.allocator_peak = result->memory.allocator_live = result->memory.reserved_bytes = NAN;
    result->memory.utilisation = result->memory.fragmentation = result->memory.cells_reused = NAN;
    result->memory.cells = result->memory.cells_peak = result->memory.high_water = NAN;
    result->memory.cells_written = result->memory.cells_moved = NAN;
    result->memory.growths = result->memory.copied_bytes = result->memory.copy_ns = NAN;
    result->memory.resident_peak = result->memory.scratch_bytes = result->memory.staged_bytes = NAN;
    for (uint32_t i = 0; i < KVB_COUNTERS; i++)
        result->counters[i].value = result->counters[i].share = NAN;
}

static int samples_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of n sorted samples: the middle one, or the mean of the two in the middle. */
static double middle(const double *sorted, size_t n)
{
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

/*
 * Median absolute deviation of n sorted samples. Left of the median the deviations fall with the index, right
 * of it they rise: merging outwards from the median meets them in ascending order, so no copy is needed.
 */
static double deviation(const double *sorted, size_t n, double median)
{
    size_t right = n / 2, left = right; /* next to take: sorted[right], sorted[left - 1] */
    double last = 0, before = 0;

    for (size_t taken = 0; taken <= n / 2; taken++) {
        bool take_left = right == n || (left > 0 && median - sorted[left - 1] < sorted[right] - median);

        before = last;
        last = take_left ? median - sorted[--left] : sorted[right++] - median;
    }
    return n % 2 ? last : (before + last) / 2;
}

void kvb_time_stats_of(double *samples, size_t n, kvb_time_stats *stats)
{
    *stats = no_time;
    if (n == 0)
        return;
    qsort(samples, n, sizeof *samples, samples_compare);
    stats->samples = n;
    stats->min = samples[0];
    stats->max = samples[n - 1];
    stats->median = middle(samples, n);
    stats->p99 = samples[(n * 99 + 99) / 100 - 1]; /* nearest rank: ceil(0.99 n), counted from 1 */
    stats->mad = deviation(samples, n, stats->median);
    stats->total = 0;
    for (size_t i = 0; i < n; i++) {
        assert(!isnan(samples[i]));
        stats->total += samples[i];
    }
}
