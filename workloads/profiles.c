/* SPDX-License-Identifier: Apache-2.0 */
/* Value profiles, and rows of normal numbers. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/scan.h"
#include "workloads/array.h"
#include "workloads/files.h"
#include "workloads/rng.h"
#include "workloads/values.h"

#define MAX_DIM 4096u /* of rows with RoPE */

/* The numbers that all tokens share in one (layer, KV head). */
typedef struct head_shape {
    float spread[MAX_DIM]; /* s */
    float offset[MAX_DIM]; /* mu */
    float sink[MAX_DIM];   /* unit vector: direction of the mean query */
    double sink_norm;      /* of the sink's key */
} head_shape;

/* Rotation by position: cosine and sine of each pair. */
typedef struct rotation {
    double cosine[MAX_DIM / 2], sine[MAX_DIM / 2];
} rotation;

/* The row that a profile makes: row h of a token's rows of one kind. A token's rows are made in their order. */
struct kvb_profile_row {
    const kvb_profile *profile;
    const kvb_model *model;
    const kvb_group *group;
    uint64_t seed, token;
    kvb_rows kind;
    uint32_t layer, pos, dim, h;
    uint32_t kv_head;  /* to which the row belongs */
    uint64_t key;      /* of the row's own numbers */
    uint64_t head_key; /* of the numbers that all tokens share in the KV head */
    head_shape shape;  /* profiles with RoPE keep these two for the token's next rows */
    rotation rotation;
};

KVB_WIDE static void middles_make(const uint32_t *restrict bits, double factor, uint32_t n, float *restrict to)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = (float)(factor * kvb_rng_middle(bits[i]));
}

KVB_WIDE static void tails_make(const uint32_t *restrict bits, double factor, uint32_t n, double *restrict far)
{
    for (uint32_t i = 0; i < n; i++)
        far[i] = factor * kvb_rng_signed(bits[i], kvb_rng_tail(far[i]));
}

/* The bits of n numbers of a key, from number 2 * first on: one draw gives two numbers. */
KVB_WIDE static void bits_make(uint64_t key, uint64_t first, uint32_t n, uint32_t *bits)
{
    for (uint32_t i = 0; i < (n + 1) / 2; i++) {
        const uint64_t both = kvb_rng_bits(key, first + i);
        bits[2 * i] = (uint32_t)both;
        bits[2 * i + 1] = (uint32_t)(both >> 32);
    }
}

void kvb_rng_normals(uint64_t key, double factor, uint32_t n, float *row)
{
    enum { LOT = 64 };
    uint32_t bits[LOT], others[LOT], other_bits[LOT];
    double tails[LOT];
    for (uint32_t first = 0; first < n; first += LOT) {
        const uint32_t lot = n - first < LOT ? n - first : LOT;
        float *to = row + first;
        uint32_t n_others = 0;
        bits_make(key, first / 2, lot, bits);
        middles_make(bits, factor, lot, to);
        for (uint32_t c = 0; c < lot; c++) { /* without branches, which no CPU could predict */
            others[n_others] = c;
            n_others += !kvb_rng_is_middle(bits[c]);
        }
        for (uint32_t i = 0; i < n_others; i++)
            tails[i] = kvb_rng_far(other_bits[i] = bits[others[i]]);
        tails_make(other_bits, factor, n_others, tails);
        for (uint32_t i = 0; i < n_others; i++)
            to[others[i]] = (float)tails[i];
    }
}

/*
 * Value profiles at the limits of numbers.
 *
 *   large-logits   A head's keys have a shared part, with the norm of a row of N(0,1), and their own N(0,1) at right
 *                  angles to it. A query has so much of the shared part that its logits are 100 to 500, plus N(0,1):
 *                  logits differ by about 1.
 *   far-below      The same with logits of -80,000 to -160,000.
 *   equal-keys     All keys of a head are one row of N(0,1): every cell that a query sees has the same logit.
 *   giant-channel  N(0,1), except one channel of K and one of V, the same in all rows of a head, which are 300 to 1,000
 *                  times as large. q is as many times smaller in K's channel, so that logits do not change.
 *   subnormal      N(0,1) times 2^-130, subnormal in f32, or 2^-20, subnormal in f16, by turns of the heads.
 */

