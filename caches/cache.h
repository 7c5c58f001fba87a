/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h: what a runner sees of a KV cache. A cache decides where a step's rows are stored and declares, as a
 * kvb_attend_spec, how its read is to be attended. It never attends. How a cache is written: caches/store.h.
 *
 * One step:
 *     begin_step / propose        make the plan (once; each group of layers has its own cells and mask)
 *     feed                        which tokens' rows the plan wants, in order
 *     update_and_fetch x layers   store K and V of the fed tokens, get the spec
 * then the next control call.
 *
 * Rules that every cache keeps, asserted by ci/tests/caches:
 *  1. The plan is made once per step. Every control call that succeeds makes the one before stale: update_and_fetch without a
 *     plan in force is -EINVAL.
 *  2. A query sees a token iff it is alive, belongs to the query's sequence, its position is not above the query's, and the
 *     layer's group lets it be seen (kernels/model.h). A node sees, by the same rule, its sequence's committed tokens, its ancestors, itself.
 *  3. A fork copies no bytes; a cell is freed when its last sequence leaves; shared rows are never
 *     written. (slab is the exception by definition: its rows are private, so a fork is a copy. shared-prefix copies rows once,
 *     when they are frozen; they are free when no sequence reads any of the front that they are in.)
 *  4. Reads are bounded by occupancy, never by capacity.
 *  5. can_extend is the admission test: yes exactly when the step would not be refused for want of room. A step that does
 *     not fit fails whole with -ENOSPC, for want of memory with -ENOMEM, and changes nothing, in no layer.
 *  6. CAUSAL is only returned when the new queries are the tail of the read cells.
 *  7. Memory grows lazily from min_chunk and is bounded by capacity. (slab preallocates by definition.)
 *  8. One sequence, no holes, queries at the tail, no limits: contiguous write, no mask (NONE) or CAUSAL.
 *  9. The storage format is the pool's; the output type belongs to the call. Neither constrains the other.
 * 10. Model facts come from a kvb_model, never from options.
 *
 * Tokens have an ordinal: the cache numbers them 0, 1, 2, ... in the order in which begin_step and
 * propose admit them, counted since open. feed speaks in ordinals; a runner that keeps each token's
 * rows (or its id and position) under the same count can hand in whatever is asked for.
 *
 * Errors: 0 or a negative errno, kvb_cache_why() says why. -EINVAL: a call that breaks the protocol or names what does not
 * exist; -ENOSPC: capacity; -ENOMEM: allocation; -ENOTSUP: this cache cannot do that (why says what it can).
 * One thread at a time per cache. Sequence ids are 0 .. seq_ids-1 (store.h); positions are 0-based within a sequence.
 */
#ifndef KVB_CACHE_H
#define KVB_CACHE_H

#include "caches/store.h"
#include "kernels/scan.h"

typedef struct kvb_cache kvb_cache;

/* How a read is to be attended. */
typedef struct kvb_attend_spec {
    const kvb_group *group; /* of the layer: heads, scale, softcap, sink logits */
    kvb_view k, v;          /* latent: v is k's place, with rows of v_dim */
    kvb_mask mask;
    uint64_t
        generation; /* of the mask: two specs of this process with one number have the same mask, for as many queries */
} kvb_attend_spec;

/*
 * How a layer that scans takes its tokens (kernels/scan.h). Token t reads its state from slot from[t] and writes the
 * next state to slot to[t]; a slot number stands for the layer's state and its convolution's state. These values
 * express forks, rollback and trees, so a kernel needs no code for them.
 */
typedef struct kvb_scan_spec {
    const kvb_group *group;       /* of the layer */
    kvb_scan_states states, conv; /* of this layer; conv.base NULL: no convolution */
    const uint32_t *from, *to;    /* [n_tok] of the feed */
    uint32_t n_tok;
} kvb_scan_spec;

/* 0 with *cache, or a negative errno with why. The model outlives the cache; type and options are copied or static. */
int kvb_cache_open(const kvb_cache_type *type, const kvb_model *model, const kvb_cache_options *options,
                   kvb_cache **cache, char *why, size_t why_bytes);
void kvb_cache_close(kvb_cache *cache); /* NULL is nothing */

const kvb_cache_type *kvb_cache_type_of(const kvb_cache *cache);
const char *kvb_cache_why(const kvb_cache *cache); /* one line about the last call that failed */
/* What the allocator holds for a cache besides pools and tables. */
size_t kvb_cache_struct_bytes(const kvb_cache_type *type, const kvb_model *model);

