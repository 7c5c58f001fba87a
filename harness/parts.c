/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins: the built-in one and loaded ones. */
#include "harness/parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "harness/best.h"
#include "kernels/kernels.h"

const kvb_plugin_v1 kvb_builtin_plugin = {
    .abi_version = KVB_ABI_VERSION,
    .name = "built-in",
    .kernels = kvb_builtin_kernels,
    .caches = kvb_builtin_caches,
    .pools = kvb_builtin_pools,
};

const char *const kvb_sort_names[KVB_SORTS] = {"kernel", "cache", "pool"};

const void *kvb_part_find(const kvb_parts *parts, kvb_sort sort, const char *name)
{
    for (size_t i = 0; i < parts->n[sort]; i++)
        if (!strcmp(parts->at[sort][i].name, name))
            return parts->at[sort][i].definition;
    return NULL;
}

void kvb_parts_known(const kvb_parts *parts, kvb_sort sort, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < parts->n[sort] && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", parts->at[sort][i].name);
}

/* What a part lacks, or NULL. */
static const char *kernel_lack(const kvb_kernel *k)
{
    if (!k->supports || !k->arithmetic || !k->attend)
        return "supports(), arithmetic() or attend()";
    return k->masks ? NULL : "masks";
}

static const char *cache_lack(const kvb_cache_type *c)
{
    if (!c->base || !c->bytes)
        return "base face or byte face";
    return c->open && c->close ? NULL : "open() or close()";
}

static const char *pool_lack(const kvb_pool_type *p)
{
    if (!p->format || !p->format->name)
        return "format";
    if (!p->open || !p->close || !p->ensure || !p->view || !p->bytes || !p->reserved)
        return "open(), close(), ensure(), view(), bytes() or reserved()";
    return p->write_run && p->scatter && p->gather_into ? NULL : "write_run(), scatter() or gather_into()";
}

/* Takes one part in, unless something is wrong with it. */
static int part_add(kvb_parts *parts, kvb_sort sort, const kvb_part *part, const char *lack, const char *path,
                    char *why, size_t why_bytes)
{
    const char *name = part->name ? part->name : "";
    if (!*name || !part->summary)
        lack = "name or summary";
    if (lack)
        snprintf(why, why_bytes, "%s: %s '%s' has no %s", path, kvb_sort_names[sort], name, lack);
    else if (kvb_part_find(parts, sort, name) || (sort == KVB_SORT_KERNEL && !strcmp(name, kvb_kernel_best.name)))
        snprintf(why, why_bytes, "%s: there is a %s '%s' already", path, kvb_sort_names[sort], name);
    else if (parts->n[sort] == KVB_MAX_PARTS)
        snprintf(why, why_bytes, "%s: more than %u parts of sort %s", path, KVB_MAX_PARTS, kvb_sort_names[sort]);
    else {
        parts->at[sort][parts->n[sort]++] = *part;
        return 0;
    }
    return -EINVAL;
}

static int plugin_add(kvb_parts *parts, const kvb_plugin_v1 *plugin, const char *path, char *why, size_t why_bytes)
{
    const char *from = plugin->name;
    int result = 0;
    for (const kvb_kernel *const *k = plugin->kernels; k && *k && !result; k++)
        result = part_add(parts, KVB_SORT_KERNEL, &(kvb_part){(*k)->name, (*k)->summary, from, *k}, kernel_lack(*k),
                          path, why, why_bytes);
    for (const kvb_cache_type *const *c = plugin->caches; c && *c && !result; c++)
        result = part_add(parts, KVB_SORT_CACHE, &(kvb_part){(*c)->name, (*c)->summary, from, *c}, cache_lack(*c), path,
                          why, why_bytes);
    for (const kvb_pool_type *const *p = plugin->pools; p && *p && !result; p++)
        result = part_add(parts, KVB_SORT_POOL, &(kvb_part){(*p)->name, (*p)->summary, from, *p}, pool_lack(*p), path,
                          why, why_bytes);
    return result;
}

void kvb_parts_init(kvb_parts *parts)
{
    char why[256];
    memset(parts, 0, sizeof *parts);
    plugin_add(parts, &kvb_builtin_plugin, "built-in", why, sizeof why);
}

int kvb_parts_load(kvb_parts *parts, const char *path, char *why, size_t why_bytes)
{
    char local[4096]; /* dlopen looks for a name without a slash in the library path */
    snprintf(local, sizeof local, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *object = dlopen(local, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        snprintf(why, why_bytes, "%s", dlerror());
        return -EINVAL;
    }
    int result = -EINVAL;
    kvb_parts more = *parts;
    const kvb_plugin_v1 *plugin = dlsym(object, KVB_PLUGIN_SYMBOL);
    if (!plugin)
        snprintf(why, why_bytes, "%s: exports no symbol '%s'", path, KVB_PLUGIN_SYMBOL);
    else if (plugin->abi_version != KVB_ABI_VERSION)
        snprintf(why, why_bytes, "%s: built for attend.h version %u, this kvbench speaks version %u; rebuild it", path,
                 plugin->abi_version, KVB_ABI_VERSION);
    else if (!plugin->name || !*plugin->name)
        snprintf(why, why_bytes, "%s: its kvb_plugin has no name", path);
    else
        result = plugin_add(&more, plugin, path, why, why_bytes);
    if (result < 0)
        dlclose(object);
    else
        *parts = more;
    return result;
}
