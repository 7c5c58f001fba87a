/* SPDX-License-Identifier: Apache-2.0 */
/* The models and pools that histories of calls are played on, and what is drawn from a seed. */
#include "ci/fuzz/verbs.h"

/* What the groups of a model limit. */
static const struct {
    uint32_t n_groups;
    kvb_group groups[3];
} shapes[KVB_VERBS_SHAPES] = {
    {1, {{.window = 0}}},
    {2, {{.latent = true}, {.window = 6, .sinks = 2}}},
    {2, {{.chunk = 8}, {.window = 0}}},
    {3, {{.window = 3, .latent = true}, {.window = 9, .sinks = 1}, {.chunk = 5}}},
    {1, {{.window = 5}}},
    {1, {{.window = 1}}},
    {2, {{.chunk = 1}, {.window = 2, .sinks = 3}}},
    {2, {{.window = 0}, NAIVE_SCAN(KVB_F32)}},
    {3, {{.window = 4}, {.latent = true}, NAIVE_SCAN(KVB_BF16)}},
    {2, {NAIVE_SCAN(KVB_F16), {.chunk = 6}}},
    {1, {NAIVE_SCAN(KVB_F32)}},
};

uint32_t kvb_verbs_pools(void)
{
    uint32_t n = 0;
    while (kvb_builtin_pools[n])
        n++;
    return n;
}

const kvb_pool_type *kvb_verbs_pool(uint32_t at)
{
    const kvb_pool_type *pool = kvb_builtin_pools[at / 2 % kvb_verbs_pools()];
    return at % 2 && pool->rotated ? pool->rotated : pool;
}

static bool pool_takes(const kvb_pool_type *pool, uint32_t dim)
{
    char why[200];
    return !pool->supports || pool->supports(pool, dim, why, sizeof why);
}

/* Rows as short as both pools take: 32 elements or more, which hold a tag of one bit each. */
void kvb_verbs_model(kvb_model *m, uint32_t shape, const kvb_pool_type *k, const kvb_pool_type *v)
{
    uint32_t dim = 32;
    while (dim < KVB_VERBS_DIM / 2 && !(pool_takes(k, dim) && pool_takes(v, dim)))
        dim *= 2;
    *m = (kvb_model){.n_layers = KVB_VERBS_LAYERS, .n_groups = shapes[shape].n_groups};
    for (uint32_t layer = 0; layer < KVB_VERBS_LAYERS; layer++)
        m->group_of[layer] = (uint8_t)(layer % m->n_groups);
    for (uint32_t g = 0; g < m->n_groups; g++) {
        kvb_group *group = &m->groups[g];
        *group = shapes[shape].groups[g];
        if (kvb_group_scans(group))
            continue;
        group->kv_heads = group->heads = g == 1 ? 1 : KVB_VERBS_HEADS;
        group->k_dim = group->latent ? 2 * dim : dim;
        group->v_dim = dim;
        group->scale = 1;
        group->rope.known = true; /* tags are not to be turned */
    }
}

/* A planted fault of caches (kvbench faults), by which the check is checked; NULL: no such one. */
static const kvb_fault *fault_find(const char *name)
{
    for (size_t t = 0; name && kvb_fault_tables[t]; t++)
        for (const kvb_fault *fault = kvb_fault_tables[t]; fault->name; fault++)
            if (fault->cache && !strcmp(fault->name, name))
                return fault;
    return NULL;
}

verbs_setting kvb_verbs_draw(uint32_t cache, uint64_t seed)
{
    random_state = seed;
    const uint32_t pool = random_below(64), other = random_below(64);
    const verbs_setting set = {.cache = cache,
                               .fault = fault_find(getenv("KVB_RANDOM_FAULT")),
                               .shape = random_below(64),
                               .k_pool = pool,
                               .v_pool = random_below(2) ? pool : other,
                               .growth = random_below(4),
                               .capacity = 24 + random_below(64),
                               .seq_capacity = random_below(2) ? 40 : 60 + random_below(140),
                               .max_seqs = 1 + random_below(6),
                               .min_chunk = 1 + random_below(16),
                               .rollback = random_below(8),
                               .step = random_below(2) ? 0 : 6 + random_below(9)};
    random_seqs = set.max_seqs;
    random_prompts = true;
    return set;
}

call kvb_verbs_call_draw(const naive *model, uint32_t *memory)
{
    const call c = call_draw(model);
    *memory = random_below(4) ? 0 : 1 + random_below(12);
    return c;
}