/* ---- steps. seq_ids [n], NULL: all of sequence 0. A sequence may appear many times ---------------------- */

bool kvb_cache_can_extend(const kvb_cache *cache, const uint32_t *seq_ids, uint32_t n);
/* Plan one token for each entry, at the next position of its sequence (largest + 1; 0 in an empty one, which thereby
 * comes to life). */
int kvb_cache_begin_step(kvb_cache *cache, const uint32_t *seq_ids, uint32_t n);
uint32_t kvb_cache_length(const kvb_cache *cache, uint32_t seq); /* next position; 0 when empty */

/* ---- sequences: KVB_CACHE_SEQ. p0 <= p < p1 names positions; p1 may be KVB_POS_END ----------------------- */

/* Of a range only what the sequence holds is meant. To copy or remove nothing, since the range or the sequence is
 * empty, succeeds. */
/* dst also holds src's tokens of that range. Where dst is alive the range is added to it; -EINVAL where both hold a
 * position. */
int kvb_cache_seq_cp(kvb_cache *cache, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1);
int kvb_cache_seq_rm(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1);
int kvb_cache_seq_keep(kvb_cache *cache, uint32_t seq); /* drop every other sequence */
/* KVB_CACHE_REORDER, as beam search does: dst[i] holds what src[i] held before, for all i < n at once; of other
 * sequences nothing changes. No dst twice (-EINVAL); a source may be named several times, and be a destination. One
 * that holds nothing empties its destination. */
int kvb_cache_seq_reorder(kvb_cache *cache, const uint32_t *dst, const uint32_t *src, uint32_t n);
/*
 * The sequence's tokens of that range move by delta positions: KVB_CACHE_SHIFT. -EINVAL where one would fall below
 * position 0, or onto or across one that stays; -ENOSPC beyond seq_capacity, or for want of cells: a token that another
 * sequence holds, too, becomes a row of its own, and the other one keeps its position. -ENOTSUP where a group's rope is
 * unknown (kernels/model.h) or a pool's format cannot turn rows: one with residual cells, or a plug-in's own.
 *
 * K rows are turned when the next step begins, by the sum of the deltas since the step before (not at all where that is
 * 0): decoded as format->read does, turned as kvb_rope_turn() does (kernels/model.h), and encoded again.
 */
int kvb_cache_seq_add(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1, int32_t delta);

/*
 * Positions of that range are divided: what is at p comes to lie at p / divisor, rounded down, so that a position may
 * hold several tokens, all of which a query at or above it sees: KVB_CACHE_DIVIDE. What engines call for Self-Extend's
 * grouped attention. Else as seq_add, also in what is refused and how rows are turned, each by its own distance;
 * -EINVAL also of divisor 0.
 */
int kvb_cache_seq_div(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1, uint32_t divisor);

/* ---- prompts that begin as others did: KVB_CACHE_PREFIX ----------------------------------------------------- */

/* begin_step with the tokens' vocabulary ids [n]: only rows of tokens that are known are found again. NULL: not known.
 */
int kvb_cache_begin_step_tokens(kvb_cache *cache, const uint32_t *seq_ids, const int32_t *tokens, uint32_t n);
/*
 * Looks for the n tokens of a prompt, for an empty sequence. The sequence then holds the longest beginning whose rows
 * the cache has: whole pages, at most n - 1 tokens. The caller feeds the other tokens as usual. Prompts with different
 * extra keys (an adapter, an image) never match. *found tokens count as admitted, and use up the next *found ordinals.
 * (*ordinals)[*found] lists the tokens whose rows are reused; the cache owns the list until the next call. The plan in
 * force becomes stale. -EINVAL: the sequence is not empty; -ENOSPC: no further sequence may be alive.
 */
int kvb_cache_seq_match(kvb_cache *cache, uint32_t seq, const int32_t *tokens, uint32_t n, uint64_t extra_key,
                        uint32_t *found, const uint64_t **ordinals);

/* ---- beginnings that caches share: KVB_CACHE_FREEZES -------------------------------------------------------- */

