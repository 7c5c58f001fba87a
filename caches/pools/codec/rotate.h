/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transform of attend.h: Walsh-Hadamard in natural order, in place, on each block of channels that is the largest
 * power of two dividing dim. Stages of (a, b) -> (a + b, a - b) at distance 1, 2, 4, ..., then one factor.
 *
 * The stages nearer than 32 are done by tiles in constant geometry (M. C. Pease, "An adaptation of the fast Fourier
 * transform for parallel processing", J. ACM 15, 1968): sums of neighbours go to the lower half and differences to the
 * upper, which turns the bits of the index by one; as many stages as the index has bits bring every element home. The
 * pairs and so the roundings are those of the stages in place, but each is one and the same shuffle for a vector unit.
 *
 * Which of two NaNs a sum becomes is up to the compiler: every NaN that comes out is made the same one.
 */
#ifndef KVB_CODEC_ROTATE_H
#define KVB_CODEC_ROTATE_H

#include "caches/pools/codec/floats.h"

#include <math.h>

enum { HAD_TILE = 64 };

static inline void tile_stage(uint32_t n, const float *restrict from, float *restrict to)
{
    for (uint32_t j = 0; j < n / 2; j++) {
        to[j] = from[2 * j] + from[2 * j + 1];
        to[n / 2 + j] = from[2 * j] - from[2 * j + 1];
    }
}

/* All stages of distances below n, which is a constant where this is called and at most HAD_TILE. */
static inline void tile_rotate(uint32_t n, float *row)
{
    float here[HAD_TILE], there[HAD_TILE];
    tile_stage(n, row, here);
    for (uint32_t distance = 4; distance < n; distance *= 4) {
        tile_stage(n, here, there);
        tile_stage(n, there, here);
    }
    if (n == 4 || n == 16 || n == 64) {
        tile_stage(n, here, there);
        memcpy(row, there, n * sizeof *row);
    } else
        memcpy(row, here, n * sizeof *row);
}

static inline void far_stage(uint32_t distance, float *restrict low, float *restrict high)
{
    for (uint32_t j = 0; j < distance; j++) {
        float a = low[j], b = high[j];
        low[j] = a + b;
        high[j] = a - b;
    }
}

static inline void signs_flip(uint32_t dim, float *row)
{
    for (uint32_t c = 0; c < dim; c++)
        row[c] = float_of(bits_of(row[c]) ^ (uint32_t)kvb_sign_flip(c) << 31);
}

static inline void rotate(kvb_transform transform, uint32_t dim, bool inverse, float *row)
{
    uint32_t block = kvb_transform_block(dim);
    if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && !inverse)
        signs_flip(dim, row);
    for (uint32_t i = 0; i < dim; i += block < HAD_TILE ? block : HAD_TILE)
        switch (block) {
        case 1:
            break;
        case 2:
            tile_rotate(2, row + i);
            break;
        case 4:
            tile_rotate(4, row + i);
            break;
        case 8:
            tile_rotate(8, row + i);
            break;
        case 16:
            tile_rotate(16, row + i);
            break;
        case 32:
            tile_rotate(32, row + i);
            break;
        default:
            tile_rotate(HAD_TILE, row + i);
        }
    for (uint32_t distance = HAD_TILE; distance < block; distance *= 2)
        for (uint32_t i = 0; i < dim; i += 2 * distance)
            far_stage(distance, row + i, row + i + distance);
    float factor = (float)(1.0 / sqrt((double)block));
    for (uint32_t i = 0; i < dim; i++) {
        uint32_t b = bits_of(row[i] * factor);
        row[i] = float_of(pick((b & 0x7fffffffu) > 0x7f800000u, 0x7fc00000u, b));
    }
    if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && inverse)
        signs_flip(dim, row);
}

#endif
