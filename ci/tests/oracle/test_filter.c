/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows, over rows of a width that is no power of two: of honest roundings the filter says nothing; a token of which
 * one KV head holds another's V row is named, with layer and KV head; V rows are scaled as the filter wants them. What
 * it says of kernels: whole/test_filter.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/filter.h"

enum { TOKENS = 120, MANY = 1500, HEADS = 4, KV_HEADS = 2, K = 12, V = 20, STALE = 7, NOBODY = MANY };
static const kvb_format f32 = {.name = "f32", .elem = KVB_F32};
static const kvb_group group = {.heads = HEADS, .kv_heads = KV_HEADS, .k_dim = K, .v_dim = V, .scale = 0.3};
static const kvb_arithmetic bf16_sums = {.dot_chain = K, .cell_chain = TOKENS, .sums.rounding = KVB_BF16},
                            in_steps = {.dot_chain = K, .cell_chain = TOKENS, .sums.step = 0.02};

/* The row's output, each element off by a rounding at random; and what another V row of the token does to it. */
static void output_make(const kvb_values *values, const kvb_expect *e, uint32_t stale, uint64_t *seed, float *out)
{
    const float *v = kvb_values_rows(values, KVB_ROWS_V, e->layer, STALE) + e->head / 2 * V,
                *wrong = kvb_values_rows(values, KVB_ROWS_V, e->layer, STALE + 50) + e->head / 2 * V,
                *k = kvb_values_rows(values, KVB_ROWS_K, e->layer, STALE) + e->head / 2 * K,
                *q = kvb_values_rows(values, KVB_ROWS_Q, e->layer, e->query) + e->head * K;
    double score = 0;
    for (uint32_t c = 0; c < K; c++)
        score += (double)q[c] * (double)k[c];
    double weight = stale <= e->query && e->layer == 1 && e->head / 2 == 1 ? exp(0.3 * score - e->lse) : 0;
    for (uint32_t c = 0; c < V; c++)
        out[c] = (float)(e->terms[c].o * (1 + 0x1p-9 * (2 * hand_uniform(seed) - 1)) +
                         weight * ((double)wrong[c] - (double)v[c]));
}

static double z_of(const kvb_oracle *oracle, const kvb_values *values, const kvb_arithmetic *arithmetic, uint32_t stale,
                   uint64_t *rows, char *why, size_t why_bytes)
{
    kvb_filter *filter;
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    uint64_t seed = 5;
    assert_int_equal(kvb_filter_open(oracle, &filter), 0);
    for (size_t r = 0; r < oracle->n_rows; r++) {
        float out[V];
        output_make(values, &oracle->rows[r], stale, &seed, out);
        kvb_filter_add(filter, &oracle->rows[r], &oracle->rows[r], arithmetic, KVB_F32, out);
    }
    double z = kvb_filter_peaks(filter, peaks);
    *rows = kvb_filter_rows(filter);
    kvb_filter_words(peaks, why, why_bytes);
    kvb_filter_free(filter);
    return z;
}

/* Of a prompt of so many tokens; rows: that count. */
static void a_token_is_named_among(uint32_t tokens, uint64_t *rows)
{
    hand h = {0};
    kvb_values values;
    kvb_oracle *oracle;
    char why[200];
    const kvb_oracle_options options = {.k_format = &f32, .v_format = &f32, .max_pairs = UINT64_MAX};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, tokens);
    hand_values(&h, hand_model(2, group), 4, &values);
    assert_int_equal(kvb_oracle_open(&h.trace, &values, &options, &oracle, why, sizeof why), 0);
    assert_true(z_of(oracle, &values, &bf16_sums, NOBODY, rows, why, sizeof why) < KVB_FILTER_LIMIT);
    assert_string_equal(why, "");
    assert_true(z_of(oracle, &values, &bf16_sums, STALE, rows, why, sizeof why) > KVB_FILTER_LIMIT);
    print_message("# %s\n", why);
    assert_non_null(strstr(why, "token 7 is missing from, or has a wrong V row in, the outputs of KV head 1, layer 1"));
    /* weights in steps: rows of which most may have become 0 do not count */
    uint64_t telling;
    assert_true(z_of(oracle, &values, &in_steps, STALE, &telling, why, sizeof why) > KVB_FILTER_LIMIT);
    assert_true(telling > 0 && telling < *rows);
    kvb_oracle_free(oracle);
    hand_free(&h);
}

/* Of few tokens every row is kept, but for those that see one cell; of many every other query's. */
static void a_token_is_named(void **state)
{
    (void)state;
    uint64_t rows;
    a_token_is_named_among(TOKENS, &rows);
    assert_int_equal(rows, 2 * HEADS * (TOKENS - 1));
    a_token_is_named_among(MANY, &rows);
    assert_int_equal(rows, 2 * HEADS * MANY / 2);
}

