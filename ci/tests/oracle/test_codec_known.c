/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: rows worked out by hand from the published definitions, for every format, to the byte and back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "ci/tests/oracle/stored_row.h"
#include "oracle/codec.h"

static stored_row s;
static double row[256], size[256];

static void encode(const char *name, const float *x, uint32_t dim, float head_scale)
{
    const kvb_codec *codec = kvb_codec_find(name);
    assert_non_null(codec);
    stored_encode(&s, codec, x, 1, dim, head_scale);
    stored_decode(&s, 0, row, size);
}

static void part_is(int part, const char *bytes, size_t n)
{
    assert_int_equal(part_bytes(&s, part, 1), n);
    assert_memory_equal(s.bytes[part], bytes, n);
}

static void row_is(const double *want, uint32_t n)
{
    for (uint32_t c = 0; c < n; c++)
        if (row[c] != want[c] || signbit(row[c]) != signbit(want[c]))
            fail_msg("element %u is %g, not %g", c, row[c], want[c]);
}

static void all_are_there(void **state)
{
    (void)state;
    static const char *const names[] = {"f32",        "f16",     "bf16",        "e4m3",      "e4m3-tensor", "e4m3-head",
                                        "e4m3-token", "e5m2",    "e5m2-tensor", "e5m2-head", "e5m2-token",  "int8",
                                        "int8-asym",  "q8_0",    "q5_1",        "q5_0",      "q4_1",        "q4_0",
                                        "iq4_nl",     "a8g32",   "a8g64",       "a8g128",    "a4g32",       "a4g64",
                                        "a4g128",     "a2g32",   "a2g64",       "a2g128",    "kivi4-v",     "kivi2-v",
                                        "kivi4-k",    "kivi2-k", "mxfp4",       "nvfp4",     "tq4",         "tq3"};
    size_t n = sizeof names / sizeof *names;
    for (size_t i = 0; i < n; i++)
        assert_string_equal(kvb_codecs[i]->name, names[i]);
    assert_null(kvb_codecs[n]);
}

/* OFP8 table 1: exponents, largest, subnormals; ties to even; saturation. */
static void fp8(void **state)
{
    (void)state;
    const float x[] = {1,        448,       464,     1e9f,    INFINITY, -INFINITY, NAN,       -NAN, 0x1p-9f,
                       0x1p-10f, 0x1.8p-9f, 1.0625f, 1.1875f, -0.0f,    0x1p-6f,   0x1.cp-7f, -240};
    encode("e4m3", x, 17, 1);
    part_is(KVB_CODES, "\x38\x7e\x7e\x7e\x7e\xfe\x7f\xff\x01\x00\x02\x38\x3a\x80\x08\x07\xf7", 17);
    assert_true(isnan(row[6]) && isnan(row[7]) && row[3] == 448 && row[8] == 0x1p-9 && row[16] == -240);
    const float y[] = {1,        57344,    61440,      1e9f,   INFINITY, -INFINITY, NAN,     -NAN,
                       0x1p-16f, 0x1p-17f, 0x1.8p-16f, 1.125f, 1.375f,   -0.0f,     0x1p-14f};
    encode("e5m2", y, 15, 1);
    part_is(KVB_CODES, "\x3c\x7b\x7b\x7b\x7b\xfb\x7f\xff\x01\x00\x02\x3c\x3e\x80\x04", 15);
    assert_true(isnan(row[6]) && isnan(row[7]) && row[3] == 57344 && row[8] == 0x1p-16);
    assert_true(signbit(row[13]) && size[5] == 57344);
}

static void fp8_with_scales(void **state)
{
    (void)state;
    const float x[] = {2, 896, -1000, 0.03125f};
    const double want[] = {2, 896, -896, 0.03125};
    encode("e4m3-head", x, 4, 2);
    part_is(KVB_CODES, "\x38\x7e\xfe\x08", 4);
    row_is(want, 4);
    encode("e5m2-tensor", x, 4, 0x1p-6f);
    assert_true(row[1] == 896 && row[2] == -896); /* 1000 is 1.953 2^9 */

    const float token[] = {-896, 2, -0.0f, NAN, INFINITY}, finite[] = {-896, 2, -0.0f, NAN, 1};
    encode("e4m3-token", finite, 5, 1);
    part_is(KVB_CODES, "\xfe\x38\x80\x7f\x30", 5);
    part_is(KVB_SCALES, "\x00\x00\x00\x40", 4);
    assert_true(row[0] == -896 && row[1] == 2 && isnan(row[3]) && row[4] == 1);
    encode("e5m2-token", token, 5, 1); /* an infinity counts as the largest float */
    assert_true(row[0] == 0 && isnan(row[3]) && isfinite(row[4]) && row[4] > 3.4e38);
    const float zeros[] = {0.0f, -0.0f, NAN};
    encode("e4m3-token", zeros, 3, 1);
    part_is(KVB_CODES, "\x00\x80\x7f", 3);
    part_is(KVB_SCALES, "\x00\x00\x00\x00", 4);
}

