/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of KIVI: V, which is affine; and K, whose every channel has a scale and a zero of its own, f16, shared by
 * neighbouring cells. K may have any dim.
 */
#ifndef KVB_VECTOR_LOAD_CHANNELS_H
#define KVB_VECTOR_LOAD_CHANNELS_H

#include "kernels/vector/load_groups.h"

enum { CHANNELS_KEPT = 256 };

/* The factors of the group that was last read, as floats: its other cells are likely to follow. */
typedef struct channel_factors {
    const uint8_t *whose; /* its scales, or NULL */
    _Alignas(64) float scale[CHANNELS_KEPT], zero[CHANNELS_KEPT];
} channel_factors;

/* n channels, a multiple of 16. */
VEC_INLINE void factors_keep(channel_factors *k, const place_row *r, uint32_t n)
{
    for (uint32_t c = 0; c < n; c += VL) {
        vf_store(k->scale + c, vf_load_f16(r->scales + 2 * c));
        vf_store(k->zero + c, vf_load_f16(r->zeros + 2 * c));
    }
    k->whose = r->scales;
}

VEC_INLINE void channels_step(vbook book, uint32_t bits, const uint8_t *from, const float *scale, const float *zero,
                              float *row)
{
    vcode code[CODE_VECS];
    codes16(bits, from, code);
    for (uint32_t i = 0; i < CODE_VECS; i++)
        vf_store(row + i * VL, book_at(book, code[i]) * vf_load(scale + i * VL) + vf_load(zero + i * VL));
}

/* Channels first .. dim-1, at most 16, with copies of all that would be read past its end. */
VEC_INLINE void channels_tail(vbook book, uint32_t bits, const place_row *r, uint32_t first, uint32_t dim, float *row)
{
    _Alignas(64) uint8_t codes[64], scales[64], zeros[64];
    _Alignas(64) float scale[CODE_STEP], zero[CODE_STEP];
    bytes_part(r->codes + first * bits / 8, ((dim - first) * bits + 7) / 8, codes);
    bytes_part(r->scales + 2 * first, 2 * (dim - first), scales);
    bytes_part(r->zeros + 2 * first, 2 * (dim - first), zeros);
    for (uint32_t i = 0; i < CODE_STEP; i += VL) {
        vf_store(scale + i, vf_load_f16(scales + 2 * i));
        vf_store(zero + i, vf_load_f16(zeros + 2 * i));
    }
    channels_step(book, bits, codes, scale, zero, row + first);
}

VEC_INLINE void channels_row(uint32_t bits, channel_factors *k, const place_row *r, uint32_t dim, float *row)
{
    const vbook book = book_load(bits == 4 ? levels_uint4 : levels_uint2);
    uint32_t kept = dim < CHANNELS_KEPT ? dim / CODE_STEP * CODE_STEP : CHANNELS_KEPT, c = 0;
    if (k->whose != r->scales)
        factors_keep(k, r, kept);
    for (; c < kept; c += CODE_STEP)
        channels_step(book, bits, r->codes + c * bits / 8, k->scale + c, k->zero + c, row + c);
    for (; c < dim; c += CODE_STEP)
        channels_tail(book, bits, r, c, dim - c < CODE_STEP ? dim : c + CODE_STEP, row);
}

VEC_INLINE void kivi4_k_row(channel_factors *k, const place_row *r, uint32_t dim, float *row)
{
    channels_row(4, k, r, dim, row);
}
VEC_INLINE void kivi2_k_row(channel_factors *k, const place_row *r, uint32_t dim, float *row)
{
    channels_row(2, k, r, dim, row);
}
VEC_INLINE void kivi4_v_row(channel_factors *k, const place_row *r, uint32_t dim, float *row)
{
    (void)k;
    affine_row(4, 32, r, dim, row);
}
VEC_INLINE void kivi2_v_row(channel_factors *k, const place_row *r, uint32_t dim, float *row)
{
    (void)k;
    affine_row(2, 32, r, dim, row);
}

#endif
