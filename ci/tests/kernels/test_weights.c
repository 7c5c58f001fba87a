/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the loops of softmax, and conversions of elements. */
#define TESTS_OWN_MAIN
#include "ci/tests/tests.h"
#include "ci/tests/kernels/fixture.h"
#include "ci/tests/kernels/levels.h"
#include "kernels/convert.h"
#include "kernels/softmax.h"

/*
 * Shows that the softmax weights of every level match double precision within WEIGHT_ERROR and the rounding of the
 * exponent, over the whole range of exponents; that the maximum moves only if it must; and the effects of NaN,
 * infinities and hidden cells. `test_weights 1` tries every float, not one in STEP.
 */

#define U    0x1p-24
#define STEP 211u

static uint32_t step = STEP;

/* Weighs one row. Returns the factor for its earlier sums. */
static float row_weigh(const kvb_vector *level, kvb_logits logits, float *scores, uint32_t n, uint64_t visible,
                       kvb_row_state *state)
{
    float earlier;
    level->weigh(logits, scores, n, 1, &visible, &state, &earlier);
    return earlier;
}

static uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The largest relative error of weights beyond the exponent's own rounding, for scores of one sign with magnitudes from
 * `least` to `most`. The state's max stays 0. */
static double error_largest(const kvb_vector *level, kvb_logits logits, float least, float most, bool negative)
{
    _Alignas(64) float s[BLOCK], w[BLOCK];
    double worst = 0;
    for (uint32_t bits = float_bits(least), n; bits <= float_bits(most); bits += n * step) {
        for (n = 0; n < BLOCK && bits + n * step <= float_bits(most); n++)
            w[n] = s[n] = float_of((bits + n * step) | (uint32_t)negative << 31);
        kvb_row_state state = {0, 0};
        assert_true(row_weigh(level, logits, w, n, UINT64_MAX, &state) == 1);
        assert_true(state.max == 0);
        for (uint32_t i = 0; i < n; i++) {
            double x = logits.softcap > 0 ? (double)logits.softcap * tanh((double)s[i] * (double)logits.scale)
                                          : (double)s[i] * (double)logits.scale;
            double explained = expm1(0.6931471805599453 * (U * fabs(x) + (double)logits.softcap * TANH_ERROR));
            double error = fabs((double)w[i] / exp2(x) - 1) - explained;
            worst = error > worst ? error : worst;
        }
    }
    return worst;
}

TEST(powers_are_near)
{
    const kvb_vector *table;
    for (int level = 0; (table = level_next(&level));) {
        const kvb_logits plain = {1, 0};
        double above = error_largest(table, plain, 0x1p-30f, 8, false);
        double below = error_largest(table, plain, 0x1p-30f, 126, true);
        print_message("# %s: 2^%.2f\n", kvb_cpu_level_names[kvb_vector_level(table)], log2(fmax(above, below)));
        assert_true(fmax(above, below) <= WEIGHT_ERROR);
    }
}

/* With a factor of 64, tanh's error is by far the largest that remains. */
TEST(caps_are_near)
{
    const kvb_vector *table;
    for (int level = 0; (table = level_next(&level));)
        for (int negative = 0; negative < 2; negative++) {
            const kvb_logits capped = {1, negative ? 64.0f : 7.5f};
            double error = error_largest(table, capped, 0x1p-20f, 0x1p20f, negative);
            if (!(error <= WEIGHT_ERROR))
                fail_msg("%s: 2^%.2f", kvb_cpu_level_names[kvb_vector_level(table)], log2(error));
        }
}

