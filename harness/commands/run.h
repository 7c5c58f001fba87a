/* SPDX-License-Identifier: Apache-2.0 */
/* What `kvbench run` and `kvbench check` share. */
#ifndef KVB_COMMANDS_RUN_H
#define KVB_COMMANDS_RUN_H

#include "harness/calls/calls.h"
#include "harness/command_line.h"
#include "harness/selection/registry.h"
#include "results/result.h"

extern const kvb_usage kvb_run_usage; /* the replay command of a check is one of `run` */

/* Names the record of a kernel's single calls and judges them; a kernel that cannot run here is skipped. scans: by
 * its face for layers that scan. options: `command` begins the command that makes one of them again, "": none. What kvb_calls_judge
 * returns. */
int kvb_kernel_calls_judge(const kvb_registered *kernel, bool scans, const kvb_registry *registry,
                           const kvb_calls_options *options, kvb_result *result, char *why, size_t why_bytes);

/*
 * Decode at two contexts, in three formats, by the kernels that match `kernels` (none: all), as `kvbench bench` does it
 * and prints it. take() gets each result that has a time or a verdict; a negative return ends the rows. An exit code,
 * told; signals end the program as they end `kvbench bench`, once take() has had what was measured.
 */
int kvb_bench_overview(const kvb_registry *registry, const kvb_words *kernels, const char *model,
                       const kvb_manifest *manifest, int (*take)(void *ctx, const kvb_result *result), void *ctx);

#endif
