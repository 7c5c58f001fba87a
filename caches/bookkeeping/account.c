/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of spans, and the account of a cache's tokens. */
#include "caches/bookkeeping/account.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Puts a span in a place of the list, before those that are there. Needs room for it. */
static void span_insert(kvb_spans *s, size_t at, kvb_span span)
{
    assert(s->n < s->room);
    memmove(s->span + at + 1, s->span + at, (s->n++ - at) * sizeof span);
    s->span[at] = span;
}

void kvb_spans_append(kvb_spans *s, uint32_t pos, uint64_t at)
{
    kvb_span one = {at, pos, 1};
    assert(pos + 1 >= kvb_spans_next(s));
    s->tokens++;
    if (s->n && follows(&s->span[s->n - 1], &one))
        s->span[s->n - 1].n++;
    else
        span_insert(s, s->n, one);
}

void kvb_spans_add(kvb_spans *s, const kvb_spans *from, uint32_t p0, uint32_t p1)
{
    for (size_t i = 0; i < from->n; i++) {
        kvb_span add = kvb_span_clip(from->span[i], p0, p1);
        size_t at = s->n;
        if (add.n == 0)
            continue;
        while (at > 0 && s->span[at - 1].pos > add.pos) /* behind from's earlier spans at the same position */
            at--;
        assert(at == s->n || add.pos + add.n <= s->span[at].pos + 1);
        span_insert(s, at, add);
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

/* Cuts the span that holds position p, and lower ones, in two at p. Needs room for one span. */
static void spans_split(kvb_spans *s, uint32_t p)
{
    size_t i = 0;
    while (i < s->n && s->span[i].pos + s->span[i].n <= p)
        i++;
    if (i == s->n || s->span[i].pos >= p)
        return;
    span_insert(s, i, kvb_span_clip(s->span[i], 0, p));
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
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        const kvb_span all = s->span[i], gone = kvb_span_clip(all, p0, p1);
        const kvb_span before = kvb_span_clip(all, 0, p0), rest = kvb_span_clip(all, p1, UINT32_MAX);
        s->tokens -= gone.n;
        if (gone.n && before.n && rest.n) { /* cut in two: all dropped positions lie within this span */
            span_insert(s, i, before);
            s->span[i + 1] = rest;
            return;
        }
        const kvb_span left = gone.n == 0 ? all : before.n ? before : rest;
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

/* ---- the account: which sequences hold which tokens ---------------------------------------------------------- */

/* Visits a sequence's tokens in parts, by which of `others` hold them, too. */
typedef struct walk {
    const kvb_account *account;
    const uint32_t *others;
    kvb_span_visit *visit;
    void *ctx;
    uint32_t seq;
} walk;

/* Visits tokens by ascending position; looks for a holder in others[n_others - 1] and down. A token has the same
 * position in all sequences, so two spans share tokens where ordinal minus position is the same. */
static void span_walk(const walk *w, uint32_t n_others, kvb_span tokens)
{
    while (n_others-- > 0 && tokens.n) {
        uint32_t other = w->others[n_others], end = tokens.pos + tokens.n;
        const kvb_spans *held = &w->account->seq[other];
        for (size_t i = 0; other != w->seq && i < held->n && held->span[i].pos < end && tokens.n; i++) {
            kvb_span shared = kvb_span_clip(held->span[i], tokens.pos, end);
            if (shared.n == 0 || shared.at - shared.pos != tokens.at - tokens.pos)
                continue;
            span_walk(w, n_others, kvb_span_clip(tokens, tokens.pos, shared.pos));
            w->visit(w->ctx, w->seq, other, shared);
            tokens = kvb_span_clip(tokens, shared.pos + shared.n, end);
        }
    }
    if (tokens.n)
        w->visit(w->ctx, w->seq, w->seq, tokens);
}

void kvb_account_visit(const kvb_account *a, const uint32_t *seqs, uint32_t n, kvb_span_visit *visit, void *ctx)
{
    for (uint32_t i = 0; i < n; i++)
        for (size_t j = 0; j < a->seq[seqs[i]].n; j++)
            span_walk(&(walk){a, seqs, visit, ctx, seqs[i]}, i, a->seq[seqs[i]].span[j]);
}

static void alone_count(void *ctx, uint32_t seq, uint32_t holder, kvb_span tokens)
{
    *(uint32_t *)ctx += holder == seq ? tokens.n : 0;
}

uint32_t kvb_account_alone(const kvb_account *a, uint32_t seq, uint32_t p0, uint32_t p1)
{
    uint32_t n = 0;
    for (size_t i = 0; i < a->seq[seq].n; i++)
        span_walk(&(walk){a, a->alive, alone_count, &n, seq}, a->n_alive, kvb_span_clip(a->seq[seq].span[i], p0, p1));
    return n;
}

uint32_t kvb_account_brings(const kvb_account *a, const kvb_change *change)
{
    const kvb_account *l = change->loaded;
    uint32_t n = 0;
    if (change->src == KVB_SEQ_ALL)
        kvb_account_visit(l, l->alive, l->n_alive, alone_count, &n);
    for (size_t i = 0; change->src != KVB_SEQ_ALL && i < l->seq[change->src].n; i++)
        span_walk(&(walk){a, a->alive, alone_count, &n, change->src}, a->n_alive, l->seq[change->src].span[i]);
    return n;
}

void kvb_account_path(const kvb_account *a, uint32_t node, uint32_t *path)
{
    const uint32_t seq = a->node[node].seq;
    uint32_t i = a->node[node].depth;
    path[i] = node;
    for (int32_t wanted = a->node[node].parent; wanted >= 0;) { /* a parent comes before its children */
        const kvb_node *at = &a->node[--node];
        if (at->seq != seq || at->number != (uint32_t)wanted)
            continue;
        path[--i] = node;
        wanted = at->parent;
    }
}

uint32_t kvb_account_node(const kvb_account *a, uint32_t seq, uint32_t number)
{
    uint32_t i = a->n_nodes - 1;
    while (a->node[i].seq != seq || a->node[i].number != number)
        i--;
    return i;
}

/* ---- is a change valid? -------------------------------------------------------------------------------------- */

typedef struct refusal {
    char *why;
    size_t why_bytes;
} refusal;

__attribute__((format(printf, 3, 4))) static int refuse(const refusal *r, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->why, r->why_bytes, format, args);
    va_end(args);
    return error;
}

static int seq_check(const kvb_account *a, uint32_t seq, const refusal *r)
{
    return seq < a->n_ids ? 0 : refuse(r, -EINVAL, "sequence %u is out of range: 0 .. %u", seq, a->n_ids - 1);
}

/* Refuses to change a sequence that has nodes. */
static int pending_check(const kvb_account *a, uint32_t seq, const refusal *r)
{
    return a->pending[seq]
               ? refuse(r, -EINVAL, "%u nodes of sequence %u are pending: commit first", a->pending[seq], seq)
               : 0;
}

/* The same for calls that change all sequences. */
static int nodes_check(const kvb_account *a, const refusal *r)
{
    return a->n_nodes ? pending_check(a, a->node[0].seq, r) : 0;
}

/* Checks a sequence that a call changes. */
static int idle_check(const kvb_account *a, uint32_t seq, const refusal *r)
{
    int error = seq_check(a, seq, r);
    return error ? error : pending_check(a, seq, r);
}

/* Checks the number of sequences, including those that a commit can bring to life. */
static int alive_check(const kvb_account *a, uint32_t alive, const refusal *r)
{
    return alive + a->n_promised > a->max_seqs ? refuse(r, -ENOSPC, "no room for %u sequences: at most %u may be alive",
                                                        alive + a->n_promised, a->max_seqs)
                                               : 0;
}

static int length_check(const kvb_account *a, uint32_t seq, uint32_t more, const refusal *r)
{
    uint32_t next = kvb_spans_next(&a->seq[seq]);
    bool fits = more <= a->seq_capacity && next <= a->seq_capacity - more;
    return fits ? 0 : refuse(r, -ENOSPC, "sequence %u would pass its %u positions", seq, a->seq_capacity);
}

static int step_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    uint32_t alive = a->n_alive, counted = 0;
    int error = change->n ? 0 : refuse(r, -EINVAL, "a step needs at least one token");
    if (!change->seq_ids && !error)
        error = pending_check(a, 0, r);
    if (!change->seq_ids && !error) { /* a mere count, which may be absurd: no loop over it */
        alive += a->seq[0].tokens == 0;
        error = length_check(a, 0, change->n, r);
    }
    for (; change->seq_ids && counted < change->n && !error; counted += !error) {
        uint32_t s = change->seq_ids[counted];
        error = idle_check(a, s, r);
        if (!error && a->tally[s]++ == 0)
            alive += a->seq[s].tokens == 0;
    }
    for (uint32_t i = 0; i < counted; i++) {
        uint32_t s = change->seq_ids[i];
        if (a->tally[s] && !error)
            error = length_check(a, s, a->tally[s], r);
        a->tally[s] = 0;
    }
    return error ? error : alive_check(a, alive, r);
}

static int propose_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    uint32_t alive = a->n_alive, counted = 0;
    int error = change->n ? 0 : refuse(r, -EINVAL, "a proposal needs at least one node");
    if (!change->seq_ids && !change->parents && !error) /* a mere count, which may be absurd */
        alive += !a->seq[0].tokens && !a->pending[0];
    for (; (change->seq_ids || change->parents) && counted < change->n && !error; counted += !error) {
        const uint32_t s = kvb_change_seq(change, counted);
        error = seq_check(a, s, r);
        if (error)
            break;
        const uint32_t number = a->pending[s] + a->tally[s];
        const int64_t parent = change->parents ? change->parents[counted] : -1;
        if (parent < -1 || parent >= (int64_t)number)
            error = refuse(r, -EINVAL, "parent %d of node %u is not an earlier node of sequence %u", (int)parent,
                           number, s);
        else if (a->tally[s]++ == 0)
            alive += !a->seq[s].tokens && !a->pending[s];
    }
    for (uint32_t i = 0; i < counted; i++)
        a->tally[kvb_change_seq(change, i)] = 0;
    return error ? error : alive_check(a, alive, r);
}

