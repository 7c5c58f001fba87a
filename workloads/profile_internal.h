/* SPDX-License-Identifier: Apache-2.0 */
/* What the value profiles share. */
#ifndef KVB_PROFILE_INTERNAL_H
#define KVB_PROFILE_INTERNAL_H

#include "workloads/rng.h"
#include "workloads/values.h"

extern const kvb_profile kvb_profile_gaussian, kvb_profile_llama, kvb_profile_qwen, kvb_profile_peaked,
    kvb_profile_needle, kvb_profile_flat, kvb_profile_tags;

/* The profile of that name, or -EINVAL with the known ones in why. */
int kvb_profile_choose(const char *name, const kvb_profile **profile, char *why, size_t why_bytes);

/* Heads, and elements of a row, of one kind in a layer of the group. */
static inline uint32_t kvb_rows_heads(const kvb_group *group, kvb_rows kind)
{
    return kind == KVB_ROWS_Q ? group->heads : group->kv_heads;
}

static inline uint32_t kvb_rows_dim(const kvb_group *group, kvb_rows kind)
{
    return kind == KVB_ROWS_V ? group->v_dim : group->k_dim;
}

/* Key of one token's rows; kvb_rng_key(it, head) is that of one row. */
static inline uint64_t kvb_token_key(uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token)
{
    return kvb_rng_key(kvb_rng_key(seed, (uint64_t)kind << 32 | layer), token);
}

/* Key of what all tokens of one (layer, KV head) share. */
static inline uint64_t kvb_head_key(uint64_t seed, uint32_t layer, uint32_t kv_head)
{
    return kvb_rng_key(kvb_rng_key(seed, (uint64_t)KVB_ROWS_KINDS << 32 | layer), kv_head);
}

#endif
