/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One round of speculative decoding with a tree: a draft model proposes breadth first, the target verifies
 * the whole tree in one forward pass, the longest path that agrees with greedy decoding is committed on both
 * caches, and the target's own next token is the bonus. After Li et al., EAGLE: Speculative Sampling
 * Requires Rethinking Feature Uncertainty, ICML 2024.
 */
#ifndef KVB_LIVE_EAGLE_H
#define KVB_LIVE_EAGLE_H

#include "workloads/live/runner.h"

#define KVB_EAGLE_MAX_NODES 64u

/* Nodes in breadth-first order; node 0 is the pending token, the others are the draft's. Child k of a node is
 * the draft's k-th best token there. */
typedef struct kvb_eagle_shape {
    uint32_t n;              /* nodes, node 0 included */
    const uint32_t *parents; /* [n]; parents[i] < i; parents[0] is not used */
} kvb_eagle_shape;

/* EAGLE's tree of 25 draft nodes. */
extern const kvb_eagle_shape kvb_eagle_shape_25;

typedef struct kvb_eagle_round {
    int32_t tokens[KVB_EAGLE_MAX_NODES]; /* accepted draft tokens, then the bonus: the next round's root */
    uint32_t n;
} kvb_eagle_round;

/* Both runners hold the same committed tokens; root is the next one, not yet in a cache. 0 or a negative
 * errno, with *failed the runner whose why holds the reason. */
int kvb_eagle_run(kvb_runner *target, kvb_runner *draft, const kvb_eagle_shape *shape, int32_t root,
                  kvb_eagle_round *round, kvb_runner **failed);

#endif
