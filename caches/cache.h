/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h: a KV cache as a runner sees it. A cache decides where a step's rows are stored and describes, in a
 * kvb_attend_spec, the attention over them. It never attends itself. caches/store.h says how a cache is written.
 *
 * One step:
 *     begin_step / propose        make the plan (once; each group of layers has its own cells and mask)
 *     feed                        which tokens' rows the plan wants, in order
 *     update_and_fetch x layers   store K and V of the fed tokens, get the spec
 * then the next control call.
 *
 * Rules that every cache keeps, asserted by ci/tests/caches:
 *  1. A step has one plan. Every control call that succeeds ends the plan before it. update_and_fetch without a plan in
 *     force is -EINVAL.
 *  2. A query sees a token iff the token is alive, belongs to the query's sequence, lies at no higher position than the
 *     query, and is within the limits of the layer's group (kernels/model.h). By the same rule a node sees its
 *     sequence's committed tokens, its ancestors and itself.
 *  3. A fork copies no bytes, a cell is freed when its last sequence leaves, and shared rows are never written.
 *     (Exceptions by definition: slab's rows are private, so a fork copies them. shared-prefix copies rows once, when
 *     it freezes them; a front is freed when no sequence reads any of it.)
 *  4. Reads are bounded by occupancy, never by capacity.
 *  5. can_extend is the admission test: true exactly when the step would not be refused for lack of room. A step that
 *     does not fit fails with -ENOSPC, without memory with -ENOMEM, and then changes nothing in any layer.
 *  6. A mask is CAUSAL only when the new queries are the tail of the read cells.
 *  7. Memory grows lazily from min_chunk and is bounded by capacity. (slab preallocates by definition.)
 *  8. One sequence, no holes, queries at the tail, no limits: contiguous write, no mask (NONE) or CAUSAL.
 *  9. The pool sets the storage format, the call the output type. Neither constrains the other.
 * 10. Model facts come from a kvb_model, never from options.
 *
 * Each token has an ordinal: begin_step and propose number the tokens that they admit 0, 1, 2, ... since open. feed
 * lists ordinals. A runner that keeps its tokens' rows by the same numbers finds the rows that the plan wants.
 *
 * Errors: 0 or a negative errno, kvb_cache_why() says why. -EINVAL: the call breaks the protocol or names something
 * that does not exist; -ENOSPC: capacity; -ENOMEM: allocation; -ENOTSUP: this cache cannot do that (why says what it
 * can). One thread at a time per cache. Sequence ids are 0 .. seq_ids-1 (store.h), positions 0-based in a sequence.
 */
#ifndef KVB_CACHE_H
#define KVB_CACHE_H

#include "caches/store.h"
#include "kernels/scan.h"

typedef struct kvb_cache kvb_cache;

