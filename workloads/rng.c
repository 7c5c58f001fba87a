/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of normal numbers: see rng.h. */
#include "workloads/rng.h"

void kvb_rng_normals(uint64_t key, double factor, uint32_t n, float *row)
{
    for (uint32_t c = 0; c < n; c += 2) { /* one draw gives two numbers */
        uint64_t bits = kvb_rng_bits(key, c / 2);
        row[c] = (float)(factor * kvb_rng_normal((uint32_t)bits));
        if (c + 1 < n)
            row[c + 1] = (float)(factor * kvb_rng_normal((uint32_t)(bits >> 32)));
    }
}
