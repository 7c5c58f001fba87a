/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: rows become the bytes, and bytes the floats, that the published definitions say; worked out by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "caches/pools/rows.h"

#define MAX 64u /* channels */

static const kvb_pool_kind *kind_named(const char *name)
{
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++)
        if (strcmp((*type)->name, name) == 0)
            return kvb_pool_kind_of(*type);
    fail_msg("no pool %s", name);
    return NULL;
}

static void hex(const unsigned char *bytes, size_t n, char *text)
{
    for (size_t i = 0; i < n; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    text[2 * n] = 0;
}

static uint32_t f32(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

#define INF  INFINITY
#define ULP  0x1p-149f /* the least subnormal */
#define TIES 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 6, -0.25f, -0.75f, -5, -0.0f, NAN, 0.26f, 1.74f

/* A row repeats its n elements up to dim. All bytes are hexadecimal; scale and zero are numbers where they are f32. */
static const struct {
    const char *format;
    float head_scale;
    uint32_t dim, n;
    float x[16];
    const char *codes, *scales;
    float scale, zero;
} encoded[] = {
    /* e4m3: 464 is halfway to 480, which there is not; -1; infinities */
    {"e4m3", 1, 8, 8, {448, 464, 480, INF, -INF, FLT_MAX, 1, -1}, "7e7e7e7efe7e38b8", NULL, 0, 0},
    /* subnormals are multiples of 2^-9: halves go to the even one; 7.5 of them to the first normal */
    {"e4m3",
     1,
     8,
     8,
     {0x1p-10f, 0x1.8p-9f, 0x1p-9f, 0x1.ep-7f, 0x1p-6f, 0x1.000002p-10f, -0x1p-10f, 0x1p-149f},
     "0002010808018000",
     NULL,
     0,
     0},
    {"e4m3", 1, 8, 8, {1.0625f, 1.1875f, 400, 432, 0, -0.0f, NAN, -17}, "383a7c7e00807fd8", NULL, 0, 0},
    {"e4m3-head", 0.5f, 4, 4, {1, -224, 300, -0.0f}, "40fe7e80", NULL, 0, 0},
    {"e4m3-tensor", 4, 4, 4, {4, -2048, 6, 1}, "38fe3c28", NULL, 0, 0},
    {"e4m3-token", 1, 4, 4, {896, -1, 0, 3}, "7eb0003c", NULL, 2, 0},
    {"e4m3-token", 1, 3, 3, {0, -0.0f, NAN}, "00807f", NULL, 0, 0},
    {"e4m3-token", 1, 3, 3, {1, INF, NAN}, "007e7f", NULL, FLT_MAX / 448, 0},
    /* 224 ulps: the scale is half an ulp, which is rounded to 0 */
    {"e4m3-token", 1, 2, 2, {224 * ULP, -224 * ULP}, "0080", NULL, 0, 0},

    {"e5m2", 1, 8, 8, {57344, 61440, INF, -INF, 1, -1, 1.125f, 1.375f}, "7b7b7bfb3cbc3c3e", NULL, 0, 0},
    {"e5m2",
     1,
     8,
     8,
     {0x1p-17f, 0x1.8p-16f, 0x1p-16f, 0x1.cp-15f, 0x1p-14f, 0, -0.0f, NAN},
     "000201040400807f",
     NULL,
     0,
     0},
    {"e5m2-head", 0.5f, 2, 2, {1, -28672}, "40fb", NULL, 0, 0},
    {"e5m2-tensor", 2, 2, 2, {1, FLT_MAX}, "387b", NULL, 0, 0},
    {"e5m2-token", 1, 2, 2, {114688, -1}, "7bb8", NULL, 2, 0},

    {"int8", 1, 8, 8, {127, -127, 0.5f, 1.5f, -2.5f, NAN, -0.0f, 126.5f}, "7f810002fe00007e", NULL, 1, 0},
    {"int8", 1, 4, 4, {INF, -INF, 1, FLT_MAX}, "7f81007f", NULL, 0x1p126f / 127, 0},
    {"int8", 1, 2, 2, {0, -0.0f}, "0000", NULL, 0, 0},
    {"int8", 1, 2, 2, {100 * ULP, -100 * ULP}, "649c", NULL, ULP, 0},
    {"int8", 1, 2, 2, {190 * ULP, -190 * ULP}, "7f81", NULL, ULP, 0}, /* its scale is rounded down */
    {"int8", 1, 1, 1, {63 * ULP}, "00", NULL, 0, 0},

    {"int8-asym", 1, 6, 6, {-1, 254, -0.5f, 0.5f, 1.5f, 3}, "00ff00020204", NULL, 1, -1},
    {"int8-asym", 1, 2, 2, {-3, -3}, "0000", NULL, 0, -3},
    {"int8-asym", 1, 2, 2, {0, -0.0f}, "0000", NULL, 0, -0.0f},
    {"int8-asym", 1, 2, 2, {NAN, 0}, "0000", NULL, 0, 0},
    {"int8-asym", 1, 3, 3, {-510, NAN, -255}, "00ff80", NULL, 2, -510}, /* 127.5 */
    {"int8-asym", 1, 2, 2, {INF, -INF}, "ff00", NULL, 0x1p127f / 255, -0x1p126f},

    /* e2m1: 0 0.5 1 1.5 2 3 4 6 are codes 0 to 7. The largest is 6 = 1.5 * 2^2: scale 2^0, 127 */
    {"mxfp4", 1, 32, 16, {0, TIES}, "0022446687ea0831", "7f", 0, 0},
    {"mxfp4", 1, 64, 2, {7.9f, -3}, "d7", "7f", 0, 0},
    {"mxfp4", 1, 32, 2, {8, -3}, "b6", "80", 0, 0},
    {"mxfp4", 1, 32, 2, {FLT_MIN, -FLT_MIN}, "c4", "00", 0, 0}, /* 2^-126 would want 2^-128 */
    {"mxfp4", 1, 32, 2, {ULP, -0.0f}, "80", "00", 0, 0},
    {"mxfp4", 1, 32, 2, {INF, -1}, "87", "fc", 0, 0},
    {"mxfp4", 1, 32, 2, {NAN, -NAN}, "00", "00", 0, 0},

    {"nvfp4", 1, 32, 2, {6, -5}, "e7", "38", 0, 0},
    {"nvfp4", 1, 16, 2, {12, -5}, "c7", "40", 0, 0},
    {"nvfp4", 0.5f, 16, 2, {6, -1.25f}, "a7", "40", 0, 0},
    {"nvfp4", 1, 16, 2, {5376, -448}, "a7", "7e", 0, 0}, /* wants 896: saturates, and so does its element */
    {"nvfp4", 1, 16, 2, {0, -0.0f}, "80", "00", 0, 0},
    {"nvfp4", 1, 16, 2, {0x1p-9f, -0x1p-9f}, "80", "00", 0, 0}, /* a sixth of 2^-9 is rounded to 0 */
    {"nvfp4", 1, 16, 2, {INF, NAN}, "07", "7e", 0, 0},

    /* tq: a root mean square of 2 is f16 4000; 1 of it lies between thresholds 0.7996 and 1.0992 (0.505 and 1.05) */
    {"tq4", 1, 32, 2, {2, -2}, "4b", "0040", 0, 0},
    {"tq4", 1, 32, 2, {0, -0.0f}, "77", "0000", 0, 0},
    {"tq4", 1, 64, 2, {INF, -INF}, "4b", "ff7b", 0, 0},
    {"tq4", 1, 32, 4, {2, NAN, -2, NAN}, "7c73", "a83d", 0, 0}, /* f16 of sqrt(2); 1.414 */
    {"tq3", 1, 32, 8, {2, 2, -2, -2, -2, 2, -2, 2}, "ada4aa", "0040", 0, 0},
    {"tq3", 1, 64, 8, {0, -0.0f, NAN, 0, 0, 0, 0, 0}, "dbb66d", "0000", 0, 0},
};

/* The pattern again and again over all bytes. */
static void bytes_expect(const char *what, size_t line, const unsigned char *bytes, size_t n, const char *pattern)
{
    char got[8 * MAX + 1], want[8 * MAX + 1] = "";
    hex(bytes, n, got);
    for (size_t i = 0; i < 2 * n; i++)
        want[i] = pattern[i % strlen(pattern)];
    if (strcmp(got, want) != 0)
        fail_msg("row %zu: %s: %s, not %s", line, what, got, want);
}

static void rows_become_bytes(void **state)
{
    (void)state;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa && (*isa)->available(); isa++)
        for (size_t i = 0; i < sizeof encoded / sizeof *encoded; i++) {
            const kvb_pool_kind *kind = kind_named(encoded[i].format);
            const kvb_format *f = &kind->format;
            unsigned char codes[MAX * 4];
            union {
                unsigned char bytes[MAX];
                float f;
            } scales = {{0}}, zeros = {{0}};
            float row[MAX];
            for (uint32_t c = 0; c < encoded[i].dim; c++)
                row[c] = encoded[i].x[c % encoded[i].n];
            (*isa)->encode[kind->rule](f, row, 1, encoded[i].dim, encoded[i].head_scale, codes, &scales, &zeros);
            bytes_expect(f->name, i, codes, kvb_codes_bytes(f, encoded[i].dim), encoded[i].codes);
            if (encoded[i].scales)
                bytes_expect(f->name, i, scales.bytes, f->group == KVB_GROUP_ROW ? 2 : encoded[i].dim / f->group,
                             encoded[i].scales);
            else if (f->group && f32(scales.f) != f32(encoded[i].scale))
                fail_msg("row %zu: %s: scale %a, not %a", i, f->name, (double)scales.f, (double)encoded[i].scale);
            if (kvb_format_has_zeros(f) && f32(zeros.f) != f32(encoded[i].zero))
                fail_msg("row %zu: %s: zero %a, not %a", i, f->name, (double)zeros.f, (double)encoded[i].zero);
        }
}

/* Bytes repeat up to dim; so do the floats. */
static const struct {
    const char *format;
    float head_scale;
    uint32_t dim;
    unsigned char codes[8];
    uint32_t n_codes;
    unsigned char scales[4];
    float scale, zero;
    uint32_t n;
    float x[16];
} decoded[] = {
    {"e4m3",
     1,
     8,
     {0x7e, 0x01, 0x07, 0x08, 0x38, 0xb9, 0x80, 0x7f},
     8,
     {0},
     0,
     0,
     8,
     {448, 0x1p-9f, 0x1.cp-7f, 0x1p-6f, 1, -1.125f, -0.0f, NAN}},
    {"e4m3-head", 0.25f, 2, {0x7e, 0xff}, 2, {0}, 0, 0, 2, {112, NAN}},
    {"e4m3-token", 1, 2, {0x38, 0xb8}, 2, {0}, 3, 0, 2, {3, -3}},
    {"e5m2",
     1,
     8,
     {0x7b, 0x01, 0x03, 0x04, 0xbc, 0x7c, 0xfc, 0x7d},
     8,
     {0},
     0,
     0,
     8,
     {57344, 0x1p-16f, 0x1.8p-15f, 0x1p-14f, -1, INF, -INF, NAN}},
    {"int8", 1, 4, {0x7f, 0x81, 0x00, 0x80}, 4, {0}, 0.5f, 0, 4, {63.5f, -63.5f, 0, -64}},
    {"int8-asym", 1, 2, {0xff, 0x00}, 2, {0}, 0.5f, -3, 2, {124.5f, -3}},
    {"mxfp4",
     1,
     32,
     {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe},
     8,
     {128},
     0,
     0,
     16,
     {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12}},
    {"mxfp4", 1, 32, {0xf2}, 1, {0}, 0, 0, 2, {0x1p-127f, -0x1.8p-125f}},
    {"mxfp4", 1, 32, {0xf2}, 1, {254}, 0, 0, 2, {0x1p127f, -INF}},
    {"mxfp4", 1, 32, {0xf2}, 1, {255}, 0, 0, 2, {NAN, NAN}},
    {"nvfp4", 0.5f, 16, {0xf2}, 1, {0x40}, 0, 0, 2, {1, -6}},
    {"nvfp4", 1, 16, {0xf2}, 1, {0x01}, 0, 0, 2, {0x1p-9f, -0x1.8p-7f}},
    {"tq4", 1, 32, {0x0f, 0x87}, 2, {0x00, 0x40}, 0, 0, 4, {2 * 2.733f, -2 * 2.733f, -2 * 0.1284f, 2 * 0.1284f}},
    {"tq3",
     1,
     32,
     {0x88, 0xc6, 0xfa},
     3,
     {0x00, 0x40},
     0,
     0,
     8,
     {2 * -2.152f, 2 * -1.344f, 2 * -0.7560f, 2 * -0.2451f, 2 * 0.2451f, 2 * 0.7560f, 2 * 1.344f, 2 * 2.152f}},
};

static void bytes_become_rows(void **state)
{
    (void)state;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa && (*isa)->available(); isa++)
        for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++) {
            const kvb_format *f = &kind_named(decoded[i].format)->format;
            unsigned char codes[MAX * 4];
            bool f32_scale = f->scale_elem == KVB_F32;
            const void *scales = f32_scale ? (const void *)&decoded[i].scale : decoded[i].scales;
            float row[MAX];
            for (size_t b = 0; b < kvb_codes_bytes(f, decoded[i].dim); b++)
                codes[b] = decoded[i].codes[b % decoded[i].n_codes];
            (*isa)->decode[kvb_decode_rule(f)](f, codes, scales, &decoded[i].zero, decoded[i].dim,
                                               decoded[i].head_scale, row);
            for (uint32_t c = 0; c < decoded[i].dim; c++) {
                float want = decoded[i].x[c % decoded[i].n];
                if (f32(row[c]) != f32(want) && !(isnan(row[c]) && isnan(want)))
                    fail_msg("row %zu: %s: channel %u: %a, not %a", i, f->name, c, (double)row[c], (double)want);
            }
        }
}

/* Names and order of the list. */
static void pools_are_listed(void **state)
{
    static const char *const names[] = {"f32",        "f16",   "bf16",        "e4m3",      "e4m3-tensor", "e4m3-head",
                                        "e4m3-token", "e5m2",  "e5m2-tensor", "e5m2-head", "e5m2-token",  "int8",
                                        "int8-asym",  "mxfp4", "nvfp4",       "tq4",       "tq3"};
    size_t found = 0;
    (void)state;
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++)
        if (strcmp((*type)->name, names[found]) == 0) {
            bool turbo = strncmp(names[found], "tq", 2) == 0;
            assert_int_equal((*type)->rotated == NULL, turbo);
            assert_int_equal((*type)->format->transform, turbo ? KVB_TRANSFORM_SIGNED_HADAMARD : KVB_TRANSFORM_NONE);
            if (++found == sizeof names / sizeof *names)
                break;
        }
    assert_int_equal(found, sizeof names / sizeof *names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_bytes),
        cmocka_unit_test(bytes_become_rows),
        cmocka_unit_test(pools_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
