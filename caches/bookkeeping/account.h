/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence as a list of spans: the tokens, or cells, at its positions. A span costs 16 bytes whatever its length, so
 * a long sequence costs little, a fork copies a few spans, and the cells of a query follow from its spans. Integers
 * only.
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

/* Spans in ascending order of positions, none empty. They do not overlap, except that a span may begin at the last
 * position of the span before: after a division a position can hold several tokens. Zero at first. */
typedef struct kvb_spans {
    kvb_span *span; /* [n] */
    size_t n, room;
    uint32_t tokens; /* of all spans */
} kvb_spans;

/* Makes room for `more` further spans: 0 or -ENOMEM. */
KVB_HOST int kvb_spans_reserve(kvb_spans *spans, kvb_allocator *allocator, size_t more);
KVB_HOST void kvb_spans_free(kvb_spans *spans, kvb_allocator *allocator);

/* Appends a token at the last position or above. Needs room for one span, unless the token continues the last span. */
KVB_HOST void kvb_spans_append(kvb_spans *spans, uint32_t pos, uint64_t at);
/* Adds from's positions p0 <= p < p1, none of which the list holds. Needs room for from->n spans. */
KVB_HOST void kvb_spans_add(kvb_spans *spans, const kvb_spans *from, uint32_t p0, uint32_t p1);
/* Drops positions p0 <= p < p1. Needs room for one span if it cuts a span in two. */
KVB_HOST void kvb_spans_cut(kvb_spans *spans, uint32_t p0, uint32_t p1);

/* Copies of lists, which will replace other lists all at once. Zero at first. */
typedef struct kvb_spans_aside {
    kvb_spans *list; /* [n] */
    uint32_t n;
} kvb_spans_aside;

/* Sets copies of lists[src[i]], i < n, aside, in place of earlier ones: 0, or -ENOMEM with nothing aside. */
int kvb_spans_gather(kvb_spans_aside *aside, kvb_allocator *allocator, const kvb_spans *lists, const uint32_t *src,
                     uint32_t n);
/* Replaces lists[dst[i]] by the i-th copy; nothing is aside afterwards. */
void kvb_spans_scatter(kvb_spans_aside *aside, kvb_allocator *allocator, kvb_spans *lists, const uint32_t *dst);
void kvb_spans_aside_free(kvb_spans_aside *aside, kvb_allocator *allocator);
/* Drops the first n tokens. */
void kvb_spans_drop(kvb_spans *spans, uint32_t n);
/* Number of tokens at positions p0 <= p < p1. */
uint32_t kvb_spans_within(const kvb_spans *spans, uint32_t p0, uint32_t p1);

/* A token of a list. Zero: the first one. */
typedef struct kvb_spans_cursor {
    size_t span;
    uint32_t token; /* in that span */
} kvb_spans_cursor;
/* The cursor behind the first n tokens; there are at least n. */
kvb_spans_cursor kvb_spans_from(const kvb_spans *spans, uint32_t n);
/* The next token at position p, as a span of 1; the cursor moves behind it. n is 0: no such token. Callers ask for
 * positions in ascending order. */
kvb_span kvb_spans_next_at(const kvb_spans *spans, kvb_spans_cursor *cursor, uint32_t p);

/* Do both hold a position p0 <= p < p1? *where: the lowest. */
bool kvb_spans_meet(const kvb_spans *a, const kvb_spans *b, uint32_t p0, uint32_t p1, uint32_t *where);

/* The part of a span at positions p0 <= p < p1; n is 0: none. */
static inline kvb_span kvb_span_clip(kvb_span s, uint32_t p0, uint32_t p1)
{
    uint32_t begin = p0 > s.pos ? p0 : s.pos, end = p1 < s.pos + s.n ? p1 : s.pos + s.n;
    return begin < end ? (kvb_span){s.at + (begin - s.pos), begin, end - begin} : (kvb_span){0, 0, 0};
}

