/* SPDX-License-Identifier: Apache-2.0 */
/* The account of a cache's tokens: what may be done, and doing it. */
#include "caches/bookkeeping/account.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void kvb_account_close(kvb_account *a)
{
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        kvb_spans_free(&a->seq[s], a->allocator);
    kvb_free(a->allocator, a->node, a->node_room * sizeof *a->node);
    *a = (kvb_account){.allocator = a->allocator};
}

/* ---- may it be done? --------------------------------------------------------------------------------- */

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

static uint32_t alive_count(const kvb_account *a)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        n += a->seq[s].tokens > 0;
    return n;
}

static int seq_check(uint32_t seq, const refusal *r)
{
    return seq < KVB_MAX_SEQS ? 0 : refuse(r, -EINVAL, "sequence %u is out of range: 0 .. %u", seq, KVB_MAX_SEQS - 1);
}

static int alive_check(const kvb_account *a, uint32_t seq, const refusal *r)
{
    int error = seq_check(seq, r);
    return error || a->seq[seq].tokens ? error : refuse(r, -EINVAL, "sequence %u is empty", seq);
}

static int pending_check(const kvb_account *a, const refusal *r)
{
    return a->n_nodes ? refuse(r, -EINVAL, "%u nodes are pending: commit first", a->n_nodes) : 0;
}

static int length_check(const kvb_account *a, uint32_t seq, uint32_t more, const refusal *r)
{
    uint32_t next = kvb_spans_next(&a->seq[seq]);
    bool fits = more <= a->seq_capacity && next <= a->seq_capacity - more;
    return fits ? 0 : refuse(r, -ENOSPC, "sequence %u would pass its %u positions", seq, a->seq_capacity);
}

static int step_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    uint32_t adds[KVB_MAX_SEQS] = {0}, alive = alive_count(a);
    int error = change->n ? pending_check(a, r) : refuse(r, -EINVAL, "a step needs at least one token");
    if (!change->seq_ids) { /* a count alone, which may be absurd: no loop over it */
        adds[0] = change->n;
        alive += a->seq[0].tokens == 0;
    }
    for (uint32_t i = 0; change->seq_ids && i < change->n && !error; i++) {
        uint32_t s = change->seq_ids[i];
        error = seq_check(s, r);
        if (!error && adds[s]++ == 0)
            alive += a->seq[s].tokens == 0;
    }
    if (!error && alive > a->max_seqs)
        error = refuse(r, -ENOSPC, "no room for %u sequences: at most %u may be alive", alive, a->max_seqs);
    for (uint32_t s = 0; s < KVB_MAX_SEQS && !error; s++)
        error = adds[s] ? length_check(a, s, adds[s], r) : 0;
    return error;
}

static int propose_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    if (change->n == 0)
        return refuse(r, -EINVAL, "a proposal needs at least one node");
    for (uint32_t i = 0; change->parents && i < change->n; i++)
        if (change->parents[i] < -1 || change->parents[i] >= (int64_t)a->n_nodes + i)
            return refuse(r, -EINVAL, "parent %d of node %u is not an earlier node", (int)change->parents[i],
                          a->n_nodes + i);
    if (!a->seq[0].tokens && alive_count(a) >= a->max_seqs) /* a commit would bring it to life */
        return refuse(r, -ENOSPC, "no room for sequence 0: at most %u may be alive", a->max_seqs);
    return 0;
}

static int commit_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    int64_t parent = -1;
    if (change->n && !change->accepted)
        return refuse(r, -EINVAL, "accepted nodes must be given");
    for (uint32_t i = 0; i < change->n; i++) {
        uint32_t node = change->accepted[i];
        if (node >= a->n_nodes)
            return refuse(r, -EINVAL, "accepted node %u is not pending: there are %u", node, a->n_nodes);
        if (a->node[node].parent != parent)
            return refuse(r, -EINVAL, "accepted node %u is the child of %d, not of %d", node, (int)a->node[node].parent,
                          (int)parent);
        parent = node;
    }
    return length_check(a, 0, change->n, r);
}

static int range_check(const kvb_change *change, const refusal *r)
{
    return change->p0 <= change->p1 ? 0 : refuse(r, -EINVAL, "positions %u .. %u are no range", change->p0, change->p1);
}

