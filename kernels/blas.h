/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBLAS, loaded when it is first needed. */
#ifndef KVB_BLAS_H
#define KVB_BLAS_H

#include <cblas.h>
#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu.h"

typedef struct kvb_blas {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(cblas_sgemv) *sgemv;
    __typeof__(openblas_get_config) *config;
    __typeof__(openblas_get_corename) *core;
    __typeof__(openblas_get_parallel) *parallel;
    __typeof__(openblas_get_num_threads) *threads;
    __typeof__(openblas_set_num_threads) *set_threads;
} kvb_blas;

/* NULL with why (which may be NULL): it is not installed. The first call must not race with another. */
const kvb_blas *kvb_blas_open(char *why, size_t why_bytes);

/* An address inside the library; NULL: it is not loaded. */
const void *kvb_blas_inside(void);

#define KVB_BLAS_KEEP "keep"

/*
 * OpenBLAS has loops for several cores. It picks them by the CPU's model, and old ones for a model that it does not know.
 * Before it is loaded: use this core, or with "keep" the one that OpenBLAS picks (its own variable OPENBLAS_CORETYPE is
 * obeyed). NULL, as at first: one that uses the instruction sets of kvb_cpu() and none above it. `core` must stay valid.
 */
void kvb_blas_core(const char *core);

/* The core to take in place of `core` at this level; NULL: it fits. */
const char *kvb_blas_better(const char *core, kvb_cpu_level level);

#endif