/* Largest position + 1; 0: an empty list. */
static inline uint32_t kvb_spans_next(const kvb_spans *spans)
{
    return spans->n ? spans->span[spans->n - 1].pos + spans->span[spans->n - 1].n : 0;
}

/*
 * The account of a cache, one for all its stores: which tokens each sequence holds at which positions, and the pending
 * nodes of draft trees. A token is named by its ordinal. The account knows no cells and no bytes.
 *
 * A control call is a value, a kvb_change. The account first checks it, which changes nothing. Then it admits the
 * tokens that the call brings, so that stores see them while they prepare, and withdraws them if a store fails.
 * Everything else is applied at the end, when nothing can fail any more.
 *
 * A token that moves to another position is stored anew. The bits above its ordinal then hold a revision, the number of
 * the shift that moved it. Two sequences share a token only if they hold it with the same revision.
 */

#define KVB_MAX_SEQS 4096u      /* most sequence ids of a cache */
#define KVB_SEQ_IDS  64u        /* sequence ids of a cache by default */
#define KVB_POS_END  UINT32_MAX /* as p1: to the end of the sequence */
#define KVB_SEQ_ALL  UINT32_MAX /* as a sequence to save or load: the whole cache */

#define KVB_REVISION_AT  40u                       /* bit of a token's number where its revision begins */
#define KVB_REVISION_MAX ((UINT32_C(1) << 24) - 1) /* most shifts of a cache */

typedef enum kvb_change_kind {
    KVB_CHANGE_STEP,    /* n tokens enter, each at the next position of its sequence */
    KVB_CHANGE_PROPOSE, /* n pending nodes enter */
    KVB_CHANGE_COMMIT,  /* n accepted nodes of src join it, its other nodes are dropped */
    KVB_CHANGE_COPY,    /* dst also holds src's tokens at positions p0 .. p1-1 */
    KVB_CHANGE_REMOVE,  /* src loses positions p0 .. p1-1; `others`: every sequence but src loses all positions */
    KVB_CHANGE_REORDER, /* dsts[i] gets what srcs[i] held before, for all i < n at once */
    KVB_CHANGE_SHIFT,   /* src's tokens at positions p0 .. p1-1 move by delta, or to position / divisor */
    KVB_CHANGE_MATCH,   /* src, empty before, gets n tokens; the cache has their rows */
    KVB_CHANGE_DEFRAG,  /* rows change cells; positions stay */
    KVB_CHANGE_FREEZE,  /* rows of src's positions 0 .. p1-1, all held, move to where no call writes; positions stay */
    KVB_CHANGE_LOAD /* src, empty before, gets a saved sequence; KVB_SEQ_ALL: the saved ones replace all sequences */
} kvb_change_kind;

/* One control call. */
typedef struct kvb_change {
    kvb_change_kind kind;
    uint32_t n;
    const uint32_t *seq_ids;   /* STEP, PROPOSE: [n]; NULL: all of sequence 0 */
    const int32_t *parents;    /* PROPOSE: [n] numbers of earlier nodes of the same sequence; -1: its end. NULL: only to
                               be checked */
    const uint32_t *accepted;  /* COMMIT: [n] numbers of src's nodes: a root, then always a child of the one before */
    const int32_t *tokens;     /* STEP: [n] vocabulary ids; NULL: unknown. MATCH: [n] ids of the tokens found */
    const uint64_t *ordinals;  /* MATCH: [n] of the tokens found */
    uint64_t extra_key;        /* MATCH */
    struct kvb_frozen *frozen; /* MATCH: the prefix with which src begins, or NULL; FREEZE: the prefix to be made */
    uint32_t src, dst, p0, p1;
    int32_t delta;    /* SHIFT */
    uint32_t divisor; /* SHIFT; 0: by delta */
    bool others;
    bool drops_nodes;                 /* REMOVE: also drops all pending nodes; else there may be none */
    const uint32_t *dsts, *srcs;      /* REORDER: [n]; no dst twice */
    const struct kvb_account *loaded; /* LOAD: the saved sequences, under their ids in this cache */
} kvb_change;

