/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of `kvbench size`: lists of numbers, formats and engines; sizes; per cents; fractions. */
#ifndef KVB_SIZE_ARGUMENTS_H
#define KVB_SIZE_ARGUMENTS_H

#include "harness/size/sizing.h"

typedef struct kvb_size_numbers {
    uint64_t *at; /* owned */
    size_t n;
} kvb_size_numbers;

typedef struct kvb_kv_pair {
    const kvb_kv_format *k, *v;
} kvb_kv_pair;

typedef struct kvb_kv_pairs {
    kvb_kv_pair *at; /* owned */
    size_t n;
} kvb_kv_pairs;

typedef struct kvb_engine_list {
    kvb_size_engine *at; /* owned */
    size_t n;
} kvb_engine_list;

/* Each of these functions returns 0 with its result; -EINVAL with what was expected in why, and no list; or -ENOMEM. */
/* "4k,32k": whole numbers of 1 .. 2^40, suffixes k M G binary. */
int kvb_numbers_parse(const char *text, kvb_size_numbers *numbers, char *why, size_t why_bytes);
/* "f16,q8_0:q4_0": formats; K's and V's are separated by a colon if they differ. */
int kvb_kv_parse(const char *text, kvb_kv_pairs *pairs, char *why, size_t why_bytes);
/* "ideal,vllm,vllm@0.24"; NULL: all. */
int kvb_engines_parse(const char *text, kvb_engine_list *engines, char *why, size_t why_bytes);
/* "80GiB", "80GB", "1.5TiB", "123": bytes. KiB … PiB are powers of 1024, kB … PB of 1000. */
int kvb_bytes_parse(const char *text, uint64_t *bytes, char *why, size_t why_bytes);
/* "5%", "2.5": 0 to 100 per cent, in thousandths of a per cent. */
int kvb_percent_parse(const char *text, uint32_t *thousandths, char *why, size_t why_bytes);

/* "0.9": a number above 0 and up to 1, in thousandths. 0 or -EINVAL. */
int kvb_fraction_parse(const char *text, uint32_t *thousandths);

#endif
