/* SPDX-License-Identifier: Apache-2.0 */
/* Results as rows of a table: with units for people, raw numbers and units in the headings for programs. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/schema.h"

enum {
    WORKLOAD,
    CACHE,
    POOL,
    KERNEL,
    THREADS,
    STATUS,
    RHO,
    CHECKED,
    MEDIAN,
    ERROR,
    P99,
    STEPS,
    GB_S,
    OF_READ,
    PEAK,
    REASON,
    INSTRUCTIONS,
    READS,
    WRITES,
    L1_MISSES,
    LL_MISSES,
    COLUMNS
};

static const char *const people[COLUMNS + 1] = {
    "workload",      "cache",  "pool",    "kernel",     ">threads",   "status",   ">rho",  ">checked",
    ">>median",      ">±",     ">p99",    ">steps",     ">GB/s",      ">of read", ">peak", "reason",
    ">instructions", ">reads", ">writes", ">L1 misses", ">LL misses", NULL};
static const char *const programs[COLUMNS + 1] = {"workload",      "cache",
                                                  "pool",          "kernel",
                                                  ">threads",      "status",
                                                  ">rho",          ">checked_rows",
                                                  ">median_ns",    ">median_error_ns",
                                                  ">p99_ns",       ">steps",
                                                  ">gb_per_s",     ">of_read",
                                                  ">peak_bytes",   "reason",
                                                  ">instructions", ">data_reads",
                                                  ">data_writes",  ">l1_misses",
                                                  ">ll_misses",    NULL};

#define COUNTS 5

typedef char number_text[KVB_UNIT_TEXT];
typedef char key_text[KVB_KEY_PART];

static void number_print(const char *format, double number, number_text text)
{
    text[0] = 0;
    if (!isnan(number))
        snprintf(text, sizeof(number_text), format, number);
}

/* Infinity is written as in result files. */
static void raw_print(double number, number_text text)
{
    number_print("%.9g", isinf(number) ? copysign(KVB_FIELD_INFINITY, number) : number, text);
}

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

void kvb_error_text(const kvb_time_stats *time, char text[KVB_UNIT_TEXT])
{
    number_print("%.2g %%", 50 * (time->high - time->low) / time->median, text);
}

/* Names of counters that some result has, in their order. */
typedef struct counted {
    const char *names[KVB_COUNTERS];
    size_t n, from; /* their first column */
} counted;

static void counted_add(counted *list, const kvb_result *r)
{
    for (uint32_t k = 0; k < r->n_counters; k++) {
        size_t at = 0;
        while (at < list->n && strcmp(list->names[at], r->counters[k].name) != 0)
            at++;
        if (at == list->n && at < KVB_COUNTERS)
            list->names[list->n++] = r->counters[k].name;
    }
}

/* NaN: it was not counted. */
static double count_of(const kvb_result *r, const char *name)
{
    for (uint32_t k = 0; k < r->n_counters; k++)
        if (strcmp(r->counters[k].name, name) == 0)
            return r->counters[k].value;
    return NAN;
}

int kvb_counters_print(const kvb_result *results, size_t n, kvb_table_format format, FILE *out)
{
    kvb_table *table = kvb_table_new((const char *const[]){"combination", "counted in its timed steps", NULL});
    int error = table ? 0 : -ENOMEM;
    const kvb_result *first = NULL;

    for (size_t i = 0; i < n && !error; i++) {
        const kvb_result *r = &results[i];
        char name[KVB_KEY_TEXT], text[KVB_COUNTERS * (KVB_NAME + 128)] = "";
        size_t used = 0;

        for (uint32_t k = 0; k < r->n_counters && used < sizeof text; k++) {
            const kvb_counter *c = &r->counters[k];
            if (!isnan(c->value))
                used +=
                    (size_t)snprintf(text + used, sizeof text - used, "%s%s %.0f", used ? ", " : "", c->name, c->value);
        }
        if (!r->n_counters)
            continue;
        first = first ? first : r;
        kvb_key_name(r, name);
        error = kvb_table_row(table, (const char *const[]){name, text});
    }
    if (!error && first) {
        fputc('\n', out);
        kvb_table_fold(table);
        error = kvb_table_print(table, format, out);
    }
    for (uint32_t k = 0; first && k < first->n_counters; k++)
        if (isnan(first->counters[k].value))
            fprintf(out, "%snot counted: %s: %s\n", format == KVB_TABLE_MD ? "- " : "", first->counters[k].name,
                    first->counters[k].unavailable);
    kvb_table_free(table);
    return error;
}

/* What people can do without is left empty: the threads where all have one, the number of steps; and unless wide, the
 * rate and the reason. */
