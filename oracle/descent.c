/* SPDX-License-Identifier: Apache-2.0 */
/* Each token's parent, the choice of lanes, exact values for second opinions, and the lanes' way through the calls. */
#include "oracle/descent.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/sample.h"
#include "workloads/history.h"

/* ---- a lane's part of a layer's problem and values --------------------------------------------------------------- */

/* The first token with the same rows. */
static inline uint32_t kvb_alike(const kvb_trace *trace, uint64_t token)
{
    return trace->like ? trace->like[token] : (uint32_t)token;
}

/* The problem of a part's calls: heads, d_k, d_v and types. */
static kvb_scan_problem lane_problem(const kvb_group_scan *s, kvb_scan_part part)
{
    if (part == KVB_PART_CONV)
        return (kvb_scan_problem){.kind = KVB_SCAN_CONV,
                                  .heads = 1,
                                  .groups = 1,
                                  .d_k = s->conv_width ? s->conv_width - 1 : 0,
                                  .d_v = s->conv_channels,
                                  .state_elem = s->conv_elem,
                                  .silu = s->silu};
    return (kvb_scan_problem){.kind = s->kind,
                              .heads = s->heads,
                              .groups = s->groups,
                              .d_k = s->d_k,
                              .d_v = s->d_v,
                              .state_elem = s->state_elem};
}

/* The lane's inputs of a token. p: the problem of the whole part. */
static kvb_recurrence_token lane_token(const kvb_values *v, const kvb_scan_problem *p, uint32_t layer,
                                       const kvb_scan_lane *lane, uint64_t token)
{
    const bool conv = p->kind == KVB_SCAN_CONV;
    const kvb_scan call = {.problem = *p,
                           .q = kvb_values_rows(v, KVB_ROWS_Q, layer, token),
                           .k = kvb_values_rows(v, KVB_ROWS_K, layer, token),
                           .v = kvb_values_rows(v, conv ? KVB_ROWS_X : KVB_ROWS_V, layer, token),
                           .gate = kvb_values_rows(v, KVB_ROWS_GATE, layer, token),
                           .beta = kvb_values_rows(v, KVB_ROWS_BETA, layer, token),
                           .a = v->constant[conv ? KVB_CONSTANT_TAPS : KVB_CONSTANT_A][layer],
                           .bias = conv ? v->constant[KVB_CONSTANT_BIAS][layer] : NULL};
    return kvb_recurrence_token_of(&call, 0, lane->head, lane->first);
}

#define GLANCE_VISITS                                                                                                  \
    16u /* that many visits of an element of a state cost as much as a (query, head, cell) of a second opinion */
#define ROWS_MAX_BYTES ((uint64_t)256 << 20) /* of second opinions */

/* ---- the parents of tokens -------------------------------------------------------------------------------------- */

static int parents_find(kvb_descent *d)
{
    const kvb_trace *trace = d->trace;
    const kvb_group all = {.heads = 1}; /* a group without limits: queries see their whole past */
    kvb_history *history;
    int err = kvb_history_open(trace->needs.tokens, &history);
    for (size_t e = 0; e < trace->n_events && !err; e++) {
        const kvb_event *event = &trace->events[e];
        err = kvb_history_apply(history, event);
        for (uint32_t i = 0; i < event->n && event->kind <= KVB_EVENT_PROPOSE && !err; i++) {
            const uint64_t token = event->first + i;
            const kvb_row_run *runs;
            const int64_t n = kvb_history_visible(history, &all, i, &runs);
            err = n < 0 ? (int)n : 0;
            kvb_row_run past = {0, 0}; /* the last run before the token's own row */
            for (int64_t r = n - 1; !err && r >= 0 && past.n == 0; r--)
                past = (kvb_row_run){runs[r].row, runs[r].n - (r == n - 1)};
            d->parent[token] = KVB_DESCENT_ROOT;
            if (past.n) {
                d->parent[token] = kvb_alike(trace, kvb_history_token(history, past.row + past.n - 1));
                d->youngest[d->parent[token]] = (uint32_t)token;
            }
        }
    }
    kvb_history_free(history);
    return err;
}

/* ---- what is followed ------------------------------------------------------------------------------------------ */

static uint32_t stretches(const kvb_scan_problem *p)
{
    return p->d_k ? (p->d_v + KVB_LANE_COLUMNS - 1) / KVB_LANE_COLUMNS : 0;
}

static kvb_scan_lane lane_at(const kvb_scan_problem *p, uint64_t number)
{
    const uint32_t each = stretches(p), first = (uint32_t)(number % each) * KVB_LANE_COLUMNS;
    return (kvb_scan_lane){.head = (uint32_t)(number / each),
                           .first = first,
                           .n = p->d_v - first < KVB_LANE_COLUMNS ? p->d_v - first : KVB_LANE_COLUMNS};
}

static double chance_of(uint64_t budget, double each, double cost)
{
    return budget == UINT64_MAX ? 1 : (double)budget * each / fmax(cost, 1);
}

static bool drawn(uint64_t seed, uint64_t number, double chance)
{
    return chance >= 1 || kvb_sample_unit(seed, number) < chance;
}

