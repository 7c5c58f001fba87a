/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based random numbers: a pure function of a key and a counter, so that any value can be made
 * alone, in any order, by any thread. The mixer is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast
 * splittable pseudorandom number generators, OOPSLA 2014; constants of Stafford's variant 13).
 */
#ifndef KVB_RNG_H
#define KVB_RNG_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static inline uint64_t kvb_rng_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A key for everything below (key, part). */
static inline uint64_t kvb_rng_key(uint64_t key, uint64_t part)
{
    return kvb_rng_mix(kvb_rng_mix(key + 0x9e3779b97f4a7c15u) + part);
}

/* 64 random bits: number `counter` of the stream of a key. */
static inline uint64_t kvb_rng_bits(uint64_t key, uint64_t counter)
{
    return kvb_rng_mix(key + (counter + 1) * 0x9e3779b97f4a7c15u);
}

/* 32 bits to the open interval (0, 1). */
static inline double kvb_rng_unit(uint32_t bits)
{
    return (bits + 0.5) * 0x1p-32;
}

/*
 * 32 bits to a standard normal number, by the inverse of its distribution function: Wichura, Algorithm
 * AS 241 (PPND7, relative error about 1e-7), Applied Statistics 37, 1988. Another formula holds outside the middle, where
 * about 15 % of all numbers lie.
 */
static inline bool kvb_rng_is_middle(uint32_t bits)
{
    const uint32_t half = 1825361101; /* 0.425 * 2^32, rounded up: distance from 1/2 */
    return bits - (0x80000000u - half) < 2 * half;
}

static inline double kvb_rng_middle(uint32_t bits)
{
    double q = kvb_rng_unit(bits) - 0.5, r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1);
}

/* Beside the middle: x > 0 with P(N > x) = exp(-far); 32 bits give far < 25. */
static inline double kvb_rng_tail(double far)
{
    const double r = sqrt(far) - 1.6;
    return (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
           ((0.12021132975 * r + 0.73700164250) * r + 1);
}

static inline double kvb_rng_far(uint32_t bits)
{
    const double p = kvb_rng_unit(bits), other = 1 - p;
    return -log(p < other ? p : other);
}

/* Gives x > 0 the sign of the number: without a branch, which no CPU could predict. */
static inline double kvb_rng_signed(uint32_t bits, double x)
{
    return copysign(x, kvb_rng_unit(bits) - 0.5);
}

static inline double kvb_rng_normal(uint32_t bits)
{
    return kvb_rng_is_middle(bits) ? kvb_rng_middle(bits) : kvb_rng_signed(bits, kvb_rng_tail(kvb_rng_far(bits)));
}

/* row[0..n-1] = factor * N(0,1). */
void kvb_rng_normals(uint64_t key, double factor, uint32_t n, float *row);

/* ---- of the live model: integer arithmetic and exact scaling alone, so that every machine makes the same weights and
 * prompts ---- */

static inline uint64_t kvb_live_mix(uint64_t x)
{
    return kvb_rng_mix(x + 0x9e3779b97f4a7c15u);
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
