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

/* Let the draft fill in tok[1 ..], feeding it every node. */
static int propose(kvb_runner *draft, const kvb_eagle_shape *shape, const int32_t *parents, int32_t *tok)
{
    for (uint32_t begin = 0, end; begin < shape->n; begin = end) {
        end = level_end(shape, begin);
        int err = kvb_runner_propose(draft, parents + begin, tok + begin, end - begin);
        if (err)
            return err;
        for (uint32_t child = end, rank = 0; child < shape->n && shape->parents[child] < end; child++) {
            rank = child > end && shape->parents[child] == shape->parents[child - 1] ? rank + 1 : 0;
            tok[child] = kvb_runner_best(draft, shape->parents[child] - begin, rank);
        }
    }
    return 0;
}

int kvb_eagle_run(kvb_runner *target, kvb_runner *draft, const kvb_eagle_shape *shape, int32_t root,
                  kvb_eagle_round *round, kvb_runner **failed)
{
    int32_t parents[KVB_EAGLE_MAX_NODES], tok[KVB_EAGLE_MAX_NODES];
    assert(shape->n <= KVB_EAGLE_MAX_NODES);
    parents[0] = -1;
    tok[0] = root;
    for (uint32_t i = 1; i < shape->n; i++)
        parents[i] = (int32_t)shape->parents[i];

    *failed = draft;
    int err = propose(draft, shape, parents, tok);
    if (err)
        return err;
    *failed = target;
    err = kvb_runner_propose(target, parents, tok, shape->n);
    if (err)
        return err;

    uint32_t path[KVB_EAGLE_MAX_NODES] = {0}, n = 1;
    round->n = 0;
    for (uint32_t child = 1;; child = path[n - 1] + 1) {
        int32_t wanted = kvb_runner_best(target, path[n - 1], 0);
        while (child < shape->n && !(shape->parents[child] == path[n - 1] && tok[child] == wanted))
            child++;
        round->tokens[round->n++] = wanted;
        if (child == shape->n)
            break;
        path[n++] = child;
    }
    err = kvb_runner_commit(target, path, n);
    if (err)
        return err;
    *failed = draft;
    return kvb_runner_commit(draft, path, n);
}
