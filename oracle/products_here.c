/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the compiled loops this CPU runs. */
#include <stdbool.h>

#include "oracle/products.h"

extern const kvb_products kvb_products_portable, kvb_products_avx2, kvb_products_avx512;

const kvb_products *kvb_products_at(unsigned level)
{
#ifdef __x86_64__
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
               avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const kvb_products *const here[] = {&kvb_products_portable, avx2 ? &kvb_products_avx2 : NULL,
                                        avx512 ? &kvb_products_avx512 : NULL};
#else
    const kvb_products *const here[] = {&kvb_products_portable, NULL, NULL};
#endif
    return level < sizeof here / sizeof *here ? here[level] : NULL;
}

const kvb_products *kvb_products_here(void)
{
    unsigned level = 0;
    while (kvb_products_at(level + 1))
        level++;
    return kvb_products_at(level);
}
