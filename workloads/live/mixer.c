/* SPDX-License-Identifier: Apache-2.0 */
/* Token by token but for the two calls, so that a token's numbers do not depend on its batch mates. */
#include "workloads/live/mixer.h"

#include <math.h>
#include <string.h>

static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* What n tokens have, all of the layer's heads. */
typedef struct rows {
    float *projected, *mixed, *q, *k, *v, *gate, *beta, *out, *row;
    size_t channels, width, inner, keys, gates; /* floats of a token */
} rows;

static rows sizes_of(const kvb_group_scan *s)
{
    return (rows){.channels = s->conv_channels,
                  .width = kvb_scan_projected(s),
                  .inner = (size_t)s->heads * s->d_v,
                  .keys = (size_t)s->groups * s->d_k,
                  .gates = s->kind == KVB_SCAN_MAMBA1 ? s->d_v : s->heads};
}

static rows rows_of(const kvb_model_config *c, uint32_t n, float *work)
{
    const kvb_group_scan *s = &c->scan;
    rows r = sizes_of(s);
    r.projected = work;
    r.mixed = r.projected + n * r.width;
    r.q = r.mixed + n * r.channels;
    r.k = r.q + n * r.keys;
    r.v = r.k + n * r.keys;
    r.gate = r.v + n * r.inner;
    r.beta = r.gate + n * r.gates;
    r.out = r.beta + n * s->heads;
    r.row = r.out + n * r.inner;
    return r;
}

size_t kvb_mixer_floats(const kvb_model_config *c, uint32_t n)
{
    const kvb_group_scan *s = &c->scan;
    const rows r = sizes_of(s);
    return n * (r.width + 2 * r.channels + 2 * r.keys + 2 * r.inner + r.gates + s->heads) + c->hidden + r.inner +
           c->dt_rank + 2 * (size_t)s->d_k;
}

static void unit(float *x, uint32_t n, float scale)
{
    float sum = 1e-6f;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        x[i] *= scale / sqrtf(sum);
}

/* What the recurrence is given of token t. Of the convolved row mamba1 takes v alone, mamba2 v, k, q, the delta rule q,
 * k, v. */
static void token_take(const kvb_model_config *c, const kvb_layer_weights *w, const rows *r, size_t t)
{
    const kvb_group_scan *s = &c->scan;
    const float *mixed = r->mixed + t * r->channels, *rest = r->projected + t * r->width + r->channels + r->inner;
    float *q = r->q + t * r->keys, *k = r->k + t * r->keys, *v = r->v + t * r->inner, *gate = r->gate + t * r->gates;
    const bool delta = s->kind == KVB_SCAN_DELTA;
    memcpy(v, mixed + (delta ? 2 * r->keys : 0), r->inner * sizeof *v);
    if (s->kind == KVB_SCAN_MAMBA1) {
        kvb_live_project(w->select, v, c->dt_rank + 2u * s->d_k, s->d_v, r->row);
        kvb_live_project(w->dt, r->row, s->d_v, c->dt_rank, gate);
        for (uint32_t i = 0; i < s->d_v; i++)
            gate[i] = softplus(gate[i] + w->dt_bias[i]);
        memcpy(k, r->row + c->dt_rank, r->keys * sizeof *k);
        memcpy(q, r->row + c->dt_rank + r->keys, r->keys * sizeof *q);
        return;
    }
    memcpy(k, mixed + (delta ? r->keys : r->inner), r->keys * sizeof *k);
    memcpy(q, mixed + (delta ? 0 : r->inner + r->keys), r->keys * sizeof *q);
    for (uint32_t h = 0; h < s->heads; h++)
        gate[h] = softplus(rest[h] + w->dt_bias[h]) * (delta ? w->a[h] : 1.0f);
    for (uint32_t h = 0; delta && h < s->heads; h++)
        r->beta[t * s->heads + h] = sigmoid(rest[s->heads + h]);
    for (uint32_t g = 0; delta && g < s->groups; g++) {
        unit(q + (size_t)g * s->d_k, s->d_k, 1.0f / sqrtf((float)s->d_k));
        unit(k + (size_t)g * s->d_k, s->d_k, 1.0f);
    }
}

/* The skip term, the gate z, the norm, the way back. */
static void token_add(const kvb_model_config *c, const kvb_layer_weights *w, const rows *r, size_t t, float *x)
{
    const kvb_group_scan *s = &c->scan;
    const float *z = r->projected + t * r->width + r->channels, *v = r->v + t * r->inner;
    float *out = r->out + t * r->inner;
    for (size_t i = 0; i < r->inner; i++) {
        const float skip = s->kind == KVB_SCAN_DELTA    ? 0.0f
                           : s->kind == KVB_SCAN_MAMBA1 ? w->skip[i]
                                                        : w->skip[i / s->d_v];
        out[i] = (out[i] + skip * v[i]) * (z[i] * sigmoid(z[i]));
    }
    kvb_live_normalise(out, w->scan_norm, r->inner, c->norm_eps, out);
    kvb_live_project(w->out, out, c->hidden, r->inner, r->row);
    for (uint32_t i = 0; i < c->hidden; i++)
        x[i] += r->row[i];
}

int kvb_mixer_forward(const kvb_model_config *c, const kvb_layer_weights *w, float *work, kvb_live_op *op,
                      const uint32_t *positions, uint32_t n, uint32_t layer, float *x)
{
    const bool delta = c->scan.kind == KVB_SCAN_DELTA;
    const rows r = rows_of(c, n, work);
    const float *const constants[KVB_CONSTANTS] = {delta ? NULL : w->a, w->taps, w->bias};
    float *inputs =
        r.row + c->hidden + r.inner + c->dt_rank + 2 * (size_t)c->scan.d_k; /* of the convolution, side by side */
    int err = kvb_fetch_states(op, positions, n, layer, constants);
    for (size_t t = 0; t < n && !err; t++) {
        kvb_live_normalise(x + t * c->hidden, w->attn_norm, c->hidden, c->norm_eps, r.row);
        kvb_live_project(w->in, r.row, r.width, c->hidden, r.projected + t * r.width);
        memcpy(inputs + t * r.channels, r.projected + t * r.width, r.channels * sizeof *inputs);
    }
    if (!err)
        err = kvb_scan_layer(op, layer, true, &(kvb_scan){.v = inputs, .a = w->taps, .bias = w->bias}, r.mixed);
    for (size_t t = 0; t < n && !err; t++)
        token_take(c, w, &r, t);
    if (!err)
        err = kvb_scan_layer(
            op, layer, false,
            &(kvb_scan){
                .q = r.q, .k = r.k, .v = r.v, .gate = r.gate, .beta = delta ? r.beta : NULL, .a = delta ? NULL : w->a},
            r.out);
    for (size_t t = 0; t < n && !err; t++)
        token_add(c, w, &r, t, x + t * c->hidden);
    return err;
}
