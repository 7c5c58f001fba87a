/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Integer codes in the vectors of vec.h: what rows of quantised formats are made of. One header for each level; all have
 * the functions of vec_codes_avx512.h. Codes are worked on 16 channels at a time, in CODE_VECS vectors.
 *
 * A vcode lane holds a code in its lowest bits; those above are arbitrary (neighbouring codes). A vbook is a table of 16
 * floats, looked up by the lowest 4 bits: narrower codes need one that repeats itself.
 */
#ifndef KVB_VECTOR_VEC_CODES_H
#define KVB_VECTOR_VEC_CODES_H

#include "kernels/vector/vec.h"

#define CODE_STEP 16u
#define CODE_VECS (CODE_STEP / VL)

#if defined(__AVX512F__)
#include "kernels/vector/vec_codes_avx512.h"
#elif defined(__AVX2__)
#include "kernels/vector/vec_codes_avx2.h"
#else
#include "kernels/vector/vec_codes_portable.h"
#endif

/* Every level of a book times scale, plus zero: two roundings. */
VEC_INLINE vbook book_affine(vbook b, vf scale, vf zero)
{
    for (uint32_t i = 0; i < BOOK_VECS; i++)
        b.v[i] = b.v[i] * scale + zero;
    return b;
}

VEC_INLINE vbook book_scaled(vbook b, vf scale)
{
    for (uint32_t i = 0; i < BOOK_VECS; i++)
        b.v[i] = b.v[i] * scale;
    return b;
}

#endif