/* Followed: the first lane of each part, the last, and others by chance. The rest get a second opinion, by chance if not
 * all fit. */
static int lanes_choose(kvb_descent *d, const kvb_oracle_options *options)
{
    const kvb_model *m = &d->trace->header.model;
    const uint64_t tokens = d->trace->needs.tokens;
    double cost = 0, chance = 1, glance = 1;
    uint64_t number = 0;
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) { /* pass 0 only counts */
        if (pass && !(d->lanes = kvb_arena_take(&d->arena, number + 1, sizeof *d->lanes)))
            return -ENOMEM;
        number = 0;
        for (uint32_t place = 0; place < m->n_layers * KVB_SCAN_PARTS; place++) {
            const kvb_group *g = kvb_model_group(m, place / KVB_SCAN_PARTS);
            const kvb_scan_problem p = lane_problem(&g->scan, (kvb_scan_part)(place % KVB_SCAN_PARTS));
            const uint64_t all = kvb_group_scans(g) ? (uint64_t)p.heads * stretches(&p) : 0;
            for (int second = 0; second < 2 && pass; second++) {
                for (uint64_t i = 0; i < all; i++) {
                    const bool followed = i == 0 || i + 1 == all || drawn(options->seed, number + i, chance);
                    if (second ? !followed && drawn(~options->seed, number + i, glance) : followed)
                        d->lanes[n++] = lane_at(&p, i);
                }
                *(second ? &d->lane_first[place + 1] : &d->lane_glanced[place]) = n;
            }
            cost += pass ? 0 : (double)(all * tokens * p.d_k * KVB_LANE_COLUMNS);
            number += all;
        }
        chance = chance_of(options->max_pairs, 1, cost);
        glance = fmin(chance_of(options->opinion_pairs, GLANCE_VISITS, cost),
                      chance_of(ROWS_MAX_BYTES, 1, (double)(number * tokens * sizeof *d->rows)));
    }
    d->total = number;
    return 0;
}

/* ---- exact values for second opinions --------------------------------------------------------------------------- */

/* All tokens of a lane, in order of identity: a parent comes before its children. 0 or -ENOMEM. */
static int lane_glance(const kvb_descent *d, uint32_t place, const kvb_scan_lane *lane, kvb_glance_row *rows)
{
    const uint32_t layer = place / KVB_SCAN_PARTS;
    kvb_scan_problem p =
        lane_problem(&kvb_model_group(&d->trace->header.model, layer)->scan, (kvb_scan_part)(place % KVB_SCAN_PARTS));
    const kvb_scan_problem whole = p;
    const uint64_t tokens = d->trace->needs.tokens;
    const size_t floats = (size_t)p.d_k * KVB_LANE_COLUMNS;
    double **held = calloc(tokens + 1, sizeof *held); /* states that a later token follows */
    int err = held ? 0 : -ENOMEM;
    p.d_v = lane->n;
    for (uint64_t t = 0; t < tokens && !err; t++) {
        const uint32_t parent = d->parent[t];
        double *from = parent == KVB_DESCENT_ROOT ? NULL : held[parent], *now = NULL;
        const bool last = from && d->youngest[parent] == t, first = kvb_alike(d->trace, t) == t;
        if (last)
            held[parent] = NULL;
        if (first) {
            now = last ? from : calloc(floats + 1, sizeof *now);
            if (now && from && !last)
                memcpy(now, from, floats * sizeof *now);
            err = now ? 0 : -ENOMEM;
        }
        if (last && !now)
            free(from);
        if (!now)
            continue;
        const kvb_recurrence_token token = lane_token(d->values, &whole, layer, lane, t);
        kvb_glance_take(&p, &token, now, &rows[t]);
        if (d->youngest[t])
            held[t] = now;
        else
            free(now);
    }
    for (uint64_t t = 0; held && t < tokens; t++)
        free(held[t]);
    free(held);
    return err;
}

typedef struct glancing {
    const kvb_descent *descent;
    atomic_int error;
} glancing;

/* Part of the team: takes lanes. */
static void lanes_glance(void *ctx, uint32_t part, uint32_t parts)
{
    glancing *w = ctx;
    const kvb_descent *d = w->descent;
    size_t n = 0;
    for (uint32_t place = 0; place < d->trace->header.model.n_layers * KVB_SCAN_PARTS; place++)
        for (size_t i = d->lane_glanced[place]; i < d->lane_first[place + 1]; i++, n++) {
            kvb_glance_row *rows = d->rows + n * d->trace->needs.tokens; /* the lane's own */
            int err = n % parts == part && !w->error ? lane_glance(d, place, &d->lanes[i], rows) : 0;
            if (err)
                w->error = err;
        }
}

