/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of spans: appending, adding, cutting. */
#include "caches/bookkeeping/spans.h"

#include <assert.h>
#include <errno.h>

int kvb_spans_reserve(kvb_spans *s, kvb_allocator *allocator, size_t more)
{
    return kvb_grow(allocator, &s->span, &s->room, s->n + more);
}

void kvb_spans_free(kvb_spans *s, kvb_allocator *allocator)
{
    kvb_free(allocator, s->span, s->room * sizeof *s->span);
    *s = (kvb_spans){0};
}

static bool follows(const kvb_span *a, const kvb_span *b)
{
    return a->pos + a->n == b->pos && a->at + a->n == b->at;
}

void kvb_spans_append(kvb_spans *s, uint32_t pos, uint64_t at)
{
    kvb_span one = {at, pos, 1};
    assert(pos + 1 >= kvb_spans_next(s));
    s->tokens++;
    if (s->n && follows(&s->span[s->n - 1], &one)) {
        s->span[s->n - 1].n++;
        return;
    }
    assert(s->n < s->room);
    s->span[s->n++] = one;
}

void kvb_spans_add(kvb_spans *s, const kvb_spans *from, uint32_t p0, uint32_t p1)
{
    for (size_t i = 0; i < from->n; i++) {
        kvb_span add = kvb_span_clip(from->span[i], p0, p1);
        size_t at = s->n;
        if (add.n == 0)
            continue;
        while (at > 0 && s->span[at - 1].pos > add.pos) /* behind those that `from` has at its position */
            at--;
        assert(s->n < s->room && (at == s->n || add.pos + add.n <= s->span[at].pos + 1));
        for (size_t j = s->n++; j > at; j--)
            s->span[j] = s->span[j - 1];
        s->span[at] = add;
        s->tokens += add.n;
    }
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (kept && follows(&s->span[kept - 1], &s->span[i]))
            s->span[kept - 1].n += s->span[i].n;
        else
            s->span[kept++] = s->span[i];
    }
    s->n = kept;
}

void kvb_spans_split(kvb_spans *s, uint32_t p)
{
    size_t i = 0;
    while (i < s->n && s->span[i].pos + s->span[i].n <= p)
        i++;
    if (i == s->n || s->span[i].pos >= p)
        return;
    assert(s->n < s->room);
    for (size_t j = s->n++; j > i; j--)
        s->span[j] = s->span[j - 1];
    s->span[i].n = p - s->span[i].pos;
    s->span[i + 1] = kvb_span_clip(s->span[i + 1], p, UINT32_MAX);
}

uint32_t kvb_spans_within(const kvb_spans *s, uint32_t p0, uint32_t p1)
{
    uint32_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += kvb_span_clip(s->span[i], p0, p1).n;
    return n;
}

kvb_spans_cursor kvb_spans_from(const kvb_spans *s, uint32_t n)
{
    size_t i = 0;
    for (; i < s->n && n >= s->span[i].n; i++)
        n -= s->span[i].n;
    return (kvb_spans_cursor){i, n};
}

void kvb_spans_drop(kvb_spans *s, uint32_t n)
{
    const kvb_spans_cursor at = kvb_spans_from(s, n);
    s->tokens -= n;
    s->n -= at.span;
    memmove(s->span, s->span + at.span, s->n * sizeof *s->span);
    if (at.token)
        *s->span = (kvb_span){s->span->at + at.token, s->span->pos + at.token, s->span->n - at.token};
}

kvb_span kvb_spans_next_at(const kvb_spans *s, kvb_spans_cursor *c, uint32_t p)
{
    while (c->span < s->n && s->span[c->span].pos + s->span[c->span].n <= p)
        *c = (kvb_spans_cursor){c->span + 1, 0};
    if (c->span == s->n || s->span[c->span].pos + c->token > p)
        return (kvb_span){0, 0, 0};
    const kvb_span found = kvb_span_clip(s->span[c->span], p, p + 1);
    c->token = p - s->span[c->span].pos + 1;
    if (c->token == s->span[c->span].n)
        *c = (kvb_spans_cursor){c->span + 1, 0};
    return found;
}

void kvb_spans_cut(kvb_spans *s, uint32_t p0, uint32_t p1)
{
    for (size_t i = 0; i < s->n; i++) {
        kvb_span all = s->span[i], gone = kvb_span_clip(all, p0, p1), rest = kvb_span_clip(all, p1, UINT32_MAX);
        if (gone.n == 0 || gone.pos == all.pos || rest.n == 0)
            continue;
        assert(s->n < s->room); /* in two: only here, since what is cut lies within one span */
        s->span[i].n = gone.pos - all.pos;
        for (size_t j = s->n++; j > i + 1; j--)
            s->span[j] = s->span[j - 1];
        s->span[i + 1] = rest;
        s->tokens -= gone.n;
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        kvb_span all = s->span[i], gone = kvb_span_clip(all, p0, p1);
        s->tokens -= gone.n;
        kvb_span left = gone.n == 0           ? all
                        : gone.pos == all.pos ? kvb_span_clip(all, p1, UINT32_MAX)
                                              : kvb_span_clip(all, 0, p0);
        if (left.n)
            s->span[kept++] = left;
    }
    s->n = kept;
}

void kvb_spans_aside_free(kvb_spans_aside *aside, kvb_allocator *allocator)
{
    for (uint32_t i = 0; i < aside->n; i++)
        kvb_spans_free(&aside->list[i], allocator);
    kvb_free(allocator, aside->list, aside->n * sizeof *aside->list);
    *aside = (kvb_spans_aside){0};
}

int kvb_spans_gather(kvb_spans_aside *aside, kvb_allocator *allocator, const kvb_spans *lists, const uint32_t *src,
                     uint32_t n)
{
    kvb_spans_aside_free(aside, allocator);
    aside->list = n ? kvb_alloc_zeroed(allocator, n * sizeof *aside->list) : NULL;
    aside->n = aside->list ? n : 0;
    int error = n && !aside->list ? -ENOMEM : 0;
    for (uint32_t i = 0; i < n && !error; i++) {
        if (lists[src[i]].n == 0)
            continue;
        error = kvb_spans_reserve(&aside->list[i], allocator, lists[src[i]].n);
        if (!error)
            kvb_spans_add(&aside->list[i], &lists[src[i]], 0, UINT32_MAX);
    }
    if (error)
        kvb_spans_aside_free(aside, allocator);
    return error;
}

void kvb_spans_scatter(kvb_spans_aside *aside, kvb_allocator *allocator, kvb_spans *lists, const uint32_t *dst)
{
    for (uint32_t i = 0; i < aside->n; i++) {
        kvb_spans old = lists[dst[i]];
        lists[dst[i]] = aside->list[i];
        aside->list[i] = old;
    }
    kvb_spans_aside_free(aside, allocator);
}

bool kvb_spans_meet(const kvb_spans *a, const kvb_spans *b, uint32_t p0, uint32_t p1, uint32_t *where)
{
    for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
        kvb_span x = kvb_span_clip(a->span[i], p0, p1), both = {0, 0, 0};
        if (x.n)
            both = kvb_span_clip(b->span[j], x.pos, x.pos + x.n);
        if (both.n) {
            *where = both.pos;
            return true;
        }
        if (a->span[i].pos + a->span[i].n < b->span[j].pos + b->span[j].n)
            i++;
        else
            j++;
    }
    return false;
}
