/* SPDX-License-Identifier: Apache-2.0 */
/* Result rows as a table: with units for people, raw numbers and units in the headings for programs. */
#include "results/result.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "results/field.h"
#include "results/key.h"
#include "results/text.h"

enum { WORKLOAD, CACHE, POOL, KERNEL, THREADS, STATUS, RHO, MEDIAN, P99, STEPS, GB_S, OF_READ, PEAK, REASON, COLUMNS };

static const char *const people[COLUMNS + 1] = {"workload", "cache",    "pool",    "kernel", ">threads",
                                                "status",   ">rho",     ">median", ">p99",   ">steps",
                                                ">GB/s",    ">of read", ">peak",   "reason", NULL};
static const char *const programs[COLUMNS + 1] = {"workload",  "cache",    "pool",        "kernel",  ">threads",
                                                  "status",    ">rho",     ">median_ns",  ">p99_ns", ">steps",
                                                  ">gb_per_s", ">of_read", ">peak_bytes", "reason",  NULL};

typedef char number_text[KVB_UNIT_TEXT];
typedef char key_text[KVB_KEY_PART];

static void number_print(const char *format, double number, number_text text)
{
    text[0] = 0;
    if (!isnan(number))
        snprintf(text, sizeof(number_text), format, number);
}

/* Infinity as in result files. */
static void raw_print(double number, number_text text)
{
    number_print("%.9g", isinf(number) ? copysign(KVB_FIELD_INFINITY, number) : number, text);
}

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int result_row(kvb_table *table, const kvb_result *result, bool raw)
{
    key_text pool, cache;
    number_text threads, rho, median, p99, steps, rate, of_read, peak;

    kvb_key_pools(result, pool);
    kvb_key_cache(result, cache);
    snprintf(threads, sizeof threads, "%u", result->threads);
    snprintf(steps, sizeof steps, "%llu", (unsigned long long)result->time.all.samples);
    if (raw) {
        raw_print(result->rho, rho);
        raw_print(result->time.all.median, median);
        raw_print(result->time.all.p99, p99);
        raw_print(result->traffic.gb_per_s, rate);
        raw_print(result->traffic.of_read, of_read);
        number_print("%.0f", result->memory.allocator_peak, peak);
    } else {
        number_print("%.3g", result->rho, rho);
        kvb_time_text(result->time.all.median, median);
        kvb_time_text(result->time.all.p99, p99);
        number_print("%.2f", result->traffic.gb_per_s, rate);
        number_print("%.1f %%", 100 * result->traffic.of_read, of_read);
        kvb_bytes_text(result->memory.allocator_peak, peak);
    }
    const char *const cells[COLUMNS] = {
        [WORKLOAD] = result->workload,
        [CACHE] = cache,
        [POOL] = pool,
        [KERNEL] = result->kernel,
        [THREADS] = threads,
        [STATUS] = kvb_status_name(result->status),
        [RHO] = or_null(rho),
        [MEDIAN] = or_null(median),
        [P99] = or_null(p99),
        [STEPS] = result->time.all.samples ? steps : NULL,
        [GB_S] = or_null(rate),
        [OF_READ] = or_null(of_read),
        [PEAK] = or_null(peak),
        [REASON] = or_null(result->reason),
    };
    return kvb_table_row(table, cells);
}

/* A reason without the line of the workload at which it arose. */
static const char *reason_proper(const kvb_result *result)
{
    const char *colon = strncmp(result->reason, "line ", 5) ? NULL : strstr(result->reason, ": ");
    return colon ? colon + 2 : result->reason;
}

/* Skipped for the same reason, whatever the rest. */
static bool is_same_skip(const kvb_result *a, const kvb_result *b)
{
    return a->status == KVB_STATUS_SKIP && b->status == KVB_STATUS_SKIP && !strcmp(reason_proper(a), reason_proper(b));
}

/* One row for all skips that are the same as results[first]; none where an earlier one has told it. */
static int skip_row(kvb_table *table, const kvb_result *results, size_t n, size_t first)
{
    static const char several[] = "*";
    char reason[KVB_REASON + 32];
    key_text pool, other;
    size_t same = 0;

    for (size_t i = 0; i < first; i++)
        if (is_same_skip(&results[i], &results[first]))
            return 0;
    kvb_key_pools(&results[first], pool);
    const char *cells[COLUMNS] = {
        [WORKLOAD] = results[first].workload,
        [CACHE] = results[first].cache,
        [POOL] = pool,
        [KERNEL] = results[first].kernel,
        [STATUS] = kvb_status_name(KVB_STATUS_SKIP),
    };
    for (size_t i = first; i < n; i++)
        if (is_same_skip(&results[i], &results[first])) {
            kvb_key_pools(&results[i], other);
            const char *const words[] = {[WORKLOAD] = results[i].workload,
                                         [CACHE] = results[i].cache,
                                         [POOL] = other,
                                         [KERNEL] = results[i].kernel};
            for (size_t c = WORKLOAD; c <= KERNEL; c++)
                if (strcmp(cells[c], words[c]))
                    cells[c] = several;
            same++;
        }
    const char *told = cells[WORKLOAD] == several ? reason_proper(&results[first]) : results[first].reason;
    snprintf(reason, sizeof reason, same > 1 ? "%s (%zu combinations)" : "%s", told, same);
    cells[REASON] = or_null(reason);
    return kvb_table_row(table, cells);
}

int kvb_result_table(const kvb_result *results, size_t n, kvb_table_format format, FILE *out)
{
    bool raw = format == KVB_TABLE_CSV || format == KVB_TABLE_JSON;
    kvb_table *table = kvb_table_new(raw ? programs : people);
    int error = table ? 0 : -ENOMEM;

    for (size_t i = 0; i < n && !error; i++)
        if (raw || results[i].status != KVB_STATUS_SKIP)
            error = result_row(table, &results[i], raw);
    for (size_t i = 0; i < n && !error; i++)
        if (!raw && results[i].status == KVB_STATUS_SKIP)
            error = skip_row(table, results, n, i);
    if (!error)
        error = kvb_table_print(table, format, out);
    kvb_table_free(table);
    return error;
}
