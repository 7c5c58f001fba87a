/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transform of attend.h: Walsh-Hadamard in natural order on blocks of a row, the factor 1/sqrt(block); Fino and
 * Algazi, Unified Matrix Treatment of the Fast Walsh-Hadamard Transform, IEEE Trans. Computers 25, 1976.
 */
#include "oracle/codec.h"

#include <math.h>

static float factor(uint32_t block)
{
    return (float)(1 / sqrt(block));
}

static void signs_flip(kvb_transform transform, uint32_t dim, float *row)
{
    for (uint32_t c = 0; c < dim; c++)
        if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && kvb_sign_flip(c))
            row[c] = -row[c];
}

static void stages(uint32_t dim, float *row)
{
    uint32_t block = kvb_transform_block(dim);
    float f = factor(block);
    for (uint32_t distance = 1; distance < block; distance *= 2)
        for (uint32_t c = 0; c < dim; c++)
            if (c / distance % 2 == 0) {
                float a = row[c], b = row[c + distance];
                row[c] = a + b;
                row[c + distance] = a - b;
            }
    for (uint32_t c = 0; c < dim; c++)
        row[c] *= f;
}

void kvb_codec_rotate(kvb_transform transform, uint32_t dim, float *row)
{
    signs_flip(transform, dim, row);
    if (transform != KVB_TRANSFORM_NONE)
        stages(dim, row);
}

void kvb_codec_unrotate_f32(kvb_transform transform, uint32_t dim, float *row)
{
    if (transform != KVB_TRANSFORM_NONE)
        stages(dim, row);
    signs_flip(transform, dim, row);
}

void kvb_codec_unrotate(kvb_transform transform, uint32_t dim, double *row)
{
    if (transform == KVB_TRANSFORM_NONE)
        return;
    uint32_t block = kvb_transform_block(dim);
    float f = factor(block);
    for (uint32_t distance = 1; distance < block; distance *= 2)
        for (uint32_t c = 0; c < dim; c++)
            if (c / distance % 2 == 0) {
                double a = row[c], b = row[c + distance];
                row[c] = a + b;
                row[c + distance] = a - b;
            }
    for (uint32_t c = 0; c < dim; c++) {
        row[c] *= (double)f;
        if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && kvb_sign_flip(c))
            row[c] = -row[c];
    }
}
