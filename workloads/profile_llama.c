/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Value profiles `llama` and `qwen`: rows with the shape that real models have.
 *
 *   K before RoPE   mu[h][c] + s[h][c] N(0,1): few fixed channels with a large mu in every token (KVQuant,
 *                   arXiv 2401.18079, fig. 2; KIVI, arXiv 2402.02750: "a few fixed channels whose magnitudes
 *                   are very large"); then rotated in pairs (i, i + dim/2), theta 10000. 2-5 % of the channels
 *                   have |mu| of 5-15 times the median s.
 *   qwen            as llama, but |mu| is 100-300 in the first and the last layer: the key projection of
 *                   Qwen2.5-7B has a bias of norm 605 in layer 0 and 921 in layer 27, about 22 elsewhere
 *                   (ggml-org/llama.cpp, issue 21385).
 *   V               g[t] N(0, 0.5), g log-normal(0.3): no outlier pattern (KIVI).
 *   sink            the token at position 0: small V (g 0.1-0.2), K along the mean query, so that it takes
 *                   30-90 % of the mass at any length (StreamingLLM, arXiv 2309.17453).
 *
 * How the sink is made: some pairs of channels are quiet in the keys of all other tokens. The mean query
 * after RoPE, and the sink's key, lie in these; a query's share of that direction grows with the
 * logarithm of its position, as the sum of all other weights does.
 * Queries are small in channels where keys have an offset, so that an offset moves a logit by about 0.3.
 */
#include "workloads/profile_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MAX_DIM      4096u
#define MIN_DIM      4u
#define ROPE_THETA   10000.0
#define QUIET_SPREAD 0.25 /* s of the sink's channels */
#define OFFSET_LOGIT 0.3  /* by how much one offset channel moves a logit */
#define SINK_LOGIT   0.6  /* log of the sink's weight over all others': 65 % of the mass */
#define SINK_NORM    0.8  /* of the norm of other keys; GPT-2 has 0.28-1.02 */

/* s is log-normal(0.5), in eight equally likely values: exp(0.5 x normal quantile of (2i + 1) / 16). */
static const float spreads[8] = {0.4644f, 0.6417f, 0.7832f, 0.9244f, 1.0818f, 1.2768f, 1.5583f, 2.1533f};

/* What all tokens of one (layer, KV head) share. */
typedef struct head_shape {
    float spread[MAX_DIM]; /* s */
    float offset[MAX_DIM]; /* mu */
    float sink[MAX_DIM];   /* unit vector: direction of the mean query */
    double sink_norm;      /* of the sink's key */
} head_shape;

static bool is_quiet(uint32_t dim, uint32_t c)
{
    uint32_t half = dim / 2, pair = c % half;
    return half < 8 ? pair == half - 1 : pair % 8 == 7;
}

/* Puts the offsets into channels that are not quiet. */
static void offsets_place(uint64_t key, uint32_t dim, double smallest, head_shape *shape)
{
    uint32_t least = (uint32_t)ceil(0.02 * dim), most = (uint32_t)(0.05 * dim);
    uint64_t bits = kvb_rng_bits(key, 0);
    uint32_t n = most > least ? least + (uint32_t)(bits % (most - least + 1)) : least;
    for (uint64_t i = 1; n > 0; i++) {
        bits = kvb_rng_bits(key, i);
        uint32_t c = (uint32_t)(bits >> 32) % dim;
        if (is_quiet(dim, c) || shape->offset[c] != 0)
            continue;
        double mu = smallest * (1 + 2 * kvb_rng_unit((uint32_t)bits));
        shape->offset[c] = (float)(bits >> 63 ? -mu : mu);
        n--;
    }
}

static void shape_make(uint64_t key, uint32_t dim, double smallest_offset, head_shape *shape)
{
    memset(shape->offset, 0, dim * sizeof *shape->offset);
    offsets_place(kvb_rng_key(key, 0), dim, smallest_offset, shape);
    uint64_t key_spread = kvb_rng_key(key, 1), bits = 0;
    uint32_t quiet = 0;
    double norm2 = 0;
    for (uint32_t c = 0; c < dim; c++) {
        if (c % 16 == 0) /* 4 bits a channel */
            bits = kvb_rng_bits(key_spread, c / 16);
        bool is_sink = is_quiet(dim, c);
        shape->spread[c] = is_sink ? (float)QUIET_SPREAD : spreads[bits & 7];
        shape->sink[c] = is_sink ? (bits & 8 ? -1.f : 1.f) : 0.f;
        quiet += is_sink;
        norm2 += (double)shape->spread[c] * shape->spread[c] + (double)shape->offset[c] * shape->offset[c];
        bits >>= 4;
    }
    for (uint32_t c = 0; c < dim; c++)
        shape->sink[c] /= sqrtf((float)quiet);
    shape->sink_norm = SINK_NORM * sqrt(norm2);
}

/* Rotation by position: cosine and sine of each pair. */
typedef struct rotation {
    double cosine[MAX_DIM / 2], sine[MAX_DIM / 2];
} rotation;

static void rotation_make(uint32_t dim, uint32_t pos, rotation *r)
{
    double frequency = 1, ratio = pow(ROPE_THETA, -2.0 / dim);
    for (uint32_t i = 0; i < dim / 2; i++) {
        sincos(pos * frequency, &r->sine[i], &r->cosine[i]);
        frequency *= ratio;
    }
}

static void rotate(const rotation *r, uint32_t dim, float *row)
{
    for (uint32_t i = 0, half = dim / 2; i < half; i++) {
        double a = row[i], b = row[i + half];
        row[i] = (float)(a * r->cosine[i] - b * r->sine[i]);
        row[i + half] = (float)(b * r->cosine[i] + a * r->sine[i]);
    }
}

static void key_row(const head_shape *shape, const rotation *r, uint64_t key, uint32_t dim, uint32_t pos, float *row)
{
    kvb_rng_normals(key, 1, dim, row);
    if (pos == 0) { /* the sink: not rotated; a little noise tells the sinks of different sequences apart */
        for (uint32_t c = 0; c < dim; c++)
            row[c] = (float)(shape->sink_norm * shape->sink[c]) + 0.1f * shape->spread[c] * row[c];
        return;
    }
    for (uint32_t c = 0; c < dim; c++)
        row[c] = shape->offset[c] + shape->spread[c] * row[c];
    rotate(r, dim, row);
}

static void query_row(const head_shape *shape, const rotation *r, uint64_t key, uint32_t dim, uint32_t pos,
                      double scale, float *row)
{
    uint32_t half = dim / 2;
    kvb_rng_normals(key, 1, dim, row);
    double variance = 0; /* of the logits of other keys */
    for (uint32_t i = 0; i < half; i++) {
        double mu = fmax(fabs(shape->offset[i]), fabs(shape->offset[i + half]));
        float factor = (float)(mu * scale > OFFSET_LOGIT ? OFFSET_LOGIT / (mu * scale) : 1);
        row[i] *= factor;
        row[i + half] *= factor;
        double s2 = 0.5 * ((double)shape->spread[i] * shape->spread[i] +
                           (double)shape->spread[i + half] * shape->spread[i + half]);
        variance += s2 * ((double)row[i] * row[i] + (double)row[i + half] * row[i + half]);
    }
    variance *= scale * scale;
    rotate(r, dim, row);
    double along = 0;
    for (uint32_t c = 0; c < dim; c++)
        along += (double)shape->sink[c] * row[c];
    /* pos other keys with log-normal weights: log of their sum is about log(pos) + variance / 2. */
    double want = (log(fmax(pos, 1)) + variance / 2 + SINK_LOGIT) / (shape->sink_norm * scale);
    for (uint32_t c = 0; c < dim; c++)
        row[c] += (float)(want - along) * shape->sink[c];
}

static void value_row(uint64_t key, uint32_t dim, uint32_t pos, float *row)
{
    uint32_t bits = (uint32_t)kvb_rng_bits(kvb_rng_key(key, 1), 0);
    double g = pos == 0 ? 0.1 + 0.1 * kvb_rng_unit(bits) : exp(0.3 * kvb_rng_normal(bits));
    kvb_rng_normals(key, 0.5 * g, dim, row);
}

static void shaped_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                        uint32_t pos, double smallest_offset, float *out)
{
    const kvb_group *group = kvb_model_group(model, layer);
    uint64_t key = kvb_token_key(seed, kind, layer, token);
    uint32_t heads = kvb_rows_heads(group, kind), dim = kvb_rows_dim(group, kind);
    if (kind == KVB_ROWS_V) {
        for (uint32_t h = 0; h < heads; h++)
            value_row(kvb_rng_key(key, h), dim, pos, out + (size_t)h * dim);
        return;
    }
    rotation r;
    head_shape shape;
    rotation_make(dim, pos, &r);
    uint32_t each = heads / group->kv_heads; /* rows that share a KV head */
    for (uint32_t h = 0; h < heads; h++) {
        float *row = out + (size_t)h * dim;
        if (h % each == 0)
            shape_make(kvb_head_key(seed, layer, h / each), dim, smallest_offset, &shape);
        if (kind == KVB_ROWS_K)
            key_row(&shape, &r, kvb_rng_key(key, h), dim, pos, row);
        else
            query_row(&shape, &r, kvb_rng_key(key, h), dim, pos, group->scale, row);
    }
}

