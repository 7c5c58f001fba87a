/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench bench: measure how fast each kernel is, and how near to the machine's limit. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench/bench.h"
#include "harness/command_line.h"
#include "harness/commands/run.h"
#include "harness/program.h"
#include "harness/machine/host.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "harness/size/arguments.h"
#include "harness/size/cache_model.h"
#include "harness/tuning/tuning.h"
#include "results/schema.h"
#include "workloads/array.h"
#include "workloads/files.h"

enum { MOST = 16, FORMATS = 64, MOST_BESIDE = 6 }; /* most values of a list */
#define OVERVIEW_SECONDS 0.3
#define ALL_FORMATS      "f32,f16,bf16,e4m3,q8_0,q4_0,a8g64,a4g64"

typedef struct bench {
    kvb_words works, plugins, beside;
    const char *seconds_text, *machines;
    uint64_t cells; /* most cells of a work; 0: no limit */
    bool by_targets, by_caches, by_formats, by_parts, no_tuning;
    const char *scenes_text, *contexts_text, *batches_text, *heads_text, *formats_text, *threads_text, *model_name,
        *output, *tuning_path, *cpu_mask;
    uint64_t head_dim;
    kvb_words kernels;
    kvb_table_format format;
    /* parsed */
    double seconds;
    const char *kernel; /* of --targets: instead of the kernels of the works; NULL: these */
    const kvb_bench_kind *kinds[MOST];
    uint32_t contexts[MOST], batches[MOST], threads[MOST], layers[KVB_MODEL_GROUPS];
    kvb_group groups[KVB_MODEL_GROUPS];
    const char *formats[FORMATS][2]; /* [0] of K; [1] of V, NULL: the same */
    size_t n_kinds, n_contexts, n_batches, n_threads, n_groups, n_formats;
    kvb_sized_model *model;
    kvb_bench_sweep sweep;
    kvb_threads *team[MOST]; /* for each of threads[] */
    kvb_bench_row *rows;
    size_t n_rows, room;
    kvb_manifest manifest;
    kvb_table *table; /* of --targets */
    kvb_bench_score score;
} bench;

static const kvb_option options[] = {
    {"--scene", "NAME,…",
     "decode (usual), batch, fork, verify, chunk, prefill, latent, window, mha, mqa, state; or all",
     KVB_TEXT(bench, scenes_text)},
    {"--context", "N,…", "cells of a sequence before the step: 1k,4k,32k", KVB_TEXT(bench, contexts_text)},
    {"--batch", "N,…", "sequences, of decode, batch and state: 1,16", KVB_TEXT(bench, batches_text)},
    {"--heads", "KV/Q,…", "KV heads and query heads: 8/32 (usual), 32/32", KVB_TEXT(bench, heads_text)},
    {"--head-dim", "N", "channels of a row (usual: 128)", KVB_NUMBER(bench, head_dim, 1, KVB_MODEL_WIDTH)},
    {"--kv", "FORMAT,…", "of K and V rows: f16,q8_0,q4_0 (usual); q8_0:q4_0 for K:V; all: eight from f32 to a4g64",
     KVB_TEXT(bench, formats_text)},
    {"--threads", "N,…", "sizes of the team; all (usual): every core", KVB_TEXT(bench, threads_text)},
    {"--model", "MODEL", "heads, channels and windows of that model: a name of `kvbench size --list`, or a config.json",
     KVB_TEXT(bench, model_name)},
    {"--kernel", "GLOB", "these kernels (repeatable; usual: all)", KVB_WORDS(bench, kernels)},
    {"--plugin", "F.so",
     "load kernels, which take part, compared with flash; of --caches: caches, which take part (repeatable)",
     KVB_WORDS(bench, plugins)},
    {"--beside", "NAME", "this kernel too, whatever --kernel says, compared with flash, too (repeatable)",
     KVB_WORDS(bench, beside)},
    {"--seconds", "S", "measure each kernel over each row for so long (usual: 0.5; --targets: 1.5)",
     KVB_TEXT(bench, seconds_text)},
    {"--targets", NULL, "instead of scenes: works with targets, and how many are met", KVB_FLAG(bench, by_targets)},
    {"--record-machine", "F.jsonl",
     "of --targets: append them and what this machine is, as a line of results/machines.jsonl",
     KVB_TEXT(bench, machines)},
    {"--caches", NULL,
     "instead of scenes: memory and times of each cache over histories of real size; what a cache saves",
     KVB_FLAG(bench, by_caches)},
    {"--formats", NULL,
     "instead of kernels' times: bits, error and best kernel of every format (of --kv, one --context)",
     KVB_FLAG(bench, by_formats)},
    {"--parts", NULL,
     "instead of kernels: coding rows, inner loops and block products by instruction set; the calls of caches by cells",
     KVB_FLAG(bench, by_parts)},
    {"--work", "GLOB", "of --targets, --parts, --caches: only those of these names, such as agent-session (repeatable)",
     KVB_WORDS(bench, works)},
    {"--cells", "N",
     "of --targets: at most so many cells, and one copy of them: small, whatever caches hold; of --caches: tokens",
     KVB_NUMBER(bench, cells, KVB_BENCH_CELLS_MIN, 1 << 20)},
    {"--cpu-mask", "LEVEL", KVB_CPU_MASK_HELP, KVB_TEXT(bench, cpu_mask)},
    {"--tuning", "F.json", "a file of `kvbench tune` (usual: this machine's, else two seconds of measuring)",
     KVB_TEXT(bench, tuning_path)},
    {"--no-tuning", NULL, "the settings that are built in", KVB_FLAG(bench, no_tuning)},
    {"--format", "FORMAT", "table, md, csv, json", KVB_FORMAT(bench, format, "")},
    {"-o", "F.jsonl", "write records, which compare, show and report take", KVB_TEXT(bench, output)},
    KVB_OPTIONS_END,
};

