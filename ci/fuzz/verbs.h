/* SPDX-License-Identifier: Apache-2.0 */
/* Plays a history of control calls on a cache and checks the cache after each call. A wrong answer ends the process. */
#ifndef KVB_FUZZ_VERBS_H
#define KVB_FUZZ_VERBS_H

#include "ci/fuzz/rules.h"
#include "harness/faults/fault.h"
#include "workloads/trace.h"

enum { KVB_VERBS_SHAPES = 11, KVB_VERBS_LAYERS = 3, KVB_VERBS_HEADS = 2, KVB_VERBS_DIM = 512 };
enum { KVB_VERBS_ROW = KVB_VERBS_HEADS * KVB_VERBS_DIM }; /* most elements of a token's row */

/* The cache to play on. An index is taken modulo the size of its table. */
typedef struct verbs_setting {
    uint32_t cache, shape;   /* index in kvb_verbs_types; in a table of models (calls.c) */
    uint32_t k_pool, v_pool; /* 2 * index in kvb_builtin_pools, and 1 more for its +had form */
    uint32_t growth;
    const kvb_fault *fault;                                               /* planted in the cache; NULL: none */
    uint32_t capacity, seq_capacity, max_seqs, min_chunk, rollback, step; /* as in kvb_cache_options */
} verbs_setting;

/* The caches to play on, NULL at the end: the built-in caches, or those of a plug-in. */
extern const kvb_cache_type *const *kvb_verbs_types;

/* ---- calls.c ----------------------------------------------------------------------------------------------------- */

/* Makes or empties the folder in which this process and its children save. */
void kvb_slots_open(void);
int kvb_call_make(kvb_cache *cache, const call *c); /* what the cache answers */
extern uint32_t kvb_call_found;                     /* what the last MATCH found */
extern const uint64_t *kvb_call_ordinals;
/* Scans the fed tokens (ci/tests/caches/states.h) in the slots that the cache names. NULL, or what is wrong with the
 * states. */
const char *kvb_call_scan(const rules *m, kvb_cache *cache, uint32_t layer, const uint64_t *ordinals, uint32_t n);

typedef struct drawer {
    uint64_t state;
    uint32_t seqs; /* most calls name one of the first `seqs` sequences */
    bool prompts;  /* draws token ids, and prompts for a cache that can find them */
} drawer;

uint32_t kvb_draw_below(drawer *d, uint32_t n);
call kvb_draw_call(drawer *d, const rules *m);
uint32_t kvb_draw_memory(drawer *d); /* the request for memory to refuse, from 1 on; mostly 0: none */

uint32_t kvb_verbs_caches(void); /* number of kvb_verbs_types */
/* A model of that shape, with rows that both pools can store. */
void kvb_verbs_model(kvb_model *model, uint32_t shape, const kvb_pool_type *k, const kvb_pool_type *v);
uint32_t kvb_verbs_pools(void);
const kvb_pool_type *kvb_verbs_pool(uint32_t pool); /* k_pool or v_pool of a setting */

/* Starts *d from a seed and draws its setting; the calls that *d draws next follow from the seed, too. */
verbs_setting kvb_draw_setting(drawer *d, uint32_t cache, uint64_t seed);

/* ---- verbs.c ----------------------------------------------------------------------------------------------------- */

/* Chooses the next call from what the sequences hold. *memory: which of its requests for memory is refused, from 1 on;
 * 0: none. false: no more calls. */
typedef bool verbs_next(void *ctx, const rules *held, call *next, uint32_t *memory);
/* Gets each call that the cache must take, as an event of a trace, before the cache's answer is judged. */
typedef void verbs_heard(void *ctx, const kvb_model *model, const kvb_event *event);

/* How often each thing happened. */
typedef struct verbs_tally {
    uint32_t steps, masks[KVB_MASK_KINDS], scanned; /* plans checked; layers that attend, by mask; layers that scan */
    uint32_t refused, no_space, no_reach, no_memory;
    uint32_t joined, longer; /* copies into living sequences; sequences longer than the capacity, after a call */
    uint32_t reordered, beside, trees, loaded, found; /* beside, trees: steps, commits beside others' nodes */
} verbs_tally;

/* Plays the calls of `next`. Adds to *tally. heard: may be NULL. */
void kvb_verbs_play(const verbs_setting *setting, verbs_next *next, verbs_heard *heard, void *ctx, verbs_tally *tally);

#endif