/* N(0, factor^2). */
static void normal_row(const kvb_profile_row *r, double factor, float *out)
{
    kvb_rng_normals(r->key, factor, r->dim, out);
}

/* Channel c of the part that all n-channel keys of a head share; its norm is sqrt(n), as of a row of N(0,1). */
static double shared_part(uint64_t head_key, uint32_t c)
{
    return kvb_rng_bits(head_key, c / 64) >> c % 64 & 1 ? 1 : -1;
}

/* The product of a row and the shared part. */
static double along_shared(uint64_t head_key, uint32_t dim, const float *row)
{
    double along = 0;
    for (uint32_t c = 0; c < dim; c++)
        along += shared_part(head_key, c) * (double)row[c];
    return along;
}

/* A row with logits between the profile's numbers. */
static void offset_row(kvb_profile_row *r, float *out)
{
    const double least = r->profile->least, most = r->profile->most;
    normal_row(r, 1, out);
    if (r->kind == KVB_ROWS_V)
        return;
    const double unit = kvb_rng_unit((uint32_t)kvb_rng_bits(kvb_rng_key(r->key, 1), 0));
    /* how much of the shared part the row gets, in units of that part */
    const double want = r->kind == KVB_ROWS_K ? 1 : (least + (most - least) * unit) / (r->group->scale * r->dim);
    const double add = want - along_shared(r->head_key, r->dim, out) / r->dim;
    for (uint32_t c = 0; c < r->dim; c++)
        out[c] = (float)((double)out[c] + add * shared_part(r->head_key, c));
}

static void equal_keys_row(kvb_profile_row *r, float *out)
{
    if (r->kind == KVB_ROWS_K)
        r->key = kvb_rng_key(kvb_token_key(r->seed, r->kind, r->layer, 0), r->h);
    normal_row(r, 1, out);
}

static void giant_channel_row(kvb_profile_row *r, float *out)
{
    const uint64_t bits = kvb_rng_bits(r->head_key, 0);
    const float factor = (float)(300 + 700 * kvb_rng_unit((uint32_t)bits));
    normal_row(r, 1, out);
    out[(bits >> 32) % r->dim] *= r->kind == KVB_ROWS_Q ? 1 / factor : factor;
}

static void subnormal_row(kvb_profile_row *r, float *out)
{
    normal_row(r, (r->layer + r->kv_head) % 2 ? 0x1p-20 : 0x1p-130, out);
}

/*
 * Value profiles `llama` and `qwen`: rows with the shape of real models.
 *
 *   K before RoPE   mu[h][c] + s[h][c] N(0,1): a few fixed channels with a large mu in every token (KVQuant,
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
 * The sink: some pairs of channels are quiet in the keys of all other tokens. The mean query after RoPE, and the sink's
 * key, lie in these pairs. A query's share of that direction grows with the logarithm of its position, as the sum of
 * all other weights does.
 *
 * Queries are small in channels where keys have an offset, so that an offset moves a logit by about 0.3.
 */

#define MIN_DIM      4u
#define ROPE_THETA   10000.0
#define QUIET_SPREAD 0.25 /* s of the sink's channels */
#define OFFSET_LOGIT 0.3  /* how far one offset channel moves a logit */
#define SINK_LOGIT   0.6  /* log of the sink's weight over all others': 65 % of the mass */
#define SINK_NORM    0.8  /* of the norm of other keys; GPT-2 has 0.28-1.02 */

