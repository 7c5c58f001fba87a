/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVB_TEST_F16_HERE_H
#define KVB_TEST_F16_HERE_H

#include <stdio.h>

#include "kernels/vector/vector.h"

/* The loops of f16; NULL, and a skip in TAP, where the CPU has none. */
static inline const kvb_f16_loops *f16_here(void)
{
    char why[128];
    if (kvb_cpu_has(KVB_CPU_AVX512FP16, why, sizeof why))
        return kvb_loops_at(KVB_CPU_AVX512FP16)->f16;
    printf("1..0 # SKIP products of f16: %s\n", why);
    return NULL;
}

#endif
