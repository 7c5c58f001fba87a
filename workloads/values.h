/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a workload: q, K and V rows of every token and layer, as they enter the cache (K and q
 * after RoPE). Either recorded tensors, or a seeded, counter-based generator keyed by (seed, token
 * identity, layer, head, channel): a fork, a replay and a recomputation see the same numbers whatever
 * the order, and any row can be made alone.
 *
 * Recorded: for each layer L three F32 tensors q.L [queries and fills: tokens][heads][k_dim],
 * k.L [tokens][kv_heads][k_dim], v.L [tokens][kv_heads][v_dim]; row = token identity. A layer with latent rows has no
 * V.
 *
 * A layer that scans has what kernels/scan.h names, by its kind: q.L and k.L [tokens][groups][k_dim], v.L
 * [tokens][heads][v_dim], gate.L (mamba1: [tokens][heads][v_dim], else [tokens][heads][1]), beta.L [tokens][heads][1];
 * with a convolution x.L [tokens][1][channels], its inputs; and of the layer itself a.L (mamba1: [heads][k_dim][v_dim],
 * else [heads]), taps.L [width][channels], bias.L [channels]. What follows a convolution is recorded, or seeded, by
 * itself: so each call is judged by itself. Values are in the ranges that scan.h gives, so that no decay is above 1.
 */
#ifndef KVB_VALUES_H
#define KVB_VALUES_H

#include "workloads/rng.h"
#include "workloads/trace.h"

typedef enum kvb_rows {
    KVB_ROWS_Q,
    KVB_ROWS_K,
    KVB_ROWS_V,
    KVB_ROWS_ATTENDED, /* layers that attend have those above; the others: of layers that scan alone */
    KVB_ROWS_GATE = KVB_ROWS_ATTENDED,
    KVB_ROWS_BETA,
    KVB_ROWS_X,
    KVB_ROWS_KINDS
} kvb_rows;

/* Of a layer that scans, the same for all its tokens. */
typedef enum kvb_constant { KVB_CONSTANT_A, KVB_CONSTANT_TAPS, KVB_CONSTANT_BIAS, KVB_CONSTANTS } kvb_constant;

typedef struct kvb_profile {
    const char *name;    /* gaussian, llama, … */
    const char *summary; /* one line, with the source of its shape */
    /* One token's rows [heads of that kind][dim]; pos is the token's position. */
    void (*rows)(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token, uint32_t pos,
                 float *out);
    /* Can it do this group of the model? NULL: always. */
    bool (*supports)(const kvb_model *model, const kvb_group *group, char *why, size_t why_bytes);
} kvb_profile;

extern const kvb_profile *const kvb_profiles[];        /* ends with NULL */
const kvb_profile *kvb_profile_find(const char *name); /* or NULL */

/*
 * Profile `tags`: every K and V row holds one 32-bit code, low bits first, repeated along the row to its end. Rows of
 * 32 channels or more give a channel to each bit, -1 or 1, which formats down to 2 bits keep apart; shorter
 * ones to each symbol s of 2 bits, 2s - 3. Needs k_dim, v_dim >= 16, and bits that the model's layers and heads leave
 * for the tokens.
 */

/* Bits of a code, from the low end: token, layer, KV head, and one that says that the row is of V. Layers and heads
 * have as many as the model needs, tokens all others: with 1 layer and 1 head 2^30, with 48 and 8 2^22. As no layer's
 * field is all ones, no code is (kernels/witness.h, KVB_WITNESS_TORN). */
typedef struct kvb_tag {
    uint32_t token_bits, layer_bits;
} kvb_tag;
kvb_tag kvb_tag_of(const kvb_model *model);
uint32_t kvb_tag_code(kvb_tag tag, uint64_t token, uint32_t layer, uint32_t kv_head, bool is_v);

