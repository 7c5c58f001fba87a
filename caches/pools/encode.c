/* SPDX-License-Identifier: Apache-2.0 */
/* Row encoders f32 -> f32, f16, bf16. */
#include "caches/pools/encode.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

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

static uint16_t f16_of(float x)
{
    uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;

    if (a > 0x7f800000u) /* NaN */
        return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) /* 65520 and above: nearer to 65536 than to 65504, or the tie that goes there */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) /* below 2^-14: one ulp of 0.5f is one f16 subnormal, 2^-24, so the addition rounds */
        return (uint16_t)(sign | (bits_of(float_of(a) + 0.5f) - bits_of(0.5f)));
    a += 0xfffu + (a >> 13 & 1u); /* half an ulp, less when that makes a tie go to even */
    return (uint16_t)(sign | (a - 0x38000000u) >> 13);
}

static uint16_t bf16_of(float x)
{
    uint32_t b = bits_of(x);

    if ((b & 0x7fffffffu) > 0x7f800000u) /* NaN: rounding could carry it into infinity */
        return (uint16_t)(b >> 16 | 0x40u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

void kvb_row_encode_f32(void *dst, const float *src, size_t n)
{
    memcpy(dst, src, n * sizeof *src);
}

void kvb_row_encode_f16_portable(void *dst, const float *src, size_t n)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = f16_of(src[i]);
}

void kvb_row_encode_bf16(void *dst, const float *src, size_t n)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = bf16_of(src[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static void encode_f16c(void *dst, const float *src, size_t n)
{
    uint16_t *d = dst;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i eight = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
        memcpy(d + i, &eight, sizeof eight);
    }
    kvb_row_encode_f16_portable(d + i, src + i, n - i);
}

/* Asked once: CPUID traps in a virtual machine. Threads that race here find the same answer. */
static bool f16c_usable(void)
{
    static _Atomic int answer; /* 0: not asked yet, 1: no, 2: yes */
    unsigned a, b, c = 0, d;

    if (!answer) {
        bool has = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) && __builtin_cpu_supports("avx");
        answer = has ? 2 : 1;
    }
    return answer == 2;
}

void kvb_row_encode_f16(void *dst, const float *src, size_t n)
{
    if (f16c_usable())
        encode_f16c(dst, src, n);
    else
        kvb_row_encode_f16_portable(dst, src, n);
}
#else
void kvb_row_encode_f16(void *dst, const float *src, size_t n)
{
    kvb_row_encode_f16_portable(dst, src, n);
}
#endif
