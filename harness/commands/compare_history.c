/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench compare --save and --history. */
#include "harness/commands/compare_history.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command.h"
#include "harness/machine/host.h"
#include "harness/options.h"
#include "results/baseline.h"
#include "results/compare_time.h"
#include "results/fingerprint.h"
#include "results/levels.h"
#include "results/text.h"

int kvb_compare_save(const char *folder, const char *name, const char *path, bool force)
{
    char why[512], *saved = NULL;
    kvb_result_file *file;
    int code = KVB_EXIT_OK;

    if (kvb_result_load(path, &file, why, sizeof why))
        return kvb_complain("compare", KVB_EXIT_USAGE, "%s", why);
    int error = kvb_baseline_save(folder, file, name, force, &saved, why, sizeof why);
    if (error)
        code = kvb_complain("compare", error == -EEXIST || error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s",
                            why);
    else
        printf("%s: kept as %s\n", path, saved);
    free(saved);
    kvb_result_free(file);
    return code;
}

/* "2025-01-02T03:04:05Z (abcdef)" */
static void run_text(const kvb_manifest *m, char text[KVB_NAME + 48])
{
    snprintf(text, KVB_NAME + 48, "%.39s (%.63s)", m->date, m->commit);
}

static int step_row(kvb_table *table, kvb_result_file *const *files, const kvb_level_step *s, bool raw)
{
    const kvb_result *r = s->to;
    char pool[2 * KVB_NAME + 8], threads[16], change[KVB_CHANGE_TEXT], low[KVB_CHANGE_TEXT], high[KVB_CHANGE_TEXT];
    char from[KVB_NAME + 48], to[KVB_NAME + 48], before[KVB_UNIT_TEXT], after[KVB_UNIT_TEXT];
    double change_and_ends[] = {s->step.change, s->step.low, s->step.high};
    char *texts[] = {change, low, high};

    snprintf(pool, sizeof pool, strcmp(r->pool_k, r->pool_v) ? "k=%s,v=%s" : "%s", r->pool_k, r->pool_v);
    snprintf(threads, sizeof threads, "%u", r->threads);
    for (int i = 0; i < 3; i++)
        if (raw)
            snprintf(texts[i], KVB_CHANGE_TEXT, "%.9g", exp(change_and_ends[i]));
        else
            kvb_change_text(exp(change_and_ends[i]), texts[i]);
    if (raw) {
        snprintf(before, sizeof before, "%.9g", s->from->time.all.median);
        snprintf(after, sizeof after, "%.9g", r->time.all.median);
    } else {
        kvb_time_text(s->from->time.all.median, before);
        kvb_time_text(r->time.all.median, after);
    }
    run_text(&files[s->from_file]->manifest, from);
    run_text(&files[s->to_file]->manifest, to);
    return kvb_table_row(table,
                         (const char *const[]){kvb_verdict_name(s->verdict), r->workload, r->cache, pool, r->kernel,
                                               threads, r->growth, before, after, change, low, high, from, to});
}

static int history_print(kvb_result_file *const *files, size_t n, const kvb_levels *h, kvb_table_format format)
{
    bool raw = format == KVB_TABLE_CSV || format == KVB_TABLE_JSON;
    FILE *told = raw ? stderr : stdout;
    kvb_table *table = kvb_table_new(
        (const char *const[]){"verdict", "workload", "cache", "pool", "kernel", ">threads", "growth",
                              raw ? ">before_ns" : ">before", raw ? ">after_ns" : ">after", raw ? ">ratio" : ">change",
                              ">low", ">high", "last run before", "first run after", NULL});
    int error = table ? 0 : -ENOMEM;

    for (size_t i = 0; i < h->n && !error; i++)
        error = step_row(table, files, &h->steps[i], raw);
    if (!error && (h->n || raw))
        error = kvb_table_print(table, format, stdout);
    kvb_table_free(table);
    if (error)
        return kvb_complain("compare", KVB_EXIT_MACHINE,
                            error == -ENOMEM ? "no memory" : "cannot write to standard output");
    if (h->n)
        fputc('\n', told);
    fprintf(told, "%zu runs, %zu series: %zu steps", n, h->series, h->n);
    if (isnan(h->resolution))
        fprintf(told, "; no run compared a combination with itself, so that nothing can be told\n");
    else
        fprintf(told, "; null comparisons of the noisiest run: 99 %% stay below %.1f %%\n", 100 * h->resolution);
    return KVB_EXIT_OK;
}

static int files_load(const char *const *paths, size_t n, kvb_result_file **files, bool across_machines)
{
    char why[512], first[KVB_FINGERPRINT_TEXT], other[KVB_FINGERPRINT_TEXT];

    for (size_t i = 0; i < n; i++) {
        if (kvb_result_load(paths[i], &files[i], why, sizeof why))
            return kvb_complain("compare", KVB_EXIT_USAGE, "%s", why);
        kvb_fingerprint(&files[0]->manifest, first);
        kvb_fingerprint(&files[i]->manifest, other);
        if (strcmp(first, other) && !across_machines)
            return kvb_complain("compare", KVB_EXIT_USAGE, "%s: a run on %s, %s is of %s; --across-machines takes both",
                                paths[i], other, paths[0], first);
    }
    return KVB_EXIT_OK;
}

int kvb_compare_history(const char *folder, const char *const *paths, size_t n, const kvb_thresholds *thresholds,
                        bool across_machines, kvb_table_format format)
{
    char why[512] = "no memory", **found = NULL;
    kvb_levels levels = {0};
    int code = KVB_EXIT_OK;

    if (!n) {
        kvb_manifest host = {0};
        kvb_host_describe("", &host);
        if (kvb_baselines_list(folder, &host, &found, &n, why, sizeof why))
            code = kvb_complain("compare", KVB_EXIT_USAGE, "%s", why);
        paths = (const char *const *)found;
    }
    kvb_result_file **files = calloc(n + 1, sizeof *files);
    if (!files)
        code = kvb_complain("compare", KVB_EXIT_MACHINE, "no memory");
    if (!code)
        code = files_load(paths, n, files, across_machines);
    if (!code) {
        kvb_levels_sort(files, n);
        int error = kvb_levels_find(files, n, thresholds, &levels, why, sizeof why);
        code = error ? kvb_complain("compare", error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s", why)
                     : history_print(files, n, &levels, format);
    }
    kvb_levels_free(&levels);
    for (size_t i = 0; i < n; i++) {
        if (files && files[i])
            kvb_result_free(files[i]);
        if (found)
            free(found[i]);
    }
    free(files);
    free(found);
    return code;
}
