/* SPDX-License-Identifier: Apache-2.0 */
/* bench-kernels: options, the kernels by name, work after work, and the table. See bench.h. */
#include <errno.h>
#include <fnmatch.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ci/bench/bench.h"
#include "ci/bench/report.h"
#include "harness/command_line.h"
#include "harness/machine/host.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "harness/selection/registry.h"
#include "harness/tuning/tuning.h"

#define NAME "bench-kernels"

/* What all copies of the rows hold at least, so that no cache keeps them. */
#define BEYOND_CACHES 450e6

typedef struct bench {
    kvb_words works, plugins, beside;
    kvb_registry registry;
    const char *kernel, *seconds_text, *format_name;
    uint64_t threads, cells; /* cells 0: as the works say */
    double seconds;
    kvb_table_format format;
    kvb_threads *team[2]; /* all, one */
    bench_store store;
    kvb_table *table;
    bench_score score;
    kvb_tuning_choice tuning;
    kvb_manifest machine;
} bench;

static const kvb_option options[] = {
    {"--work", "GLOB", "only works of these names (repeatable)", KVB_WORDS(bench, works)},
    {"--kernel", "NAME", "this kernel in place of those of the table; no scans", KVB_TEXT(bench, kernel)},
    {"--plugin", "F.so", "load more kernels (repeatable)", KVB_WORDS(bench, plugins)},
    {"--beside", "NAME", "this kernel too, in every work but scans, in turns with the table's (repeatable, at most 6)",
     KVB_WORDS(bench, beside)},
    {"--threads", "N", "team size; default 2, which the targets are for", KVB_NUMBER(bench, threads, 1, 1024)},
    {"--cells", "N", "at most so many cells, and one copy of them: small, whatever caches hold",
     KVB_NUMBER(bench, cells, BENCH_CELLS_MIN, 1 << 20)},
    {"--seconds", "S", "measure each line for so long, at least 5 samples; default 1.5", KVB_TEXT(bench, seconds_text)},
    {"--tuning", "F.json", "a file of `kvbench tune`; default: this machine's, else two seconds of measuring",
     KVB_TEXT(bench, tuning.path)},
    {"--no-tuning", NULL, "the settings that are built in", KVB_FLAG(bench, tuning.none)},
    {"--format", "FORMAT", "table, md, csv, json", KVB_TEXT(bench, format_name)},
    KVB_OPTIONS_END,
};

static const kvb_usage usage = {
    .command = NAME,
    .synopsis = "[options]      (make " NAME ", or build/bench/kernels)",
    .about =
        "What fraction of the machine's limit each kernel reaches: the time that reading its bytes at the measured\n"
        "bandwidth takes, or its operations at the f32 multiply-add peak, over the time taken. Limits and kernels\n"
        "are sampled in turns; a ratio is the median over turns, +- its median absolute deviation. `of both`: against\n"
        "the longer of reading and f32 multiply-adds, which targets are judged by. Each kernel's output is looked at: "
        "a wrong one meets no target.\n\n"
        "  build/bench/kernels --work 'decode-*' --format md\n"
        "  build/bench/kernels --kernel reference --cells 512 --seconds 0.01\n"
        "  build/bench/kernels --plugin build/plugins/ggml.so --beside ggml --beside openblas",
    .options = options,
};

/* ---- what was asked for -------------------------------------------------------------------------------------- */

static bool asked(const bench *b, const char *name)
{
    bool yes = b->works.n == 0;
    for (size_t i = 0; i < b->works.n; i++)
        yes = yes || !fnmatch(b->works.at[i], name, 0);
    return yes;
}

static const kvb_kernel *kernel_find(const bench *b, const char *name)
{
    return kvb_registry_find(&b->registry, KVB_KERNELS, name);
}

/* Kernels of plug-ins are known from here on. */
static int kernels_check(bench *b)
{
    char known[2048], why[512];
    kvb_registry_init(&b->registry);
    if (kvb_registry_load_all(&b->registry, &b->plugins, why, sizeof why))
        return kvb_complain(NAME, KVB_EXIT_USAGE, "%s", why);
    kvb_registry_names(&b->registry, KVB_KERNELS, known, sizeof known);
    if (b->kernel && !kernel_find(b, b->kernel))
        return kvb_complain(NAME, KVB_EXIT_USAGE, "unknown kernel '%s'; known: %s", b->kernel, known);
    for (size_t i = 0; i < b->beside.n; i++)
        if (!kernel_find(b, b->beside.at[i]))
            return kvb_complain(NAME, KVB_EXIT_USAGE, "--beside: unknown kernel '%s'; known: %s", b->beside.at[i],
                                known);
    if (b->beside.n > BENCH_BESIDE)
        return kvb_complain(NAME, KVB_EXIT_USAGE, "--beside: at most %u kernels", BENCH_BESIDE);
    return KVB_EXIT_OK;
}

