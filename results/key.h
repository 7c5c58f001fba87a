/* SPDX-License-Identifier: Apache-2.0 */
/* Which combination a record is about: what makes two records of two runs records of the same thing. */
#ifndef KVB_KEY_H
#define KVB_KEY_H

#include "results/result.h"

#define KVB_KEY_TEXT 512u               /* bytes that any combination's name needs at most */
#define KVB_KEY_PART (2 * KVB_NAME + 8) /* and the name of its pools, or of its cache */

/* By workload, cache, pool_k, pool_v, kernel, threads, growth: below 0, 0 for the same combination, above 0. */
int kvb_key_order(const kvb_result *a, const kvb_result *b);

/* "workload/cache/k=f16,v=q4_0/kernel/1/double"; where both pools are the same just its name. What patterns match. */
void kvb_key_name(const kvb_result *result, char text[KVB_KEY_TEXT]);

/* "f16", or "k=f16,v=q4_0". */
void kvb_key_pools(const kvb_result *result, char text[KVB_KEY_PART]);

/* "seq", and where the growth policy is not the default one, "seq, reserve". For tables that have no column for it. */
void kvb_key_cache(const kvb_result *result, char text[KVB_KEY_PART]);

#endif
