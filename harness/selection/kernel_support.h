/* SPDX-License-Identifier: Apache-2.0 */
/* The problems that kernels accept, according to their supports(). */
#ifndef KVB_KERNEL_SUPPORT_H
#define KVB_KERNEL_SUPPORT_H

#include "harness/command_line.h"
#include "harness/selection/registry.h"
#include "harness/selection/selection.h"
#include "results/result.h"

/*
 * --kernel best: for each combination the kernel that passed it with the smallest median time in an earlier run. In a
 * selection kvb_kernel_best takes the kernel's place until the combination is known.
 */

typedef struct kvb_best {
    const char *path; /* of the result file of the earlier run */
    kvb_result_file *file;
    const kvb_registry *registry; /* to look up kernels */
} kvb_best;

/* Opens the result file if a word of --kernel is "best". path: of --best-from, or NULL. Notes on stderr a file of another
 * level of instructions. -EINVAL with why: --kernel best without --best-from or the reverse, or no valid file. */
int kvb_best_prepare(kvb_best *best, const kvb_words *kernels, const char *path, const kvb_registry *registry,
                     char *why, size_t why_bytes);
void kvb_best_close(kvb_best *best);

/*
 * The fastest kernel for the combination with the names, threads and growth of `of`. Witnesses are no candidates, as
 * they have no rho. NULL with why: none passed there, or the fastest one belongs to a plug-in that is not loaded.
 */
const struct kvb_kernel *kvb_best_find(const kvb_best *best, const kvb_result *of, char *why, size_t why_bytes);

/* Receives one line of text: accepted values (taken true), or declined ones with the kernel's reason. 0: go on. */
typedef int kvb_accepts_line(void *ctx, bool taken, const char *text);

/*
 * Describes the problems that the kernel accepts, axis by axis: formats, lengths of rows, masks, outputs, extras. Each
 * axis varies a plain problem that the kernel takes. Lines have about 100 characters at most. 0, or what line()
 * returned.
 */
int kvb_accepts_describe(const kvb_kernel *kernel, const kvb_registry *registry, kvb_accepts_line *line, void *ctx);

/* Summarizes the same in one line, from one problem of 128 channels: "reads f32; any mask; out f32; takes no softcap,
 * sinks". */
void kvb_accepts_summary(const kvb_kernel *kernel, const kvb_registry *registry, char *text, size_t bytes);

/* Does the kernel read rows of these formats as stored, without staging? Judged by a usual problem: one query, 8 heads
 * on 2 KV heads of 128 channels. */
bool kvb_kernel_reads(const kvb_kernel *kernel, const kvb_format *k, const kvb_format *v);

/* 0; -EINVAL if no selected kernel reads one of the pools: why names kernels and pools that would work. */
int kvb_native_check(const kvb_selection *selection, const kvb_registry *registry, char *why, size_t why_bytes);

#endif