/* Adds block after block to one row, against double precision. Hidden cells are NaN. */
TEST(rows_of_blocks_are_right)
{
    uint64_t rng = 5;
    const kvb_vector *table;
    for (int level = 0; (table = level_next(&level));)
        for (uint32_t turn = 0; turn < 200; turn++) {
            kvb_logits logits = turn % 3 ? (kvb_logits){0.25f + 0.1f * (float)(turn % 40), 0} : (kvb_logits){0.3f, 40};
            kvb_row_state state = {-INFINITY, 0};
            double exact = 0, sum_error = 0;
            for (uint32_t block = 0; block < 12; block++) {
                uint32_t n = 1 + random_below(&rng, BLOCK), up = (n + 15) / 16 * 16;
                uint64_t visible = random_bits(&rng) | (turn % 2 ? random_bits(&rng) : 0);
                kvb_row_state before = state;
                double top = -INFINITY, x[BLOCK];
                float *s = exact_alloc(up * sizeof *s, 0xff), drift = 4.0f * (float)block * (float)(turn % 5);
                if (turn % 10 == 1 && block < 3)
                    visible = 0; /* among the first n; later bits mean nothing */
                for (uint32_t i = 0; i < n; i++)
                    if (visible >> i & 1) {
                        s[i] = random_value(&rng) * 4 + drift;
                        x[i] = (double)s[i] * (double)logits.scale;
                        x[i] = logits.softcap > 0 ? (double)logits.softcap * tanh(x[i]) : x[i];
                        top = fmax(top, x[i]);
                    }
                float factor = row_weigh(table, logits, s, n, visible, &state);
                double near = 1e-4; /* error of an exponent: enough to tell the cases apart */
                if (state.max == before.max) {
                    assert_true(factor == 1 && !(top > (double)before.max + 8 + near));
                } else {
                    assert_true(top > (double)before.max + 8 - near);
                    assert_true(fabs((double)state.max - (top + 0.5)) <= 0.5 + near && state.max == floorf(state.max));
                    assert_true(factor == (before.max == -INFINITY ? 1 : exp2f(before.max - state.max)));
                    exact *= exp2((double)before.max - (double)state.max);
                    sum_error *= exp2((double)before.max - (double)state.max);
                }
                for (uint32_t i = 0; i < up; i++) {
                    if (i >= n || !(visible >> i & 1)) {
                        assert_true(s[i] == 0);
                        continue;
                    }
                    double want = exp2(x[i] - (double)state.max),
                           slack = U * (fabs(x[i]) + fabs(x[i] - (double)state.max));
                    slack = expm1(0.7 * (slack + (double)logits.softcap * TANH_ERROR)) + WEIGHT_ERROR;
                    if (!(fabs((double)s[i] - want) <= slack * want + 0x1p-126))
                        fail_msg("%s: weight %.9g, want %.9g", kvb_cpu_level_names[kvb_vector_level(table)],
                                 (double)s[i], want);
                    exact += (double)s[i];
                    sum_error += 19 * U * (double)s[i];
                }
                assert_true(fabs(state.sum - exact) <= sum_error);
                free(s);
            }
        }
}

TEST(nothing_visible_changes_nothing)
{
    const kvb_vector *table;
    for (int level = 0; (table = level_next(&level));)
        for (int seen = 0; seen < 2; seen++) {
            _Alignas(64) float s[16] = {NAN, INFINITY, -INFINITY, 5, 6};
            kvb_row_state state = seen ? (kvb_row_state){3, 7} : (kvb_row_state){-INFINITY, 0}, before = state;
            assert_true(row_weigh(table, (kvb_logits){1, 0}, s, 5, ~UINT64_C(31), &state) == 1);
            assert_memory_equal(&state, &before, sizeof state);
            for (int i = 0; i < 16; i++)
                assert_true(s[i] == 0);
        }
}

/* The state after a block {first, second, third}, from a new one. */
static kvb_row_state special(const kvb_vector *table, float first, float second, float third, float weights[16])
{
    kvb_row_state state = {-INFINITY, 0};
    _Alignas(64) float s[16] = {first, second, third};
    row_weigh(table, (kvb_logits){1, 0}, s, 3, 7, &state);
    memcpy(weights, s, sizeof s);
    return state;
}