/* ---- lists --------------------------------------------------------------------------------------------------- */

/* Calls take(b, word) for each word between commas. 0, or the exit code of take(). */
static int list_take(bench *b, const char *option, const char *text, int (*take)(bench *b, const char *word))
{
    char copy[512], *rest = copy, *word;
    int code = KVB_EXIT_OK;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return kvb_refuse("%s: too long", option);
    while (!code && (word = strsep(&rest, ",")))
        code = *word ? take(b, word) : kvb_refuse("%s: an empty word between commas", option);
    return code;
}

static int numbers_take(const char *option, const char *text, uint64_t least, uint64_t most, uint32_t *list, size_t *n)
{
    kvb_size_numbers numbers = {0};
    char why[256];
    if (kvb_numbers_parse(text, &numbers, why, sizeof why))
        return kvb_refuse("%s: %s", option, why);
    int code = KVB_EXIT_OK;
    for (size_t i = 0; i < numbers.n && !code; i++)
        if (numbers.at[i] < least || numbers.at[i] > most)
            code = kvb_refuse("%s: %llu is not one of %llu to %llu", option, (unsigned long long)numbers.at[i],
                              (unsigned long long)least, (unsigned long long)most);
        else if (*n == MOST)
            code = kvb_refuse("%s: more than 16", option);
        else
            list[(*n)++] = (uint32_t)numbers.at[i];
    free(numbers.at);
    return code;
}

static int kind_take(bench *b, const char *word)
{
    char known[256] = "";
    bool found = false;
    for (const kvb_bench_kind *k = kvb_bench_kinds; k->name; k++) {
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s, ", k->name);
        if (strcmp(word, "all") != 0 && strcmp(word, k->name) != 0)
            continue;
        found = true;
        for (size_t i = 0; i < b->n_kinds; i++)
            if (b->kinds[i] == k)
                return kvb_refuse("--scene: the same twice");
        if (b->n_kinds < MOST)
            b->kinds[b->n_kinds++] = k;
    }
    strcat(known, "all");
    return found ? KVB_EXIT_OK : kvb_unknown("bench", "--scene: unknown scene", word, known);
}

static int heads_take(bench *b, const char *word)
{
    unsigned kv, q;
    char after;
    if (sscanf(word, "%u/%u%c", &kv, &q, &after) != 2 || !kv || q % kv || !q || q > KVB_BENCH_HEADS)
        return kvb_refuse("--heads: '%s' is not KV/Q, as 8/32: KV heads, and a multiple of them up to %u", word,
                          KVB_BENCH_HEADS);
    if (b->n_groups == KVB_MODEL_GROUPS)
        return kvb_refuse("--heads: too many");
    b->groups[b->n_groups++] =
        (kvb_group){.heads = q, .kv_heads = kv, .k_dim = (uint32_t)b->head_dim, .v_dim = (uint32_t)b->head_dim};
    return KVB_EXIT_OK;
}

/* Finds the pool's name of a format of K or V. */
static int format_find(const char *word, const char **name)
{
    char known[1024] = "";
    const kvb_pool_type *type = kvb_bench_pool(word);
    for (const kvb_pool_type *const *t = kvb_builtin_pools; *t; t++)
        kvb_list_add(known, sizeof known, ", ", "%s", (*t)->name);
    if (!type)
        return kvb_unknown("bench", "--kv: unknown format", word, known);
    *name = type->name;
    if (type->format->residual_cells)
        return kvb_refuse("--kv: %s encodes cells together, as they come: `kvbench run` measures it", word);
    return KVB_EXIT_OK;
}

static int format_take(bench *b, const char *word)
{
    if (!strcmp(word, "all"))
        return list_take(b, "--kv", ALL_FORMATS, format_take);
    char k[64];
    const char *colon = strchr(word, ':');
    if (b->n_formats == FORMATS)
        return kvb_refuse("--kv: more than 64");
    const char **names = b->formats[b->n_formats++];
    snprintf(k, sizeof k, "%.*s", (int)(colon ? colon - word : 63), word);
    int code = format_find(k, &names[0]);
    if (!code && colon)
        code = format_find(colon + 1, &names[1]);
    if (!code && names[1] == names[0])
        names[1] = NULL;
    return code;
}

/* Takes the formats of --formats: all that do not encode cells together. */
static int formats_take(bench *b)
{
    for (const kvb_pool_type *const *t = kvb_builtin_pools; *t; t++)
        if (!(*t)->format->residual_cells && b->n_formats < FORMATS)
            b->formats[b->n_formats++][0] = (*t)->name;
    return KVB_EXIT_OK;
}

/* Takes the groups of attending layers of --model. */
static int model_take(bench *b)
{
    char why[512];
    kvb_model model;
    uint64_t longest = 0;
    if (b->heads_text || b->head_dim)
        return kvb_refuse("--model: says the heads: --heads and --head-dim do not go with it");
    if (kvb_size_open(b->model_name, &b->model, why, sizeof why))
        return kvb_refuse("--model: %s", why);
    for (size_t i = 0; i < b->n_contexts; i++)
        longest = b->contexts[i] > longest ? b->contexts[i] : longest;
    if (kvb_size_cache_model(b->model, longest, NULL, &model, why, sizeof why))
        return kvb_refuse("--model: %s", why);
    for (uint32_t g = 0; g < model.n_groups; g++) {
        if (kvb_group_scans(&model.groups[g]))
            continue;
        b->layers[b->n_groups] = kvb_model_layers_of(&model, g);
        b->groups[b->n_groups++] = model.groups[g];
    }
    return b->n_groups ? KVB_EXIT_OK : kvb_refuse("--model: no layer attends");
}