static int commit_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    int64_t parent = -1;
    int error = seq_check(a, change->src, r);
    if (!error && change->n && !change->accepted)
        error = refuse(r, -EINVAL, "accepted nodes must be given");
    for (uint32_t i = 0; i < change->n && !error; i++) {
        const uint32_t number = change->accepted[i], pending = a->pending[change->src];
        if (number >= pending)
            return refuse(r, -EINVAL, "accepted node %u is not pending: sequence %u has %u", number, change->src,
                          pending);
        const kvb_node *node = &a->node[kvb_account_node(a, change->src, number)];
        if (node->parent != parent)
            error = refuse(r, -EINVAL, "accepted node %u is the child of %d, not of %d", number, (int)node->parent,
                           (int)parent);
        parent = number;
    }
    return error ? error : length_check(a, change->src, change->n, r);
}

static int range_check(const kvb_change *change, const refusal *r)
{
    return change->p0 <= change->p1 ? 0 : refuse(r, -EINVAL, "positions %u .. %u are no range", change->p0, change->p1);
}

static int copy_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    uint32_t where;
    int error = idle_check(a, change->src, r);
    if (!error)
        error = idle_check(a, change->dst, r);
    if (!error)
        error = range_check(change, r);
    if (error)
        return error;
    const kvb_spans *src = &a->seq[change->src], *dst = &a->seq[change->dst];
    if (kvb_spans_meet(src, dst, change->p0, change->p1, &where))
        return refuse(r, -EINVAL, "sequence %u has position %u already", change->dst, where);
    bool adds = kvb_spans_meet(src, src, change->p0, change->p1, &where);
    return adds && !dst->tokens ? alive_check(a, a->n_alive + 1, r) : 0;
}

