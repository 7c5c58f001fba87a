/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the reference codecs of f16 and bf16 decode every pattern exactly and encode to nearest even. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ci/tests/oracle/stored_row.h"
#include "oracle/codec.h"

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Another way to the same value: widen to binary32 by moving fields. */
static double f16_widened(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, field = h >> 10 & 31, man = h & 0x3ff;
    if (field == 31)
        return (double)float_of(sign | 0x7f800000 | man << 13);
    if (field)
        return (double)float_of(sign | (field + 112) << 23 | man << 13);
    return (sign ? -1.0 : 1.0) * ldexp(man, -24);
}

static double bf16_widened(uint16_t h)
{
    return (double)float_of((uint32_t)h << 16);
}

static void assert_same(double a, double b, uint32_t pattern)
{
    if (isnan(a) && isnan(b))
        return;
    if (a != b || signbit(a) != signbit(b))
        fail_msg("pattern %04x: %a, not %a", pattern, a, b);
}

static void every_pattern_decodes(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        assert_same(kvb_codec_f16_value((uint16_t)h), f16_widened((uint16_t)h), h);
        assert_same(kvb_codec_bf16_value((uint16_t)h), bf16_widened((uint16_t)h), h);
    }
}

/* The compiler's own half type, where it has one, agrees too. */
static void every_pattern_agrees_with_the_compiler(void **state)
{
    (void)state;
#if defined(__FLT16_MANT_DIG__)
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t bits = (uint16_t)h;
        _Float16 x;
        memcpy(&x, &bits, sizeof x);
        assert_same(kvb_codec_f16_value(bits), (double)x, h);
    }
    uint64_t r = 1;
    for (int i = 0; i < 200000; i++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        float x = float_of((uint32_t)(r >> 32));
        if (isnan(x))
            continue;
        _Float16 half = (_Float16)x;
        uint16_t bits;
        memcpy(&bits, &half, sizeof bits);
        if (kvb_codec_f16(x) != bits)
            fail_msg("%a encodes to %04x, the compiler says %04x", (double)x, kvb_codec_f16(x), bits);
    }
#else
    print_message("# this compiler has no half type\n");
#endif
}

typedef struct half {
    uint16_t (*encode)(float);
    double (*value)(uint16_t);
    uint16_t inf;
    double overflow; /* the largest finite value plus half a spacing */
} half;

static const half halves[] = {
    {kvb_codec_f16, kvb_codec_f16_value, 0x7c00, 65520},
    {kvb_codec_bf16, kvb_codec_bf16_value, 0x7f80, 0x1.ffp127},
};

static void every_value_encodes_to_itself(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (uint32_t h = 0; h < 65536; h++) {
            if ((h & 0x7fff) > halves[i].inf)
                continue;
            assert_int_equal(halves[i].encode((float)halves[i].value((uint16_t)h)), h);
        }
}

/* Between every two neighbours: below the middle down, above it up, on it to the even one. */
static void neighbours_round_to_nearest_even(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (uint32_t h = 0; h + 1 < halves[i].inf; h++) {
            double low = halves[i].value((uint16_t)h), high = halves[i].value((uint16_t)(h + 1));
            float middle = (float)((low + high) / 2);
            assert_true((double)middle == (low + high) / 2);
            uint32_t even = h & 1 ? h + 1 : h;
            assert_int_equal(halves[i].encode(middle), even);
            assert_int_equal(halves[i].encode(-middle), even | 0x8000);
            assert_int_equal(halves[i].encode(nextafterf(middle, 0)), h);
            assert_int_equal(halves[i].encode(nextafterf(middle, INFINITY)), h + 1);
        }
}

static void extremes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        float edge = (float)halves[i].overflow;
        assert_int_equal(halves[i].encode(edge), halves[i].inf);
        assert_int_equal(halves[i].encode(nextafterf(edge, 0)), halves[i].inf - 1);
        assert_int_equal(halves[i].encode(3.4e38f), halves[i].inf & (i ? 0x7f80 : 0x7c00));
        assert_int_equal(halves[i].encode(INFINITY), halves[i].inf);
        assert_int_equal(halves[i].encode(-INFINITY), halves[i].inf | 0x8000);
        assert_int_equal(halves[i].encode(0.0f), 0);
        assert_int_equal(halves[i].encode(-0.0f), 0x8000);
    }
    assert_int_equal(kvb_codec_f16(0x1p-25f), 0);          /* half the smallest subnormal: to even 0 */
    assert_int_equal(kvb_codec_f16(0x1.000002p-25f), 1);   /* just above it */
    assert_int_equal(kvb_codec_bf16(float_of(0x8000)), 0); /* likewise, itself a binary32 subnormal */
    assert_int_equal(kvb_codec_bf16(float_of(0x8001)), 1);
}

static void nan_stays_quiet_nan(void **state)
{
    (void)state;
    static const uint32_t patterns[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff};
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
        for (size_t i = 0; i < 2; i++) {
            uint16_t h = halves[i].encode(float_of(patterns[p]));
            assert_true(isnan(halves[i].value(h)));
            assert_int_equal(h >> 15, patterns[p] >> 31);
            assert_true(h & (i ? 0x40 : 0x200)); /* the quiet bit */
        }
}

static void rows_are_little_endian_and_exact(void **state)
{
    (void)state;
    static stored_row s;
    const float row[3] = {1.0f, -2.5f, 0.333333343f};
    double back[3], size[3];

    stored_encode(&s, kvb_codec_find("f16"), row, 1, 3, 1);
    assert_int_equal(part_bytes(&s, KVB_CODES, 1), 6);
    assert_memory_equal(s.bytes[KVB_CODES], "\x00\x3c\x00\xc1\x55\x35", 6);
    stored_decode(&s, 0, back, size);
    assert_true(back[0] == 1 && back[1] == -2.5 && back[2] == 0x1.554p-2 && size[1] == 2.5);

    stored_encode(&s, kvb_codec_find("bf16+had"), row, 1, 3, 1);
    assert_int_equal(part_bytes(&s, KVB_CODES, 1), 6);
    assert_memory_equal(s.bytes[KVB_CODES], "\x80\x3f\x20\xc0\xab\x3e", 6);
    stored_decode(&s, 0, back, size);
    assert_true(back[0] == 1 && back[1] == -2.5 && back[2] == 0x1.56p-2 && size[1] == 2.5);

    stored_encode(&s, kvb_codec_find("f32"), row, 1, 3, 1);
    assert_int_equal(part_bytes(&s, KVB_CODES, 1), 12);
    assert_memory_equal(s.bytes[KVB_CODES], row, 12);
    stored_decode(&s, 0, back, size);
    assert_true(back[2] == (double)row[2] && size[1] == 2.5);

    for (int part = KVB_SCALES; part < KVB_PARTS; part++)
        assert_int_equal(part_bytes(&s, part, 1), 0);
    assert_null(kvb_codec_find("f17"));
    assert_null(kvb_codec_find("f"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_decodes),
        cmocka_unit_test(every_pattern_agrees_with_the_compiler),
        cmocka_unit_test(every_value_encodes_to_itself),
        cmocka_unit_test(neighbours_round_to_nearest_even),
        cmocka_unit_test(extremes),
        cmocka_unit_test(nan_stays_quiet_nan),
        cmocka_unit_test(rows_are_little_endian_and_exact),
    };
    return cmocka_run_group_tests_name("oracle/codec", tests, NULL, NULL);
}