static void llama_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                       uint32_t pos, float *out)
{
    shaped_rows(model, seed, kind, layer, token, pos, 5, out);
}

static void qwen_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                      uint32_t pos, float *out)
{
    bool outermost = layer == 0 || layer == model->n_layers - 1;
    shaped_rows(model, seed, kind, layer, token, pos, outermost ? 100 : 5, out);
}

static bool rope_supports(const kvb_model *model, const kvb_group *group, char *why, size_t why_bytes)
{
    (void)model;
    if (group->k_dim >= MIN_DIM && group->k_dim <= MAX_DIM && group->k_dim % 2 == 0)
        return true;
    kvb_why_set(-ENOTSUP, why, why_bytes, "profiles with RoPE need an even k_dim of %u .. %u, a layer has %u", MIN_DIM,
                MAX_DIM, group->k_dim);
    return false;
}

const kvb_profile kvb_profile_llama = {
    .name = "llama",
    .summary = "K with 2-5 % fixed channels at 5-15x before RoPE, sink at position 0 (KVQuant, KIVI, StreamingLLM)",
    .rows = llama_rows,
    .supports = rope_supports,
};

const kvb_profile kvb_profile_qwen = {
    .name = "qwen",
    .summary = "as llama, with K offsets of 100-300 in the first and last layer (Qwen2.5's key bias)",
    .rows = qwen_rows,
    .supports = rope_supports,
};
