/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench show: validate and describe a workload or a result file. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/command_line.h"
#include "harness/selection/suite.h"
#include "results/result.h"
#include "results/summary.h"
#include "workloads/trace.h"
#include "workloads/values.h"
#include "workloads/files.h"

typedef struct show {
    kvb_words files;
    const char *folder;
    bool all, counters;
    kvb_table_format format;      /* of a table, or behind these an exporter of result files */
    const kvb_exporter *exporter; /* NULL: a table */
} show;

static const kvb_exporter *const exporters[] = {&kvb_exporter_junit,
                                                &kvb_exporter_benchmark}; /* numbered behind the formats of tables */

static const kvb_option options[] = {
    {"--workloads", "FOLDER", "where the workloads are", KVB_TEXT(show, folder)},
    {"--all", NULL, "of a result file: every combination, and why each skipped one was", KVB_FLAG(show, all)},
    {"--counters", NULL, "of a result file: what was counted; in csv and json as columns", KVB_FLAG(show, counters)},
    {"--format", "FORMAT",
     "table, md; csv, json: every combination; of one result file also junit, benchmark (Google Benchmark's JSON)",
     KVB_FORMAT(show, format, ", junit, benchmark")},
    KVB_OPTIONS_END,
};

/* Adds a row for a group of layers: "3 layers (0, 2, 4), 8 heads, …". */
static void group_add(kvb_table *t, const kvb_model *m, uint32_t index)
{
    const kvb_group *g = &m->groups[index];
    char text[512], more[160] = "";
    size_t used = 0;
    int n = snprintf(text, sizeof text, "%u layers%s", kvb_model_layers_of(m, index), m->n_groups > 1 ? " (" : "");
    bool first = true;
    for (uint32_t layer = 0; m->n_groups > 1 && layer < m->n_layers && n < 200; layer++)
        if (m->group_of[layer] == index) {
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%u", first ? "" : ", ", layer);
            first = false;
        }
    if (kvb_group_scans(g)) {
        const kvb_group_scan *scan = &g->scan;
        if (scan->conv_width)
            snprintf(more, sizeof more, "; convolution of %u over %u channels, %zu bytes", scan->conv_width,
                     scan->conv_channels, kvb_group_slot_bytes(g, true));
        snprintf(text + n, sizeof text - (size_t)n,
                 "%s, %s, %u heads in %u groups, k_dim %u, v_dim %u, states of %zu bytes%s", m->n_groups > 1 ? ")" : "",
                 kvb_scan_kind_name(scan->kind), scan->heads, scan->groups, scan->d_k, scan->d_v,
                 kvb_group_slot_bytes(g, false), more);
        kvb_table_put(t, "%s\t%s", m->n_groups > 1 ? "layers" : "model", text);
        return;
    }
    const struct {
        const char *name;
        double value;
    } limits[] = {{"window", g->window}, {"sinks", g->sinks}, {"chunk", g->chunk}, {"softcap", (double)g->softcap}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value > 0)
            used += (size_t)snprintf(more + used, sizeof more - used, ", %s %g", limits[i].name, limits[i].value);
    snprintf(text + n, sizeof text - (size_t)n, "%s, %u heads, %u KV heads, k_dim %u, v_dim %u, scale %g%s%s%s",
             m->n_groups > 1 ? ")" : "", g->heads, g->kv_heads, g->k_dim, g->v_dim, g->scale,
             g->latent ? ", V in K's rows" : "", more, g->sink_logits ? ", sink logits" : "");
    kvb_table_put(t, "%s\t%s", m->n_groups > 1 ? "layers" : "model", text);
}

