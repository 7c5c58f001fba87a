/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The effects of events on sequences, nodes and slots. A sequence is a list of runs of consecutive positions with
 * consecutive rows, ascending by position, so that a long sequence costs a few bytes. A row costs two bytes, the number
 * of sequences that hold it. A table gives each kind of event its check and its effect.
 */
#include "workloads/history.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "workloads/array.h"
#include "workloads/files.h"

#define NONE    UINT32_MAX
#define UNKNOWN UINT64_MAX
#define MET     0x8000u /* in the count of a row's holders, while a step is checked */

/* Rows row .. row + n - 1 at positions pos .. pos + n - 1. */
typedef struct run {
    uint32_t pos, row, n;
} run;

/* A proposed node that is not yet committed or dropped. */
typedef struct node {
    uint32_t pos, row;
    int32_t parent; /* its number among the nodes of the sequence; -1: the node is a root */
} node;

typedef struct sequence {
    run *runs;
    node *nodes; /* by number */
    size_t n_runs, runs_room, n_nodes, nodes_room;
    uint32_t tokens;   /* of all runs */
    uint32_t entering; /* tokens of the event that is being checked */
    uint32_t furthest; /* largest next position that it, or its source, ever had: kvb_trace_needs.rollback */
    uint32_t chained;  /* number of its first tokens whose prefixes are known to be linked */
    bool alive;        /* it has tokens, or nodes, of which a commit may make tokens */
} sequence;

/* A save of one sequence, or of all. */
typedef struct slot {
    bool used, all;
    uint32_t n;
    struct saved {
        uint32_t id;
        sequence seq;
    } * at; /* [n] sequences that held tokens */
} slot;

/* The prefix of a token, if prefixes are known. */
typedef struct prefix {
    uint64_t before; /* `like` of the token before it; position 0: the extra key; UNKNOWN: a prefix of its own */
    uint32_t like;   /* the first token with this prefix */
    uint32_t older;  /* the one listed before it at its position, or NONE */
    uint32_t pos;
    int32_t tok;
} prefix;

struct kvb_history {
    sequence seqs[KVB_TRACE_MAX_SEQS];
    slot slots[KVB_TRACE_SLOTS];
    uint64_t tokens;                   /* number of the first moved row */
    uint16_t *holders, *moved_holders; /* sequences that hold a row: tokens' own, [n_moved] moved ones */
    size_t holders_room, moved_holders_room;
    kvb_moved_row *moved;
    size_t n_moved, moved_room, settled; /* settled: n_moved at the last step */
    bool shifted;                        /* tokens have moved since the last step */
    uint32_t live;                       /* rows that are held, pending ones included */
    uint32_t alive, n_pending;           /* sequences; nodes */
    uint32_t touched;                    /* largest id of a sequence that ever had memory + 1 */
    kvb_trace_needs needs;
    int unknown_rope;
    const kvb_event *last; /* the event of kvb_history_visible(), or NULL */
    kvb_row_run *answer;
    size_t answer_room;
    bool knows;
    prefix *prefixes; /* [n_prefixes] by identity */
    uint32_t *newest; /* [n_newest] by position: the prefix listed last, or NONE */
    size_t n_prefixes, prefixes_room, n_newest, newest_room;
    uint32_t capacity; /* for the event that is being checked */
    char *why;
    size_t why_bytes;
};

static inline void most(uint32_t *x, uint32_t least)
{
    *x = *x > least ? *x : least;
}

/* ---- runs ----------------------------------------------------------------------------------------------- */

/* The part of a run at positions p0 .. p1-1. */
static inline run clip(run r, uint32_t p0, uint32_t p1)
{
    const uint32_t begin = p0 > r.pos ? p0 : r.pos, end = p1 < r.pos + r.n ? p1 : r.pos + r.n;
    return (run){begin, r.row + (begin - r.pos), begin < end ? end - begin : 0};
}

/* Adds a run behind those of a sequence. */
static int push(sequence *s, run r)
{
    run *last = s->n_runs ? &s->runs[s->n_runs - 1] : NULL;
    const bool joins = last && last->pos + last->n == r.pos && last->row + last->n == r.row;
    if (r.n == 0)
        return 0;
    if (!joins && kvb_array_reserve(&s->runs, &s->runs_room, s->n_runs + 1, sizeof *s->runs))
        return -ENOMEM;
    if (joins)
        last->n += r.n;
    else
        s->runs[s->n_runs++] = r;
    s->tokens += r.n;
    return 0;
}

static inline uint32_t next_of(const sequence *s)
{
    return s->n_runs ? s->runs[s->n_runs - 1].pos + s->runs[s->n_runs - 1].n : 0;
}

static inline uint16_t *holders_of(const kvb_history *h, uint32_t row)
{
    return row < h->tokens ? &h->holders[row] : &h->moved_holders[row - h->tokens];
}

/* Counts one holder of a run's rows more (1) or less (-1). */
static void hold(kvb_history *h, run r, int by)
{
    for (uint32_t done = 0, n; done < r.n; done += n) { /* rows of tokens, and moved ones behind them */
        const uint32_t row = r.row + done, left = r.n - done;
        uint16_t *holders = holders_of(h, row);
        n = row < h->tokens && h->tokens - row < left ? (uint32_t)h->tokens - row : left;
        for (uint32_t i = 0; i < n; i++) {
            const uint16_t was = holders[i];
            holders[i] = (uint16_t)(was + by);
            h->live += (uint32_t)(holders[i] > 0) - (was > 0);
        }
    }
}

