/* SPDX-License-Identifier: Apache-2.0 */
/* The live model's forward pass, token by token, plain f32. */
#include "workloads/live/model.h"

#include "workloads/live/mixer.h"

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
void kvb_live_project(const float *w, const float *x, size_t rows, size_t columns, float *y)
{
    for (size_t r = 0; r < rows; r++)
        y[r] = dot(w + r * columns, x, columns);
}

/* y [columns] = x [rows] w [rows][columns] */
static void project_back(const float *w, const float *x, size_t rows, size_t columns, float *y)
{
    memset(y, 0, columns * sizeof *y);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < columns; i++)
            y[i] += x[r] * w[r * columns + i];
}

/* out may be x */
void kvb_live_normalise(const float *x, const float *gain, size_t n, float eps, float *out)
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
static void position_heads(float *x, const float *gain, const kvb_model_config *c, uint32_t heads, uint32_t position,
                           bool rope)
{
    for (uint32_t h = 0; h < heads; h++, x += c->head_dim) {
        if (gain)
            kvb_live_normalise(x, gain, c->head_dim, c->norm_eps, x);
        if (rope)
            kvb_model_rope(x, c->head_dim, position, c->rope_theta);
    }
}

/* One head's part of kv_b: K's, and V's behind it. */
static const float *up_of(const kvb_model_config *c, const kvb_layer_weights *w, uint32_t head)
{
    return w->kv_b + (size_t)head * (c->head_dim - c->rope_dim + c->v_dim) * c->kv_lora_rank;
}

/* q, K and V rows of one token, latent; x: normalised; work [heads * head_dim + kv_lora_rank + rope_dim]. */
static void latent_rows(const kvb_model_config *c, const kvb_layer_weights *w, const float *x, uint32_t position,
                        float *work, float *q, float *k, float *v)
{
    uint32_t rank = c->kv_lora_rank, rest = c->head_dim - c->rope_dim;
    float *head = work, *row = work + (size_t)c->heads * c->head_dim;
    kvb_live_project(w->q, x, (size_t)c->heads * c->head_dim, c->hidden, head);
    kvb_live_project(w->kv_a, x, rank + c->rope_dim, c->hidden, row);
    kvb_live_normalise(row, w->kv_a_norm, rank, c->norm_eps, row);
    kvb_model_rope(row + rank, c->rope_dim, position, c->rope_theta);
    for (uint32_t h = 0; h < c->heads; h++, head += c->head_dim) {
        const float *up = up_of(c, w, h);
        kvb_model_rope(head + rest, c->rope_dim, position, c->rope_theta);
        if (c->expanded) {
            memcpy(q + h * c->head_dim, head, c->head_dim * sizeof *q);
            kvb_live_project(up, row, rest, rank, k + h * c->head_dim);
            memcpy(k + h * c->head_dim + rest, row + rank, c->rope_dim * sizeof *k);
            kvb_live_project(up + rest * rank, row, c->v_dim, rank, v + h * c->v_dim);
        } else {
            project_back(up, head, rest, rank, q);
            memcpy(q + rank, head + rest, c->rope_dim * sizeof *q);
            q += rank + c->rope_dim;
        }
    }
    if (!c->expanded)
        memcpy(k, row, (rank + c->rope_dim) * sizeof *k);
}

/* V rows of one token's heads [heads * v_dim] from what it attended of latent rows [heads][kv_lora_rank]. */
static void latent_outputs(const kvb_model_config *c, const kvb_layer_weights *w, const float *attended, float *out)
{
    size_t rest = c->head_dim - c->rope_dim, rank = c->kv_lora_rank;
    for (uint32_t h = 0; h < c->heads; h++)
        kvb_live_project(up_of(c, w, h) + rest * rank, attended + h * rank, c->v_dim, rank, out + h * c->v_dim);
}

/* x += SwiGLU(norm(x)); row [hidden], gate and up [ffn] are working memory. */
static void mlp(const kvb_model_config *c, const kvb_layer_weights *w, float *x, float *row, float *gate, float *up)
{
    kvb_live_normalise(x, w->mlp_norm, c->hidden, c->norm_eps, row);
    kvb_live_project(w->gate, row, c->ffn, c->hidden, gate);
    kvb_live_project(w->up, row, c->ffn, c->hidden, up);
    for (uint32_t i = 0; i < c->ffn; i++)
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    kvb_live_project(w->down, gate, c->hidden, c->ffn, row);
    for (uint32_t i = 0; i < c->hidden; i++)
        x[i] += row[i];
}

