/* SPDX-License-Identifier: Apache-2.0 */
/* Multiply-add loops in registers: one function for each instruction, named and counted in a table. */
#ifndef KVB_PEAK_H
#define KVB_PEAK_H

#include "harness/machine/bandwidth.h"

/* The multiply-adds of one turn are independent of each other, and enough to cover a latency of 4 on two units. */
#define KVB_PEAK_CHAINS 12u

typedef struct kvb_peak_kernel {
    kvb_peak_kind kind;
    const char *instruction;       /* "avx512 vfmadd ps" */
    double operations;             /* of one turn: 2 for each multiply-add */
    double (*run)(uint64_t turns); /* returns the sum of the chains, which is finite */
    bool (*here)(void);            /* can this CPU run it? */
} kvb_peak_kernel;
extern const kvb_peak_kernel kvb_peak_kernels[]; /* widest of each kind first; ends with instruction NULL */

/* The widest that this CPU has, or NULL with the reason in why. */
const kvb_peak_kernel *kvb_peak_kernel_choose(kvb_peak_kind kind, char *why, size_t why_bytes);

#endif