/* Order of columns: flash, foreign kernels, the other flash kernels, the rest, reference. */
static int kernel_place(const char *name, bool foreign)
{
    return !strcmp(name, "flash")       ? 0
           : foreign                    ? 1
           : !strncmp(name, "flash", 5) ? 2
           : !strcmp(name, "reference") ? 4
                                        : 3;
}

/* Checks the names of --beside. known: for the message. An exit code. */
static int beside_check(const bench *b, const char *known)
{
    for (size_t i = 0; i < b->beside.n; i++)
        if (!kvb_registry_attending(b->sweep.registry, b->beside.at[i]))
            return kvb_unknown("bench", "--beside: unknown kernel", b->beside.at[i], known);
    return KVB_EXIT_OK;
}

static int kernels_take(bench *b)
{
    const kvb_registry *registry = b->sweep.registry;
    char known[2048];
    kvb_bench_sweep *s = &b->sweep;
    kvb_registry_names(registry, KVB_KERNELS, true, known, sizeof known);
    const int code = beside_check(b, known);
    if (code)
        return code;
    for (int place = 0; place <= 4; place++)
        for (size_t i = 0; i < registry->n[KVB_KERNELS]; i++) {
            const kvb_registered *r = &registry->at[KVB_KERNELS][i];
            const kvb_kernel *kernel = r->definition;
            bool brought = strcmp(r->from, kvb_builtin_plugin.name) != 0,
                 wanted = kvb_words_match(&b->kernels, r->name), named = false;
            for (size_t w = 0; w < b->beside.n; w++)
                named |= !strcmp(b->beside.at[w], r->name);
            if (!kernel->attend || kernel->flags & KVB_KERNEL_WITNESS || !(wanted || named || brought) ||
                kernel_place(r->name, brought || named) != place)
                continue;
            if (s->n_kernels == KVB_BENCH_CONTESTANTS)
                return kvb_refuse("--plugin: more kernels than take turns");
            s->foreign[s->n_kernels] = brought || named;
            s->kernels[s->n_kernels++] = r->name;
        }
    for (int last = 0; last < 2; last++) /* scan-reference comes last */
        for (size_t i = 0; i < registry->n[KVB_KERNELS] && s->n_scans < KVB_BENCH_SCANNERS; i++) {
            const kvb_registered *r = &registry->at[KVB_KERNELS][i];
            const kvb_kernel *kernel = r->definition;
            if (!kernel->scan || (strcmp(r->name, "scan-reference") == 0) != (last > 0))
                continue;
            s->foreign_scan[s->n_scans] = strcmp(r->from, kvb_builtin_plugin.name) != 0;
            s->scans[s->n_scans++] = kernel;
        }
    return s->n_kernels ? KVB_EXIT_OK : kvb_unknown("bench", "--kernel: no kernel matches", b->kernels.at[0], known);
}

