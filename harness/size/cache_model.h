/* SPDX-License-Identifier: Apache-2.0 */
/* A sized model as kvbench's caches hold it: layers in groups of equal rows and equal limits. */
#ifndef KVB_SIZE_CACHE_MODEL_H
#define KVB_SIZE_CACHE_MODEL_H

#include "caches/cache.h"
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

/* What replays a history at the shape of a model: one layer of each of its kinds. name: of `kvbench size --list`, or a
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

#endif