/* Number of rows of the sequence at p0 .. p1-1 that several sequences hold (shared), or that no sequence holds. */
static uint32_t rows_held(const kvb_history *h, const sequence *s, uint32_t p0, uint32_t p1, bool shared)
{
    uint32_t n = 0;
    for (size_t r = 0; r < s->n_runs; r++) {
        const run in = clip(s->runs[r], p0, p1);
        for (uint32_t i = 0; i < in.n; i++)
            n += shared ? *holders_of(h, in.row + i) > 1 : *holders_of(h, in.row + i) == 0;
    }
    return n;
}

/* ---- sequences ------------------------------------------------------------------------------------------ */

/* Gives a sequence the runs of another list, which is used up. */
static void runs_set(sequence *s, const sequence *to)
{
    free(s->runs);
    s->runs = to->runs;
    s->n_runs = to->n_runs;
    s->runs_room = to->runs_room;
    s->tokens = to->tokens;
    s->chained = 0;
}

/* Updates `needs` after a sequence has changed. */
static void settle(kvb_history *h, uint32_t id)
{
    sequence *s = &h->seqs[id];
    const bool alive = s->tokens || s->n_nodes;
    h->alive += (uint32_t)alive - (uint32_t)s->alive;
    s->alive = alive;
    h->needs.seq |= alive && id > 0;
    if (alive)
        most(&h->needs.seqs, id + 1);
    most(&s->furthest, next_of(s));
    s->furthest = s->n_runs ? s->furthest : 0;
    most(&h->needs.rollback, s->furthest - next_of(s));
    most(&h->needs.seq_len, next_of(s));
}

/* A sequence that is about to change. */
static inline sequence *sequence_of(kvb_history *h, uint32_t id)
{
    most(&h->touched, id + 1);
    return &h->seqs[id];
}

static int sequence_copy(const sequence *from, sequence *copy)
{
    int err = 0;
    *copy = (sequence){.furthest = from->furthest};
    for (size_t r = 0; r < from->n_runs && !err; r++)
        err = push(copy, from->runs[r]);
    return err;
}

/* Replaces the content of a sequence by another list, which is used up. */
static void sequence_set(kvb_history *h, uint32_t id, const sequence *to)
{
    sequence *s = sequence_of(h, id);
    for (size_t r = 0; r < s->n_runs; r++)
        hold(h, s->runs[r], -1);
    runs_set(s, to);
    s->furthest = to->furthest;
    for (size_t r = 0; r < s->n_runs; r++)
        hold(h, s->runs[r], 1);
    settle(h, id);
}

static int sequence_cut(kvb_history *h, uint32_t id, uint32_t p0, uint32_t p1)
{
    sequence *s = sequence_of(h, id), left = {0};
    int err = 0;
    for (size_t r = 0; r < s->n_runs && !err; r++) {
        err = push(&left, clip(s->runs[r], 0, p0));
        err = err ? err : push(&left, clip(s->runs[r], p1, KVB_TRACE_POS_END));
        hold(h, clip(s->runs[r], p0, p1), -1);
    }
    runs_set(s, &left);
    settle(h, id);
    return err;
}

/* Empties every sequence except `keep`; NONE: every one. */
static void sequences_drop(kvb_history *h, uint32_t keep)
{
    for (uint32_t id = 0; id < h->needs.seqs; id++)
        if (id != keep)
            sequence_set(h, id, &(sequence){0});
}

static void slot_clear(slot *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        free(s->at[i].seq.runs);
    free(s->at);
    *s = (slot){0};
}

int kvb_history_open(uint64_t tokens, kvb_history **history)
{
    *history = calloc(1, sizeof **history);
    if (!*history)
        return -ENOMEM;
    (*history)->tokens = tokens;
    (*history)->unknown_rope = -1;
    return 0;
}

void kvb_history_free(kvb_history *h)
{
    if (!h)
        return;
    for (uint32_t id = 0; id < h->touched; id++) {
        free(h->seqs[id].runs);
        free(h->seqs[id].nodes);
    }
    for (uint32_t i = 0; i < KVB_TRACE_SLOTS; i++)
        slot_clear(&h->slots[i]);
    free(h->holders);
    free(h->moved_holders);
    free(h->moved);
    free(h->answer);
    free(h->prefixes);
    free(h->newest);
    free(h);
}

void kvb_history_rope_unknown(kvb_history *h, int group)
{
    h->unknown_rope = group;
}

const kvb_trace_needs *kvb_history_needs(const kvb_history *h)
{
    return &h->needs;
}

uint32_t kvb_history_held(const kvb_history *h)
{
    return h->live;
}

uint32_t kvb_history_next(const kvb_history *h, uint32_t seq)
{
    return next_of(&h->seqs[seq]);
}

/* ---- prefixes ------------------------------------------------------------------------------------------- */

void kvb_history_know_prefixes(kvb_history *h)
{
    h->knows = true;
}

static inline uint32_t like(const kvb_history *h, uint64_t row)
{
    return row < h->n_prefixes ? h->prefixes[row].like : (uint32_t)row;
}

/* prefix.before of the next token of a sequence. */
static uint64_t before_next(const kvb_history *h, sequence *s, uint64_t extra_key)
{
    uint64_t before = extra_key;
    uint32_t at = 0;
    if (s->tokens && s->chained == s->tokens)
        return like(h, s->runs[s->n_runs - 1].row + s->runs[s->n_runs - 1].n - 1);
    for (size_t r = 0; r < s->n_runs; r++)
        for (uint32_t i = 0; i < s->runs[r].n; i++, at++) {
            const uint32_t row = s->runs[r].row + i;
            const prefix *p = row < h->n_prefixes ? &h->prefixes[row] : NULL; /* NULL: it was moved */
            if (!p || s->runs[r].pos + i != at || p->before == UNKNOWN || (at && p->before != before))
                return UNKNOWN;
            before = p->like;
        }
    s->chained = at;
    return before;
}

