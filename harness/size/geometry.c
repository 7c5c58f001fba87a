/* SPDX-License-Identifier: Apache-2.0 */
/* Layer groups turned into the shapes of caches. */
#include "harness/size/geometry.h"

#include <stdio.h>
#include <string.h>

static bool has_rows(const kvb_layer_group *g)
{
    return g->kind != KVB_LAYER_STATE && g->kind != KVB_LAYER_NONE && g->n > 0;
}

static const char *kept_otherwise(const kvb_layer_group *g)
{
    switch (g->kind) {
    case KVB_LAYER_WINDOW:
    case KVB_LAYER_CHUNK:
        return "windows are kept whole";
    case KVB_LAYER_LATENT:
        return "the latent row is kept as K and, without rope, as V";
    default:
        return "";
    }
}

static kvb_model_facts facts_of(const kvb_layer_group *g)
{
    bool latent = g->kind == KVB_LAYER_LATENT;
    kvb_model_facts facts = {
        .layers = g->n,
        .kv_heads = latent ? 1 : g->kv_heads,
        .k_dim = latent ? g->latent_dim + g->rope_dim : g->k_dim,
        .v_dim = latent ? g->latent_dim : g->v_dim,
    };
    facts.heads = facts.kv_heads && g->heads % facts.kv_heads == 0 && g->heads ? g->heads : facts.kv_heads;
    return facts;
}

/* Heads that only ask do not matter to what is kept. */
static bool same_rows(const kvb_model_facts *a, const kvb_model_facts *b)
{
    return a->kv_heads == b->kv_heads && a->k_dim == b->k_dim && a->v_dim == b->v_dim;
}

void kvb_size_geometries(const kvb_model *model, kvb_size_geometry *geometries, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < model->n_groups; i++) {
        const kvb_layer_group *g = &model->groups[i];
        if (!has_rows(g))
            continue;
        kvb_model_facts facts = facts_of(g);
        size_t at = 0;
        while (at < *n && !same_rows(&geometries[at].facts, &facts))
            at++;
        if (at < *n) {
            geometries[at].facts.layers += facts.layers;
            if (!*geometries[at].kept)
                geometries[at].kept = kept_otherwise(g);
        } else {
            geometries[(*n)++] = (kvb_size_geometry){facts, kept_otherwise(g)};
        }
    }
}

const char *kvb_size_not_held(const kvb_model *model, size_t at, char *text, size_t bytes)
{
    for (size_t i = 0; i < model->n_groups; i++) {
        const kvb_layer_group *g = &model->groups[i];
        bool parts[] = {g->kind == KVB_LAYER_STATE, has_rows(g) && g->index_dim > 0};
        const char *const lacks[] = {"recurrent states", "the keys of an indexer"};
        for (size_t p = 0; p < 2; p++) {
            if (!parts[p] || at-- > 0)
                continue;
            snprintf(text, bytes, "%u layers of %s: no cache for %s", g->n, g->name, lacks[p]);
            return text;
        }
    }
    return NULL;
}
