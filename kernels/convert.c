/* SPDX-License-Identifier: Apache-2.0 */
/* Element conversion, one function per element and direction, in a table; F16C where the CPU has it. */
#include "kernels/convert.h"
#include "kernels/cpu.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef void decode_fn(float *dst, const void *src, size_t n);
typedef void encode_fn(void *dst, const float *src, size_t n);

static uint32_t bits_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static float float_of(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static void f32_decode(float *dst, const void *src, size_t n)
{
    memcpy(dst, src, n * sizeof *dst);
}

static void f32_encode(void *dst, const float *src, size_t n)
{
    memcpy(dst, src, n * sizeof *src);
}

static void bf16_decode(float *dst, const void *src, size_t n)
{
    const uint16_t *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = float_of((uint32_t)s[i] << 16);
}

static void bf16_encode(void *dst, const float *src, size_t n)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++) {
        uint32_t b = bits_of(src[i]);
        if ((b & 0x7fffffffu) > 0x7f800000u) /* NaN: rounding could carry it into infinity */
            d[i] = (uint16_t)(b >> 16 | 0x40u);
        else
            d[i] = (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
    }
}

static float f16_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7fffu;

    if (a > 0x7c00u) /* NaN, made quiet */
        return float_of(sign | 0x7fc00000u | a << 13);
    if (a == 0x7c00u)
        return float_of(sign | 0x7f800000u);
    /* The fields in their f32 places, then the exponent bias corrected by an exact product: 127 - 15 = 112.
     * A subnormal f16 is a subnormal f32 at first, which the product normalises. */
    return float_of(sign | bits_of(float_of(a << 13) * 0x1p112f));
}

static void f16_decode_portable(float *dst, const void *src, size_t n)
{
    const uint16_t *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = f16_value(s[i]);
}

static void f16_encode_portable(void *dst, const float *src, size_t n)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++) {
        uint32_t b = bits_of(src[i]), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
        if (a > 0x7f800000u) /* NaN */
            a = 0x7e00u | (a >> 13 & 0x3ffu);
        else if (a >= 0x477ff000u) /* 65520 and above: nearer to 65536 than to 65504, or the tie that goes there */
            a = 0x7c00u;
        else if (a < 0x38800000u) /* below 2^-14: an ulp of 0.5f is the f16 subnormal 2^-24, so the sum rounds */
            a = bits_of(float_of(a) + 0.5f) - bits_of(0.5f);
        else /* add half an ulp, less when that makes a tie go to even; then correct the exponent bias */
            a = (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
        d[i] = (uint16_t)(sign | a);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static void f16_decode_f16c(float *dst, const void *src, size_t n)
{
    const uint16_t *s = src;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i eight;
        memcpy(&eight, s + i, sizeof eight);
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(eight));
    }
    f16_decode_portable(dst + i, s + i, n - i);
}

__attribute__((target("avx,f16c"))) static void f16_encode_f16c(void *dst, const float *src, size_t n)
{
    uint16_t *d = dst;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i eight = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
        memcpy(d + i, &eight, sizeof eight);
    }
    f16_encode_portable(d + i, src + i, n - i);
}

static void f16_decode(float *dst, const void *src, size_t n)
{
    (kvb_cpu() >= KVB_CPU_AVX2 ? f16_decode_f16c : f16_decode_portable)(dst, src, n);
}

static void f16_encode(void *dst, const float *src, size_t n)
{
    (kvb_cpu() >= KVB_CPU_AVX2 ? f16_encode_f16c : f16_encode_portable)(dst, src, n);
}
#else
#define f16_decode f16_decode_portable
#define f16_encode f16_encode_portable
#endif

/* By element type; those without an entry are not plain. */
static const struct {
    size_t bytes;
    decode_fn *decode, *decode_portable;
    encode_fn *encode, *encode_portable;
} plain[KVB_ELEM_COUNT] = {
    [KVB_F32] = {4, f32_decode, f32_decode, f32_encode, f32_encode},
    [KVB_F16] = {2, f16_decode, f16_decode_portable, f16_encode, f16_encode_portable},
    [KVB_BF16] = {2, bf16_decode, bf16_decode, bf16_encode, bf16_encode},
};

size_t kvb_elem_bytes(kvb_elem elem)
{
    return elem < KVB_ELEM_COUNT ? plain[elem].bytes : 0;
}

void kvb_elems_decode(kvb_elem elem, float *dst, const void *src, size_t n)
{
    plain[elem].decode(dst, src, n);
}

void kvb_elems_encode(kvb_elem elem, void *dst, const float *src, size_t n)
{
    plain[elem].encode(dst, src, n);
}

void kvb_elems_decode_portable(kvb_elem elem, float *dst, const void *src, size_t n)
{
    plain[elem].decode_portable(dst, src, n);
}

void kvb_elems_encode_portable(kvb_elem elem, void *dst, const float *src, size_t n)
{
    plain[elem].encode_portable(dst, src, n);
}

/* ---- rows of any format ---------------------------------------------------------------------------------------- */

/* Elements of a plain type, without scales and transform. */
static bool format_plain(const kvb_format *f)
{
    return kvb_elem_bytes(f->elem) && f->group == 0 && f->axis == KVB_AXIS_NONE && !f->head_scale && !f->transform &&
           !f->residual_cells;
}

void kvb_rows_decode(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    if (!format_plain(view->format)) {
        kvb_view_read(view, h, c, n, rows);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        kvb_elems_decode(view->format->elem, rows + (size_t)i * view->dim, kvb_view_row(view, h, c + i), view->dim);
}

const float *kvb_row_read(const kvb_view *view, uint32_t h, uint32_t c, float *tmp)
{
    if (kvb_format_is_f32(view->format))
        return kvb_view_row(view, h, c);
    kvb_rows_decode(view, h, c, 1, tmp);
    return tmp;
}

void kvb_arithmetic_add_decoding(const kvb_problem *p, kvb_arithmetic *a)
{
    a->dot_chain += kvb_format_roundings(p->k_format, p->k_dim);
    a->cell_chain += kvb_format_roundings(p->v_format, p->v_in_k ? p->k_dim : p->v_dim);
}

static bool format_readable(const kvb_format *f)
{
    return f->read || format_plain(f);
}

bool kvb_readable_supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (!format_readable(p->k_format) || !format_readable(p->v_format)) {
        snprintf(why, why_bytes, "format %s has no function to read its rows",
                 (format_readable(p->k_format) ? p->v_format : p->k_format)->name);
        return false;
    }
    if (!kvb_elem_bytes(p->out_elem)) {
        snprintf(why, why_bytes, "writes f32, f16 and bf16 outputs only");
        return false;
    }
    if (p->n_kv_heads == 0 || p->n_heads % p->n_kv_heads) {
        snprintf(why, why_bytes, "%u query heads are no multiple of %u KV heads", p->n_heads, p->n_kv_heads);
        return false;
    }
    return true;
}
