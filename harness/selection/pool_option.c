/* SPDX-License-Identifier: Apache-2.0 */
/* Turns words of --pool into pairs of pools. */
#include "harness/selection/pool_option.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "caches/pools/pool.h"
#include "results/near_name.h"
#include "results/result.h"

#define HADAMARD "+had"

const kvb_pool_alias kvb_pool_aliases[] = {
    {"kivi4", "kivi4-k", "kivi4-v", "KIVI with 4 bits: k=kivi4-k,v=kivi4-v"},
    {"kivi2", "kivi2-k", "kivi2-v", "KIVI with 2 bits: k=kivi2-k,v=kivi2-v"},
    {NULL, NULL, NULL, NULL},
};

/* Cuts "+had" off the end of name, if it is there. */
static bool hadamard_cut(char *name)
{
    size_t n = strlen(name), had = sizeof HADAMARD - 1;
    if (n <= had || strcmp(name + n - had, HADAMARD))
        return false;
    name[n - had] = '\0';
    return true;
}

static int unknown(const char *word, const kvb_registry *registry, char *why, size_t why_bytes)
{
    char known[1024];
    kvb_registry_names(registry, KVB_POOLS, known, sizeof known);
    size_t used = strlen(known);
    for (const kvb_pool_alias *a = kvb_pool_aliases; a->name && used < sizeof known; a++)
        used += (size_t)snprintf(known + used, sizeof known - used, ", %s", a->name);
    if (used < sizeof known)
        snprintf(known + used, sizeof known - used, "; each also with +had");
    return kvb_name_unknown("unknown pool", word, known, why, why_bytes);
}

/* The pool, or its transformed form; NULL with why. */
static const kvb_pool_type *form_of(const kvb_pool_type *pool, bool had, char *why, size_t why_bytes)
{
    if (!had)
        return pool;
    if (!pool->rotated)
        snprintf(why, why_bytes, "pool '%s' has no form with +had%s; without it it works", pool->name,
                 pool->format->transform ? ": it transforms rows already" : "");
    return pool->rotated;
}

/* One side by its exact name. */
static int side_take(const char *name, bool is_v, const kvb_registry *registry, const kvb_pool_type **pool, char *why,
                     size_t why_bytes)
{
    char plain[KVB_NAME];
    snprintf(plain, sizeof plain, "%s", name);
    *pool = kvb_registry_find(registry, KVB_POOLS, plain); /* a plug-in's pool may be called anything */
    if (*pool)
        return 0;
    bool had = hadamard_cut(plain);
    for (const kvb_pool_alias *a = kvb_pool_aliases; a->name; a++)
        if (!strcmp(plain, a->name))
            snprintf(plain, sizeof plain, "%s", is_v ? a->v : a->k);
    *pool = kvb_registry_find(registry, KVB_POOLS, plain);
    if (!*pool)
        return unknown(name, registry, why, why_bytes);
    *pool = form_of(*pool, had, why, why_bytes);
    return *pool ? 0 : -EINVAL;
}

static int pair_add(const kvb_pool_type *k, const kvb_pool_type *v, kvb_pool_pair *pairs, size_t max, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (pairs[i].k == k && pairs[i].v == v)
            return 0;
    if (*n == max)
        return -E2BIG;
    pairs[(*n)++] = (kvb_pool_pair){k, v};
    return 0;
}

static bool is_alias(const char *word)
{
    char plain[KVB_NAME];
    snprintf(plain, sizeof plain, "%s", word);
    hadamard_cut(plain);
    for (const kvb_pool_alias *a = kvb_pool_aliases; a->name; a++)
        if (!strcmp(plain, a->name))
            return true;
    return false;
}

int kvb_pool_word_take(const char *word, const kvb_registry *registry, kvb_pool_pair *pairs, size_t max, size_t *n,
                       char *why, size_t why_bytes)
{
    char k[KVB_NAME], v[KVB_NAME], glob[KVB_NAME];
    const kvb_pool_type *kp, *vp;
    char rest;
    int fields = sscanf(word, "k=%63[^,],v=%63[^,]%c", k, v, &rest);
    if (fields == 2 || is_alias(word)) {
        const char *both = fields == 2 ? NULL : word;
        int error = side_take(both ? both : k, false, registry, &kp, why, why_bytes);
        if (!error)
            error = side_take(both ? both : v, true, registry, &vp, why, why_bytes);
        return error ? error : pair_add(kp, vp, pairs, max, n);
    }
    if (strchr(word, '=')) {
        snprintf(why, why_bytes, "pool '%s': the sides apart are written k=NAME,v=NAME", word);
        return -EINVAL;
    }
    snprintf(glob, sizeof glob, "%s", word);
    bool had = !kvb_registry_find(registry, KVB_POOLS, word) && hadamard_cut(glob), any = false;
    int error = 0;
    for (size_t i = 0; i < registry->n[KVB_POOLS] && !error; i++) {
        const kvb_pool_type *pool = registry->at[KVB_POOLS][i].definition;
        if (fnmatch(glob, pool->name, 0))
            continue;
        const kvb_pool_type *form = form_of(pool, had, why, why_bytes);
        if (!form && strcmp(glob, pool->name))
            continue; /* a glob skips what is missing */
        any = true;
        error = form ? pair_add(form, form, pairs, max, n) : -EINVAL;
    }
    return any || error ? error : unknown(word, registry, why, why_bytes);
}
