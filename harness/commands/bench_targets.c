/* SPDX-License-Identifier: Apache-2.0 */
/* Works with targets, one after the other. */
#include "harness/commands/bench_targets.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/bench/bench.h"
#include "harness/interrupt.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "harness/progress.h"

#define MOST_BESIDE 6u

typedef struct running {
    const kvb_bench_targets *targets;
    const kvb_registry *registry;
    kvb_threads *team[2]; /* all, one */
    kvb_bench_store store;
    kvb_table *table;
    kvb_bench_score score;
} running;

static bool asked(const kvb_bench_targets *t, const char *name)
{
    bool yes = t->works.n == 0;
    for (size_t i = 0; i < t->works.n; i++)
        yes = yes || !fnmatch(t->works.at[i], name, 0);
    return yes;
}

static int works_check(const kvb_bench_targets *t)
{
    char known[2048] = "";
    size_t used = 0;
    for (const kvb_bench_work *w = kvb_bench_works; w->name; w++) {
        if (asked(t, w->name))
            return KVB_EXIT_OK;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", w->name);
    }
    for (const kvb_bench_scan_work *w = kvb_bench_scan_works; w->name && !t->kernel; w++) {
        if (asked(t, w->name))
            return KVB_EXIT_OK;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, ", %s", w->name);
    }
    return kvb_complain("bench", KVB_EXIT_USAGE, "no work matches '%s'; known: %s", t->works.at[0], known);
}

int kvb_bench_targets_check(kvb_bench_targets *t, const kvb_registry *registry, const kvb_words *kernels,
                            const char *threads_text)
{
    char known[2048], why[256];
    uint32_t threads[2] = {kvb_cores() < 2 ? kvb_cores() : 2};
    size_t n = 0;
    kvb_registry_names(registry, KVB_KERNELS, known, sizeof known);
    if (kernels->n > 1)
        return kvb_complain("bench", KVB_EXIT_USAGE, "--kernel: with --targets, one in place of those of the table");
    t->kernel = kernels->n ? kernels->at[0] : NULL;
    if (t->kernel && !kvb_registry_find(registry, KVB_KERNELS, t->kernel))
        return kvb_unknown("bench", "--kernel: unknown kernel", t->kernel, known);
    for (size_t i = 0; i < t->beside.n; i++)
        if (!kvb_registry_find(registry, KVB_KERNELS, t->beside.at[i]))
            return kvb_unknown("bench", "--beside: unknown kernel", t->beside.at[i], known);
    if (t->beside.n > MOST_BESIDE)
        return kvb_complain("bench", KVB_EXIT_USAGE, "--beside: at most %u kernels", MOST_BESIDE);
    if (threads_text && kvb_thread_counts_parse(threads_text, kvb_cores(), threads, 2, &n, why, sizeof why))
        return kvb_complain("bench", KVB_EXIT_USAGE, "--threads: %s (this machine's cores)", why);
    if (n > 1)
        return kvb_complain("bench", KVB_EXIT_USAGE, "--threads: one number, with --targets");
    t->threads = threads[0];
    return works_check(t);
}

/* As many cells as the last level of cache is probed with; 0 where it has none. */
static uint32_t cached_cells(const kvb_bench_work *work)
{
    static kvb_machine_profile profile;
    if (!profile.cores && kvb_profile_describe("", &profile))
        return 0;
    return (uint32_t)((double)profile.level[2].working_set / kvb_bench_cell_bytes(work)) / 64 * 64;
}

static uint32_t cells_limit(const running *r, uint32_t cells)
{
    return r->targets->cells && cells > r->targets->cells ? (uint32_t)r->targets->cells : cells;
}

static bool way_is_taken(const kvb_bench_run *run, kvb_bench_way way)
{
    for (uint32_t i = 0; i < run->n; i++)
        if (run->contestant[i].entry->way == way)
            return true;
    return false;
}

