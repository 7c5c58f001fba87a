/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench tune: measure how this machine's memory is read fastest, and keep the result. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/program.h"
#include "harness/machine/host.h"
#include "harness/machine/team.h"
#include "harness/tuning/tuning.h"

typedef struct tune {
    bool quick;
    uint64_t seconds;
    const char *output, *cpu_mask;
    kvb_table_format format;
} tune;

static const kvb_option options[] = {
    {"--quick", NULL, "ten seconds in place of two minutes", KVB_FLAG(tune, quick)},
    {"--seconds", "N", "as long as this (default 120)", KVB_NUMBER(tune, seconds, 1, 86400)},
    {"-o", "F.json", "the file to write (default: this machine's, which runs then use)", KVB_TEXT(tune, output)},
    {"--cpu-mask", "LEVEL", "for runs limited to this level of instructions", KVB_TEXT(tune, cpu_mask)},
    {"--format", "FORMAT", "table, md, csv, json", KVB_FORMAT(tune, format, "")},
    KVB_OPTIONS_END,
};

static int table_print(const tune *t, const kvb_tuning *found)
{
    static const char *const sizes[KVB_READING_SIZES] = {"128", "256", "512", "more"};
    static const char *const rows[KVB_READING_ROWS] = {"1", "2", "4", "more"};
    char ahead[16];
    kvb_table *table = kvb_table_new((const char *const[]){"rows", "bytes", "query rows", ">ahead", "into", "again",
                                                           "pages", "K", "V", ">gain", NULL});
    for (uint32_t i = 0; i < KVB_READINGS; i++) {
        const kvb_class c = kvb_class_at(i);
        const kvb_reading *x = &found->prefetch.reading[i];
        snprintf(ahead, sizeof ahead, "%u", x->ahead);
        if (c.spread != KVB_SPREAD_LONG)
            snprintf(ahead, sizeof ahead, x->ahead ? "next" : "-");
        kvb_table_put(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2fx", kvb_spread_names[c.spread], sizes[c.size],
                      rows[c.rows], ahead,
                      !x->ahead ? "-"
                      : x->near ? "L1"
                                : "L2",
                      x->again ? "yes" : "no", x->pages ? "yes" : "no",
                      x->by_cells && c.rows < 2 ? "by cells" : "by channels",
                      x->beside          ? "beside K"
                      : x->sums_by_cells ? "by cells"
                                         : "by strips",
                      found->gain[i]);
    }
    return kvb_table_end(table, t->format, stdout);
}

static int tune_run(void *typed, int argc, char **argv)
{
    const tune *t = typed;
    char why[1024], usual[KVB_TUNING_PATH];
    kvb_manifest machine = {0};
    kvb_tuning found;
    (void)argc, (void)argv;
    int code = kvb_cpu_mask_take("tune", t->cpu_mask);
    if (code)
        return code;
    kvb_host_describe("", &machine);
    if (!t->output && kvb_tuning_path(&machine, usual))
        return kvb_refuse("neither XDG_CACHE_HOME nor HOME is set: say where with -o F.json");
    const char *path = t->output ? t->output : usual;
    if (kvb_tuning_writable(path, why, sizeof why))
        return kvb_complain("tune", KVB_EXIT_MACHINE, "cannot be kept: %s", why);
    kvb_stop_catch();
    kvb_progress_start("tune", 0);
    kvb_busy_note(&machine.host);
    kvb_progress_now("measuring how memory is best read");
    const kvb_tuning_options measured = {.seconds = t->quick ? 10 : (double)t->seconds, .threads = kvb_cores()};
    const int error = kvb_tuning_measure(&measured, &found);
    kvb_progress_end();
    if (error == -EINTR) {
        kvb_complain("tune", 0, "stopped by a signal; nothing was written");
        kvb_stop_die();
    }
    if (error)
        return kvb_complain("tune", KVB_EXIT_MACHINE, "cannot measure: %s", strerror(-error));
    if (kvb_tuning_write(path, &machine, &found, why, sizeof why))
        return kvb_complain("tune", KVB_EXIT_MACHINE, "%s", why);
    code = kvb_printed("tune", table_print(t, &found));
    if (!code && kvb_table_is_for_people(t->format))
        printf("\nkept in %s\n", path);
    return code;
}

const kvb_command kvb_command_tune = {
    .name = "tune",
    .summary = "measure how this machine's memory is best read; runs then do so",
    .run = tune_run,
    .bytes = sizeof(tune),
    .usual = &(const tune){.seconds = 120},
    .synopsis = "[options]",
    .about = "Measure on this machine how the flash kernels best read memory: how many cells further on cache "
             "lines are prefetched, into which cache, how often, whether the first lines of each next page are, "
             "too, and in which order a row is read: for rows in long runs, in short ones (pages) or apart "
             "(sequences filled in steps), of so many bytes, for so many query rows that meet one. Candidates take "
             "turns; what wins by 3 % or more is kept. No result depends on it, only times.\n\n"
             "The file is this machine's, under $XDG_CACHE_HOME/kvbench or ~/.cache/kvbench. `run` and `bench` use "
             "it and say so; --no-tuning leaves it out, --tuning F takes another. Where there is none, the first "
             "timed run measures the choices that matter most, in two seconds.\n\n"
             "  kvbench tune --quick\n"
             "  kvbench tune -o mine.json && kvbench run --suite quick --tuning mine.json",
    .options = options,
};
