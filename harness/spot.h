/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a matrix: threads turn fastest, then growths, kernels, caches, pools, values; workloads slowest. */
#ifndef KVB_SPOT_H
#define KVB_SPOT_H

#include "harness/select.h"

/* Where a combination lies in its selection. */
typedef struct kvb_spot {
    size_t workload, values, pools, cache, kernel, growth, threads;
} kvb_spot;

size_t kvb_block_size(const kvb_selection *selection);  /* of one workload, values and pair of pools */
size_t kvb_matrix_size(const kvb_selection *selection); /* of all */

/* The i-th combination of all. */
kvb_spot kvb_spot_of(const kvb_selection *selection, size_t i);

/* Is it left to others: to the first values (a witness sees tags, whatever they are), or to an earlier selection? */
bool kvb_spot_is_elsewhere(const kvb_selection *selection, kvb_spot at, const kvb_selection *earlier, size_t n_earlier);

bool kvb_is_witness(const kvb_kernel *kernel);

#endif