static int copy_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    uint32_t where;
    int error = pending_check(a, r);
    if (!error)
        error = alive_check(a, change->src, r);
    if (!error)
        error = seq_check(change->dst, r);
    if (!error)
        error = range_check(change, r);
    if (error)
        return error;
    const kvb_spans *src = &a->seq[change->src], *dst = &a->seq[change->dst];
    if (kvb_spans_meet(src, dst, change->p0, change->p1, &where))
        return refuse(r, -EINVAL, "sequence %u has position %u already", change->dst, where);
    bool adds = kvb_spans_meet(src, src, change->p0, change->p1, &where);
    if (adds && !dst->tokens && alive_count(a) >= a->max_seqs)
        return refuse(r, -ENOSPC, "no room for another sequence: at most %u may be alive", a->max_seqs);
    return 0;
}

static int remove_check(const kvb_account *a, const kvb_change *change, const refusal *r)
{
    if (change->drops_nodes) /* clear: there is nothing to be wrong */
        return 0;
    int error = pending_check(a, r);
    if (!error)
        error = alive_check(a, change->src, r);
    return error ? error : range_check(change, r);
}

int kvb_account_check(const kvb_account *a, const kvb_change *change, char *why, size_t why_bytes)
{
    static int (*const checks[])(const kvb_account *, const kvb_change *, const refusal *) = {
        [KVB_CHANGE_STEP] = step_check, [KVB_CHANGE_PROPOSE] = propose_check, [KVB_CHANGE_COMMIT] = commit_check,
        [KVB_CHANGE_COPY] = copy_check, [KVB_CHANGE_REMOVE] = remove_check,
    };
    return checks[change->kind](a, change, &(refusal){why, why_bytes});
}

/* ---- doing it ------------------------------------------------------------------------------------------- */

void kvb_change_spans(const kvb_change *change, uint32_t spans[KVB_MAX_SEQS])
{
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        spans[s] = 0;
    for (uint32_t i = 0; i < change->n; i++)
        spans[kvb_change_seq(change, i)] += i == 0 || kvb_change_seq(change, i) != kvb_change_seq(change, i - 1);
}

int kvb_account_reserve(kvb_account *a, const kvb_change *change)
{
    uint32_t spans[KVB_MAX_SEQS];
    int error = 0;
    switch (change->kind) {
    case KVB_CHANGE_STEP:
        kvb_change_spans(change, spans);
        for (uint32_t s = 0; s < KVB_MAX_SEQS && !error; s++)
            error = spans[s] ? kvb_spans_reserve(&a->seq[s], a->allocator, spans[s]) : 0;
        return error;
    case KVB_CHANGE_PROPOSE: /* with room for a commit of all nodes, which then cannot fail */
        error = kvb_grow(a->allocator, &a->node, &a->node_room, (size_t)a->n_nodes + change->n);
        return error ? error : kvb_spans_reserve(&a->seq[0], a->allocator, (size_t)a->n_nodes + change->n);
    case KVB_CHANGE_COMMIT:
        return 0;
    case KVB_CHANGE_COPY:
        return kvb_spans_reserve(&a->seq[change->dst], a->allocator, a->seq[change->src].n);
    case KVB_CHANGE_REMOVE:
        for (uint32_t s = 0; s < KVB_MAX_SEQS && !error; s++)
            if (a->seq[s].tokens && (s == change->src) != change->others)
                error = kvb_spans_reserve(&a->seq[s], a->allocator, 1);
        return error;
    }
    return -EINVAL;
}

void kvb_account_admit(kvb_account *a, const kvb_change *change, uint32_t *positions)
{
    uint32_t len = kvb_spans_next(&a->seq[0]);
    if (change->kind == KVB_CHANGE_PROPOSE && a->n_nodes == 0)
        a->first_node = a->next_ordinal;
    for (uint32_t i = 0; i < change->n; i++) {
        if (change->kind == KVB_CHANGE_PROPOSE) {
            int32_t parent = change->parents[i];
            uint32_t depth = parent < 0 ? 0 : a->node[parent].depth + 1;
            a->node[a->n_nodes++] = (kvb_node){parent, depth};
            positions[i] = len + depth;
        } else {
            kvb_spans *s = &a->seq[kvb_change_seq(change, i)];
            positions[i] = kvb_spans_next(s);
            kvb_spans_append(s, positions[i], a->next_ordinal + i);
        }
    }
    a->next_ordinal += change->n;
}