/* Lists the next token and finds the first one with its prefix. */
static int prefix_know(kvb_history *h, uint32_t row, uint32_t pos, uint64_t before, int32_t tok)
{
    if (kvb_array_reserve(&h->prefixes, &h->prefixes_room, (size_t)row + 1, sizeof *h->prefixes) ||
        kvb_array_reserve(&h->newest, &h->newest_room, (size_t)pos + 1, sizeof *h->newest))
        return -ENOMEM;
    while (h->n_newest <= pos)
        h->newest[h->n_newest++] = NONE;
    prefix *p = &h->prefixes[row];
    *p = (prefix){before, row, h->newest[pos], pos, tok};
    h->n_prefixes = row + 1u;
    if (before == UNKNOWN)
        return 0;
    uint32_t o = p->older;
    while (o != NONE && (h->prefixes[o].before != before || h->prefixes[o].tok != tok))
        o = h->prefixes[o].older;
    if (o != NONE)
        p->like = o;
    else
        h->newest[pos] = row;
    return 0;
}

static uint64_t key_of(const kvb_history *h, const prefix *p)
{
    while (p->pos)
        p = &h->prefixes[p->before];
    return p->before;
}

bool kvb_history_same_prefix(const kvb_history *h, uint64_t claimed, uint64_t own, char *why, size_t why_bytes)
{
    if (claimed >= h->n_prefixes || own >= h->n_prefixes || claimed >= own)
        return kvb_why_set(false, why, why_bytes, "token %llu was not there before", (unsigned long long)claimed);
    const prefix *a = &h->prefixes[claimed], *b = &h->prefixes[own];
    const char *wrong = a->before == UNKNOWN || b->before == UNKNOWN ? "has no prefix that is known"
                        : a->pos != b->pos                           ? "has another position"
                        : key_of(h, a) != key_of(h, b)               ? "has another extra key"
                                                                     : NULL;
    if (!wrong && a->like == b->like)
        return true;
    if (wrong)
        return kvb_why_set(false, why, why_bytes, "position %u: token %llu %s", b->pos, (unsigned long long)claimed,
                           wrong);
    while (a->pos && a->before != b->before) { /* back to the first position at which they differ */
        a = &h->prefixes[a->before];
        b = &h->prefixes[b->before];
    }
    return kvb_why_set(false, why, why_bytes,
                       "position %u: token %llu is behind another prefix: id %d where %d was asked for, at position %u",
                       h->prefixes[own].pos, (unsigned long long)claimed, (int)a->tok, (int)b->tok, a->pos);
}

int kvb_alike_find(const kvb_trace *trace, uint32_t **likes)
{
    kvb_history *h;
    *likes = malloc((trace->needs.tokens + 1) * sizeof **likes);
    int err = kvb_history_open(trace->needs.tokens, &h);
    err = *likes ? err : -ENOMEM;
    if (!err)
        kvb_history_know_prefixes(h);
    for (size_t i = 0; i < trace->n_events && !err; i++)
        err = kvb_history_apply(h, &trace->events[i]);
    for (uint64_t token = 0; token < trace->needs.tokens && !err; token++)
        (*likes)[token] = like(h, token);
    kvb_history_free(h);
    if (err)
        free(*likes);
    return err;
}

/* ---- checks --------------------------------------------------------------------------------------------- */

/* Checks do not change sequences. They return the answer that every cache must give: 0, -EINVAL or -ENOSPC. NO_CALL:
 * the line makes no call, or one that caches take although no workload may have it. */
#define NO_CALL (-EPROTO)

/* Returns error, with why: the event's name, then the text. */
__attribute__((format(printf, 4, 5))) static int refuse(kvb_history *h, const kvb_event *e, int error,
                                                        const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return kvb_why_set(error, h->why, h->why_bytes, "%s%s", kvb_event_kind_name(e->kind), text);
}

/* Does the capacity allow so many more cells? */
static int room_check(kvb_history *h, const kvb_event *e, uint32_t more)
{
    return h->capacity && h->live + more > h->capacity
               ? refuse(h, e, -ENOSPC, " needs %u cells, capacity is %u", h->live + more, h->capacity)
               : 0;
}

static int admission_check(kvb_history *h, kvb_event *e)
{
    return e->n > KVB_TRACE_MAX_CELLS - h->needs.tokens
               ? refuse(h, e, NO_CALL, ": more than %u tokens in the trace", KVB_TRACE_MAX_CELLS)
               : 0;
}

