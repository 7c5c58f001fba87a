/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cache will hold, to the byte, worked out before it is opened: its structs, its pools, and the tables of its
 * bookkeeping, each from the numbers of tokens, cells and runs of a history. The rules of growth, and of which cells a windowed
 * store gives back and takes again, are written here a second time, on purpose: each side can accuse the other.
 */
#ifndef KVB_SIZE_PREDICT_H
#define KVB_SIZE_PREDICT_H

#include "caches/cache.h"

#define KVB_SIZE_DRAFTS 64u /* most nodes that are proposed for a sequence */

#define KVB_SIZE_DIVIDED 16u /* positions of a sequence that are divided, and by what */
#define KVB_SIZE_DIVISOR 4u

typedef enum kvb_size_call {
    KVB_SIZE_STEP,
    KVB_SIZE_SHIFT,  /* all of sequence `first` moves by one position */
    KVB_SIZE_DIVIDE, /* its first positions are divided */
    KVB_SIZE_DEFRAG, /* it needs a free cell */
    KVB_SIZE_SWAP,   /* sequence `first` is saved, removed and loaded */
    KVB_SIZE_RELOAD, /* the whole cache is saved and loaded */
    KVB_SIZE_FIND,   /* sequence `first` is removed; its prompt then finds what lay in whole pages */
    KVB_SIZE_REORDER, /* of n_seqs sequences the first ends, each takes the place of the one before, and one is there twice */
    KVB_SIZE_COPY, /* sequences behind `first`, n_seqs of them, are cut back to `tokens`, and then go on as it does */
    KVB_SIZE_SHARE, /* sequences behind `first`, n_seqs of them, are empty, and begin with its first `tokens`: copied in cache
                     * shared-prefix, else found as a prompt: in whole pages */
    KVB_SIZE_CALLS
} kvb_size_call;

/* One kind of step, several times over; or another call, once. */
typedef struct kvb_size_step {
    uint32_t first, n_seqs; /* sequences first .. first + n_seqs - 1 */
    uint32_t tokens;        /* of each; 1 where several sequences are just fed */
    uint32_t drafts; /* nodes that are proposed for each token, of which the last one is accepted; 0: it is just fed */
    uint32_t times;
    kvb_size_call call;
} kvb_size_step;

/* Tokens or nodes that it brings each sequence, once. */
static inline uint32_t kvb_size_brings(const kvb_size_step *s)
{
    return s->tokens * (s->drafts ? s->drafts : 1);
}

/* Nodes come level by level, `drafts` a level. The last one of each follows the last one of the level before; of the others some have
 * several children, some none. */
static inline int32_t kvb_size_node_parent(const kvb_size_step *s, uint32_t node)
{
    const uint32_t path = node % s->drafts, level = node - path;
    return level == 0 ? -1 : (int32_t)(level - s->drafts + (path + 1 == s->drafts ? path : path / 2));
}

/* Every sequence is prefilled in chunks, but for what it shares, one sequence after the other; its last tokens come one by one,
 * all sequences together. Among these are the other calls that are asked for. */
typedef struct kvb_size_history {
    uint32_t sequences; /* 1 .. KVB_MAX_SEQS */
    uint32_t context;   /* tokens of each, at least 1 */
    uint32_t chunk;     /* most tokens of a prefill step, at least 1 */
    uint32_t singles;   /* tokens of each that come one by one; more than context: all */
    uint32_t drafts;    /* of each of those behind the calls */
    uint32_t levels;    /* of most of these trees; 0: one */
    uint32_t shared; /* tokens with which all sequences begin; less than context; pages of paged-prefix must be whole */
    uint32_t calls;  /* a bit of each kvb_size_call; as many as there are singles to follow them */
    uint32_t kept;   /* tokens that a copy leaves its destinations */
} kvb_size_history;

#define KVB_SIZE_STEPS(sequences) (2 * (size_t)(sequences) + 5 + 2 * KVB_SIZE_CALLS)

/* Its steps [at most KVB_SIZE_STEPS(sequences)], fewest entries; the number of entries. */
size_t kvb_size_steps(const kvb_size_history *history, kvb_size_step *steps);

/* A cache that is to be opened. options.allocator is not looked at. */
typedef struct kvb_size_subject {
    const kvb_cache_type *cache;
    kvb_model model;
    kvb_cache_options options;
} kvb_size_subject;

/* Bytes of a token's rows in all layers, rounded up. */
uint64_t kvb_size_cell_bytes(const kvb_size_subject *subject);

/* Bits of kvb_size_history.calls that the subject's cache and formats can do. STEP and SHARE have none. */
uint32_t kvb_size_calls(const kvb_size_subject *subject);
/* Before a COPY, to as many tokens as one likes? Else to none. */
bool kvb_size_cuts(const kvb_size_subject *subject);

/* May the cache of the subject, with n_ids sequence ids and so many tokens in it, take the step with all its times? 0, or -EINVAL
 * with why. */
int kvb_size_step_check(const kvb_size_subject *subject, uint32_t n_ids, const kvb_size_step *step, uint64_t tokens,
                        char *why, size_t why_bytes);

/*
 * bytes [n + 1]: what the allocator holds after open, and after each entry of steps [n] with all its times.
 * refused [n], or NULL: whether the cache will refuse the call. It refuses a SHIFT or DIVIDE if it has dropped a row that the call needs,
 * or has no free cell for a copy. Such a step has times 1.
 * 0, or with why: -ENOTSUP, no account of this cache, or a model or rows that it does not take; -EINVAL, a model, options or a step
 * that it refuses; -EOVERFLOW; -ENOMEM.
 */
int kvb_size_predict(const kvb_size_subject *subject, const kvb_size_step *steps, size_t n, uint64_t *bytes,
                     bool *refused, char *why, size_t why_bytes);

#endif
