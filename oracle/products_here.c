/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the compiled loops this CPU runs. */
#include <stdbool.h>

#include "oracle/products.h"

extern const kvb_products kvb_products_portable, kvb_products_avx2, kvb_products_avx512;

const kvb_products *kvb_products_here(void)
{
#ifdef __x86_64__
    static const kvb_products *best;
    if (!best) { /* a second thread would find the same */
        bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        best = avx512 ? &kvb_products_avx512 : avx2 ? &kvb_products_avx2 : &kvb_products_portable;
    }
    return best;
#else
    return &kvb_products_portable;
#endif
}
