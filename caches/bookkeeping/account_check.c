/* SPDX-License-Identifier: Apache-2.0 */
/* May a change be made to the account of a cache's tokens? */
#include "caches/bookkeeping/account.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

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

/* Nothing may be done to a sequence while it has nodes. */
static int pending_check(const kvb_account *a, uint32_t seq, const refusal *r)
{
    return a->pending[seq]
               ? refuse(r, -EINVAL, "%u nodes of sequence %u are pending: commit first", a->pending[seq], seq)
               : 0;
}

/* Of calls that speak of all sequences. */
static int nodes_check(const kvb_account *a, const refusal *r)
{
    return a->n_nodes ? pending_check(a, a->node[0].seq, r) : 0;
}

/* A sequence that a call changes. */
static int idle_check(const kvb_account *a, uint32_t seq, const refusal *r)
{
    int error = seq_check(a, seq, r);
    return error ? error : pending_check(a, seq, r);
}

/* Most sequences, with those that a commit may bring to life. */
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
    if (!change->seq_ids && !error) { /* a count alone, which may be absurd: no loop over it */
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
    if (!change->seq_ids && !change->parents && !error) /* a count alone, which may be absurd */
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
    if (change->drops_nodes) /* clear: there is nothing to be wrong */
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

/* Destinations are distinct, so a count that is absurd meets an id that is out of range or named before. */
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

/* What stays below and above the moved tokens must stay below and above them. */
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