static int words_check(const bench *b)
{
    char known[2048] = "";
    size_t used = 0;
    for (const bench_work *w = bench_works; w->name; w++) {
        if (asked(b, w->name))
            return KVB_EXIT_OK;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", w->name);
    }
    for (const bench_scan_work *w = bench_scan_works; w->name && !b->kernel; w++) {
        if (asked(b, w->name))
            return KVB_EXIT_OK;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, ", %s", w->name);
    }
    return kvb_complain(NAME, KVB_EXIT_USAGE, "no work matches '%s'; known: %s", b->works.at[0], known);
}

static int values_check(bench *b)
{
    char *end = NULL;
    b->seconds = strtod(b->seconds_text, &end);
    if (*end || !(b->seconds > 0 && b->seconds <= 600))
        return kvb_complain(NAME, KVB_EXIT_USAGE, "--seconds: '%s' is not a number of seconds up to 600",
                            b->seconds_text);
    if (!kvb_table_format_parse(b->format_name, &b->format))
        return kvb_complain(NAME, KVB_EXIT_USAGE, "--format: unknown format '%s'; known: table, md, csv, json",
                            b->format_name);
    if (b->threads > kvb_cores())
        return kvb_complain(NAME, KVB_EXIT_USAGE, "--threads: %llu threads on a machine of %u cores",
                            (unsigned long long)b->threads, kvb_cores());
    int code = kernels_check(b);
    return code ? code : words_check(b);
}

/* ---- a work -------------------------------------------------------------------------------------------------- */

/* As many cells as the last level of cache is probed with; 0 where it has none. */
static uint32_t cached_cells(const bench_work *work)
{
    static kvb_machine_profile profile;
    if (!profile.cores && kvb_profile_describe("", &profile))
        return 0;
    return (uint32_t)((double)profile.level[2].working_set / bench_cell_bytes(work)) / 64 * 64;
}

static uint32_t cells_limit(const bench *b, uint32_t cells)
{
    return b->cells && cells > b->cells ? (uint32_t)b->cells : cells;
}

/* Copies of the rows. */
static uint32_t layers_of(const bench *b, const bench_work *work, uint32_t cells)
{
    double bytes = cells * bench_cell_bytes(work);
    if (b->cells || work->resident)
        return 1;
    return (uint32_t)fmin(ceil(BEYOND_CACHES / bytes), BENCH_LAYERS);
}

static bool way_is_taken(const bench_run *run, bench_way way)
{
    for (uint32_t i = 0; i < run->n; i++)
        if (run->contestant[i].entry->way == way)
            return true;
    return false;
}

static void contestant_add(const bench *b, const bench_entry *entry, const char *name, bench_run *run)
{
    bench_contestant *c = &run->contestant[run->n++];
    *c = (bench_contestant){.entry = entry, .name = name, .kernel = kernel_find(b, name)};
    if (!c->kernel)
        snprintf(c->why, sizeof c->why, "there is no kernel of this name");
    else if (!c->kernel->available || c->kernel->available(c->why, sizeof c->why))
        c->why[0] = '\0';
}

static void contestants_choose(const bench *b, const bench_work *work, bench_run *run)
{
    static const bench_entry beside = {.way = BENCH_WHOLE};
    for (uint32_t e = 0; e < BENCH_ENTRIES && work->entry[e].kernel; e++) {
        const bench_entry *entry = &work->entry[e];
        if (!b->kernel || !way_is_taken(run, entry->way)) /* else it differs from an earlier one by kernel only */
            contestant_add(b, entry, b->kernel ? b->kernel : entry->kernel, run);
    }
    for (size_t i = 0; i < b->beside.n; i++)
        contestant_add(b, &beside, b->beside.at[i], run);
}