static int block_grow(float **at, size_t *held, size_t floats)
{
    if (floats <= *held)
        return 0;
    float *block = realloc(*at, floats * sizeof *block);
    if (!block)
        return -ENOMEM;
    *at = block;
    *held = floats;
    return 0;
}

void kvb_forward_free(kvb_forward *work)
{
    free(work->block);
    free(work->scan_block);
    *work = (kvb_forward){0};
}

int kvb_model_forward(const kvb_weights *weights, kvb_forward *work, kvb_live_op *op, const int32_t *tok,
                      const uint32_t *positions, uint32_t n, uint32_t n_new, float *logits)
{
    const kvb_model_config *c = &weights->config;
    const kvb_group g = kvb_model_config_group(c);
    size_t hidden = c->hidden, q_row = (size_t)g.heads * g.k_dim, out_row = (size_t)g.heads * g.v_dim;
    size_t k_row = (size_t)g.kv_heads * g.k_dim, v_row = g.latent ? 0 : (size_t)g.kv_heads * g.v_dim;
    size_t o_row = c->kv_lora_rank ? (size_t)c->heads * c->v_dim : out_row;
    size_t latent = c->kv_lora_rank ? (size_t)c->heads * c->head_dim + c->kv_lora_rank + c->rope_dim + o_row : 0;
    int err = block_grow(&work->block, &work->block_floats,
                         n * (hidden + q_row + k_row + v_row + out_row) + hidden + 2 * (size_t)c->ffn + latent);
    if (!err && c->scan.heads)
        err = block_grow(&work->scan_block, &work->scan_floats, kvb_mixer_floats(c, n));
    if (err) {
        snprintf(op->why, sizeof op->why, "no memory for a step of %u tokens", n);
        return err;
    }
    float *x = work->block, *q = x + n * hidden, *k = q + n * q_row, *v = k + n * k_row, *attended = v + n * v_row;
    float *row = attended + n * out_row, *gate = row + hidden, *up = gate + c->ffn, *heads = up + c->ffn;

    for (size_t t = 0; t < n; t++)
        memcpy(x + t * hidden, weights->embed + (size_t)tok[t] * hidden, hidden * sizeof *x);
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        const kvb_layer_weights *w = &weights->layers[layer];
        if (kvb_model_config_scans(c, layer)) {
            err = kvb_mixer_forward(c, w, work->scan_block, op, positions, n, layer, x);
            if (err)
                return err;
            for (size_t t = 0; t < n; t++)
                mlp(c, w, x + t * hidden, row, gate, up);
            continue;
        }
        bool rope = !c->no_rope_every || (layer + 1) % c->no_rope_every;
        for (size_t t = 0; t < n; t++) {
            kvb_live_normalise(x + t * hidden, w->attn_norm, hidden, c->norm_eps, row);
            if (c->kv_lora_rank) {
                latent_rows(c, w, row, positions[t], heads, q + t * q_row, k + t * k_row, v + t * v_row);
                continue;
            }
            kvb_live_project(w->q, row, q_row, hidden, q + t * q_row);
            kvb_live_project(w->k, row, k_row, hidden, k + t * k_row);
            kvb_live_project(w->v, row, v_row, hidden, v + t * v_row);
            position_heads(q + t * q_row, w->q_norm, c, c->heads, positions[t], rope);
            position_heads(k + t * k_row, w->k_norm, c, c->kv_heads, positions[t], rope);
        }
        err = kvb_update_and_attend(op, q, k, g.latent ? NULL : v, positions, n, layer, attended);
        if (err)
            return err;
        /* of the last layer's output only the new tokens' is asked for */
        for (size_t t = layer + 1 < c->layers ? 0 : n - n_new; t < n; t++) {
            if (g.latent)
                latent_outputs(c, w, attended + t * out_row, heads);
            kvb_live_project(w->o, g.latent ? heads : attended + t * out_row, hidden, o_row, row);
            for (size_t i = 0; i < hidden; i++)
                x[t * hidden + i] += row[i];
            mlp(c, w, x + t * hidden, row, gate, up);
        }
    }
    for (size_t t = n - n_new; t < n; t++, logits += c->vocab) {
        kvb_live_normalise(x + t * hidden, weights->norm, hidden, c->norm_eps, row);
        kvb_live_project(weights->lm_head, row, c->vocab, hidden, logits);
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