static int lists_take(bench *b)
{
    char why[256];
    const uint32_t cores = kvb_cores();
    int code = list_take(b, "--scene", b->scenes_text ? b->scenes_text : "decode", kind_take);
    if (!code && b->contexts_text)
        code = numbers_take("--context", b->contexts_text, KVB_BENCH_CELLS_MIN, 1 << 20, b->contexts, &b->n_contexts);
    if (b->by_formats && !b->contexts_text && !code)
        b->contexts[b->n_contexts++] = 4096;
    else if (b->model_name && !b->contexts_text && !code)
        code = numbers_take("--context", "1k,4k,32k", KVB_BENCH_CELLS_MIN, 1 << 20, b->contexts, &b->n_contexts);
    if (!code && b->batches_text)
        code = numbers_take("--batch", b->batches_text, 1, 1024, b->batches, &b->n_batches);
    if (!code && b->by_formats && !b->formats_text)
        code = formats_take(b);
    else if (!code)
        code = list_take(b, "--kv", b->formats_text ? b->formats_text : "f16,q8_0,q4_0", format_take);
    if (!code && kvb_thread_counts_parse(b->threads_text ? b->threads_text : "all", cores, b->threads, MOST,
                                         &b->n_threads, why, sizeof why))
        code = kvb_refuse("--threads: %s (this machine's cores)", why);
    if (!code && b->model_name)
        code = model_take(b);
    b->head_dim = b->head_dim ? b->head_dim : 128;
    if (!code && !b->model_name)
        code = list_take(b, "--heads", b->heads_text ? b->heads_text : "8/32", heads_take);
    return code ? code : kernels_take(b);
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

/* The scene's shape of layers: group g, unless the scene has its own. */
static kvb_group group_of(const bench *b, const kvb_bench_kind *kind, size_t g)
{
    kvb_group group = b->groups[g];
    if (kind->latent)
        return (kvb_group){.heads = kind->group, .kv_heads = 1, .k_dim = 576, .v_dim = 512, .latent = true};
    if (kind->group)
        group = (kvb_group){.heads = kind->group * kind->kv_heads,
                            .kv_heads = kind->kv_heads,
                            .k_dim = (uint32_t)b->head_dim,
                            .v_dim = (uint32_t)b->head_dim};
    if (kind->window) {
        group.window = kind->window;
        group.sinks = kind->window_sinks;
    }
    return group;
}

static kvb_bench_row *row_room(bench *b)
{
    return kvb_array_reserve(&b->rows, &b->room, b->n_rows + 1, sizeof *b->rows) ? NULL : &b->rows[b->n_rows];
}

/* Adds the rows of a block of recurrent layers. */
static int scans_add(bench *b, const kvb_bench_kind *kind, uint32_t batch, uint32_t threads, uint32_t block)
{
    kvb_bench_row *row;
    for (uint32_t i = 0; (row = row_room(b)) && kvb_bench_scan_row_make(kind, i, batch, threads, row); i++) {
        row->block = block;
        b->n_rows++;
    }
    return row ? KVB_EXIT_OK : kvb_complain("bench", KVB_EXIT_MACHINE, "no memory");
}

/* Is there memory for the rows, and for as many bytes that the probe of the limit reads? */
static int memory_check(const kvb_bench_row *row)
{
    const kvb_bench_work *w = &row->work;
    const double bytes = 2 * kvb_bench_cell_bytes(w) * w->cells * kvb_bench_layers(w, w->cells);
    const double available = (double)kvb_memory_available("");
    if (bytes < available)
        return KVB_EXIT_OK;
    return kvb_complain("bench", KVB_EXIT_MACHINE, "%s at %u cells, %s: needs %s of memory, %s are free",
                        row->kind->name, row->context, w->format, kvb_bytes_text(bytes).text,
                        kvb_bytes_text(available).text);
}

/* Adds the rows of a block: contexts by formats. */
static int block_add(bench *b, const kvb_bench_kind *kind, size_t g, uint32_t batch, uint32_t threads)
{
    const kvb_group group = group_of(b, kind, g);
    const uint32_t block = b->n_rows ? b->rows[b->n_rows - 1].block + 1 : 0;
    if (kind->scan)
        return scans_add(b, kind, batch, threads, block);
    for (size_t c = 0; b->n_contexts ? c < b->n_contexts : kind->contexts[c] > 0; c++)
        for (size_t f = 0; f < b->n_formats; f++) {
            kvb_bench_row *row = row_room(b);
            const uint32_t context = b->n_contexts ? b->contexts[c] : kind->contexts[c];
            if (!row)
                return kvb_complain("bench", KVB_EXIT_MACHINE, "no memory");
            if (!kvb_bench_row_make(kind, &group, b->formats[f][0], b->formats[f][1], context, batch, threads, row))
                return KVB_EXIT_OK;
            if (group.latent && row->work.v_format)
                return kvb_refuse("--kv: latent rows hold K and V in one format");
            if ((uint64_t)context * batch > 1 << 24)
                return kvb_refuse("--batch: more than 16M cells");
            row->block = block;
            row->layers = kind->group ? 0 : b->layers[g];
            b->n_rows++;
            const int code = memory_check(row);
            if (code)
                return code;
        }
    return KVB_EXIT_OK;
}

static int rows_make(bench *b)
{
    int code = KVB_EXIT_OK;
    bool takes_batch = false;
    for (size_t k = 0; k < b->n_kinds; k++) {
        const kvb_bench_kind *kind = b->kinds[k];
        const bool batched = kind->shape == KVB_BENCH_DECODE || kind->shape == KVB_BENCH_BATCH;
        takes_batch |= batched;
        for (size_t g = 0; g < b->n_groups && (g == 0 || (!kind->group && !kind->scan)); g++)
            for (size_t n = 0; batched && b->n_batches ? n < b->n_batches : n < 1; n++)
                for (size_t t = 0; t < b->n_threads && !code; t++)
                    code = block_add(b, kind, g, batched && b->n_batches ? b->batches[n] : kind->batch, b->threads[t]);
    }
    if (!code && b->n_batches && !takes_batch)
        return kvb_refuse(
            "--batch: none of these scenes has sequences beside each other, as decode, batch and state have");
    if (!code && b->by_formats && (b->n_rows != b->n_formats || b->rows->kind->scan))
        return kvb_refuse("--formats: one scene that attends, one shape, context, batch and number of threads");
    return code || b->n_rows ? code : kvb_refuse("--scene: the model has windows, which this scene does not");
}

/* ---- a model in words ---------------------------------------------------------------------------------------- */

static void format_text(const bench *b, size_t f, char text[64])
{
    snprintf(text, 64, b->formats[f][1] ? "%s:%s" : "%s", b->formats[f][0], b->formats[f][1]);
}

/* Prints the time of a token's attention in all layers, with the best kernel of each group. at: row of the first group;
 * groups are `stride` rows apart. */
static void step_print(const bench *b, size_t at, size_t stride, const char *format)
{
    const kvb_bench_sweep *s = &b->sweep;
    char names[256] = "";
    double ns = 0;
    for (size_t g = 0; g < b->n_groups; g++) {
        const kvb_bench_row *row = &b->rows[at + g * stride];
        const uint32_t best = kvb_bench_best(s, row);
        if (best == row->n) {
            printf("  %7u cells, %s: too noisy to tell the best kernel\n", row->context, format);
            return;
        }
        ns += row->layers * s->results.at[row->first + best].time.all.median;
        if (!strstr(names, s->kernels[best]))
            kvb_list_add(names, sizeof names, ", ", "%s", s->kernels[best]);
    }
    printf("  %7u cells, %s: %s (%s)\n", b->rows[at].context, format, kvb_time_text(ns).text, names);
}

/* Prints the memory of one sequence, as `kvbench size` computes it. */
static void memory_print(const bench *b, size_t f, uint32_t context, const char *format)
{
    char why[256];
    kvb_size size;
    const kvb_size_terms terms = {.sized_only = true};
    const kvb_size_ask ask = {.context = context,
                              .sequences = 1,
                              .k = kvb_kv_format_find(b->formats[f][0]),
                              .v = kvb_kv_format_find(b->formats[f][b->formats[f][1] ? 1 : 0]),
                              .tp = 1,
                              .pp = 1};
    if (!ask.k || !ask.v || kvb_size_compute(b->model, &kvb_size_engine_ideal, &ask, &terms, &size, why, sizeof why))
        return;
    printf("  %7u cells, %s: %s\n", context, format,
           kvb_bytes_text((double)(size.held.kv_bytes + size.held.state_bytes)).text);
}

/* For decoding one sequence: prints the time of a step and the memory of the sequence over all layers. */
static void model_print(const bench *b, size_t rows)
{
    const kvb_bench_row *first = b->rows;
    const size_t stride = b->n_contexts ? b->n_contexts * b->n_formats : 0;
    char format[64], text[256];
    uint32_t attending = 0;
    if (!stride || first->kind->shape != KVB_BENCH_DECODE || first->kind->group || first->batch > 1 ||
        b->n_threads > 1 || b->n_batches > 1 || rows < stride * b->n_groups)
        return;
    for (size_t g = 0; g < b->n_groups; g++)
        attending += b->layers[g];
    printf("%s: attention of one token, %u of %u layers\n", b->model->name, attending, b->model->n_layers);
    for (size_t i = 0; i < stride; i++) {
        format_text(b, i % b->n_formats, format);
        step_print(b, i, stride, format);
    }
    for (size_t at = 0; kvb_size_not_held(b->model, at, text, sizeof text); at++)
        printf("  without %s\n", text);
    printf("memory of one sequence (kvbench size %s)\n", b->model_name);
    for (size_t i = 0; i < stride; i++) {
        format_text(b, i % b->n_formats, format);
        memory_print(b, i % b->n_formats, first[i].context, format);
    }
}

/* ---- measuring ----------------------------------------------------------------------------------------------- */

static int team_of(bench *b, uint32_t threads, const kvb_team **team)
{
    size_t i = 0;
    while (b->threads[i] != threads)
        i++;
    const int error = b->team[i] ? 0 : kvb_threads_start(threads, true, &b->team[i]);
    if (!error)
        *team = kvb_threads_team(b->team[i]);
    return error;
}

/* Measures row after row. Prints a block when it is complete, or when a signal ends it. *done: measured rows. */
static int rows_measure(bench *b, bool people, size_t *done)
{
    size_t first = 0;
    int error = 0, printed = 0;
    for (*done = 0; *done < b->n_rows && !error;) {
        kvb_bench_row *row = &b->rows[*done];
        const kvb_team *team;
        if (row->kind->scan)
            kvb_progress_now("%s of %s", row->kind->name, row->scan.name);
        else
            kvb_progress_now("%s at %u cells, %s", row->kind->name, row->context, row->work.format);
        error = kvb_stopped ? -EINTR : team_of(b, row->threads, &team);
        if (!error)
            error = kvb_bench_row_measure(&b->sweep, team, row);
        *done += !error;
        kvb_progress_step(!error);
        const bool ends = error || *done == b->n_rows || b->rows[*done].block != row->block;
        if (ends && people && *done > first && !b->by_formats) {
            kvb_progress_end();
            printed = kvb_bench_block_print(&b->sweep, b->rows + first, *done - first, stdout);
            fflush(stdout);
            first = *done;
            if (*done < b->n_rows && !error)
                kvb_progress_start("bench", b->n_rows - *done);
        }
    }
    kvb_progress_end();
    return error ? error : printed;
}

/* Writes the results that have a kernel, and a time or a verdict. They lie `stride` bytes apart. */
static int records_write(const bench *b, const kvb_result *results, size_t n, size_t stride)
{
    char why[512];
    kvb_result_writer *writer;
    int error = kvb_result_create(b->output, &b->manifest, &writer, why, sizeof why);
    if (error)
        return kvb_refuse("-o: %s", why);
    for (size_t i = 0; i < n && !error; i++) {
        const kvb_result *r = (const void *)((const char *)results + i * stride);
        if (*r->kernel && r->status != KVB_STATUS_SKIP)
            error = kvb_result_write(writer, r, why, sizeof why);
    }
    const int closed = kvb_result_close(writer, !error, why, sizeof why);
    return error || closed ? kvb_complain("bench", KVB_EXIT_MACHINE, "-o: %s", why) : KVB_EXIT_OK;
}

static int wrong_ones(const bench *b)
{
    for (size_t i = 0; i < b->sweep.results.n; i++)
        if (b->sweep.results.at[i].status == KVB_STATUS_FAIL)
            return KVB_EXIT_FAILED;
    return KVB_EXIT_OK;
}

static int sweep_run(bench *b, int argc, char **argv)
{
    const bool people = b->format == KVB_TABLE_TEXT;
    size_t done = 0;
    snprintf(b->manifest.suite, sizeof b->manifest.suite, "bench");
    kvb_command_text(argc, argv, b->manifest.command, sizeof b->manifest.command);
    b->sweep.seconds = b->seconds;
    b->sweep.by_formats = b->by_formats;
    kvb_stop_catch();
    kvb_progress_start("bench", b->n_rows);
    kvb_busy_note(&b->manifest.host);
    if (people)
        printf("%s, %u cores, %s; tuning: %s\n\n", b->manifest.cpu_model, b->manifest.cores, b->manifest.isa,
               *b->manifest.tuning ? b->manifest.tuning : "built-in");
    const int error = rows_measure(b, people, &done);
    if (error && error != -EINTR)
        return kvb_complain("bench", KVB_EXIT_MACHINE, "%s", strerror(-error));
    if (people && b->model && !b->by_formats)
        model_print(b, done);
    int printed = 0;
    if (b->by_formats && done)
        printed = kvb_bench_formats_print(&b->sweep, b->rows, done, b->format, stdout);
    else if (!people)
        printed = kvb_bench_rows_print(&b->sweep, b->rows, done, b->format, stdout);
    int code = kvb_printed("bench", printed);
    if (!code && b->output && done)
        code = records_write(b, b->sweep.results.at, b->sweep.results.n, sizeof(kvb_result));
    if (error == -EINTR) {
        fflush(stdout);
        kvb_complain("bench", 0, "stopped by a signal after %zu of %zu rows", done, b->n_rows);
        kvb_stop_die();
    }
    return code ? code : wrong_ones(b);
}

/* ---- caches -------------------------------------------------------------------------------------------------- */

static int caches_run(bench *b, int argc, char **argv)
{
    char why[512];
    kvb_caches rows = {0};
    const kvb_caches_options o = {.registry = b->sweep.registry,
                                  .histories = b->works,
                                  .cells = (uint32_t)b->cells,
                                  .threads = b->threads[0],
                                  .seconds = b->seconds};
    if (b->n_threads > 1)
        return kvb_refuse("--threads: of --caches: one number");
    kvb_stop_catch();
    kvb_progress_start("bench", 0);
    const int error = kvb_caches_measure(&o, &rows, why, sizeof why);
    kvb_progress_end();
    int code = !error             ? kvb_printed("bench", kvb_caches_print(&rows, b->format, stdout))
               : error == -EINTR  ? KVB_EXIT_OK
               : error == -EINVAL ? kvb_refuse("--work: %s", why)
                                  : kvb_complain("bench", KVB_EXIT_MACHINE, "%s", why);
    snprintf(b->manifest.suite, sizeof b->manifest.suite, "bench");
    kvb_command_text(argc, argv, b->manifest.command, sizeof b->manifest.command);
    if (!code && !error && b->output)
        code = records_write(b, &rows.at->result, rows.n, sizeof *rows.at); /* rows that only count have no kernel */
    for (size_t i = 0; i < rows.n && !code; i++)
        if (kvb_status_is_bad(rows.at[i].result.status))
            code = KVB_EXIT_FAILED;
    free(rows.at);
    if (error == -EINTR)
        kvb_stop_die();
    return code;
}

/* ---- targets ----------------------------------------------------------------------------------------------------- */

static int works_check(const bench *b)
{
    char known[2048] = "";
    for (const kvb_bench_work *w = kvb_bench_works; w->name; w++) {
        if (kvb_words_match(&b->works, w->name))
            return KVB_EXIT_OK;
        kvb_list_add(known, sizeof known, ", ", "%s", w->name);
    }
    for (const kvb_bench_scan_work *w = kvb_bench_scan_works; w->name && !b->kernel; w++) {
        if (kvb_words_match(&b->works, w->name))
            return KVB_EXIT_OK;
        kvb_list_add(known, sizeof known, ", ", "%s", w->name);
    }
    return kvb_refuse("no work matches '%s'; known: %s", b->works.at[0], known);
}

/* Fills in kernel and threads. An exit code; the error is printed. */
static int targets_check(bench *b)
{
    char known[2048], why[256];
    kvb_registry_names(b->sweep.registry, KVB_KERNELS, true, known, sizeof known);
    b->threads[0] = kvb_cores() < 2 ? kvb_cores() : 2;
    b->kernel = b->kernels.n ? b->kernels.at[0] : NULL;
    if (b->kernels.n > 1)
        return kvb_refuse("--kernel: with --targets, one in place of those of the table");
    if (b->kernel && !kvb_registry_attending(b->sweep.registry, b->kernel))
        return kvb_unknown("bench", "--kernel: unknown kernel", b->kernel, known);
    const int code = beside_check(b, known);
    if (code)
        return code;
    if (b->beside.n > MOST_BESIDE)
        return kvb_refuse("--beside: at most %d kernels", MOST_BESIDE);
    if (b->threads_text &&
        kvb_thread_counts_parse(b->threads_text, kvb_cores(), b->threads, 2, &b->n_threads, why, sizeof why))
        return kvb_refuse("--threads: %s (this machine's cores)", why);
    if (b->n_threads > 1)
        return kvb_refuse("--threads: one number, with --targets");
    return works_check(b);
}

/* As many cells as the probe's working set of the last-level cache holds; 0: no such cache. */
static uint32_t cached_cells(const kvb_bench_work *work)
{
    static kvb_machine_profile profile;
    if (!profile.cores && kvb_profile_describe("", &profile))
        return 0;
    return (uint32_t)((double)profile.level[2].working_set / kvb_bench_cell_bytes(work)) / 64 * 64;
}

static uint32_t cells_limit(const bench *b, uint32_t cells)
{
    return b->cells && cells > b->cells ? (uint32_t)b->cells : cells;
}

static bool way_is_taken(const kvb_bench_run *run, kvb_bench_way way)
{
    for (uint32_t i = 0; i < run->n; i++)
        if (run->contestant[i].entry->way == way)
            return true;
    return false;
}

static void contestants_choose(const bench *b, const kvb_bench_work *work, kvb_bench_run *run)
{
    static const kvb_bench_entry beside = {.way = KVB_BENCH_WHOLE};
    const char *kernel = b->kernel;
    for (uint32_t e = 0; e < KVB_BENCH_ENTRIES && work->entry[e].kernel; e++) {
        const kvb_bench_entry *entry = &work->entry[e];
        if (!kernel || !way_is_taken(run, entry->way)) /* else an earlier entry has the same way */
            kvb_bench_contestant_add(run, b->sweep.registry, entry, kernel ? kernel : entry->kernel);
    }
    for (size_t i = 0; i < b->beside.n; i++)
        kvb_bench_contestant_add(run, b->sweep.registry, &beside, b->beside.at[i]);
}

static int work_run(bench *b, const kvb_bench_work *work)
{
    static kvb_bench_run run; /* too large for a stack */
    uint32_t cells = cells_limit(b, work->cells ? work->cells : cached_cells(work));
    uint32_t held = work->store ? cells_limit(b, work->store) : cells;
    const kvb_team *all = kvb_threads_team(b->team[0]);
    kvb_bench_scene scene = {0};

    if (cells < KVB_BENCH_CELLS_MIN)
        return 0; /* this machine has no such cache */
    run = (kvb_bench_run){.team = {all, b->team[1] ? kvb_threads_team(b->team[1]) : NULL},
                          .scene = &scene,
                          .store = &b->sweep.store,
                          .seconds = b->seconds};
    contestants_choose(b, work, &run);
    int error = kvb_bench_store_open(&b->sweep.store, all, work, held, b->cells ? 1 : kvb_bench_layers(work, cells));
    if (!error)
        error = kvb_bench_scene_open(&scene, all, work, cells);
    if (!error)
        error = kvb_bench_run_measure(&run);
    if (!error)
        error = kvb_bench_run_report(b->table, &run, &b->score);
    kvb_bench_run_close(&run);
    kvb_bench_scene_close(&scene);
    return error;
}

static int works_run(bench *b)
{
    int error = 0;
    kvb_progress_start("bench", 0);
    for (const kvb_bench_work *w = kvb_bench_works; w->name && !error; w++)
        if (kvb_words_match(&b->works, w->name)) {
            kvb_progress_now("%s", w->name);
            error = work_run(b, w);
        }
    for (const kvb_bench_scan_work *w = kvb_bench_scan_works; w->name && !b->kernel && !error; w++)
        if (kvb_words_match(&b->works, w->name)) {
            kvb_progress_now("%s", w->name);
            error = kvb_stopped ? -EINTR
                                : kvb_bench_scan_run(b->table, w, kvb_threads_team(b->team[0]), (uint32_t)b->cells,
                                                     b->seconds, &b->score);
        }
    kvb_progress_end();
    return error;
}

static int targets_print(const bench *b)
{
    FILE *said = kvb_table_is_for_people(b->format) ? stdout : stderr;
    fprintf(
        said,
        "8 KV heads of 128 channels, out f32 unless said; %u threads, %s (the limit of reading: %s); tuning: %s.\n\n",
        b->threads[0], b->manifest.isa, kvb_read_isa(), *b->manifest.tuning ? b->manifest.tuning : "built-in");
    const int error = kvb_table_print(b->table, b->format, stdout);
    fprintf(said, "\n%u of %u targets are met.\n", b->score.met, b->score.targets);
    return error;
}

/* The table's rows as in --format json. NULL: no memory. */
static json_t *table_json(kvb_table *table)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    const int error = out ? kvb_table_print(table, KVB_TABLE_JSON, out) : -ENOMEM;
    json_t *rows = out && !fclose(out) && !error ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return rows;
}

