/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: element conversion is IEEE: all f16 and bf16 values decode, rounding is to nearest even, F16C agrees. */
#include "ci/tests/kernels/fixture.h"
#include "kernels/convert.h"

static float float_of(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static uint16_t encoded(kvb_elem elem, uint32_t b)
{
    float x = float_of(b);
    uint16_t h;
    kvb_elems_encode_portable(elem, &h, &x, 1);
    return h;
}

/* Value, sign of zero, quiet NaN; and back to the same bits. Rows of 65536: the wide paths too. */
static void every_pattern_decodes(void **state)
{
    uint16_t *all = exact_alloc(65536 * sizeof *all, 0), *back = exact_alloc(65536 * sizeof *back, 0);
    float *wide = exact_alloc(65536 * sizeof *wide, 0), *portable = exact_alloc(65536 * sizeof *portable, 0);
    (void)state;

    for (uint32_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (kvb_elem elem = KVB_F16; elem <= KVB_BF16; elem++) {
        kvb_elems_decode(elem, wide, all, 65536);
        kvb_elems_decode_portable(elem, portable, all, 65536);
        assert_memory_equal(wide, portable, 65536 * sizeof *wide);
        kvb_elems_encode(elem, back, wide, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            double value = elem_value(elem, &all[i]);
            if (isnan(value)) {
                assert_true(isnan(wide[i]));
                assert_int_equal(back[i] | (elem == KVB_F16 ? 0x200 : 0x40), back[i]);
                continue;
            }
            assert_true((double)wide[i] == value);
            assert_int_equal(signbit(wide[i]) != 0, i >> 15);
            assert_int_equal(back[i], i);
        }
    }
    free(all);
    free(back);
    free(wide);
    free(portable);
}

/* Between each two neighbours: just below the middle, the middle, just above it. */
static void rounding_is_to_nearest_even(void **state)
{
    static const uint32_t last[] = {[KVB_F16] = 0x7bff, [KVB_BF16] = 0x7f7f}; /* largest finite */
    (void)state;

    for (kvb_elem elem = KVB_F16; elem <= KVB_BF16; elem++)
        for (uint32_t i = 0; i < last[elem]; i++) {
            uint16_t lo = (uint16_t)i, hi = (uint16_t)(i + 1);
            float middle = (float)((elem_value(elem, &lo) + elem_value(elem, &hi)) / 2); /* exact in f32 */
            uint32_t b = bits_of(middle), even = i % 2 ? hi : lo;
            assert_int_equal(encoded(elem, b), even);
            assert_int_equal(encoded(elem, b - 1), lo);
            assert_int_equal(encoded(elem, b + 1), hi);
            assert_int_equal(encoded(elem, b | 0x80000000u), even | 0x8000);
        }
}

static void edges_encode(void **state)
{
    static const struct {
        kvb_elem elem;
        uint32_t f32;
        uint16_t code;
    } edges[] = {
        {KVB_F16, 0x477fefff, 0x7bff},  /* just below 65520 */
        {KVB_F16, 0x477ff000, 0x7c00},  /* 65520: tie to infinity */
        {KVB_F16, 0x7f7fffff, 0x7c00},  /* largest f32 */
        {KVB_F16, 0xff800000, 0xfc00},  /* -infinity */
        {KVB_F16, 0x7f800001, 0x7e00},  /* signalling NaN becomes quiet, not infinity */
        {KVB_F16, 0xffc02000, 0xfe01},  /* NaN keeps sign and upper payload */
        {KVB_F16, 0x33000000, 0x0000},  /* 2^-25: tie to zero */
        {KVB_F16, 0x33000001, 0x0001},  /* above it: smallest subnormal */
        {KVB_F16, 0x387fffff, 0x0400},  /* rounds up to the smallest normal */
        {KVB_F16, 0x80000001, 0x8000},  /* f32 subnormal */
        {KVB_BF16, 0x7f7fffff, 0x7f80}, /* overflow */
        {KVB_BF16, 0x7f7f7fff, 0x7f7f}, /* just below the tie */
        {KVB_BF16, 0x7f800001, 0x7fc0}, /* NaN whose upper half looks like infinity */
        {KVB_BF16, 0xffffffff, 0xffff}, /* NaN that rounding would wrap */
        {KVB_BF16, 0x00008000, 0x0000}, /* subnormal tie to even */
        {KVB_BF16, 0x00018000, 0x0002},
    };
    (void)state;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        assert_int_equal(encoded(edges[i].elem, edges[i].f32), edges[i].code);
}

/* The wide encoder against the portable one on a stride of all f32 patterns, and on rows of every short length. */
static void wide_encode_agrees(void **state)
{
    enum { ROW = 4093 };
    float *row = exact_alloc(ROW * sizeof *row, 0);
    uint16_t *wide = exact_alloc(ROW * sizeof *wide, 0), *portable = exact_alloc(ROW * sizeof *portable, 0);
    uint32_t b = 0;
    (void)state;

    for (int rows = 0; rows < 300; rows++) {
        for (size_t i = 0; i < ROW; i++, b += 3499)
            row[i] = float_of(b);
        size_t n = rows < 40 ? (size_t)rows : ROW;
        kvb_elems_encode(KVB_F16, wide, row, n);
        kvb_elems_encode_portable(KVB_F16, portable, row, n);
        assert_memory_equal(wide, portable, n * sizeof *wide);
    }
    free(row);
    free(wide);
    free(portable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_decodes),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(edges_encode),
        cmocka_unit_test(wide_encode_agrees),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
