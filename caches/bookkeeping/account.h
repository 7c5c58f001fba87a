/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The account of a cache's tokens, kept once, above its stores: which tokens each sequence holds, at which positions, and the
 * pending nodes of a draft tree behind sequence 0. Tokens go by their ordinals. No cells, no bytes.
 *
 * A control call is data, a kvb_change. It is checked first, which changes nothing. Tokens that it brings are then admitted,
 * so that stores see them while they prepare, and withdrawn if a store cannot; everything else is applied at the end, when
 * nothing can fail any more.
 */
#ifndef KVB_ACCOUNT_H
#define KVB_ACCOUNT_H

#include "caches/bookkeeping/spans.h"

#define KVB_MAX_SEQS 64u        /* sequence ids are 0 .. 63 */
#define KVB_POS_END  UINT32_MAX /* as p1: to the end of the sequence */

typedef enum kvb_change_kind {
    KVB_CHANGE_STEP,    /* n tokens enter, each at the next position of its sequence */
    KVB_CHANGE_PROPOSE, /* n pending nodes enter */
    KVB_CHANGE_COMMIT,  /* n accepted nodes join sequence 0, the other pending ones go */
    KVB_CHANGE_COPY,    /* dst also holds src's tokens at positions p0 .. p1-1 */
    KVB_CHANGE_REMOVE   /* src, or with `others` every sequence but src, lets go of positions p0 .. p1-1 */
} kvb_change_kind;

/* One control call. */
typedef struct kvb_change {
    kvb_change_kind kind;
    uint32_t n;
    const uint32_t *seq_ids; /* STEP: [n]; NULL: all of sequence 0 */
    const int32_t *
        parents; /* PROPOSE: [n] numbers of earlier pending nodes; -1: child of the committed end. NULL to check only */
    const uint32_t *accepted; /* COMMIT: [n] numbers of pending nodes: a root, then each the child of the one before */
    uint32_t src, dst, p0, p1;
    bool others;
    bool drops_nodes; /* REMOVE: pending nodes go, too; else there may be none */
} kvb_change;

static inline uint32_t kvb_change_seq(const kvb_change *change, uint32_t i)
{
    return change->seq_ids ? change->seq_ids[i] : 0;
}

/* STEP: the spans that its tokens make in each sequence if each stretch of neighbours in the step makes one; 0: not in it. */
void kvb_change_spans(const kvb_change *change, uint32_t spans[KVB_MAX_SEQS]);

/* A node of a draft tree. A parent has a lower number than its children. */
typedef struct kvb_node {
    int32_t parent; /* -1: a root */
    uint32_t depth; /* of a root 0 */
} kvb_node;

typedef struct kvb_account {
    kvb_allocator *allocator;
    uint32_t seq_capacity;       /* longest sequence, in tokens */
    uint32_t max_seqs;           /* most sequences alive at once */
    uint64_t next_ordinal;       /* of the token admitted next */
    kvb_spans seq[KVB_MAX_SEQS]; /* position -> ordinal */
    kvb_node *node;              /* [n_nodes] pending */
    uint32_t n_nodes;
    size_t node_room;
    uint64_t first_node; /* ordinal of node 0; the others follow */
} kvb_account;

void kvb_account_close(kvb_account *account);

/* May it be done? 0, -EINVAL or -ENOSPC (a limit of the account's) with why. */
int kvb_account_check(const kvb_account *account, const kvb_change *change, char *why, size_t why_bytes);
/* All memory that applying it will want: 0 or -ENOMEM. */
int kvb_account_reserve(kvb_account *account, const kvb_change *change);
/* STEP and PROPOSE, checked and reserved: the tokens enter. positions [n]: theirs. */
void kvb_account_admit(kvb_account *account, const kvb_change *change, uint32_t *positions);
void kvb_account_withdraw(kvb_account *account, const kvb_change *change, const uint32_t *positions);
/* The other kinds, likewise. */
void kvb_account_apply(kvb_account *account, const kvb_change *change);

uint32_t kvb_account_tokens(const kvb_account *account); /* distinct ones in all sequences */

/* A token that sequence `seq` holds; `first`: the lowest of the visited sequences that holds it. */
typedef void kvb_token_visit(void *ctx, uint32_t seq, uint32_t first, uint32_t pos, uint64_t ordinal);
/* Every token of every sequence in the set (bit s: sequence s): sequences ascending, positions ascending in each. */
void kvb_account_visit(const kvb_account *account, uint64_t seqs, kvb_token_visit *visit, void *ctx);

/* The path from a root to the node, both included: path [depth + 1]. */
void kvb_account_path(const kvb_account *account, uint32_t node, uint32_t *path);

#endif
