/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that ggml's blocks, MLX's groups and KIVI's are stored as their definitions say: bytes worked out by hand, for
 * every instruction set of this machine. Ties, first of equals, zeros of both signs, saturation, NaN.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "caches/pools/codec/codec.h"
#include "caches/pools/rows.h"

enum { MOST = 64 };

/* A row: `rest` everywhere but in the channels listed. */
typedef struct place {
    uint8_t channel;
    float x;
} place;

/* Bytes: those listed, then `rest_code` up to the end. */
typedef struct known {
    const char *format;
    uint32_t dim;
    float rest;
    place at[8];
    uint32_t n_at, n_codes;
    uint8_t codes[20];
    uint8_t rest_code;
    uint16_t scale, zero; /* of one group */
    float back[4];        /* the first channels, decoded */
} known;

static const known cases[] = {
    /* d = 1: halves go away from zero, the float below one half does not */
    {"q8_0",
     32,
     0,
     {{0, 127}, {1, 2.5f}, {2, -2.5f}, {3, 0x1.fffffep-2f}, {4, -127}},
     5,
     7,
     {0x00, 0x3c, 127, 3, 0xfd, 0, 0x81},
     0,
     0,
     0,
     {127, 3, -3, 0}},
    /* infinities are 65504: d = 515.8, as f16 516 */
    {"q8_0",
     32,
     0,
     {{0, INFINITY}, {1, NAN}, {2, -INFINITY}, {3, 65504}},
     4,
     6,
     {0x08, 0x60, 127, 0, 0x81, 127},
     0,
     0,
     0,
     {65532, 0, -65532, 65532}},
    /* 1/d overflows: every code 0 */
    {"q8_0", 32, 0, {{0, 1e-38f}}, 1, 2, {0, 0}, 0, 0, 0, {0, 0, 0, 0}},
    /* of -8 and 8 the first decides: d = 1; 8 + 8.5 is cut to 15 */
    {"q4_0",
     32,
     0,
     {{0, -8}, {1, 8}, {2, 0.5f}, {3, -0.5f}, {16, 7}},
     5,
     5,
     {0x00, 0x3c, 0xf0, 0x8f, 0x89},
     0x88,
     0,
     0,
     {-8, 7, 1, 0}},
    {"q4_0", 32, 0, {{0, 8}, {1, -8}}, 2, 4, {0x00, 0xbc, 0x80, 0x8f}, 0x88, 0, 0, {8, -7, 0, 0}},
    {"q4_0", 32, 0, {{0, -0.0f}}, 1, 2, {0x00, 0x80}, 0x88, 0, 0, {0, 0, 0, 0}},
    {"q5_0",
     32,
     0,
     {{0, -16}, {1, 15}, {18, -1}},
     3,
     9,
     {0x00, 0x3c, 0xfe, 0xff, 0xfb, 0xff, 0x00, 0x0f, 0xf0},
     0,
     0,
     0,
     {-16, 15, 0, 0}},
    {"q4_1", 32, 1, {{0, 16}, {1, 2.5f}, {16, 4}}, 3, 6, {0x00, 0x3c, 0x00, 0x3c, 0x3f, 0x02}, 0, 0, 0, {16, 3, 1, 1}},
    /* of zeros the first is the least */
    {"q4_1", 32, 15, {{0, 0.0f}, {1, -0.0f}}, 2, 6, {0x00, 0x3c, 0x00, 0x00, 0xf0, 0xf0}, 0xff, 0, 0, {0, 0, 15, 15}},
    {"q4_1", 32, 15, {{0, -0.0f}, {1, 0.0f}}, 2, 6, {0x00, 0x3c, 0x00, 0x80, 0xf0, 0xf0}, 0xff, 0, 0, {0, 0, 15, 15}},
    {"q5_1",
     32,
     -1,
     {{0, 30}, {31, 15}},
     2,
     9,
     {0x00, 0x3c, 0x00, 0xbc, 0x01, 0, 0, 0x80, 0x0f},
     0,
     0,
     0,
     {30, -1, -1, -1}},
    /* -4.5 lies half-way between -10 and 1 and goes up; least squares: d = 1 - 4e-7 */
    {"iq4_nl", 32, 0, {{0, -127}, {1, -4.5f}, {17, 113}}, 3, 4, {0x00, 0x3c, 0x80, 0xf8}, 0x88, 0, 0, {-127, 1, 1, 1}},
    /* 31 codes of 25 stand for 31: d = (127^4 + 31 * 31^3 * 25) / (127^4 + 31 * 31^2 * 25^2) = 1.016 */
    {"iq4_nl",
     32,
     31,
     {{0, -127}},
     1,
     3,
     {0x10, 0x3c, 0xa0},
     0xaa,
     0,
     0,
     {-128.984375f, 25.390625f, 25.390625f, 25.390625f}},
    {"iq4_nl", 32, 1e-16f, {{0, 0}}, 1, 2, {0, 0}, 0, 0, 0, {0, 0, 0, 0}},
    /* the end of larger magnitude is the bias; halves to even */
    {"a4g32",
     32,
     0,
     {{0, -8}, {1, 7}, {3, 0.5f}, {4, 1.5f}},
     4,
     3,
     {0xf0, 0x88, 0x8a},
     0x88,
     0x3c00,
     0xc800,
     {-8, 7, 0, 0}},
    {"a4g32", 32, 0, {{0, 15}}, 1, 1, {0xf0}, 0xff, 0xbc00, 0x4b80, {15, 0, 0, 0}},
    /* nothing to spread over: the least scale, 1e-7 */
    {"a4g32", 32, 0, {{0, 0}}, 1, 1, {0}, 0, 0x8002, 0, {0, 0, 0, 0}},
    /* all 3: the bias is 3 and q0 = -3e7, so that codes are 0 */
    {"a4g32", 32, 3, {{0, 3}}, 1, 1, {0}, 0, 0x8002, 0x4200, {3, 3, 3, 3}},
    {"a8g64", 64, 0, {{0, -128}, {2, 127}}, 2, 3, {0, 128, 255}, 128, 0x3c00, 0xd800, {-128, 0, 127, 0}},
    {"a2g32", 32, 0, {{0, -2}, {1, -1}, {3, 1}}, 3, 1, {0xe4}, 0xaa, 0x3c00, 0xc000, {-2, -1, 0, 1}},
    {"kivi4-v",
     32,
     -1,
     {{0, -1}, {1, 14}, {2, 1.5f}, {3, 2.5f}},
     4,
     2,
     {0xf0, 0x42},
     0,
     0x3c00,
     0xbc00,
     {-1, 14, 1, 3}},
    /* the scale is rounded first: 1/15 is 0x2c44, and 0.16666 / that is 2.5005 where 0.16666 * 15 is 2.4999 */
    {"kivi4-v",
     32,
     0,
     {{0, 1}, {2, 0.16666f}},
     2,
     2,
     {0x0f, 0x03},
     0,
     0x2c44,
     0,
     {0.999755859375f, 0, 0.199951171875f, 0}},
    {"kivi4-v", 32, -3, {{0, -3}}, 1, 1, {0}, 0, 0, 0xc200, {-3, -3, -3, -3}},
    {"kivi2-v", 32, 0, {{0, 3}, {1, 2}, {2, 1}}, 3, 1, {0x1b}, 0, 0x3c00, 0, {3, 2, 1, 0}},
    /* -0 counts as the lesser zero */
    {"kivi2-v", 32, 0, {{0, 3}, {1, -0.0f}}, 2, 1, {0x03}, 0, 0x3c00, 0x8000, {3, 0, 0, 0}},
};

