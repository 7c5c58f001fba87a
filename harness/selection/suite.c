/* SPDX-License-Identifier: Apache-2.0 */
/* The suites, and the folder of workloads. */
#include "harness/selection/suite.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/program.h"
#include "workloads/files.h"

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A row of a suite: milliseconds of a sample (0: not timed), pairs of the oracle, workloads, pools, and what else is set. */
#define PART(MS, PAIRS, WORKLOADS, ...)                                                                                \
    {                                                                                                                  \
        .sample_ms = MS, .oracle_pairs = PAIRS, .workloads = WORKLOADS, .pools = __VA_ARGS__                           \
    }

#define FLOATS       LIST("f32", "f16", "bf16")
#define ROTATED      "q4_0+had", "a4g64+had", "e4m3-head+had", "kivi4+had"
#define EVERY_FORMAT LIST("*", "kivi4", "kivi2", "k=a8g64,v=a4g64+had", ROTATED)

/* The recorded and the hand-written workloads are small: all of their queries are checked. Hand-written ones do not
 * depend on formats and run with floats. HISTORIES were recorded for their calls on sequences: a few formats are enough.
 * The twins are recorded events at the KV heads and dims of real models, which the groups of every format divide, and at
 * a quarter of the heads, as one rank of four has them: samples are checked, of every format at a quarter. */
#define QUICK                                                                                                          \
    "plain-decode", "batched-multi-seq", "agent-fork", "eagle-tree", "parallel-sample", "sliding-window",              \
        "sink-window", "chunked-local", "mla-decode", "gpt-oss-like", "beam-search", "save-restore", "context-shift",  \
        "shared-prompt"
#define PROMPTS "prefix-reuse", "paged-sharing", "continuous-admission"
#define HISTORIES                                                                                                      \
    "beam-search", "context-shift", "evict-rollback", "save-restore", "preempt-resume", "spec-batch", "shared-prompt", \
        "self-extend", PROMPTS
#define RECORDED                                                                                                       \
    "plain-decode", "batched-multi-seq", "agent-fork", "eagle-tree", "parallel-sample", "sliding-window",              \
        "sink-window", "mla-decode", "gpt-oss-like", "gemma-like", "chunked-local"
#define WRITTEN                                                                                                        \
    "engine-calls", "full-cache", "prompt-swap", "draft-calls", "draft-shifts", "draft-divisions", "prompt-drafts",    \
        "prompt-shifts", "mixed-pages", "many-holders", "two-in-turns", "window-edge", "narrow-rows", "padded-batch"
#define LONG_QUANTISED PART(20, IN_FULL, LIST("long-fill"), LIST("q8_0", "q4_0", "a4g64", "e4m3", "int8"))
#define HYBRIDS        "hybrid-decode", "hybrid-batch", "spec-hybrid", "state-fork", "short-prompts"
#define HYBRID_TWINS   "hybrid-decode-*", "hybrid-batch-*", "spec-hybrid-*", "state-fork-*"
#define TWINS(shape)                                                                                                   \
    "plain-decode-" shape, "batched-multi-seq-" shape, "agent-fork-" shape, "eagle-tree-" shape,                       \
        "parallel-sample-" shape, "sliding-window-" shape, "sink-window-" shape, "chunked-local-" shape
#define RANK_TWINS    TWINS("2x128"), "gpt-oss-like-2x64", "gemma-like-1x256", "mla-decode-1x576"
#define WIDE_TWINS    TWINS("8x128"), "gpt-oss-like-8x64", "gemma-like-4x256"
#define ALL_TWINS     "*-8x128", "*-1x576", "*-8x64", "*-4x256"
#define EVERY_PROFILE LIST("own", "gaussian", "llama", "qwen", "peaked", "needle", "flat", "grid")
#define SOME_FORMATS  LIST("f32", "f16", "bf16", "q8_0", "e4m3", "kivi4")
#define IN_FULL       8000000
#define A_SAMPLE      60000

static const kvb_suite_part quick_parts[] = {
    PART(20, IN_FULL, LIST(QUICK, PROMPTS, WRITTEN), FLOATS),
    PART(20, A_SAMPLE, LIST("plain-decode-2x128"), EVERY_FORMAT),
    /* codes that tie and saturate */
    PART(20, A_SAMPLE, LIST("batched-multi-seq-2x128"), EVERY_FORMAT, .values = LIST("grid")),
    PART(20, IN_FULL, LIST(HYBRIDS), LIST("f32", "bf16")),
    LONG_QUANTISED,
};
static const kvb_suite_part default_parts[] = {
    PART(40, IN_FULL, LIST(RECORDED, "engine-windows"), EVERY_FORMAT),
    PART(40, A_SAMPLE, LIST(RANK_TWINS), EVERY_FORMAT),
    PART(40, A_SAMPLE, LIST(WIDE_TWINS), LIST("f32", "f16", "bf16", "q8_0")), /* q8_0: for flash-int8 */
    PART(40, IN_FULL, LIST(HISTORIES), SOME_FORMATS),
    PART(40, IN_FULL, LIST(WRITTEN), FLOATS),
    PART(40, IN_FULL, LIST(HYBRIDS), FLOATS),
    /* not over recompute: all states again at each step, by the slow plain kernel too */
    PART(40, A_SAMPLE, LIST(HYBRID_TWINS), LIST("bf16"), .caches = LIST("slab", "contiguous", "seq", "paged", "tree")),
    PART(40, 500000, LIST("long-decode-2x128"), FLOATS),
    LONG_QUANTISED,
};
static const kvb_suite_part full_parts[] = {
    PART(1000, 40000000, LIST("*"), LIST("f32", "f16", "bf16", "k=f16,v=bf16", "k=bf16,v=f32"),
         .values = EVERY_PROFILE),
    PART(200, 4000000, LIST(ALL_TWINS, "long-decode"), EVERY_FORMAT, .values = EVERY_PROFILE),
};