static int rows_make(kvb_descent *d, const kvb_team *team)
{
    const uint64_t tokens = d->trace->needs.tokens;
    const uint32_t places = d->trace->header.model.n_layers * KVB_SCAN_PARTS;
    size_t n = 0;
    for (uint32_t place = 0; place < places; place++)
        n += d->lane_first[place + 1] - d->lane_glanced[place];
    if (n == 0 || tokens == 0)
        return 0;
    d->rows = kvb_pages_alloc(n * tokens * sizeof *d->rows);
    if (!d->rows)
        return -ENOMEM;
    n = 0;
    for (uint32_t place = 0; place < places; place++)
        for (size_t i = d->lane_glanced[place]; i < d->lane_first[place + 1]; i++, n++)
            d->lanes[i].rows = d->rows + n * tokens;
    glancing work = {.descent = d};
    if (team)
        team->run(team, lanes_glance, &work);
    else
        lanes_glance(&work, 0, 1);
    return work.error;
}

int kvb_descent_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                     kvb_descent **descent)
{
    *descent = NULL;
    if (!kvb_model_scans(&trace->header.model))
        return 0;
    kvb_descent *d = calloc(1, sizeof *d);
    if (!d)
        return -ENOMEM;
    const size_t parts = (size_t)trace->header.model.n_layers * KVB_SCAN_PARTS;
    *d = (kvb_descent){.trace = trace, .values = values};
    d->parent = kvb_arena_take(&d->arena, trace->needs.tokens + 1, sizeof *d->parent);
    d->youngest = kvb_arena_take(&d->arena, trace->needs.tokens + 1, sizeof *d->youngest);
    d->lane_first = kvb_arena_take(&d->arena, parts + 1, sizeof *d->lane_first);
    d->lane_glanced = kvb_arena_take(&d->arena, parts + 1, sizeof *d->lane_glanced);
    int err = d->arena.failed ? -ENOMEM : parents_find(d);
    err = err ? err : lanes_choose(d, options);
    err = err ? err : rows_make(d, options->team);
    if (err)
        kvb_descent_free(d);
    else
        *descent = d;
    return err;
}

void kvb_descent_free(kvb_descent *d)
{
    if (!d)
        return;
    kvb_pages_free(d->rows);
    kvb_arena_free(&d->arena);
    free(d);
}

size_t kvb_descent_lanes(const kvb_descent *d, uint32_t layer)
{
    size_t n = 0;
    for (uint32_t place = layer * KVB_SCAN_PARTS; place < (layer + 1) * KVB_SCAN_PARTS; place++)
        n += d->lane_glanced[place] - d->lane_first[place];
    return n;
}

/* Lanes are followed through the calls of one pass, and compared with the results of these calls. */

/* A lane's state, element by element or at a glance. */
typedef struct kept {
    kvb_recurrence *full; /* NULL: at a glance */
    kvb_glance glance;
} kept;

/* What one lane holds. */
typedef struct heir {
    kept **held; /* [tokens] states that a later token continues; NULL: none does */
    kept *free;  /* a state that may be used again */
    kept *now;   /* of the current token */
} heir;

/* A token of the current call, the same for all lanes. */
typedef struct move {
    uint32_t key, parent;    /* identities */
    bool jumps, ends;        /* its parent is not the token before it; it is the last of its run */
    bool takes;              /* it is the last token to continue its parent, in this call and later ones */
    bool wanted, own, lasts; /* a later token needs its state; it is compared; its slot keeps its state */
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
    move *moves; /* [n_tok] of the current call */
    size_t moves_room;
    uint8_t *follows; /* [tokens] FOLLOWS_ bits of later tokens of the current call; 0 between calls */
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

/* The state before the first token. */
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
    return x->held && x->now ? 0 : -ENOMEM;
}

/* Compares the lane's columns in a slot with its state. */
static int state_compare(kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_lane *lane, const kvb_recurrence *now,
                         uint32_t t, kvb_diff_place place, kvb_diff *diff)
{
    const kvb_scan_problem *p = &m->call->problem;
    const size_t n = (size_t)p->d_k * lane->n, bytes = p->state_elem == KVB_F32 ? 4 : 2;
    if (kvb_array_reserve(&h->state, &h->state_room, n, sizeof *h->state))
        return -ENOMEM;
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

/* Continues the lane from the token's parent. */
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
    const kvb_recurrence_token token = lane_token(h->descent->values, &m->call->problem, m->layer, lane, m->tokens[t]);
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
        if (step->takes && x->held[step->parent]) {
            kept_close(x->free);
            x->free = x->held[step->parent];
            x->held[step->parent] = NULL;
        }
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

/* Fills moves, one for each token of the call. */
static int moves_make(kvb_heirs *h, const kvb_scan_made *m)
{
    const kvb_scan *call = m->call;
    const kvb_descent *d = h->descent;
    const uint32_t n_tok = call->problem.n_tok;
    if (kvb_array_reserve(&h->moves, &h->moves_room, n_tok, sizeof *h->moves) ||
        kvb_array_reserve(&h->writer, &h->slots, call->states.slots, sizeof *h->writer))
        return -ENOMEM;
    for (uint32_t t = 0; t < n_tok; t++)
        if (call->to[t] != KVB_SCAN_NONE)
            h->writer[call->to[t]] = t;
    uint64_t last = 0; /* largest identity of the call: tokens of later calls are larger, if not fed as a history */
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
    for (uint32_t t = n_tok; t-- > 0;) { /* a call that feeds a history may have any order with parents first */
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
