/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes followed through the calls of one pass, and compared with what these made. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/lane.h"

/* A lane's state, element by element or at a glance. */
typedef struct kept {
    kvb_recurrence *full; /* NULL: at a glance */
    kvb_glance glance;
} kept;

/* What one lane holds. */
typedef struct heir {
    kept **held; /* [tokens] states that a later token follows; NULL: there is none */
    kept *free;  /* one that was given back, to be used again */
    kept *now;   /* of the token in hand */
    kvb_lane_own own;
} heir;

/* What a token of the call in hand is to all lanes. */
typedef struct move {
    uint32_t key, parent; /* identities */
    bool jumps, ends;     /* begins with what another than the token before left; is the last of its run */
    bool takes;           /* no later token of this call or of a later one follows the parent */
    bool wanted, own,
        lasts; /* its state is kept for a later token; compared; its state is in its slot after the call */
    uint32_t query;
} move;

struct kvb_heirs {
    const kvb_descent *descent;
    heir *heirs; /* [lanes] */
    kvb_recurrence_want out[KVB_LANE_COLUMNS];
    kvb_recurrence_want *state;
    size_t state_room;
    uint32_t *writer; /* [slots] token of the call that wrote it last */
    size_t slots;
    move *moves; /* [n_tok] of the call in hand */
    size_t moves_room;
    uint8_t *follows; /* [tokens] FOLLOWS_ bits of later tokens of the call in hand; 0 between calls */
};

#define FOLLOWS_AT_ALL  1u
#define FOLLOWS_BY_JUMP 2u

static size_t all_lanes(const kvb_descent *d)
{
    return d ? d->lane_first[d->trace->header.model.n_layers * KVB_SCAN_PARTS] : 0;
}

static void kept_close(kept *k)
{
    if (k)
        kvb_recurrence_close(k->full);
    free(k);
}

/* Before the first token. */
static kept *kept_open(const kvb_scan_lane *lane, const kvb_scan_problem *p, const kvb_scan_arithmetic *a)
{
    kept *k = calloc(1, sizeof *k);
    if (k && !lane->rows && !(k->full = kvb_recurrence_open(p, a))) {
        free(k);
        k = NULL;
    }
    return k;
}

static void kept_copy(kept *to, const kept *from)
{
    if (to->full)
        kvb_recurrence_copy(to->full, from->full);
    else
        to->glance = from->glance;
}

int kvb_heirs_open(const kvb_descent *descent, kvb_heirs **heirs)
{
    kvb_heirs *h = calloc(1, sizeof *h);
    *heirs = h;
    if (!h)
        return -ENOMEM;
    h->descent = descent;
    h->heirs = calloc(all_lanes(descent) + 1, sizeof *h->heirs);
    h->follows = calloc((descent ? descent->trace->needs.tokens : 0) + 1, sizeof *h->follows);
    if (h->heirs && h->follows)
        return 0;
    kvb_heirs_free(h);
    *heirs = NULL;
    return -ENOMEM;
}

void kvb_heirs_free(kvb_heirs *h)
{
    if (!h)
        return;
    for (size_t i = 0; h->heirs && i < all_lanes(h->descent); i++) {
        heir *x = &h->heirs[i];
        for (uint64_t t = 0; x->held && t < h->descent->trace->needs.tokens; t++)
            kept_close(x->held[t]);
        kept_close(x->free);
        kept_close(x->now);
        free(x->held);
        kvb_lane_own_free(&x->own);
    }
    free(h->heirs);
    free(h->state);
    free(h->writer);
    free(h->moves);
    free(h->follows);
    free(h);
}

static int heir_open(kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_problem *p, const kvb_scan_lane *lane,
                     heir *x)
{
    if (x->now)
        return 0;
    x->held = calloc(h->descent->trace->needs.tokens + 1, sizeof(kept *));
    x->now = kept_open(lane, p, m->arithmetic);
    if (!x->held || !x->now)
        return -ENOMEM;
    return lane->rows ? 0 : kvb_lane_own_take(h->descent->values, &m->call->problem, m->layer, lane, &x->own);
}