static void head_scales(void **state)
{
    (void)state;
    const float amax[] = {448, 896, 44.8f}, none[] = {0, NAN, INFINITY};
    kvb_format f = {.elem = KVB_E4M3, .head_scale = KVB_STATIC_HEAD};
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 1 && kvb_codec_head_scale(&f, amax, 3, 1) == 2);
    assert_true(kvb_codec_head_scale(&f, amax, 3, 2) == 44.8f / 448 && kvb_codec_head_scale(&f, NULL, 3, 1) == 1);
    for (uint32_t h = 0; h < 3; h++)
        assert_true(kvb_codec_head_scale(&f, none, 3, h) == 1);
    f.head_scale = KVB_STATIC_TENSOR;
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 2 && kvb_codec_head_scale(&f, amax, 3, 2) == 2);
    f.elem = KVB_E5M2;
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 896.0f / 57344);
    f.elem = KVB_E2M1;
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 896.0f / 2688);
    f.head_scale = KVB_STATIC_NONE;
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 1);
}

static void int8(void **state)
{
    (void)state;
    const float x[] = {127, -127, 0.5f, 1.5f, 2.5f, -0.5f, NAN};
    encode("int8", x, 7, 1);
    part_is(KVB_CODES, "\x7f\x81\x00\x02\x02\x00\x00", 7);
    part_is(KVB_SCALES, "\x00\x00\x80\x3f", 4);
    assert_true(row[1] == -127 && size[1] == 127);
    const float y[] = {-10, 245, -9.5f, -8.5f, 0, NAN};
    encode("int8-asym", y, 6, 1);
    part_is(KVB_CODES, "\x00\xff\x00\x02\x0a\x0a", 6);
    part_is(KVB_SCALES, "\x00\x00\x80\x3f", 4);
    part_is(KVB_ZEROS, "\x00\x00\x20\xc1", 4);
    assert_true(row[1] == 245 && size[1] == 265 && row[4] == 0);
    const float zeros[] = {0.0f, -0.0f}; /* the least has the sign */
    encode("int8-asym", zeros, 2, 1);
    part_is(KVB_ZEROS, "\x00\x00\x00\x80", 4);
    const float huge[] = {INFINITY, -FLT_MAX, 0x1p126f};
    encode("int8", huge, 3, 1);
    part_is(KVB_CODES, "\x7f\x81\x7f", 3);
}