/* s is log-normal(0.5), in eight equally likely values: exp(0.5 x normal quantile of (2i + 1) / 16). */
static const float spreads[8] = {0.4644f, 0.6417f, 0.7832f, 0.9244f, 1.0818f, 1.2768f, 1.5583f, 2.1533f};

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

static void key_row(const kvb_profile_row *r, float *row)
{
    const head_shape *shape = &r->shape;
    normal_row(r, 1, row);
    if (r->pos == 0) { /* the sink: not rotated; a little noise distinguishes the sinks of different sequences */
        for (uint32_t c = 0; c < r->dim; c++)
            row[c] = (float)(shape->sink_norm * shape->sink[c]) + 0.1f * shape->spread[c] * row[c];
        return;
    }
    for (uint32_t c = 0; c < r->dim; c++)
        row[c] = shape->offset[c] + shape->spread[c] * row[c];
    rotate(&r->rotation, r->dim, row);
}

static void query_row(const kvb_profile_row *r, float *row)
{
    const head_shape *shape = &r->shape;
    const double scale = r->group->scale;
    uint32_t half = r->dim / 2;
    normal_row(r, 1, row);
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
    rotate(&r->rotation, r->dim, row);
    double along = 0;
    for (uint32_t c = 0; c < r->dim; c++)
        along += (double)shape->sink[c] * row[c];
    /* pos other keys with log-normal weights: log of their sum is about log(pos) + variance / 2. */
    double want = (log(fmax(r->pos, 1)) + variance / 2 + SINK_LOGIT) / (shape->sink_norm * scale);
    for (uint32_t c = 0; c < r->dim; c++)
        row[c] += (float)(want - along) * shape->sink[c];
}

/* The smallest offset of K is the profile's `most` in the first and the last layer, and its `least` in all others. */
static void shaped_row(kvb_profile_row *r, float *out)
{
    const bool outermost = r->layer == 0 || r->layer == r->model->n_layers - 1;
    const double smallest_offset = outermost ? r->profile->most : r->profile->least;
    if (r->kind == KVB_ROWS_V) {
        const uint32_t bits = (uint32_t)kvb_rng_bits(kvb_rng_key(r->key, 1), 0);
        normal_row(r, 0.5 * (r->pos == 0 ? 0.1 + 0.1 * kvb_rng_unit(bits) : exp(0.3 * kvb_rng_normal(bits))), out);
        return;
    }
    if (r->h == 0)
        rotation_make(r->dim, r->pos, &r->rotation);
    if (r->kind == KVB_ROWS_K || r->h % (r->group->heads / r->group->kv_heads) == 0) /* the first of the KV head */
        shape_make(r->head_key, r->dim, smallest_offset, &r->shape);
    r->kind == KVB_ROWS_K ? key_row(r, out) : query_row(r, out);
}

/*
 * Value profiles `peaked` and `needle`: one key takes more than 99 % of the mass, whatever else a query sees, up to
 * 131072 cells. A key is a direction of norm sqrt(k_dim). A query has the direction of one key, so that key's logit is
 * L, and the others are L cos(angle between the keys).
 *
 * peaked: the token's own key. needle: each cell in turn, so that a mistake in any one cell decides some query. Of the
 * query heads of a KV head one, in turn, looks at its own token; the others look at positions spread evenly over all
 * that the query may see. A query looks at a position, since it does not know the tokens of its sequence: keys of one
 * position have nearly one direction.
 */

/* In fewer dims 131072 directions lie too close together. */
#define PEAKED_MIN_DIM 16u

/*
 * The own logit L. Of N = 131072 random directions in d dimensions the closest pair has a cosine above c with a
 * probability of at most N^2 (1 - c^2)^((d-1)/2) / 4; c here makes that 5e-4. All other keys together then weigh at
 * most e^-17 N, with the worst angles, and in practice far less: (1 - c) L = 17.
 */
static double own_logit(uint32_t dim)
{
    double c2 = 1 - pow(1.16e-13, 2.0 / (dim - 1));
    return 17 / (1 - sqrt(c2));
}

