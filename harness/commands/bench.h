/* SPDX-License-Identifier: Apache-2.0 */
/* What `kvbench run` measures after it has judged. */
#ifndef KVB_COMMANDS_BENCH_H
#define KVB_COMMANDS_BENCH_H

#include "harness/command_line.h"
#include "harness/selection/registry.h"
#include "results/result.h"

/*
 * Decode at two contexts, in three formats, by the kernels that match `kernels` (none: all), as `kvbench bench` does it
 * and prints it. take() gets each result that has a time or a verdict; a negative return ends the rows. An exit code,
 * told; signals end the program as they end `kvbench bench`, once take() has had what was measured.
 */
int kvb_bench_overview(const kvb_registry *registry, const kvb_words *kernels, const char *model,
                       const kvb_manifest *manifest, int (*take)(void *ctx, const kvb_result *result), void *ctx);

#endif