/* step, prefill, fill */
static int step_check(kvb_history *h, kvb_event *e)
{
    const bool steps = e->kind == KVB_EVENT_STEP;
    int err = admission_check(h, e);
    for (uint32_t i = 0; i < e->n; i++) {
        sequence *s = &h->seqs[e->seq[i]];
        const uint32_t next = next_of(s) + s->entering;
        uint16_t *trunk = steps && s->n_runs && !s->entering ? holders_of(h, s->runs[0].row) : NULL;
        e->several |= steps && s->entering > 0;
        e->branches |= trunk && *trunk & MET;
        s->entering++;
        if (trunk)
            *trunk |= MET;
        if (e->kind == KVB_EVENT_FILL)
            e->pos[i] = next;
        if (e->pos[i] != next && !err)
            err = refuse(h, e, NO_CALL, ": position %u, but the next one of sequence %u is %u", e->pos[i], e->seq[i],
                         next);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        sequence *s = &h->seqs[e->seq[i]];
        s->entering = 0;
        if (steps && s->n_runs)
            *holders_of(h, s->runs[0].row) &= (uint16_t)~MET;
    }
    if (!err && e->reuse && (!e->tok || e->pos[0]))
        err =
            refuse(h, e, NO_CALL, ": \"reuse\" needs an empty sequence's prompt, from 0 on, with its tokens (\"tok\")");
    return err ? err : room_check(h, e, e->n);
}

static int propose_check(kvb_history *h, kvb_event *e)
{
    int err = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        sequence *s = &h->seqs[e->seq[i]];
        const uint32_t number = (uint32_t)s->n_nodes + s->entering++;
        if (e->parents[i] >= (int64_t)number && !err)
            err = refuse(h, e, -EINVAL, ": parent %d of node %u of sequence %u is not an earlier node", e->parents[i],
                         number, e->seq[i]);
    }
    for (uint32_t i = 0; i < e->n; i++)
        h->seqs[e->seq[i]].entering = 0;
    err = err ? err : admission_check(h, e);
    return err ? err : room_check(h, e, e->n);
}

static int commit_check(kvb_history *h, kvb_event *e)
{
    const sequence *s = &h->seqs[e->src];
    int32_t parent = -1;
    if (s->n_nodes == 0) /* caches take a commit of no nodes if none are pending */
        return refuse(h, e, e->n ? -EINVAL : NO_CALL, ": no nodes of sequence %u are pending", e->src);
    for (uint32_t i = 0; i < e->n; i++) {
        const uint32_t number = e->accepted[i];
        if (number >= s->n_nodes)
            return refuse(h, e, -EINVAL, ": node %u, but %zu are pending", number, s->n_nodes);
        if (s->nodes[number].parent != parent)
            return refuse(h, e, -EINVAL, ": node %u is no %s: accepted must be a path from a root", number,
                          parent < 0 ? "root" : "child of the node before it");
        parent = (int32_t)number;
    }
    return 0;
}

static int copy_check(kvb_history *h, kvb_event *e)
{
    const sequence *src = &h->seqs[e->src], *dst = &h->seqs[e->dst];
    uint32_t n = 0;
    for (size_t r = 0, d = 0; r < src->n_runs; r++) {
        const run in = clip(src->runs[r], e->p0, e->p1);
        while (d < dst->n_runs && dst->runs[d].pos + dst->runs[d].n <= in.pos)
            d++;
        const run both = d < dst->n_runs ? clip(dst->runs[d], in.pos, in.pos + in.n) : (run){0};
        if (both.n)
            return refuse(h, e, -EINVAL, ": destination sequence %u has position %u already", e->dst, both.pos);
        n += in.n;
    }
    e->n = n;
    return 0;
}

/* Caches of one sequence have rewind, too: no other sequence may be alive. */
static int rewind_check(kvb_history *h, kvb_event *e)
{
    const uint32_t len = next_of(&h->seqs[0]);
    for (uint32_t id = 1; id < h->needs.seqs; id++)
        if (h->seqs[id].tokens)
            return refuse(h, e, NO_CALL, ": only sequence 0 may be alive, but sequence %u is too", id);
    return e->len > len ? refuse(h, e, -EINVAL, ": to length %u, but sequence 0 is %u long", e->len, len) : 0;
}

static int reorder_check(kvb_history *h, kvb_event *e)
{
    uint32_t twice = NONE;
    for (uint32_t i = 0; i < e->n; i++)
        if (h->seqs[e->dsts[i]].entering++)
            twice = e->dsts[i];
    for (uint32_t i = 0; i < e->n; i++)
        h->seqs[e->dsts[i]].entering = 0;
    return twice == NONE ? 0 : refuse(h, e, -EINVAL, ": sequence %u is named twice as a destination", twice);
}

static int shift_check(kvb_history *h, kvb_event *e)
{
    const sequence *s = &h->seqs[e->src];
    int64_t below = -1, above = INT64_MAX, first = -1, last = -1;
    uint32_t n = 0;
    if (h->unknown_rope >= 0)
        return refuse(h, e, NO_CALL, ": the header says no \"rope\" of group %d", h->unknown_rope);
    for (size_t r = 0; r < s->n_runs && kvb_event_moves(e); r++) {
        const run before = clip(s->runs[r], 0, e->p0), moved = clip(s->runs[r], e->p0, e->p1),
                  behind = clip(s->runs[r], e->p1, KVB_TRACE_POS_END);
        below = before.n ? (int64_t)before.pos + before.n - 1 : below;
        first = moved.n && first < 0 ? moved.pos : first;
        last = moved.n ? (int64_t)moved.pos + moved.n - 1 : last;
        above = behind.n && above == INT64_MAX ? behind.pos : above;
        n += moved.n;
    }
    const int64_t to = kvb_event_moved(e, first), end = kvb_event_moved(e, last);
    if (n && (to <= below || end >= above))
        return refuse(h, e, -EINVAL, ": positions %lld .. %lld of sequence %u %s by %d would pass position %lld",
                      (long long)first, (long long)last, e->src, e->divisor ? "divided" : "moved",
                      e->divisor ? (int)e->divisor : (int)e->delta, (long long)(to <= below ? below : above));
    if (n && end >= KVB_TRACE_MAX_CELLS)
        return refuse(h, e, NO_CALL, ": position %lld is above %u", (long long)end, KVB_TRACE_MAX_CELLS - 1);
    if (n > KVB_TRACE_MAX_CELLS - h->n_moved)
        return refuse(h, e, NO_CALL, ": more than %u rows in the trace", KVB_TRACE_MAX_CELLS);
    const int err = room_check(h, e, n ? rows_held(h, s, e->p0, e->p1, true) : 0);
    e->n = err ? e->n : n;
    return err;
}

