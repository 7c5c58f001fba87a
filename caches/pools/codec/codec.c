/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of formats, and the choice of an instruction set's codecs. */
#include "caches/pools/codec/codec.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

extern const kvb_codec_isa kvb_codec_portable, kvb_codec_avx2, kvb_codec_avx512;
const kvb_codec_isa *const kvb_codec_isas[] = {
    &kvb_codec_portable,
#if defined(__x86_64__)
    &kvb_codec_avx2,
    &kvb_codec_avx512,
#endif
    NULL,
};

const float kvb_levels_3[8] = {-2.152f, -1.344f, -0.7560f, -0.2451f, 0.2451f, 0.7560f, 1.344f, 2.152f};
const float kvb_levels_4[16] = {-2.733f, -2.069f, -1.618f, -1.256f, -0.9424f, -0.6568f, -0.3881f, -0.1284f,
                                0.1284f, 0.3881f, 0.6568f, 0.9424f, 1.256f,   1.618f,   2.069f,   2.733f};

/* Bits of an element, or bytes of a block of 32. */
static const struct {
    uint8_t bits, block_bytes;
} widths[KVB_ELEM_COUNT] = {
    [KVB_F32] = {.bits = 32},         [KVB_F16] = {.bits = 16},           [KVB_BF16] = {.bits = 16},
    [KVB_E4M3] = {.bits = 8},         [KVB_E5M2] = {.bits = 8},           [KVB_E2M1] = {.bits = 4},
    [KVB_E8M0] = {.bits = 8},         [KVB_INT8] = {.bits = 8},           [KVB_UINT8] = {.bits = 8},
    [KVB_UINT4] = {.bits = 4},        [KVB_UINT2] = {.bits = 2},          [KVB_Q8_0] = {.block_bytes = 34},
    [KVB_Q5_1] = {.block_bytes = 24}, [KVB_Q5_0] = {.block_bytes = 22},   [KVB_Q4_1] = {.block_bytes = 20},
    [KVB_Q4_0] = {.block_bytes = 18}, [KVB_IQ4_NL] = {.block_bytes = 18},
};

size_t kvb_codes_bytes(const kvb_format *f, uint32_t dim)
{
    if (kvb_elem_is_block(f->elem))
        return (size_t)dim / 32 * widths[f->elem].block_bytes;
    return ((size_t)dim * (f->elem == KVB_CODEBOOK ? f->level_bits : widths[f->elem].bits) + 7) / 8;
}

size_t kvb_scale_bytes(kvb_elem elem)
{
    return widths[elem].bits / 8;
}

bool kvb_format_fits(const kvb_format *f, uint32_t dim, char *why, size_t why_bytes)
{
    uint32_t group = f->axis == KVB_AXIS_CHANNELS && f->group != KVB_GROUP_ROW ? f->group : 1;
    uint32_t block = kvb_transform_block(dim);
    if (dim % group) {
        uint32_t fits = group;
        while (dim % fits)
            fits /= 2;
        snprintf(why, why_bytes, "%s: groups of %u do not divide rows of %u channels; groups of up to %u would",
                 f->name, group, dim, fits);
        return false;
    }
    if (f->transform && block == 1) {
        snprintf(why, why_bytes,
                 "%s: a Hadamard transform needs an even number of channels, not %u; without +had it works", f->name,
                 dim);
        return false;
    }
    if (f->elem == KVB_CODEBOOK && block < 32) {
        snprintf(why, why_bytes,
                 "%s: its levels are for rotations of at least 32 channels, %u allow %u; a multiple of 32 works",
                 f->name, dim, block);
        return false;
    }
    return true;
}

float kvb_head_scale(const kvb_format *f, const float *amax, uint32_t n_kv_heads, uint32_t h)
{
    static const float largest[KVB_ELEM_COUNT] = {
        [KVB_E4M3] = 448.0f, [KVB_E5M2] = 57344.0f, [KVB_E2M1] = 6.0f * 448.0f /* element times scale */};
    float most = 0;
    if (!amax || f->head_scale == KVB_STATIC_NONE)
        return 1.0f;
    for (uint32_t i = 0; i < n_kv_heads; i++)
        if ((f->head_scale == KVB_STATIC_TENSOR || i == h) && amax[i] > most)
            most = amax[i];
    float scale = most / largest[f->elem];
    return scale > 0 && scale * 0 == 0 ? scale : 1.0f; /* 0, infinite or NaN: no factor */
}

