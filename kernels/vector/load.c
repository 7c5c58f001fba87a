/* SPDX-License-Identifier: Apache-2.0 */
/* The loads of one level: a loop over cells for each kind of row, and which format has which. */
#include "kernels/vector/load.h"
#include "kernels/vector/load_channels.h"
#include "kernels/vector/load_floats.h"
#include "kernels/vector/load_ggml.h"
#include "kernels/vector/load_groups.h"
#include "kernels/vector/load_place.h"

#include <string.h>

/* X(row): every kind that lies row by row; and those with windows. */
// clang-format off
#define PLAIN(X)                                                                                                       \
    X(f32) X(f16) X(bf16) X(e4m3) X(e4m3_token) X(e5m2) X(e5m2_token) X(int8) X(int8_asym)                             \
    X(q8_0) X(q5_1) X(q5_0) X(q4_1) X(q4_0) X(iq4_nl)                                                                  \
    X(a8g32) X(a8g64) X(a8g128) X(a4g32) X(a4g64) X(a4g128) X(a2g32) X(a2g64) X(a2g128)                                \
    X(mxfp4) X(nvfp4) X(tq4) X(tq3)
#define WINDOWED(X) X(kivi4_v) X(kivi2_v) X(kivi4_k) X(kivi2_k)
// clang-format on

static void tails_clear(uint32_t dim, uint32_t n, float *rows, size_t stride)
{
    for (uint32_t i = 0; i < n && dim < stride; i++)
        memset(rows + i * stride + dim, 0, (stride - dim) * sizeof *rows);
}

/* The loops over rows are compiled once more for the commonest dim. */
enum { COMMON_DIM = 128 };

/* Cells as they are stored: `mapped` if there is a block table. */
__attribute__((noinline)) static void cells_map(place *p, const uint32_t *cells, uint32_t n, uint32_t *mapped)
{
    for (uint32_t i = 0; i < n; i++)
        mapped[i] = place_stored(p, cells[i]);
}

#define LOAD(NAME)                                                                                                     \
    VEC_INLINE void NAME##_rows(const kvb_view *v, const place *p, const uint32_t *cells, uint32_t n, uint32_t dim,    \
                                float *rows, size_t stride)                                                            \
    {                                                                                                                  \
        const kvb_format *f = v->format;                                                                               \
        const place from = *p;                                                                                         \
        const size_t codes = v->cell_stride, scales = v->scale_cell_stride, zeros = v->zero_cell_stride;               \
        for (uint32_t i = 0; i < n; i++) {                                                                             \
            const size_t c = cells[i];                                                                                 \
            const place_row r = {from.codes + c * codes, from.scales + c * scales, from.zeros + c * zeros, false};     \
            NAME##_row(f, &r, dim, rows + i * stride);                                                                 \
        }                                                                                                              \
    }                                                                                                                  \
    static void NAME##_load(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, float *rows,             \
                            size_t stride)                                                                             \
    {                                                                                                                  \
        uint32_t mapped[PLACES];                                                                                       \
        place p = place_open(v, h);                                                                                    \
        for (uint32_t some; n; n -= some, cells += some, rows += some * stride) {                                      \
            const uint32_t *here = cells;                                                                              \
            some = v->block_table && n > PLACES ? PLACES : n;                                                          \
            if (v->block_table)                                                                                        \
                cells_map(&p, cells, some, mapped), here = mapped;                                                     \
            if (v->dim == COMMON_DIM)                                                                                  \
                NAME##_rows(v, &p, here, some, COMMON_DIM, rows, stride);                                              \
            else                                                                                                       \
                NAME##_rows(v, &p, here, some, v->dim, rows, stride);                                                  \
            tails_clear(v->dim, some, rows, stride);                                                                   \
        }                                                                                                              \
    }
PLAIN(LOAD)

__attribute__((noinline)) static void places_locate(place *p, const uint32_t *cells, uint32_t n, place_row *at)
{
    places_find(p, cells, n, at);
}

