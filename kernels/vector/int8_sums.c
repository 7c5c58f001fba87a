/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights times a block of values. Of a group of channels, the weight of a cell times the cell's d is rounded to a whole
 * number of steps, at most 16383 of them; the sum of whole numbers times (code - offset) is exact in 32 bits:
 * 16383 * 128 * 64 < 2^27. What m' = m + offset * d adds is the same for all channels of the group, and summed as floats.
 */
#include "kernels/vector/int8.h"
#include "kernels/vector/int8_product.h"
#include "kernels/vector/int8_shape.h"

#define STEPS 16383.0f

/* Below this a step would be no normal float: the largest product is taken to be it, and the sum is off by that. */
#define LEAST_PRODUCT 0x1p-110f

typedef struct values {
    const int8_shape *shape;
    const int32_t *tile;
    const float *d, *m;
    bool finite;    /* every d and m: a weight of 0 then needs no looking at */
    uint32_t steps; /* pairs of cells */
    kvb_ask *ask;
} values;

/* A row's weights for one group. */
typedef struct whole_weights {
    _Alignas(64) int32_t pairs[BLOCK / 2]; /* two cells' whole numbers of steps, 16 bits each */
    float step;                            /* NaN where a product is infinite or NaN: so are then the sums */
    float rest;                            /* sum of weight * m' */
} whole_weights;

VEC_INLINE vf product_of(vf p, const float *x, bool finite)
{
    return finite ? (vf)(p * vf_load(x)) : vf_weighted(p, vf_load(x));
}

VEC_INLINE void weights_round(const float *weights, const float *d, const float *m, bool finite, whole_weights *to)
{
    vf product[BLOCK / VL], rest = vf_set(0);
    vi most = vi_set(0);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < BLOCK / VL; i++) {
        vf p = vf_load(weights + i * VL);
        product[i] = product_of(p, d + i * VL, finite);
        most = vi_size_max(most, product[i]);
        if (m)
            rest = rest + product_of(p, m + i * VL, finite);
    }
    int32_t bits = vi_largest(most);
    float largest = float_of_bits(bits < 0x7f800000 ? bits : 0x7fc00000);
    largest = largest < LEAST_PRODUCT ? LEAST_PRODUCT : largest;
    vf factor = vf_set(STEPS / largest);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < BLOCK / VL; i += 2)
        vf_store_i16(to->pairs + i * VL / 2, product[i] * factor, product[i + 1] * factor);
    to->step = largest * (1.0f / STEPS);
    to->rest = m ? vf_total(rest) : 0;
}

/* Channels c .. : vecs vectors of them, of `parts` groups. whole: [rows][parts]. */
VEC_INLINE void channels_multiply(uint32_t rows, uint32_t vecs, uint32_t parts, const values *v,
                                  const whole_weights *whole, uint32_t c, float *const *sums)
{
    vi acc[PRODUCT_ROWS * PRODUCT_VECS];
    kvb_ask_step(v->ask);
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++)
        acc[j] = vi_set(0);
    int8_values_product(rows, vecs, parts, v->steps, whole, sizeof *whole, v->tile + c, v->shape->width, acc);
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++) {
        const whole_weights *w = &whole[j * parts / vecs];
        float *to = sums[j / vecs] + c + j % vecs * VL;
        vf x = vf_load(to);
        if (v->m)
            x = x + vf_set(w->rest);
        vf_store(to, vf_fma(vi_to_vf(acc[j]), vf_set(w->step), x));
    }
}

/* Groups g .. g + parts - 1, of which one product takes all, or one after the other its channels. */
VEC_INLINE void groups_multiply(uint32_t rows, uint32_t parts, const values *v, uint32_t g, const float *weights,
                                float *const *sums)
{
    const uint32_t span = PRODUCT_VECS * VL;
    whole_weights whole[PRODUCT_ROWS * 2];
    uint32_t c = g * v->shape->group, end = c + parts * v->shape->group;

    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < parts; i++) {
            const float *d = v->d + (g + i) * BLOCK, *m = v->m ? v->m + (g + i) * BLOCK : NULL;
            if (v->finite)
                weights_round(weights + r * BLOCK, d, m, true, &whole[r * parts + i]);
            else
                weights_round(weights + r * BLOCK, d, m, false, &whole[r * parts + i]);
        }
    for (; c + span <= end; c += span)
        channels_multiply(rows, PRODUCT_VECS, parts, v, whole, c, sums);
    if (parts > 1)
        return;
    for (; c + 2 * VL <= end; c += 2 * VL)
        channels_multiply(rows, 2, 1, v, whole, c, sums);
    for (; c < end; c += VL)
        channels_multiply(rows, 1, 1, v, whole, c, sums);
}

VEC_INLINE void panel_multiply(uint32_t rows, const values *v, const float *weights, float *const *sums)
{
    const int8_shape *s = v->shape;
    uint32_t g = 0;
    if (2 * s->group == PRODUCT_VECS * VL)
        for (; g + 2 <= s->groups; g += 2)
            groups_multiply(rows, 2, v, g, weights, sums);
    for (; g < s->groups; g++)
        groups_multiply(rows, 1, v, g, weights, sums);
}

#define PANEL(ROWS)                                                                                                    \
    static __attribute__((noinline)) void panel_##ROWS(const values *v, const float *weights, float *const *sums)      \
    {                                                                                                                  \
        panel_multiply(ROWS, v, weights, sums);                                                                        \
    }
PANEL(1)
PANEL(2)
PANEL(3)
PANEL(4)
#if PRODUCT_ROWS > 4
PANEL(5)
PANEL(6)
#endif

typedef void panel(const values *v, const float *weights, float *const *sums);
static panel *const panels[PRODUCT_ROWS] = {
    panel_1, panel_2, panel_3, panel_4,
#if PRODUCT_ROWS > 4
    panel_5, panel_6,
#endif
};

static bool all_finite(const float *x, uint32_t n)
{
    vi most = vi_set(0);
    for (uint32_t i = 0; i < n; i += VL)
        most = vi_size_max(most, vf_load(x + i));
    return vi_largest(most) < 0x7f800000;
}

void KVB_ISA_NAME(kvb_int8_sums)(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                                 uint32_t n_rows, float *const *sums, kvb_ask *ask, void *scratch)
{
    const int8_shape s = int8_shape_of(v->format, v->dim);
    const int8_block block = KVB_ISA_NAME(kvb_int8_values)(&s, v, h, cells, n, ask, scratch);
    const float *d = block.d, *m = block.m;
    const values all = {.shape = &s,
                        .tile = block.tile,
                        .d = d,
                        .m = m,
                        .steps = (n + 1) / 2,
                        .ask = ask,
                        .finite = all_finite(d, s.groups * BLOCK) && (!m || all_finite(m, s.groups * BLOCK))};

    for (uint32_t r = 0, take; r < n_rows; r += take) {
        take = int8_panel_rows(n_rows - r);
        panels[take - 1](&all, weights + (size_t)r * BLOCK, sums + r);
    }
    kvb_ask_until(ask, 2, 2);
}
