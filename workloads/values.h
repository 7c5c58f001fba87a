/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a workload: q, K and V rows of every token and layer, as they enter the cache (K and q after RoPE).
 * They are recorded tensors, or come from a seeded, counter-based generator keyed by (seed, token identity, layer,
 * head, channel): a fork, a replay and a recomputation see the same numbers, and any row can be made alone.
 *
 * Recorded: for each layer L three F32 tensors q.L [queries and fills: tokens][heads][k_dim],
 * k.L [tokens][kv_heads][k_dim], v.L [tokens][kv_heads][v_dim]; row = token identity. A layer with latent rows has no
 * V.
 *
 * A layer that scans has the inputs of its kind (kernels/scan.h): q.L and k.L [tokens][groups][k_dim], v.L
 * [tokens][heads][v_dim], gate.L (mamba1: [tokens][heads][v_dim], else [tokens][heads][1]), beta.L [tokens][heads][1],
 * and x.L [tokens][1][channels], the inputs of a convolution. Its constants are a.L (mamba1: [heads][k_dim][v_dim],
 * else [heads]), taps.L [width][channels] and bias.L [channels]. The inputs of a recurrence do not follow from the
 * convolution before it, so that each call is judged by itself. Values are in scan.h's ranges: no decay is above 1.
 */
#ifndef KVB_VALUES_H
#define KVB_VALUES_H

#include "workloads/rng.h"
#include "workloads/trace.h"

typedef enum kvb_rows {
    KVB_ROWS_Q,
    KVB_ROWS_K,
    KVB_ROWS_V,
    KVB_ROWS_ATTENDED, /* layers that attend have the kinds above only; the kinds below belong to layers that scan */
    KVB_ROWS_GATE = KVB_ROWS_ATTENDED,
    KVB_ROWS_BETA,
    KVB_ROWS_X,
    KVB_ROWS_KINDS
} kvb_rows;

/* Constants of a layer that scans. */
typedef enum kvb_constant { KVB_CONSTANT_A, KVB_CONSTANT_TAPS, KVB_CONSTANT_BIAS, KVB_CONSTANTS } kvb_constant;

typedef struct kvb_profile_row kvb_profile_row; /* one row, and what it may depend on (profiles.c) */

typedef struct kvb_profile {
    const char *name;                              /* gaussian, llama, … */
    void (*row)(kvb_profile_row *row, float *out); /* makes the row: out [dim] */
    double least, most; /* of what row() chooses: profiles with the same row() differ in them */
    enum { KVB_PROFILE_ANY, KVB_PROFILE_ROPE, KVB_PROFILE_APART, KVB_PROFILE_TAGS } needs; /* of a group */
    const char *summary; /* one line, with the source of its shape */
} kvb_profile;

/* Does the profile support the model's layers that attend? 0; -ENOTSUP with why. */
int kvb_profile_supports(const kvb_profile *profile, const kvb_model *model, char *why, size_t why_bytes);

/* Makes one token's rows [heads of that kind][dim] in a layer that attends; pos is the token's position. */
void kvb_profile_rows(const kvb_profile *profile, const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer,
                      uint64_t token, uint32_t pos, float *out);

extern const kvb_profile kvb_profiles[];               /* the last has no name */
const kvb_profile *kvb_profile_find(const char *name); /* or NULL */

/*
 * Profile `tags`: every K and V row holds one 32-bit code, low bits first, repeated along the row to its end. In rows
 * of 32 channels or more a channel holds a bit, as -1 or 1, which formats down to 2 bits distinguish; in shorter rows a
 * channel holds a symbol s of 2 bits, as 2s - 3. Needs k_dim, v_dim >= 16, and bits for tokens beside those for layers
 * and heads.
 */

/* Fields of a code, from the low end: token, layer, KV head, and a bit that is 1 in V rows. Layers and heads have as
 * many bits as the model needs, tokens all others: 2^30 tokens with 1 layer and 1 head, 2^22 with 48 and 8. No layer's
 * field is all ones, so no code is (kernels/witness.h, KVB_WITNESS_TORN). */
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
    float **constant[KVB_CONSTANTS];  /* [layers]; NULL: the layer has none */
} kvb_values;

/*
 * Makes all rows of a trace by that profile, with the header's seed (or `seed` if not 0); profile NULL: the header's
 * tensors or profile. The trace must outlive the values. q rows of fill tokens stay untouched (zero pages). parallel:
 * runs part(ctx, i, n) for i < n, at once or in turn; NULL: in turn. Recorded values are checked: shapes against model
 * and trace, ranges in layers that scan, NaN and infinity. Profiles concern layers that attend. Layers that scan have
 * the same values under each profile, and none under `tags`.
 */
int kvb_values_open(const kvb_trace *trace, const char *profile, uint64_t seed,
                    void (*parallel)(void *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx),
                    void *team, kvb_values **values, char *why, size_t why_bytes);
void kvb_values_free(kvb_values *values);

/* A kind's part of a tensor's name; heads and dim of one token's rows of that kind in a layer, 0: none (V of latent
 * rows, beta of a recurrence without); and their product. */
const char *kvb_rows_name(kvb_rows kind);
uint32_t kvb_rows_heads(const kvb_group *group, kvb_rows kind);
uint32_t kvb_rows_dim(const kvb_group *group, kvb_rows kind);
size_t kvb_values_floats(const kvb_group *group, kvb_rows kind);

/* The same for constants: fills in the shape and returns its number of dims; 0: the layer has no such constant. */
const char *kvb_constant_name(kvb_constant constant);
uint32_t kvb_constant_shape(const kvb_group *group, kvb_constant constant, uint64_t shape[3]);

/* Rows of one token: [heads of that kind][dim]; the next token's follow them. NULL: the layer has none. */
const float *kvb_values_rows(const kvb_values *values, kvb_rows kind, uint32_t layer, uint64_t token);

/* The profile of that name, or -EINVAL with the known ones in why. */
int kvb_profile_choose(const char *name, const kvb_profile **profile, char *why, size_t why_bytes);

/* Make one token's rows of a kind in a layer that scans, and one of the layer's constants. */
void kvb_scan_rows_make(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                        float *out);
void kvb_scan_constant_make(const kvb_model *model, uint64_t seed, kvb_constant constant, uint32_t layer, float *out);

/* Are recorded values of a layer in their ranges? 0; -EINVAL: why names the first that is not. path: of the file. */
int kvb_scan_values_check(const kvb_values *values, uint32_t layer, const char *path, char *why, size_t why_bytes);

#define KVB_SHARED_KEY 3u /* in place of a kind of rows: numbers that tokens share */

/* Key of one token's rows; kvb_rng_key() of it and a head is the key of one row. */
static inline uint64_t kvb_token_key(uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token)
{
    return kvb_rng_key(kvb_rng_key(seed, (uint64_t)kind << 32 | layer), token);
}

/* Key of the numbers that all tokens share in one (layer, KV head). */
static inline uint64_t kvb_head_key(uint64_t seed, uint32_t layer, uint32_t kv_head)
{
    return kvb_rng_key(kvb_rng_key(seed, (uint64_t)KVB_SHARED_KEY << 32 | layer), kv_head);
}

#endif
