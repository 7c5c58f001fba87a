/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of layers, from what a model's configuration says to what caches are opened with. */
#include "harness/size/cache_model.h"

#include <errno.h>
#include <stdio.h>

static bool has_rows(const kvb_sized_group *g)
{
    return g->kind != KVB_SIZED_STATE && g->kind != KVB_SIZED_NONE && g->n > 0;
}

static kvb_group group_of(const kvb_sized_group *g)
{
    bool latent = g->kind == KVB_SIZED_LATENT;
    kvb_group group = {
        .kv_heads = latent ? 1 : g->kv_heads,
        .k_dim = latent ? g->latent_dim + g->rope_dim : g->k_dim,
        .v_dim = latent ? g->latent_dim : g->v_dim,
        .latent = latent,
        .window = g->kind == KVB_SIZED_WINDOW ? g->window : 0,
        .sinks = g->kind == KVB_SIZED_WINDOW ? g->sinks : 0,
        .chunk = g->kind == KVB_SIZED_CHUNK ? g->window : 0,
        .scale = 1,
    };
    group.heads = group.kv_heads && g->heads && g->heads % group.kv_heads == 0 ? g->heads : group.kv_heads;
    return group;
}

/* Heads that only ask do not matter to what is kept. */
static bool same_rows(const kvb_group *a, const kvb_group *b)
{
    return a->kv_heads == b->kv_heads && a->k_dim == b->k_dim && a->v_dim == b->v_dim && a->latent == b->latent &&
           a->window == b->window && a->sinks == b->sinks && a->chunk == b->chunk;
}

/* n layers of the group join the model: false where it does not hold so many, or so many groups. */
static bool layers_add(kvb_model *model, const kvb_group *group, uint32_t n)
{
    uint32_t at = 0;
    while (at < model->n_groups && !same_rows(&model->groups[at], group))
        at++;
    if (at == KVB_MODEL_GROUPS || n > KVB_MODEL_LAYERS - model->n_layers)
        return false;
    if (at == model->n_groups)
        model->groups[model->n_groups++] = *group;
    for (uint32_t i = 0; i < n; i++)
        model->group_of[model->n_layers++] = (uint8_t)at;
    return true;
}

int kvb_size_cache_model(const kvb_sized_model *sized, uint64_t context, kvb_model *model, char *why, size_t why_bytes)
{
    *model = (kvb_model){0};
    for (size_t i = 0; i < sized->n_groups; i++) {
        if (!has_rows(&sized->groups[i]))
            continue;
        kvb_group group = group_of(&sized->groups[i]);
        if (kvb_sized_grows(sized, &sized->groups[i], context))
            group.window = group.sinks = group.chunk = 0;
        if (layers_add(model, &group, sized->groups[i].n))
            continue;
        snprintf(why, why_bytes, "more than %u layers or %u kinds of layers", KVB_MODEL_LAYERS, KVB_MODEL_GROUPS);
        return -ENOTSUP;
    }
    if (model->n_layers)
        return kvb_model_check(model, why, why_bytes) ? -ENOTSUP : 0;
    snprintf(why, why_bytes, "no layer keeps rows");
    return -ENOTSUP;
}

void kvb_size_few_layers(const kvb_model *model, uint32_t most, kvb_model *few)
{
    *few = (kvb_model){0};
    for (uint32_t g = 0; g < model->n_groups; g++) {
        uint32_t n = kvb_model_layers_of(model, g);
        layers_add(few, &model->groups[g], n < most ? n : most);
    }
}

const char *kvb_size_not_held(const kvb_sized_model *model, size_t at, char *text, size_t bytes)
{
    for (size_t i = 0; i < model->n_groups; i++) {
        const kvb_sized_group *g = &model->groups[i];
        bool parts[] = {g->kind == KVB_SIZED_STATE, has_rows(g) && g->index_dim > 0};
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
