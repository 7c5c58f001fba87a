/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that bf16.h lists, with BF16 of NEON and SVE (and I8MM). */
#if !defined(KVB_BF16_LEVEL_H) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define KVB_BF16_LEVEL_H

typedef vi pairs;
#define ROW_VECS 1u

/* FP8 is converted by way of floats. */
typedef bool fp8_table;

static inline fp8_table fp8_table_of(kvb_elem elem)
{
    return elem == KVB_E5M2;
}

VEC_INLINE void row_load(bool fp8, fp8_table wide, const uint8_t *row, uint32_t c, uint32_t dim, pairs x[ROW_VECS])
{
    const uint32_t n = dim - c < 2 * VL ? dim - c : 2 * VL, size = fp8 ? 1 : 2, some = fp8 ? FP8_STEP : 4 * VL;
    _Alignas(64) uint8_t part[64];
    vf floats[2 * VL > FP8_STEP ? 2 * VL / VL : FP8_STEP / VL];

    row += c * size;
    if (n < 2 * VL || c * size + some > dim * size) {
        bytes_part(row, n * size, part);
        row = part;
    }
    if (!fp8) {
        x[0] = vi_load((const int32_t *)(const void *)row);
        return;
    }
    for (uint32_t i = 0; i < 2 * VL; i += FP8_STEP)
        fp8_step(wide, row + i, floats + i / VL);
    x[0] = vi_upper_halves(floats[0], floats[1]);
}

VEC_INLINE pairs pairs_low(pairs a, pairs b)
{
    return vi_zip_halves(a, b, false);
}
VEC_INLINE pairs pairs_high(pairs a, pairs b)
{
    return vi_zip_halves(a, b, true);
}

VEC_INLINE void pairs_store(void *to, vf a, vf b)
{
    vf_store_bf16(to, a);
    vf_store_bf16((uint16_t *)to + VL, b);
}

VEC_INLINE vi pairs_dot(vi c, vi tile, vi row)
{
    return vi_dot_bf16(c, tile, row);
}
VEC_INLINE vi pairs_dot_at(vi c, vi tile, const void *row)
{
    return vi_dot_bf16(c, tile, vi_load(row));
}

VEC_INLINE vf query_within(vf x, float most)
{
    const vf kept = vf_max(vf_min(x, vf_set(most)), vf_set(-most));
    return vf_where_equal(x - x, vf_set(0), kept, x); /* infinity and NaN less themselves are NaN */
}

VEC_INLINE void keys_pack(bool fp8, fp8_table wide, uint32_t dim, const uint8_t *const *rows, uint32_t n,
                          uint32_t first, packing tile)
{
    for (uint32_t i = first; i < n && i < first + SOME; i += VL)
        for (uint32_t c = 0; c < dim; c += 2 * VL) {
            vf v[VL];
            for (uint32_t j = 0; j < VL; j++) {
                pairs x[ROW_VECS];
                row_load(fp8, wide, rows[i + j < n ? i + j : i], c, dim, x);
                v[j] = (vf)x[0];
            }
            vf_transpose(v);
            for (uint32_t j = 0; j < VL; j++)
                vf_store((float *)(void *)(packing_at(tile, i) + (c / 2 + j) * tile.row), v[j]);
        }
}

#endif