void kvb_account_withdraw(kvb_account *a, const kvb_change *change, const uint32_t *positions)
{
    a->next_ordinal -= change->n;
    if (change->kind == KVB_CHANGE_PROPOSE)
        a->n_nodes -= change->n;
    else
        for (uint32_t i = 0; i < change->n; i++) /* a sequence's first one cuts them all */
            kvb_spans_cut(&a->seq[kvb_change_seq(change, i)], positions[i], KVB_POS_END);
}

void kvb_account_apply(kvb_account *a, const kvb_change *change)
{
    uint32_t len = kvb_spans_next(&a->seq[0]);
    if (change->kind == KVB_CHANGE_COPY)
        kvb_spans_add(&a->seq[change->dst], &a->seq[change->src], change->p0, change->p1);
    if (change->kind == KVB_CHANGE_COMMIT)
        for (uint32_t i = 0; i < change->n; i++)
            kvb_spans_append(&a->seq[0], len + i, a->first_node + change->accepted[i]);
    if (change->kind == KVB_CHANGE_REMOVE)
        for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
            if ((s == change->src) != change->others)
                kvb_spans_cut(&a->seq[s], change->p0, change->p1);
    if (change->kind == KVB_CHANGE_COMMIT || change->drops_nodes)
        a->n_nodes = 0;
}

/* ---- reading it ------------------------------------------------------------------------------------------ */

/* Does the sequence hold this token? A token has one position, in whichever sequence. */
static bool holds_token(const kvb_spans *s, uint32_t pos, uint64_t ordinal)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->span[middle].pos + s->span[middle].n <= pos)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->n && s->span[low].pos <= pos && s->span[low].at + (pos - s->span[low].pos) == ordinal;
}

void kvb_account_visit(const kvb_account *a, uint64_t seqs, kvb_token_visit *visit, void *ctx)
{
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        for (size_t i = 0; seqs >> s & 1 && i < a->seq[s].n; i++)
            for (uint32_t j = 0; j < a->seq[s].span[i].n; j++) {
                uint32_t pos = a->seq[s].span[i].pos + j, first = 0;
                uint64_t ordinal = a->seq[s].span[i].at + j;
                while (first < s && !(seqs >> first & 1 && holds_token(&a->seq[first], pos, ordinal)))
                    first++;
                visit(ctx, s, first, pos, ordinal);
            }
}

/* Tokens of n from pos on, whose ordinals are pos + shift, that none of sequences 0 .. below-1 holds. */
static uint32_t fresh_count(const kvb_account *a, uint32_t below, uint32_t pos, uint32_t n, uint64_t shift)
{
    uint32_t end = pos + n, fresh = 0;
    while (below > 0 && a->seq[below - 1].n == 0)
        below--;
    if (below == 0)
        return n;
    const kvb_spans *other = &a->seq[below - 1];
    for (size_t i = 0; i < other->n && pos < end; i++) {
        kvb_span shared = kvb_span_clip(other->span[i], pos, end);
        if (shared.n == 0 || shared.at - shared.pos != shift)
            continue;
        if (shared.pos > pos)
            fresh += fresh_count(a, below - 1, pos, shared.pos - pos, shift);
        pos = shared.pos + shared.n;
    }
    return pos < end ? fresh + fresh_count(a, below - 1, pos, end - pos, shift) : fresh;
}

uint32_t kvb_account_tokens(const kvb_account *a)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        for (size_t i = 0; i < a->seq[s].n; i++) {
            const kvb_span *span = &a->seq[s].span[i];
            n += fresh_count(a, s, span->pos, span->n, span->at - span->pos);
        }
    return n;
}

void kvb_account_path(const kvb_account *a, uint32_t node, uint32_t *path)
{
    int64_t at = node;
    for (uint32_t i = a->node[node].depth + 1; i-- > 0; at = a->node[at].parent)
        path[i] = (uint32_t)at;
}
