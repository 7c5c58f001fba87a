/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements and formats of kernel tests, written from attend.h alone: plain ones, decoded by ldexp; one with scales,
 * zeros and a window; ggml's q8_0; f32 behind a transform.
 */
#ifndef KVB_TEST_FORMATS_H
#define KVB_TEST_FORMATS_H

#include "kernels/attend.h"

#include <math.h>
#include <string.h>

/* ---- elements, independent of kernels/convert.c ---- */

static inline size_t elem_bytes(kvb_elem elem)
{
    return elem == KVB_F32 ? 4 : elem == KVB_F16 || elem == KVB_BF16 ? 2 : 1;
}

/* Of a row: q8_0 is made of blocks. */
static inline size_t row_bytes(kvb_elem elem, uint32_t dim)
{
    return elem == KVB_Q8_0 ? dim / 32 * 34 : dim * elem_bytes(elem);
}

static inline double elem_value(kvb_elem elem, const void *src)
{
    uint16_t h;
    uint32_t b;
    float x;

    if (elem == KVB_F32) {
        memcpy(&x, src, sizeof x);
        return (double)x;
    }
    if (elem == KVB_E4M3) {
        int code = *(const unsigned char *)src, magnitude = code & 127;
        double value = magnitude == 127 ? (double)NAN
                       : magnitude < 8  ? ldexp(magnitude, -9)
                                        : ldexp(8 + magnitude % 8, magnitude / 8 - 10);
        return code & 128 ? -value : value;
    }
    if (elem == KVB_E5M2)
        h = (uint16_t)(*(const unsigned char *)src << 8);
    else
        memcpy(&h, src, sizeof h);
    if (elem == KVB_BF16) {
        b = (uint32_t)h << 16;
        memcpy(&x, &b, sizeof x);
        return (double)x;
    }
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double value = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);
    return h & 0x8000 ? -value : value;
}

/* Any element near x: rounding does not matter here, as the answer is computed from what was stored. */
static inline void elem_store(kvb_elem elem, void *dst, float x)
{
    uint32_t b;
    uint16_t h;

    memcpy(&b, &x, sizeof b);
    if (elem == KVB_F32) {
        memcpy(dst, &x, sizeof x);
        return;
    }
    if (elem == KVB_BF16)
        h = (uint16_t)(b >> 16);
    else if (isnan(x))
        h = 0x7e00;
    else if (fabsf(x) < 0x1p-14f)
        h = (uint16_t)(b >> 16 & 0x8000);
    else
        h = (uint16_t)((b >> 16 & 0x8000) | ((b & 0x7fffffff) - 0x38000000) >> 13);
    if (elem == KVB_E5M2)
        h >>= 8;
    if (elem == KVB_E4M3) /* an exponent has a bit less, and a bias that is less by 8 */
        h = (uint16_t)((h >> 8 & 0x80) | ((h & 0x7fff) < 0x2400   ? h >> 9 & 7
                                          : (h & 0x7fff) > 0x5f00 ? 126
                                                                  : ((h & 0x7fff) - 0x2000) >> 7));
    memcpy(dst, &h, elem_bytes(elem));
}

/* ---- formats ---- */

#define TEST_WINDOW   4u           /* cells of a window */
#define TEST_HADAMARD KVB_CODEBOOK /* stands for f32 behind a transform in test_formats[] */

/* The f16 row of a cell whose window is not encoded yet, or NULL. */
static inline const uint16_t *recent_row(const kvb_view *v, uint32_t h, uint32_t at)
{
    uint32_t slot = v->recent_slot[at / TEST_WINDOW];
    return slot == KVB_SLOT_NONE ? NULL
                                 : (const uint16_t *)v->recent + slot * v->recent_slot_stride / 2 +
                                       h * v->recent_head_stride / 2 + at % TEST_WINDOW * v->dim;
}

