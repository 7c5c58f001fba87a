/* SPDX-License-Identifier: Apache-2.0 */
/* The transform, and the rule for rotated rows. */
#ifndef KVB_CODEC_ROTATE_H
#define KVB_CODEC_ROTATE_H

#include "caches/pools/codec/levels.h"

/*
 * The transform of view.h: Walsh-Hadamard in natural order, in place, on each block of channels that is the largest
 * power of two dividing dim. Stages of (a, b) -> (a + b, a - b) at distance 1, 2, 4, ..., then one factor.
 *
 * Stages at distances up to 32 are done in tiles, in constant geometry (M. C. Pease, "An adaptation of the fast Fourier
 * transform for parallel processing", J. ACM 15, 1968): sums of neighbours go to the lower half, differences to the
 * upper half. Each stage rotates the bits of the index by one, so after as many stages as the index has bits every
 * element is in its place again. Pairs, and so roundings, are those of stages in place, but every stage is the same
 * vector shuffle.
 *
 * A compiler may choose which of two NaNs a sum returns: so every NaN in the result is replaced by one and the same.
 */

enum { HAD_TILE = 64 };

static inline void tile_stage(uint32_t n, const float *restrict from, float *restrict to)
{
    for (uint32_t j = 0; j < n / 2; j++) {
        to[j] = from[2 * j] + from[2 * j + 1];
        to[n / 2 + j] = from[2 * j] - from[2 * j + 1];
    }
}

/* All stages of distances below n, which is at most HAD_TILE and a constant in each call. */
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

/*
 * Rule CODEBOOK: a rotated row is divided by its root mean square; a code is the nearest of 8 or 16 levels. TurboQuant
 * (Zandieh et al., arXiv 2504.19874), the variant for mean squared error: after a random rotation elements are
 * nearly normal, so the levels are the Lloyd-Max quantiser's (J. Max, "Quantizing for minimum distortion", IRE
 * Trans. Inf. Theory 6, 1960). The scale is f16. A NaN counts as 0, and magnitudes are kept within 65504.
 *
 * The sum of squares is the only sum: in double, 16 partial sums, then halves added to halves.
 * Rows are multiples of 32 channels (kvb_format_fits()).
 */

enum { BOOK_SPAN = 256 /* channels worked on at a time */ };

static inline void squares_add(const float *restrict row, uint32_t n, double *restrict part)
{
    for (uint32_t j = 0; j < n; j++) {
        double x = (double)float_of(bits_within(row[j], LIMIT_F16_MAX));
        part[j] += x * x;
    }
}

/* f16 bits of the root mean square. */
static inline uint16_t book_scale(const float *row, uint32_t dim)
{
    double part[16] = {0};
    uint32_t lanes = dim < 16 ? dim : 16; /* always 16; compilers unroll a constant count and do not vectorise */
    for (uint32_t i = 0; i < dim; i += 16)
        squares_add(row + i, lanes, part);
    for (uint32_t n = 8; n > 0; n /= 2)
        for (uint32_t j = 0; j < n; j++)
            part[j] += part[j + n];
    float scale = (float)sqrt(part[0] / dim);
    return f16_of(scale < 65504.0f ? scale : 65504.0f);
}

/* How many of 7 thresholds lie below y. */
static inline uint32_t above(const float *t, float y)
{
    return (uint32_t)(y > t[0]) + (y > t[1]) + (y > t[2]) + (y > t[3]) + (y > t[4]) + (y > t[5]) + (y > t[6]);
}

/* `bits` is a constant in each call, so that each has a loop of its own. */
static inline void book_codes(uint32_t bits, const float *level, const float *row, uint32_t dim, float divisor,
                              uint8_t *to)
{
    uint8_t code[BOOK_SPAN];
    float t[15] = {0};
    for (uint32_t k = 0; k + 1 < 1u << bits; k++)
        t[k] = (level[k] + level[k + 1]) * 0.5f;
    for (uint32_t first = 0; first < dim; first += BOOK_SPAN) {
        uint32_t n = dim - first < BOOK_SPAN ? dim - first : BOOK_SPAN;
        for (uint32_t i = 0; i < n; i++) {
            float y = float_of(bits_within(row[first + i], LIMIT_F16_MAX)) / divisor;
            code[i] = (uint8_t)(bits == 3 ? above(t, y) : above(t, y) + (y > t[7]) + above(t + 8, y));
        }
        codes_pack(to + first / 8 * bits, code, n, bits);
    }
}

static inline void codebook_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    uint16_t scale = book_scale(row, dim);
    float divisor = divisor_of(f16_value(scale));
    memcpy(c->scales, &scale, sizeof scale);
    if (c->format->level_bits == 4)
        book_codes(4, c->format->levels, row, dim, divisor, c->codes);
    else
        book_codes(3, c->format->levels, row, dim, divisor, c->codes);
}

static inline void book_values(uint32_t bits, const float *restrict level, const uint8_t *from, uint32_t dim,
                               float scale, float *restrict row)
{
    uint8_t code[BOOK_SPAN];
    for (uint32_t first = 0; first < dim; first += BOOK_SPAN) {
        uint32_t n = dim - first < BOOK_SPAN ? dim - first : BOOK_SPAN;
        codes_unpack(code, from + first / 8 * bits, n, bits);
        for (uint32_t i = 0; i < n; i++)
            row[first + i] = level[code[i]] * scale;
    }
}

static inline void codebook_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    uint16_t scale;
    memcpy(&scale, c->scales, sizeof scale);
    if (c->format->level_bits == 4)
        book_values(4, c->format->levels, c->codes, dim, f16_value(scale), row);
    else
        book_values(3, c->format->levels, c->codes, dim, f16_value(scale), row);
}

#endif