/* Scales a row to the norm sqrt(dim); a query also by the factor that makes its logit L, with a sharpness of its own. */
static void row_scale(const kvb_profile_row *r, float *row)
{
    double norm2 = 0;
    for (uint32_t c = 0; c < r->dim; c++)
        norm2 += (double)row[c] * row[c];
    double factor = sqrt(r->dim / norm2);
    if (r->kind == KVB_ROWS_Q)
        factor *= own_logit(r->dim) / (r->group->scale * r->dim) *
                  (1 + 0.5 * kvb_rng_unit((uint32_t)kvb_rng_bits(r->key, 0)));
    for (uint32_t c = 0; c < r->dim; c++)
        row[c] = (float)(row[c] * factor);
}

static void peaked_row(kvb_profile_row *r, float *row)
{
    if (r->kind == KVB_ROWS_V) {
        normal_row(r, 1, row);
        return;
    }
    kvb_rng_normals(kvb_rng_key(kvb_token_key(r->seed, KVB_ROWS_K, r->layer, r->token), r->kv_head), 1, r->dim, row);
    row_scale(r, row);
}

#define NEEDLE_OWN                                                                                                     \
    0.0625f /* share of a key's direction that is its token's own: the same position in another branch differs */

/* The position that a query head looks at: its own, or the next of a Weyl sequence (multiples of the golden ratio,
 * modulo 1), which is spread evenly over the positions that the query sees in the group. */
static uint32_t needle_target(const kvb_profile_row *r)
{
    const kvb_group *g = r->group;
    uint32_t each = g->heads / g->kv_heads, pos = r->pos;
    if (each > 1 ? r->h % each == pos % each : pos % 4 == 0)
        return pos;
    uint32_t first = g->chunk ? pos / g->chunk * g->chunk : g->window && pos >= g->window ? pos + 1 - g->window : 0;
    uint32_t sinks = g->window ? g->sinks < first ? g->sinks : first : 0;
    double start = kvb_rng_unit((uint32_t)kvb_rng_bits(kvb_head_key(r->seed, r->layer, r->h), 1)), whole;
    double part = modf((start + 1) + ((double)pos * g->heads + r->h) * 0.6180339887498949, &whole);
    uint32_t place = (uint32_t)(part * (pos - first + 1 + sinks));
    return place < sinks ? place : first + place - sinks;
}

static void needle_row(kvb_profile_row *r, float *row)
{
    float mine[KVB_MODEL_WIDTH];
    normal_row(r, 1, mine);
    if (r->kind == KVB_ROWS_V) {
        memcpy(row, mine, r->dim * sizeof *row);
        return;
    }
    uint32_t at = r->kind == KVB_ROWS_Q ? needle_target(r) : r->pos;
    kvb_rng_normals(kvb_rng_key(r->head_key, (uint64_t)at + 1), 1, r->dim, row);
    for (uint32_t c = 0; c < r->dim && r->kind == KVB_ROWS_K; c++)
        row[c] += NEEDLE_OWN * mine[c];
    row_scale(r, row);
}

/*
 * Seeded values of layers that scan, and the ranges of recorded ones. Seeded values are drawn as in the papers'
 * initialisation: Delta between 0.001 and 0.1, A = -1 .. -d_state (mamba1) or between -1 and -16 (mamba2, and the gates
 * of the delta rule); lightning's decays are the slopes of ALiBi (arXiv 2108.12409). So some heads forget within ten
 * tokens and others remember thousands.
 */

#define DELTA_LEAST 0.001
#define DELTA_MOST  0.1
#define A_MOST      16.0
#define CONSTANT    8u /* in place of a kind of rows: the constants of a layer */

/* Log-uniform between DELTA_LEAST and DELTA_MOST. */
static double delta_of(uint32_t bits)
{
    return DELTA_LEAST * pow(DELTA_MOST / DELTA_LEAST, kvb_rng_unit(bits));
}