static int remove_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    if (change->drops_nodes) /* clear, which is always valid */
        return 0;
    int error = idle_check(a, change->src, r);
    if (!error && change->others)
        error = nodes_check(a, r);
    return error ? error : range_check(change, r);
}

static int match_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    int error = idle_check(a, change->src, r);
    if (!error && a->seq[change->src].tokens)
        error = refuse(r, -EINVAL, "sequence %u is not empty", change->src);
    if (!error)
        error = length_check(a, change->src, change->n, r);
    return error || !change->n ? error : alive_check(a, a->n_alive + 1, r);
}

static int freeze_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    const int error = idle_check(a, change->src, r);
    const bool holds = !error && change->p1 && kvb_spans_within(&a->seq[change->src], 0, change->p1) == change->p1;
    return error || holds
               ? error
               : refuse(r, -EINVAL, "sequence %u does not hold its first %u positions, of which there must be one",
                        change->src, change->p1);
}

/* Destinations are distinct, so with an absurd count the loop soon meets an id that is out of range or named before. */
static int reorder_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    uint32_t alive = a->n_alive, counted = 0;
    int error = change->n && (!change->dsts || !change->srcs)
                    ? refuse(r, -EINVAL, "destinations and sources must be given")
                    : 0;
    for (; counted < change->n && !error; counted += !error) {
        const uint32_t dst = change->dsts[counted], src = change->srcs[counted];
        error = idle_check(a, dst, r);
        if (!error)
            error = idle_check(a, src, r);
        if (!error && a->tally[dst])
            error = refuse(r, -EINVAL, "sequence %u is named twice as a destination", dst);
        if (error)
            break;
        a->tally[dst] = 1;
        alive += (a->seq[src].tokens > 0) - (a->seq[dst].tokens > 0);
    }
    for (uint32_t i = 0; i < counted; i++)
        a->tally[change->dsts[i]] = 0;
    return error ? error : alive_check(a, alive, r);
}

