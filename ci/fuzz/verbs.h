/* SPDX-License-Identifier: Apache-2.0 */
/* A history of control calls, played on a cache and looked at after each call: verbs.c. What is wrong ends the process.
 */
#ifndef KVB_FUZZ_VERBS_H
#define KVB_FUZZ_VERBS_H

#include "ci/fuzz/rules.h"
#include "harness/faults/fault.h"
#include "workloads/trace.h"

enum { KVB_VERBS_SHAPES = 11, KVB_VERBS_LAYERS = 3, KVB_VERBS_HEADS = 2, KVB_VERBS_DIM = 512 };
enum { KVB_VERBS_ROW = KVB_VERBS_HEADS * KVB_VERBS_DIM }; /* most elements of a token's row */

/* The cache that is played on. Numbers are taken modulo how many there are. */
typedef struct verbs_setting {
    uint32_t cache, shape;   /* in kvb_verbs_types; in a table of models */
    uint32_t k_pool, v_pool; /* twice the place in kvb_builtin_pools; 1 more: with +had */
    uint32_t growth;
    const kvb_fault *fault;                                               /* planted in the cache; or NULL */
    uint32_t capacity, seq_capacity, max_seqs, min_chunk, rollback, step; /* as in kvb_cache_options */
} verbs_setting;

/* The caches that are played on, NULL at the end: the built-in ones, or in their place those of a plug-in. */
extern const kvb_cache_type *const *kvb_verbs_types;

/* ---- calls.c ----------------------------------------------------------------------------------------------------- */

/* The folder that this process, and its children, save to is there, and empty. */
void kvb_slots_open(void);
int kvb_call_make(kvb_cache *cache, const call *c); /* what the cache answers */
extern uint32_t kvb_call_found;                     /* what the last MATCH found */
extern const uint64_t *kvb_call_ordinals;
/* A scan (ci/tests/caches/states.h) of the fed tokens, in the slots that the cache names. NULL, or what is wrong with
 * the states that it leaves. */
const char *kvb_call_scan(const rules *m, kvb_cache *cache, uint32_t layer, const uint64_t *ordinals, uint32_t n);

typedef struct drawer {
    uint64_t state;
    uint32_t seqs;           /* sequences that are mostly named */
    bool no_saves, no_trees; /* what is not to be drawn: nodes that are pending keep much else from being called */
    bool prompts;            /* tokens are known, and prompts offered, where a cache can find them */
} drawer;

uint32_t kvb_draw_below(drawer *d, uint32_t n);
call kvb_draw_call(drawer *d, const rules *m);
uint32_t kvb_draw_memory(drawer *d); /* a request for memory that is to be refused; mostly 0: none */

uint32_t kvb_verbs_caches(void); /* how many there are */
/* A model of that shape, with rows that both pools take. */
void kvb_verbs_model(kvb_model *model, uint32_t shape, const kvb_pool_type *k, const kvb_pool_type *v);
uint32_t kvb_verbs_pools(void);
const kvb_pool_type *kvb_verbs_pool(uint32_t pool); /* of a setting's number */

/* The setting of a seed; what is drawn next is that seed's, too. */
verbs_setting kvb_draw_setting(drawer *d, uint32_t cache, uint64_t seed);

/* ---- verbs.c ----------------------------------------------------------------------------------------------------- */

/* The next call, and which of its requests for memory is to be refused (0: none), by what the sequences hold; false: the
 * end. */
typedef bool verbs_next(void *ctx, const rules *held, call *next, uint32_t *memory);
/* A call is made that must be taken: as an event of a trace, before it is known what the cache makes of it. */
typedef void verbs_heard(void *ctx, const kvb_model *model, const kvb_event *event);

/* What has happened: how often. */
typedef struct verbs_tally {
    uint32_t steps, masks[KVB_MASK_KINDS], scanned; /* looked at: plans; layers, by mask, or that scan */
    uint32_t refused, no_space, no_reach, no_memory;
    uint32_t joined, longer; /* copies into living sequences; sequences longer than the capacity, after a call */
    uint32_t reordered, beside, trees, loaded, found; /* beside: steps while others have nodes; found: prompts */
} verbs_tally;

/* heard: or NULL. Adds to the tally. */
void kvb_verbs_play(const verbs_setting *setting, verbs_next *next, verbs_heard *heard, void *ctx, verbs_tally *tally);

#endif
