/* SPDX-License-Identifier: Apache-2.0 */
/* Records as tables. For people what they are of comes before them; for programs they stand alone. */
#include "results/export/export.h"

#include <errno.h>
#include <inttypes.h>

static void fact_add(kvb_table *table, int *error, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void fact_add(kvb_table *table, int *error, const char *name, const char *format, ...)
{
    char value[1024];
    __builtin_va_list args;

    __builtin_va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    __builtin_va_end(args);
    if (!*error)
        *error = kvb_table_row(table, (const char *const[]){name, value});
}

static int facts_print(const kvb_manifest *m, kvb_table_format format, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"fact", "value", NULL});
    int error = t ? 0 : -ENOMEM;

    fact_add(t, &error, "command", "%s", m->command);
    fact_add(t, &error, "date", "%s", m->date);
    fact_add(t, &error, "kvbench", "%s, commit %s, %s, %s", m->version, m->commit, m->compiler, m->flags);
    fact_add(t, &error, "machine", "%s, %u cores, %.1f GiB, %s", m->cpu_model, m->cores,
             (double)m->memory_bytes / (1024.0 * 1024 * 1024), m->os);
    fact_add(t, &error, "features", "%s", m->cpu_features);
    fact_add(t, &error, "level", "%s", m->isa);
    fact_add(t, &error, "OpenBLAS", "core %s%s%s", m->openblas_core, m->openblas_note[0] ? "; " : "", m->openblas_note);
    fact_add(t, &error, "suite", "%s, seed %" PRIu64, m->suite, m->seed);
    if (m->shard[0])
        fact_add(t, &error, "shard", "%s", m->shard);
    for (uint32_t i = 0; i < m->n_joined; i++)
        fact_add(t, &error, "joined", "shard %u/%u, %s, %s, %u cores, %s", i + 1, m->n_joined, m->joined[i].date,
                 m->joined[i].cpu_model, m->joined[i].cores, m->joined[i].isa);
    if (!error)
        error = kvb_table_print(t, format, out);
    kvb_table_free(t);
    return error;
}

static int document_write(const kvb_manifest *manifest, const kvb_result *results, size_t n, kvb_table_format format,
                          FILE *out)
{
    int error = facts_print(manifest, format, out);

    if (!error)
        error = putc('\n', out) == EOF ? -EIO : kvb_result_table(results, n, format, out);
    return error;
}

static int text_write(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out)
{
    return document_write(manifest, results, n, KVB_TABLE_TEXT, out);
}

static int md_write(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out)
{
    return document_write(manifest, results, n, KVB_TABLE_MD, out);
}

static int csv_write(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out)
{
    (void)manifest;
    return kvb_result_table(results, n, KVB_TABLE_CSV, out);
}

static int json_write(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out)
{
    (void)manifest;
    return kvb_result_table(results, n, KVB_TABLE_JSON, out);
}

const kvb_exporter kvb_exporter_table = {"table", ".txt", "tables for people", true, text_write};
const kvb_exporter kvb_exporter_md = {"md", ".md", "the same in Markdown", true, md_write};
const kvb_exporter kvb_exporter_csv = {"csv", ".csv", "a line for each combination", false, csv_write};
const kvb_exporter kvb_exporter_json = {"json", ".json", "an object for each combination", false, json_write};
