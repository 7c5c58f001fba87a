/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h: what a runner sees of a KV cache. A cache joins bookkeeping (integers) with pools (bytes): it
 * decides where a step's rows are stored and declares, as a kvb_attend_spec, how its read is to be
 * attended. It never attends.
 *
 * One step:
 *     begin_step / propose        make the plan (once; shared by all layers)
 *     feed                        which tokens' rows the plan wants, in order
 *     update_and_fetch x layers   store K and V of the fed tokens, get the spec
 * then the next control call. The faces are capability: asking a cache for a face it lacks gives NULL.
 *
 * Rules that every cache keeps (design, section 5), asserted by ci/tests/caches:
 *  1. The plan is made once per step. begin_step, seq_cp, seq_rm, seq_keep, propose, commit, rewind and
 *     clear invalidate it: update_and_fetch without a valid plan is -EINVAL.
 *  2. A query sees a cell iff the cell is occupied, belongs to the query's sequence, and its position is
 *     not above the query's. In a tree: the committed prefix, its ancestors and itself.
 *  3. A fork copies no bytes; a cell is freed when its last sequence leaves; shared rows are never
 *     written. (slab is the exception by definition: its rows are private, so a fork is a copy.)
 *  4. Reads are bounded by occupancy, never by capacity.
 *  5. can_extend is the admission test. A step that does not fit fails whole with -ENOSPC (or -ENOMEM)
 *     and changes nothing.
 *  6. CAUSAL is only returned when the new queries are the tail of the read window.
 *  7. Memory grows lazily from min_chunk and is bounded by capacity. (slab preallocates by definition.)
 *  8. One sequence, no holes, queries at the tail: contiguous write, no mask (NONE) or CAUSAL.
 *  9. The storage format is the pool's; the output dtype belongs to the call. Neither constrains the other.
 * 10. Model facts come from a versioned metadata block (caches/metadata.h).
 *
 * Tokens have an ordinal: the cache numbers them 0, 1, 2, ... in the order in which begin_step and
 * propose admit them, counted since open. feed() speaks in ordinals; a runner that keeps each token's
 * rows (or its id and position) under the same count can hand in whatever is asked for.
 *
 * Errors: 0 or a negative errno. -EINVAL: a call that breaks the protocol or names what does not exist;
 * -ENOSPC: capacity; -ENOMEM: allocation; -ENOTSUP: this cache cannot do that (why says what it can).
 * One thread at a time per cache. Sequence ids are 0 .. 63; positions are 0-based within a sequence.
 */
#ifndef KVB_CACHE_H
#define KVB_CACHE_H

#include "caches/allocator.h"
#include "caches/metadata.h"
#include "caches/pools/pool.h"
#include "kernels/attend.h"

#define KVB_MAX_SEQS 64u
#define KVB_POS_END  UINT32_MAX /* as p1: to the end of the sequence */

typedef struct kvb_cache kvb_cache;

/* What the caller wants. Model facts are not here. */
typedef struct kvb_cache_options {
    uint32_t capacity;     /* most cells in use at once */
    uint32_t seq_capacity; /* longest sequence, in tokens (slab: cells of one row) */
    uint32_t max_seqs;     /* most sequences alive at once, 1 .. 64 (slab: rows) */
    uint32_t min_chunk;    /* cells of the first growth */
    kvb_growth growth;     /* of the pools */
    const kvb_pool_type *k_pool, *v_pool;
    /* [layers][kv_heads] largest magnitudes to expect, as kvb_pool_options.amax; NULL: unknown. Read by open() only. */
    const float *k_amax, *v_amax;
    kvb_allocator *allocator; /* outlives the cache */
} kvb_cache_options;

/* Counts for the memory record. */
typedef struct kvb_cache_usage {
    uint32_t cells_live;    /* occupied now */
    uint32_t cells_peak;    /* most occupied at once */
    uint32_t high_water;    /* largest cell index ever in use + 1 */
    uint64_t cells_written; /* rows stored since open, per layer */
    uint64_t cells_moved;   /* rows copied inside the pools (clone, commit), per layer */
    uint64_t growths;       /* of pools since open */
    uint64_t copied_bytes;  /* by growing, all pools since open */
    uint64_t copy_ns;       /* that took */
    size_t reserved_bytes;  /* held by all pools now */
} kvb_cache_usage;

/* ---- faces -------------------------------------------------------------------------------------- */

/* Every cache. The step functions of the base face work on sequence 0. */
typedef struct kvb_base_face {
    bool (*can_extend)(const kvb_cache *cache, uint32_t n);
    uint32_t (*capacity)(const kvb_cache *cache); /* cells */
    uint32_t (*length)(const kvb_cache *cache);   /* tokens of sequence 0 */
    int (*clear)(kvb_cache *cache);               /* forget every token; keeps its memory */
    /* Plan n more tokens of sequence 0, at positions length .. length+n-1. */
    int (*begin_step)(kvb_cache *cache, uint32_t n);
    void (*usage)(const kvb_cache *cache, kvb_cache_usage *usage);
} kvb_base_face;

