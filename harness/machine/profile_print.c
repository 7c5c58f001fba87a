/* SPDX-License-Identifier: Apache-2.0 */
/* A machine profile as tables. */
#include "harness/machine/profile_print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

#include "results/table.h"

/* Prints and frees a table. NULL, a table that could not be made, is -ENOMEM. */
static int table_end(kvb_table *table, int error, kvb_table_format format, FILE *out)
{
    if (!table)
        return -ENOMEM;
    if (!error)
        error = kvb_table_print(table, format, out);
    kvb_table_free(table);
    return error;
}

static int fact_add(kvb_table *table, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int fact_add(kvb_table *table, const char *name, const char *format, ...)
{
    char value[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    return kvb_table_row(table, (const char *const[]){name, value});
}

static int level_fact_add(kvb_table *table, const kvb_cache_level *level)
{
    char size[KVB_UNIT_TEXT];
    kvb_bytes_text((double)level->bytes, size);
    const char *gap = level->note[0] ? "; " : "";
    if (!level->bytes)
        return fact_add(table, level->name, "%s", level->note);
    return fact_add(table, level->name, "%s x %u%s%s", size, level->instances, gap, level->note);
}

static int facts_print(const kvb_machine_profile *p, const kvb_manifest *host, kvb_table_format format, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"fact", "value", NULL});
    int error = 0;
    if (!t)
        return -ENOMEM;
    error = fact_add(t, "CPU", "%s", host->cpu_model);
    error = error ? error : fact_add(t, "features", "%s", host->cpu_features);
    error = error ? error : fact_add(t, "level", "%s", host->isa);
    error = error ? error : fact_add(t, "system", "%s", host->os);
    error = error ? error
                  : fact_add(t, "topology", "%u sockets, %u cores, %u hardware threads, %u NUMA nodes", p->sockets,
                             p->cores, p->threads, p->numa_nodes);
    for (size_t i = 0; i < KVB_LEVELS && !error; i++)
        error = level_fact_add(t, &p->level[i]);
    error = error ? error : fact_add(t, "huge pages", "%s", p->huge_pages);
    error = error ? error : fact_add(t, "governor", "%s", p->governor);
    error = error ? error : fact_add(t, "virtual machine", "%s", p->virtual_machine);
    error = error ? error : fact_add(t, "read kernel", "%s", p->read_isa);
    if (p->counters[0])
        error = error ? error : fact_add(t, "counters", "%s", p->counters);
    return table_end(t, error, format, out);
}

/* "36.9" and "35.9 - 37.2"; empty when not measured. */
static void rate_text(const kvb_rate *rate, char median[32], char range[64])
{
    median[0] = range[0] = '\0';
    if (!rate->samples)
        return;
    snprintf(median, 32, "%.1f", rate->median);
    snprintf(range, 64, "%.1f - %.1f", rate->low, rate->high);
}

static int bandwidth_print(const kvb_machine_profile *p, kvb_table_format format, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"level", ">threads", ">working set", ">read GB/s", ">low - high",
                                                       ">triad GB/s", ">low - high", NULL});
    int error = 0;
    for (size_t i = 0; t && i < KVB_LEVELS && !error; i++)
        for (uint32_t r = 0; r < p->n_rows && !error; r++) {
            const kvb_profile_row *row = &p->row[r];
            char threads[16], set[KVB_UNIT_TEXT], read[32], read_range[64], triad[32], triad_range[64];
            if (!row->read[i].samples)
                continue;
            snprintf(threads, sizeof threads, "%u", row->threads);
            kvb_bytes_text((double)kvb_working_set_total(p->level, row->threads, i), set);
            rate_text(&row->read[i], read, read_range);
            rate_text(&row->triad[i], triad, triad_range);
            error = kvb_table_row(
                t, (const char *const[]){p->level[i].name, threads, set, read, read_range, triad, triad_range});
        }
    return table_end(t, error, format, out);
}

static int peaks_print(const kvb_machine_profile *p, kvb_table_format format, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"peak", ">threads", ">Gop/s", ">low - high", "note", NULL});
    int error = 0;
    for (kvb_peak_kind k = 0; t && k < KVB_PEAK_KINDS && !error; k++) {
        char why[128];
        snprintf(why, sizeof why, "unavailable: %s", p->peak_unavailable[k]);
        if (p->peak_unavailable[k][0])
            error = kvb_table_row(t, (const char *const[]){kvb_peak_names[k], NULL, NULL, NULL, why});
        for (uint32_t r = 0; r < p->n_rows && !error; r++) {
            char threads[16], median[32], range[64];
            if (!p->row[r].peak[k].samples)
                continue;
            snprintf(threads, sizeof threads, "%u", p->row[r].threads);
            rate_text(&p->row[r].peak[k], median, range);
            error = kvb_table_row(t, (const char *const[]){kvb_peak_names[k], threads, median, range, NULL});
        }
    }
    return table_end(t, error, format, out);
}

/* One row of the csv. */
static int probe_add(kvb_table *t, const char *probe, const char *what, uint32_t threads, uint64_t bytes,
                     const char *unit, const kvb_rate *rate)
{
    char n[16], set[24], median[32], low[32], high[32], samples[16];
    if (!rate->samples)
        return 0;
    snprintf(n, sizeof n, "%u", threads);
    snprintf(set, sizeof set, "%" PRIu64, bytes);
    snprintf(median, sizeof median, "%.6g", rate->median);
    snprintf(low, sizeof low, "%.6g", rate->low);
    snprintf(high, sizeof high, "%.6g", rate->high);
    snprintf(samples, sizeof samples, "%u", rate->samples);
    return kvb_table_row(t,
                         (const char *const[]){probe, what, n, bytes ? set : NULL, unit, median, low, high, samples});
}

static int csv_print(const kvb_machine_profile *p, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"probe", "of", "threads", "working_set_bytes", "unit", "median",
                                                       "low", "high", "samples", NULL});
    int error = 0;
    for (uint32_t r = 0; t && r < p->n_rows && !error; r++) {
        const kvb_profile_row *row = &p->row[r];
        for (size_t i = 0; i < KVB_LEVELS && !error; i++) {
            uint64_t bytes = kvb_working_set_total(p->level, row->threads, i);
            error = probe_add(t, "read", p->level[i].name, row->threads, bytes, "GB/s", &row->read[i]);
            if (!error)
                error = probe_add(t, "triad", p->level[i].name, row->threads, bytes, "GB/s", &row->triad[i]);
        }
        for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS && !error; k++)
            error = probe_add(t, "peak", kvb_peak_names[k], row->threads, 0, "Gop/s", &row->peak[k]);
    }
    return table_end(t, error, KVB_TABLE_CSV, out);
}

int kvb_profile_print(const kvb_machine_profile *profile, const kvb_manifest *host, kvb_table_format format, FILE *out)
{
    if (format == KVB_TABLE_JSON)
        return kvb_profile_json_print(profile, host, out);
    if (format == KVB_TABLE_CSV && profile->n_rows)
        return csv_print(profile, out);
    int error = facts_print(profile, host, format, out);
    if (error || !profile->n_rows)
        return error;
    putc('\n', out);
    error = bandwidth_print(profile, format, out);
    putc('\n', out);
    return error ? error : peaks_print(profile, format, out);
}
