/* SPDX-License-Identifier: Apache-2.0 */
/* The loads of one level: a loop over cells for each kind of row, and which format has which. */
#include "kernels/vector/load.h"
#include "kernels/vector/load_channels.h"
#include "kernels/vector/load_floats.h"
#include "kernels/vector/load_ggml.h"
#include "kernels/vector/load_groups.h"
#include "kernels/vector/load_place.h"

#include <string.h>

/* X(row): every kind. */
#define ROWS(X)                                                                                                        \
    X(f32)                                                                                                             \
    X(f16)                                                                                                             \
    X(bf16) X(e4m3) X(e4m3_token) X(e5m2) X(e5m2_token) X(int8) X(int8_asym) X(q8_0) X(q5_1) X(q5_0) X(q4_1) X(q4_0)   \
        X(iq4_nl) X(a8g32) X(a8g64) X(a8g128) X(a4g32) X(a4g64) X(a4g128) X(a2g32) X(a2g64) X(a2g128) X(kivi4_k)       \
            X(kivi2_k) X(mxfp4) X(nvfp4) X(tq4) X(tq3)

/* Where the rows are is found first, for many: the loop over rows then holds nothing but constants and what is decoded.
 * For the commonest dim it is compiled with the dim known. */
__attribute__((noinline)) static void places_locate(place *p, const uint32_t *cells, uint32_t n, place_row *at)
{
    places_find(p, cells, n, at);
}

static void tails_clear(uint32_t dim, uint32_t n, float *rows, size_t stride)
{
    for (uint32_t i = 0; i < n && dim < stride; i++)
        memset(rows + i * stride + dim, 0, (stride - dim) * sizeof *rows);
}

enum { COMMON_DIM = 128 };

#define LOAD(NAME)                                                                                                     \
    VEC_INLINE void NAME##_rows(const kvb_format *f, const place_row *at, uint32_t n, uint32_t dim, float *rows,       \
                                size_t stride)                                                                         \
    {                                                                                                                  \
        for (uint32_t i = 0; i < n; i++)                                                                               \
            if (at[i].recent)                                                                                          \
                f16_row(f, at + i, dim, rows + i * stride);                                                            \
            else                                                                                                       \
                NAME##_row(f, at + i, dim, rows + i * stride);                                                         \
    }                                                                                                                  \
    static void NAME##_load(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, float *rows,          \
                            size_t stride)                                                                             \
    {                                                                                                                  \
        place_row at[PLACES];                                                                                          \
        place p = place_open(view, h);                                                                                 \
        for (uint32_t first = 0, some; first < n; first += some, rows += some * stride) {                              \
            some = n - first < PLACES ? n - first : PLACES;                                                            \
            places_locate(&p, cells + first, some, at);                                                                \
            if (view->dim == COMMON_DIM)                                                                               \
                NAME##_rows(view->format, at, some, COMMON_DIM, rows, stride);                                         \
            else                                                                                                       \
                NAME##_rows(view->format, at, some, view->dim, rows, stride);                                          \
            tails_clear(view->dim, some, rows, stride);                                                                \
        }                                                                                                              \
    }
ROWS(LOAD)

#define ANY_GROUP 0xfffffffeu

/* Scales and zeros are of one type; 0, which is f32, where there are none. */
static const struct {
    kvb_elem elem;
    uint32_t level_bits;
    kvb_axis axis;
    uint32_t group; /* or ANY_GROUP */
    kvb_elem scale_elem;
    kvb_load *load;
} loads[] = {
    {KVB_F32, 0, KVB_AXIS_NONE, 0, 0, f32_load},
    {KVB_F16, 0, KVB_AXIS_NONE, 0, 0, f16_load},
    {KVB_BF16, 0, KVB_AXIS_NONE, 0, 0, bf16_load},
    {KVB_E4M3, 0, KVB_AXIS_NONE, 0, 0, e4m3_load},
    {KVB_E4M3, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, e4m3_token_load},
    {KVB_E5M2, 0, KVB_AXIS_NONE, 0, 0, e5m2_load},
    {KVB_E5M2, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, e5m2_token_load},
    {KVB_INT8, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, int8_load},
    {KVB_UINT8, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, int8_asym_load},
    {KVB_Q8_0, 0, KVB_AXIS_CHANNELS, 32, 0, q8_0_load},
    {KVB_Q5_1, 0, KVB_AXIS_CHANNELS, 32, 0, q5_1_load},
    {KVB_Q5_0, 0, KVB_AXIS_CHANNELS, 32, 0, q5_0_load},
    {KVB_Q4_1, 0, KVB_AXIS_CHANNELS, 32, 0, q4_1_load},
    {KVB_Q4_0, 0, KVB_AXIS_CHANNELS, 32, 0, q4_0_load},
    {KVB_IQ4_NL, 0, KVB_AXIS_CHANNELS, 32, 0, iq4_nl_load},
    {KVB_UINT8, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, a8g32_load},
    {KVB_UINT8, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, a8g64_load},
    {KVB_UINT8, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, a8g128_load},
    {KVB_UINT4, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, a4g32_load},
    {KVB_UINT4, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, a4g64_load},
    {KVB_UINT4, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, a4g128_load},
    {KVB_UINT2, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, a2g32_load},
    {KVB_UINT2, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, a2g64_load},
    {KVB_UINT2, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, a2g128_load},
    {KVB_UINT4, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, kivi4_k_load},
    {KVB_UINT2, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, kivi2_k_load},
    {KVB_E2M1, 0, KVB_AXIS_CHANNELS, 32, KVB_E8M0, mxfp4_load},
    {KVB_E2M1, 0, KVB_AXIS_CHANNELS, 16, KVB_E4M3, nvfp4_load},
    {KVB_CODEBOOK, 4, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F16, tq4_load},
    {KVB_CODEBOOK, 3, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F16, tq3_load},
};

kvb_load *KVB_ISA_NAME(kvb_load_of)(const kvb_format *f)
{
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (f->elem == loads[i].elem && f->level_bits == loads[i].level_bits && f->axis == loads[i].axis &&
            (f->group == loads[i].group || (loads[i].group == ANY_GROUP && f->group)) &&
            (!f->group || kvb_elem_is_block(f->elem) || f->scale_elem == loads[i].scale_elem) &&
            (!kvb_format_has_zeros(f) || f->zero_elem == loads[i].scale_elem))
            return loads[i].load;
    return NULL;
}
