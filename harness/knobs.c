/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/knobs.h"

#include <string.h>

#include "caches/store.h"
#include "workloads/trace.h"

/* A row: a kvb_option, its default value, and its reader. */
#define KNOB(usual, reader, ...)                                                                                       \
    {                                                                                                                  \
        {__VA_ARGS__}, usual, reader                                                                                   \
    }

const kvb_knob kvb_knobs_table[] = {
    KNOB(NULL, "caches", "--capacity", "CELLS", "hard bound of each cache; usual: what the workload needs",
         KVB_NUMBER(kvb_knobs, capacity, 1, KVB_TRACE_MAX_CELLS)),
    KNOB("16", "paged caches", "--page-cells", "CELLS", "cells of a page, 1 .. 256",
         KVB_NUMBER(kvb_knobs, page_cells, 1, KVB_MAX_PAGE)),
    KNOB("256", "pools", "--min-chunk", "CELLS", "first growth of a pool",
         KVB_NUMBER(kvb_knobs, min_chunk, 1, KVB_TRACE_MAX_CELLS)),
    KNOB(NULL, "pools", "--growth", "GLOB",
         "how pools grow: double, double+thp, reserve, reserve+thp, exact; repeatable; usual: double",
         KVB_WORDS(kvb_knobs, growths)),
    KNOB(NULL, "paged-prefix", "--prefix-bytes", "BYTES",
         "most that is kept of prompts that no sequence holds; usual: what is free",
         KVB_NUMBER(kvb_knobs, prefix_bytes, 0, INT64_MAX)),
    KNOB(NULL, "paged-prefix", "--hash-bits", "N",
         "bits of prompts' hashes that count, so that some collide; usual: all",
         KVB_NUMBER(kvb_knobs, hash_bits, 1, 64)),
    KNOB("f32", "calls", "--out", "ELEM", "outputs in f32, f16 or bf16", KVB_TEXT(kvb_knobs, out)),
    KNOB(NULL, "calls", "--softcap", "X", "cap logits at X in every workload: X tanh(logit / X)",
         KVB_TEXT(kvb_knobs, softcap)),
    KNOB(NULL, "calls", "--scale", "X",
         "scale q.k by X in every workload; usual: what the workload says, mostly 1/sqrt(head dim)",
         KVB_TEXT(kvb_knobs, scale)),
    KNOB(NULL, "calls", "--sinks", NULL, "one sink logit for each query head in every workload, N(0,1) by --seed",
         KVB_FLAG(kvb_knobs, sinks)),
    KNOB(
        NULL, "calls", "--before-rope", NULL,
        "values of every workload are rows before rope: they are turned to the positions that the cache's lengths give",
        KVB_FLAG(kvb_knobs, before_rope)),
    KNOB(NULL, "calls", "--no-staging", NULL,
         "no rows decoded to f32 for kernels that do not read their format: they are skipped",
         KVB_FLAG(kvb_knobs, no_staging)),
    KNOB(NULL, "single calls", "--calls", "N", "single calls that are chosen for each kernel; usual: the suite's",
         KVB_NUMBER(kvb_knobs, calls, 1, 1000000)),
    KNOB(NULL, "single calls", "--random", "N", "so many random calls of each kernel beyond these, by --seed",
         KVB_NUMBER(kvb_knobs, random, 1, 1000000000)),
    KNOB(NULL, "single calls", "--require-axes", "AXIS[=VALUE]",
         "exit 1 where no call of a kernel had it (kvbench list axes); repeatable", KVB_WORDS(kvb_knobs, require_axes)),
    KNOB(NULL, "single calls", "--require-invariant", "WAY",
         "exit 1 where a kernel gives other bits: batch, steps, threads, pages, alignment, again; repeatable",
         KVB_WORDS(kvb_knobs, require_invariant)),
    KNOB(
        NULL, "selection", "--pairs", NULL,
        "judge few combinations, in which any two of workload, cache, pool and kernel meet; usual of quick and default",
        KVB_FLAG(kvb_knobs, pairs)),
    KNOB(NULL, "replay", "--restart", NULL,
         "half way through a history the whole cache is saved, closed, and loaded into a new one",
         KVB_FLAG(kvb_knobs, restart)),
    KNOB("64M", "replay", "--max-pairs", "N", "skip where one step attends more (query, cell) pairs",
         KVB_NUMBER(kvb_knobs, max_pairs, 1, UINT64_MAX)),
    KNOB(NULL, "oracle", "--oracle-pairs", "N",
         "(query, head, cell) visits; a larger workload is sampled; usual: the suite's",
         KVB_NUMBER(kvb_knobs, oracle_pairs, 1, UINT64_MAX)),
    KNOB("16M", "oracle", "--opinion-pairs", "N",
         "visits of second opinions; what is beyond is only scanned for NaN and infinity",
         KVB_NUMBER(kvb_knobs, opinion_pairs, 1, UINT64_MAX)),
    KNOB(NULL, "oracle", "--exhaustive", NULL, "every row is checked in full, whatever it costs",
         KVB_FLAG(kvb_knobs, exhaustive)),
    KNOB(NULL, "selection", "--no-witness", NULL,
         "no witness beside the kernels: which tokens each query saw is not looked at",
         KVB_FLAG(kvb_knobs, no_witness)),
    KNOB(NULL, "replay", "--no-guard", NULL, "no guard pages around what a kernel is handed",
         KVB_FLAG(kvb_knobs, no_guard)),
    KNOB(NULL, "run", "--gdb", NULL, "with --only: only say how gdb stops at these calls", KVB_FLAG(kvb_knobs, gdb)),
    KNOB(NULL, "replay", "--sample-ms", "MS", "for the passes of one combination, at least one; usual: the suite's",
         KVB_NUMBER(kvb_knobs, sample_ms, 1, 3600000)),
    KNOB("2", "replay", "--width", "PERCENT", "of the median's interval, at which passes end early",
         KVB_NUMBER(kvb_knobs, width, 1, 100)),
    KNOB("natural", "replay", "--cache-state", "STATE", "natural (all layers in turn), hot or cold",
         KVB_TEXT(kvb_knobs, cache_state_name)),
    KNOB(NULL, "matrix", "--no-null", NULL,
         "no second process for the null comparison: faster, where times do not matter", KVB_FLAG(kvb_knobs, no_null)),
    KNOB(NULL, "run", "--machine", NULL, "measure the machine for the manifest even where the run is small",
         KVB_FLAG(kvb_knobs, machine)),
    KNOB(NULL, "run", "--no-machine", NULL, "do not measure it even where the run is large",
         KVB_FLAG(kvb_knobs, no_machine)),
    KNOB(NULL, "counters", "--events", "NAME", "PAPI event to count in place of the usual ones; repeatable",
         KVB_WORDS(kvb_knobs, events)),
    KNOB(NULL, "run", "--counters", NULL, "show what was counted: after the rows; in csv and json as columns",
         KVB_FLAG(kvb_knobs, counters)),
    KNOB(NULL, "replay", "--timeline", "F.csv", "memory after each event of each combination",
         KVB_TEXT(kvb_knobs, timeline)),
    KNOB(NULL, "teams", "--oversubscribe", NULL, "allow more threads than cores, unbound",
         KVB_FLAG(kvb_knobs, oversubscribe)),
    KNOB(NULL, "teams", "--first-touch", NULL,
         "team threads touch memory in equal parts; usual with several NUMA nodes", KVB_FLAG(kvb_knobs, first_touch)),
    KNOB(NULL, "openblas", "--openblas-core", "NAME", "OPENBLAS_CORETYPE to use; 'keep': what OpenBLAS chooses",
         KVB_TEXT(kvb_knobs, openblas_core)),
    {KVB_OPTIONS_END, NULL, NULL},
};

kvb_knobs kvb_knobs_usual(void)
{
    kvb_knobs knobs = {.timeout = 120};
    kvb_knobs_set_usual(kvb_knobs_table, &knobs);
    return knobs;
}

const char *const kvb_cache_state_names[KVB_CACHE_STATES] = {"natural", "hot", "cold"};

bool kvb_cache_state_parse(const char *word, kvb_cache_state *state)
{
    for (int i = 0; i < KVB_CACHE_STATES; i++)
        if (!strcmp(word, kvb_cache_state_names[i])) {
            *state = (kvb_cache_state)i;
            return true;
        }
    return false;
}