/* Rows trade places through a free cell. */
static int defrag_check(kvb_history *h, kvb_event *e)
{
    return h->capacity && h->live >= h->capacity
               ? refuse(h, e, NO_CALL, " needs a free cell, but all %u are in use", h->capacity)
               : 0;
}

/* Rows that have moved since the last step are stored at the next one. */
static int save_check(kvb_history *h, kvb_event *e)
{
    return h->shifted ? refuse(h, e, -EINVAL, ": positions have moved since the last step") : 0;
}

static int load_check(kvb_history *h, kvb_event *e)
{
    const slot *s = &h->slots[e->slot];
    const bool all = e->src == KVB_TRACE_ALL;
    if (!s->used)
        return refuse(h, e, NO_CALL, ": nothing was saved in slot %u", e->slot);
    if (s->all != all)
        return refuse(h, e, -EINVAL, ": slot %u holds %s", e->slot, s->all ? "all sequences" : "one sequence");
    if (!all && h->seqs[e->src].tokens)
        return refuse(h, e, -EINVAL, ": sequence %u is alive", e->src);
    const int err = room_check(h, e, all || !s->n ? 0 : rows_held(h, &s->at[0].seq, 0, KVB_TRACE_POS_END, false));
    for (uint32_t i = 0; i < s->n && !err; i++)
        e->n += s->at[i].seq.tokens;
    return err;
}

/* ---- effects -------------------------------------------------------------------------------------------- */

/* Adds the event's n tokens, each held once. */
static int tokens_admit(kvb_history *h, const kvb_event *e)
{
    kvb_trace_needs *needs = &h->needs;
    if (kvb_array_reserve(&h->holders, &h->holders_room, e->first + e->n, sizeof *h->holders))
        return -ENOMEM;
    for (uint32_t i = 0; i < e->n; i++)
        h->holders[e->first + i] = 1;
    h->live += e->n;
    h->shifted = false;
    h->settled = h->n_moved;
    needs->tokens += e->n;
    needs->reuse |= e->reuse;
    needs->fill |= e->kind == KVB_EVENT_FILL;
    if (e->kind != KVB_EVENT_FILL) {
        needs->queries += e->n;
        most(&needs->step, e->n);
    }
    return 0;
}

static int step_apply(kvb_history *h, const kvb_event *e)
{
    int err = tokens_admit(h, e);
    for (uint32_t i = 0, n; i < e->n && !err; i += n) {
        sequence *s = sequence_of(h, e->seq[i]);
        const uint32_t row = (uint32_t)e->first + i;
        const uint64_t before = h->knows && e->tok ? before_next(h, s, e->extra_key) : UNKNOWN, past = s->tokens;
        for (n = 1; !h->knows && i + n < e->n && e->seq[i + n] == e->seq[i] && e->pos[i + n] == e->pos[i] + n;)
            n++;
        err = h->knows ? prefix_know(h, row, e->pos[i], before, e->tok ? e->tok[i] : 0) : 0;
        err = err ? err : push(s, (run){e->pos[i], row, n});
        s->chained = before == UNKNOWN ? s->chained : s->tokens;
        if (e->kind != KVB_EVENT_FILL) /* each sees its past and itself */
            h->needs.pairs += n * past + (uint64_t)n * (n + 1) / 2;
        settle(h, e->seq[i]);
    }
    return err;
}

static inline uint32_t node_seq(const kvb_event *e, uint32_t i)
{
    return e->seq ? e->seq[i] : 0;
}

static int propose_apply(kvb_history *h, const kvb_event *e)
{
    int err = tokens_admit(h, e);
    for (uint32_t i = 0; i < e->n && !err; i++) {
        sequence *s = sequence_of(h, node_seq(e, i));
        const int32_t parent = e->parents[i];
        const uint32_t pos = parent < 0 ? next_of(s) : s->nodes[parent].pos + 1, row = (uint32_t)e->first + i;
        err = h->knows ? prefix_know(h, row, pos, UNKNOWN, 0) : 0;
        err = err ? err : kvb_array_reserve(&s->nodes, &s->nodes_room, s->n_nodes + 1, sizeof *s->nodes);
        if (err)
            return err;
        s->nodes[s->n_nodes++] = (node){pos, row, parent};
        h->n_pending++;
        h->needs.pairs += s->tokens + pos - next_of(s) + 1;
        most(&h->needs.nodes, h->n_pending);
        most(&h->needs.seq_len, pos + 1);
        settle(h, node_seq(e, i));
    }
    return err;
}

static void nodes_drop(kvb_history *h, sequence *s)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        hold(h, (run){0, s->nodes[i].row, 1}, -1);
    h->n_pending -= (uint32_t)s->n_nodes;
    s->n_nodes = 0;
}

