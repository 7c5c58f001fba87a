/* SPDX-License-Identifier: Apache-2.0 */
/* A sized model as kvbench's caches hold it: layers in groups of equal rows and equal limits. */
#ifndef KVB_SIZE_CACHE_MODEL_H
#define KVB_SIZE_CACHE_MODEL_H

#include "caches/cache.h"
#include "harness/selection/registry.h"
#include "harness/size/model.h"
#include "harness/size/sizing.h"
#include "kernels/model.h"

/* A model by a config.json, a folder that holds one, "-" (standard input), a GGUF file, an index or file of safetensors
 * beside a config.json, or a built-in name. 0 with *model (free it); else a negative errno and one line in why that names file and field. */
int kvb_size_open(const char *word, kvb_sized_model **model, char *why, size_t why_bytes);

/* For sequences of `context` tokens: a window that limits none of them is left out. State: dtype of recurrent states,
 * NULL: f32. 0; -ENOTSUP with why: no layer keeps rows or states, or the layers are more, or of more kinds, than a
 * kvb_model holds. */
int kvb_size_cache_model(const kvb_sized_model *sized, uint64_t context, const char *state, kvb_model *model, char *why,
                         size_t why_bytes);

/* The same groups with at most so many layers each. */
void kvb_size_few_layers(const kvb_model *model, uint32_t most, kvb_model *few);

/* The shape in which a model replays a history: one layer of each of its kinds. name: of `kvbench size --list`, or a
 * config.json. The caller frees *sized. 0, or a negative errno with why. */
int kvb_size_shape(const char *name, kvb_sized_model **sized, kvb_model *shape, char *why, size_t why_bytes);
/* The name behind its owner's: readers of records take a word with a slash for a path. NULL: NULL. */
const char *kvb_size_label(const kvb_sized_model *sized);

/* What kvbench has no cache for: the reason ("24 layers of RWKV: no cache for that recurrence"), or NULL: nothing. `at`
 * counts from 0 over all such parts. */
const char *kvb_size_not_held(const kvb_sized_model *model, size_t at, char *text, size_t bytes);

/* kvbench's own caches as an engine of `kvbench size`. */

/*
 * Where layers have windows: `window`, prefill in chunks of at most 256; else `contiguous` for one sequence and `seq`
 * for more, in chunks of ask->batch. Growth `double` with the capacity that was asked for, the last token alone. The
 * figure is all that the cache's allocator holds: rows, pools and tables.
 */
extern const kvb_size_engine kvb_size_engine_kvbench;

/* Steps that caches have taken for it in this process. */
uint64_t kvb_size_steps_played(void);

/* The built-in pool of that name: that of the format of the same name. NULL: none. */
const kvb_pool_type *kvb_size_pool_find(const char *name);

/*
 * `kvbench size --verify`: are sizes that are counted those that are allocated? A model's caches are opened twice, with
 * pools that are counted and with pools that are there; both take the same steps, and their allocators must hold the
 * same bytes after each, for every cache, format and growth policy. Layers of one shape take equal memory, so a few of
 * them are enough; how many is said.
 */

/* What is to be verified. Zero fields mean their default. */
typedef struct kvb_size_asked {
    const kvb_cache_type *const *caches; /* ends with NULL; all built-in ones */
    const kvb_pool_pair *pools;          /* at least one */
    size_t n_pools;
    const kvb_growth *growths; /* all */
    size_t n_growths;
    uint32_t context, sequences; /* 250 tokens each of 2; caches of one sequence take one */
    uint64_t memory;             /* bytes that a cache may take; 1 GiB, and no more than half of what is free */
} kvb_size_asked;

typedef enum kvb_size_verdict {
    KVB_SIZE_EQUAL,
    KVB_SIZE_DIFFERS,
    KVB_SIZE_UNAVAILABLE,
    KVB_SIZE_VERDICTS
} kvb_size_verdict;
extern const char *const kvb_size_verdict_names[KVB_SIZE_VERDICTS]; /* "equal", "differs", "unavailable" */

/* One cache of the model. Bytes are those at the first difference, else at the end. */
typedef struct kvb_size_verified {
    const kvb_cache_type *cache; /* NULL: layers that kvbench has no cache for */
    kvb_model model;             /* the layers that were built */
    kvb_cache_options options;
    uint32_t layers;  /* that the model has */
    uint64_t cells;   /* tokens that were fed */
    uint64_t counted; /* bytes */
    uint64_t allocated;
    uint64_t whole; /* counted for all layers */
    kvb_size_verdict verdict;
    char why[200]; /* not equal: the reason */
} kvb_size_verified;

/* Zero at first; free() at. */
typedef struct kvb_size_verdicts {
    kvb_size_verified *at;
    size_t n, room;
    size_t count[KVB_SIZE_VERDICTS];
} kvb_size_verdicts;

/* Adds a verdict for each cache, pair of pools and policy, and one for each part that kvbench does not hold. 0,
 * whatever was found; with why: -EINVAL, more sequences or tokens than a cache takes; -ENOMEM. */
int kvb_size_verify(const kvb_sized_model *model, const kvb_size_asked *asked, kvb_size_verdicts *verdicts, char *why,
                    size_t why_bytes);

#endif
