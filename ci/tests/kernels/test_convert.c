/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: element conversion is IEEE: all f16 and bf16 values decode, rounding is to nearest even, F16C agrees; rows of
 * whatever format are read as it says.
 */
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

/* Says that it was asked: element d of head h, cell c. */
static void marks_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < view->dim; d++)
            *rows++ = (float)(1000 * h + 100 * (c + i) + d);
}

/* Whatever else a format has besides plain elements, its own read() is used. */
static void rows_are_read_by_their_format(void **state)
{
    static const float scale = 2;
    static const kvb_format formats[] = {
        {.elem = KVB_F32, .transform = KVB_TRANSFORM_HADAMARD},
        {.elem = KVB_F16, .transform = KVB_TRANSFORM_SIGNED_HADAMARD},
        {.elem = KVB_F16, .axis = KVB_AXIS_CHANNELS, .group = 2},
        {.elem = KVB_BF16, .head_scale = KVB_STATIC_HEAD},
        {.elem = KVB_F32, .head_scale = KVB_STATIC_TENSOR},
        {.elem = KVB_F16, .residual_cells = 2},
        {.elem = KVB_Q4_0},
        {.elem = KVB_CODEBOOK, .level_bits = 3},
    };
    uint32_t bits[2 * 3 * 4] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        kvb_format f = formats[i];
        f.read = marks_read;
        kvb_view view = {.base = bits,
                         .head_stride = 3 * 16,
                         .cell_stride = 16,
                         .cells = 3,
                         .dim = 4,
                         .format = &f,
                         .scales = &scale,
                         .head_scales = &scale};
        float row[4], rows[2][4];
        assert_false(kvb_format_is_f32(&f));
        assert_ptr_equal(kvb_row_read(&view, 1, 2, row), row);
        kvb_rows_decode(&view, 1, 1, 2, rows[0]);
        for (uint32_t d = 0; d < 4; d++) {
            assert_true(row[d] == (float)(1200 + d));
            assert_true(rows[0][d] == (float)(1100 + d) && rows[1][d] == (float)(1200 + d));
        }
    }
}

/* Plain elements, and those with scales and a window, through gaps, one by one and many at once. */
static void every_row_reads(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        struct shape s = {.n_tok = 1,
                          .n_kv_heads = 2,
                          .group = 1,
                          .k_dim = 20,
                          .v_dim = 9,
                          .n_cells = 30,
                          .k_elem = test_elems[i % TEST_ELEMS],
                          .v_elem = test_elems[(i + 1) % TEST_ELEMS],
                          .gap = i / 8 * 4,
                          .threads = 1,
                          .seed = i};
        struct fixture f;
        float row[20], *rows = exact_alloc(30 * 20 * sizeof *rows, 0);
        fixture_build(&f, &s);
        const kvb_view *views[] = {&f.args.k, &f.args.v};
        for (int side = 0; side < 2; side++)
            for (uint32_t h = 0; h < 2; h++) {
                const kvb_view *v = views[side];
                kvb_rows_decode(v, h, 0, 30, rows);
                for (uint32_t c = 0; c < 30; c++) {
                    const float *got = kvb_row_read(v, h, c, row);
                    assert_int_equal(got != row, v->format->elem == KVB_F32);
                    assert_memory_equal(got, rows + c * v->dim, v->dim * sizeof *got);
                    for (uint32_t d = 0; d < v->dim; d++)
                        assert_true(got[d] == (float)row_elem(v, h, c, d));
                }
            }
        free(rows);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_decodes),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(edges_encode),
        cmocka_unit_test(wide_encode_agrees),
        cmocka_unit_test(rows_are_read_by_their_format),
        cmocka_unit_test(every_row_reads),
    };
    return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
