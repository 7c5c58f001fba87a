/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transform of attend.h. Stages (a, b) -> (a + b, a - b) at distances 1, 2, 4, ..., then one factor: the pairs, the order and
 * so the roundings of the codecs. Distances within a vector are a shuffle and a sum; those beyond go over registers
 * for tiles of up to 8 vectors, and over memory from there.
 */
#include "kernels/vector/load.h"
#include "kernels/vector/vec_turns.h"

#include <math.h>

enum { TILE_VECS = 8 };

/* All stages within n vectors, a constant power of two where this is called, of blocks of `block` channels. */
VEC_INLINE void tile_turn(uint32_t n, uint32_t block, float *row)
{
    vf v[TILE_VECS];
    for (uint32_t i = 0; i < n; i++)
        v[i] = vf_turned(vf_load(row + i * VL), block);
    for (uint32_t far = 1; far < n; far *= 2)
        for (uint32_t i = 0; i < n; i++)
            if (!(i & far)) {
                vf a = v[i], b = v[i + far];
                v[i] = a + b;
                v[i + far] = a - b;
            }
    for (uint32_t i = 0; i < n; i++)
        vf_store(row + i * VL, v[i]);
}

static void row_turn(uint32_t block, uint32_t dim, float *row)
{
    uint32_t tile = block < TILE_VECS * VL ? block : TILE_VECS * VL, c = 0;
    for (; tile >= VL && c < dim; c += tile)
        switch (tile / VL) {
        case 1:
            tile_turn(1, block, row + c);
            break;
        case 2:
            tile_turn(2, block, row + c);
            break;
        case 4:
            tile_turn(4, block, row + c);
            break;
        default:
            tile_turn(TILE_VECS, block, row + c);
        }
    for (; c + VL <= dim; c += VL) /* several blocks a vector */
        vf_store(row + c, vf_turned(vf_load(row + c), block));
    if (c < dim) {
        float tail[VL] = {0};
        memcpy(tail, row + c, (dim - c) * sizeof *row);
        vf_store(tail, vf_turned(vf_load(tail), block));
        memcpy(row + c, tail, (dim - c) * sizeof *row);
    }
    for (uint32_t far = TILE_VECS * VL; far < block; far *= 2)
        for (uint32_t i = 0; i < dim; i += i % far + VL == far ? far + VL : VL) { /* the lower half of each 2 far */
            vf a = vf_load(row + i), b = vf_load(row + i + far);
            vf_store(row + i, a + b);
            vf_store(row + i + far, a - b);
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

void KVB_ISA_NAME(kvb_transform)(kvb_transform transform, uint32_t dim, bool inverse, float *row)
{
    uint32_t block = kvb_transform_block(dim);
    float factor = (float)(1.0 / sqrt((double)block));
    if (transform == KVB_TRANSFORM_NONE)
        return;
    if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && !inverse)
        signs_flip(dim, row);
    row_turn(block, dim, row);
    for (uint32_t c = 0; c < dim; c++)
        row[c] *= factor;
    if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && inverse)
        signs_flip(dim, row);
}
