/* SPDX-License-Identifier: Apache-2.0 */
/* Rows whose every channel has a scale and a zero of its own, f16, shared by neighbouring cells: KIVI's K. Any dim. */
#ifndef KVB_VECTOR_LOAD_CHANNELS_H
#define KVB_VECTOR_LOAD_CHANNELS_H

#include "kernels/vector/load_groups.h"

VEC_INLINE void channels_step(vbook book, uint32_t bits, const uint8_t *from, const uint8_t *scales,
                              const uint8_t *zeros, float *row)
{
    vcode code[CODE_VECS];
    codes16(bits, from, code);
    for (uint32_t i = 0; i < CODE_VECS; i++) {
        vf scale = vf_load_f16(scales + 2 * i * VL), zero = vf_load_f16(zeros + 2 * i * VL);
        vf_store(row + i * VL, book_at(book, code[i]) * scale + zero);
    }
}

VEC_INLINE void channels_row(uint32_t bits, const place_row *r, uint32_t dim, float *row)
{
    vbook book = book_load(bits == 4 ? levels_uint4 : levels_uint2);
    uint32_t c = 0;
    for (; c + CODE_STEP <= dim; c += CODE_STEP)
        channels_step(book, bits, r->codes + c * bits / 8, r->scales + 2 * c, r->zeros + 2 * c, row + c);
    if (c < dim) {
        _Alignas(64) uint8_t codes[64], scales[64], zeros[64];
        bytes_part(r->codes + c * bits / 8, ((dim - c) * bits + 7) / 8, codes);
        bytes_part(r->scales + 2 * c, 2 * (dim - c), scales);
        bytes_part(r->zeros + 2 * c, 2 * (dim - c), zeros);
        channels_step(book, bits, codes, scales, zeros, row + c);
    }
}

VEC_INLINE void kivi4_k_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)
{
    (void)f;
    channels_row(4, r, dim, row);
}
VEC_INLINE void kivi2_k_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)
{
    (void)f;
    channels_row(2, r, dim, row);
}

#endif
