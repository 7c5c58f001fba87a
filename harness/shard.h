/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a matrix: every n-th combination, counted in the order of the matrix, skipped ones included. */
#ifndef KVB_SHARD_H
#define KVB_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvb_shard {
    uint32_t index; /* from 0 */
    uint32_t of;    /* 1: the whole */
} kvb_shard;

/* "2/3" is {1, 3}; NULL or "" is the whole. 0, or -EINVAL with why. */
int kvb_shard_parse(const char *text, kvb_shard *shard, char *why, size_t why_bytes);

/* Is combination `number`, from 0, of this shard? */
bool kvb_shard_has(kvb_shard shard, size_t number);

/* How many of `total` combinations are. */
size_t kvb_shard_count(kvb_shard shard, size_t total);

#endif
