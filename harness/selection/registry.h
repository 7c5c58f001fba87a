/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of all kernels, caches and pools that a run can combine: the built-in plug-in and those loaded with
 * --plugin. */
#ifndef KVB_REGISTRY_H
#define KVB_REGISTRY_H

#include "harness/command_line.h"

typedef enum kvb_registry_kind { KVB_KERNELS, KVB_CACHES, KVB_POOLS, KVB_REGISTRY_KINDS } kvb_registry_kind;

typedef struct kvb_registered {
    const char *name, *summary;
    const char *from;       /* the plug-in's name */
    const void *definition; /* kvb_kernel, kvb_cache_type or kvb_pool_type */
} kvb_registered;

#define KVB_REGISTRY_MAX 128u /* of each kind */

typedef struct kvb_registry {
    kvb_registered at[KVB_REGISTRY_KINDS][KVB_REGISTRY_MAX];
    size_t n[KVB_REGISTRY_KINDS];
} kvb_registry;

extern const struct kvb_plugin_v1 kvb_builtin_plugin;
extern const char *const kvb_registry_kind_names[KVB_REGISTRY_KINDS]; /* "kernel", "cache", "pool" */

/* Makes a registry of the built-in parts. */
void kvb_registry_init(kvb_registry *registry);
/*
 * Load a shared object and add what its kvb_plugin lists. -EINVAL with why: not loadable, no such symbol,
 * another ABI version, a part without a name or a function, or a name that is taken; the registry is then as
 * it was. A plug-in stays loaded until the process ends.
 */
int kvb_registry_load(kvb_registry *registry, const char *path, char *why, size_t why_bytes);
/* The same for each path of a list, up to the first that fails. */
int kvb_registry_load_all(kvb_registry *registry, const kvb_words *paths, char *why, size_t why_bytes);

/* The definition of that name, or NULL. */
const void *kvb_registry_find(const kvb_registry *registry, kvb_registry_kind kind, const char *name);
/* The kernel of that name, if it attends; or NULL. */
const struct kvb_kernel *kvb_registry_attending(const kvb_registry *registry, const char *name);
/* "a, b, c": the names of one kind, for messages; of kernels those that attend, too. */
void kvb_registry_names(const kvb_registry *registry, kvb_registry_kind kind, char *text, size_t bytes);
void kvb_registry_attending_names(const kvb_registry *registry, char *text, size_t bytes);

#endif