static int load_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    const kvb_account *l = change->loaded;
    const bool whole = change->src == KVB_SEQ_ALL;
    const uint32_t alive = l->n_alive + (whole ? 0 : a->n_alive);
    int error = nodes_check(a, r);
    if (!error && !whole)
        error = seq_check(a, change->src, r);
    if (!error && !whole && a->seq[change->src].tokens)
        error = refuse(r, -EINVAL, "sequence %u is alive: what was saved can be loaded as an empty one", change->src);
    for (uint32_t i = 0; i < l->n_alive && !error; i++)
        if (kvb_spans_next(&l->seq[l->alive[i]]) > a->seq_capacity)
            error = refuse(r, -ENOSPC, "sequence %u would pass its %u positions", l->alive[i], a->seq_capacity);
    return error ? error : alive_check(a, alive, r);
}

/* Tokens that stay below or above the moved ones must still be below or above them afterwards. */
static int shift_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    int error = idle_check(a, change->src, r);
    if (!error)
        error = range_check(change, r);
    if (error)
        return error;
    const kvb_spans *s = &a->seq[change->src];
    int64_t below = -1, above = INT64_MAX, first = -1, last = -1;
    for (size_t i = 0; i < s->n; i++) {
        kvb_span before = kvb_span_clip(s->span[i], 0, change->p0),
                 moved = kvb_span_clip(s->span[i], change->p0, change->p1),
                 behind = kvb_span_clip(s->span[i], change->p1, KVB_POS_END);
        below = before.n ? (int64_t)before.pos + before.n - 1 : below;
        above = behind.n && above == INT64_MAX ? behind.pos : above;
        first = moved.n && first < 0 ? moved.pos : first;
        last = moved.n ? (int64_t)moved.pos + moved.n - 1 : last;
    }
    if (first < 0)
        return 0;
    const int64_t to = kvb_change_moved(change, first), end = kvb_change_moved(change, last);
    if (to < 0)
        return refuse(r, -EINVAL, "position %lld cannot move by %d: positions begin at 0", (long long)first,
                      (int)change->delta);
    if (to <= below || end >= above)
        return refuse(r, -EINVAL, "positions %lld .. %lld cannot move to %lld .. %lld: position %lld stays",
                      (long long)first, (long long)last, (long long)to, (long long)end,
                      (long long)(to <= below ? below : above));
    if (end >= a->seq_capacity)
        return refuse(r, -ENOSPC, "sequence %u would pass its %u positions", change->src, a->seq_capacity);
    return a->shifts < KVB_REVISION_MAX ? 0 : refuse(r, -ENOSPC, "a cache can shift %u times", KVB_REVISION_MAX);
}