static int work_run(bench *b, const bench_work *work)
{
    static bench_run run; /* samples: too large for a stack */
    uint32_t cells = cells_limit(b, work->cells ? work->cells : cached_cells(work));
    uint32_t held = work->store ? cells_limit(b, work->store) : cells;
    const kvb_team *all = kvb_threads_team(b->team[0]);
    bench_scene scene = {0};

    if (cells < BENCH_CELLS_MIN)
        return 0; /* no such cache */
    run = (bench_run){.team = {all, b->team[1] ? kvb_threads_team(b->team[1]) : NULL},
                      .scene = &scene,
                      .store = &b->store,
                      .seconds = b->seconds};
    contestants_choose(b, work, &run);
    int error = bench_store_open(&b->store, all, work, held, layers_of(b, work, cells));
    if (!error)
        error = bench_scene_open(&scene, all, work, cells);
    if (!error)
        error = bench_run_measure(&run);
    if (!error) {
        bench_run_check(&run);
        error = bench_run_report(b->table, &run, &b->score);
    }
    bench_run_close(&run);
    bench_scene_close(&scene);
    return error;
}

static void work_tell(const char *name)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%s", name);
}

static int works_run(bench *b)
{
    int error = 0;
    for (const bench_work *w = bench_works; w->name && !error; w++) {
        if (!asked(b, w->name))
            continue;
        work_tell(w->name);
        error = work_run(b, w);
    }
    for (const bench_scan_work *w = bench_scan_works; w->name && !b->kernel && !error; w++) {
        if (!asked(b, w->name))
            continue;
        work_tell(w->name);
        error = bench_scan_run(b->table, w, kvb_threads_team(b->team[0]), (uint32_t)b->cells, b->seconds, &b->score);
    }
    work_tell("");
    return error;
}

/* ---- the program --------------------------------------------------------------------------------------------- */

static int bench_open(bench *b)
{
    int error = kvb_threads_start((uint32_t)b->threads, true, &b->team[0]);
    if (!error && b->threads > 1)
        error = kvb_threads_start(1, true, &b->team[1]);
    b->table = kvb_table_new(bench_headings);
    return error ? error : b->table ? 0 : -ENOMEM;
}

static void bench_close(bench *b)
{
    if (b->team[0])
        bench_store_close(&b->store);
    kvb_table_free(b->table);
    kvb_threads_end(b->team[1]);
    kvb_threads_end(b->team[0]);
    kvb_words_free(&b->works);
    kvb_words_free(&b->plugins);
    kvb_words_free(&b->beside);
}

static int bench_print(const bench *b)
{
    bool people = b->format == KVB_TABLE_TEXT || b->format == KVB_TABLE_MD;
    FILE *said = people ? stdout : stderr;
    fprintf(said, "%u KV heads of %u channels, out f32 unless said; %llu threads, reads in %s; tuning: %s.\n\n",
            BENCH_KV_HEADS, BENCH_DIM, (unsigned long long)b->threads, kvb_read_isa(),
            *b->machine.tuning ? b->machine.tuning : "built-in");
    int error = kvb_table_print(b->table, b->format, stdout);
    fprintf(said, "\n%u of %u targets are met.\n", b->score.met, b->score.targets);
    return error || fflush(stdout) ? -EIO : 0;
}

static int bench_main(bench *b)
{
    int error = bench_open(b);
    if (!error)
        error = works_run(b);
    if (!error)
        error = bench_print(b);
    return error ? kvb_complain(NAME, KVB_EXIT_MACHINE, "%s", strerror(-error)) : KVB_EXIT_OK;
}

int main(int argc, char **argv)
{
    uint32_t cores = kvb_cores();
    static bench b;
    b = (bench){.seconds_text = "1.5", .format_name = "table", .threads = cores < 2 ? cores : 2};
    setlocale(LC_CTYPE, "C.UTF-8");
    kvb_openblas_ensure(argv);
    int code = kvb_options_parse(&usage, &b, argc, argv);
    if (code < 0) { /* go on */
        code = values_check(&b);
        b.tuning.measures = true;
        kvb_host_describe("", &b.machine);
        if (code == KVB_EXIT_OK)
            code = kvb_tuning_use(NAME, &b.tuning, &b.machine);
        if (code == KVB_EXIT_OK)
            code = bench_main(&b);
    }
    bench_close(&b);
    return code;
}