/* What a slot holds of the lane, against its state. */
static int state_compare(kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_lane *lane, const kvb_recurrence *now,
                         uint32_t t, kvb_diff_place place, kvb_diff *diff)
{
    const kvb_scan_problem *p = &m->call->problem;
    const size_t n = (size_t)p->d_k * lane->n, bytes = p->state_elem == KVB_F32 ? 4 : 2;
    if (n > h->state_room) {
        free(h->state);
        h->state = calloc(n, sizeof *h->state);
        h->state_room = h->state ? n : 0;
        if (!h->state)
            return -ENOMEM;
    }
    kvb_recurrence_state(now, h->state);
    const char *slot = kvb_scan_state(m->call, m->call->to[t], lane->head);
    for (uint32_t i = 0; i < p->d_k; i++) {
        place.row = (uint16_t)(i + 1);
        kvb_diff_take(diff, &place, h->state + (size_t)i * lane->n, lane->n, p->state_elem,
                      slot + ((size_t)i * p->d_v + lane->first) * bytes);
    }
    return 0;
}

static int state_hold(heir *x, const kvb_scan_lane *lane, const kvb_scan_problem *p, const kvb_scan_made *m,
                      uint32_t key)
{
    if (!x->held[key]) {
        x->held[key] = x->free ? x->free : kept_open(lane, p, m->arithmetic);
        x->free = NULL;
    }
    if (!x->held[key])
        return -ENOMEM;
    kept_copy(x->held[key], x->now);
    return 0;
}

static void state_let_go(heir *x, uint32_t key)
{
    kept_close(x->free);
    x->free = x->held[key];
    x->held[key] = NULL;
}

/* The lane goes on from the token's parent. */
static int parent_take(heir *x, const kvb_scan_lane *lane, const kvb_scan_problem *p, const kvb_scan_made *m,
                       const move *step)
{
    const kept *from = step->parent == KVB_DESCENT_ROOT ? NULL : x->held[step->parent];
    if (step->parent != KVB_DESCENT_ROOT && !from)
        return -EILSEQ;
    if (!from) { /* zeros */
        kept_close(x->now);
        x->now = kept_open(lane, p, m->arithmetic);
        return x->now ? 0 : -ENOMEM;
    }
    kept_copy(x->now, from);
    return 0;
}

static void token_step(kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_lane *lane, const kvb_scan_problem *p,
                       heir *x, uint32_t t)
{
    const move *step = &h->moves[t];
    const bool stored = m->call->to[t] != KVB_SCAN_NONE;
    if (!x->now->full) {
        kvb_glance_step(&x->now->glance, p, m->arithmetic, &lane->rows[step->key], step->own ? h->out : NULL);
        if (step->ends)
            kvb_glance_rest(&x->now->glance, p, m->arithmetic, stored);
        return;
    }
    const kvb_recurrence_token token =
        kvb_lane_token(h->descent->values, &m->call->problem, m->layer, lane, &x->own, m->tokens[t]);
    kvb_recurrence_step(x->now->full, &token, h->out);
    if (step->ends)
        kvb_recurrence_rest(x->now->full, stored);
}

