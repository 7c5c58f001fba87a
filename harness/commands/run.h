/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by `kvbench run`, `kvbench check` and `kvbench bench`. */
#ifndef KVB_COMMANDS_RUN_H
#define KVB_COMMANDS_RUN_H

#include "harness/calls/calls.h"
#include "harness/command_line.h"
#include "harness/selection/registry.h"
#include "results/result.h"

/* Judges a kernel's single calls into *result, with its names. A kernel that cannot run here is skipped. scans: judges
 * the face that scans, not the one that attends. options->command: beginning of the replay command; "": none. Returns
 * as kvb_calls_judge() does. */
int kvb_kernel_calls_judge(const kvb_registered *kernel, bool scans, const kvb_registry *registry,
                           const kvb_calls_options *options, kvb_result *result, char *why, size_t why_bytes);

/*
 * Measures decoding at two contexts, in three formats, with the kernels that match `kernels` (none: all), and prints it
 * as `kvbench bench` does. take() gets each result with a time or a verdict; a negative return stops. Returns an exit
 * code after the error was printed. A signal ends the program, as in `kvbench bench`, after take() got all results.
 */
int kvb_bench_overview(const kvb_registry *registry, const kvb_words *kernels, const char *model,
                       const kvb_manifest *manifest, int (*take)(void *ctx, const kvb_result *result), void *ctx);

#endif
