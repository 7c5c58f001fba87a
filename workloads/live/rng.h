/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based random numbers of the live model: a value depends on (seed, stream, index) alone, never on
 * what was drawn before, and only on integer arithmetic and exact scaling, so that every machine makes the
 * same weights and prompts.
 */
#ifndef KVB_LIVE_RNG_H
#define KVB_LIVE_RNG_H

#include <stdint.h>

/* The output function of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * OOPSLA 2014), chained over the parts of the key. */
static inline uint64_t kvb_live_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t kvb_live_random(uint64_t seed, uint64_t stream, uint64_t index)
{
    return kvb_live_mix(kvb_live_mix(kvb_live_mix(seed) ^ stream) ^ index);
}

/* Close to N(0, 1): the sum of 16 uniform 16-bit numbers (Irwin, Hall), exact until the last scaling. */
static inline float kvb_live_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    int64_t sum = 0;
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t bits = kvb_live_random(seed, stream, 4 * index + i);
        for (int part = 0; part < 4; part++)
            sum += (int64_t)(bits >> (16 * part) & 0xffff) - 32768;
    }
    /* variance of the sum: 16 * 65536^2 / 12; the 16 halves that truncation lost are put back */
    return ((float)sum + 8.0f) * (0.8660254f / 65536.0f);
}

#endif
