/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step's attention reads and computes, counted from its mask and the formats, for one layer:
 *   unique  rows of cells that at least one query sees, once for each KV head;
 *   walk    rows that a walk for each query and query head would read;
 *   flops   a multiply and an add for each element of q.k and of p.v.
 */
#ifndef KVB_TRAFFIC_H
#define KVB_TRAFFIC_H

#include "kernels/attend.h"

typedef struct kvb_traffic {
    uint64_t unique_cells; /* seen by at least one query */
    uint64_t pairs;        /* (query, cell) pairs seen */
    uint64_t mask_words;   /* 8-byte words of the mask */
} kvb_traffic;

/* seen: scratch of (n_cells + 63) / 64 words. */
void kvb_traffic_count(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t *seen, kvb_traffic *traffic);

#endif
