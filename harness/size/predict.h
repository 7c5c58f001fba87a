/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cache will hold, to the byte, worked out before it is opened: its structs, its pools, and the tables of its
 * bookkeeping, each from the numbers of tokens, cells and runs of a history. The rules of growth, and of which cells a windowed
 * store gives back and takes again, are written here a second time, on purpose: each side can accuse the other.
 */
#ifndef KVB_SIZE_PREDICT_H
#define KVB_SIZE_PREDICT_H

#include "caches/cache.h"

#define KVB_SIZE_DRAFTS 64u /* most roots of a proposal */

typedef enum kvb_size_call {
    KVB_SIZE_STEP,
    KVB_SIZE_SHIFT, /* all of sequence `first` moves by one position; of caches seq and slab, over formats that can be turned */
    KVB_SIZE_DEFRAG, /* likewise; it needs a free cell */
    KVB_SIZE_SHARE /* the first `tokens` of sequence `first` are copied to the n_seqs behind it, which are empty: shared-prefix */
} kvb_size_call;

/* One kind of step, several times over; or another call, once. */
typedef struct kvb_size_step {
    uint32_t first, n_seqs; /* sequences first .. first + n_seqs - 1 */
    uint32_t tokens;        /* of each; 1 where there are several sequences */
    uint32_t drafts;        /* a tree's one token is chosen among so many proposed roots; 0: it is just fed */
    uint32_t times;
    kvb_size_call call;
} kvb_size_step;

/* Every sequence is prefilled in chunks, but for what it copies, one sequence after the other; its last tokens come one by one,
 * all sequences together. Before the last of these the first sequence is shifted, and cells are put in order, if so asked. */
typedef struct kvb_size_history {
    uint32_t sequences; /* 1 .. KVB_MAX_SEQS */
    uint32_t context;   /* tokens of each, at least 1 */
    uint32_t chunk;     /* most tokens of a prefill step, at least 1 */
    uint32_t singles;   /* tokens of each that come one by one; more than context: all */
    uint32_t drafts;    /* of each of those, in a tree */
    uint32_t shared; /* tokens with which all sequences begin: the others copy them from the first; less than context */
    bool moves;      /* a shift and a defrag; there are two singles at least */
} kvb_size_history;

#define KVB_SIZE_STEPS(sequences) (2 * (size_t)(sequences) + 4)

/* Its steps [at most KVB_SIZE_STEPS(sequences)], fewest entries; the number of entries. */
size_t kvb_size_steps(const kvb_size_history *history, kvb_size_step *steps);

/* A cache that is to be opened. options.allocator is not looked at. */
typedef struct kvb_size_subject {
    const kvb_cache_type *cache;
    kvb_model model;
    kvb_cache_options options;
} kvb_size_subject;

/* Is it known what shifts and defrags of the subject allocate? */
bool kvb_size_moves(const kvb_size_subject *subject);

/* May the cache of the subject, with n_ids sequence ids and so many tokens in it, take the step with all its times? 0, or -EINVAL
 * with why. */
int kvb_size_step_check(const kvb_size_subject *subject, uint32_t n_ids, const kvb_size_step *step, uint64_t tokens,
                        char *why, size_t why_bytes);

/*
 * bytes [n + 1]: what the allocator holds after open, and after each entry of steps [n] with all its times. 0, or with
 * why: -ENOTSUP, no account of this cache, or a model or rows that it does not take; -EINVAL, a model, options or a step that it
 * refuses; -EOVERFLOW; -ENOMEM.
 */
int kvb_size_predict(const kvb_size_subject *subject, const kvb_size_step *steps, size_t n, uint64_t *bytes, char *why,
                     size_t why_bytes);

#endif