static inline uint32_t kvb_change_seq(const kvb_change *change, uint32_t i)
{
    return change->seq_ids ? change->seq_ids[i] : 0;
}

/* The position to which a SHIFT moves a token; it may be out of range. */
static inline int64_t kvb_change_moved(const kvb_change *change, int64_t pos)
{
    return change->divisor ? pos / change->divisor : pos + change->delta;
}

/* A pending node. Nodes of a sequence are numbered from 0; a parent has a lower number than its children. */
typedef struct kvb_node {
    uint64_t ordinal;
    uint32_t seq, number;
    int32_t parent; /* number; -1: a root */
    uint32_t depth; /* 0: a root */
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
    uint32_t *changed;     /* [n_changed] sequences that the change last reserved for changes, each once */
    uint32_t n_alive, n_changed;
    uint32_t shifts; /* made so far */
    uint32_t held;   /* tokens of all sequences together; one that several hold counts in each */
    uint32_t *place; /* [n_ids] index in `alive` of a sequence that is alive */
    uint32_t *tally; /* [n_ids] counts of the current call, zero between calls */
    kvb_node *node;  /* [n_nodes] pending nodes of all sequences, in the order of their proposals */
    uint32_t n_nodes;
    size_t node_room;
    uint32_t *pending;   /* [n_ids] nodes of each sequence */
    uint32_t n_promised; /* empty sequences that have nodes: a commit may bring them to life */
    kvb_spans_aside reordered;
} kvb_account;

/* Allocates tables for n_ids sequences; allocator and limits are set. 0, or -ENOMEM: to be closed as well. */
int kvb_account_open(kvb_account *account);
void kvb_account_close(kvb_account *account);

/* Is the change valid? 0, -EINVAL or -ENOSPC (a limit of the account's) with why. */
int kvb_account_check(const kvb_account *account, const kvb_change *change, char *why, size_t why_bytes);
/* Takes all memory that making the checked change will need, and fills in `changed`: 0 or -ENOMEM. */
int kvb_account_reserve(kvb_account *account, const kvb_change *change);
/* Makes a STEP or PROPOSE that is checked and reserved: its tokens enter, at positions [n]. */
void kvb_account_admit(kvb_account *account, const kvb_change *change, uint32_t *positions);
void kvb_account_withdraw(kvb_account *account, const kvb_change *change, const uint32_t *positions);
/* Makes a change of another kind that is checked and reserved. */
void kvb_account_apply(kvb_account *account, const kvb_change *change);

/* In an account of saved sequences: gives tokens to a sequence that has none. 0 or -ENOMEM. */
int kvb_account_put(kvb_account *account, uint32_t seq, const kvb_span *tokens, size_t n);
/* Distinct tokens of a LOAD; of a single sequence only those that no live sequence holds at the same position. */
uint32_t kvb_account_brings(const kvb_account *account, const kvb_change *change);

/* Tokens of the sequence at positions p0 .. p1-1 that no other sequence holds. */
uint32_t kvb_account_alone(const kvb_account *account, uint32_t seq, uint32_t p0, uint32_t p1);

/* Tokens that sequence `seq` holds; `holder`: a sequence visited before that holds them too, or seq. */
typedef void kvb_span_visit(void *ctx, uint32_t seq, uint32_t holder, kvb_span tokens);
/* Visits every token of the distinct sequences seqs [n], in their order, positions ascending in each. */
void kvb_account_visit(const kvb_account *account, const uint32_t *seqs, uint32_t n, kvb_span_visit *visit, void *ctx);

/* Index in account->node of a sequence's node by its number; the node exists. */
uint32_t kvb_account_node(const kvb_account *account, uint32_t seq, uint32_t number);
/* The path from a root to node[node], both included, as indices in `node`: path [depth + 1]. */
void kvb_account_path(const kvb_account *account, uint32_t node, uint32_t *path);

KVB_HOST void kvb_ids_sort(uint32_t *ids, uint32_t n); /* in ascending order */

#endif