TEST(specials_keep_their_meaning)
{
    const kvb_vector *table;
    _Alignas(64) float w[16];
    for (int level = 0; (table = level_next(&level));) {
        kvb_row_state state = special(table, -INFINITY, 2, 1, w);
        assert_true(w[0] == 0 && w[1] == 1 && w[2] == 0.5f && state.max == 2 && state.sum == 1.5);

        state = special(table, -INFINITY, -INFINITY, -INFINITY, w);
        assert_true(w[0] == 0 && w[1] == 0 && w[2] == 0 && state.max == -INFINITY && state.sum == 0);

        state = special(table, NAN, 2, -INFINITY, w);
        assert_true(isnan(w[0]) && w[1] == 1 && w[2] == 0 && state.max == 2 && isnan(state.sum));

        state = special(table, 2, 1, NAN, w);
        assert_true(isnan(w[2]) && w[0] == 1 && state.max == 2 && isnan(state.sum));

        state = special(table, NAN, NAN, NAN, w);
        assert_true(isnan(w[0]) && isnan(w[2]) && !isnan(state.max) && isnan(state.sum));
        memcpy(w, (float[]){1, 2, 3}, 3 * sizeof *w); /* the next block does not turn NaN into a number */
        row_weigh(table, (kvb_logits){1, 0}, w, 3, 7, &state);
        assert_true(state.max == 3 && isnan(state.sum));

        state = special(table, INFINITY, 2, INFINITY, w);
        assert_true(isnan(w[0]) && isnan(w[2]) && !isnan(state.max) && isnan(state.sum));
        memcpy(w, (float[]){1, INFINITY, 3}, 3 * sizeof *w);
        row_weigh(table, (kvb_logits){1, 0}, w, 3, 7, &state);
        assert_true(isnan(w[1]) && !isnan(state.max) && isnan(state.sum));

        state = special(table, 0, -126.5f, -1e30f, w);
        assert_true(w[0] == 1 && w[1] == 0 && w[2] == 0);
        state = special(table, 0, -126, -125.5f, w);
        assert_true(w[1] == 0x1p-126f && w[2] > 0x1p-126f);
    }
}

/* The reference's sum of thousands of equal weights, as coarse K formats give, does not drift. */
TEST(equal_weights_add_up)
{
    enum { CELLS = 16384 };
    static float s[CELLS];
    for (int i = 1; i < 40; i++) {
        float score = -0.173f * (float)i;
        for (int c = 0; c < CELLS; c++)
            s[c] = score;
        float sum = kvb_weights(s, CELLS, 0.0f, 1.0f);
        double want = 1 + CELLS * (double)expf(score);
        if (fabs((double)sum / want - 1) > 0x1p-23)
            fail_msg("score %g: sum %.9g, want %.9g", (double)score, (double)sum, want);
    }
}

/*
 * Shows: elements are converted as IEEE 754 requires: all f16 and bf16 values decode, rounding is to nearest even, F16C
 * agrees. Rows of every format are read as the format says.
 */

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

/* Value, sign of zero, quiet NaN, and back to the same bits. Rows of 65536 also try the wide paths. */
TEST(every_pattern_decodes)
{
    uint16_t *all = exact_alloc(65536 * sizeof *all, 0), *back = exact_alloc(65536 * sizeof *back, 0);
    float *wide = exact_alloc(65536 * sizeof *wide, 0), *portable = exact_alloc(65536 * sizeof *portable, 0);
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

/* Tries, between any two neighbours: just below the middle, the middle, just above it. */
TEST(rounding_is_to_nearest_even)
{
    static const uint32_t last[] = {[KVB_F16] = 0x7bff, [KVB_BF16] = 0x7f7f}; /* largest finite */
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

TEST(edges_encode)
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
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        assert_int_equal(encoded(edges[i].elem, edges[i].f32), edges[i].code);
}

/* The wide encoder against the portable one on a stride of all f32 patterns, and on rows of every short length. */
TEST(wide_encode_agrees)
{
    enum { ROW = 4093 };
    float *row = exact_alloc(ROW * sizeof *row, 0);
    uint16_t *wide = exact_alloc(ROW * sizeof *wide, 0), *portable = exact_alloc(ROW * sizeof *portable, 0);
    uint32_t b = 0;
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

/* A read() that leaves a mark in each element: its head, cell and channel. */
static void marks_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < view->dim; d++)
            *rows++ = (float)(1000 * h + 100 * (c + i) + d);
}

/* A format with more than plain elements is read by its own read(). */
TEST(rows_are_read_by_their_format)
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

/* Plain elements, and those with scales and a window, with gaps between rows, one by one and many at once. */
TEST(every_row_reads)
{
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

int main(int argc, char **argv)
{
    step = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : STEP;
    return tests_run();
}