/* Element d of a row of f32 that was transformed before it was stored. */
static inline double hadamard_value(const float *row, uint32_t dim, uint32_t d)
{
    uint32_t block = kvb_transform_block(dim), first = d / block * block;
    double sum = 0;
    for (uint32_t i = 0; i < block; i++)
        sum += __builtin_parity(i & (d - first)) ? -(double)row[first + i] : (double)row[first + i];
    return (kvb_sign_flip(d) ? -sum : sum) / sqrt(block);
}

/* Element d of the row of head h in cell c. */
static inline double row_elem(const kvb_view *v, uint32_t h, uint32_t c, uint32_t d)
{
    const char *row = (const char *)v->base + h * v->head_stride + c * v->cell_stride;

    if (v->format->transform)
        return hadamard_value((const float *)(const void *)row, v->dim, d);
    if (v->format->elem == KVB_Q8_0)
        return elem_value(KVB_F16, row + d / 32 * 34) * (signed char)row[d / 32 * 34 + 2 + d % 32];
    if (v->format->elem != KVB_UINT8)
        return elem_value(v->format->elem, row + d * elem_bytes(v->format->elem));
    const uint16_t *recent = recent_row(v, h, c);
    float scale, zero;
    memcpy(&scale, (const char *)v->scales + h * v->scale_head_stride + c * v->scale_cell_stride, sizeof scale);
    memcpy(&zero, (const char *)v->zeros + h * v->zero_head_stride + c * v->zero_cell_stride, sizeof zero);
    return recent ? elem_value(KVB_F16, &recent[d]) : (unsigned char)row[d] * (double)scale + (double)zero;
}

static inline void rows_read(const kvb_view *v, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < v->dim; d++)
            *rows++ = (float)row_elem(v, h, c + i, d);
}

/* The same rows as hadamard_value(), all elements at once. */
static inline void hadamard_read(const kvb_view *v, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    uint32_t block = kvb_transform_block(v->dim);
    for (uint32_t i = 0; i < n; i++, rows += v->dim) {
        memcpy(rows, (const char *)v->base + h * v->head_stride + (c + i) * v->cell_stride, v->dim * 4);
        for (uint32_t apart = 1; apart < block; apart *= 2)
            for (uint32_t d = 0; d < v->dim; d++)
                if (!(d & apart)) {
                    float a = rows[d], b = rows[d + apart];
                    rows[d] = a + b;
                    rows[d + apart] = a - b;
                }
        for (uint32_t d = 0; d < v->dim; d++)
            rows[d] *= (kvb_sign_flip(d) ? -1.0f : 1.0f) / sqrtf((float)block);
    }
}

static const kvb_format test_formats[] = {
    [KVB_F32] = {.name = "f32", .elem = KVB_F32, .read = rows_read},
    [KVB_F16] = {.name = "f16", .elem = KVB_F16, .read = rows_read},
    [KVB_BF16] = {.name = "bf16", .elem = KVB_BF16, .read = rows_read},
    [KVB_E4M3] = {.name = "e4m3", .elem = KVB_E4M3, .read = rows_read},
    [KVB_E5M2] = {.name = "e5m2", .elem = KVB_E5M2, .axis = KVB_AXIS_CHANNELS, .read = rows_read}, /* nobody's load */
    [KVB_UINT8] = {.name = "windowed",
                   .elem = KVB_UINT8,
                   .axis = KVB_AXIS_CHANNELS,
                   .group = KVB_GROUP_ROW,
                   .residual_cells = TEST_WINDOW,
                   .residual_blocks = UINT32_MAX,
                   .read = rows_read},
    [KVB_Q8_0] = {.name = "q8_0", .elem = KVB_Q8_0, .axis = KVB_AXIS_CHANNELS, .group = 32, .read = rows_read},
    [TEST_HADAMARD] = {.name = "f32+had",
                       .elem = KVB_F32,
                       .transform = KVB_TRANSFORM_SIGNED_HADAMARD,
                       .read = hadamard_read},
};
static const kvb_elem test_elems[] = {KVB_F32, KVB_F16, KVB_BF16, KVB_UINT8, KVB_E4M3, KVB_E5M2};
enum { TEST_ELEMS = sizeof test_elems / sizeof *test_elems };

#endif
