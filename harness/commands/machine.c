/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench machine: describe this machine; measure its rates of reading and multiplying. */
#include <stdio.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/counters/counters.h"
#include "harness/machine/host.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "harness/program.h"

typedef struct machine {
    bool quick, no_measure;
    const char *threads_text;
    kvb_table_format format; /* of a table; the one behind JSON is xml */
    uint32_t threads[KVB_PROFILE_THREADS];
    size_t n_threads; /* 0: all cores */
} machine;

static const kvb_option options[] = {
    {"--quick", NULL, "below 20 s: 1 thread and one a core only, short samples", KVB_FLAG(machine, quick)},
    {"--no-measure", NULL, "only the facts", KVB_FLAG(machine, no_measure)},
    {"--threads", "N[-M][,N...]", "measure with these numbers of threads; all: every core",
     KVB_TEXT(machine, threads_text)},
    {"--format", "FORMAT", "table, md, csv, json, or xml (hwloc's topology, nothing measured)",
     KVB_FORMAT(machine, format, ", xml")},
    KVB_OPTIONS_END,
};

static int measure(const machine *m, kvb_machine_profile *profile)
{
    if (m->no_measure)
        return KVB_EXIT_OK;
    kvb_progress_start("machine", 0);
    kvb_progress_now("measuring bandwidths and peaks");
    const int error = kvb_profile_measure(profile, m->threads, (uint32_t)m->n_threads, m->quick);
    kvb_progress_end();
    return error ? kvb_complain("machine", KVB_EXIT_MACHINE, "cannot measure: %s", strerror(-error)) : KVB_EXIT_OK;
}

/* Prints the tree, for people only: before the tables; in md as a separate block. */
static int tree_print(const machine *m)
{
    bool md = m->format == KVB_TABLE_MD;
    if (m->format != KVB_TABLE_TEXT && !md)
        return 0;
    puts(md ? "```" : "");
    int error = kvb_topology_print(false, stdout);
    puts(md ? "```\n" : "");
    return error;
}

/* Describes how many events can be counted, and why others cannot. `kvbench list counters` lists them. */
static int counters_describe(char *text, size_t bytes)
{
    kvb_result all = {0};
    uint32_t here = 0;
    char lacks[384] = "";
    const char *seen = "";
    int error = kvb_counters_describe(&all);
    for (uint32_t i = 0; i < all.n_counters; i++) {
        const char *why = all.counters[i].unavailable, *source = kvb_counters_source(&all, i);
        here += !*why;
        if (!*why || !strcmp(source, seen)) /* a source's other reasons are mostly the same */
            continue;
        seen = source;
        snprintf(lacks + strlen(lacks), sizeof lacks - strlen(lacks), "; %s", why);
    }
    snprintf(text, bytes, "%u of %u%s", here, all.n_counters, lacks);
    return error;
}

static int profile_show(const machine *m)
{
    kvb_manifest host = {0};
    kvb_machine_profile profile;
    int error = kvb_profile_describe("", &profile);
    if (error)
        return kvb_complain("machine", KVB_EXIT_MACHINE, "cannot read the topology: %s", strerror(-error));
    kvb_host_describe("", &host);
    error = counters_describe(profile.counters, sizeof profile.counters);
    if (error)
        return kvb_complain("machine", KVB_EXIT_MACHINE, "cannot ask for counters: %s", strerror(-error));
    int code = measure(m, &profile);
    if (code)
        return code;
    error = tree_print(m);
    if (!error)
        error = kvb_profile_print(&profile, &host, m->format, stdout);
    return kvb_printed("machine", error);
}

static int machine_run(void *typed, int argc, char **argv)
{
    machine *m = typed;
    char why[256];
    (void)argc, (void)argv;
    if (m->threads_text && kvb_thread_counts_parse(m->threads_text, kvb_cores(), m->threads, KVB_PROFILE_THREADS,
                                                   &m->n_threads, why, sizeof why)) /* each is bound to a core */
        return kvb_refuse("--threads: %s (this machine's cores)", why);
    return m->format <= KVB_TABLE_JSON ? profile_show(m) : kvb_printed("machine", kvb_topology_print(true, stdout));
}

const kvb_command kvb_command_machine = {
    .name = "machine",
    .summary = "describe this machine; measure its bandwidths and peaks",
    .run = machine_run,
    .bytes = sizeof(machine),
    .synopsis = "[options]",
    .about = "Describe this machine and measure it: read-only and triad bandwidth of each level of memory, and "
             "multiply-add peaks, for 1 to all cores. A rate is the median of its samples; low and high are their "
             "10 % and 90 % quantiles. Triad counts as STREAM does (24 bytes an element, plain stores).\n\n"
             "  kvbench machine --quick\n"
             "  kvbench machine --threads 1,2 --format json\n"
             "  kvbench machine --format xml > this-machine.xml",
    .options = options,
};