static int defrag_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    (void)change;
    return nodes_check(a, r);
}

int kvb_account_check(const kvb_account *a, const kvb_change *change, char *why, size_t why_bytes)
{
    static int (*const checks[])(const kvb_account *, const kvb_change *, const refusal *) = {
        [KVB_CHANGE_STEP] = step_check,   [KVB_CHANGE_PROPOSE] = propose_check, [KVB_CHANGE_COMMIT] = commit_check,
        [KVB_CHANGE_COPY] = copy_check,   [KVB_CHANGE_REMOVE] = remove_check,   [KVB_CHANGE_REORDER] = reorder_check,
        [KVB_CHANGE_SHIFT] = shift_check, [KVB_CHANGE_MATCH] = match_check,     [KVB_CHANGE_DEFRAG] = defrag_check,
        [KVB_CHANGE_LOAD] = load_check,   [KVB_CHANGE_FREEZE] = freeze_check,
    };
    return checks[change->kind](a, change, &(refusal){why, why_bytes});
}

enum { LISTS = 5 }; /* alive, changed, place, tally, pending: one block */

int kvb_account_open(kvb_account *a)
{
    a->seq = kvb_alloc_zeroed(a->allocator, a->n_ids * sizeof *a->seq);
    a->alive = kvb_alloc_zeroed(a->allocator, LISTS * a->n_ids * sizeof *a->alive);
    if (!a->seq || !a->alive)
        return -ENOMEM;
    a->changed = a->alive + a->n_ids;
    a->place = a->changed + a->n_ids;
    a->tally = a->place + a->n_ids;
    a->pending = a->tally + a->n_ids;
    return 0;
}

void kvb_account_close(kvb_account *a)
{
    for (uint32_t s = 0; s < a->n_ids && a->seq; s++)
        kvb_spans_free(&a->seq[s], a->allocator);
    kvb_free(a->allocator, a->seq, a->n_ids * sizeof *a->seq);
    kvb_free(a->allocator, a->alive, LISTS * a->n_ids * sizeof *a->alive);
    kvb_free(a->allocator, a->node, a->node_room * sizeof *a->node);
    kvb_spans_aside_free(&a->reordered, a->allocator);
    *a = (kvb_account){.allocator = a->allocator};
}

/* ---- making a change ------------------------------------------------------------------------------------ */

/* Notes the sequences of a step or proposal. Counts for each the spans that its tokens can make: one for each stretch
 * of neighbours in the step, one for each node. */
static void step_tally(kvb_account *a, const kvb_change *change)
{
    for (uint32_t i = 0; i < change->n; i++) {
        uint32_t s = kvb_change_seq(change, i);
        if (change->kind == KVB_CHANGE_STEP && i > 0 && s == kvb_change_seq(change, i - 1))
            continue;
        if (a->tally[s]++ == 0)
            a->changed[a->n_changed++] = s;
    }
}