static int commit_apply(kvb_history *h, const kvb_event *e)
{
    sequence *s = sequence_of(h, e->src);
    int err = 0;
    nodes_drop(h, s);
    for (uint32_t i = 0; i < e->n && !err; i++) {
        const run taken = {next_of(s), s->nodes[e->accepted[i]].row, 1};
        hold(h, taken, 1);
        err = push(s, taken);
    }
    settle(h, e->src);
    return err;
}

static int copy_apply(kvb_history *h, const kvb_event *e)
{
    const sequence *src = &h->seqs[e->src];
    sequence *dst = sequence_of(h, e->dst), all = {0};
    size_t d = 0;
    int err = 0;
    bool some = false;
    for (size_t r = 0; r < src->n_runs && !err; r++) {
        const run in = clip(src->runs[r], e->p0, e->p1);
        for (; in.n && d < dst->n_runs && dst->runs[d].pos < in.pos && !err; d++)
            err = push(&all, dst->runs[d]);
        err = err ? err : push(&all, in);
        hold(h, in, 1);
        some |= in.n > 0;
    }
    for (; d < dst->n_runs && !err; d++)
        err = push(&all, dst->runs[d]);
    if (some)
        most(&dst->furthest, src->furthest);
    runs_set(dst, &all);
    settle(h, e->dst);
    return err;
}

static int remove_apply(kvb_history *h, const kvb_event *e)
{
    return sequence_cut(h, e->src, e->p0, e->p1);
}

static int keep_apply(kvb_history *h, const kvb_event *e)
{
    sequences_drop(h, e->src);
    return 0;
}

static int rewind_apply(kvb_history *h, const kvb_event *e)
{
    return sequence_cut(h, 0, e->len, KVB_TRACE_POS_END);
}

static int clear_apply(kvb_history *h, const kvb_event *e)
{
    (void)e;
    h->shifted = false;
    for (uint32_t id = 0; id < h->needs.seqs; id++)
        nodes_drop(h, &h->seqs[id]);
    sequences_drop(h, NONE);
    return 0;
}

static int reorder_apply(kvb_history *h, const kvb_event *e)
{
    sequence *to = calloc(e->n + 1u, sizeof *to);
    int err = to ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < e->n && !err; i++)
        err = sequence_copy(&h->seqs[e->srcs[i]], &to[i]);
    for (uint32_t i = 0; i < e->n && to; i++)
        err ? free(to[i].runs) : sequence_set(h, e->dsts[i], &to[i]);
    free(to);
    return err;
}

/* Makes a new row of a token that the event moves, and adds it to `to`. If the token has moved since the last step, the
 * row is stored once for both moves. */
static int row_move(kvb_history *h, const kvb_event *e, run old, sequence *to)
{
    const uint32_t pos = (uint32_t)kvb_event_moved(e, old.pos), of = like(h, old.row);
    if (kvb_array_reserve(&h->moved, &h->moved_room, h->n_moved + 1, sizeof *h->moved) ||
        kvb_array_reserve(&h->moved_holders, &h->moved_holders_room, h->n_moved + 1, sizeof *h->moved_holders))
        return -ENOMEM;
    kvb_moved_row made = {of, (uint32_t)kvb_history_token(h, of), (int32_t)(pos - old.pos)};
    if (of >= h->tokens + h->settled) {
        made.delta += h->moved[of - h->tokens].delta;
        made.of = h->moved[of - h->tokens].of;
    }
    const run anew = {pos, (uint32_t)(h->tokens + h->n_moved), 1};
    h->moved_holders[h->n_moved] = 0;
    h->moved[h->n_moved++] = made;
    hold(h, old, -1);
    hold(h, anew, 1);
    return push(to, anew);
}

static int shift_apply(kvb_history *h, const kvb_event *e)
{
    sequence *s = sequence_of(h, e->src), to = {0};
    const uint32_t was = next_of(s);
    const size_t n_moved = h->n_moved;
    int err = 0;
    for (size_t r = 0; r < s->n_runs && kvb_event_moves(e) && !err; r++) {
        const run moved = clip(s->runs[r], e->p0, e->p1);
        err = push(&to, clip(s->runs[r], 0, e->p0));
        for (uint32_t i = 0; i < moved.n && !err; i++)
            err = row_move(h, e, (run){moved.pos + i, moved.row + i, 1}, &to);
        err = err ? err : push(&to, clip(s->runs[r], e->p1, KVB_TRACE_POS_END));
    }
    if (h->n_moved == n_moved) {
        free(to.runs);
        return err;
    }
    runs_set(s, &to);
    h->shifted = true;
    s->furthest += next_of(s) - was; /* the furthest position moves with the end */
    settle(h, e->src);
    return err;
}

static int save_apply(kvb_history *h, const kvb_event *e)
{
    const bool all = e->src == KVB_TRACE_ALL;
    const uint32_t first = all ? 0 : e->src, end = all ? h->needs.seqs : e->src + 1;
    slot *s = &h->slots[e->slot];
    slot_clear(s);
    s->at = calloc(end - first + 1u, sizeof *s->at);
    int err = s->at ? 0 : -ENOMEM;
    for (uint32_t id = first; id < end && !err; id++)
        if (h->seqs[id].tokens) {
            s->at[s->n].id = id;
            err = sequence_copy(&h->seqs[id], &s->at[s->n++].seq);
        }
    s->used = true;
    s->all = all;
    h->needs.slots = true;
    return err;
}

