/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights times a block of values. The weight of a cell times the d of one of its groups is rounded to a whole number
 * of steps, at most 127 of them; sums of whole numbers times codes are exact in 32 bits: 127 * 255 * 64 < 2^21.
 * What m' = m + offset * d adds is the same for all channels of the group, and summed as floats.
 */
#include "kernels/vector/int8.h"
#include "kernels/vector/dword_product.h"
#include "kernels/vector/int8_shape.h"

#define STEPS 127.0f

/* Below this a step would be no normal float: the largest product is taken to be it, and the sum is off by that. */
#define LEAST_PRODUCT 0x1p-110f

typedef struct values {
    const int8_shape *shape;
    const int32_t *tile;
    const float *d, *m;
    const float
        *most; /* of each cell the largest |d|; NULL: not all of d and m are finite, weights of 0 need looking at */
    uint32_t depth; /* dwords of cells */
    kvb_ask *ask;
} values;

/* What a row's products with d are rounded to multiples of, and how many make 1. NaN where one of them is infinite or
 * NaN: so are then the sums. */
typedef struct row_step {
    float step, per;
} row_step;

/* A row's weights for one group. */
typedef struct whole_weights {
    _Alignas(64) int32_t of[BLOCK / TILE_CODES]; /* TILE_CODES cells' whole numbers of steps in each */
    int32_t sum;                                 /* of these numbers */
    float step;
    float rest; /* sum of weight * m' */
} whole_weights;

VEC_INLINE vf product_of(vf p, const float *x, bool finite)
{
    return finite ? (vf)(p * vf_load(x)) : vf_weighted(p, vf_load(x));
}

/* The largest weight * d makes STEPS of them. */
VEC_INLINE row_step step_find(const float *weights, const float *d, bool finite)
{
    vi most = vi_set(0);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < BLOCK; i += VL)
        most = vi_size_max(most, product_of(vf_load(weights + i), d + i, finite));
    int32_t bits = vi_largest(most);
    float largest = float_of_bits(bits < 0x7f800000 ? bits : 0x7fc00000);
    largest = largest < LEAST_PRODUCT ? LEAST_PRODUCT : largest;
    return (row_step){largest * (1.0f / STEPS), STEPS / largest};
}

VEC_INLINE void weights_round(const float *weights, const float *d, const float *m, bool finite, row_step step,
                              whole_weights *to)
{
    const vf per = vf_set(step.per);
    vf product[BLOCK / VL], rest = vf_set(0);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < BLOCK / VL; i++) {
        vf p = vf_load(weights + i * VL);
        product[i] = product_of(p, d + i * VL, finite) * per;
        if (m)
            rest = rest + product_of(p, m + i * VL, finite);
    }
    to->sum = whole_store(product, to->of);
    to->step = step.step;
    to->rest = m ? vf_total(rest) : 0;
}

/* Channels c .. : vecs vectors of them, of `parts` groups. whole: [rows][parts]. */
VEC_INLINE void channels_multiply(uint32_t rows, uint32_t vecs, uint32_t parts, const values *v,
                                  const whole_weights *whole, uint32_t c, float *const *sums)
{
    const int32_t offset = TILE_CODES == 4 ? v->shape->of.offset : 0; /* of 16 bits, it is taken off already */
    const void *a[PRODUCT_ROWS * 2];
    vi acc[PRODUCT_ROWS * PRODUCT_VECS];
    kvb_ask_step(v->ask);
#pragma GCC unroll 12
    for (uint32_t j = 0; j < rows * parts; j++)
        a[j] = whole[j].of;
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++)
        acc[j] = vi_set(-offset * whole[j * parts / vecs].sum);
    dword_product(vi_dot_codes, rows, vecs, parts, v->depth, a, v->tile + c, v->shape->width, acc);
    __asm__ volatile(""
                     :
                     : "r"(whole)
                     : "memory"); /* steps and rests are read from here: gcc 12 spilled the tile for them */
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
                                const row_step *steps, float *const *sums)
{
    const uint32_t span = PRODUCT_VECS * VL;
    whole_weights whole[PRODUCT_ROWS * 2];
    uint32_t c = g * v->shape->group, end = c + parts * v->shape->group;

    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < parts; i++) {
            const float *d = v->d + (g + i) * BLOCK, *m = v->m ? v->m + (g + i) * BLOCK : NULL;
            const float *p = weights + r * BLOCK;
            if (v->most)
                weights_round(p, d, m, true, steps[r], &whole[r * parts + i]);
            else
                weights_round(p, d, m, false, step_find(p, d, false), &whole[r * parts + i]);
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
    row_step steps[PRODUCT_ROWS] = {0};
    uint32_t g = 0;
    for (uint32_t r = 0; r < rows && v->most; r++)
        steps[r] = step_find(weights + r * BLOCK, v->most, true);
    if (2 * s->group == PRODUCT_VECS * VL)
        for (; g + 2 <= s->groups; g += 2)
            groups_multiply(rows, 2, v, g, weights, steps, sums);
    for (; g < s->groups; g++)
        groups_multiply(rows, 1, v, g, weights, steps, sums);
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

/* most[i]: the largest magnitude of x[group][i]. Is all of x finite? */
static bool largest_find(const float *x, uint32_t groups, float *most)
{
    vi all = vi_set(0);
    for (uint32_t i = 0; i < BLOCK; i += VL) {
        vi size = vi_set(0);
        for (uint32_t g = 0; g < groups; g++)
            size = vi_size_max(size, vf_load(x + g * BLOCK + i));
        vf_store(most + i, (vf)size);
        all = vi_size_max(all, (vf)size);
    }
    return vi_largest(all) < 0x7f800000;
}

void KVB_ISA_NAME(kvb_int8_sums)(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                                 uint32_t n_rows, float *const *sums, kvb_ask *ask, void *scratch)
{
    const int8_shape s = int8_shape_of(v->format, v->dim);
    const int8_block block = KVB_ISA_NAME(kvb_int8_values)(&s, v, h, cells, n, ask, scratch);
    _Alignas(64) float most[2][BLOCK];
    const bool finite =
        largest_find(block.d, s.groups, most[0]) && (!block.m || largest_find(block.m, s.groups, most[1]));
    const values all = {.shape = &s,
                        .tile = block.tile,
                        .d = block.d,
                        .m = block.m,
                        .most = finite ? most[0] : NULL,
                        .depth = (n + TILE_CODES - 1) / TILE_CODES,
                        .ask = ask};

    for (uint32_t r = 0, take; r < n_rows; r += take) {
        take = product_panel_rows(n_rows - r);
        panels[take - 1](&all, weights + (size_t)r * BLOCK, sums + r);
    }
    kvb_ask_until(ask, 2, 2);
}
