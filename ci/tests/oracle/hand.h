/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-made traces and random numbers for the oracle's tests. */
#ifndef KVB_TEST_HAND_H
#define KVB_TEST_HAND_H

#include "ci/tests/tests.h"
#include "workloads/trace.h"
#include "workloads/values.h"

#define HAND_EVENTS 64

/* A trace under construction: positions and identities are counted here, as the reader does. */
typedef struct hand {
    kvb_trace trace;
    kvb_event events[HAND_EVENTS];
    void *owned[4 * HAND_EVENTS];
    size_t n_owned;
    uint64_t tokens;
} hand;

static inline void *hand_copy(hand *h, const void *from, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    if (from)
        memcpy(copy, from, bytes);
    h->owned[h->n_owned++] = copy;
    return copy;
}

static inline kvb_event *hand_event(hand *h, kvb_event_kind kind)
{
    h->trace.events = h->events;
    kvb_event *e = &h->events[h->trace.n_events++];
    *e = (kvb_event){.kind = kind};
    return e;
}

/* Tokens at given positions of given sequences. */
static inline void hand_step(hand *h, uint32_t n, const uint32_t *pos, const uint32_t *seq)
{
    kvb_event *e = hand_event(h, KVB_EVENT_STEP);
    e->n = n;
    e->first = h->tokens;
    e->pos = hand_copy(h, pos, n * sizeof *pos);
    e->seq = hand_copy(h, seq, n * sizeof *seq);
    h->tokens += n;
}

/* n tokens of one sequence from a position on: step, prefill or fill. */
static inline void hand_extend(hand *h, kvb_event_kind kind, uint32_t seq, uint32_t from, uint32_t n)
{
    hand_step(h, 0, NULL, NULL);
    kvb_event *e = &h->events[h->trace.n_events - 1];
    e->kind = kind;
    e->n = n;
    e->pos = hand_copy(h, NULL, n * sizeof *e->pos);
    e->seq = hand_copy(h, NULL, n * sizeof *e->seq);
    for (uint32_t i = 0; i < n; i++) {
        e->pos[i] = from + i;
        e->seq[i] = seq;
    }
    h->tokens += n;
}

/* seqs NULL: of sequence 0. */
static inline void hand_propose_in(hand *h, uint32_t n, const uint32_t *seqs, const int32_t *parents)
{
    kvb_event *e = hand_event(h, KVB_EVENT_PROPOSE);
    e->n = n;
    e->first = h->tokens;
    e->parents = hand_copy(h, parents, n * sizeof *parents);
    e->seq = seqs ? hand_copy(h, seqs, n * sizeof *seqs) : NULL;
    h->tokens += n;
}

static inline void hand_propose(hand *h, uint32_t n, const int32_t *parents)
{
    hand_propose_in(h, n, NULL, parents);
}

static inline void hand_commit(hand *h, uint32_t n, const uint32_t *accepted)
{
    kvb_event *e = hand_event(h, KVB_EVENT_COMMIT);
    e->n = n;
    e->accepted = hand_copy(h, accepted, n * sizeof *accepted);
}

static inline void hand_cp(hand *h, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    kvb_event *e = hand_event(h, KVB_EVENT_SEQ_CP);
    e->src = src;
    e->dst = dst;
    e->p0 = p0;
    e->p1 = p1;
}

static inline void hand_rm(hand *h, uint32_t seq, uint32_t p0, uint32_t p1)
{
    kvb_event *e = hand_event(h, KVB_EVENT_SEQ_RM);
    e->src = seq;
    e->p0 = p0;
    e->p1 = p1;
}

/* A shift of a sequence's positions. */
static inline void hand_add(hand *h, uint32_t seq, uint32_t p0, uint32_t p1, int32_t delta)
{
    kvb_event *e = hand_event(h, KVB_EVENT_SEQ_ADD);
    e->src = seq;
    e->p0 = p0;
    e->p1 = p1;
    e->delta = delta;
    h->trace.needs.shift = true;
}

/* The numbers of a text, as "0 4 5". Returns how many. */
static inline uint32_t hand_list(const char *text, uint32_t *list)
{
    uint32_t n = 0;
    for (char *end; *text; text = end)
        list[n++] = (uint32_t)strtoul(text, &end, 10);
    return n;
}

/* ---- numbers: splitmix64, Box-Muller -------------------------------------------------------------------- */

static inline double hand_uniform(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return ((double)((x ^ x >> 31) >> 11) + 0.5) * 0x1p-53;
}

static inline double hand_gauss(uint64_t *state)
{
    double radius = sqrt(-2 * log(hand_uniform(state)));
    return radius * cos(6.283185307179586 * hand_uniform(state));
}

static inline void hand_doubles(const float *from, uint32_t n, double *to)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = (double)from[i];
}

/* A model of equal layers. */
static inline kvb_model hand_model(uint32_t layers, kvb_group group)
{
    return (kvb_model){.n_layers = layers, .n_groups = 1, .groups = {group}};
}

/* Gaussian rows for every token of the trace. */
static inline void hand_values(hand *h, kvb_model model, uint64_t seed, kvb_values *values)
{
    h->trace.header.model = model;
    h->trace.needs.tokens = h->tokens;
    *values = (kvb_values){.tokens = h->tokens, .model = &h->trace.header.model, .profile = "hand"};
    for (int kind = 0; kind < KVB_ROWS_ATTENDED; kind++) {
        size_t n = 0;
        values->layer_at[kind] = hand_copy(h, NULL, model.n_layers * sizeof *values->layer_at[kind]);
        for (uint32_t layer = 0; layer < model.n_layers; layer++) {
            values->layer_at[kind][layer] = n;
            n += h->tokens * kvb_values_floats(kvb_model_group(&model, layer), (kvb_rows)kind);
        }
        values->block[kind] = hand_copy(h, NULL, n * sizeof(float));
        for (size_t i = 0; i < n; i++)
            values->block[kind][i] = (float)hand_gauss(&seed);
    }
}

static inline void hand_free(hand *h)
{
    for (size_t i = 0; i < h->n_owned; i++)
        free(h->owned[i]);
}

#endif