typedef struct kvb_frozen kvb_frozen; /* frozen rows of a sequence's first positions, with a count of their holders */
/*
 * Makes a prefix of the first n positions of a sequence, all of which it holds, and gives the caller one reference. The
 * stored rows are copied into pools that are never written again, and the sequence reads them there from now on. Rows
 * that are frozen already are not copied. Each cache that reads a prefix counts its cells against its own capacity
 * (-ENOSPC). allocator: holds the prefix and must outlive it; NULL: the cache's allocator. A prefix may outlive the
 * cache. Any thread may release a reference, and the last release frees the memory; so a prefix that several threads
 * share needs an allocator of its own.
 */
int kvb_cache_freeze(kvb_cache *cache, uint32_t seq, uint32_t n, kvb_allocator *allocator, kvb_frozen **frozen);
/* An empty sequence begins with the prefix; its tokens count as admitted, with the next ordinals. -EINVAL: the sequence
 * is not empty, or the prefix has other layers, heads, formats or fixed scales. */
int kvb_cache_seq_over(kvb_cache *cache, uint32_t seq, kvb_frozen *frozen);
kvb_frozen *kvb_frozen_hold(kvb_frozen *frozen);
void kvb_frozen_release(kvb_frozen *frozen); /* NULL is nothing */
uint32_t kvb_frozen_length(const kvb_frozen *frozen);

/* ---- draft trees behind sequences: KVB_CACHE_TREE ---------------------------------------------------------
 * Behind sequence 0; with KVB_CACHE_SEQ behind any, several at once, while others step. A sequence that has nodes may
 * only be proposed to and committed: every other call that reads or changes it is -EINVAL. */

bool kvb_cache_can_propose(const kvb_cache *cache, const uint32_t *seq_ids, uint32_t n);
/* Plan n more pending nodes, node i of sequence seq_ids[i] (NULL: all of 0). Those of a sequence are numbered on from
 * those it has; parents[i] is the number of an earlier one of the same sequence, or -1: child of its committed end.
 * Position = committed length + depth (root 0). */
int kvb_cache_propose(kvb_cache *cache, const uint32_t *seq_ids, const int32_t *parents, uint32_t n);
/* The nodes accepted[0..n-1] join the sequence: a root, then each the child of the one before. The sequence's other
 * nodes are dropped, and their cells are free at once. n = 0 drops all. */
int kvb_cache_commit(kvb_cache *cache, uint32_t seq, const uint32_t *accepted, uint32_t n);
uint32_t kvb_cache_pending(const kvb_cache *cache, uint32_t seq); /* nodes of a sequence */

/* ---- cutting back ------------------------------------------------------------------------------------------ */

/* Keep positions 0 .. len-1 of sequence 0: KVB_CACHE_REWIND or KVB_CACHE_SEQ. */
int kvb_cache_rewind(kvb_cache *cache, uint32_t len);
int kvb_cache_clear(kvb_cache *cache); /* forget every token; keeps its memory */

/*
 * Compaction: the cells of each sequence lie in the order of its positions again, sequence by sequence, so that its
 * reads are runs (one sequence without holes: rule 8 again) and the high-water mark is the number of cells in use.
 * Stored rows are copied as they are. Caches seq and window; window also gives back what no query can see again. The
 * others have nothing to move: cells of recompute, slab, contiguous and tree follow from positions, and pages are read
 * wherever they lie. -ENOSPC where no cell is free, by which rows trade places; -ENOTSUP over formats with residual
 * cells, which copies would round again.
 */
int kvb_cache_defrag(kvb_cache *cache);

/* ---- save and load: KVB_CACHE_SAVES -------------------------------------------------------------------------- */

/*
 * A file holds one sequence, or with KVB_SEQ_ALL all of them: positions, ordinals, and the stored bits of each row, so a
 * loaded sequence continues with the same bits. The file describes the cache (version, groups and their limits, pool
 * formats and fixed scales; with KVB_SEQ_ALL also the type of cache and its layout) and has a checksum. Only the kind
 * of machine that wrote a file can read it.
 *
 * Save changes nothing. -EINVAL: rows of the step under way are not stored yet, nodes are pending, or seq_add has
 * shifted positions since the last step. The file is written beside its place and renamed, so an older file stays whole
 * if something fails. -ENOTSUP: a pool cannot be saved, or its rows share scales or slots with rows of other sequences,
 * so that one sequence cannot be taken out.
 */