static double uniform(uint32_t bits, double least, double most)
{
    return least + (most - least) * kvb_rng_unit(bits);
}

static void unit_make(float *row, uint32_t n)
{
    double norm2 = 0;
    for (uint32_t i = 0; i < n; i++)
        norm2 += (double)row[i] * (double)row[i];
    for (uint32_t i = 0; i < n; i++)
        row[i] = (float)((double)row[i] / sqrt(norm2));
}

void kvb_scan_rows_make(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                        float *out)
{
    const kvb_group *g = kvb_model_group(model, layer);
    const uint64_t key = kvb_token_key(seed, kind, layer, token);
    const uint32_t heads = kvb_rows_heads(g, kind), dim = kvb_rows_dim(g, kind);
    const bool delta = g->scan.kind == KVB_SCAN_DELTA, keys = kind == KVB_ROWS_Q || kind == KVB_ROWS_K;
    for (uint32_t h = 0; h < heads; h++, out += dim) {
        const uint64_t own = kvb_rng_key(key, h);
        if (kind != KVB_ROWS_GATE && kind != KVB_ROWS_BETA) {
            kvb_rng_normals(own, 1, dim, out);
            if (keys && delta)
                unit_make(out, dim);
            continue;
        }
        const double a = delta ? uniform((uint32_t)kvb_rng_bits(kvb_head_key(seed, layer, h), 0), 1, A_MOST) : 0;
        for (uint32_t c = 0; c < dim; c++) {
            const uint32_t bits = (uint32_t)kvb_rng_bits(own, c);
            out[c] = (float)(kind == KVB_ROWS_BETA ? 1 / (1 + exp(-kvb_rng_normal(bits)))
                             : delta               ? -a * delta_of(bits)
                                                   : delta_of(bits));
        }
    }
}

void kvb_scan_constant_make(const kvb_model *model, uint64_t seed, kvb_constant constant, uint32_t layer, float *out)
{
    const kvb_group_scan *s = &kvb_model_group(model, layer)->scan;
    const uint64_t key = kvb_rng_key(seed, (uint64_t)(CONSTANT + constant) << 32 | layer);
    uint64_t shape[3];
    kvb_constant_shape(kvb_model_group(model, layer), constant, shape);
    const uint32_t n = (uint32_t)(shape[0] * shape[1] * shape[2]);
    if (constant != KVB_CONSTANT_A) {
        kvb_rng_normals(key, constant == KVB_CONSTANT_TAPS ? 1 / sqrt(s->conv_width) : 0.1, n, out);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        out[i] = (float)(s->kind == KVB_SCAN_MAMBA1   ? -1.0 - i / s->d_v % s->d_k
                         : s->kind == KVB_SCAN_MAMBA2 ? -uniform((uint32_t)kvb_rng_bits(key, i), 1, A_MOST)
                                                      : -exp2(-8.0 * (i + 1) / s->heads));
}

/* ---- recorded values ------------------------------------------------------------------------------------- */

/* The range of a recorded tensor of n numbers. */
typedef struct range {
    const char *name;
    const float *at;
    size_t n, token_floats; /* token_floats 0: a constant of the layer */
    float least, most;
    const char *wanted;
} range;

static int range_check(const range *r, uint32_t layer, const char *path, char *why, size_t why_bytes)
{
    for (size_t i = 0; r->at && i < r->n; i++) {
        char token[40] = "";
        if (r->at[i] >= r->least && r->at[i] <= r->most)
            continue;
        if (r->token_floats)
            snprintf(token, sizeof token, "token %zu, ", i / r->token_floats);
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: %s.%u: %snumber %zu: %g: expected %s", path, r->name, layer,
                           token, r->token_floats ? i % r->token_floats : i, (double)r->at[i], r->wanted);
    }
    return 0;
}

