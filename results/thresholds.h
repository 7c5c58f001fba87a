/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a comparison allows: a small JSON file.
 *
 *   {"kvbench_thresholds": 1, "time": 0.05, "memory": 0, "bytes": 0, "rho": null, "confidence": 0.99,
 *    "patterns": [{"match": "long-decode/STAR/flash/STAR", "time": 0.10}, …]}      (STAR: an asterisk)
 *
 * time, memory (allocator_peak, scratch, staged, copied bytes), bytes (read, walked) and rho are relative: 0.05 allows 5 %
 * more. null: any growth is allowed. Every key but the first may be left out. A pattern is matched by fnmatch against
 * kvb_key_name ("workload/cache/pool/kernel/threads/growth"; an asterisk goes across slashes); of several that match, the
 * later one counts, key by key. confidence is of all combinations together.
 */
#ifndef KVB_THRESHOLDS_H
#define KVB_THRESHOLDS_H

#include <stddef.h>

#include "results/result.h"

#define KVB_THRESHOLD_PATTERNS 64u

typedef enum kvb_limit { KVB_LIMIT_TIME, KVB_LIMIT_MEMORY, KVB_LIMIT_BYTES, KVB_LIMIT_RHO, KVB_LIMITS } kvb_limit;

typedef struct kvb_threshold_pattern {
    char match[512];
    double limit[KVB_LIMITS]; /* NaN: not said; infinity: any growth */
} kvb_threshold_pattern;

typedef struct kvb_thresholds {
    double limit[KVB_LIMITS];
    double confidence;
    kvb_threshold_pattern patterns[KVB_THRESHOLD_PATTERNS];
    size_t n;
} kvb_thresholds;

/* time 0.05, memory and bytes 0, rho any, confidence 0.99, no pattern. */
void kvb_thresholds_init(kvb_thresholds *thresholds);

/* 0 or -errno with why: "file: key: what was expected", or "file:line: …" where it is no JSON. */
int kvb_thresholds_load(const char *path, kvb_thresholds *thresholds, char *why, size_t why_bytes);

/* What is allowed to a combination. */
double kvb_thresholds_of(const kvb_thresholds *thresholds, const kvb_result *result, kvb_limit limit);

#endif
