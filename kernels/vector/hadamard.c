/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transform of view.h: stages (a, b) -> (a + b, a - b) of channels 1, 2, 4, ... apart, then one factor. Pairs and
 * order, and so the roundings, are those of the codecs. Within a vector a stage is a shuffle and a sum; within a tile
 * of up to TILE_VECS vectors it works on registers; beyond that on memory.
 */
#include "kernels/vector/vec.h"
#include "kernels/vector/vector.h"

#include <math.h>

enum { TILE_VECS = 8 };

/* A stage adds the partner's lane to each lane. The upper lane of a pair is negated first: b' = a + (-b). */
VEC_INLINE vf vf_stage(vf v, uint32_t apart)
{
    return vf_partner(v, apart) + vf_upper_negated(v, apart);
}

/* All stages below `block` and VL. */
VEC_INLINE vf vf_hadamard(vf v, uint32_t block)
{
    if (block > 1)
        v = vf_stage(v, 1);
    if (block > 2)
        v = vf_stage(v, 2);
    if (VL > 4 && block > 4)
        v = vf_stage(v, VL > 4 ? 4 : 1);
    if (VL > 8 && block > 8)
        v = vf_stage(v, VL > 8 ? 8 : 1);
    return v;
}

/* All stages within n vectors, for blocks of `block` channels. n is a power of two, and a constant in every call. */
VEC_INLINE void tile_hadamard(uint32_t n, uint32_t block, float *row)
{
    vf v[TILE_VECS];
    for (uint32_t i = 0; i < n; i++)
        v[i] = vf_hadamard(vf_load(row + i * VL), block);
    for (uint32_t apart = 1; apart < n; apart *= 2)
        for (uint32_t i = 0; i < n; i++)
            if (!(i & apart)) {
                vf a = v[i], b = v[i + apart];
                v[i] = a + b;
                v[i + apart] = a - b;
            }
    for (uint32_t i = 0; i < n; i++)
        vf_store(row + i * VL, v[i]);
}

static void row_hadamard(uint32_t block, uint32_t dim, float *row)
{
    uint32_t tile = block < TILE_VECS * VL ? block : TILE_VECS * VL, c = 0;
    for (; tile >= VL && c < dim; c += tile)
        switch (tile / VL) {
        case 1:
            tile_hadamard(1, block, row + c);
            break;
        case 2:
            tile_hadamard(2, block, row + c);
            break;
        case 4:
            tile_hadamard(4, block, row + c);
            break;
        default:
            tile_hadamard(TILE_VECS, block, row + c);
        }
    for (; c + VL <= dim; c += VL) /* several blocks a vector */
        vf_store(row + c, vf_hadamard(vf_load(row + c), block));
    if (c < dim) {
        float tail[VL] = {0};
        memcpy(tail, row + c, (dim - c) * sizeof *row);
        vf_store(tail, vf_hadamard(vf_load(tail), block));
        memcpy(row + c, tail, (dim - c) * sizeof *row);
    }
    for (uint32_t apart = TILE_VECS * VL; apart < block; apart *= 2)
        for (uint32_t i = 0; i < dim; i += i % apart + VL == apart ? apart + VL : VL) { /* the lower of each pair */
            vf a = vf_load(row + i), b = vf_load(row + i + apart);
            vf_store(row + i, a + b);
            vf_store(row + i + apart, a - b);
        }
}

static void signs_flip(uint32_t dim, float *row)
{
    for (uint32_t c = 0; c < dim; c++) {
        uint32_t bits;
        memcpy(&bits, row + c, sizeof bits);
        bits ^= (uint32_t)kvb_sign_flip(c) << 31;
        memcpy(row + c, &bits, sizeof bits);
    }
}

void KVB_ISA_NAME(kvb_hadamard)(kvb_transform transform, uint32_t dim, bool inverse, float *row)
{
    uint32_t block = kvb_transform_block(dim);
    float factor = (float)(1.0 / sqrt((double)block));
    if (transform == KVB_TRANSFORM_NONE)
        return;
    if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && !inverse)
        signs_flip(dim, row);
    row_hadamard(block, dim, row);
    for (uint32_t c = 0; c < dim; c++)
        row[c] *= factor;
    if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && inverse)
        signs_flip(dim, row);
}
