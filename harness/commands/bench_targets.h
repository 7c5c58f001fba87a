/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench bench --targets: works that have targets, as one table. */
#ifndef KVB_BENCH_TARGETS_H
#define KVB_BENCH_TARGETS_H

#include "harness/command_line.h"
#include "harness/selection/registry.h"
#include "results/result.h"

typedef struct kvb_bench_targets {
    kvb_words works, plugins, beside;
    const char *seconds_text, *format_name;
    uint64_t cells; /* at most; 0: as the works say */
    /* parsed */
    double seconds;
    kvb_table_format format;
    const char *kernel; /* in place of those of the table; NULL: these */
    uint32_t threads;
} kvb_bench_targets;

/* Fills in kernel and threads. An exit code, which was explained. */
int kvb_bench_targets_check(kvb_bench_targets *targets, const kvb_registry *registry, const kvb_words *kernels,
                            const char *threads_text);
int kvb_bench_targets_run(const kvb_bench_targets *targets, const kvb_registry *registry, const kvb_manifest *manifest);

#endif
