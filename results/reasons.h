/* SPDX-License-Identifier: Apache-2.0 */
/* Why results did not pass: one reason for all that differ only in names and numbers. */
#ifndef KVB_REASONS_H
#define KVB_REASONS_H

#include <stdbool.h>
#include <stddef.h>

#include "results/result.h"

/* Results of one status with the same kind of reason. */
typedef struct kvb_reason_group {
    const kvb_result *first;
    size_t n;
    bool varies; /* reasons have different numbers in them */
} kvb_reason_group;

/* Copies the first line of the reason without what belongs to this record alone: the line of the trace, and the names
 * of its pools and its cache. */
void kvb_reason_reduce(const kvb_result *r, char text[KVB_REASON]);

/* Groups of the skipped results, or of the failed ones, from malloc; NULL: no memory. */
kvb_reason_group *kvb_reason_groups(const kvb_result *results, size_t n, bool skips, size_t *n_groups);

#endif