static int load_apply(kvb_history *h, const kvb_event *e)
{
    const slot *s = &h->slots[e->slot];
    int err = 0;
    if (s->all) {
        h->shifted = false;
        sequences_drop(h, NONE);
    }
    for (uint32_t i = 0; i < s->n && !err; i++) {
        sequence copy;
        err = sequence_copy(&s->at[i].seq, &copy);
        sequence_set(h, s->all ? s->at[i].id : e->src, &copy);
    }
    return err;
}

/* ---- the table ------------------------------------------------------------------------------------------ */

typedef struct rule {
    int (*check)(kvb_history *h, kvb_event *e);       /* NULL: the event is always taken */
    int (*apply)(kvb_history *h, const kvb_event *e); /* 0 or -ENOMEM; NULL: no effect */
    int while_pending; /* the answer while a sequence that it concerns has nodes; 0: no special answer */
    bool all;          /* it concerns every sequence */
    uint32_t names;    /* 1: it names src; 2: src and dst; tokens and reorder have lists of sequences */
    bool seq, tree, rewind, reorder, shift, divide, defrag; /* calls that a cache must have */
} rule;

static const rule rules[KVB_EVENT_KINDS] = {
    [KVB_EVENT_STEP] = {step_check, step_apply, .while_pending = -EINVAL},
    [KVB_EVENT_PREFILL] = {step_check, step_apply, .while_pending = -EINVAL},
    [KVB_EVENT_FILL] = {step_check, step_apply, .while_pending = -EINVAL},
    [KVB_EVENT_PROPOSE] = {propose_check, propose_apply, .tree = true},
    [KVB_EVENT_COMMIT] = {commit_check, commit_apply, .names = 1, .tree = true},
    [KVB_EVENT_SEQ_CP] = {copy_check, copy_apply, -EINVAL, .names = 2, .seq = true},
    [KVB_EVENT_SEQ_RM] = {NULL, remove_apply, -EINVAL, .names = 1, .seq = true},
    [KVB_EVENT_SEQ_KEEP] = {NULL, keep_apply, -EINVAL, .all = true, .names = 1, .seq = true},
    [KVB_EVENT_REWIND] = {rewind_check, rewind_apply, -EINVAL, .names = 1, .rewind = true},
    [KVB_EVENT_CLEAR] = {NULL, clear_apply, NO_CALL, .all = true},
    [KVB_EVENT_REORDER] = {reorder_check, reorder_apply, -EINVAL, .seq = true, .reorder = true},
    [KVB_EVENT_SEQ_ADD] = {shift_check, shift_apply, -EINVAL, .names = 1, .shift = true},
    [KVB_EVENT_SEQ_DIV] = {shift_check, shift_apply, -EINVAL, .names = 1, .shift = true, .divide = true},
    [KVB_EVENT_DEFRAG] = {defrag_check, NULL, -EINVAL, .all = true, .defrag = true},
    [KVB_EVENT_SAVE] = {save_check, save_apply, -EINVAL, .all = true, .names = 1},
    [KVB_EVENT_LOAD] = {load_check, load_apply, -EINVAL, .all = true, .names = 1},
};

/* The i-th sequence that an event names; NONE: no more, or it names all. */
static uint32_t named(const kvb_event *e, uint32_t i)
{
    if (e->kind <= KVB_EVENT_PROPOSE)
        return i < e->n ? e->seq[i] : NONE;
    if (e->kind == KVB_EVENT_REORDER)
        return i < e->n ? e->dsts[i] : i < 2 * e->n ? e->srcs[i - e->n] : NONE;
    return i < rules[e->kind].names ? i ? e->dst : e->src : NONE; /* KVB_TRACE_ALL is NONE */
}

/* A sequence that the event concerns and that has pending nodes; if it concerns all, the one with the oldest nodes.
 * NONE: there is none. */
static uint32_t pending_met(const kvb_history *h, const kvb_event *e)
{
    uint32_t met = NONE, id;
    for (id = 0; rules[e->kind].all && id < h->needs.seqs; id++)
        if (h->seqs[id].n_nodes && (met == NONE || h->seqs[id].nodes[0].row < h->seqs[met].nodes[0].row))
            met = id;
    for (uint32_t i = 0; !rules[e->kind].all && met == NONE && (id = named(e, i)) != NONE; i++)
        met = h->seqs[id].n_nodes ? id : NONE;
    return met;
}

/* Adds what a cache needs so that it refuses the event for its own reason, and not because the cache is too small. */
static void refusal_needs(kvb_history *h, const kvb_event *e)
{
    uint32_t alive = h->alive, id;
    for (uint32_t i = 0; (id = named(e, i)) != NONE; i++) {
        sequence *s = &h->seqs[id];
        h->needs.seq |= e->kind <= KVB_EVENT_COMMIT && id > 0;
        if (e->kind > KVB_EVENT_PROPOSE)
            continue;
        alive += !s->alive && s->entering++ == 0;
        if (e->kind != KVB_EVENT_PROPOSE)
            most(&h->needs.seq_len, e->pos[i] + 1);
    }
    for (uint32_t i = 0; e->kind <= KVB_EVENT_PROPOSE && i < e->n; i++)
        h->seqs[e->seq[i]].entering = 0;
    most(&h->needs.alive, alive);
}

/* Checks an event that must be refused. answer: that of the caches. */
static int refusal_check(kvb_history *h, kvb_event *e, int answer)
{
    const char *error = kvb_refusal_name(e->error);
    char text[300];
    snprintf(text, sizeof text, "%s", answer ? h->why : "");
    if (answer == 0)
        return refuse(h, e, -EINVAL, ": is to be refused with %s, but may be done", error);
    if (answer != e->error)
        return refuse(h, e, -EINVAL, ": is not to be refused with %s: %s", error, text);
    if (answer == -ENOSPC)
        h->needs.full = h->capacity;
    refusal_needs(h, e);
    e->call = e->kind;
    e->kind = KVB_EVENT_REFUSED;
    return 0;
}

