/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of the bandwidth probes as tables, best ISA first. Chosen by what the CPU has, whatever kvb_cpu_limit()
 * says: the hardware's limit does not depend on what a run may use.
 */
#ifndef KVB_READ_KERNEL_H
#define KVB_READ_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu.h"

/* Loads every cache line of p[0 .. bytes) and returns something that depends on all of it. p is 64-byte aligned, bytes
 * a multiple of 64. */
typedef struct kvb_read_kernel {
    const char *isa;
    kvb_cpu_level level; /* that it takes */
    uint64_t (*run)(const char *p, size_t bytes);
} kvb_read_kernel;
extern const kvb_read_kernel kvb_read_kernels[]; /* best first; ends with isa NULL */
const kvb_read_kernel *kvb_read_kernel_choose(void);

/* a[i] = b[i] + s * c[i] for n elements: two roundings (no contraction), plain stores. */
typedef struct kvb_triad_kernel {
    const char *isa;
    kvb_cpu_level level;
    void (*run)(double *a, const double *b, const double *c, double s, size_t n);
} kvb_triad_kernel;
extern const kvb_triad_kernel kvb_triad_kernels[]; /* best first; ends with isa NULL */
const kvb_triad_kernel *kvb_triad_kernel_choose(void);

#endif