/* Several sequences. p0 <= p < p1 names positions; p1 may be KVB_POS_END. */
typedef struct kvb_seq_face {
    /* Plan one token for each entry of seq_ids, at the next position of its sequence (largest + 1;
     * 0 in an empty one, which thereby comes to life). A sequence may appear many times. */
    int (*begin_step)(kvb_cache *cache, const uint32_t *seq_ids, uint32_t n);
    /* dst also holds src's tokens of that range. dst must be empty. */
    int (*seq_cp)(kvb_cache *cache, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1);
    int (*seq_rm)(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1);
    int (*seq_keep)(kvb_cache *cache, uint32_t seq);           /* drop every other sequence */
    uint32_t (*seq_len)(const kvb_cache *cache, uint32_t seq); /* next position; 0 when empty */
} kvb_seq_face;

/* One sequence with speculative nodes past its committed end. */
typedef struct kvb_tree_face {
    /* Plan n more pending nodes, numbered on from those already pending. parents[i] is the number of an
     * earlier node, or -1: child of the committed end. Position = committed length + depth (root 0). */
    int (*propose)(kvb_cache *cache, const int32_t *parents, uint32_t n);
    /* Keep the path accepted[0..n-1] (first a root, each the child of the one before), drop the other
     * pending nodes. n = 0 drops all. */
    int (*commit)(kvb_cache *cache, const uint32_t *accepted, uint32_t n);
    uint32_t (*pending)(const kvb_cache *cache);
} kvb_tree_face;

/* One sequence that can be cut back. */
typedef struct kvb_contiguous_face {
    int (*rewind)(kvb_cache *cache, uint32_t len); /* keep positions 0 .. len-1 */
} kvb_contiguous_face;

/* Bytes. */
typedef struct kvb_byte_face {
    /* Ordinals of the tokens whose rows this step's plan wants, in order; the step's new tokens are the
     * last ones. All caches but recompute want the new tokens only. Returns the count, 0 without a plan.
     * The array belongs to the cache and lives as long as the plan. */
    uint32_t (*feed)(const kvb_cache *cache, const uint64_t **ordinals);
    /* Store k [n_tok][kv_heads][k_dim] and v [n_tok][kv_heads][v_dim] of the fed tokens for one layer and
     * say how to attend. positions [n_tok] must be those of the plan (-EINVAL otherwise). The queries of
     * the spec are the fed tokens, in order. spec points into the cache: valid until the next call that
     * changes the cache. Layers may come in any order. */
    int (*update_and_fetch)(kvb_cache *cache, uint32_t layer, const uint32_t *positions, const float *k, const float *v,
                            uint32_t n_tok, kvb_attend_spec *spec);
} kvb_byte_face;

/* ---- types --------------------------------------------------------------------------------------- */

/* A kind of cache. The faces it lacks are NULL. */
typedef struct kvb_cache_type {
    const char *name;    /* what --cache takes */
    const char *summary; /* one line for `kvbench list` */
    const kvb_base_face *base;
    const kvb_byte_face *bytes;
    const kvb_seq_face *seq;
    const kvb_tree_face *tree;
    const kvb_contiguous_face *contiguous;
    /* 0 with *cache, or a negative errno with why. */
    int (*open)(const struct kvb_cache_type *type, const kvb_model_facts *facts, const kvb_cache_options *options,
                kvb_cache **cache, char *why, size_t why_bytes);
    void (*close)(kvb_cache *cache);
    size_t struct_bytes; /* what the struct takes; built-in caches only, nobody reads it of others */
} kvb_cache_type;

/* Every cache begins with its type and the last error; the rest is its own. */
struct kvb_cache {
    const kvb_cache_type *type;
    char why[160]; /* one line about the last call that failed */
};

static inline const kvb_base_face *kvb_cache_base(const kvb_cache *c)
{
    return c->type->base;
}
static inline const kvb_byte_face *kvb_cache_bytes(const kvb_cache *c)
{
    return c->type->bytes;
}
static inline const kvb_seq_face *kvb_cache_seq(const kvb_cache *c)
{
    return c->type->seq;
}
static inline const kvb_tree_face *kvb_cache_tree(const kvb_cache *c)
{
    return c->type->tree;
}
static inline const kvb_contiguous_face *kvb_cache_contiguous(const kvb_cache *c)
{
    return c->type->contiguous;
}

extern const kvb_cache_type kvb_cache_recompute;  /* base, seq, tree, contiguous: forgets all bytes */
extern const kvb_cache_type kvb_cache_slab;       /* base, seq: one preallocated row per sequence */
extern const kvb_cache_type kvb_cache_contig;     /* base, contiguous: one growing sequence */
extern const kvb_cache_type kvb_cache_seq_cells;  /* base, seq: cells shared by sequences */
extern const kvb_cache_type kvb_cache_tree_nodes; /* base, tree: committed prefix + pending nodes */

extern const kvb_cache_type *const kvb_builtin_caches[]; /* ends with NULL */

#endif
