/* SPDX-License-Identifier: Apache-2.0 */
/* The single calls of `kvbench run`: a record for each kernel, behind those of the histories. */
#ifndef KVB_RUN_CALLS_H
#define KVB_RUN_CALLS_H

#include "harness/calls/calls.h"
#include "harness/commands/run_options.h"

/* Kernels whose single calls this run judges. Zero at first. */
typedef struct kvb_run_calls {
    const kvb_registered *kernels[2 * KVB_REGISTRY_MAX];
    bool scans[2 * KVB_REGISTRY_MAX]; /* its face for layers that scan, not the other */
    size_t n;
} kvb_run_calls;

/* Names the record of a kernel's single calls and judges them; a kernel that cannot run here is skipped. scans: by
 * its face for layers that scan. options: `command` begins the command that makes one of them again, "": none. What kvb_calls_judge
 * returns. */
int kvb_kernel_calls_judge(const kvb_registered *kernel, bool scans, const kvb_registry *registry,
                           const kvb_calls_options *options, kvb_result *result, char *why, size_t why_bytes);

/* None where histories, caches, pools or values are named, or where the suite has no calls. An exit code. */
int kvb_run_calls_choose(const run *run, const kvb_registry *registry, kvb_run_calls *calls);

/* Judges them. wants, take: as those of kvb_matrix_options, called with the run; first: number of the first one. 0;
 * -EINTR; -EINVAL and other negative errnos with why. */
int kvb_run_calls_make(run *run, const kvb_run_calls *calls, const kvb_registry *registry, size_t first, int argc,
                       char **argv, int (*wants)(void *ctx, size_t number, const kvb_result *names),
                       int (*take)(void *ctx, const kvb_result *result), char *why, size_t why_bytes);

/* Does each of them cover what the knob require-axes names? An exit code, said on stderr. */
int kvb_run_calls_require(const run *run);

#endif
