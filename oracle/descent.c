/* SPDX-License-Identifier: Apache-2.0 */
/* Who follows whom, what is followed of it, and the comparison of calls with it. */
#include "oracle/descent.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/history.h"
#include "oracle/recurrence.h"
#include "oracle/sample.h"

/* A part's state: heads, d_k and d_v. */
static kvb_scan_problem part_of(const kvb_group_scan *s, kvb_scan_part part)
{
    const bool conv = part == KVB_PART_CONV;
    return (kvb_scan_problem){.heads = conv ? 1 : s->heads,
                              .d_k = !conv           ? s->d_k
                                     : s->conv_width ? s->conv_width - 1
                                                     : 0,
                              .d_v = conv ? s->conv_channels : s->d_v};
}

/* ---- who follows whom ----------------------------------------------------------------------------------------- */

static uint32_t alike(const kvb_trace *trace, uint64_t token)
{
    return trace->like ? trace->like[token] : (uint32_t)token;
}

static int parents_find(kvb_descent *d)
{
    const kvb_trace *trace = d->trace;
    const kvb_group all = {.heads = 1}; /* whose queries see their whole past */
    kvb_history *history;
    int err = kvb_history_open(trace->needs.tokens, &history);
    for (size_t e = 0; e < trace->n_events && !err; e++) {
        const kvb_event *event = &trace->events[e];
        err = kvb_history_apply(history, event);
        for (uint32_t i = 0; i < event->n && event->kind <= KVB_EVENT_PROPOSE && !err; i++) {
            const uint64_t *rows, token = event->first + i;
            int64_t n = kvb_history_visible(history, &all, i, &rows);
            err = n < 0 ? (int)n : 0;
            if (!err && n > 1) {
                d->parent[token] = alike(trace, kvb_history_token(history, rows[n - 2]));
                d->youngest[d->parent[token]] = (uint32_t)token;
            } else {
                d->parent[token] = KVB_DESCENT_ROOT;
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
    return (kvb_scan_lane){(uint32_t)(number / each), first,
                           p->d_v - first < KVB_LANE_COLUMNS ? p->d_v - first : KVB_LANE_COLUMNS};
}

/* The first, the last, and others by chance. */
static int lanes_choose(kvb_descent *d, uint64_t max_pairs, uint64_t seed)
{
    const kvb_model *m = &d->trace->header.model;
    double cost = 0, chance;
    uint64_t number = 0;
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) { /* the first one counts */
        chance = cost > 0 ? (double)max_pairs / cost : 1;
        number = n = 0;
        if (pass && !(d->lanes = calloc(d->total + 1, sizeof *d->lanes)))
            return -ENOMEM;
        for (uint32_t layer = 0; layer < m->n_layers; layer++)
            for (int part = 0; part < KVB_SCAN_PARTS; part++) {
                const kvb_group *g = kvb_model_group(m, layer);
                const kvb_scan_problem p = part_of(&g->scan, (kvb_scan_part)part);
                const uint64_t all = kvb_group_scans(g) ? (uint64_t)p.heads * stretches(&p) : 0;
                for (uint64_t i = 0; i < all; i++, number++) {
                    const double draw = (double)(kvb_sample_bits(seed, number) >> 11) * 0x1p-53;
                    cost += pass ? 0 : (double)d->trace->needs.tokens * p.d_k * KVB_LANE_COLUMNS;
                    if (pass && (i == 0 || i + 1 == all || max_pairs == UINT64_MAX || draw < chance))
                        d->lanes[n++] = lane_at(&p, i);
                }
                d->lane_first[layer * KVB_SCAN_PARTS + (uint32_t)part + 1] = n;
            }
        d->total = number;
    }
    return 0;
}

int kvb_descent_open(const kvb_trace *trace, const kvb_values *values, uint64_t max_pairs, uint64_t seed,
                     kvb_descent **descent)
{
    *descent = NULL;
    if (!kvb_model_scans(&trace->header.model))
        return 0;
    kvb_descent *d = calloc(1, sizeof *d);
    if (!d)
        return -ENOMEM;
    *d = (kvb_descent){.trace = trace, .values = values};
    d->parent = calloc(trace->needs.tokens + 1, sizeof *d->parent);
    d->youngest = calloc(trace->needs.tokens + 1, sizeof *d->youngest);
    d->lane_first = calloc((size_t)trace->header.model.n_layers * KVB_SCAN_PARTS + 1, sizeof *d->lane_first);
    int err = d->parent && d->youngest && d->lane_first ? parents_find(d) : -ENOMEM;
    if (!err)
        err = lanes_choose(d, max_pairs, seed);
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
    free(d->parent);
    free(d->youngest);
    free(d->lane_first);
    free(d->lanes);
    free(d);
}

size_t kvb_descent_lanes(const kvb_descent *d)
{
    return d ? d->lane_first[d->trace->header.model.n_layers * KVB_SCAN_PARTS] : 0;
}

/* ---- one pass --------------------------------------------------------------------------------------------------- */

/* What one lane holds. */
typedef struct heir {
    kvb_recurrence **held; /* [tokens] states that a later token follows; NULL: nobody asks */
    kvb_recurrence *free;  /* one that was given back, to be used again */
    kvb_recurrence *now;   /* of the token in hand */
    float *a, *bias;       /* of the layer, its columns alone */
} heir;

struct kvb_heirs {
    const kvb_descent *descent;
    heir *heirs;              /* [lanes] */
    kvb_recurrence_want *out; /* [KVB_LANE_COLUMNS] */
    kvb_recurrence_want *state;
    size_t state_room;
    uint32_t *writer; /* [slots] token of the call that wrote it last */
    size_t slots;
};

int kvb_heirs_open(const kvb_descent *descent, kvb_heirs **heirs)
{
    kvb_heirs *h = calloc(1, sizeof *h);
    *heirs = h;
    if (!h)
        return -ENOMEM;
    h->descent = descent;
    h->heirs = calloc(kvb_descent_lanes(descent) + 1, sizeof *h->heirs);
    h->out = calloc(KVB_LANE_COLUMNS, sizeof *h->out);
    if (h->heirs && h->out)
        return 0;
    kvb_heirs_free(h);
    *heirs = NULL;
    return -ENOMEM;
}

void kvb_heirs_free(kvb_heirs *h)
{
    if (!h)
        return;
    for (size_t i = 0; h->heirs && i < kvb_descent_lanes(h->descent); i++) {
        heir *x = &h->heirs[i];
        for (uint64_t t = 0; x->held && t < h->descent->trace->needs.tokens; t++)
            kvb_recurrence_close(x->held[t]);
        kvb_recurrence_close(x->free);
        kvb_recurrence_close(x->now);
        free(x->held);
        free(x->a);
        free(x->bias);
    }
    free(h->heirs);
    free(h->out);
    free(h->state);
    free(h->writer);
    free(h);
}

/* The lane's columns of [rows][d_v] numbers; NULL of NULL. */
static int columns_copy(const float *from, size_t rows, size_t d_v, const kvb_scan_lane *lane, float **to)
{
    *to = from ? malloc(rows * lane->n * sizeof **to) : NULL;
    for (size_t r = 0; *to && r < rows; r++)
        memcpy(*to + r * lane->n, from + r * d_v + lane->first, lane->n * sizeof **to);
    return from && !*to ? -ENOMEM : 0;
}

/* The lane's part of what the layer has of its own. */
static int constants_take(const kvb_scan_made *m, const kvb_values *v, const kvb_scan_lane *lane, heir *x)
{
    const kvb_scan_problem *p = &m->call->problem;
    float *const *a = v->constant[m->part == KVB_PART_CONV ? KVB_CONSTANT_TAPS : KVB_CONSTANT_A];
    const float *layer = a[m->layer];
    if (m->part == KVB_PART_CONV) {
        int err = columns_copy(layer, p->d_k + 1u, p->d_v, lane, &x->a);
        return err ? err : columns_copy(v->constant[KVB_CONSTANT_BIAS][m->layer], 1, p->d_v, lane, &x->bias);
    }
    if (p->kind == KVB_SCAN_MAMBA1)
        return columns_copy(layer + (size_t)lane->head * p->d_k * p->d_v, p->d_k, p->d_v, lane, &x->a);
    const kvb_scan_lane one = {0, 0, 1};
    return layer ? columns_copy(layer + lane->head, 1, 1, &one, &x->a) : 0;
}

static int heir_open(kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_lane *lane, heir *x)
{
    kvb_scan_problem p = m->call->problem;
    p.d_v = lane->n;
    if (!x->now) {
        x->held = calloc(h->descent->trace->needs.tokens + 1, sizeof *x->held);
        x->now = kvb_recurrence_open(&p, m->arithmetic);
        int err = x->held && x->now ? constants_take(m, h->descent->values, lane, x) : -ENOMEM;
        if (err)
            return err;
    }
    return 0;
}

/* The lane's inputs of a token. */
static kvb_recurrence_token token_of(const kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_lane *lane,
                                     const heir *x, uint64_t token)
{
    const kvb_values *v = h->descent->values;
    const kvb_scan_problem *p = &m->call->problem;
    const bool conv = m->part == KVB_PART_CONV, each = p->kind == KVB_SCAN_MAMBA1;
    const float *rows[KVB_ROWS_KINDS];
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++)
        rows[kind] = kvb_values_rows(v, (kvb_rows)kind, m->layer, token);
    const size_t keys = (size_t)(lane->head / (p->heads / p->groups)) * p->d_k,
                 columns = (size_t)lane->head * p->d_v + lane->first;
    kvb_recurrence_token t = {.a = x->a, .bias = x->bias, .v = (conv ? rows[KVB_ROWS_X] : rows[KVB_ROWS_V]) + columns};
    if (conv)
        return t;
    t.q = rows[KVB_ROWS_Q] + keys;
    t.k = rows[KVB_ROWS_K] + keys;
    t.gate = rows[KVB_ROWS_GATE] ? rows[KVB_ROWS_GATE] + (each ? columns : lane->head) : NULL;
    t.beta = rows[KVB_ROWS_BETA] ? rows[KVB_ROWS_BETA] + lane->head : NULL;
    return t;
}

/* What a slot holds of the lane, against its state. */
static int state_compare(kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_lane *lane, const heir *x, uint32_t t,
                         kvb_diff_place place, kvb_diff *diff)
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
    kvb_recurrence_state(x->now, h->state);
    const char *slot = kvb_scan_state(m->call, m->call->to[t], lane->head);
    for (uint32_t i = 0; i < p->d_k; i++) {
        place.row = (uint16_t)(i + 1);
        kvb_diff_take(diff, &place, h->state + (size_t)i * lane->n, lane->n, p->state_elem,
                      slot + ((size_t)i * p->d_v + lane->first) * bytes);
    }
    return 0;
}