/* Appends a line: the manifest, "cpu_id", "threads", "cells_at_most" (0: real sizes), "met", "targets", and the table
 * as "works". An exit code; the error is printed. */
static int machine_record(const bench *b)
{
    const char *path = b->machines;
    char id[KVB_CPU_ID_TEXT];
    kvb_cpu_id("", id);
    json_t *record = kvb_fields_encode(kvb_manifest_fields, &b->manifest);
    const bool whole = record && !json_object_set_new(record, "schema", json_string("kvbench.machines/1")) &&
                       !json_object_set_new(record, "cpu_id", json_string(id)) &&
                       !json_object_set_new(record, "threads", json_integer(b->threads[0])) &&
                       !json_object_set_new(record, "cells_at_most", json_integer((json_int_t)b->cells)) &&
                       !json_object_set_new(record, "met", json_integer(b->score.met)) &&
                       !json_object_set_new(record, "targets", json_integer(b->score.targets)) &&
                       !json_object_set_new(record, "works", table_json(b->table));
    FILE *out = whole ? fopen(path, "a") : NULL;
    int error = whole ? out ? 0 : errno : ENOMEM;
    if (out && (json_dumpf(record, out, JSON_COMPACT) || fputc('\n', out) == EOF))
        error = EIO;
    if (out && fclose(out) && !error)
        error = errno;
    json_decref(record);
    return error ? kvb_refuse("--record-machine: %s: %s", path, strerror(error)) : KVB_EXIT_OK;
}