#define PARTS(list) .parts = list, .n_parts = sizeof(list) / sizeof *(list)

static const kvb_suite quick = {
    .name = "quick",
    .summary =
        "each pair of the recorded histories, caches, kernels and f32, f16, bf16; every format at 2 KV heads of 128",
    .by_pairs = true,
    .calls = 900,
    PARTS(quick_parts),
};
static const kvb_suite standard = {
    .name = "default",
    .summary = "each pair of all histories, shapes, caches, kernels and formats; engines' calls and a 32k context in "
               "f32, f16, bf16",
    .by_pairs = true,
    .calls = 1500,
    PARTS(default_parts),
};
static const kvb_suite full = {
    .name = "full",
    .summary = "the product: all workloads in f32, f16, bf16, the larger ones in every format; every value profile, "
               "checked further",
    .calls = 100000,
    PARTS(full_parts),
};
static const kvb_suite calls = {
    .name = "calls",
    .summary = "single calls of each kernel, no history: every pair of values of the axes (kvbench list axes)",
    .calls = 100000,
};

static const kvb_suite_part check_parts[] = {
    PART(0, IN_FULL, LIST(RECORDED, HISTORIES, WRITTEN, HYBRIDS), FLOATS),
    PART(0, A_SAMPLE, LIST(WIDE_TWINS, "mla-decode-1x576"), FLOATS),
};
const kvb_suite kvb_suite_check = {.name = "check", .summary = "", .by_pairs = true, .calls = 1500, PARTS(check_parts)};

const kvb_suite *const kvb_suites[] = {&quick, &standard, &full, &calls, NULL};

const kvb_suite *kvb_suite_find(const char *name)
{
    for (size_t i = 0; kvb_suites[i]; i++)
        if (!strcmp(kvb_suites[i]->name, name))
            return kvb_suites[i];
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const kvb_workload *)a)->name, ((const kvb_workload *)b)->name);
}

size_t kvb_workload_name_bytes(const char *word)
{
    const size_t n = strlen(word);
    return n > 6 && !strcmp(word + n - 6, ".jsonl") ? n - 6 : n;
}

int kvb_workload_add(kvb_workload **at, size_t *n, const char *name, const char *path, bool is_file)
{
    kvb_workload *more = realloc(*at, (*n + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    *at = more;
    more += (*n)++;
    *more = (kvb_workload){strndup(name, kvb_workload_name_bytes(name)), strdup(path), is_file};
    return more->name && more->path ? 0 : -ENOMEM;
}

int kvb_workloads_find(const char *folder, kvb_workloads *workloads, char *why, size_t why_bytes)
{
    *workloads = (kvb_workloads){
        .folder = folder ? strdup(folder)
                         : kvb_folder_find("KVB_WORKLOADS", "share/kvbench/workloads", "workloads/recorded")};
    if (!workloads->folder)
        return -ENOMEM;
    DIR *dir = opendir(workloads->folder);
    if (!dir) {
        int error = -errno;
        return kvb_why_set(error, why, why_bytes, "%s: %s; say where the workloads are with --workloads FOLDER",
                           workloads->folder, strerror(errno));
    }
    int result = 0;
    for (struct dirent *entry; !result && (entry = readdir(dir));) {
        char path[PATH_MAX];
        if (!entry->d_name[kvb_workload_name_bytes(entry->d_name)])
            continue;
        snprintf(path, sizeof path, "%s/%s", workloads->folder, entry->d_name);
        result = kvb_workload_add(&workloads->at, &workloads->n, entry->d_name, path, false);
    }
    closedir(dir);
    if (!result && workloads->n)
        qsort(workloads->at, workloads->n, sizeof *workloads->at, by_name);
    return result;
}

void kvb_workloads_free(kvb_workloads *workloads)
{
    for (size_t i = 0; i < workloads->n; i++) {
        free(workloads->at[i].name);
        free(workloads->at[i].path);
    }
    free(workloads->at);
    free(workloads->folder);
    *workloads = (kvb_workloads){0};
}
