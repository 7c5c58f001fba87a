/* SPDX-License-Identifier: Apache-2.0 */
/* Results as they come, in one array. */
#ifndef KVB_RESULT_LIST_H
#define KVB_RESULT_LIST_H

#include "results/result.h"

/* Zero at first. `at` is freed by whoever has the list. */
typedef struct kvb_results {
    kvb_result *at;
    size_t n, room;
} kvb_results;

int kvb_results_add(kvb_results *results, const kvb_result *result); /* 0 or -ENOMEM */

#endif