static int targets_run(bench *b)
{
    b->table = kvb_table_new(kvb_bench_headings);
    int error = b->table ? kvb_threads_start(b->threads[0], true, &b->team[0]) : -ENOMEM;
    if (!error && b->threads[0] > 1)
        error = kvb_threads_start(1, true, &b->team[1]);
    kvb_stop_catch();
    if (!error)
        error = works_run(b);
    int code = !error || error == -EINTR ? kvb_printed("bench", targets_print(b))
                                         : kvb_complain("bench", KVB_EXIT_MACHINE, "%s", strerror(-error));
    if (!error && !code && b->machines)
        code = machine_record(b);
    return error == -EINTR ? kvb_fail(error, "") : code;
}

/* ---- parts --------------------------------------------------------------------------------------------------- */

static int parts_run(bench *b)
{
    const kvb_bench_choice choice = {&b->works, b->seconds, b->format};
    uint32_t n = 0;
    kvb_stop_catch();
    kvb_progress_start("bench", 0);
    int error = kvb_bench_parts(&choice, &n, stdout);
    error = error ? error : kvb_bench_calls(&choice, &n, stdout);
    kvb_progress_end();
    if (kvb_stopped)
        kvb_stop_die();
    if (error)
        return kvb_complain("bench", KVB_EXIT_MACHINE, "%s", strerror(-error));
    return n ? KVB_EXIT_OK
             : kvb_refuse("no part matches '%s'; names are as 'dots/f16 x4', 'encode/q8_0', 'int8 scores/q8_0 x1', "
                          "'seq_cp/paged x64'",
                          b->works.at[0]);
}