int kvb_scan_values_check(const kvb_values *v, uint32_t layer, const char *path, char *why, size_t why_bytes)
{
    const kvb_group *g = kvb_model_group(v->model, layer);
    const bool delta = g->scan.kind == KVB_SCAN_DELTA;
    const size_t gates = kvb_values_floats(g, KVB_ROWS_GATE), betas = kvb_values_floats(g, KVB_ROWS_BETA);
    uint64_t shape[3];
    const bool has_a = kvb_constant_shape(g, KVB_CONSTANT_A, shape) > 0;
    const range ranges[] = {
        {"gate", kvb_values_rows(v, KVB_ROWS_GATE, layer, 0), v->tokens * gates, gates, delta ? -INFINITY : 0,
         delta ? 0 : INFINITY, delta ? "0 at most, as no decay is above 1" : "0 at least, as no decay is above 1"},
        {"beta", kvb_values_rows(v, KVB_ROWS_BETA, layer, 0), v->tokens * betas, betas, 0, 2, "0 .. 2"},
        {"a", has_a ? v->constant[KVB_CONSTANT_A][layer] : NULL, has_a ? shape[0] * shape[1] * shape[2] : 0, 0,
         -INFINITY, 0, "0 at most, as no decay is above 1"},
    };
    int err = 0;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && !err; i++)
        err = range_check(&ranges[i], layer, path, why, why_bytes);
    return err;
}

/* ---- gaussian, flat ------------------------------------------------------------------------------------ */

/* K is N(0, least^2). */
static void scaled_row(kvb_profile_row *r, float *out)
{
    normal_row(r, r->kind == KVB_ROWS_K ? r->profile->least : 1, out);
}

/* K of flat: so small that weights are equal within a percent, but not zero in 16-bit formats. */
#define FLAT_K 0x1p-12

/* ---- grid ---------------------------------------------------------------------------------------------- */

#define GRID_STEP    0x1p-6f
#define GRID_LARGEST 64000u /* steps: 1000 */
#define GRID_GROUP                                                                                                     \
    16u /* channels, the first of which has the row's largest magnitude; no format's groups are smaller */
#define GRID_LOGIT 2.0 /* the standard deviation of a logit, among the rows with the largest K */

/*
 * A row's largest magnitude, in steps of the row (a power of two times GRID_STEP): twice the largest code of a format.
 * Then scales are powers of two, or nearly, and odd multiples of the step lie half-way between two codes.
 */
static const uint32_t grid_tops[] = {
    GRID_LARGEST, 2 * 127, /* int8, q8_0 */
    2 * 8,                 /* q4_0 */
    2 * 6,                 /* e2m1 */
    2 * 448,               /* e4m3 */
};
enum { GRID_TOPS = sizeof grid_tops / sizeof *grid_tops };

/* Multiples of the row's step, each eighth element a zero of either sign. */
static void grid_row(kvb_profile_row *r, float *row)
{
    if (r->kind == KVB_ROWS_Q) {
        const double largest = GRID_STEP * GRID_LARGEST / sqrt(3); /* root mean square of a uniform row */
        normal_row(r, GRID_LOGIT / (r->group->scale * sqrt(r->dim) * largest), row);
        return;
    }
    const uint64_t kind = kvb_rng_bits(r->key, 0);
    const uint32_t top = grid_tops[kind % GRID_TOPS];
    uint32_t doublings = 0;
    while (top << (doublings + 1) <= GRID_LARGEST)
        doublings++;
    const float step = GRID_STEP * (float)(1u << (kind >> 32) % (doublings + 1));
    for (uint32_t c = 0; c < r->dim; c++) {
        const uint64_t bits = kvb_rng_bits(r->key, c + 1);
        uint32_t steps = (uint32_t)((bits >> 32) % (top + 1));
        if (c % GRID_GROUP == 0)
            steps = top;
        else if (bits >> 1 & 7)
            steps = steps ? steps : 1;
        else
            steps = 0;
        row[c] = (float)steps * (bits & 1 ? -step : step); /* 0 * -step is -0 */
    }
}

