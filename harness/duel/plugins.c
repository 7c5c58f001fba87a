/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of two plug-ins, found by their names. */
#include "harness/duel/plugins.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "results/statistics.h"

/* What the new side has and the base lacks. */
static int rest_add(kvb_duel *duel, kvb_registry_kind sort, const char *path, char *why, size_t why_bytes)
{
    const kvb_registry *new = &duel->side[KVB_DUEL_NEW];
    kvb_registry *all = &duel->all;
    for (size_t i = 0; i < new->n[sort]; i++) {
        const kvb_registered *part = &new->at[sort][i];
        if (kvb_registry_find(all, sort, part->name))
            continue;
        if (all->n[sort] == KVB_REGISTRY_MAX) {
            snprintf(why, why_bytes, "%s: more than %u parts of sort %s together with the base", path, KVB_REGISTRY_MAX,
                     kvb_registry_kind_names[sort]);
            return -EINVAL;
        }
        all->at[sort][all->n[sort]++] = *part;
    }
    return 0;
}

static size_t parts_count(const kvb_registry *registry)
{
    size_t n = 0;
    for (int sort = 0; sort < KVB_REGISTRY_KINDS; sort++)
        n += registry->n[sort];
    return n;
}

/* A file's bytes in memory, under a number of its own: the loader takes it for another plug-in. */
static int copy_make(const char *path, int *copy, char *why, size_t why_bytes)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *copy = memfd_create("kvbench plug-in", MFD_CLOEXEC);
    bool done = file >= 0 && *copy >= 0 && !fstat(file, &about);
    for (off_t left = done ? about.st_size : 0; done && left > 0;) {
        ssize_t n = sendfile(*copy, file, NULL, (size_t)left);
        done = n > 0;
        left -= n;
    }
    int error = done ? 0 : errno ? -errno : -EIO;
    if (error)
        snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
    if (file >= 0)
        close(file);
    return error;
}

int kvb_duel_load(kvb_duel *duel, const char *base, const char *new, char *why, size_t why_bytes)
{
    const char *paths[KVB_DUEL_SIDES] = {base, new};
    int error = 0;
    *duel = (kvb_duel){.copy = {-1, -1}};
    kvb_registry_init(&duel->built_in);
    for (int side = 0; side < KVB_DUEL_SIDES && !error; side++) {
        duel->side[side] = duel->built_in;
        error = kvb_registry_load(&duel->side[side], paths[side], why, why_bytes);
        if (!error)
            error = copy_make(paths[side], &duel->copy[side], why, why_bytes);
    }
    if (!error && parts_count(&duel->side[KVB_DUEL_BASE]) == parts_count(&duel->built_in)) {
        snprintf(why, why_bytes, "%s: lists no kernel, cache or pool: there is nothing to compare with", base);
        error = -EINVAL;
    }
    duel->all = duel->side[KVB_DUEL_BASE];
    for (int sort = 0; sort < KVB_REGISTRY_KINDS && !error; sort++)
        error = rest_add(duel, (kvb_registry_kind)sort, new, why, why_bytes);
    return error;
}

void kvb_duel_close(kvb_duel *duel)
{
    for (int side = 0; side < KVB_DUEL_SIDES; side++)
        if (duel->copy[side] >= 0)
            close(duel->copy[side]);
}

static const void *part_find(const kvb_registry *registry, kvb_registry_kind sort, const char *name)
{
    const void *found = kvb_registry_find(registry, sort, name);
    for (size_t i = 0; i < registry->n[KVB_POOLS] && sort == KVB_POOLS && !found; i++) {
        const kvb_pool_type *plain = registry->at[sort][i].definition;
        if (plain->rotated && !strcmp(plain->rotated->name, name))
            found = plain->rotated;
    }
    return found;
}

const void *kvb_duel_part(const kvb_duel *duel, int side, kvb_registry_kind sort, const char *name)
{
    return part_find(&duel->side[side], sort, name);
}

bool kvb_duel_concerns(const kvb_duel *duel, const kvb_result *names)
{
    return !part_find(&duel->built_in, KVB_KERNELS, names->kernel) ||
           !part_find(&duel->built_in, KVB_CACHES, names->cache) ||
           !part_find(&duel->built_in, KVB_POOLS, names->pool_k) ||
           !part_find(&duel->built_in, KVB_POOLS, names->pool_v);
}

int kvb_duel_enter(const void *corner, kvb_replay_options *replay, char *why, size_t why_bytes)
{
    static kvb_registry registry; /* of this process */
    const kvb_duel_corner *c = corner;
    char path[64];
    kvb_registry_init(&registry);
    snprintf(path, sizeof path, "/proc/self/fd/%d", c->duel->copy[c->side]);
    int error = kvb_registry_load(&registry, path, why, why_bytes);
    if (error)
        return error;
    replay->kernel = part_find(&registry, KVB_KERNELS, replay->kernel->name);
    replay->scan = part_find(&registry, KVB_KERNELS, replay->scan->name);
    replay->cache = part_find(&registry, KVB_CACHES, replay->cache->name);
    replay->k_pool = part_find(&registry, KVB_POOLS, replay->k_pool->name);
    replay->v_pool = part_find(&registry, KVB_POOLS, replay->v_pool->name);
    if (replay->kernel && replay->scan && replay->cache && replay->k_pool && replay->v_pool)
        return 0;
    snprintf(why, why_bytes, "the plug-in does not list the same parts when it is loaded again");
    return -EINVAL;
}

double kvb_duel_null(const kvb_result *a, const kvb_result *b)
{
    double pairs[2 * KVB_SERIES];
    size_t n = 0;
    for (; n < a->time.n_series && n < b->time.n_series; n++) {
        pairs[2 * n] = a->time.series[n];
        pairs[2 * n + 1] = b->time.series[n];
    }
    return kvb_null_difference(pairs, 2 * n);
}