/* By the first kind that stands out, but of outputs and cells by the highest. */
static void what_stands_out_is_said(void **state)
{
    (void)state;
    static const struct {
        kvb_filter_kind kind;
        kvb_filter_peak peak;
        const char *words;
    } all[] = {
        {KVB_FILTER_SCALE, {.z = 9, .a = 0.01}, "the scale is off by about +1.00 %: z = 9.0, above 8.5"},
        {KVB_FILTER_TOKEN,
         {.z = 10, .a = 1, .layer = 3, .kv_head = 2, .at = 7},
         "token 7 is doubled in the outputs of KV head 2, layer 3"},
        {KVB_FILTER_FROM_LAST,
         {.z = 11, .a = -1, .at = 5},
         "cell 5 from the last of those that each query sees is missing from"},
        {KVB_FILTER_FROM_FIRST, {.z = 12, .a = 1, .at = 6}, "cell 6 of those that each query sees is doubled in"},
        {KVB_FILTER_SIZE, {.z = 13, .a = -1}, "the outputs are off by about -100 %"},
        {KVB_FILTER_HEADS, {.z = 9, .at = 1, .other = 2}, "outputs of heads 1 and 2 look swapped"},
    };
    kvb_filter_peak peaks[KVB_FILTER_KINDS] = {{.z = KVB_FILTER_LIMIT}};
    char why[200];
    kvb_filter_words(peaks, why, sizeof why);
    assert_string_equal(why, "");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        peaks[all[i].kind] = all[i].peak;
        kvb_filter_words(peaks, why, sizeof why);
        assert_non_null(strstr(why, all[i].words));
    }
}

/* Of V rows that are wider than a unit's: its channels have the variance 1, but for one that is always the same. */
static void rows_of_a_unit_are_scaled(void **state)
{
    enum { ROW = V + 4 };
    static double rows[TOKENS * ROW], inverse[2 * V + 1] = {[2 * V] = 7}; /* the last is not the unit's */
    static float scaled[TOKENS * V], norm2[TOKENS], magnitude[TOKENS];
    kvb_filter_unit unit = {.layer = 1, .kv_head = 1, .dim = V, .inverse = inverse, .mean = inverse + V};
    kvb_filter_truth truth = {.tokens = TOKENS, .n_units = 1, .units = &unit};
    uint64_t seed = 3;
    (void)state;
    unit.v = scaled;
    unit.norm2 = norm2;
    unit.magnitude = magnitude;
    for (uint32_t i = 0; i < TOKENS * ROW; i++)
        rows[i] = i % ROW == 5 ? 0.5 : (i % ROW + 1) * (hand_uniform(&seed) + 3);
    for (int times = 0; times < 2; times++) { /* what was there before does not count */
        kvb_filter_truth_v(&truth, 0, 1, rows, ROW);
        assert_int_equal(unit.usable, times);
        kvb_filter_truth_v(&truth, 1, 1, rows, ROW);
        assert_true(unit.usable);
    }
    for (uint32_t c = 0; c < V; c++) {
        double mean = 0, variance = 0;
        for (uint32_t i = 0; i < TOKENS; i++)
            mean += (double)scaled[i * V + c] / TOKENS;
        for (uint32_t i = 0; i < TOKENS; i++)
            variance += pow((double)scaled[i * V + c] - mean, 2) / TOKENS;
        assert_true(fabs(variance - (c != 5)) < 1e-5);
        assert_true(fabs((double)scaled[7 * V + c] - rows[7 * ROW + c] * inverse[c]) < 1e-5);
    }
    for (uint32_t i = 0; i < TOKENS; i++) {
        double sum = 0, largest = 0;
        for (uint32_t c = 0; c < V; c++) {
            sum += pow((double)scaled[i * V + c], 2);
            largest = fmax(largest, rows[i * ROW + c]);
        }
        assert_true(fabs((double)norm2[i] - sum) < 1e-4 * sum);
        assert_true(fabs((double)magnitude[i] - largest) < 1e-5 * largest);
    }
    assert_true(inverse[2 * V] == 7);
    /* A channel that drowns the others: what a step may lose is measured by the sixth smallest, 5 / 20 of what the
     * largest was. */
    const double largest = rows[7 * ROW + V - 1];
    for (uint32_t i = 0; i < TOKENS; i++)
        rows[i * ROW + V - 1] *= 1000;
    kvb_filter_truth_v(&truth, 1, 1, rows, ROW);
    assert_true((double)magnitude[7] > 0.2 * largest && (double)magnitude[7] < 0.3 * largest);
    rows[9 * ROW + 2] = INFINITY;
    kvb_filter_truth_v(&truth, 1, 1, rows, ROW);
    assert_false(unit.usable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_token_is_named), cmocka_unit_test(what_stands_out_is_said),
                                       cmocka_unit_test(rows_of_a_unit_are_scaled)};
    return cmocka_run_group_tests_name("oracle/filter", tests, NULL, NULL);
}
