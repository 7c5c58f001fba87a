/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench list: all parts, workloads and suites, and why a kernel can or cannot run here. */
#include <stdio.h>
#include <string.h>

#include "caches/cache.h"
#include "harness/calls/attend_axes.h"
#include "harness/selection/kernel_support.h"
#include "harness/command_line.h"
#include "harness/knobs.h"
#include "harness/machine/host.h"
#include "harness/tuning/tuning.h"
#include "harness/counters/counters.h"
#include "harness/selection/registry.h"
#include "harness/selection/suite.h"
#include "kernels/cpu.h"
#include "results/result.h"
#include "workloads/values.h"
#include "workloads/files.h"

typedef struct list {
    kvb_words plugins, sorts;
    const char *folder, *cpu_mask;
    kvb_table_format format;
    kvb_tuning_choice tuning;
    kvb_manifest machine;
    kvb_registry registry;
    kvb_table *table;
} list;

static const kvb_option options[] = {
    {"--plugin", "F.so", "load more kernels, caches, pools and scans; repeatable", KVB_WORDS(list, plugins)},
    {"--workloads", "FOLDER", "where the workloads are", KVB_TEXT(list, folder)},
    {"--cpu-mask", "LEVEL", KVB_CPU_MASK_HELP, KVB_TEXT(list, cpu_mask)},
    {"--tuning", "F.json", "a file of `kvbench tune`; default: this machine's", KVB_TEXT(list, tuning.path)},
    {"--format", "FORMAT", "table, md, csv or json", KVB_FORMAT(list, format, "")},
    KVB_OPTIONS_END,
};

/* Adds a row. here: "yes", or why the part cannot run on this machine. bits: of pools. The table keeps errors. */
static void bits_row_add(list *l, const char *sort, const char *name, const char *bits, const char *from,
                         const char *here, const char *what)
{
    kvb_table_row(l->table, (const char *const[]){sort, name, bits, from, here, what});
}

static void row_add(list *l, const char *sort, const char *name, const char *from, const char *here, const char *what)
{
    bits_row_add(l, sort, name, NULL, from, here, what);
}

/* Rows below a kernel's own: what it takes or declines. */
typedef struct accepts_rows {
    list *l;
    const char *name;
} accepts_rows;

static int accepts_add(void *ctx, bool taken, const char *text)
{
    const accepts_rows *rows = ctx;
    row_add(rows->l, taken ? "takes" : "declines", rows->name, NULL, NULL, text);
    return 0;
}

/* "yes", with the level of instructions if the kernel depends on it; or why not. */
static void kernel_here(const kvb_kernel *kernel, char *here, size_t bytes)
{
    char why[200] = "";
    if (kernel->available && !kernel->available(why, sizeof why))
        snprintf(here, bytes, "unavailable: %s", why);
    else if (kernel->flags & KVB_KERNEL_VECTOR)
        snprintf(here, bytes, "yes: %s", kvb_cpu_level_names[kvb_cpu()]);
    else if (kernel->flags & KVB_KERNEL_FOREIGN && *why)
        snprintf(here, bytes, "yes: %s", why);
}

static void cache_describe(const kvb_cache_type *c, char *text, size_t bytes)
{
    char can[200];
    kvb_cache_can(c, can, sizeof can);
    snprintf(text, bytes, "%s; can do: steps%s", c->summary, can);
}

/* Bits of a value in a full pool, with scales, windows and tables. */
static double pool_bits(const kvb_pool_type *pool)
{
    kvb_pool_options full = {.n_kv_heads = 8, .dim = 128, .min_chunk = 256, .capacity = 32768};
    return 8.0 * (double)pool->bytes(pool, &full, full.capacity) / (8.0 * 128 * 32768);
}

static int pools_list(list *l)
{
    for (size_t i = 0; i < l->registry.n[KVB_POOLS]; i++) {
        const kvb_registered *part = &l->registry.at[KVB_POOLS][i];
        const kvb_pool_type *pool = part->definition;
        char bits[32], what[320];
        snprintf(bits, sizeof bits, "%.2f", pool_bits(pool));
        snprintf(what, sizeof what, "%s%s", part->summary, pool->rotated ? "; also +had" : "");
        bits_row_add(l, "pool", part->name, bits, part->from, "yes", what);
    }
    for (const kvb_pool_alias *a = kvb_pool_aliases; a->name; a++)
        row_add(l, "pool", a->name, "built-in", "yes", a->summary);
    return 0;
}

