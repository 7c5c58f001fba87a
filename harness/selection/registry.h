/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels, caches and pools that a run can combine, and which kernel runs which layers. */
#ifndef KVB_REGISTRY_H
#define KVB_REGISTRY_H

#include "harness/command_line.h"
#include "kernels/attend.h"
#include "kernels/model.h"
#include "kernels/scan.h"

/* Stands in a selection for the fastest kernel of an earlier run (kernel_support.h), until the combination is known. It
 * accepts any problem and is never called. */
extern const kvb_kernel kvb_kernel_best;

static inline bool kvb_is_witness(const kvb_kernel *kernel)
{
    return kernel->flags & KVB_KERNEL_WITNESS;
}

/* Kinds of layers: bits. */
#define KVB_LAYERS_ATTEND 1u
#define KVB_LAYERS_SCAN   2u
uint8_t kvb_model_layers(const kvb_model *model);
uint8_t kvb_kernel_layers(const kvb_kernel *kernel); /* those that it can run */

/* The kernel that runs the layers that attend, or the layers that scan: the selected one if it can, else kernel flash or
 * kernel scan. */
const kvb_kernel *kvb_kernel_attending(const kvb_kernel *kernel);
const kvb_kernel *kvb_kernel_scanning(const kvb_kernel *kernel);
/* Does the model have layers for the kernel, and does the kernel that scans support the layers that scan? If not, why. */
bool kvb_kernel_fits(const kvb_kernel *kernel, const kvb_model *model, kvb_elem out_elem, char *why, size_t why_bytes);
/* The name of the kernel that runs the other layers. "": there are none, or the kernel is a witness, which reads no
 * states. */
const char *kvb_kernel_beside(const kvb_kernel *kernel, const kvb_model *model);

/* The registry holds the parts of the built-in plug-in and of those loaded with --plugin. */
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
 * Loads a shared object and adds the parts that its kvb_plugin lists. A plug-in stays loaded until the process ends.
 * -EINVAL with why, and an unchanged registry: not loadable, no such symbol, another ABI version, a part without a name
 * or a function, or a name that is taken.
 */
int kvb_registry_load(kvb_registry *registry, const char *path, char *why, size_t why_bytes);
/* Loads each path of a list, up to the first that fails. */
int kvb_registry_load_all(kvb_registry *registry, const kvb_words *paths, char *why, size_t why_bytes);

/* The definition of that name, or NULL. */
const void *kvb_registry_find(const kvb_registry *registry, kvb_registry_kind kind, const char *name);
/* The kernel of that name, if it attends; or NULL. */
const struct kvb_kernel *kvb_registry_attending(const kvb_registry *registry, const char *name);
/* "a, b, c": the names of one kind, for messages. attending: of the kernels that attend. */
void kvb_registry_names(const kvb_registry *registry, kvb_registry_kind kind, bool attending, char *text, size_t bytes);

/*
 * Words of --pool:
 *   f16                       both sides; a glob: each match on both sides
 *   q4_0+had                  after a Hadamard transform; any pool or glob with such a form
 *   kivi4                     two pools that belong together: K per channel, V per token
 *   k=a8g64,v=a4g64+had       one pool for each side
 */

typedef struct kvb_pool_pair {
    const struct kvb_pool_type *k, *v;
} kvb_pool_pair;

/* Names for pairs; the last has name NULL. */
typedef struct kvb_pool_alias {
    const char *name, *k, *v, *summary;
} kvb_pool_alias;
extern const kvb_pool_alias kvb_pool_aliases[];

/* Adds the pairs that the word names to pairs [max], of which *n are filled; none is added twice. 0; -EINVAL with why,
 * which lists the known names; -E2BIG. */
int kvb_pool_word_take(const char *word, const kvb_registry *registry, kvb_pool_pair *pairs, size_t max, size_t *n,
                       char *why, size_t why_bytes);

#endif
