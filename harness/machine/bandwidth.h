/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's limits: read-only bandwidth, STREAM triad, multiply-add peaks. Each probe runs on a team (one bound
 * thread a core), on memory that each thread touched first, in the best ISA of the CPU.
 */
#ifndef KVB_BANDWIDTH_H
#define KVB_BANDWIDTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu.h"

/* A sampled rate: work of a known amount is repeated within a time budget. */
typedef struct kvb_rate {
    double median, low, high; /* median, 10 % and 90 % quantile: GB/s (1e9 bytes), or 1e9 operations per second */
    uint32_t samples;         /* 0: not measured */
} kvb_rate;

/* Does `passes` passes and returns their nanoseconds. */
typedef double kvb_rate_work(void *ctx, uint32_t passes);

/* Warms up, chooses the passes of a sample (about 1 ms), and takes samples for `seconds`, but at least 5. amount: of one
 * pass; the rate is amount per nanosecond, that is 1e9 a second. 0, -ENOMEM, or -EINTR after a signal. */
int kvb_rate_sample(kvb_rate_work *work, void *ctx, double amount, double seconds, kvb_rate *rate);

/* Median and 10 % and 90 % quantiles (nearest rank) of n > 0 samples, which are sorted. */
void kvb_rate_of(double *samples, uint32_t n, kvb_rate *rate);

/*
 * The loops of the bandwidth probes as a table, best ISA first. The CPU alone decides, not kvb_cpu_limit(): the hardware's
 * limit does not depend on the level that a run may use.
 */
typedef struct kvb_memory_kernel {
    const char *isa;
    kvb_cpu_level level; /* needed */
    /* Loads every cache line of p[0 .. bytes) and returns something that depends on all of it. p is 64-byte aligned, bytes
     * a multiple of 64. */
    uint64_t (*read)(const char *p, size_t bytes);
    /* a[i] = b[i] + s * c[i] for n elements: two roundings (no contraction), plain stores. */
    void (*triad)(double *a, const double *b, const double *c, double s, size_t n);
} kvb_memory_kernel;
extern const kvb_memory_kernel kvb_memory_kernels[]; /* ends with isa NULL */

typedef struct kvb_team kvb_team; /* kernels/view.h */

/* Memory that a team reads: part i of the block belongs to thread i, which touched it first. */
typedef struct kvb_probe_memory {
    char *base;   /* page-aligned */
    size_t bytes; /* a multiple of n * 4096 */
} kvb_probe_memory;

/* 0 or -ENOMEM. Each thread touches its part first. */
int kvb_probe_memory_open(const kvb_team *team, size_t bytes, kvb_probe_memory *memory);
void kvb_probe_memory_close(kvb_probe_memory *memory);

/*
 * Reads `bytes` of the memory `passes` times: all threads at once, each the first bytes / n of its own part (in whole
 * cache lines; at least one each). Loads only: the reduction is a few operations a cache line, and the sums reach memory
 * so that no compiler drops them. Returns nanoseconds for all passes.
 */
double kvb_read_pass(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, uint32_t passes);

/* Name of the ISA the read kernel uses: "avx512", "avx2", "portable". */
const char *kvb_read_isa(void);

/*
 * Bandwidth over the first `bytes` of the memory, GB/s, in a time budget (at least 5 samples): of reading, or of STREAM's
 * triad a[i] = b[i] + s * c[i] over f64 arrays of `bytes` in all. A triad counts 24 bytes for each element (McCalpin); with
 * plain stores, not non-temporal ones, 32 bytes move. It overwrites the memory. 0 or -ENOMEM.
 */
int kvb_memory_bandwidth(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, bool triad, double seconds,
                         kvb_rate *rate);

typedef enum kvb_peak_kind {
    KVB_PEAK_F32,
    KVB_PEAK_F16,
    KVB_PEAK_BF16,
    KVB_PEAK_INT8,
    KVB_PEAK_AMX_BF16, /* in tiles */
    KVB_PEAK_AMX_INT8,
    KVB_PEAK_KINDS
} kvb_peak_kind;
extern const char *const kvb_peak_names[KVB_PEAK_KINDS]; /* "f32", "f16", …, "amx_int8" */

/* Multiply-add peak, counted as 2 operations for each multiply-add lane, in 1e9/s: independent chains in registers.
 * -ENOTSUP with the reason in why where the ISA has no such instruction. */
int kvb_multiply_add_peak(const kvb_team *team, kvb_peak_kind kind, double seconds, kvb_rate *rate, char *why,
                          size_t why_bytes);

/* Multiply-add loops in registers: a table with one function for each instruction. */

/* Multiply-adds of one turn: independent of each other, and enough to cover a latency of 4 on two units. */
#define KVB_PEAK_CHAINS 12u

typedef struct kvb_peak_kernel {
    kvb_peak_kind kind;
    const char *instruction;       /* "avx512 vfmadd ps" */
    double operations;             /* of one turn: 2 for each multiply-add */
    double (*run)(uint64_t turns); /* returns a finite number that depends on all chains */
    kvb_cpu_level level;           /* needed */
    bool (*more)(void);            /* does the CPU have what is needed besides? NULL: nothing is */
} kvb_peak_kernel;
extern const kvb_peak_kernel kvb_peak_kernels[]; /* widest of each kind first; ends with instruction NULL */

bool kvb_peak_here(const kvb_peak_kernel *kernel); /* can this CPU run it? */
/* The widest that this CPU has, or NULL with the reason in why. */
const kvb_peak_kernel *kvb_peak_kernel_choose(kvb_peak_kind kind, char *why, size_t why_bytes);

#endif
