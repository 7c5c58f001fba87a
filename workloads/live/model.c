/* SPDX-License-Identifier: Apache-2.0 */
/* The live model's forward pass, token by token, plain f32. */
#include "workloads/live/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Four chains hide the latency of the adds; the order of the sum is a function of n alone. */
static float dot(const float *restrict a, const float *restrict b, size_t n)
{
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        s0 += a[i] * b[i];
        s1 += a[i + 1] * b[i + 1];
        s2 += a[i + 2] * b[i + 2];
        s3 += a[i + 3] * b[i + 3];
    }
    for (; i < n; i++)
        s0 += a[i] * b[i];
    return (s0 + s1) + (s2 + s3);
}

/* y [rows] = w [rows][columns] x [columns] */
static void project(const float *w, const float *x, size_t rows, size_t columns, float *y)
{
    for (size_t r = 0; r < rows; r++)
        y[r] = dot(w + r * columns, x, columns);
}

/* out may be x */
static void normalise(const float *x, const float *gain, size_t n, float eps, float *out)
{
    float factor = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * factor * gain[i];
}

void kvb_model_rope(float *x, uint32_t dim, uint32_t position, double theta)
{
    uint32_t half = dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        /* in double: a float angle is off by whole turns' fractions at long positions */
        double angle = position * pow(theta, -2.0 * i / dim);
        float c = (float)cos(angle), s = (float)sin(angle), a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

/* Heads of one token's q or K: QK-norm, then RoPE. */
static void position_heads(float *x, const float *gain, const kvb_model_config *c, uint32_t heads, uint32_t position)
{
    for (uint32_t h = 0; h < heads; h++, x += c->head_dim) {
        if (gain)
            normalise(x, gain, c->head_dim, c->norm_eps, x);
        kvb_model_rope(x, c->head_dim, position, c->rope_theta);
    }
}

/* x += SwiGLU(norm(x)); row [hidden], gate and up [ffn] are working memory. */
static void mlp(const kvb_model_config *c, const kvb_layer_weights *w, float *x, float *row, float *gate, float *up)
{
    normalise(x, w->mlp_norm, c->hidden, c->norm_eps, row);
    project(w->gate, row, c->ffn, c->hidden, gate);
    project(w->up, row, c->ffn, c->hidden, up);
    for (uint32_t i = 0; i < c->ffn; i++)
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    project(w->down, gate, c->hidden, c->ffn, row);
    for (uint32_t i = 0; i < c->hidden; i++)
        x[i] += row[i];
}

static int work_grow(kvb_forward *work, size_t floats)
{
    if (floats <= work->block_floats)
        return 0;
    float *block = realloc(work->block, floats * sizeof *block);
    if (!block)
        return -ENOMEM;
    work->block = block;
    work->block_floats = floats;
    return 0;
}

void kvb_forward_free(kvb_forward *work)
{
    free(work->block);
    *work = (kvb_forward){0};
}

int kvb_model_forward(const kvb_weights *weights, kvb_forward *work, kvb_live_op *op, const int32_t *tok,
                      const uint32_t *positions, uint32_t n, uint32_t n_new, float *logits)
{
    const kvb_model_config *c = &weights->config;
    size_t hidden = c->hidden, q_row = (size_t)c->heads * c->head_dim, kv_row = (size_t)c->kv_heads * c->head_dim;
    int err = work_grow(work, n * (hidden + 2 * q_row + 2 * kv_row) + hidden + 2 * (size_t)c->ffn);
    if (err) {
        snprintf(op->why, sizeof op->why, "no memory for a step of %u tokens", n);
        return err;
    }
    float *x = work->block, *q = x + n * hidden, *k = q + n * q_row, *v = k + n * kv_row, *attended = v + n * kv_row;
    float *row = attended + n * q_row, *gate = row + hidden, *up = gate + c->ffn;

    for (size_t t = 0; t < n; t++)
        memcpy(x + t * hidden, weights->embed + (size_t)tok[t] * hidden, hidden * sizeof *x);
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        const kvb_layer_weights *w = &weights->layers[layer];
        for (size_t t = 0; t < n; t++) {
            normalise(x + t * hidden, w->attn_norm, hidden, c->norm_eps, row);
            project(w->q, row, q_row, hidden, q + t * q_row);
            project(w->k, row, kv_row, hidden, k + t * kv_row);
            project(w->v, row, kv_row, hidden, v + t * kv_row);
            position_heads(q + t * q_row, w->q_norm, c, c->heads, positions[t]);
            position_heads(k + t * kv_row, w->k_norm, c, c->kv_heads, positions[t]);
        }
        err = kvb_update_and_attend(op, q, k, v, positions, n, layer, attended);
        if (err)
            return err;
        /* of the last layer's output only the new tokens' is asked for */
        for (size_t t = layer + 1 < c->layers ? 0 : n - n_new; t < n; t++) {
            project(w->o, attended + t * q_row, hidden, q_row, row);
            for (size_t i = 0; i < hidden; i++)
                x[t * hidden + i] += row[i];
            mlp(c, w, x + t * hidden, row, gate, up);
        }
    }
    for (size_t t = n - n_new; t < n; t++, logits += c->vocab) {
        normalise(x + t * hidden, weights->norm, hidden, c->norm_eps, row);
        project(weights->lm_head, row, c->vocab, hidden, logits);
    }
    return 0;
}

void kvb_model_best(const float *logits, uint32_t vocab, uint32_t n, int32_t *best)
{
    uint32_t found = 0;
    for (uint32_t id = 0; id < vocab; id++) {
        uint32_t place = found;
        while (place > 0 && logits[id] > logits[best[place - 1]])
            place--;
        if (place == n)
            continue;
        found += found < n;
        for (uint32_t i = found - 1; i > place; i--)
            best[i] = best[i - 1];
        best[place] = (int32_t)id;
    }
}
