/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that commit other nodes of draft trees than those accepted. */
#include "harness/faults/fault.h"

#define HONEST kvb_fault_honest.cache

static kvb_change (*commit_change)(const kvb_store *store, const kvb_change *change);
static kvb_change changed; /* the commit in hand, as the policy is told it */

static int prepare(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    if (change->kind != KVB_CHANGE_COMMIT)
        return HONEST->prepare(store, change, feed, plan);
    changed = commit_change(store, change);
    return HONEST->prepare(store, &changed, feed, plan);
}

static void adopt(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    if (HONEST->adopt)
        HONEST->adopt(store, change->kind == KVB_CHANGE_COMMIT ? &changed : change, feed, plan);
}

static void commits_changed(kvb_cache_type *wrong, kvb_change (*how)(const kvb_store *store, const kvb_change *change))
{
    commit_change = how;
    wrong->prepare = prepare;
    wrong->adopt = adopt;
}

/* As many nodes as are accepted, from the first on: right for a chain. */
static kvb_change first_nodes(const kvb_store *store, const kvb_change *change)
{
    static uint32_t numbers[KVB_MAX_SEQS];
    kvb_change other = *change;
    (void)store;
    for (uint32_t i = 0; i < change->n; i++)
        numbers[i] = i;
    other.accepted = numbers;
    return other;
}

/* The node beside the last one accepted, where there is one. */
static kvb_change sibling(const kvb_store *store, const kvb_change *change)
{
    static uint32_t numbers[KVB_MAX_SEQS];
    kvb_change other = *change;
    for (uint32_t i = 0; i < change->n; i++)
        numbers[i] = change->accepted[i];
    if (change->n && numbers[change->n - 1] + 1 < store->account->pending[change->src])
        numbers[change->n - 1]++;
    other.accepted = numbers;
    return other;
}

/* Nodes of those numbers, but of another sequence that has as many. */
static kvb_change other_sequence(const kvb_store *store, const kvb_change *change)
{
    const kvb_account *a = store->account;
    kvb_change other = *change;
    for (uint32_t i = 0; i < a->n_nodes && other.src == change->src; i++)
        if (a->pending[a->node[i].seq] == a->pending[change->src])
            other.src = a->node[i].seq;
    return other;
}

static void commit_first(kvb_cache_type *wrong)
{
    commits_changed(wrong, first_nodes);
}

static void commit_sibling(kvb_cache_type *wrong)
{
    commits_changed(wrong, sibling);
}

static void commit_elsewhere(kvb_cache_type *wrong)
{
    commits_changed(wrong, other_sequence);
}

const kvb_fault kvb_tree_faults[] = {
    {"commit-first-nodes", "of a tree the first nodes are kept, as many as are accepted: right for chains",
     KVB_CHECK_WITNESS, "spec-batch seq f32 witness, eagle-tree paged f32 witness, eagle-tree tree f32 witness",
     .cache = commit_first},
    {"commit-sibling", "a rejected sibling is kept in place of the last node that is accepted", KVB_CHECK_WITNESS,
     "spec-batch seq f32 witness, spec-batch paged f32 witness, eagle-tree tree f32 witness", .cache = commit_sibling},
    {"commit-elsewhere", "a commit takes the nodes of another sequence", KVB_CHECK_CRASH,
     /* their positions are not its own, which an assertion sees */
     "spec-batch seq f32 witness", .cache = commit_elsewhere},
    {.name = NULL},
};