static const kvb_pool_kind *kind_named(const char *name)
{
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++)
        if (!strcmp((*type)->name, name))
            return kvb_pool_kind_of(*type);
    fail_msg("no pool %s", name);
    return NULL;
}

static void bytes_are_those_worked_out(void **state)
{
    (void)state;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++)
        for (size_t c = 0; (*isa)->available() && c < sizeof cases / sizeof *cases; c++) {
            const known *k = &cases[c];
            const kvb_pool_kind *kind = kind_named(k->format);
            const kvb_format *f = &kind->format;
            size_t n = kvb_codes_bytes(f, k->dim);
            uint8_t codes[MOST * 2], want[MOST * 2];
            uint16_t scale = 0, zero = 0;
            float row[MOST], back[MOST];

            for (uint32_t i = 0; i < k->dim; i++)
                row[i] = k->rest;
            for (uint32_t i = 0; i < k->n_at; i++)
                row[k->at[i].channel] = k->at[i].x;
            memset(codes, 0xa5, sizeof codes);
            memset(want, 0xa5, sizeof want);
            memset(want + 1, k->rest_code, n);
            memcpy(want + 1, k->codes, k->n_codes);
            want[1 + n] = 0xa5;
            (*isa)->encode[kind->rule](f, row, 1, k->dim, 1, codes + 1, &scale, &zero); /* at an odd address */
            if (memcmp(codes, want, sizeof codes))
                print_error("%s, case %zu of %s\n", k->format, c, (*isa)->name);
            assert_memory_equal(codes, want, sizeof codes);
            assert_int_equal(scale, k->scale);
            assert_int_equal(zero, k->zero);
            (*isa)->decode[kvb_decode_rule(f)](f, codes + 1, &scale, &zero, k->dim, 1, back);
            for (int i = 0; i < 4; i++)
                assert_true(back[i] == k->back[i]);
        }
}