/* ---- tags ---------------------------------------------------------------------------------------------- */

#define TAG_SYMBOLS 16u /* of 2 bits each; in rows of twice as many channels or more, 32 of 1 bit */

/* Bits that hold numbers 0 .. n-1. */
static uint32_t bits_of(uint32_t n)
{
    uint32_t bits = 0;
    while (bits < 31 && n > 1u << bits)
        bits++;
    return bits;
}

kvb_tag kvb_tag_of(const kvb_model *model)
{
    uint32_t heads = 1;
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (!kvb_group_scans(&model->groups[g]) && model->groups[g].kv_heads > heads)
            heads = model->groups[g].kv_heads;
    const uint32_t layer_bits = bits_of(model->n_layers + 1), beside = 1 + layer_bits + bits_of(heads);
    return (kvb_tag){beside < 32 ? 32 - beside : 0, layer_bits};
}

uint32_t kvb_tag_code(kvb_tag tag, uint64_t token, uint32_t layer, uint32_t kv_head, bool is_v)
{
    return (uint32_t)token | layer << tag.token_bits | kv_head << (tag.token_bits + tag.layer_bits) |
           (uint32_t)is_v << 31;
}

static void tags_row(kvb_profile_row *r, float *row)
{
    const uint32_t code = kvb_tag_code(kvb_tag_of(r->model), r->token, r->layer, r->h, r->kind == KVB_ROWS_V);
    if (r->kind == KVB_ROWS_Q)
        normal_row(r, 1, row);
    for (uint32_t c = 0; c < r->dim && r->kind != KVB_ROWS_Q; c++)
        row[c] = r->dim < 2 * TAG_SYMBOLS ? (float)(code >> 2 * (c % TAG_SYMBOLS) & 3) * 2 - 3
                                          : (float)(code >> c % (2 * TAG_SYMBOLS) & 1) * 2 - 1;
}

void kvb_profile_rows(const kvb_profile *profile, const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer,
                      uint64_t token, uint32_t pos, float *out)
{
    const kvb_group *g = kvb_model_group(model, layer);
    const uint64_t key = kvb_token_key(seed, kind, layer, token);
    const uint32_t heads = kvb_rows_heads(g, kind), each = heads / g->kv_heads;
    kvb_profile_row r; /* not set as a whole: it is large */
    r.profile = profile;
    r.model = model;
    r.group = g;
    r.seed = seed;
    r.token = token;
    r.kind = kind;
    r.layer = layer;
    r.pos = pos;
    r.dim = kvb_rows_dim(g, kind);
    for (r.h = 0; r.h < heads; r.h++, out += r.dim) {
        r.kv_head = r.h / each;
        r.key = kvb_rng_key(key, r.h);
        r.head_key = kvb_head_key(seed, layer, r.kv_head);
        profile->row(&r, out);
    }
}

/* ---- the list ------------------------------------------------------------------------------------------ */

