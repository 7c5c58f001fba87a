/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence as a list of spans: what lies at which of its positions. A span costs 16 bytes whatever its length, so a
 * long sequence costs little, a fork copies a few spans, and the cells of a query follow from its spans. Integers only.
 */
#ifndef KVB_ACCOUNT_H
#define KVB_ACCOUNT_H

#include <stdbool.h>

#include "caches/allocator.h"

/* Positions pos .. pos+n-1 hold at .. at+n-1: tokens by their ordinals, or cells. */
typedef struct kvb_span {
    uint64_t at;
    uint32_t pos, n;
} kvb_span;

/* Ascending by position, none empty, none over another; but the first position of one may be the last of the one
 * before, since a position that was divided may hold several tokens. Zero at first. */
typedef struct kvb_spans {
    kvb_span *span; /* [n] */
    size_t n, room;
    uint32_t tokens; /* of all spans */
} kvb_spans;

/* Room for `more` spans besides those there: 0 or -ENOMEM. */
KVB_HOST int kvb_spans_reserve(kvb_spans *spans, kvb_allocator *allocator, size_t more);
KVB_HOST void kvb_spans_free(kvb_spans *spans, kvb_allocator *allocator);

/* One token more, above all positions there, or at the last of them. Takes no room where it goes on the last span, else
 * that of one. */
KVB_HOST void kvb_spans_append(kvb_spans *spans, uint32_t pos, uint64_t at);
/* Add what `from` holds at positions p0 <= p < p1, where nothing is yet. Takes the room of from->n spans. */
KVB_HOST void kvb_spans_add(kvb_spans *spans, const kvb_spans *from, uint32_t p0, uint32_t p1);
/* Let go of positions p0 <= p < p1. Takes the room of one span where it cuts one in two. */
KVB_HOST void kvb_spans_cut(kvb_spans *spans, uint32_t p0, uint32_t p1);

/* Lists that are to take others' places, all at once. Zero at first. */
typedef struct kvb_spans_aside {
    kvb_spans *list; /* [n] */
    uint32_t n;
} kvb_spans_aside;

/* Copies of lists[src[i]], i < n, in place of what was aside: 0 or -ENOMEM with nothing aside. */
int kvb_spans_gather(kvb_spans_aside *aside, kvb_allocator *allocator, const kvb_spans *lists, const uint32_t *src,
                     uint32_t n);
/* lists[dst[i]] is what was gathered i-th; nothing is aside any more. */
void kvb_spans_scatter(kvb_spans_aside *aside, kvb_allocator *allocator, kvb_spans *lists, const uint32_t *dst);
void kvb_spans_aside_free(kvb_spans_aside *aside, kvb_allocator *allocator);
/* Let go of the first n tokens. */
void kvb_spans_drop(kvb_spans *spans, uint32_t n);
/* How many tokens lie at positions p0 <= p < p1. */
uint32_t kvb_spans_within(const kvb_spans *spans, uint32_t p0, uint32_t p1);

/* A place in a list, which goes on by tokens. Zero at first. */
typedef struct kvb_spans_cursor {
    size_t span;
    uint32_t token; /* of it */
} kvb_spans_cursor;
/* Behind the first n tokens, of which there are so many. */
kvb_spans_cursor kvb_spans_from(const kvb_spans *spans, uint32_t n);
/* The next token at position p, behind which the cursor is then; n is 0 where there is none. Asked for ascending
 * positions. */
kvb_span kvb_spans_next_at(const kvb_spans *spans, kvb_spans_cursor *cursor, uint32_t p);

/* Do both hold a position p0 <= p < p1? *where: the lowest. */
bool kvb_spans_meet(const kvb_spans *a, const kvb_spans *b, uint32_t p0, uint32_t p1, uint32_t *where);

/* The part of a span at positions p0 <= p < p1; n is 0 where there is none. */
static inline kvb_span kvb_span_clip(kvb_span s, uint32_t p0, uint32_t p1)
{
    uint32_t begin = p0 > s.pos ? p0 : s.pos, end = p1 < s.pos + s.n ? p1 : s.pos + s.n;
    return begin < end ? (kvb_span){s.at + (begin - s.pos), begin, end - begin} : (kvb_span){0, 0, 0};
}

