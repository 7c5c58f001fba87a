/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence as a list of spans: what lies at which of its positions. A span costs 16 bytes whatever its length, so a
 * long sequence costs little, a fork copies a few spans, and the cells of a query follow from its spans. Integers only.
 */
#ifndef KVB_SPANS_H
#define KVB_SPANS_H

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
/* A span that holds position p and others below it is cut in two there. Takes the room of one span. */
void kvb_spans_split(kvb_spans *spans, uint32_t p);
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

#endif
