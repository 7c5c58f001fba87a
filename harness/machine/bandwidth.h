/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this machine can move and multiply: read-only bandwidth, STREAM triad, multiply-add peaks. Each probe runs
 * on a team (one bound thread a core), on memory that each thread touched first, in the best ISA the CPU has.
 */
#ifndef KVB_BANDWIDTH_H
#define KVB_BANDWIDTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvb_team kvb_team; /* kernels/attend.h */

/* Memory that a team reads: part i of the block belongs to thread i, who touched it first. */
typedef struct kvb_probe_memory {
    char *base;   /* page-aligned */
    size_t bytes; /* a multiple of n * 4096 */
} kvb_probe_memory;

/* 0 or -ENOMEM. Each thread touches its part first. */
int kvb_probe_memory_open(const kvb_team *team, size_t bytes, kvb_probe_memory *memory);
void kvb_probe_memory_close(kvb_probe_memory *memory);

/*
 * One pass that reads `bytes` of the memory, each thread the first bytes / n of its own part (in whole cache lines; at
 * least one each), all threads at once, repeated `passes` times. Loads only: the reduction is a few operations a
 * cache line, and the sums reach memory so that no compiler drops them. Returns nanoseconds for all passes.
 */
double kvb_read_pass(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, uint32_t passes);

/* Name of the ISA the read kernel uses: "avx512", "avx2", "portable". */
const char *kvb_read_isa(void);

typedef struct kvb_rate {
    double median, low, high; /* median, 10 % and 90 % quantile: GB/s (1e9 bytes), or 1e9 operations per second */
    uint32_t samples;         /* 0: not measured */
} kvb_rate;

/* Read bandwidth over the first `bytes` of the memory, GB/s, within a time budget (at least 5 samples). 0 or -ENOMEM.
 */
int kvb_read_bandwidth(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, double seconds,
                       kvb_rate *rate);

/* STREAM triad a[i] = b[i] + s * c[i] over f64 arrays of `bytes` in all; counts 24 bytes for each element (McCalpin).
 * Plain stores, not non-temporal ones: 32 bytes move. Overwrites the memory. */
int kvb_triad_bandwidth(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, double seconds,
                        kvb_rate *rate);

typedef enum kvb_peak_kind { KVB_PEAK_F32, KVB_PEAK_F16, KVB_PEAK_BF16, KVB_PEAK_INT8, KVB_PEAK_KINDS } kvb_peak_kind;
extern const char *const kvb_peak_names[KVB_PEAK_KINDS]; /* "f32", "f16", "bf16", "int8" */

/* Multiply-add peak, counted as 2 operations for each multiply-add lane, in 1e9/s: independent chains in registers.
 * -ENOTSUP with the reason in why where the ISA has no such instruction. */
int kvb_multiply_add_peak(const kvb_team *team, kvb_peak_kind kind, double seconds, kvb_rate *rate, char *why,
                          size_t why_bytes);

#endif
