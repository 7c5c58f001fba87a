/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --kernel best: for each combination the kernel that passed it with the smallest median time in an earlier run. In a
 * selection a stand-in of that name takes the kernel's place until the combination is known.
 */
#ifndef KVB_BEST_H
#define KVB_BEST_H

#include "harness/command_line.h"
#include "harness/selection/registry.h"
#include "results/result.h"

typedef struct kvb_best {
    const char *path; /* of the result file of the earlier run */
    kvb_result_file *file;
    const kvb_registry *registry; /* kernels are looked up here */
} kvb_best;

/* Reads the file. 0, or a negative errno with why. */
int kvb_best_open(kvb_best *best, const char *path, const kvb_registry *registry, char *why, size_t why_bytes);
/* Opens it where a word of --kernel asks for it. path: of --best-from, or NULL. -EINVAL with why: one is said without
 * the other, or the file is no such file. A file of another level of instructions is said on stderr. */
int kvb_best_prepare(kvb_best *best, const kvb_words *kernels, const char *path, const kvb_registry *registry,
                     char *why, size_t why_bytes);
void kvb_best_close(kvb_best *best);

/*
 * The kernel for the combination with the names, threads and growth of `of`. Witnesses are no candidates, as they have
 * no rho. NULL with why: none passed there, or the fastest one belongs to a plug-in that is not loaded.
 */
const struct kvb_kernel *kvb_best_find(const kvb_best *best, const kvb_result *of, char *why, size_t why_bytes);

#endif