int kvb_history_apply(kvb_history *h, const kvb_event *e)
{
    assert(e->kind < KVB_EVENT_KINDS);
    if (e->kind != KVB_EVENT_SAVE) /* a save changes nothing */
        h->last = e->kind <= KVB_EVENT_PROPOSE ? e : NULL;
    const int err = rules[e->kind].apply ? rules[e->kind].apply(h, e) : 0;
    most(&h->needs.cells, h->live);
    most(&h->needs.alive, h->alive);
    return err;
}

/* The node of a row. */
static const node *node_of(const sequence *s, uint64_t row)
{
    const node *n = &s->nodes[s->n_nodes - 1];
    while (n->row != row)
        n--;
    return n;
}

int kvb_history_check(kvb_history *h, kvb_event *e, uint32_t capacity, char *why, size_t why_bytes)
{
    assert(e->kind < KVB_EVENT_REFUSED);
    const rule *of = &rules[e->kind];
    h->capacity = capacity;
    h->why = why;
    h->why_bytes = why_bytes;
    const uint32_t met = of->while_pending ? pending_met(h, e) : NONE;
    if (met != NONE)
        return refuse(h, e, of->while_pending, ": %zu proposed nodes of sequence %u are pending: commit first",
                      h->seqs[met].n_nodes, met);
    return of->check ? of->check(h, e) : 0;
}

int kvb_history_take(kvb_history *h, kvb_event *e, uint32_t capacity, char *why, size_t why_bytes)
{
    const rule *of = &rules[e->kind];
    const int answer = kvb_history_check(h, e, capacity, why, why_bytes);
    uint32_t id;
    for (uint32_t i = 0; (id = named(e, i)) != NONE; i++) /* the cache must have the id */
        most(&h->needs.seqs, id + 1);
    if (e->kind <= KVB_EVENT_PROPOSE && !e->error)
        e->first = h->needs.tokens;
    const int err = e->error ? refusal_check(h, e, answer) : answer ? -EINVAL : kvb_history_apply(h, e);
    if (err == -ENOMEM)
        refuse(h, e, err, ": no memory");
    if (err)
        return err;
    for (uint32_t i = 0; e->kind == KVB_EVENT_PROPOSE && i < e->n; i++)
        e->pos[i] = node_of(&h->seqs[e->seq[i]], e->first + i)->pos;
    h->needs.events++;
    h->needs.seq |= of->seq;
    h->needs.tree |= of->tree;
    h->needs.rewind |= of->rewind;
    h->needs.reorder |= of->reorder;
    h->needs.shift |= of->shift;
    h->needs.divide |= of->divide;
    h->needs.defrag |= of->defrag;
    return 0;
}

/* ---- what queries see ----------------------------------------------------------------------------------- */

size_t kvb_history_moved(const kvb_history *h, const kvb_moved_row **moved)
{
    *moved = h->moved;
    return h->n_moved;
}

uint64_t kvb_history_token(const kvb_history *h, uint64_t row)
{
    return row < h->tokens ? like(h, row) : h->moved[row - h->tokens].token;
}

/* Adds n rows to the answer. */
static void answer_add(kvb_history *h, size_t *runs, uint32_t row, uint32_t n)
{
    kvb_row_run *last = *runs ? &h->answer[*runs - 1] : NULL;
    if (last && n && last->row + last->n == row)
        last->n += n;
    else if (n)
        h->answer[(*runs)++] = (kvb_row_run){row, n};
}

int64_t kvb_history_visible(kvb_history *h, const kvb_group *group, uint32_t i, const kvb_row_run **runs)
{
    const kvb_event *e = h->last;
    assert(e && i < e->n);
    const sequence *s = &h->seqs[node_seq(e, i)];
    const node *asked = e->kind == KVB_EVENT_PROPOSE ? node_of(s, e->first + i) : NULL;
    const uint32_t p = asked ? asked->pos : e->pos[i], root = next_of(s), path = asked ? p + 1 - root : 0;
    /* The query sees positions below `sinks` and from .. p: the rule of kernels/model.h. */
    const uint32_t from = group->window  ? p < group->window ? 0 : p - group->window + 1
                          : group->chunk ? p / group->chunk * group->chunk
                                         : 0,
                   sinks = !group->window        ? 0
                           : group->sinks < from ? group->sinks
                                                 : from;
    size_t n = 0;
    if (kvb_array_reserve(&h->answer, &h->answer_room, s->n_runs + 1 + path, sizeof *h->answer))
        return -ENOMEM;
    for (int part = sinks ? 0 : 1; part < 2; part++)
        for (size_t r = 0; r < s->n_runs && s->runs[r].pos <= p; r++) {
            const run in = clip(s->runs[r], part ? from : 0, part ? p + 1 : sinks);
            answer_add(h, &n, in.row, in.n);
        }
    kvb_row_run *nodes = h->answer + n; /* the path from a root to the node, by position */
    for (uint32_t d = path; d-- > 0; asked = asked->parent < 0 ? NULL : &s->nodes[asked->parent])
        nodes[d].row = asked->row;
    for (uint32_t d = 0; d < path; d++)
        answer_add(h, &n, nodes[d].row, root + d < sinks || root + d >= from);
    *runs = h->answer;
    return (int64_t)n;
}