static int by_id(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

void kvb_ids_sort(uint32_t *ids, uint32_t n)
{
    qsort(ids, n, sizeof *ids, by_id);
}

/* Notes the sequences that lose tokens, in the order of their ids. */
static void removed_note(kvb_account *a, const kvb_change *change)
{
    if (!change->others)
        a->changed[a->n_changed++] = change->src;
    for (uint32_t i = 0; i < a->n_alive && change->others; i++)
        if (a->alive[i] != change->src)
            a->changed[a->n_changed++] = a->alive[i];
    kvb_ids_sort(a->changed, a->n_changed);
}

/* Number of stretches of consecutive ordinals. */
static size_t stretches(const uint64_t *ordinals, uint32_t n)
{
    size_t some = n > 0;
    for (uint32_t i = 1; i < n; i++)
        some += ordinals[i] != ordinals[i - 1] + 1;
    return some;
}

/* Notes the loaded sequences, and with the whole cache also those alive; makes room for the tokens: 0 or -ENOMEM. */
static int load_reserve(kvb_account *a, const kvb_change *change)
{
    const kvb_account *l = change->loaded;
    int error = 0;
    for (uint32_t i = 0; i < a->n_alive && change->src == KVB_SEQ_ALL; i++)
        a->changed[a->n_changed++] = a->alive[i];
    for (uint32_t i = 0; i < l->n_alive && !error; i++) {
        const uint32_t s = l->alive[i];
        if (!a->seq[s].tokens)
            a->changed[a->n_changed++] = s;
        error = kvb_spans_reserve(&a->seq[s], a->allocator, l->seq[s].n);
    }
    return error;
}

int kvb_account_reserve(kvb_account *a, const kvb_change *change)
{
    int error = 0;
    a->n_changed = 0;
    switch (change->kind) {
    case KVB_CHANGE_STEP:
    case KVB_CHANGE_PROPOSE: /* makes room for a commit of all nodes, so that commits cannot fail */
        step_tally(a, change);
        for (uint32_t i = 0; i < a->n_changed; i++) {
            uint32_t s = a->changed[i];
            error = error ? error : kvb_spans_reserve(&a->seq[s], a->allocator, (size_t)a->pending[s] + a->tally[s]);
            a->tally[s] = 0;
        }
        if (!error && change->kind == KVB_CHANGE_PROPOSE)
            error = kvb_grow(a->allocator, &a->node, &a->node_room, (size_t)a->n_nodes + change->n);
        return error;
    case KVB_CHANGE_COMMIT:
        a->changed[a->n_changed++] = change->src;
        return 0;
    case KVB_CHANGE_COPY:
        a->changed[a->n_changed++] = change->dst;
        return kvb_spans_reserve(&a->seq[change->dst], a->allocator, a->seq[change->src].n);
    case KVB_CHANGE_REMOVE:
        removed_note(a, change);
        return change->others ? 0 : kvb_spans_reserve(&a->seq[change->src], a->allocator, 1);
    case KVB_CHANGE_MATCH:
        a->changed[a->n_changed++] = change->src;
        return kvb_spans_reserve(&a->seq[change->src], a->allocator, stretches(change->ordinals, change->n));
    case KVB_CHANGE_REORDER:
        for (uint32_t i = 0; i < change->n; i++)
            a->changed[a->n_changed++] = change->dsts[i];
        return kvb_spans_gather(&a->reordered, a->allocator, a->seq, change->srcs, change->n);
    case KVB_CHANGE_DEFRAG:
    case KVB_CHANGE_FREEZE:
        return 0;
    case KVB_CHANGE_SHIFT: /* cuts two spans in two; a division makes a span of each token */
        a->changed[a->n_changed++] = change->src;
        return kvb_spans_reserve(
            &a->seq[change->src], a->allocator,
            change->divisor ? kvb_spans_within(&a->seq[change->src], change->p0, change->p1) + (size_t)2 : 2);
    case KVB_CHANGE_LOAD:
        return load_reserve(a, change);
    }
    return -EINVAL;
}

/* Tokens of the changed sequences. */
static uint32_t changed_tokens(const kvb_account *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_changed; i++)
        n += a->seq[a->changed[i]].tokens;
    return n;
}

/* Changes the number of a sequence's nodes by `by`. */
static void pending_count(kvb_account *a, uint32_t seq, int by)
{
    const bool was = a->pending[seq];
    a->pending[seq] += (uint32_t)by;
    if (!a->seq[seq].tokens && was != (a->pending[seq] > 0))
        a->n_promised += was ? UINT32_MAX : 1;
}