int kvb_cache_save(kvb_cache *cache, uint32_t seq, const char *path);
/*
 * Load a sequence as an empty one, of any id; or all of them, in place of whatever was alive. Tokens come with their
 * ordinals, and the next ordinal is above them all; a row that a sequence alive still holds is shared again where the
 * cache shares cells. No seq_match finds what was loaded, since a file says nothing of the tokens' ids. -EINVAL: not
 * such a file, damaged, of another geometry, of all where one is asked for or the other way round, seq is alive;
 * -ENOSPC: what it holds passes a limit of this cache; -ENOENT and its like: what the system said. What is refused has
 * changed nothing.
 */
int kvb_cache_load(kvb_cache *cache, uint32_t seq, const char *path);

/* ---- bytes ------------------------------------------------------------------------------------------------- */

/* Ordinals of the tokens whose rows this step's plan wants, in order; the step's new tokens are the
 * last ones. All caches but those that forget want the new tokens only. Returns the count, 0 without a plan.
 * The array belongs to the cache and lives as long as the plan. */
uint32_t kvb_cache_feed(const kvb_cache *cache, const uint64_t **ordinals);
/* Store k [n_tok][kv_heads][k_dim] and v [n_tok][kv_heads][v_dim] (latent: NULL) of the fed tokens for one layer and
 * say how to attend. positions [n_tok] must be those of the plan (-EINVAL otherwise). The queries of
 * the spec are the fed tokens, in order. spec points into the cache: valid until the next call that
 * changes the cache. Layers may come in any order. */
int kvb_cache_update_and_fetch(kvb_cache *cache, uint32_t layer, const uint32_t *positions, const float *k,
                               const float *v, uint32_t n_tok, kvb_attend_spec *spec);

/* The same for a layer that scans: nothing is stored, since a kernel writes states where spec says. Each layer of a
 * scanning group is -EINVAL for update_and_fetch, each other one here. */
int kvb_cache_fetch_states(kvb_cache *cache, uint32_t layer, const uint32_t *positions, uint32_t n_tok,
                           kvb_scan_spec *spec);

/* Counts for the memory record, of one group. Of one that scans cells are slots. */
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

void kvb_cache_usage_of(const kvb_cache *cache, uint32_t group, kvb_cache_usage *usage);

/* For a question of size, without a cache: what a group that attends takes for its cells in a cache contiguous, seq or
 * window. Its pools in all layers, and the tables by cell, are for cells 0 .. cells-1, all of them written: `first` by
 * the first step, and by no later step as many as all before it. */
uint64_t kvb_cache_cells_bytes(const kvb_cache_type *type, const kvb_model *model, const kvb_cache_options *options,
                               uint32_t group, uint32_t first, uint32_t cells);

extern const kvb_cache_type kvb_cache_recompute;     /* forgets all bytes; sequences, tree */
extern const kvb_cache_type kvb_cache_slab;          /* one preallocated row for each sequence */
extern const kvb_cache_type kvb_cache_contiguous;    /* one growing sequence */
extern const kvb_cache_type kvb_cache_seq;           /* cells shared by sequences */
extern const kvb_cache_type kvb_cache_window;        /* as seq; drops what no query of a limited group can see again */
extern const kvb_cache_type kvb_cache_paged;         /* pages that sequences share, copied on write */
extern const kvb_cache_type kvb_cache_paged_prefix;  /* as paged; pages of a prompt are found again by what they hold */
extern const kvb_cache_type kvb_cache_shared_prefix; /* frozen beginnings, and a tail for each sequence */
extern const kvb_cache_type kvb_cache_tree;          /* committed prefix and pending nodes */

extern const kvb_cache_type *const kvb_builtin_caches[]; /* ends with NULL */

/* Can its rows lie in these pools? One that copies rows as they are takes none with residual cells, nor one that cannot
 * be saved. */
bool kvb_cache_takes(const kvb_cache_type *type, const kvb_pool_type *k_pool, const kvb_pool_type *v_pool, char *why,
                     size_t why_bytes);
/* The first of these KVB_CACHE_ flags that the cache has not, in words: "save and load"; NULL: it has them all. What
 * can be cut back by sequences needs no KVB_CACHE_REWIND. */
const char *kvb_cache_lacks(const kvb_cache_type *type, uint32_t flags);
/* Of the flags that are calls, those that the cache has: ", sequences, draft trees". */
void kvb_cache_can(const kvb_cache_type *type, char *text, size_t bytes);

#endif