static int result_row(kvb_table *table, const kvb_result *r, bool for_people, bool one_thread, bool wide,
                      const counted *extra)
{
    key_text pool, cache;
    number_text threads, rho, checked = "", median, error, p99, steps, rate, of_read, peak, exact[COUNTS];
    const double of_steps[COUNTS] = {r->counts.instructions, r->counts.data_reads, r->counts.data_writes,
                                     r->counts.l1_misses, r->counts.ll_misses};

    kvb_key_pools(r, pool);
    kvb_key_cache(r, cache);
    snprintf(threads, sizeof threads, "%u", r->threads);
    snprintf(steps, sizeof steps, "%llu", (unsigned long long)r->time.all.samples);
    for (size_t i = 0; i < COUNTS; i++)
        number_print(for_people ? "%.4f M" : "%.0f", for_people ? 1e-6 * of_steps[i] : of_steps[i], exact[i]);
    double share = 100 * (double)r->error.checked_rows / (double)r->error.total_rows; /* NaN: there are none */
    if (for_people) {
        number_print("%.3g %%", share, checked);
        number_print("%.3g", r->rho, rho);
        kvb_time_text(r->time.all.median, median);
        kvb_error_text(&r->time.all, error);
        kvb_time_text(r->time.all.p99, p99);
        number_print("%.2f", r->traffic.gb_per_s, rate);
        number_print("%.1f %%", 100 * r->traffic.of_read, of_read);
        kvb_bytes_text(r->memory.allocator_peak, peak);
    } else {
        raw_print(r->rho, rho);
        number_print("%.0f", r->error.total_rows ? (double)r->error.checked_rows : NAN, checked);
        raw_print(r->time.all.median, median);
        raw_print((r->time.all.high - r->time.all.low) / 2, error);
        raw_print(r->time.all.p99, p99);
        raw_print(r->traffic.gb_per_s, rate);
        raw_print(r->traffic.of_read, of_read);
        number_print("%.0f", r->memory.allocator_peak, peak);
    }
    number_text counts[KVB_COUNTERS];
    const char *cells[COLUMNS + KVB_COUNTERS] = {
        [WORKLOAD] = r->workload,
        [CACHE] = cache,
        [POOL] = pool,
        [KERNEL] = r->kernel,
        [THREADS] = for_people && one_thread ? NULL : threads,
        [STATUS] = kvb_status_name(r->status),
        [RHO] = or_null(rho),
        [CHECKED] =
            wide || !for_people ? or_null(checked) : NULL, /* share of the rows, by the bound of their own sums */
        [MEDIAN] = or_null(median),
        [ERROR] = or_null(error),
        [P99] = or_null(p99),
        [STEPS] = r->time.all.samples && !for_people ? steps : NULL,
        [GB_S] = wide || !for_people ? or_null(rate) : NULL,
        [OF_READ] = or_null(of_read),
        [PEAK] = or_null(peak),
        [REASON] = wide || !for_people ? or_null(r->reason) : NULL,
        [INSTRUCTIONS] = or_null(exact[0]),
        [READS] = or_null(exact[1]),
        [WRITES] = or_null(exact[2]),
        [L1_MISSES] = or_null(exact[3]),
        [LL_MISSES] = or_null(exact[4]),
    };
    for (size_t i = 0; i < extra->n; i++) {
        raw_print(count_of(r, extra->names[i]), counts[i]);
        cells[extra->from + i] = or_null(counts[i]);
    }
    return kvb_table_row(table, cells);
}

bool kvb_results_one_thread(const kvb_result *results, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (results[i].threads != 1)
            return false;
    return true;
}

int kvb_result_stream(const kvb_result *result, bool first, FILE *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    int error = memory ? kvb_result_table(result, 1, true, false, KVB_TABLE_CSV, memory) : -ENOMEM;

    if (memory && fclose(memory) && !error)
        error = -ENOMEM;
    if (!error)
        error = fputs(first ? text : strchr(text, '\n') + 1, out) < 0 || fflush(out) ? -EIO : 0;
    free(text);
    return error;
}

int kvb_result_table(const kvb_result *results, size_t n, bool skips, bool counters, kvb_table_format format, FILE *out)
{
    bool for_people = kvb_table_is_for_people(format), one_thread = kvb_results_one_thread(results, n);
    const char *headings[COLUMNS + KVB_COUNTERS + 1] = {NULL};
    counted extra = {.from = for_people || counters ? COLUMNS : INSTRUCTIONS}; /* what was counted comes last */
    char right[KVB_COUNTERS][KVB_NAME + 1];
    memcpy(headings, for_people ? people : programs, extra.from * sizeof *headings);
    for (size_t i = 0; i < n && counters && !for_people; i++)
        counted_add(&extra, &results[i]);
    for (size_t i = 0; i < extra.n; i++) {
        snprintf(right[i], sizeof right[i], ">%s", extra.names[i]);
        headings[extra.from + i] = right[i];
    }
    kvb_table *table = kvb_table_new(headings);
    int error = table ? 0 : -ENOMEM;

    for (size_t i = 0; i < n && !error; i++)
        if (skips || results[i].status != KVB_STATUS_SKIP)
            error = result_row(table, &results[i], for_people, one_thread, skips, &extra);
    if (!error && for_people)
        kvb_table_drop_empty(table);
    if (!error && for_people && !skips)
        kvb_table_fold(table);
    if (!error)
        error = kvb_table_print(table, format, out);
    kvb_table_free(table);
    return error;
}
