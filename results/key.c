/* SPDX-License-Identifier: Apache-2.0 */
/* Order and name of combinations. */
#include "results/key.h"

#include <string.h>

int kvb_key_order(const kvb_result *a, const kvb_result *b)
{
    const char *const pairs[][2] = {{a->workload, b->workload}, {a->cache, b->cache},   {a->pool_k, b->pool_k},
                                    {a->pool_v, b->pool_v},     {a->kernel, b->kernel}, {a->growth, b->growth}};

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        int order = strcmp(pairs[i][0], pairs[i][1]);

        if (order)
            return order;
    }
    return (a->threads > b->threads) - (a->threads < b->threads);
}

void kvb_key_pools(const kvb_result *r, char text[KVB_KEY_PART])
{
    if (strcmp(r->pool_k, r->pool_v) != 0)
        snprintf(text, KVB_KEY_PART, "k=%s,v=%s", r->pool_k, r->pool_v);
    else
        snprintf(text, KVB_KEY_PART, "%s", r->pool_k);
}

void kvb_key_cache(const kvb_result *r, char text[KVB_KEY_PART])
{
    bool usual = !r->growth[0] || strcmp(r->growth, "double") == 0;

    snprintf(text, KVB_KEY_PART, usual ? "%s" : "%s, %s", r->cache, r->growth);
}

void kvb_key_name(const kvb_result *r, char text[KVB_KEY_TEXT])
{
    char pools[KVB_KEY_PART];

    kvb_key_pools(r, pools);
    snprintf(text, KVB_KEY_TEXT, "%s/%s/%s/%s/%u/%s", r->workload, r->cache, pools, r->kernel, r->threads, r->growth);
}
