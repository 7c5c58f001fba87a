/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds of speculative decoding with trees: a draft model proposes breadth first, the target verifies
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

#define KVB_EAGLE_BATCH 4u /* most sequences of one round */

/* One sequence's round. */
typedef struct kvb_eagle_round {
    uint32_t seq;
    int32_t root;                        /* the next token, not yet in a cache */
    int32_t tokens[KVB_EAGLE_MAX_NODES]; /* accepted draft tokens, then the bonus: the next round's root */
    uint32_t n;                          /* of these; and nodes of the path */
    uint32_t path[KVB_EAGLE_MAX_NODES];  /* accepted nodes, the root first */
} kvb_eagle_round;

/* All calls: 0 or a negative errno, with *failed the runner whose why holds the reason. Both runners hold the same
 * committed tokens. */

/* Rounds of n sequences: each level of all trees is drafted in one pass, all trees are verified in one. Their nodes are
 * pending then, in both caches; what is accepted is said in the rounds. */
int kvb_eagle_propose(kvb_runner *target, kvb_runner *draft, const kvb_eagle_shape *shape, kvb_eagle_round *rounds,
                      uint32_t n, kvb_runner **failed);
/* Commits what is accepted. */
int kvb_eagle_commit(kvb_runner *target, kvb_runner *draft, const kvb_eagle_round *rounds, uint32_t n,
                     kvb_runner **failed);

#endif