/* Every level of iq4_nl meets itself. */
static void uneven_levels_are_kept(void **state)
{
    static const float levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const kvb_pool_kind *kind = kind_named("iq4_nl");
    (void)state;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++) {
        float row[32], back[32];
        uint8_t codes[18];
        if (!(*isa)->available())
            continue;
        for (int i = 0; i < 32; i++)
            row[i] = levels[i % 16] * 0.25f;
        (*isa)->encode[KVB_RULE_GGML](&kind->format, row, 1, 32, 1, codes, NULL, NULL);
        assert_int_equal(codes[0] | codes[1] << 8, 0x3400);
        for (int i = 0; i < 16; i++)
            assert_int_equal(codes[2 + i], i | i << 4);
        (*isa)->decode[KVB_RULE_GGML](&kind->format, codes, NULL, NULL, 32, 1, back);
        assert_memory_equal(row, back, sizeof row);
    }
}

/* KIVI's K: a scale and a zero a channel over the rows that are there; the others are not looked at, their codes 0. */
static void channels_take_held_rows(void **state)
{
    const kvb_pool_kind *kind = kind_named("kivi2-k");
    static const uint16_t want_scales[5] = {0x3c00, 0x3c00, 0, 0, 0x3c00};
    static const uint16_t want_zeros[5] = {0, 0xc200, 0x4500, 0x8000, 0xc000};
    static const float first[5] = {0, -3, 5, -0.0f, NAN}, last[5] = {3, 0, 5, 0.0f, 1}, middle[5] = {1, -1, 5, 0, -2};
    (void)state;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++) {
        float rows[32][5], back[5];
        uint8_t codes[32 * 2], want[32 * 2] = {0};
        uint16_t scales[5], zeros[5];
        if (!(*isa)->available())
            continue;
        for (int i = 0; i < 32 * 5; i++)
            rows[i / 5][i % 5] = 1e6f;
        memcpy(rows[0], first, sizeof first);
        memcpy(rows[7], middle, sizeof middle);
        memcpy(rows[31], last, sizeof last);
        memset(codes, 0xff, sizeof codes);
        (*isa)->encode[KVB_RULE_CHANNELS](&kind->format, rows[0], 1u | 1u << 7 | 1u << 31, 5, 1, codes, scales, zeros);
        want[1] = 2;           /* row 0: 0 0 0 0, 2 (NaN is 0, above -2) */
        want[14] = 1 | 2 << 2; /* row 7: 1 2 0 0, 0 */
        want[62] = 3 | 3 << 2; /* row 31: 3 3 0 0, 3 */
        want[63] = 3;
        assert_memory_equal(codes, want, sizeof codes);
        assert_memory_equal(scales, want_scales, sizeof scales);
        assert_memory_equal(zeros, want_zeros, sizeof zeros);
        (*isa)->decode[KVB_RULE_CHANNELS](&kind->format, codes + 62, scales, zeros, 5, 1, back);
        for (int i = 0; i < 5; i++)
            assert_true(back[i] == last[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_worked_out),
        cmocka_unit_test(uneven_levels_are_kept),
        cmocka_unit_test(channels_take_held_rows),
    };
    return cmocka_run_group_tests_name("codes of blocks and groups", tests, NULL, NULL);
}
