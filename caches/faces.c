/* SPDX-License-Identifier: Apache-2.0 */
/* What caches differ in, and the words for it; what they can be opened with. */
#include "caches/store_host.h"

#include <errno.h>
#include <stdio.h>

static const struct {
    uint32_t flag, does; /* any flag of `does` will do */
    const char *call;    /* NULL: no call */
    const char *lack;
} faces[] = {
    {KVB_CACHE_SEQ, KVB_CACHE_SEQ, "sequences", "several sequences"},
    {KVB_CACHE_REORDER, KVB_CACHE_REORDER, "reordering", "reordering of sequences"},
    {KVB_CACHE_TREE, KVB_CACHE_TREE, "draft trees", "propose and commit"},
    {KVB_CACHE_REWIND, KVB_CACHE_REWIND | KVB_CACHE_SEQ, "rewind", "rewind"},
    {KVB_CACHE_SHIFT, KVB_CACHE_SHIFT, "position shifts", "seq_add"},
    {KVB_CACHE_DIVIDE, KVB_CACHE_DIVIDE, "position division", "seq_div"},
    {KVB_CACHE_SAVES, KVB_CACHE_SAVES, "save and load", "save and load"},
    {KVB_CACHE_PREFIX, KVB_CACHE_PREFIX, "prefix matches", "seq_match"},
    {KVB_CACHE_FREEZES, KVB_CACHE_FREEZES, "frozen prefixes", "freeze and seq_over"},
    {KVB_CACHE_EXACT, KVB_CACHE_EXACT, NULL, "an exact capacity, by which steps are to be refused"},
};
#define N_FACES (sizeof faces / sizeof *faces)

const char *kvb_cache_lacks(const kvb_cache_type *type, uint32_t flags)
{
    for (size_t i = 0; i < N_FACES; i++)
        if (flags & faces[i].flag && !(type->flags & faces[i].does))
            return faces[i].lack;
    return NULL;
}

void kvb_cache_can(const kvb_cache_type *type, char *text, size_t bytes)
{
    size_t at = 0;
    *text = '\0';
    for (size_t i = 0; i < N_FACES && at < bytes; i++)
        if (faces[i].call && type->flags & faces[i].does)
            at += (size_t)snprintf(text + at, bytes - at, ", %s", faces[i].call);
}

bool kvb_cache_takes(const kvb_cache_type *type, const kvb_pool_type *k_pool, const kvb_pool_type *v_pool, char *why,
                     size_t why_bytes)
{
    const kvb_pool_type *pools[] = {k_pool, v_pool};
    for (int v = 0; v < 2 && type->flags & KVB_CACHE_FREEZES; v++)
        if (pools[v]->format->residual_cells || !pools[v]->raw_bytes) {
            snprintf(why, why_bytes, "cache %s copies rows as they are stored, which pool %s cannot", type->name,
                     pools[v]->name);
            return false;
        }
    return true;
}

int kvb_options_check(const kvb_cache_type *type, const kvb_model *model, const kvb_cache_options *o, char *why,
                      size_t why_bytes)
{
    const uint32_t n_ids = kvb_options_ids(o), most = UINT32_MAX;
    const struct {
        const char *what;
        uint32_t got, most;
        const char *of;
    } limits[] = {{"capacity", o->capacity, most, ""},
                  {"seq_capacity", o->seq_capacity, most, ""},
                  {"min_chunk", o->min_chunk, most, ""},
                  {"seq_ids", n_ids, KVB_MAX_SEQS, ""},
                  {"max_seqs", o->max_seqs, n_ids, ", the number of sequence ids"}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (!limits[i].got || limits[i].got > limits[i].most) {
            snprintf(why, why_bytes, "%s must be 1 .. %u%s", limits[i].what, limits[i].most, limits[i].of);
            return -EINVAL;
        }
    const int error = kvb_model_check(model, why, why_bytes);
    if (error)
        return error;
    if (!kvb_cache_takes(type, o->k_pool, o->v_pool, why, why_bytes) ||
        (type->serves && !type->serves(model, why, why_bytes)))
        return -ENOTSUP;
    for (uint32_t g = 0; g < model->n_groups; g++) {
        const kvb_group *group = &model->groups[g];
        if (kvb_group_scans(group))
            continue;
        if ((o->k_pool->supports && !o->k_pool->supports(o->k_pool, group->k_dim, why, why_bytes)) ||
            (!group->latent && o->v_pool->supports && !o->v_pool->supports(o->v_pool, group->v_dim, why, why_bytes)))
            return -ENOTSUP;
    }
    return 0;
}

const kvb_cache_type *const kvb_builtin_caches[] = {
    &kvb_cache_recompute, &kvb_cache_slab,         &kvb_cache_contiguous,    &kvb_cache_seq,  &kvb_cache_window,
    &kvb_cache_paged,     &kvb_cache_paged_prefix, &kvb_cache_shared_prefix, &kvb_cache_tree, NULL,
};