/* Lists the parts of a kind. face: only kernels with this face. */
static int parts_list(list *l, kvb_registry_kind sort, uint8_t face)
{
    const bool scans = face == KVB_LAYERS_SCAN;
    int error = 0;
    for (size_t i = 0; i < l->registry.n[sort] && !error; i++) {
        const kvb_registered *part = &l->registry.at[sort][i];
        const kvb_kernel *kernel = part->definition;
        char here[256] = "yes", what[320];
        snprintf(what, sizeof what, "%s", part->summary);
        if (sort == KVB_KERNELS && !(kvb_kernel_layers(kernel) & face))
            continue;
        if (sort == KVB_KERNELS)
            kernel_here(kernel, here, sizeof here);
        if (sort == KVB_CACHES)
            cache_describe(part->definition, what, sizeof what);
        row_add(l, scans ? "scan" : kvb_registry_kind_names[sort], part->name, part->from, here, what);
        if (sort == KVB_KERNELS && !scans && l->sorts.n) /* named by the user: in detail */
            error = kvb_accepts_describe(kernel, &l->registry, accepts_add, &(accepts_rows){l, part->name});
    }
    return error;
}

static int kernels_list(list *l)
{
    const bool tuned = *l->machine.tuning;
    const int error = parts_list(l, KVB_KERNELS, KVB_LAYERS_ATTEND);
    row_add(l, "tuning", tuned ? "file" : "built-in", tuned ? l->machine.tuning : "(memory)", "yes",
            "how kernels read rows where they lie: kvbench tune");
    return error;
}

static int workloads_list(list *l)
{
    char why[512];
    kvb_workloads found;
    if (kvb_workloads_find(l->folder, &found, why, sizeof why)) {
        kvb_workloads_free(&found);
        if (l->folder)
            return kvb_refuse("%s", why);
        row_add(l, "workload", "(none)", NULL, "not found", why);
    }
    for (size_t i = 0; i < found.n; i++) {
        kvb_trace *trace;
        bool good = !kvb_trace_load_header(found.at[i].path, &trace, why, sizeof why);
        row_add(l, "workload", found.at[i].name, found.at[i].path, good ? "yes" : "unreadable",
                good ? trace->header.source : why);
        kvb_trace_free(trace);
    }
    kvb_workloads_free(&found);
    return 0;
}

static int values_list(list *l)
{
    for (size_t i = 0; kvb_profiles[i].name; i++)
        row_add(l, "values", kvb_profiles[i].name, "built-in", "yes", kvb_profiles[i].summary);
    return 0;
}

static int suites_list(list *l)
{
    for (size_t i = 0; kvb_suites[i]; i++)
        row_add(l, "suite", kvb_suites[i]->name, "built-in", "yes", kvb_suites[i]->summary);
    return 0;
}

/* Lists the axes of single calls with their values. */
static int axes_list(list *l)
{
    kvb_attend_space s;
    kvb_attend_space_make(&l->registry, &s);
    for (uint32_t a = 0; a < s.space.n_axes; a++) {
        char text[1024];
        snprintf(text, sizeof text, "%s:", s.axes[a].what);
        for (size_t v = 0; s.axes[a].values[v]; v++)
            kvb_list_add(text, sizeof text, " ", "%s", s.axes[a].values[v]);
        row_add(l, "axis", s.axes[a].name, s.space.name, "yes", text);
    }
    return 0;
}

/* Lists the keys of `--set KEY=VALUE`. */
static int knobs_list(list *l)
{
    for (const kvb_knob *k = kvb_knobs_table; k->option.name; k++) {
        char name[64], what[256];
        snprintf(name, sizeof name, "%s%s%s", k->option.name + 2, k->option.argument ? "=" : "",
                 k->option.argument ? k->option.argument : "");
        snprintf(what, sizeof what, "%s%s%s", k->option.help, k->usual ? "; usual: " : "", k->usual ? k->usual : "");
        row_add(l, "knob", name, k->reader, "yes", what);
    }
    return 0;
}

