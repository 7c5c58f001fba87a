/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the softmax weights of every level are those of double precision within WEIGHT_ERROR and the rounding of
 * the exponent, over the whole range of exponents; that the maximum moves only when it must; and what becomes of NaN,
 * infinities and cells that are not visible. `test_weights 1` tries every float, not one in STEP.
 */
#include "fixture.h"
#include "levels.h"
#include "kernels/softmax.h"

#define U    0x1p-24
#define STEP 211u

static uint32_t step = STEP;

/* Of one row. Returns the factor on its earlier sums. */
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

/* The largest relative error of weights over what the exponent's own rounding explains, for scores of either sign and
 * magnitudes from `least` to `most`. The state's max is 0 and stays. */
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

static void powers_are_near(void **state)
{
    const kvb_vector *table;
    (void)state;
    for (int level = 0; (table = level_next(&level));) {
        const kvb_logits plain = {1, 0};
        double above = error_largest(table, plain, 0x1p-30f, 8, false);
        double below = error_largest(table, plain, 0x1p-30f, 126, true);
        print_message("# %s: 2^%.2f\n", kvb_cpu_level_names[table->level], log2(fmax(above, below)));
        assert_true(fmax(above, below) <= WEIGHT_ERROR);
    }
}

/* A factor of 64: of the error that is left, tanh's is by far the largest. */
static void caps_are_near(void **state)
{
    const kvb_vector *table;
    (void)state;
    for (int level = 0; (table = level_next(&level));)
        for (int negative = 0; negative < 2; negative++) {
            const kvb_logits capped = {1, negative ? 64.0f : 7.5f};
            double error = error_largest(table, capped, 0x1p-20f, 0x1p20f, negative);
            if (!(error <= WEIGHT_ERROR))
                fail_msg("%s: 2^%.2f", kvb_cpu_level_names[table->level], log2(error));
        }
}

/* One block after another into one row, against double precision; what is not visible is NaN. */
static void rows_of_blocks_are_right(void **ignored)
{
    uint64_t rng = 5;
    const kvb_vector *table;
    (void)ignored;
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
                    visible = 0; /* of the first n: later bits mean nothing */
                for (uint32_t i = 0; i < n; i++)
                    if (visible >> i & 1) {
                        s[i] = random_value(&rng) * 4 + drift;
                        x[i] = (double)s[i] * (double)logits.scale;
                        x[i] = logits.softcap > 0 ? (double)logits.softcap * tanh(x[i]) : x[i];
                        top = fmax(top, x[i]);
                    }
                float factor = row_weigh(table, logits, s, n, visible, &state);
                double near = 1e-4; /* of an exponent: enough to know which way it went */
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
                        fail_msg("%s: weight %.9g, want %.9g", kvb_cpu_level_names[table->level], (double)s[i], want);
                    exact += (double)s[i];
                    sum_error += 19 * U * (double)s[i];
                }
                assert_true(fabs(state.sum - exact) <= sum_error);
                free(s);
            }
        }
}

static void nothing_visible_changes_nothing(void **ignored)
{
    const kvb_vector *table;
    (void)ignored;
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

/* What a block of {first, second, third} makes of a fresh state. */
static kvb_row_state special(const kvb_vector *table, float first, float second, float third, float weights[16])
{
    kvb_row_state state = {-INFINITY, 0};
    _Alignas(64) float s[16] = {first, second, third};
    row_weigh(table, (kvb_logits){1, 0}, s, 3, 7, &state);
    memcpy(weights, s, sizeof s);
    return state;
}

static void specials_keep_their_meaning(void **ignored)
{
    const kvb_vector *table;
    _Alignas(64) float w[16];
    (void)ignored;
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
        memcpy(w, (float[]){1, 2, 3}, 3 * sizeof *w); /* and the next block does not make it a number again */
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

/* The reference's: the sum of thousands of equal weights does not drift, which coarse K formats make. */
static void equal_weights_add_up(void **state)
{
    enum { CELLS = 16384 };
    static float s[CELLS];
    (void)state;
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_are_near),
        cmocka_unit_test(caps_are_near),
        cmocka_unit_test(rows_of_blocks_are_right),
        cmocka_unit_test(nothing_visible_changes_nothing),
        cmocka_unit_test(specials_keep_their_meaning),
        cmocka_unit_test(equal_weights_add_up),
    };
    step = argc > 1 && atoi(argv[1]) > 0 ? (uint32_t)atoi(argv[1]) : STEP;
    return cmocka_run_group_tests_name("vector weights", tests, NULL, NULL);
}
