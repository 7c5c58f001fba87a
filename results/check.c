/* SPDX-License-Identifier: Apache-2.0 */
#include "results/check.h"

const char *const kvb_check_names[KVB_CHECKS] = {
    [KVB_CHECK_NONE] = "-",
    [KVB_CHECK_BOUND] = "bound",
    [KVB_CHECK_TOLERANCE] = "tolerance",
    [KVB_CHECK_FILTER] = "filter",
    [KVB_CHECK_OPINION] = "opinion",
    [KVB_CHECK_STATE] = "state",
    [KVB_CHECK_FINITE] = "finite",
    [KVB_CHECK_STORED] = "stored",
    [KVB_CHECK_DECLARATION] = "declaration",
    [KVB_CHECK_POISON] = "poison",
    [KVB_CHECK_WITNESS] = "witness",
    [KVB_CHECK_WRITTEN] = "written",
    [KVB_CHECK_MARGINS] = "margins",
    [KVB_CHECK_INPUTS] = "inputs",
    [KVB_CHECK_ALLOCATIONS] = "allocations",
    [KVB_CHECK_RETURN] = "return",
    [KVB_CHECK_PROTOCOL] = "protocol",
    [KVB_CHECK_POOL] = "pool",
    [KVB_CHECK_DETERMINISTIC] = "deterministic",
    [KVB_CHECK_CRASH] = "crash",
    [KVB_CHECK_TIMEOUT] = "timeout",
};

uint32_t kvb_checks_off;
