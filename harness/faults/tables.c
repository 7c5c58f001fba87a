/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/faults/fault.h"

const kvb_fault *const kvb_fault_tables[] = {
    kvb_kernel_faults, kvb_conduct_faults, kvb_cache_faults,    kvb_store_faults,
    kvb_pool_faults,   kvb_scan_faults,    kvb_position_faults, NULL};
