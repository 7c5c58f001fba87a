/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows of a trace are checked: all of them where the budget allows, a seeded sample otherwise. The
 * first and the last event with queries are always sampled, and of every sampled event the first and the
 * last query, head and layer and the queries at tile borders. Inside the oracle only.
 */
#ifndef KVB_SAMPLE_H
#define KVB_SAMPLE_H

#include "oracle/census.h"

typedef struct kvb_sample_options {
    uint64_t max_pairs; /* of (row, cell) visited in all */
    uint64_t max_rows;
    uint64_t seed;
} kvb_sample_options;

typedef struct kvb_sample_row {
    uint32_t event, layer, query, head;
} kvb_sample_row;

typedef struct kvb_sample {
    kvb_sample_row *rows; /* sorted by event, layer, query, head; none twice */
    size_t n, room;
    uint64_t pairs;      /* visited by these rows */
    uint64_t total_rows; /* of the trace */
} kvb_sample;

/* At least this many rows are checked (or all there are), however dear they are. */
#define KVB_SAMPLE_MIN_ROWS 64u

int kvb_sample_choose(const kvb_census *census, const kvb_sample_options *options, kvb_sample *sample);
/* 64 bits that are the same for the same seed and counter, and otherwise as if drawn. */
uint64_t kvb_sample_bits(uint64_t seed, uint64_t counter);
void kvb_sample_free(kvb_sample *sample);

#endif