static int trace_show(const show *s, const char *path)
{
    char why[512], events[256] = "";
    kvb_trace *trace = NULL;
    kvb_values *values = NULL;
    kvb_table *t = kvb_table_new((const char *const[]){"fact", "value", NULL});
    size_t count[KVB_EVENT_KINDS] = {0};
    if (!t || kvb_trace_load(path, 0, &trace, why, sizeof why) ||
        (trace->header.tensors && kvb_values_open(trace, NULL, 0, NULL, NULL, &values, why, sizeof why))) {
        kvb_trace_free(trace);
        kvb_table_free(t);
        return kvb_refuse("%s", t ? why : "no memory");
    }
    for (size_t i = 0; i < trace->n_events; i++)
        count[trace->events[i].kind]++;
    for (int k = 0; k < KVB_EVENT_KINDS; k++)
        if (count[k])
            kvb_list_add(events, sizeof events, ", ", "%zu %s", count[k], kvb_event_kind_name((kvb_event_kind)k));
    const kvb_trace_header *h = &trace->header;
    const kvb_trace_needs *n = &trace->needs;
    kvb_table_put(t, "workload\t%s", h->name);
    kvb_table_put(t, "file\t%s", path);
    kvb_table_put(t, "source\t%s", h->source);
    if (h->note)
        kvb_table_put(t, "note\t%s", h->note);
    for (uint32_t g = 0; g < h->model.n_groups; g++)
        group_add(t, &h->model, g);
    if (h->tensors)
        kvb_table_put(t, "values\trecorded in %s: shapes right, all finite", h->tensors);
    else
        kvb_table_put(t, "values\tprofile %s, seed %" PRIu64, h->profile, h->seed);
    if (h->outputs.engine)
        kvb_table_put(t, "outputs\tof %s, %s, %s; rows as %s, arithmetic %s: `kvbench judge` judges them",
                      h->outputs.engine, h->outputs.model, h->outputs.setup, h->outputs.rows, h->outputs.arithmetic);
    kvb_table_put(t, "events\t%zu: %s", trace->n_events, events);
    kvb_table_put(t, "tokens\t%" PRIu64 ", %" PRIu64 " of them queries; at most %u in a step", n->tokens, n->queries,
                  n->step);
    kvb_table_put(t, "cells\tat most %u in use at once", n->cells);
    kvb_table_put(t, "sequences\t%u, the longest of %u tokens", n->seqs, n->seq_len);
    kvb_table_put(t, "attention\t%" PRIu64 " (query, cell) pairs a head and layer without limits", n->pairs);
    kvb_table_put(t, "needs\tsteps%s%s%s%s", n->seq ? ", several sequences" : "", n->tree ? ", a draft tree" : "",
                  n->rewind ? ", rewind" : "", n->fill ? ", fill" : "");
    if (n->rollback)
        kvb_table_put(t, "rollback\tat most %u positions", n->rollback);
    kvb_values_free(values);
    kvb_trace_free(trace);
    return kvb_printed("show", kvb_table_end(t, s->format, stdout));
}

/* Is it the file of a run that has not ended? */
static bool is_unfinished(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && !strcmp(path + n - 4, ".tmp");
}

/* Did the run only judge, and measure no times? */
static bool is_untimed(const kvb_result_file *file)
{
    size_t passed = 0, timed = 0;
    for (size_t i = 0; i < file->n; i++) {
        passed += file->results[i].status == KVB_STATUS_PASS;
        timed += file->results[i].time.passes > 0;
    }
    return passed && !timed;
}

/* Prints for people: facts, rows and the summary. */
static int results_print(const show *s, const char *path, const kvb_result_file *file)
{
    const kvb_summary summary = {.path = path,
                                 .note = file->manifest.openblas_note,
                                 .untimed = is_untimed(file),
                                 .unfinished = is_unfinished(path),
                                 .counters = s->counters,
                                 .seconds = NAN,
                                 .rows = s->all ? KVB_ROWS_ALL : KVB_ROWS_FEW,
                                 .is_markdown = s->format == KVB_TABLE_MD};
    if (summary.is_markdown) { /* the summary's heading is the verdict: it comes first */
        int error = kvb_summary_print(&summary, file->results, file->n, stdout);
        putchar('\n');
        return error ? error : kvb_manifest_print(&file->manifest, s->format, stdout);
    }
    int error = kvb_manifest_print(&file->manifest, s->format, stdout);
    putchar('\n');
    return error ? error : kvb_summary_print(&summary, file->results, file->n, stdout);
}