kvb_rule kvb_decode_rule(const kvb_format *f)
{
    static const kvb_rule rules[KVB_ELEM_COUNT] = {
        [KVB_F32] = KVB_RULE_F32,      [KVB_F16] = KVB_RULE_F16,           [KVB_BF16] = KVB_RULE_BF16,
        [KVB_E4M3] = KVB_RULE_FP8,     [KVB_E5M2] = KVB_RULE_FP8,          [KVB_E2M1] = KVB_RULE_FP4,
        [KVB_INT8] = KVB_RULE_INT8,    [KVB_UINT8] = KVB_RULE_AFFINE,      [KVB_UINT4] = KVB_RULE_AFFINE,
        [KVB_UINT2] = KVB_RULE_AFFINE, [KVB_CODEBOOK] = KVB_RULE_CODEBOOK, [KVB_Q8_0] = KVB_RULE_GGML,
        [KVB_Q5_1] = KVB_RULE_GGML,    [KVB_Q5_0] = KVB_RULE_GGML,         [KVB_Q4_1] = KVB_RULE_GGML,
        [KVB_Q4_0] = KVB_RULE_GGML,    [KVB_IQ4_NL] = KVB_RULE_GGML,
    };
    if (f->axis == KVB_AXIS_TOKENS)
        return KVB_RULE_CHANNELS;
    return f->elem == KVB_UINT8 && f->scale_elem == KVB_F32 ? KVB_RULE_UINT8 : rules[f->elem];
}

static const kvb_codec_isa *_Atomic best; /* found once; threads that race find the same one */

int kvb_codec_limit(const char *name)
{
    const kvb_codec_isa *found = NULL;
    bool known = !name;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa && !(name && known); isa++) {
        if ((*isa)->available())
            found = *isa;
        if (name && !strcmp((*isa)->name, name))
            known = true;
    }
    if (!known)
        return -EINVAL;
    best = found;
    return 0;
}

const kvb_codec_isa *kvb_codec_best(void)
{
    if (!best)
        kvb_codec_limit(NULL);
    return best;
}

void kvb_codec_read(const kvb_view *v, uint32_t h, uint32_t first, uint32_t n, float *rows)
{
    const kvb_codec_isa *isa = kvb_codec_best();
    const kvb_format *f = v->format;
    kvb_decode *decode = isa->decode[kvb_decode_rule(f)], *recent = isa->decode[KVB_RULE_F16];
    uint32_t shared = f->axis == KVB_AXIS_TOKENS ? f->group : 1, w = f->residual_cells;
    float head_scale = v->head_scales ? v->head_scales[h] : 1.0f;

    for (uint32_t i = 0; i < n; i++, rows += v->dim) {
        uint32_t c = first + i, slot = w ? v->recent_slot[c / w] : KVB_SLOT_NONE;
        const char *codes = (const char *)v->base + h * v->head_stride + c * v->cell_stride;
        const char *scales = v->scales, *zeros = v->zeros;
        if (scales)
            scales += h * v->scale_head_stride + c / shared * v->scale_cell_stride;
        if (zeros)
            zeros += h * v->zero_head_stride + c / shared * v->zero_cell_stride;
        if (slot != KVB_SLOT_NONE)
            codes = (const char *)v->recent + slot * v->recent_slot_stride + h * v->recent_head_stride +
                    (size_t)(c % w) * v->dim * 2;
        const kvb_coded from = {
            f, (void *)(uintptr_t)codes, (void *)(uintptr_t)scales, (void *)(uintptr_t)zeros, head_scale, 0};
        (slot != KVB_SLOT_NONE ? recent : decode)(&from, v->dim, rows);
        if (f->transform)
            isa->rotate(f->transform, v->dim, true, rows);
    }
}
