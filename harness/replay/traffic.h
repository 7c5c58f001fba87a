/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step's attention reads, counted from its mask and the formats, per layer:
 *   unique  rows of cells that at least one query sees, once for each KV head;
 *   walk    rows that a walk per (query, query head) would read.
 */
#ifndef KVB_TRAFFIC_H
#define KVB_TRAFFIC_H

#include "kernels/attend.h"

typedef struct kvb_traffic {
    uint64_t unique_cells; /* seen by at least one query */
    uint64_t pairs;        /* (query, cell) pairs seen */
} kvb_traffic;

/* seen: scratch of (n_cells + 63) / 64 words. */
void kvb_traffic_count(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t *seen, kvb_traffic *traffic);

#endif