static int results_show(const show *s, const char *path)
{
    char why[512];
    kvb_result_file *file;
    bool people = !s->exporter && kvb_table_is_for_people(s->format);
    if (!people && s->files.n > 1)
        return kvb_refuse("%s: --format %s is one document, of one result file", path,
                          s->exporter                  ? s->exporter->name
                          : s->format == KVB_TABLE_CSV ? "csv"
                                                       : "json");
    if (kvb_result_load(path, &file, why, sizeof why))
        return kvb_refuse("%s", why);
    if (!people && is_unfinished(path))
        kvb_complain("show", 0, "note: %s: the records of a run that is not finished", path);
    int error = people        ? results_print(s, path, file)
                : s->exporter ? s->exporter->write(&file->manifest, file->results, file->n, stdout)
                              : kvb_result_table(file->results, file->n, true, s->counters, s->format, stdout);
    kvb_result_free(file);
    return kvb_printed("show", error);
}

/* Is it a result file, by its first line? */
static bool is_results(const char *path)
{
    char start[4096];
    FILE *in = fopen(path, "r");
    size_t n = in ? fread(start, 1, sizeof start - 1, in) : 0;
    start[n] = '\0';
    start[strcspn(start, "\n")] = '\0';
    if (in)
        fclose(in);
    return strstr(start, "kvbench.result/") != NULL;
}

static int word_show(const show *s, const kvb_workloads *workloads, const char *word)
{
    const char *path = word;
    for (size_t i = 0; i < workloads->n; i++)
        if (!strcmp(word, workloads->at[i].name))
            path = workloads->at[i].path;
    if (path == word && access(path, F_OK) && !strpbrk(word, "/.")) {
        char known[4096] = "";
        for (size_t i = 0; i < workloads->n; i++)
            kvb_list_add(known, sizeof known, ", ", "%s", workloads->at[i].name);
        return kvb_unknown("show", "no workload or file", word, known);
    }
    if (is_results(path))
        return results_show(s, path);
    if (s->exporter)
        return kvb_refuse("%s: a workload has no --format %s: table, md, csv or json", word, s->exporter->name);
    return trace_show(s, path);
}

static int show_run(void *typed, int argc, char **argv)
{
    show *s = typed;
    kvb_workloads workloads = {0};
    char why[512];
    int code = KVB_EXIT_OK;
    (void)argc, (void)argv;
    s->exporter = s->format > KVB_TABLE_JSON ? exporters[s->format - KVB_TABLE_JSON - 1] : NULL;
    if (!s->files.n)
        code = kvb_refuse("name a workload or a file; see --help");
    else if (kvb_workloads_find(s->folder, &workloads, why, sizeof why) && s->folder)
        code = kvb_refuse("%s", why);
    for (size_t i = 0; i < s->files.n && !code; i++)
        code = word_show(s, &workloads, s->files.at[i]);
    kvb_workloads_free(&workloads);
    return code;
}

const kvb_command kvb_command_show = {
    .name = "show",
    .summary = "validate and describe a workload or a result file",
    .run = show_run,
    .bytes = sizeof(show),
    .synopsis = "FILE|WORKLOAD... [options]",
    .about = "Validate a workload (every event, its recorded tensors) or a result file, and describe it.\n\n"
             "  kvbench show eagle-tree\n"
             "  kvbench show my-trace.jsonl results.jsonl\n"
             "  kvbench show results.jsonl --all\n"
             "  kvbench show results.jsonl --format junit >results.xml\n"
             "  kvbench show results.jsonl --format benchmark >results.json",
    .options = options,
    .words = offsetof(show, files),
    .takes_words = true,
};
