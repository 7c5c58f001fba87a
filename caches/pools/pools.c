/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in pools, in the order in which they are listed. */
#include "caches/pools/float_rows.h"

const kvb_pool_type *const kvb_builtin_pools[] = {
    &kvb_pool_f32.type,
    &kvb_pool_f16.type,
    &kvb_pool_bf16.type,
    NULL,
};
