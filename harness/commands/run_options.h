/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `kvbench run`, and what it keeps while it runs. Inside harness/commands/run*.c only. */
#ifndef KVB_RUN_OPTIONS_H
#define KVB_RUN_OPTIONS_H

#include "harness/command_line.h"
#include "harness/matrix/matrix.h"
#include "harness/replay/replay.h"
#include "harness/selection/kernel_support.h"
#include "harness/selection/partial_run.h"
#include "harness/selection/selection.h"
#include "results/export.h"
#include "harness/size/model.h"
#include "results/result.h"

/* --only and --dump, which help to find a fault. */
typedef struct run_debug {
    const char *only_text, *dump;
    kvb_only only;
} run_debug;

typedef struct run {
    const char *suite_name, *output, *format_name, *cpu_mask, *best_path, *junit_path, *shard_text, *call, *model_name;
    kvb_selection_words words;
    kvb_words plugins;
    kvb_knobs knobs;
    uint64_t jobs;
    bool overview; /* by pairs: judged, then kernels are measured beside the machine's limit */
    bool product, check, counts, resume, all, require_judged;
    kvb_sized_model *model; /* of --model; freed by the owner */
    run_debug debug;
    kvb_setting setting;
    const kvb_suite *suite;
    kvb_best best;
    kvb_table_format format;
    FILE *timeline;
    /* while running */
    bool by_pairs;   /* not the product */
    size_t left_out; /* combinations that could run too */
    kvb_shard shard;
    kvb_result_file *kept; /* what an earlier run has finished, or NULL */
    kvb_result_writer *writer;
    kvb_export *junit;
    kvb_results results;
    kvb_judged_pools judged;
    size_t count[KVB_STATUSES];
    char *why; /* of the writer */
    size_t why_bytes;
} run;

extern const kvb_usage kvb_run_usage;

#endif
