/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-made traces and random numbers for the oracle's tests. */
#ifndef KVB_TEST_HAND_H
#define KVB_TEST_HAND_H

#include "ci/tests/tests.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"
#include "workloads/trace.h"
#include "workloads/values.h"

#define HAND_EVENTS 64

/* A trace under construction, with positions and identities counted as by the reader of traces. */
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

/* Adds a step of n tokens at these positions of these sequences. */
static inline void hand_step(hand *h, uint32_t n, const uint32_t *pos, const uint32_t *seq)
{
    kvb_event *e = hand_event(h, KVB_EVENT_STEP);
    e->n = n;
    e->first = h->tokens;
    e->pos = hand_copy(h, pos, n * sizeof *pos);
    e->seq = hand_copy(h, seq, n * sizeof *seq);
    h->tokens += n;
}

/* Adds n tokens of one sequence from a position on; kind: step, prefill or fill. */
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

/* seqs [n]: the nodes' sequences; NULL: sequence 0. */
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

/* Adds a shift of a sequence's positions. */
static inline void hand_add(hand *h, uint32_t seq, uint32_t p0, uint32_t p1, int32_t delta)
{
    kvb_event *e = hand_event(h, KVB_EVENT_SEQ_ADD);
    e->src = seq;
    e->p0 = p0;
    e->p1 = p1;
    e->delta = delta;
    h->trace.needs.shift = true;
}

/* Reads the numbers of a text like "0 4 5". Returns their count. */
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

/* ---- oracles ----------------------------------------------------------------------------------------------------- */

static inline kvb_oracle *hand_oracle_of(const hand *h, const kvb_values *values, kvb_oracle_options options)
{
    kvb_oracle *oracle;
    char why[256];
    if (kvb_oracle_open(&h->trace, values, &options, &oracle, why, sizeof why))
        fail_msg("%s", why);
    return oracle;
}

/* An oracle that checks all rows. */
static inline kvb_oracle *hand_oracle(const hand *h, const kvb_values *values, const kvb_format *k, const kvb_format *v)
{
    return hand_oracle_of(h, values,
                          (kvb_oracle_options){.k_format = k, .v_format = v, .max_pairs = UINT64_MAX, .seed = 1});
}

static inline kvb_storage hand_storage(const kvb_format *format, uint32_t dim, const float *amax, uint32_t kv_heads,
                                       uint32_t kv_head)
{
    kvb_storage store;
    char why[256];
    if (kvb_storage_init(&store, format, dim, amax, kv_heads, kv_head, why, sizeof why))
        fail_msg("%s", why);
    return store;
}

/* Stores n rows from[i] -> [dim] as one sequence and reads them back: rows, sizes [n][dim]. sizes NULL: not wanted. */
static inline void hand_store(const kvb_storage *store, const float *const *from, uint32_t n, double *rows,
                              double *sizes)
{
    void *scratch = malloc(kvb_storage_scratch(store)); /* exact size: a sanitizer sees accesses beyond */
    double *own = malloc(n * store->dim * sizeof *own + 1);
    assert_true(scratch && own);
    kvb_storage_rows(store, from, n, scratch, rows, sizes ? sizes : own);
    free(own);
    free(scratch);
}

/* The same for the rows of these tokens in a layer and KV head. */
static inline void hand_store_tokens(const kvb_values *values, kvb_rows kind, const kvb_format *format,
                                     const float *amax, uint32_t layer, uint32_t kv_head, uint32_t n,
                                     const uint32_t *tokens, double *rows)
{
    const kvb_group *g = kvb_model_group(values->model, layer);
    const kvb_storage store =
        hand_storage(format, kind == KVB_ROWS_K ? g->k_dim : g->v_dim, amax, g->kv_heads, kv_head);
    const float **from = malloc((n + 1) * sizeof *from);
    assert_non_null(from);
    for (uint32_t i = 0; i < n; i++)
        from[i] = kvb_values_rows(values, kind, layer, tokens[i]) + kv_head * store.dim;
    hand_store(&store, from, n, rows, NULL);
    free(from);
}

enum { HAND_DIM = 64 }; /* longest V row */

/* e must be the attention, by its definition, of this token's q over n rows k and v. v NULL: latent rows, V in k. */
static inline void hand_is_attention(const kvb_values *values, const kvb_expect *e, uint64_t token, uint32_t n,
                                     const double *k, const double *v)
{
    const kvb_group *g = kvb_model_group(values->model, e->layer);
    const float *q = kvb_values_rows(values, KVB_ROWS_Q, e->layer, token) + e->head * g->k_dim;
    double z = g->sink_logits ? exp((double)g->sink_logits[e->head]) : 0, out[HAND_DIM] = {0};
    assert_in_range(g->v_dim, 1, HAND_DIM);
    for (uint32_t i = 0; i < n; i++) {
        const double *row = v ? v + i * g->v_dim : k + i * g->k_dim;
        double s = 0;
        for (uint32_t d = 0; d < g->k_dim; d++)
            s += (double)q[d] * k[i * g->k_dim + d];
        s *= (double)(float)g->scale;
        if (g->softcap > 0)
            s = (double)g->softcap * tanh(s / (double)g->softcap);
        z += exp(s);
        for (uint32_t c = 0; c < g->v_dim; c++)
            out[c] += exp(s) * row[c];
    }
    assert_int_equal(e->visible, n);
    assert_true(fabs(e->lse - log(z)) < 1e-12);
    for (uint32_t c = 0; c < g->v_dim; c++)
        assert_true(fabs(e->terms[c].o - out[c] / z) < 1e-12);
}

static inline void hand_free(hand *h)
{
    for (size_t i = 0; i < h->n_owned; i++)
        free(h->owned[i]);
}

#endif