/* One attention call over what a cache stores. */
typedef struct kvb_attend_spec {
    const kvb_group *group; /* of the layer: heads, scale, softcap, sink logits */
    kvb_view k, v;          /* latent: v has k's base, with rows of v_dim */
    kvb_mask mask;
    uint64_t generation; /* of the mask: specs of this process with one number have one mask, for as many queries */
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

/* 0 with *cache, or a negative errno with why. The model must outlive the cache; options are copied, type is static. */
int kvb_cache_open(const kvb_cache_type *type, const kvb_model *model, const kvb_cache_options *options,
                   kvb_cache **cache, char *why, size_t why_bytes);
void kvb_cache_close(kvb_cache *cache); /* NULL is nothing */

const kvb_cache_type *kvb_cache_type_of(const kvb_cache *cache);
const char *kvb_cache_why(const kvb_cache *cache); /* one line about the last call that failed */
/* What the allocator holds for a cache besides pools and tables. */
size_t kvb_cache_struct_bytes(const kvb_cache_type *type, const kvb_model *model);

/* ---- steps. seq_ids [n], NULL: all of sequence 0. A sequence may appear many times ---------------------- */

bool kvb_cache_can_extend(const kvb_cache *cache, const uint32_t *seq_ids, uint32_t n);
/* Plans one token for each entry, at the next position of its sequence: largest + 1; 0 in an empty sequence, which is
 * alive from then on. */
int kvb_cache_begin_step(kvb_cache *cache, const uint32_t *seq_ids, uint32_t n);
uint32_t kvb_cache_length(const kvb_cache *cache, uint32_t seq); /* next position; 0 when empty */

/* ---- sequences: KVB_CACHE_SEQ. p0 <= p < p1 names positions; p1 may be KVB_POS_END ----------------------- */

/* A range means those of its positions that the sequence holds. Copying or removing none of them succeeds. */
/* dst gets src's tokens of that range, beside those that it has. -EINVAL: both hold a position of the range. */
int kvb_cache_seq_cp(kvb_cache *cache, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1);
int kvb_cache_seq_rm(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1);
int kvb_cache_seq_keep(kvb_cache *cache, uint32_t seq); /* drop every other sequence */
/* KVB_CACHE_REORDER, for beam search: dst[i] gets what src[i] held before the call, for all i < n. Other sequences do
 * not change. A source may be named several times, and may be a destination, too. A destination is named once (else
 * -EINVAL). An empty source empties its destination. */
int kvb_cache_seq_reorder(kvb_cache *cache, const uint32_t *dst, const uint32_t *src, uint32_t n);
/*
 * KVB_CACHE_SHIFT: the sequence's tokens of that range move by delta positions. If another sequence holds such a token,
 * too, the moved token becomes a row of its own, and the other sequence keeps its position. -EINVAL: a token would move
 * below position 0, or onto or across a token that stays. -ENOSPC: a position beyond seq_capacity, or no cell for such
 * a row. -ENOTSUP: a group's rope is unknown (kernels/model.h), or the format has residual cells or is a plug-in's own.
 *
 * K rows are turned when the next step begins, by the sum of the deltas since the step before (not at all if the sum is
 * 0): decoded as by format->read, turned as by kvb_rope_turn() (kernels/model.h), and encoded again.
 */
int kvb_cache_seq_add(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1, int32_t delta);

/*
 * KVB_CACHE_DIVIDE: each token of that range moves from position p to p / divisor, rounded down, as engines do for
 * Self-Extend's grouped attention. A position can then hold several tokens; a query at or above it sees them all. The
 * rest is as in seq_add: the errors, and that rows are turned, each by its own distance. -EINVAL also for divisor 0.
 */
int kvb_cache_seq_div(kvb_cache *cache, uint32_t seq, uint32_t p0, uint32_t p1, uint32_t divisor);

/* ---- prompts that begin as others did: KVB_CACHE_PREFIX ----------------------------------------------------- */

/* begin_step with the tokens' vocabulary ids [n]. seq_match finds only rows of tokens with known ids. NULL: unknown. */
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
 * A tree lies behind sequence 0; with KVB_CACHE_SEQ behind any sequence, and behind several at once while others step.
 * A sequence with pending nodes takes propose and commit only: every other call that reads or changes it is -EINVAL. */

bool kvb_cache_can_propose(const kvb_cache *cache, const uint32_t *seq_ids, uint32_t n);
/* Plans n more pending nodes, node i behind sequence seq_ids[i] (NULL: all behind 0). Pending nodes of a sequence are
 * numbered 0, 1, 2, ... across calls. parents[i] is the number of an earlier node of the same sequence; -1: the
 * committed end. Position = committed length + depth (root 0). */
int kvb_cache_propose(kvb_cache *cache, const uint32_t *seq_ids, const int32_t *parents, uint32_t n);
/* The nodes accepted[0..n-1] join the sequence: a root, then always a child of the node before. The sequence's other
 * nodes are dropped, and their cells are free at once. n = 0 drops all. */
int kvb_cache_commit(kvb_cache *cache, uint32_t seq, const uint32_t *accepted, uint32_t n);
uint32_t kvb_cache_pending(const kvb_cache *cache, uint32_t seq); /* nodes of a sequence */

/* ---- cutting back ------------------------------------------------------------------------------------------ */

/* Keeps positions 0 .. len-1 of sequence 0: KVB_CACHE_REWIND or KVB_CACHE_SEQ. */
int kvb_cache_rewind(kvb_cache *cache, uint32_t len);
int kvb_cache_clear(kvb_cache *cache); /* forgets every token, keeps its memory */

/*
 * Compaction: rows are copied, as stored, until each sequence lies in the order of its positions, sequence by sequence.
 * Then reads are runs (one sequence without holes: rule 8 again), and the high-water mark is the number of cells in
 * use. Caches seq, window and shared-prefix (its tails) move rows; window also frees those that no query can see again.
 * The others have nothing to move: in recompute, slab, contiguous and tree cells follow from positions, and pages are
 * read wherever they lie. -ENOSPC: rows trade places through a free cell, and none is free. -ENOTSUP: a format with
 * residual cells: copying its rows would round them again.
 */
int kvb_cache_defrag(kvb_cache *cache);

/* ---- save and load: KVB_CACHE_SAVES -------------------------------------------------------------------------- */

/*
 * A file holds one sequence, or with KVB_SEQ_ALL all of them: positions, ordinals, and the stored bits of each row, so
 * a loaded sequence continues with the same bits. The file describes the cache (version, groups and their limits, pool
 * formats and fixed scales; with KVB_SEQ_ALL also the type of cache and its layout) and has a checksum. Only the kind
 * of machine that wrote a file can read it.
 *
 * Save changes nothing. -EINVAL: rows of the current step are not stored yet, nodes are pending, or seq_add has shifted
 * positions since the last step. The file is written beside its place and renamed, so an older file stays whole
 * if something fails. -ENOTSUP: a pool cannot be saved, or its rows share scales or slots with rows of other sequences,
 * so that one sequence cannot be taken out.
 */
int kvb_cache_save(kvb_cache *cache, uint32_t seq, const char *path);
/*
 * Loads a saved sequence into an empty one of any id; with KVB_SEQ_ALL saved sequences replace all that are alive.
 * Tokens keep their ordinals, and the next ordinal is above them all. A row that a live sequence still holds is shared
 * again, if the cache shares cells. seq_match does not find loaded tokens, since a file has no vocabulary ids. -EINVAL:
 * not such a file, damaged, another geometry, one sequence where all are asked for or the reverse, seq is alive;
 * -ENOSPC: the content exceeds a limit of this cache; -ENOENT etc. from the system. A load that fails changes nothing.
 */
int kvb_cache_load(kvb_cache *cache, uint32_t seq, const char *path);

/* ---- bytes ------------------------------------------------------------------------------------------------- */

/* Which tokens must be fed for this step's plan, as ordinals in ascending order; the step's new tokens are last. Caches
 * that forget (KVB_CACHE_FORGETS) want older tokens, too; all others only the new ones. Returns the count; 0: no plan.
 * The array belongs to the cache and lives as long as the plan. */
uint32_t kvb_cache_feed(const kvb_cache *cache, const uint64_t **ordinals);
/* Stores k [n_tok][kv_heads][k_dim] and v [n_tok][kv_heads][v_dim] (latent: NULL) of the fed tokens for one layer, and
 * fills in spec. Its queries are the fed tokens, in order. It points into the cache: valid until the next call that
 * changes the cache. positions [n_tok] must be those of the plan (else -EINVAL). Layers may come in any order. */
int kvb_cache_update_and_fetch(kvb_cache *cache, uint32_t layer, const uint32_t *positions, const float *k,
                               const float *v, uint32_t n_tok, kvb_attend_spec *spec);

/* The same for a layer that scans. Nothing is stored: the kernel writes states where spec says. A layer that attends is
 * -EINVAL here, as a layer that scans is in update_and_fetch. */
int kvb_cache_fetch_states(kvb_cache *cache, uint32_t layer, const uint32_t *positions, uint32_t n_tok,
                           kvb_scan_spec *spec);

/* Counts of one group, for the memory record. In a group that scans, cells are slots. */
typedef struct kvb_cache_usage {
    uint32_t cells_live;    /* occupied now */
    uint32_t cells_peak;    /* most occupied at once */
    uint32_t high_water;    /* largest cell index ever in use + 1 */
    uint64_t cells_written; /* rows stored since open, per layer */
    uint64_t cells_moved;   /* rows copied inside the pools (clone, commit), per layer */
    uint64_t growths;       /* of pools since open */
    uint64_t copied_bytes;  /* by growing, all pools since open */
    uint64_t copy_ns;       /* time of that copying */
    size_t reserved_bytes;  /* held by all pools now */
} kvb_cache_usage;

void kvb_cache_usage_of(const kvb_cache *cache, uint32_t group, kvb_cache_usage *usage);

/* Bytes that a group that attends takes for its cells in a cache contiguous, seq or window, without opening one: pools
 * of all its layers, and tables by cell. Cells 0 .. cells-1 are all written, `first` of them by the first step; no
 * later step writes as many as all steps before it. */
uint64_t kvb_cache_cells_bytes(const kvb_cache_type *type, const kvb_model *model, const kvb_cache_options *options,
                               uint32_t group, uint32_t first, uint32_t cells);

extern const kvb_cache_type kvb_cache_recompute;     /* keeps no rows; sequences, tree */
extern const kvb_cache_type kvb_cache_slab;          /* one preallocated row for each sequence */
extern const kvb_cache_type kvb_cache_contiguous;    /* one growing sequence */
extern const kvb_cache_type kvb_cache_seq;           /* cells shared by sequences */
extern const kvb_cache_type kvb_cache_window;        /* as seq; drops what no query of a limited group can see again */
extern const kvb_cache_type kvb_cache_paged;         /* pages that sequences share, copied on write */
extern const kvb_cache_type kvb_cache_paged_prefix;  /* as paged; a prompt finds pages that hold its beginning */
extern const kvb_cache_type kvb_cache_shared_prefix; /* frozen prefixes, and a tail for each sequence */
extern const kvb_cache_type kvb_cache_tree;          /* committed prefix and pending nodes */

extern const kvb_cache_type *const kvb_builtin_caches[]; /* ends with NULL */

/* Can the cache use these pools? A cache that freezes copies rows as stored: it takes no pool with residual cells, and
 * none that cannot be saved. */
bool kvb_cache_takes(const kvb_cache_type *type, const kvb_pool_type *k_pool, const kvb_pool_type *v_pool, char *why,
                     size_t why_bytes);
/* The first of these KVB_CACHE_ flags that the cache lacks, in words: "save and load"; NULL: it has them all.
 * KVB_CACHE_SEQ includes KVB_CACHE_REWIND. */
const char *kvb_cache_lacks(const kvb_cache_type *type, uint32_t flags);
/* The calls that the cache has, each behind a comma: ", sequences, draft trees". */
void kvb_cache_can(const kvb_cache_type *type, char *text, size_t bytes);

#endif