const kvb_profile kvb_profiles[] = {
    {"gaussian", scaled_row, 1, 1, KVB_PROFILE_ANY, "q, K and V are N(0,1): logits are N(0,1) with the default scale"},
    {"llama", shaped_row, 5, 5, KVB_PROFILE_ROPE,
     "K with 2-5 % fixed channels at 5-15x before RoPE, sink at position 0 (KVQuant, KIVI, StreamingLLM)"},
    {"qwen", shaped_row, 5, 100, KVB_PROFILE_ROPE,
     "as llama, with K offsets of 100-300 in the first and last layer (Qwen2.5's key bias)"},
    {"peaked", peaked_row, 0, 0, KVB_PROFILE_APART,
     "each query's own key takes more than 99 % of the mass, up to 131072 visible cells"},
    {"needle", needle_row, 0, 0, KVB_PROFILE_APART,
     "each cell in turn takes more than 99 % of the mass of some query: a mistake in any one decides that query"},
    {"flat", scaled_row, FLAT_K, FLAT_K, KVB_PROFILE_ANY,
     "K is tiny: every visible cell has the same weight; sums over cells are as long as they get"},
    {"grid", grid_row, 0, 0, KVB_PROFILE_ANY,
     "K and V are multiples of 1/64 up to 1000, which tie and saturate as codes, and zeros of both signs"},
    {"tags", tags_row, 0, 0, KVB_PROFILE_TAGS, "every K and V row spells out its token, layer and head, bit by bit"},
    {"large-logits", offset_row, 100, 500, KVB_PROFILE_ANY,
     "logits are some hundred and differ by about 1: exp() of one overflows, their softmax is ordinary"},
    {"far-below", offset_row, -160000, -80000, KVB_PROFILE_ANY,
     "all logits are below -80,000 and differ by about 1: finite stand-ins for minus infinity win"},
    {"equal-keys", equal_keys_row, 0, 0, KVB_PROFILE_ANY,
     "all keys of a head are the same row: every visible cell ties"},
    {"giant-channel", giant_channel_row, 0, 0, KVB_PROFILE_ANY,
     "N(0,1) with one channel of K and of V 300 to 1,000 times as large: a step for a whole row loses the rest"},
    {"subnormal", subnormal_row, 0, 0, KVB_PROFILE_ANY,
     "q, K and V are subnormal, in f32 or in f16 by turns of the heads"},
    {NULL, NULL, 0, 0, KVB_PROFILE_ANY, NULL},
};

int kvb_profile_supports(const kvb_profile *profile, const kvb_model *model, char *why, size_t why_bytes)
{
    for (const kvb_group *g = model->groups; g < model->groups + model->n_groups; g++) {
        if (kvb_group_scans(g))
            continue;
        if (profile->needs == KVB_PROFILE_ROPE && (g->k_dim < MIN_DIM || g->k_dim > MAX_DIM || g->k_dim % 2))
            return kvb_why_set(-ENOTSUP, why, why_bytes,
                               "profiles with RoPE need an even k_dim of %u .. %u, a layer has %u", MIN_DIM, MAX_DIM,
                               g->k_dim);
        if (profile->needs == KVB_PROFILE_APART && g->k_dim < PEAKED_MIN_DIM)
            return kvb_why_set(-ENOTSUP, why, why_bytes, "profile %s needs a k_dim of at least %u, a layer has %u",
                               profile->name, PEAKED_MIN_DIM, g->k_dim);
        const bool cut = g->latent && g->v_dim < 2 * TAG_SYMBOLS && g->k_dim >= 2 * TAG_SYMBOLS; /* V, a part of K */
        if (profile->needs == KVB_PROFILE_TAGS &&
            (cut || g->k_dim < TAG_SYMBOLS || g->v_dim < TAG_SYMBOLS || !kvb_tag_of(model).token_bits))
            return kvb_why_set(
                -ENOTSUP, why, why_bytes,
                "profile tags needs k_dim and v_dim of at least %u, and layers and heads that leave bits for tokens",
                TAG_SYMBOLS);
    }
    return 0;
}

const kvb_profile *kvb_profile_find(const char *name)
{
    const kvb_profile *p = kvb_profiles;
    while (p->name && strcmp(p->name, name) != 0)
        p++;
    return p->name ? p : NULL;
}

int kvb_profile_choose(const char *name, const kvb_profile **profile, char *why, size_t why_bytes)
{
    *profile = kvb_profile_find(name);
    if (*profile)
        return 0;
    char list[160] = "";
    for (const kvb_profile *p = kvb_profiles; p->name; p++)
        kvb_list_add(list, sizeof list, ", ", "%s", p->name);
    return kvb_why_set(-EINVAL, why, why_bytes, "unknown profile \"%.40s\", known: %s", name, list);
}
