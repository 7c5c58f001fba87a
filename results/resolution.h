/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest difference that a run can tell, by what its combinations differed from themselves. */
#ifndef KVB_RESOLUTION_H
#define KVB_RESOLUTION_H

#include "results/result.h"

/* The 99 % quantile of the null differences, and how many there are; NaN: none. 0 or -ENOMEM. */
int kvb_resolution(const kvb_result *results, size_t n, double *quantile, uint32_t *count);

#endif