static int counters_list(list *l)
{
    kvb_result all = {0};
    int error = kvb_counters_describe(&all);
    for (uint32_t i = 0; i < all.n_counters; i++) {
        const char *why = all.counters[i].unavailable;
        char here[256];
        snprintf(here, sizeof here, "%s%s", *why ? "unavailable: " : "yes", why);
        row_add(l, "counter", all.counters[i].name, kvb_counters_source(&all, i), here, "");
    }
    return error;
}

static const struct {
    const char *name;
    int (*list)(list *l); /* NULL: the parts of a kind, of kernels those with a face */
    kvb_registry_kind kind;
    uint8_t face;
} sorts[] = {{"kernels", kernels_list, 0, 0},   {"caches", NULL, KVB_CACHES, 0},
             {"pools", pools_list, 0, 0},       {"scans", NULL, KVB_KERNELS, KVB_LAYERS_SCAN},
             {"values", values_list, 0, 0},     {"suites", suites_list, 0, 0},
             {"axes", axes_list, 0, 0},         {"knobs", knobs_list, 0, 0},
             {"counters", counters_list, 0, 0}, {"workloads", workloads_list, 0, 0}};
#define SORTS (sizeof sorts / sizeof *sorts)

/* Lists the kinds that the words name; without words: everything. */
static int sorts_list(list *l)
{
    bool wanted[SORTS];
    for (size_t s = 0; s < SORTS; s++)
        wanted[s] = l->sorts.n == 0;
    for (size_t i = 0; i < l->sorts.n; i++) {
        size_t s = 0;
        while (s < SORTS && strcmp(sorts[s].name, l->sorts.at[i]))
            s++;
        if (s == SORTS)
            return kvb_unknown("list", "cannot list", l->sorts.at[i],
                               "kernels, caches, pools, scans, values, suites, axes, knobs, counters, workloads");
        wanted[s] = true;
    }
    for (size_t s = 0; s < SORTS; s++) {
        int error = !wanted[s] ? 0 : sorts[s].list ? sorts[s].list(l) : parts_list(l, sorts[s].kind, sorts[s].face);
        if (error)
            return error < 0 ? kvb_complain("list", KVB_EXIT_MACHINE, "%s", strerror(-error)) : error;
    }
    return KVB_EXIT_OK;
}

static int list_run(void *typed, int argc, char **argv)
{
    list *l = typed;
    char why[512];
    int code = kvb_cpu_mask_take("list", l->cpu_mask);
    (void)argc, (void)argv;
    if (code)
        return code;
    kvb_host_describe("", &l->machine);
    code = kvb_tuning_use("list", &l->tuning, &l->machine);
    if (code)
        return code;
    kvb_registry_init(&l->registry);
    if (kvb_registry_load_all(&l->registry, &l->plugins, why, sizeof why))
        return kvb_refuse("%s", why);
    l->table = kvb_table_new((const char *const[]){"sort", "name", ">bits", "from", "here", "what", NULL});
    code = sorts_list(l);
    if (!code)
        code = kvb_printed("list", kvb_table_print(l->table, l->format, stdout));
    kvb_table_free(l->table);
    return code;
}

const kvb_command kvb_command_list = {
    .name = "list",
    .summary = "every kernel, cache, pool, workload, and why it can or cannot run here",
    .run = list_run,
    .bytes = sizeof(list),
    .synopsis = "[SORT…] [options]",
    .about =
        "List what a run can combine, where it comes from, and why it can or cannot run on this machine.\n\n"
        "  SORT           kernels, caches, pools, scans, values, suites, axes, knobs, counters, workloads\n"
        "  here           after \"yes\" the highest level of instruction sets that the CPU and --cpu-mask have\n"
        "  bits           of one stored value, everything counted: a full pool of 8 KV heads x 128 channels x 32k "
        "cells\n"
        "  named kernel   also what it takes and declines, asked along each axis with a plain problem on the others; "
        "channels tried: 64 80 96 128 192 256; formats: of the pools, K and V apart where they differ. What it "
        "declines for the format is decoded to f32 for it in a run.\n"
        "  also +had      NAME+had stores rows behind a Walsh-Hadamard transform\n\n"
        "  kvbench list\n"
        "  kvbench list kernels --cpu-mask portable\n"
        "  kvbench list kernels --plugin ./my-kernel.so",
    .options = options,
    .words = offsetof(list, sorts),
    .takes_words = true,
};
