/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that codecs find hard, made from a counter: the same in every run. */
#ifndef KVB_SPECIAL_ROWS_H
#define KVB_SPECIAL_ROWS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "workloads/rng.h"

typedef enum row_kind {
    ROW_NORMAL,
    ROW_TIES,       /* half-way between codes, with a scale that is exact in some format */
    ROW_FLOAT_TIES, /* halfway between two floats of few bits */
    ROW_SUBNORMALS,
    ROW_ZEROS,   /* of both signs */
    ROW_EQUAL,   /* one value: a group's range is 0 */
    ROW_OUTLIER, /* one huge element */
    ROW_MIXED,   /* magnitudes from 2^-40 to 2^16 */
    ROW_SMALL,   /* one magnitude a row, 2^-10 to 2^-60; some about 1e-15, below which iq4_nl stores 0 */
    ROW_SATURATION,
    ROW_INFINITIES,
    ROW_NANS,
    ROW_BITS, /* any float */
    ROW_KINDS
} row_kind;

static inline float row_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t row_random(uint64_t *state)
{
    return (uint32_t)(kvb_rng_mix(*state += 0x9e3779b97f4a7c15u) >> 32);
}

/* Nearly N(0, 1): the sum of twelve uniform numbers. */
static inline float row_normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += row_random(state) * 0x1p-32;
    return (float)sum;
}

static inline float row_element(row_kind kind, uint64_t *state)
{
    uint32_t r = row_random(state), one_of_8 = row_random(state) % 8;
    float sign = r & 1 ? -1.0f : 1.0f;
    switch (kind) {
    case ROW_TIES:
        return sign * (float)(r >> 8 & 63) * 0.25f;
    case ROW_FLOAT_TIES: /* 1 to 12 bits after the leading one */
        return sign * ldexpf((float)(0x800 | (r >> 8 & 0x7ff) >> one_of_8 << one_of_8), (int)(r >> 20 & 31) - 32);
    case ROW_SUBNORMALS:
        return row_float((r & 0x80000000u) | (r & 0x7fffffu) >> 3 * one_of_8);
    case ROW_ZEROS:
        return sign * 0.0f;
    case ROW_MIXED:
        return ldexpf(row_normal(state), (int)(r >> 8) % 57 - 40);
    case ROW_SATURATION:
        return sign * (one_of_8 == 0 ? FLT_MAX : one_of_8 == 1 ? 65504.0f : one_of_8 == 2 ? 65520.0f : 0x1p127f);
    case ROW_INFINITIES:
        return one_of_8 == 0 ? sign * INFINITY : row_normal(state);
    case ROW_NANS:
        return one_of_8 == 0 ? row_float((r & 0x80000000u) | 0x7f800001u | (r & 0x7fffffu)) : row_normal(state);
    case ROW_BITS:
        return row_float(r);
    default:
        return row_normal(state);
    }
}

static inline void row_fill(row_kind kind, float *row, uint32_t dim, uint64_t *state)
{
    static const float peaks[] = {127, -127, 255, 15, -8, 8, 16, -16, 31, 3, 6, -6, 448, 57344, 0.5f, 1};
    for (uint32_t c = 0; c < dim; c++)
        row[c] = row_element(kind, state);
    uint32_t place = row_random(state) % dim, r = row_random(state);
    if (kind == ROW_TIES)
        row[place] = peaks[r % 16];
    for (uint32_t c = 0; kind == ROW_SMALL && c < dim; c++)
        row[c] = ldexpf(row[c], r & 1 ? -70 : -10 - (int)((r >> 8) % 50));
    if (kind == ROW_SMALL && r & 1)
        row[place] = (r & 2 ? -1.0f : 1.0f) * (r & 4 ? nextafterf(1e-15f, 0) : 1e-15f);
    if (kind == ROW_OUTLIER)
        row[place] = ldexpf(row[place] < 0 ? -1.25f : 1.25f, 4 + (int)(r % 20));
    if (kind == ROW_EQUAL)
        for (uint32_t c = 1; c < dim; c++)
            row[c] = row[0];
    if (kind == ROW_TIES)
        for (uint32_t c = 0, e = r >> 16 & 3; c < dim; c++)
            row[c] = ldexpf(row[c], -4 * (int)e);
}

#endif