static void ggml_symmetric(void **state)
{
    (void)state;
    float x[32] = {127, 0.5f, -0.5f, 1.5f, -127};
    encode("q8_0", x, 32, 1);
    assert_int_equal(part_bytes(&s, KVB_CODES, 1), 34);
    assert_memory_equal(s.bytes[KVB_CODES], "\x00\x3c\x7f\x01\xff\x02\x81\x00", 8);
    assert_true(row[1] == 1 && row[4] == -127); /* half away from zero */

    float y[32] = {-8, 8, 7, -1, [16] = 1, [17] = 0.5f, [18] = -0.5f, [19] = NAN};
    encode("q4_0", y, 32, 1);
    part_is(KVB_CODES, "\x00\x3c\x90\x9f\x8f\x87\x88\x88\x88\x88\x88\x88\x88\x88\x88\x88\x88\x88", 18);
    assert_true(row[0] == -8 && row[1] == 7 && row[16] == 1 && row[17] == 1 && row[18] == 0 && row[31] == 0);
    y[0] = 8, y[1] = -8; /* the first of largest magnitude decides the sign of d */
    encode("q4_0", y, 32, 1);
    assert_memory_equal(s.bytes[KVB_CODES], "\x00\xbc\x70\x8f\x91", 5);
    assert_true(row[0] == 8 && row[1] == -7 && row[2] == 7);

    float z[32] = {-16, 15, 16, -1, [16] = 1, [31] = -16};
    encode("q5_0", z, 32, 1);
    part_is(KVB_CODES, "\x00\x3c\xf6\xff\xff\x7f\x10\x0f\x0f\x0f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 22);
    assert_true(row[0] == -16 && row[1] == 15 && row[2] == 15 && row[3] == -1 && row[16] == 1 && row[31] == -16);

    float zero[32] = {0};
    encode("q4_0", zero, 32, 1);
    assert_memory_equal(s.bytes[KVB_CODES], "\x00\x80\x88", 3); /* d = 0 / -8 */
    encode("iq4_nl", zero, 32, 1);
    assert_memory_equal(s.bytes[KVB_CODES], "\x00\x00\x00", 3);
}

static void ggml_from_least(void **state)
{
    (void)state;
    float x[32], l[32];
    static const float levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    for (int j = 0; j < 32; j++)
        x[j] = (float)(j - 4), l[j] = levels[j % 16];
    encode("q5_1", x, 32, 1);
    part_is(KVB_CODES,
            "\x00\x3c\x00\xc4\x00\x00\xff\xff\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 24);
    assert_true(row[0] == -4 && row[31] == 27 && size[31] == 35);
    for (int j = 0; j < 32; j++)
        x[j] = j < 16 ? (float)j : 0.5f;
    encode("q4_1", x, 32, 1);
    part_is(KVB_CODES, "\x00\x3c\x00\x00\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f", 20);
    assert_true(row[15] == 15 && row[16] == 1);
    float zeros[32] = {-0.0f};
    encode("q4_1", zeros, 32, 1); /* the first of equals stays */
    assert_memory_equal(s.bytes[KVB_CODES], "\x00\x00\x00\x80", 4);
    zeros[0] = 0, zeros[1] = -0.0f;
    encode("q4_1", zeros, 32, 1);
    assert_memory_equal(s.bytes[KVB_CODES], "\x00\x00\x00\x00", 4);

    encode("iq4_nl", l, 32, 1);
    part_is(KVB_CODES, "\x00\x3c\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 18);
    assert_true(row[0] == -127 && row[31] == 113);
    l[8] = -4.5f, l[9] = 7; /* halfway: the upper level */
    encode("iq4_nl", l, 32, 1);
    assert_int_equal(s.bytes[KVB_CODES][2 + 8] & 15, 8);
    assert_int_equal(s.bytes[KVB_CODES][2 + 9] & 15, 9);
}

static void affine(void **state)
{
    (void)state;
    float x[32];
    for (int j = 0; j < 32; j++)
        x[j] = (float)(j % 16);
    encode("a4g32", x, 32, 1); /* the edge farther from 0 is the bias: 15, one step down a code */
    part_is(KVB_CODES, "\xef\xcd\xab\x89\x67\x45\x23\x01\xef\xcd\xab\x89\x67\x45\x23\x01", 16);
    part_is(KVB_SCALES, "\x00\xbc", 2);
    part_is(KVB_ZEROS, "\x80\x4b", 2);
    assert_true(row[3] == 3 && size[3] == 12 + 15);
    for (int j = 0; j < 32; j++)
        x[j] = -(float)(j % 4);
    encode("a2g32", x, 32, 1);
    part_is(KVB_CODES, "\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b", 8);
    part_is(KVB_SCALES, "\x00\x3c", 2);
    part_is(KVB_ZEROS, "\x00\xc2", 2);
    float zero[32] = {0}; /* the least step, 1e-7: two of f16's smallest subnormals */
    encode("a8g32", zero, 32, 1);
    part_is(KVB_SCALES, "\x02\x80", 2);
    part_is(KVB_ZEROS, "\x00\x00", 2);
    assert_true(row[0] == 0);
    float odd[32] = {-1, 1.5f}; /* step -2.5/3, 1.5/step = -1.8: so two steps of -0.75 */
    encode("a2g32", odd, 32, 1);
    assert_memory_equal(s.bytes[KVB_CODES], "\xa3", 1);
    part_is(KVB_SCALES, "\x00\xba", 2);
    part_is(KVB_ZEROS, "\x00\x3e", 2);
    assert_true(row[0] == -0.75 && row[1] == 1.5 && row[2] == 0);
}

static void kivi(void **state)
{
    (void)state;
    float x[32];
    for (int j = 0; j < 32; j++)
        x[j] = (float)(j % 16) - 3;
    encode("kivi4-v", x, 32, 1);
    part_is(KVB_CODES, "\x10\x32\x54\x76\x98\xba\xdc\xfe\x10\x32\x54\x76\x98\xba\xdc\xfe", 16);
    part_is(KVB_SCALES, "\x00\x3c", 2);
    part_is(KVB_ZEROS, "\x00\xc2", 2);
    assert_true(row[0] == -3 && row[15] == 12 && size[15] == 18);

    const float rows[2][4] = {{0, -1, 5, 2}, {3, 2, 5, 8}};
    stored_encode(&s, kvb_codec_find("kivi2-k"), rows[0], 2, 4, 1);
    assert_memory_equal(s.bytes[KVB_CODES], "\x00\xcf", 2);
    assert_memory_equal(s.bytes[KVB_SCALES], "\x00\x3c\x00\x3c\x00\x00\x00\x40", 8);
    assert_memory_equal(s.bytes[KVB_ZEROS], "\x00\x00\x00\xbc\x00\x45\x00\x40", 8);
    for (uint32_t i = 0; i < 2; i++) {
        stored_decode(&s, i, row, size);
        for (int c = 0; c < 4; c++)
            assert_true(row[c] == (double)rows[i][c]);
    }
    for (int j = 0; j < 32; j++)
        x[j] = j ? 0.0f : -0.0f;
    encode("kivi2-v", x, 32, 1);
    part_is(KVB_ZEROS, "\x00\x80", 2);
}

/* MX v1.0, table 5 (E2M1) and section 6.3. */
static void mx(void **state)
{
    (void)state;
    float x[32] = {0, 0.25f, 0.5f, 0.75f, 1, 1.25f, 1.75f, 2.5f, 3.5f, 5, 6, -0.0f, -6, 7, -7.9f, NAN};
    encode("mxfp4", x, 32, 1);
    part_is(KVB_CODES, "\x00\x21\x22\x44\x66\x87\x7f\x0f\x00\x00\x00\x00\x00\x00\x00\x00", 16);
    part_is(KVB_SCALES, "\x7f", 1);
    assert_true(row[13] == 6 && row[14] == -6 && row[15] == 0 && signbit(row[11]));
    float small[32] = {0x1p-149f}, huge[32] = {INFINITY, -FLT_MAX}, zero[32] = {0, -0.0f};
    encode("mxfp4", small, 32, 1);
    part_is(KVB_SCALES, "\x00", 1);
    assert_true(row[0] == 0); /* 2^-22 of the least scale */
    encode("mxfp4", huge, 32, 1);
    part_is(KVB_SCALES, "\xfc", 1);
    assert_true(row[0] == 6 * 0x1p125 && row[1] == -6 * 0x1p125);
    encode("mxfp4", zero, 32, 1);
    part_is(KVB_SCALES, "\x00", 1);
    assert_int_equal(s.bytes[KVB_CODES][0], 0x80);

    float y[16] = {6, 0.25f, 0.75f, -5, 2.5f, -0.0f};
    encode("nvfp4", y, 16, 0.5f); /* 6 / 6 / 0.5 = 2 */
    part_is(KVB_CODES, "\x07\xe2\x84\x00\x00\x00\x00\x00", 8);
    part_is(KVB_SCALES, "\x40", 1);
    assert_true(row[0] == 6 && row[2] == 1 && row[3] == -4 && row[4] == 2);
    encode("nvfp4", huge, 16, 1); /* the scale saturates, then the codes */
    part_is(KVB_SCALES, "\x7e", 1);
    assert_true(row[0] == 6 * 448 && row[1] == -6 * 448);
    encode("nvfp4", zero, 16, 1);
    part_is(KVB_SCALES, "\x00", 1);
    assert_int_equal(s.bytes[KVB_CODES][0], 0x80);
}

static void codebook(void **state)
{
    (void)state;
    float x[32];
    for (int j = 0; j < 32; j++)
        x[j] = j % 2 ? -2.0f : 2.0f;
    encode("tq4", x, 32, 1); /* root mean square 2; 1 lies below the border of 0.9424 and 1.256 */
    part_is(KVB_SCALES, "\x00\x40", 2);
    part_is(KVB_CODES, "\x4b\x4b\x4b\x4b\x4b\x4b\x4b\x4b\x4b\x4b\x4b\x4b\x4b\x4b\x4b\x4b", 16);
    assert_true(row[0] == 2 * (double)0.9424f && row[1] == -2 * (double)0.9424f);
    encode("tq3", x, 32, 1); /* codes 5, 2, 5, 2, 5, 2, 5, 2: 12 bytes, low bits first */
    part_is(KVB_CODES, "\x55\x55\x55\x55\x55\x55\x55\x55\x55\x55\x55\x55", 12);
    assert_true(row[0] == 2 * (double)0.7560f && row[1] == -2 * (double)0.7560f);
    float zero[32] = {0};
    encode("tq4", zero, 32, 1);
    part_is(KVB_SCALES, "\x00\x00", 2);
    assert_int_equal(s.bytes[KVB_CODES][0], 0x77); /* 0 is not above the border at 0 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_there),
        cmocka_unit_test(fp8),
        cmocka_unit_test(fp8_with_scales),
        cmocka_unit_test(head_scales),
        cmocka_unit_test(int8),
        cmocka_unit_test(ggml_symmetric),
        cmocka_unit_test(ggml_from_least),
        cmocka_unit_test(affine),
        cmocka_unit_test(kivi),
        cmocka_unit_test(mx),
        cmocka_unit_test(codebook),
    };
    return cmocka_run_group_tests_name("oracle/codec known answers", tests, NULL, NULL);
}