/* Is a state to be kept beyond the token that follows at once? */
static bool is_wanted(const kvb_heirs *h, const kvb_scan_made *m, uint32_t t, uint32_t key, bool goes_on)
{
    const uint32_t youngest = h->descent->youngest[key];
    return youngest && (!goes_on || youngest > m->tokens[t + 1]);
}

static int state_hold(heir *x, const kvb_scan_problem *p, const kvb_scan_made *m, uint32_t key)
{
    if (!x->held[key]) {
        x->held[key] = x->free ? x->free : kvb_recurrence_open(p, m->arithmetic);
        x->free = NULL;
    }
    if (!x->held[key])
        return -ENOMEM;
    kvb_recurrence_copy(x->held[key], x->now);
    return 0;
}

static void state_let_go(heir *x, uint32_t key)
{
    kvb_recurrence_close(x->free);
    x->free = x->held[key];
    x->held[key] = NULL;
}

static int lane_follow(kvb_heirs *h, const kvb_scan_made *m, const kvb_scan_lane *lane, heir *x, kvb_diff *out,
                       kvb_diff *states)
{
    const kvb_scan *call = m->call;
    const kvb_descent *d = h->descent;
    const uint32_t n_tok = call->problem.n_tok;
    const size_t bytes = call->problem.out_elem == KVB_F32 ? 4 : 2;
    kvb_scan_problem p = call->problem;
    p.d_v = lane->n;
    int err = heir_open(h, m, lane, x);
    for (uint32_t t = 0; t < n_tok && !err; t++) {
        const uint32_t key = alike(d->trace, m->tokens[t]), parent = d->parent[m->tokens[t]];
        const bool begins = t == 0 || kvb_scan_run_end(call, t - 1) == t;
        const bool ends = t + 1 == n_tok || kvb_scan_run_end(call, t) == t + 1;
        const bool own = n_tok - t <= m->n_own;
        if (begins || parent != alike(d->trace, m->tokens[t - 1])) {
            kvb_recurrence *from = parent == KVB_DESCENT_ROOT ? NULL : x->held[parent];
            if (parent != KVB_DESCENT_ROOT && !from)
                return -EILSEQ;
            if (from) {
                kvb_recurrence_copy(x->now, from);
            } else { /* zeros */
                kvb_recurrence_close(x->now);
                x->now = kvb_recurrence_open(&p, m->arithmetic);
                if (!x->now)
                    return -ENOMEM;
            }
            if (from && d->youngest[parent] == m->tokens[t])
                state_let_go(x, parent);
        }
        const kvb_recurrence_token token = token_of(h, m, lane, x, m->tokens[t]);
        kvb_diff_place place = {.event = m->event,
                                .layer = m->layer,
                                .query = own ? m->query + t - (n_tok - m->n_own) : 0,
                                .head = lane->head,
                                .channel = lane->first,
                                .part = (uint16_t)(1 + m->part)};
        kvb_recurrence_step(x->now, &token, h->out);
        if (ends)
            kvb_recurrence_rest(x->now, call->to[t] != KVB_SCAN_NONE);
        if (out && own) {
            const size_t at = ((size_t)t * p.heads + lane->head) * call->problem.d_v + lane->first;
            kvb_diff_take(out, &place, h->out, lane->n, p.out_elem, (const char *)call->out + at * bytes);
            out->rows++;
        }
        if (states && own && call->to[t] != KVB_SCAN_NONE && h->writer[call->to[t]] == t)
            err = state_compare(h, m, lane, x, t, place, states);
        if (!err && is_wanted(h, m, t, key, !ends))
            err = state_hold(x, &p, m, key);
    }
    return err;
}

int kvb_heirs_follow(kvb_heirs *h, const kvb_scan_made *m, kvb_diff *out, kvb_diff *states)
{
    const kvb_scan *call = m->call;
    const size_t *first = &h->descent->lane_first[m->layer * KVB_SCAN_PARTS + m->part];
    if (call->states.slots > h->slots) {
        free(h->writer);
        h->writer = malloc(call->states.slots * sizeof *h->writer);
        h->slots = h->writer ? call->states.slots : 0;
        if (!h->writer)
            return -ENOMEM;
    }
    for (uint32_t t = 0; t < call->problem.n_tok; t++)
        if (call->to[t] != KVB_SCAN_NONE)
            h->writer[call->to[t]] = t;
    int err = 0;
    for (size_t i = first[0]; i < first[1] && !err; i++)
        err = lane_follow(h, m, &h->descent->lanes[i], &h->heirs[i], out, states);
    return err;
}
