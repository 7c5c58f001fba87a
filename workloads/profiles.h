/* SPDX-License-Identifier: Apache-2.0 */
/* What the value profiles share. */
#ifndef KVB_PROFILES_H
#define KVB_PROFILES_H

#include "workloads/rng.h"
#include "workloads/values.h"

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