/* ---- the command --------------------------------------------------------------------------------------------- */

static int values_check(bench *b)
{
    char *end = NULL;
    const char *text = b->seconds_text ? b->seconds_text
                       : b->by_targets ? "1.5"
                       : b->by_caches  ? "2"
                       : b->by_parts   ? "0.03"
                                       : "0.5";
    b->seconds = strtod(text, &end);
    if (*end || !(b->seconds > 0 && b->seconds <= 600))
        return kvb_refuse("--seconds: '%s' is not a number of seconds up to 600", text);
    const char *const of_sweeps[] = {b->scenes_text, b->contexts_text, b->batches_text,
                                     b->heads_text,  b->formats_text,  b->model_name};
    bool sweeps = false;
    for (size_t i = 0; i < sizeof of_sweeps / sizeof *of_sweeps; i++)
        sweeps |= of_sweeps[i] != NULL;
    if (b->machines && !b->by_targets)
        return kvb_refuse("--record-machine: needs --targets");
    if (b->by_formats && (b->by_targets || b->by_caches))
        return kvb_refuse("--formats: goes with neither --targets nor --caches");
    if ((sweeps || b->output) && b->by_targets)
        return kvb_refuse("--targets: goes with --work, --kernel, --beside, --threads, --cells, --cpu-mask and "
                          "--record-machine alone");
    if (b->by_caches && (sweeps || b->by_targets || b->kernels.n || b->beside.n))
        return kvb_refuse("--caches: goes with --work, --plugin, --threads, --seconds, --cells, -o and --format alone");
    if (b->by_parts && (sweeps || b->output || b->by_targets || b->by_caches || b->by_formats || b->kernels.n ||
                        b->cells || b->plugins.n || b->beside.n || b->threads_text || b->cpu_mask))
        return kvb_refuse("--parts: goes with --work, --seconds and --format alone");
    const bool stray = (b->works.n && !b->by_parts && !b->by_caches) || (b->cells && !b->by_caches);
    return !b->by_targets && stray ? kvb_refuse("--work, --cells: need --targets or --caches") : KVB_EXIT_OK;
}

