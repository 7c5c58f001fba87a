/* SPDX-License-Identifier: Apache-2.0 */
/* A sized model for kvbench's caches: layers in groups of equal rows and equal limits. */
#ifndef KVB_SIZE_CACHE_MODEL_H
#define KVB_SIZE_CACHE_MODEL_H

#include "caches/cache.h"
#include "harness/selection/registry.h"
#include "harness/size/model.h"
#include "harness/size/sizing.h"
#include "kernels/model.h"

/* Opens a model. word: a config.json, a folder that holds one, "-" (standard input), a GGUF file, an index or file of
 * safetensors beside a config.json, or a built-in name. 0 with *model, which the caller frees; else a negative errno, and
 * why names file and field. */
int kvb_size_open(const char *word, kvb_sized_model **model, char *why, size_t why_bytes);

/* Makes the cache's model for sequences of `context` tokens; a window that does not limit them is left out. state: dtype
 * of recurrent states; NULL: f32. 0; -ENOTSUP with why: no layer keeps rows or states, or a kvb_model cannot hold so many
 * layers, or kinds of layers. */
int kvb_size_cache_model(const kvb_sized_model *sized, uint64_t context, const char *state, kvb_model *model, char *why,
                         size_t why_bytes);

/* Copies a model with at most `most` layers in each group. */
void kvb_size_few_layers(const kvb_model *model, uint32_t most, kvb_model *few);

/* The shape in which a model replays a history: one layer of each of its kinds. name: of `kvbench size --list`, or a
 * config.json. The caller frees *sized. 0, or a negative errno with why. */
int kvb_size_shape(const char *name, kvb_sized_model **sized, kvb_model *shape, char *why, size_t why_bytes);
/* The model's name without its owner's, as readers of records take a word with a slash for a path. NULL: NULL. */
const char *kvb_size_label(const kvb_sized_model *sized);

/* Names the part of the model, counted by `at` from 0, that no cache of kvbench holds: "24 layers of RWKV: no cache for
 * that recurrence". NULL: there are no more. */
const char *kvb_size_not_held(const kvb_sized_model *model, size_t at, char *text, size_t bytes);

/* kvbench's own caches as an engine of `kvbench size`. */

/*
 * The cache is `window` if layers have windows, with prefill in chunks of at most 256 tokens; else `contiguous` for one
 * sequence and `seq` for more, in chunks of ask->batch. Growth is `double`, the capacity is what is asked for, and the
 * last token comes alone. The size is all that the cache's allocator holds: rows, pools and tables.
 */
extern const kvb_size_engine kvb_size_engine_kvbench;

/* Steps that caches have taken for this engine in this process. */
uint64_t kvb_size_steps_played(void);

/* The built-in pool with the name of this format. NULL: none. */
const kvb_pool_type *kvb_size_pool_find(const char *name);

/*
 * `kvbench size --verify` checks that caches with counted pools have the size of real ones. A model's caches are opened
 * with counted and with allocated pools. Both take the same steps, and their allocators must hold the same bytes after
 * each step, for every cache, format and growth policy. Layers of one shape take equal memory, so a few of them are
 * enough; the result has their number.
 */

/* The task of a verification. A zero field means its default, which its comment names. */
typedef struct kvb_size_asked {
    const kvb_cache_type *const *caches; /* ends with NULL; default: all built-in ones */
    const kvb_pool_pair *pools;          /* at least one */
    size_t n_pools;
    const kvb_growth *growths; /* default: all */
    size_t n_growths;
    uint32_t context, sequences; /* default: 250 tokens, 2 sequences; caches of one sequence take one */
    uint64_t memory;             /* bytes that a cache may take; default: 1 GiB, at most half of the free memory */
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
    const kvb_cache_type *cache; /* NULL: layers for which kvbench has no cache */
    kvb_model model;             /* the verified layers */
    kvb_cache_options options;
    uint32_t layers;  /* of the whole model */
    uint64_t cells;   /* fed tokens */
    uint64_t counted; /* bytes */
    uint64_t allocated;
    uint64_t whole; /* counted for all layers */
    kvb_size_verdict verdict;
    char why[200]; /* not equal: the reason */
} kvb_size_verified;

/* Zero at first; the caller frees `at`. */
typedef struct kvb_size_verdicts {
    kvb_size_verified *at;
    size_t n, room;
    size_t count[KVB_SIZE_VERDICTS];
} kvb_size_verdicts;

/* Adds a verdict for each cache, pair of pools and policy, and one for each part that kvbench does not hold. 0 for any
 * verdicts; -EINVAL with why: more sequences or tokens than a cache takes; -ENOMEM. */
int kvb_size_verify(const kvb_sized_model *model, const kvb_size_asked *asked, kvb_size_verdicts *verdicts, char *why,
                    size_t why_bytes);

#endif