static int lane_follow(kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_lane *lane, heir *x,
                       const kvb_scan_diffs *diffs)
{
    const kvb_scan *call = m->call;
    const size_t bytes = call->problem.out_elem == KVB_F32 ? 4 : 2;
    kvb_diff *out = lane->rows ? diffs->opinion : diffs->out, *states = lane->rows ? NULL : diffs->states;
    kvb_scan_problem p = call->problem;
    p.d_v = lane->n;
    int err = heir_open(h, m, &p, lane, x);
    for (uint32_t t = 0; t < call->problem.n_tok && !err; t++) {
        const move *step = &h->moves[t];
        err = step->jumps ? parent_take(x, lane, &p, m, step) : 0;
        if (err)
            return err;
        if (step->takes && x->held[step->parent])
            state_let_go(x, step->parent);
        if (x->now->full && (t == 0 || step->jumps))
            kvb_recurrence_declare(x->now->full, m->arithmetic);
        token_step(h, m, lane, &p, x, t);
        kvb_diff_place place = {.event = m->event,
                                .layer = m->layer,
                                .query = step->query,
                                .head = lane->head,
                                .channel = lane->first,
                                .part = (uint16_t)(1 + m->part)};
        if (out && step->own) {
            const size_t at = ((size_t)t * p.heads + lane->head) * call->problem.d_v + lane->first;
            kvb_diff_take(out, &place, h->out, lane->n, p.out_elem, (const char *)call->out + at * bytes);
            out->rows++;
            for (uint32_t c = 0; c < lane->n && diffs->exact; c++) {
                diffs->exact[at + c] = h->out[c].value;
                diffs->bound[at + c] = h->out[c].bound;
            }
        }
        if (states && step->lasts)
            err = state_compare(h, m, lane, x->now->full, t, place, states);
        if (!err && step->wanted)
            err = state_hold(x, lane, &p, m, step->key);
    }
    return err;
}

/* What each token of the call is to all lanes. */
static int moves_make(kvb_heirs *h, const kvb_scan_made *m)
{
    const kvb_scan *call = m->call;
    const kvb_descent *d = h->descent;
    const uint32_t n_tok = call->problem.n_tok;
    if (n_tok > h->moves_room) {
        free(h->moves);
        h->moves = malloc(n_tok * sizeof *h->moves);
        h->moves_room = h->moves ? n_tok : 0;
        if (!h->moves)
            return -ENOMEM;
    }
    if (call->states.slots > h->slots) {
        free(h->writer);
        h->writer = malloc(call->states.slots * sizeof *h->writer);
        h->slots = h->writer ? call->states.slots : 0;
        if (!h->writer)
            return -ENOMEM;
    }
    for (uint32_t t = 0; t < n_tok; t++)
        if (call->to[t] != KVB_SCAN_NONE)
            h->writer[call->to[t]] = t;
    uint64_t last = 0; /* identity: tokens of later calls, where these are no history, are larger */
    for (uint32_t t = 0, end = 0; t < n_tok; t++) {
        const uint32_t key = kvb_alike(d->trace, m->tokens[t]), parent = d->parent[m->tokens[t]];
        const bool begins = t == end, own = n_tok - t <= m->n_own, stored = call->to[t] != KVB_SCAN_NONE;
        end = begins ? kvb_scan_run_end(call, t) : end;
        h->moves[t] = (move){.key = key,
                             .parent = parent,
                             .jumps = begins || parent != kvb_alike(d->trace, m->tokens[t - 1]),
                             .ends = t + 1 == end,
                             .own = own,
                             .lasts = own && stored && h->writer[call->to[t]] == t,
                             .query = own ? m->query + t - (n_tok - m->n_own) : 0};
        last = m->tokens[t] > last ? m->tokens[t] : last;
    }
    for (uint32_t t = n_tok; t-- > 0;) { /* a call may feed a history in any order in which parents come first */
        move *step = &h->moves[t];
        step->wanted = d->youngest[step->key] > last || h->follows[step->key] & FOLLOWS_BY_JUMP;
        if (step->parent == KVB_DESCENT_ROOT)
            continue;
        step->takes = d->youngest[step->parent] <= last && !h->follows[step->parent];
        h->follows[step->parent] |= step->jumps ? FOLLOWS_AT_ALL | FOLLOWS_BY_JUMP : FOLLOWS_AT_ALL;
    }
    for (uint32_t t = 0; t < n_tok; t++)
        if (h->moves[t].parent != KVB_DESCENT_ROOT)
            h->follows[h->moves[t].parent] = 0;
    return 0;
}

int kvb_heirs_follow(kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_diffs *diffs)
{
    const size_t *first = &h->descent->lane_first[m->layer * KVB_SCAN_PARTS + m->part];
    int err = moves_make(h, m);
    for (size_t i = first[0]; i < first[1] && !err; i++)
        err = lane_follow(h, m, &h->descent->lanes[i], &h->heirs[i], diffs);
    return err;
}
