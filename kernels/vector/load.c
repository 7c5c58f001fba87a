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
    X(f16) X(bf16) X(e4m3) X(e4m3_token) X(e5m2) X(e5m2_token) X(int8) X(int8_asym) X(q8_0) X(q5_1) X(q5_0) X(q4_1)    \
        X(q4_0) X(iq4_nl) X(a8) X(a4) X(a2) X(kivi4_k) X(kivi2_k) X(mxfp4) X(nvfp4) X(tq4) X(tq3)

#define LOAD(NAME)                                                                                                     \
    static void NAME##_load(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, float *rows,          \
                            size_t stride)                                                                             \
    {                                                                                                                  \
        const kvb_format *f = view->format;                                                                            \
        const uint32_t dim = view->dim;                                                                                \
        place at = place_open(view, h);                                                                                \
        for (uint32_t i = 0; i < n; i++, rows += stride) {                                                             \
            place_row r = place_at(&at, cells[i]);                                                                     \
            if (r.recent) {                                                                                            \
                r.codes = r.recent;                                                                                    \
                f16_row(f, &r, dim, rows);                                                                             \
            } else                                                                                                     \
                NAME##_row(f, &r, dim, rows);                                                                          \
            for (size_t c = dim; c < stride; c++)                                                                      \
                rows[c] = 0;                                                                                           \
        }                                                                                                              \
    }
ROWS(LOAD)

enum { NO_GROUP, WHOLE_ROW, SIXTEENS, GROUP_16, GROUP_32, ANY_GROUP }; /* what the format's group may be */

static bool group_fits(int kind, uint32_t group)
{
    switch (kind) {
    case NO_GROUP:
        return group == 0;
    case WHOLE_ROW:
        return group == KVB_GROUP_ROW;
    case SIXTEENS:
        return group != KVB_GROUP_ROW && group && group % CODE_STEP == 0;
    case GROUP_16:
        return group == 16;
    case GROUP_32:
        return group == 32;
    default:
        return group > 0 && group != KVB_GROUP_ROW;
    }
}

/* Scales and zeros are of one type; 0, which is f32, where there are none. */
static const struct {
    kvb_elem elem;
    uint32_t level_bits;
    kvb_axis axis;
    int group;
    kvb_elem scale_elem;
    kvb_load *load;
} loads[] = {
    {KVB_F32, 0, KVB_AXIS_NONE, NO_GROUP, 0, f32_load},
    {KVB_F16, 0, KVB_AXIS_NONE, NO_GROUP, 0, f16_load},
    {KVB_BF16, 0, KVB_AXIS_NONE, NO_GROUP, 0, bf16_load},
    {KVB_E4M3, 0, KVB_AXIS_NONE, NO_GROUP, 0, e4m3_load},
    {KVB_E4M3, 0, KVB_AXIS_CHANNELS, WHOLE_ROW, KVB_F32, e4m3_token_load},
    {KVB_E5M2, 0, KVB_AXIS_NONE, NO_GROUP, 0, e5m2_load},
    {KVB_E5M2, 0, KVB_AXIS_CHANNELS, WHOLE_ROW, KVB_F32, e5m2_token_load},
    {KVB_INT8, 0, KVB_AXIS_CHANNELS, WHOLE_ROW, KVB_F32, int8_load},
    {KVB_UINT8, 0, KVB_AXIS_CHANNELS, WHOLE_ROW, KVB_F32, int8_asym_load},
    {KVB_Q8_0, 0, KVB_AXIS_CHANNELS, GROUP_32, 0, q8_0_load},
    {KVB_Q5_1, 0, KVB_AXIS_CHANNELS, GROUP_32, 0, q5_1_load},
    {KVB_Q5_0, 0, KVB_AXIS_CHANNELS, GROUP_32, 0, q5_0_load},
    {KVB_Q4_1, 0, KVB_AXIS_CHANNELS, GROUP_32, 0, q4_1_load},
    {KVB_Q4_0, 0, KVB_AXIS_CHANNELS, GROUP_32, 0, q4_0_load},
    {KVB_IQ4_NL, 0, KVB_AXIS_CHANNELS, GROUP_32, 0, iq4_nl_load},
    {KVB_UINT8, 0, KVB_AXIS_CHANNELS, SIXTEENS, KVB_F16, a8_load},
    {KVB_UINT4, 0, KVB_AXIS_CHANNELS, SIXTEENS, KVB_F16, a4_load},
    {KVB_UINT2, 0, KVB_AXIS_CHANNELS, SIXTEENS, KVB_F16, a2_load},
    {KVB_UINT4, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, kivi4_k_load},
    {KVB_UINT2, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, kivi2_k_load},
    {KVB_E2M1, 0, KVB_AXIS_CHANNELS, GROUP_32, KVB_E8M0, mxfp4_load},
    {KVB_E2M1, 0, KVB_AXIS_CHANNELS, GROUP_16, KVB_E4M3, nvfp4_load},
    {KVB_CODEBOOK, 4, KVB_AXIS_CHANNELS, WHOLE_ROW, KVB_F16, tq4_load},
    {KVB_CODEBOOK, 3, KVB_AXIS_CHANNELS, WHOLE_ROW, KVB_F16, tq3_load},
};

kvb_load *KVB_ISA_NAME(kvb_load_of)(const kvb_format *f)
{
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (f->elem == loads[i].elem && f->level_bits == loads[i].level_bits && f->axis == loads[i].axis &&
            group_fits(loads[i].group, f->group) &&
            (!f->group || kvb_elem_is_block(f->elem) || f->scale_elem == loads[i].scale_elem) &&
            (!kvb_format_has_zeros(f) || f->zero_elem == loads[i].scale_elem))
            return loads[i].load;
    return NULL;
}