static void contestants_choose(const running *r, const kvb_bench_work *work, kvb_bench_run *run)
{
    static const kvb_bench_entry beside = {.way = KVB_BENCH_WHOLE};
    const char *kernel = r->targets->kernel;
    for (uint32_t e = 0; e < KVB_BENCH_ENTRIES && work->entry[e].kernel; e++) {
        const kvb_bench_entry *entry = &work->entry[e];
        if (!kernel || !way_is_taken(run, entry->way)) /* else it differs from an earlier one by kernel only */
            kvb_bench_contestant_add(run, r->registry, entry, kernel ? kernel : entry->kernel);
    }
    for (size_t i = 0; i < r->targets->beside.n; i++)
        kvb_bench_contestant_add(run, r->registry, &beside, r->targets->beside.at[i]);
}

static int work_run(running *r, const kvb_bench_work *work)
{
    static kvb_bench_run run; /* samples: too large for a stack */
    uint32_t cells = cells_limit(r, work->cells ? work->cells : cached_cells(work));
    uint32_t held = work->store ? cells_limit(r, work->store) : cells;
    const kvb_team *all = kvb_threads_team(r->team[0]);
    kvb_bench_scene scene = {0};

    if (cells < KVB_BENCH_CELLS_MIN)
        return 0; /* no such cache */
    run = (kvb_bench_run){.team = {all, r->team[1] ? kvb_threads_team(r->team[1]) : NULL},
                          .scene = &scene,
                          .store = &r->store,
                          .seconds = r->targets->seconds};
    contestants_choose(r, work, &run);
    int error = kvb_bench_store_open(&r->store, all, work, held, r->targets->cells ? 1 : kvb_bench_layers(work, cells));
    if (!error)
        error = kvb_bench_scene_open(&scene, all, work, cells);
    if (!error)
        error = kvb_bench_run_measure(&run);
    if (!error)
        error = kvb_bench_run_report(r->table, &run, &r->score);
    kvb_bench_run_close(&run);
    kvb_bench_scene_close(&scene);
    return error;
}

static int works_run(running *r)
{
    const kvb_bench_targets *t = r->targets;
    int error = 0;
    kvb_progress_start("bench", 0);
    for (const kvb_bench_work *w = kvb_bench_works; w->name && !error; w++)
        if (asked(t, w->name)) {
            kvb_progress_now("%s", w->name);
            error = work_run(r, w);
        }
    for (const kvb_bench_scan_work *w = kvb_bench_scan_works; w->name && !t->kernel && !error; w++)
        if (asked(t, w->name)) {
            kvb_progress_now("%s", w->name);
            error = kvb_stopped ? -EINTR
                                : kvb_bench_scan_run(r->table, w, kvb_threads_team(r->team[0]), (uint32_t)t->cells,
                                                     t->seconds, &r->score);
        }
    kvb_progress_end();
    return error;
}

static int table_print(const running *r, const kvb_manifest *manifest)
{
    FILE *said = kvb_table_is_for_people(r->targets->format) ? stdout : stderr;
    fprintf(said, "8 KV heads of 128 channels, out f32 unless said; %u threads, reads in %s; tuning: %s.\n\n",
            r->targets->threads, kvb_read_isa(), *manifest->tuning ? manifest->tuning : "built-in");
    const int error = kvb_table_print(r->table, r->targets->format, stdout);
    fprintf(said, "\n%u of %u targets are met.\n", r->score.met, r->score.targets);
    return error;
}

int kvb_bench_targets_run(const kvb_bench_targets *targets, const kvb_registry *registry, const kvb_manifest *manifest)
{
    running r = {.targets = targets, .registry = registry, .table = kvb_table_new(kvb_bench_headings)};
    int error = r.table ? kvb_threads_start(targets->threads, true, &r.team[0]) : -ENOMEM;
    if (!error && targets->threads > 1)
        error = kvb_threads_start(1, true, &r.team[1]);
    kvb_stop_catch();
    if (!error)
        error = works_run(&r);
    int code = KVB_EXIT_OK;
    if (!error || error == -EINTR)
        code = kvb_printed("bench", table_print(&r, manifest));
    else
        code = kvb_complain("bench", KVB_EXIT_MACHINE, "%s", strerror(-error));
    kvb_bench_store_close(&r.store);
    kvb_table_free(r.table);
    kvb_threads_end(r.team[1]);
    kvb_threads_end(r.team[0]);
    if (error == -EINTR) {
        fflush(stdout);
        kvb_complain("bench", 0, "stopped by a signal");
        kvb_stop_die();
    }
    return code;
}
