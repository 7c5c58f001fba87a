/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds of speculative decoding with trees: a draft model proposes breadth first, the target verifies
 * the whole tree in one forward pass, the longest path that agrees with greedy decoding is committed on both
 * caches, and the target's own next token is the bonus. After Li et al., EAGLE: Speculative Sampling
 * Requires Rethinking Feature Uncertainty, ICML 2024.
 */
#ifndef KVB_LIVE_EAGLE_H
#define KVB_LIVE_EAGLE_H

#include <stdint.h>

/* Nodes in breadth-first order; node 0 is the pending token, the others are the draft's. Child k of a node is
 * the draft's k-th best token there. */
typedef struct kvb_eagle_shape {
    uint32_t n;              /* nodes, node 0 included */
    const uint32_t *parents; /* [n]; parents[i] < i; parents[0] is not used */
} kvb_eagle_shape;

/* EAGLE's tree of 25 draft nodes. */
extern const kvb_eagle_shape kvb_eagle_shape_25;

#endif