/* Largest position + 1; 0 of an empty list. */
static inline uint32_t kvb_spans_next(const kvb_spans *spans)
{
    return spans->n ? spans->span[spans->n - 1].pos + spans->span[spans->n - 1].n : 0;
}

/*
 * The account of a cache's tokens, kept once, above its stores: which tokens each sequence holds, at which positions,
 * and the pending nodes of draft trees behind sequences. Tokens go by their ordinals. No cells, no bytes.
 *
 * A control call is data, a kvb_change. It is checked first, which changes nothing. Tokens that it brings are then
 * admitted, so that stores see them while they prepare, and withdrawn if a store cannot; everything else is applied at
 * the end, when nothing can fail any more.
 *
 * A token that is moved to another position is stored anew: it gets a revision, the number of the shift that moved it,
 * above the ordinal's own bits. So two sequences share a token where they hold it with one revision.
 */

#define KVB_MAX_SEQS 4096u      /* most sequence ids of a cache */
#define KVB_SEQ_IDS  64u        /* ids of a cache that is not told how many */
#define KVB_POS_END  UINT32_MAX /* as p1: to the end of the sequence */
#define KVB_SEQ_ALL  UINT32_MAX /* as a sequence to save or load: the whole cache */

#define KVB_REVISION_AT  40u                       /* bit of a token's number where its revision begins */
#define KVB_REVISION_MAX ((UINT32_C(1) << 24) - 1) /* shifts of a cache */

typedef enum kvb_change_kind {
    KVB_CHANGE_STEP,    /* n tokens enter, each at the next position of its sequence */
    KVB_CHANGE_PROPOSE, /* n pending nodes enter */
    KVB_CHANGE_COMMIT,  /* n accepted nodes of src join it, its other pending ones go */
    KVB_CHANGE_COPY,    /* dst also holds src's tokens at positions p0 .. p1-1 */
    KVB_CHANGE_REMOVE,  /* src loses positions p0 .. p1-1, or with `others` every sequence but src all that it has */
    KVB_CHANGE_REORDER, /* dsts[i] holds what srcs[i] held before, for all i < n at once */
    KVB_CHANGE_SHIFT,   /* what src has at positions p0 .. p1-1 moves by delta, or to its position / divisor */
    KVB_CHANGE_MATCH,   /* src, which is empty, comes to hold n tokens that the cache has */
    KVB_CHANGE_DEFRAG,  /* cells trade places; tokens stay where they are */
    KVB_CHANGE_FREEZE,  /* rows of src's positions 0 .. p1-1, which it holds, go where no call writes; tokens stay */
    KVB_CHANGE_LOAD /* src, which is empty, takes what was saved of a sequence; KVB_SEQ_ALL: all of them become what was
                       saved */
} kvb_change_kind;

/* One control call. */
typedef struct kvb_change {
    kvb_change_kind kind;
    uint32_t n;
    const uint32_t *seq_ids; /* STEP, PROPOSE: [n]; NULL: all of sequence 0 */
    const int32_t *parents; /* PROPOSE: [n] numbers of earlier nodes of the same sequence; -1: child of its end. NULL to
                               check only */
    const uint32_t *accepted;  /* COMMIT: [n] numbers of src's nodes: a root, then each the child of the one before */
    const int32_t *tokens;     /* STEP: [n] vocabulary ids, or NULL: not known. MATCH: [n] those of the beginning */
    const uint64_t *ordinals;  /* MATCH: [n] of the tokens that it comes to hold */
    uint64_t extra_key;        /* MATCH */
    struct kvb_frozen *frozen; /* MATCH: that the tokens are of, or NULL; FREEZE: what is made */
    uint32_t src, dst, p0, p1;
    int32_t delta;    /* SHIFT */
    uint32_t divisor; /* SHIFT; 0: by delta */
    bool others;
    bool drops_nodes;                 /* REMOVE: pending nodes go, too; else there may be none */
    const uint32_t *dsts, *srcs;      /* REORDER: [n]; no dst twice */
    const struct kvb_account *loaded; /* LOAD: what was saved, under the ids that it gets */
} kvb_change;

static inline uint32_t kvb_change_seq(const kvb_change *change, uint32_t i)
{
    return change->seq_ids ? change->seq_ids[i] : 0;
}