/* Where the rows are is found first, for many: the loop over rows then holds nothing but what is decoded. */
#define LOAD_WINDOWED(NAME)                                                                                            \
    VEC_INLINE void NAME##_rows(channel_factors *k, const place_row *at, uint32_t n, uint32_t dim, float *rows,        \
                                size_t stride)                                                                         \
    {                                                                                                                  \
        for (uint32_t i = 0; i < n; i++)                                                                               \
            if (at[i].recent)                                                                                          \
                f16_row(NULL, at + i, dim, rows + i * stride);                                                         \
            else                                                                                                       \
                NAME##_row(k, at + i, dim, rows + i * stride);                                                         \
    }                                                                                                                  \
    static void NAME##_load(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, float *rows,             \
                            size_t stride)                                                                             \
    {                                                                                                                  \
        channel_factors k;                                                                                             \
        place_row at[PLACES];                                                                                          \
        k.whose = NULL;                                                                                                \
        place p = place_open(v, h);                                                                                    \
        for (uint32_t some; n; n -= some, cells += some, rows += some * stride) {                                      \
            some = n < PLACES ? n : PLACES;                                                                            \
            places_locate(&p, cells, some, at);                                                                        \
            if (v->dim == COMMON_DIM)                                                                                  \
                NAME##_rows(&k, at, some, COMMON_DIM, rows, stride);                                                   \
            else                                                                                                       \
                NAME##_rows(&k, at, some, v->dim, rows, stride);                                                       \
            tails_clear(v->dim, some, rows, stride);                                                                   \
        }                                                                                                              \
    }
WINDOWED(LOAD_WINDOWED)

#define ANY_GROUP 0xfffffffeu

/* Scales and zeros are of one type; 0, which is f32, where there are none. */
static const struct {
    kvb_elem elem;
    bool windowed;
    uint32_t level_bits;
    kvb_axis axis;
    uint32_t group; /* or ANY_GROUP */
    kvb_elem scale_elem;
    kvb_load *load;
} loads[] = {
    {KVB_F32, false, 0, KVB_AXIS_NONE, 0, 0, f32_load},
    {KVB_F16, false, 0, KVB_AXIS_NONE, 0, 0, f16_load},
    {KVB_BF16, false, 0, KVB_AXIS_NONE, 0, 0, bf16_load},
    {KVB_E4M3, false, 0, KVB_AXIS_NONE, 0, 0, e4m3_load},
    {KVB_E4M3, false, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, e4m3_token_load},
    {KVB_E5M2, false, 0, KVB_AXIS_NONE, 0, 0, e5m2_load},
    {KVB_E5M2, false, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, e5m2_token_load},
    {KVB_INT8, false, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, int8_load},
    {KVB_UINT8, false, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, int8_asym_load},
    {KVB_Q8_0, false, 0, KVB_AXIS_CHANNELS, 32, 0, q8_0_load},
    {KVB_Q5_1, false, 0, KVB_AXIS_CHANNELS, 32, 0, q5_1_load},
    {KVB_Q5_0, false, 0, KVB_AXIS_CHANNELS, 32, 0, q5_0_load},
    {KVB_Q4_1, false, 0, KVB_AXIS_CHANNELS, 32, 0, q4_1_load},
    {KVB_Q4_0, false, 0, KVB_AXIS_CHANNELS, 32, 0, q4_0_load},
    {KVB_IQ4_NL, false, 0, KVB_AXIS_CHANNELS, 32, 0, iq4_nl_load},
    {KVB_UINT8, false, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, a8g32_load},
    {KVB_UINT8, false, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, a8g64_load},
    {KVB_UINT8, false, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, a8g128_load},
    {KVB_UINT4, false, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, a4g32_load},
    {KVB_UINT4, false, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, a4g64_load},
    {KVB_UINT4, false, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, a4g128_load},
    {KVB_UINT2, false, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, a2g32_load},
    {KVB_UINT2, false, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, a2g64_load},
    {KVB_UINT2, false, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, a2g128_load},
    {KVB_UINT4, true, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, kivi4_v_load},
    {KVB_UINT2, true, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, kivi2_v_load},
    {KVB_UINT4, true, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, kivi4_k_load},
    {KVB_UINT2, true, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, kivi2_k_load},
    {KVB_E2M1, false, 0, KVB_AXIS_CHANNELS, 32, KVB_E8M0, mxfp4_load},
    {KVB_E2M1, false, 0, KVB_AXIS_CHANNELS, 16, KVB_E4M3, nvfp4_load},
    {KVB_CODEBOOK, false, 4, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F16, tq4_load},
    {KVB_CODEBOOK, false, 3, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F16, tq3_load},
};

kvb_load *KVB_ISA_NAME(kvb_load_of)(const kvb_format *f)
{
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (f->elem == loads[i].elem && (f->window_cells > 0) == loads[i].windowed &&
            f->level_bits == loads[i].level_bits && f->axis == loads[i].axis &&
            (f->group == loads[i].group || (loads[i].group == ANY_GROUP && f->group)) &&
            (!f->group || kvb_elem_is_block(f->elem) || f->scale_elem == loads[i].scale_elem) &&
            (!kvb_format_has_zeros(f) || f->zero_elem == loads[i].scale_elem))
            return loads[i].load;
    return NULL;
}
