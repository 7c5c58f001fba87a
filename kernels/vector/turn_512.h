/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of 16 cells turned, so that a vector holds the same dword of each: what tiles of keys are made of. AVX-512. */
#ifndef KVB_VECTOR_TURN_512_H
#define KVB_VECTOR_TURN_512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* Lane 4 l + m of r[d]: the dword d of 16 bytes at `byte` of row 4 l + m. */
static inline __attribute__((always_inline)) void dwords_turn(const uint8_t *const *row, size_t byte, __m512i r[4])
{
    __m512i a[4];
    for (int m = 0; m < 4; m++) {
#define FOUR(L) _mm_loadu_si128((const __m128i *)(const void *)(row[4 * (L) + m] + byte))
        a[m] = _mm512_mask_broadcast_i32x4(_mm512_castsi128_si512(FOUR(0)), 0x00f0, FOUR(1));
        a[m] = _mm512_mask_broadcast_i32x4(_mm512_mask_broadcast_i32x4(a[m], 0x0f00, FOUR(2)), 0xf000, FOUR(3));
#undef FOUR
    }
    __m512i low = _mm512_unpacklo_epi32(a[0], a[1]), high = _mm512_unpackhi_epi32(a[0], a[1]);
    __m512i other_low = _mm512_unpacklo_epi32(a[2], a[3]), other_high = _mm512_unpackhi_epi32(a[2], a[3]);
    r[0] = _mm512_unpacklo_epi64(low, other_low);
    r[1] = _mm512_unpackhi_epi64(low, other_low);
    r[2] = _mm512_unpacklo_epi64(high, other_high);
    r[3] = _mm512_unpackhi_epi64(high, other_high);
}

#endif
