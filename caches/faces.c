/* SPDX-License-Identifier: Apache-2.0 */
/* What caches differ in, and the words for it. */
#include "caches/cache.h"

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
    {KVB_CACHE_SAVES, KVB_CACHE_SAVES, "save and load", "save and load"},
    {KVB_CACHE_PREFIX, KVB_CACHE_PREFIX, "prefix matches", "seq_match"},
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
