/* SPDX-License-Identifier: Apache-2.0 */
/* Hard inputs of attention and of scans as a file, for kernels that run elsewhere. */
#ifndef KVB_JUDGE_MAKE_H
#define KVB_JUDGE_MAKE_H

#include "kernels/attend.h"

/*
 * Writes the inputs of each call to path, a safetensors file, and into FILE.json beside it how they are to be read. kernel: it runs
 * here, and its outputs, log-sum-exps, final states and declared arithmetic are written, too. Calls that it declines, or has no face
 * for, are left out. NULL: no kernel, and arithmetic is left unsaid. *rho: of its outputs, by the oracle in this process. 0, or a
 * negative errno with why.
 */
int kvb_judge_make(const char *path, const kvb_kernel *kernel, uint64_t seed, double *rho, char *why, size_t why_bytes);

#endif