/* The token of a code. */
static inline uint32_t kvb_tag_token(kvb_tag tag, uint32_t code)
{
    return code & ((1u << tag.token_bits) - 1);
}

/* All rows of a trace, materialised: one block for each kind, [layers][tokens][heads][dim] f32. */
typedef struct kvb_values {
    uint64_t tokens;
    const kvb_model *model;       /* the trace's */
    const char *profile;          /* "recorded" or the profile's name */
    float *block[KVB_ROWS_KINDS]; /* zero pages until written */
    size_t block_bytes[KVB_ROWS_KINDS];
    size_t *layer_at[KVB_ROWS_KINDS]; /* [layers]: floats of a block before that layer's rows */
    float **constant[KVB_CONSTANTS];  /* [layers]; NULL: it has none */
} kvb_values;

/*
 * Make all rows of a trace. profile NULL: what the header says (recorded tensors or its profile);
 * otherwise that profile with the header's seed (or `seed` when not 0). The trace outlives the values. q rows of fill
 * tokens are left untouched (zero pages). parallel: runs part(ctx, i, n) for i < n, at once or in turn; NULL: in turn.
 * Recorded values are checked: shapes against the model and the trace, ranges of layers that scan, NaN and infinity
 * refused. The profile is of the layers that attend; those that scan have the same values under each, and none under
 * `tags`.
 */
int kvb_values_open(const kvb_trace *trace, const char *profile, uint64_t seed,
                    void (*parallel)(void *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx),
                    void *team, kvb_values **values, char *why, size_t why_bytes);
void kvb_values_free(kvb_values *values);

/* A kind's letter or word in the names of tensors; heads and dim of one token's rows of it in a layer, 0 where it has
 * none (V of latent rows, beta of a recurrence without); and their product. */
const char *kvb_rows_name(kvb_rows kind);
uint32_t kvb_rows_heads(const kvb_group *group, kvb_rows kind);
uint32_t kvb_rows_dim(const kvb_group *group, kvb_rows kind);
size_t kvb_values_floats(const kvb_group *group, kvb_rows kind);

/* The same of a layer's own: the shape, and how many dims it has; 0: the layer has none. */
const char *kvb_constant_name(kvb_constant constant);
uint32_t kvb_constant_shape(const kvb_group *group, kvb_constant constant, uint64_t shape[3]);

/* Rows of one token: [heads of that kind][dim]; the next token's follow them. NULL where the layer has none. */
const float *kvb_values_rows(const kvb_values *values, kvb_rows kind, uint32_t layer, uint64_t token);

/* What the value profiles share. */
extern const kvb_profile kvb_profile_tags;

/* The profile of that name, or -EINVAL with the known ones in why. */
int kvb_profile_choose(const char *name, const kvb_profile **profile, char *why, size_t why_bytes);

/* One token's rows of a kind in a layer that scans; and what is the layer's own. */
void kvb_scan_rows_make(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                        float *out);
void kvb_scan_constant_make(const kvb_model *model, uint64_t seed, kvb_constant constant, uint32_t layer, float *out);

/* Are recorded values of a layer in their ranges? Else -EINVAL, and why names the first that is not. path: of the file.
 */
int kvb_scan_values_check(const kvb_values *values, uint32_t layer, const char *path, char *why, size_t why_bytes);

#define KVB_SHARED_KEY 3u /* among kinds of rows: what tokens share */

/* Key of one token's rows; kvb_rng_key(it, head) is that of one row. */
static inline uint64_t kvb_token_key(uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token)
{
    return kvb_rng_key(kvb_rng_key(seed, (uint64_t)kind << 32 | layer), token);
}

/* Key of what all tokens of one (layer, KV head) share. */
static inline uint64_t kvb_head_key(uint64_t seed, uint32_t layer, uint32_t kv_head)
{
    return kvb_rng_key(kvb_rng_key(seed, (uint64_t)KVB_SHARED_KEY << 32 | layer), kv_head);
}

#endif