static void bench_close(bench *b)
{
    kvb_bench_store_close(&b->sweep.store);
    for (size_t i = 0; i < MOST; i++)
        kvb_threads_end(b->team[i]);
    free(b->sweep.results.at);
    free(b->rows);
    kvb_table_free(b->table);
    kvb_sized_model_free(b->model);
}

static int bench_run(void *typed, int argc, char **argv)
{
    bench *b = typed;
    static kvb_registry registry;
    char why[512];
    b->sweep.registry = &registry;
    int code = values_check(b);
    kvb_registry_init(&registry);
    if (!code && kvb_registry_load_all(&registry, &b->plugins, why, sizeof why))
        code = kvb_refuse("%s", why);
    if (!code)
        code = b->by_targets ? targets_check(b) : lists_take(b);
    if (!code && !b->by_targets && !b->by_caches && !b->by_parts)
        code = rows_make(b);
    code = code ? code : kvb_cpu_mask_take("bench", b->cpu_mask);
    if (!code) {
        const kvb_tuning_choice tuning = {.path = b->tuning_path, .none = b->no_tuning, .measures = true};
        kvb_host_describe("", &b->manifest);
        code = kvb_tuning_use("bench", &tuning, &b->manifest);
    }
    if (!code)
        code = b->by_targets  ? targets_run(b)
               : b->by_parts  ? parts_run(b)
               : b->by_caches ? caches_run(b, argc, argv)
                              : sweep_run(b, argc, argv);
    bench_close(b);
    return code;
}

const kvb_command kvb_command_bench = {
    .name = "bench",
    .summary = "how fast each kernel is here, beside the machine's limit",
    .run = bench_run,
    .bytes = sizeof(bench),
    .synopsis = "[options]",
    .about =
        "How fast is each kernel here, and how near to what the machine can do? For each row, a format and a "
        "context, kernels and the machine's limit (reading the same bytes; multiplying as often) take turns "
        "in rounds; times and shares are medians over rounds. The oracle judges each kernel's output first; a "
        "wrong one is not timed. Rows are read from copies that together pass any cache, as layers are.\n\n"
        "  kvbench bench                                              decode at 1k to 64k cells, three formats\n"
        "  kvbench bench --model Llama-3.1-8B --context 1k,32k        that model's attention on this CPU\n"
        "  kvbench bench --context 4k --batch 1,16 --heads 8/32 --threads 1,2\n"
        "  kvbench bench --scene fork,verify --kv f16,bf16,e4m3\n"
        "  kvbench bench --plugin ./mine.so --kernel 'flash*'         mine beside ours\n"
        "  kvbench bench -o new.jsonl && kvbench compare old.jsonl new.jsonl\n"
        "  kvbench bench --targets --work 'decode-*'                  what the kernels are to reach\n"
        "  kvbench bench --formats                                    what each format takes and costs, at its "
        "fastest\n"
        "  kvbench bench --caches                                     what caches hold, copy and save\n"
        "  kvbench bench --parts --work 'dots*'                       one loop of the kernels, at each instruction set",
    .options = options,
};

int kvb_bench_overview(const kvb_registry *registry, const kvb_words *kernels, const char *model,
                       const kvb_manifest *manifest, int (*take)(void *ctx, const kvb_result *result), void *ctx)
{
    static bench b;
    size_t done = 0;
    b = (bench){.contexts_text = "4k,64k",
                .model_name = model,
                .formats_text = "f16,q8_0,q4_0",
                .kernels = *kernels,
                .manifest = *manifest,
                .sweep = {.registry = registry, .seconds = OVERVIEW_SECONDS}};
    int error = 0, code = lists_take(&b);
    if (!code)
        code = rows_make(&b);
    if (!code) {
        kvb_progress_start("run", b.n_rows);
        error = rows_measure(&b, true, &done);
    }
    for (size_t i = 0; i < b.sweep.results.n && (!error || error == -EINTR); i++)
        if (b.sweep.results.at[i].status != KVB_STATUS_SKIP && take(ctx, &b.sweep.results.at[i]) < 0)
            error = -EIO;
    if (!code)
        code =
            error && error != -EINTR ? kvb_complain("run", KVB_EXIT_MACHINE, "%s", strerror(-error)) : wrong_ones(&b);
    bench_close(&b);
    return code;
}