/* Where a SHIFT moves what is at a position; it may be nowhere. */
static inline int64_t kvb_change_moved(const kvb_change *change, int64_t pos)
{
    return change->divisor ? pos / change->divisor : pos + change->delta;
}

/* A pending node. Those of a sequence are numbered from 0 on; a parent has a lower number than its children. */
typedef struct kvb_node {
    uint64_t ordinal;
    uint32_t seq, number;
    int32_t parent; /* its number; -1: a root */
    uint32_t depth; /* of a root 0 */
} kvb_node;

typedef struct kvb_account {
    kvb_allocator *allocator;
    uint32_t seq_capacity; /* longest sequence, in tokens */
    uint32_t max_seqs;     /* most sequences alive at once */
    uint32_t n_ids;        /* sequence ids are 0 .. n_ids-1 */
    uint64_t next_ordinal; /* of the token admitted next */
    bool shifted;          /* positions have moved since the last step */
    kvb_spans *seq;        /* [n_ids] position -> ordinal */
    uint32_t *alive;       /* [n_alive] sequences that hold a token, in any order */
    uint32_t *changed;     /* [n_changed] sequences that the change reserved for last changes, each once */
    uint32_t n_alive, n_changed;
    uint32_t shifts; /* made so far */
    uint32_t held;   /* tokens of all sequences together; one that several hold counts in each */
    uint32_t *place; /* [n_ids] where in `alive` a sequence is, if it is */
    uint32_t *tally; /* [n_ids] counts of the call under way, else zero */
    kvb_node *node;  /* [n_nodes] pending, of all sequences in the order in which they came */
    uint32_t n_nodes;
    size_t node_room;
    uint32_t *pending;   /* [n_ids] nodes of each sequence */
    uint32_t n_promised; /* empty sequences that have nodes: a commit may bring them to life */
    kvb_spans_aside reordered;
} kvb_account;

/* Tables for n_ids sequences; allocator and limits are set: 0 or -ENOMEM, to be closed as well. */
int kvb_account_open(kvb_account *account);
void kvb_account_close(kvb_account *account);

/* May it be done? 0, -EINVAL or -ENOSPC (a limit of the account's) with why. */
int kvb_account_check(const kvb_account *account, const kvb_change *change, char *why, size_t why_bytes);
/* All memory that applying it will want, and `changed`: 0 or -ENOMEM. */
int kvb_account_reserve(kvb_account *account, const kvb_change *change);
/* STEP and PROPOSE, checked and reserved: the tokens enter. positions [n]: theirs. */
void kvb_account_admit(kvb_account *account, const kvb_change *change, uint32_t *positions);
void kvb_account_withdraw(kvb_account *account, const kvb_change *change, const uint32_t *positions);
/* The other kinds; what they return is the same. */
void kvb_account_apply(kvb_account *account, const kvb_change *change);

/* An account that stands for what was saved: a sequence without tokens gets these. 0 or -ENOMEM. */
int kvb_account_put(kvb_account *account, uint32_t seq, const kvb_span *tokens, size_t n);
/* Distinct tokens of a LOAD; of one sequence those that none alive holds at its place. */
uint32_t kvb_account_brings(const kvb_account *account, const kvb_change *change);

/* Tokens of the sequence at positions p0 .. p1-1 that no other sequence holds. */
uint32_t kvb_account_alone(const kvb_account *account, uint32_t seq, uint32_t p0, uint32_t p1);

/* Tokens that sequence `seq` holds; `holder`: a sequence visited before that holds them too, or seq. */
typedef void kvb_span_visit(void *ctx, uint32_t seq, uint32_t holder, kvb_span tokens);
/* Every token of the sequences seqs [n], no two of them the same: in their order, positions ascending in each. */
void kvb_account_visit(const kvb_account *account, const uint32_t *seqs, uint32_t n, kvb_span_visit *visit, void *ctx);

/* The place in account->node of the sequence's node of that number: there is one. */
uint32_t kvb_account_node(const kvb_account *account, uint32_t seq, uint32_t number);
/* The path from a root to node[node], both included, as places in `node`: path [depth + 1]. */
void kvb_account_path(const kvb_account *account, uint32_t node, uint32_t *path);

#endif
