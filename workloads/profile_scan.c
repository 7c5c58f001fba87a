/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded values of layers that scan, and the ranges that recorded ones must keep. They are drawn as the papers
 * initialise them: Delta between 0.001 and 0.1, A = -1 .. -d_state (mamba1) or between -1 and -16 (mamba2, and the
 * gates of the delta rule); lightning's decays are the slopes of ALiBi (arXiv 2108.12409). So some heads forget within
 * ten tokens and some remember thousands.
 */
#include "kernels/scan.h"
#include "workloads/profile_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <math.h>

#define DELTA_LEAST 0.001
#define DELTA_MOST  0.1
#define A_MOST      16.0
#define CONSTANT    8u /* among kinds of rows: what a layer has of its own */

/* Log-uniform between the two. */
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

/* A range of a recorded tensor; n: how many numbers. */
typedef struct range {
    const char *name;
    const float *at;
    size_t n, token_floats; /* 0: the layer's own */
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
