/* SPDX-License-Identifier: Apache-2.0 */
/* Draft level by level, verify at once, accept greedily, commit on both. */
#include "workloads/live/eagle.h"

#include <assert.h>

/* `mc_sim_7b_63` of the EAGLE repository (SafeAILab/EAGLE, Apache-2.0): widths 1, 4, 8, 8, 3, 2. */
static const uint32_t mc_sim_7b_63[] = {0, 0, 0, 0, 0, 1, 1, 1, 2,  2,  3,  3,  4,
                                        5, 5, 5, 6, 6, 7, 7, 8, 13, 13, 13, 21, 21};
const kvb_eagle_shape kvb_eagle_shape_25 = {.n = sizeof mc_sim_7b_63 / sizeof *mc_sim_7b_63, .parents = mc_sim_7b_63};

/* End of the level that starts at node `begin`: the first node whose parent is in it. */
static uint32_t level_end(const kvb_eagle_shape *shape, uint32_t begin)
{
    uint32_t end = begin + 1;
    while (end < shape->n && shape->parents[end] < begin)
        end++;
    return end;
}

/* Nodes begin .. end-1 of all trees in one call; logits follow in the order of rounds, then nodes. */
static int nodes_propose(kvb_runner *r, const kvb_eagle_shape *shape, const kvb_eagle_round *rounds, uint32_t n,
                         int32_t (*tok)[KVB_EAGLE_MAX_NODES], uint32_t begin, uint32_t end)
{
    uint32_t seqs[KVB_EAGLE_BATCH * KVB_EAGLE_MAX_NODES], at = 0;
    int32_t parents[KVB_EAGLE_BATCH * KVB_EAGLE_MAX_NODES], all[KVB_EAGLE_BATCH * KVB_EAGLE_MAX_NODES];
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t node = begin; node < end; node++, at++) {
            seqs[at] = rounds[q].seq;
            parents[at] = node ? (int32_t)shape->parents[node] : -1;
            all[at] = tok[q][node];
        }
    return kvb_runner_propose(r, seqs, parents, all, at);
}

/* Lets the draft fill in tok[][1 ..], feeding it every node. */
static int draft_propose(kvb_runner *draft, const kvb_eagle_shape *shape, const kvb_eagle_round *rounds, uint32_t n,
                         int32_t (*tok)[KVB_EAGLE_MAX_NODES])
{
    for (uint32_t begin = 0, end; begin < shape->n; begin = end) {
        end = level_end(shape, begin);
        int err = nodes_propose(draft, shape, rounds, n, tok, begin, end);
        if (err)
            return err;
        for (uint32_t child = end, rank = 0; child < shape->n && shape->parents[child] < end; child++) {
            rank = child > end && shape->parents[child] == shape->parents[child - 1] ? rank + 1 : 0;
            for (uint32_t q = 0; q < n; q++)
                tok[q][child] = kvb_runner_best(draft, q * (end - begin) + shape->parents[child] - begin, rank);
        }
    }
    return 0;
}

int kvb_eagle_propose(kvb_runner *target, kvb_runner *draft, const kvb_eagle_shape *shape, kvb_eagle_round *rounds,
                      uint32_t n, kvb_runner **failed)
{
    int32_t tok[KVB_EAGLE_BATCH][KVB_EAGLE_MAX_NODES];
    assert(shape->n <= KVB_EAGLE_MAX_NODES && n <= KVB_EAGLE_BATCH);
    for (uint32_t q = 0; q < n; q++)
        tok[q][0] = rounds[q].root;
    *failed = draft;
    int err = draft_propose(draft, shape, rounds, n, tok);
    if (err)
        return err;
    *failed = target;
    err = nodes_propose(target, shape, rounds, n, tok, 0, shape->n);
    for (uint32_t q = 0; q < n && !err; q++) {
        kvb_eagle_round *round = &rounds[q];
        round->path[0] = round->n = 0;
        for (uint32_t child = 1;; child = round->path[round->n] + 1) {
            const uint32_t last = round->path[round->n];
            int32_t wanted = kvb_runner_best(target, q * shape->n + last, 0);
            while (child < shape->n && !(shape->parents[child] == last && tok[q][child] == wanted))
                child++;
            round->tokens[round->n++] = wanted;
            if (child == shape->n)
                break;
            round->path[round->n] = child;
        }
    }
    return err;
}

int kvb_eagle_commit(kvb_runner *target, kvb_runner *draft, const kvb_eagle_round *rounds, uint32_t n,
                     kvb_runner **failed)
{
    kvb_runner *const both[] = {target, draft};
    int err = 0;
    for (uint32_t q = 0; q < n && !err; q++)
        for (int i = 0; i < 2 && !err; i++) {
            *failed = both[i];
            err = KVB_RUNNER_DO(both[i], COMMIT, .src = rounds[q].seq, .n = rounds[q].n,
                                .accepted = (uint32_t *)(uintptr_t)rounds[q].path);
        }
    return err;
}