/* The accepted nodes of src join it, its other nodes are dropped. */
static void nodes_commit(kvb_account *a, const kvb_change *change)
{
    kvb_spans *seq = &a->seq[change->src];
    const uint32_t len = kvb_spans_next(seq);
    uint32_t left = 0;
    pending_count(a, change->src, -(int)a->pending[change->src]);
    for (uint32_t i = 0; i < change->n; i++)
        kvb_spans_append(seq, len + i, a->node[kvb_account_node(a, change->src, change->accepted[i])].ordinal);
    for (uint32_t i = 0; i < a->n_nodes; i++)
        if (a->node[i].seq != change->src)
            a->node[left++] = a->node[i];
    a->n_nodes = left;
}

/* Lists or unlists the changed sequences in `alive`. had: tokens that they held before. */
static void alive_settle(kvb_account *a, uint32_t had)
{
    a->held += changed_tokens(a) - had;
    for (uint32_t i = 0; i < a->n_changed; i++) {
        uint32_t s = a->changed[i], at = a->place[s];
        bool listed = at < a->n_alive && a->alive[at] == s;
        if (a->seq[s].tokens && !listed) {
            a->place[s] = a->n_alive;
            a->alive[a->n_alive++] = s;
        } else if (!a->seq[s].tokens && listed) {
            a->alive[at] = a->alive[--a->n_alive];
            a->place[a->alive[at]] = at;
        }
    }
}

void kvb_account_admit(kvb_account *a, const kvb_change *change, uint32_t *positions)
{
    uint32_t had = changed_tokens(a);
    for (uint32_t i = 0; i < change->n; i++) {
        const uint32_t seq = kvb_change_seq(change, i);
        kvb_spans *s = &a->seq[seq];
        positions[i] = kvb_spans_next(s);
        if (change->kind == KVB_CHANGE_PROPOSE) {
            const int32_t parent = change->parents[i];
            const uint32_t depth = parent < 0 ? 0 : a->node[kvb_account_node(a, seq, (uint32_t)parent)].depth + 1;
            a->node[a->n_nodes++] = (kvb_node){a->next_ordinal + i, seq, a->pending[seq], parent, depth};
            pending_count(a, seq, 1);
            positions[i] += depth;
        } else {
            kvb_spans_append(s, positions[i], a->next_ordinal + i);
        }
    }
    a->next_ordinal += change->n;
    alive_settle(a, had);
}

void kvb_account_withdraw(kvb_account *a, const kvb_change *change, const uint32_t *positions)
{
    uint32_t had = changed_tokens(a);
    a->next_ordinal -= change->n;
    for (uint32_t i = 0; i < change->n; i++)
        if (change->kind == KVB_CHANGE_PROPOSE)
            pending_count(a, a->node[--a->n_nodes].seq, -1);
        else /* the cut at a sequence's first new token drops them all */
            kvb_spans_cut(&a->seq[kvb_change_seq(change, i)], positions[i], KVB_POS_END);
    alive_settle(a, had);
}

/* Makes a span of each token of the spans within positions p0 .. p1-1; from the last one backwards, since the room is
 * behind them. */
static void spans_scatter(kvb_spans *s, uint32_t p0, uint32_t p1)
{
    size_t first = 0, end, at = s->n;
    while (first < s->n && s->span[first].pos < p0)
        first++;
    for (end = first; end < s->n && s->span[end].pos < p1; end++)
        at += s->span[end].n - 1;
    for (size_t i = s->n; i > end; i--)
        s->span[at - (s->n - i) - 1] = s->span[i - 1];
    const size_t behind = s->n - end;
    s->n = at;
    at -= behind;
    for (size_t i = end; i > first; i--) {
        const kvb_span whole = s->span[i - 1];
        for (uint32_t k = whole.n; k > 0; k--)
            s->span[--at] = (kvb_span){whole.at + k - 1, whole.pos + k - 1, 1};
    }
}

