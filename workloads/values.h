/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a workload: q, K and V rows of every token and layer, as they enter the cache (K and q
 * after RoPE). Either recorded tensors, or a seeded, counter-based generator keyed by (seed, token
 * identity, layer, head, channel): a fork, a replay and a recomputation see the same numbers whatever
 * the order, and any row can be made alone.
 *
 * Recorded: for each layer L three F32 tensors q.L [queries and fills: tokens][heads][k_dim],
 * k.L [tokens][kv_heads][k_dim], v.L [tokens][kv_heads][v_dim]; row = token identity. A layer with latent rows has no V.
 */
#ifndef KVB_VALUES_H
#define KVB_VALUES_H

#include "workloads/trace.h"

typedef enum kvb_rows { KVB_ROWS_Q, KVB_ROWS_K, KVB_ROWS_V, KVB_ROWS_KINDS } kvb_rows;

typedef struct kvb_profile {
    const char *name;    /* gaussian, llama, qwen, peaked, needle, flat, tags */
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
 * ones to each symbol s of 2 bits, 2s - 3. Needs k_dim, v_dim >= 16 and fewer tokens, layers and heads than the
 * fields hold: as no layer's field is all ones, no code is (kernels/witness.h, KVB_WITNESS_TORN).
 */
#define KVB_TAG_TOKENS (1u << 19)
#define KVB_TAG_LAYERS (1u << 6)
#define KVB_TAG_HEADS  (1u << 6)
/* code = token | layer << 19 | head << 25 | is_v << 31 */
uint32_t kvb_tag_code(uint64_t token, uint32_t layer, uint32_t kv_head, bool is_v);

/* All rows of a trace, materialised: one block for each kind, [layers][tokens][heads][dim] f32. */
typedef struct kvb_values {
    uint64_t tokens;
    const kvb_model *model;       /* the trace's */
    const char *profile;          /* "recorded" or the profile's name */
    float *block[KVB_ROWS_KINDS]; /* zero pages until written */
    size_t block_bytes[KVB_ROWS_KINDS];
    size_t *layer_at[KVB_ROWS_KINDS]; /* [layers]: floats of a block before that layer's rows */
} kvb_values;

/*
 * Make all rows of a trace. profile NULL: what the header says (recorded tensors or its profile);
 * otherwise that profile with the header's seed (or `seed` when not 0). The trace outlives the values. q rows of fill tokens are left
 * untouched (zero pages). parallel: runs part(ctx, i, n) for i < n, at once or in turn; NULL: in turn.
 * Recorded values are checked: shapes against the model and the trace, NaN and infinity refused.
 */
int kvb_values_open(const kvb_trace *trace, const char *profile, uint64_t seed,
                    void (*parallel)(void *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx),
                    void *team, kvb_values **values, char *why, size_t why_bytes);
void kvb_values_free(kvb_values *values);

/* Floats of one token's rows of a kind in a layer: heads x dim; 0 for V of latent rows. */
size_t kvb_values_floats(const kvb_group *group, kvb_rows kind);

/* Rows of one token: [heads of that kind][dim]; the next token's follow them. NULL for V of latent rows. */
const float *kvb_values_rows(const kvb_values *values, kvb_rows kind, uint32_t layer, uint64_t token);

#endif
