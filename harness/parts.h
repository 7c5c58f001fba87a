/* SPDX-License-Identifier: Apache-2.0 */
/* All parts that a run can combine: the built-in plug-in and those loaded with --plugin, one mechanism. */
#ifndef KVB_PARTS_H
#define KVB_PARTS_H

#include "caches/cache.h"
#include "kernels/attend.h"

typedef enum kvb_sort { KVB_SORT_KERNEL, KVB_SORT_CACHE, KVB_SORT_POOL, KVB_SORTS } kvb_sort;

typedef struct kvb_part {
    const char *name, *summary;
    const char *from;       /* the plug-in's name */
    const void *definition; /* kvb_kernel, kvb_cache_type or kvb_pool_type */
} kvb_part;

#define KVB_MAX_PARTS 128u /* of each sort */

typedef struct kvb_parts {
    kvb_part at[KVB_SORTS][KVB_MAX_PARTS];
    size_t n[KVB_SORTS];
} kvb_parts;

extern const kvb_plugin_v1 kvb_builtin_plugin;
extern const char *const kvb_sort_names[KVB_SORTS]; /* "kernel", "cache", "pool" */

/* The built-in parts. */
void kvb_parts_init(kvb_parts *parts);
/*
 * Load a shared object and add what its kvb_plugin lists. -EINVAL with why: not loadable, no such symbol,
 * another ABI version, a part without a name or a function, or a name that is taken; parts are then as
 * they were. A plug-in stays loaded until the process ends.
 */
int kvb_parts_load(kvb_parts *parts, const char *path, char *why, size_t why_bytes);

/* The definition of that name, or NULL. */
const void *kvb_part_find(const kvb_parts *parts, kvb_sort sort, const char *name);
/* "a, b, c": the names of one sort, for messages. */
void kvb_parts_known(const kvb_parts *parts, kvb_sort sort, char *text, size_t bytes);

#endif