static void shift_apply(kvb_account *a, const kvb_change *change)
{
    kvb_spans *s = &a->seq[change->src];
    const uint64_t ordinals = (UINT64_C(1) << KVB_REVISION_AT) - 1;
    spans_split(s, change->p0);
    spans_split(s, change->p1);
    if (change->divisor) /* each token moves by a distance of its own */
        spans_scatter(s, change->p0, change->p1);
    a->shifts++;
    for (size_t i = 0; i < s->n; i++)
        if (s->span[i].pos >= change->p0 && s->span[i].pos < change->p1) {
            a->shifted = true;
            s->span[i].pos = (uint32_t)kvb_change_moved(change, s->span[i].pos);
            s->span[i].at = (s->span[i].at & ordinals) | (uint64_t)a->shifts << KVB_REVISION_AT;
        }
}

static void load_apply(kvb_account *a, const kvb_account *l)
{
    for (uint32_t i = 0; i < a->n_changed; i++)
        kvb_spans_cut(&a->seq[a->changed[i]], 0, KVB_POS_END);
    for (uint32_t i = 0; i < l->n_alive; i++)
        kvb_spans_add(&a->seq[l->alive[i]], &l->seq[l->alive[i]], 0, KVB_POS_END);
    a->next_ordinal = a->next_ordinal > l->next_ordinal ? a->next_ordinal : l->next_ordinal;
    a->shifts = a->shifts > l->shifts ? a->shifts : l->shifts;
}

void kvb_account_apply(kvb_account *a, const kvb_change *change)
{
    uint32_t had = changed_tokens(a);
    for (; change->drops_nodes && a->n_nodes; a->n_nodes--)
        pending_count(a, a->node[a->n_nodes - 1].seq, -1);
    if (change->kind == KVB_CHANGE_COPY)
        kvb_spans_add(&a->seq[change->dst], &a->seq[change->src], change->p0, change->p1);
    if (change->kind == KVB_CHANGE_SHIFT)
        shift_apply(a, change);
    if (change->kind == KVB_CHANGE_COMMIT)
        nodes_commit(a, change);
    for (uint32_t i = 0; i < a->n_changed && change->kind == KVB_CHANGE_REMOVE; i++)
        kvb_spans_cut(&a->seq[a->changed[i]], change->p0, change->p1);
    for (uint32_t i = 0; i < change->n && change->kind == KVB_CHANGE_MATCH; i++)
        kvb_spans_append(&a->seq[change->src], i, change->ordinals[i]);
    if (change->kind == KVB_CHANGE_MATCH)
        a->next_ordinal += change->n;
    if (change->kind == KVB_CHANGE_REORDER)
        kvb_spans_scatter(&a->reordered, a->allocator, a->seq, change->dsts);
    if (change->kind == KVB_CHANGE_LOAD)
        load_apply(a, change->loaded);
    if (change->drops_nodes || (change->kind == KVB_CHANGE_LOAD && change->src == KVB_SEQ_ALL))
        a->shifted = false;
    alive_settle(a, had);
}

int kvb_account_put(kvb_account *a, uint32_t seq, const kvb_span *tokens, size_t n)
{
    kvb_spans *s = &a->seq[seq];
    int error = kvb_spans_reserve(s, a->allocator, n);
    for (size_t i = 0; i < n && !error; i++) {
        s->span[s->n++] = tokens[i];
        s->tokens += tokens[i].n;
        const uint64_t end = (tokens[i].at & ((UINT64_C(1) << KVB_REVISION_AT) - 1)) + tokens[i].n;
        const uint32_t revision = (uint32_t)(tokens[i].at >> KVB_REVISION_AT);
        a->next_ordinal = a->next_ordinal > end ? a->next_ordinal : end;
        a->shifts = a->shifts > revision ? a->shifts : revision;
    }
    a->changed[0] = seq;
    a->n_changed = 1;
    alive_settle(a, 0);
    return error;
}
