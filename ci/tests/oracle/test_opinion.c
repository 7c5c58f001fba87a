/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the second opinion's output, log-sum-exp and row sums are those of the full solution, or lie above; whatever
 * the full bound allows, it allows; a row of another query, a NaN and a log-sum-exp that is off fail; where the budget
 * is too small it is of some calls only, by the seed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "ci/tests/oracle/limited.h"
#include "oracle/codec.h"
#include "oracle/opinion.h"

static const kvb_arithmetic declarations[] = {
    {.dot_chain = 16, .cell_chain = 64, .rescales = 3, .exp_error = 0x1p-23, .exp_floor = 0x1p-126},
    {.dot_chain = 16, .cell_chain = 64, .sums = {.rounding = KVB_BF16}},
    {.dot_chain = 16, .cell_chain = 64, .query = {.step = 1.0 / 127}, .sums = {.step = 1.0 / 255}},
};

/* Both opinions: of all rows in full, and a sample in full with second opinions. */
typedef struct both {
    hand h;
    kvb_values values;
    kvb_oracle *full, *part;
} both;

static kvb_oracle *oracle_open(const both *b, const kvb_format *k, const kvb_format *v, uint64_t pairs,
                               uint64_t opinions, uint64_t seed)
{
    const kvb_oracle_options options = {
        .k_format = k, .v_format = v, .max_pairs = pairs, .opinion_pairs = opinions, .seed = seed};
    kvb_oracle *oracle;
    char why[128];
    assert_int_equal(kvb_oracle_open(&b->h.trace, &b->values, &options, &oracle, why, sizeof why), 0);
    return oracle;
}

static void both_open(both *b, const kvb_format *k, const kvb_format *v)
{
    *b = (both){.full = NULL};
    hand_extend(&b->h, KVB_EVENT_PREFILL, 0, 0, 20);
    hand_cp(&b->h, 0, 1, 0, 6);
    hand_step(&b->h, 3, (const uint32_t[]){20, 6, 21}, (const uint32_t[]){0, 1, 0});
    hand_extend(&b->h, KVB_EVENT_STEP, 0, 22, 1);
    hand_values(&b->h, limited_model, 4, &b->values);
    b->full = oracle_open(b, k, v, UINT64_MAX, UINT64_MAX, 1);
    b->part = oracle_open(b, k, v, 1, UINT64_MAX, 1);
}

static void both_close(both *b)
{
    kvb_oracle_free(b->full);
    kvb_oracle_free(b->part);
    hand_free(&b->h);
}

static int opinion_of(const both *b, size_t i, const kvb_arithmetic *a, kvb_elem elem, const void *out, float lse,
                      kvb_diff *diff)
{
    const kvb_opinion_row *row = &b->part->opinions->rows[i];
    const kvb_group *g = kvb_model_group(&limited_model, row->expect.layer);
    const kvb_opinion_head *head =
        &b->part->opinions->heads[row->expect.layer][row->expect.head / (g->heads / g->kv_heads)];
    return kvb_opinion_diff(diff, head, row, g->v_dim, a, (double)(float)g->scale, (double)g->softcap, elem, out, &lse);
}

static int opinion(const both *b, size_t i, const kvb_arithmetic *a, const float *out, float lse, kvb_diff *diff)
{
    return opinion_of(b, i, a, KVB_F32, out, lse, diff);
}

static void sums_are_above(const both *b)
{
    assert_null(b->full->opinions);
    assert_int_equal(b->part->opinions->n_rows, b->full->n_rows);
    for (size_t i = 0; i < b->full->n_rows; i++) {
        const kvb_expect *own = &b->full->rows[i], *other = &b->part->opinions->rows[i].expect;
        const kvb_bound_row *x = &own->row, *y = &other->row;
        assert_true(own->event == other->event && own->layer == other->layer && own->query == other->query &&
                    own->head == other->head && own->visible == other->visible);
        assert_true(fabs(own->lse - other->lse) < 1e-12);
        for (uint32_t c = 0; c < kvb_model_group(&limited_model, own->layer)->v_dim; c++)
            assert_true(fabs(own->terms[c].o - b->part->opinions->rows[i].o[c]) < 1e-12);
        const double pairs[][2] = {{x->a_max, y->a_max},   {x->q_max, y->q_max},        {x->s_max, y->s_max},
                                   {x->a_mean, y->a_mean}, {x->q_mean, y->q_mean},      {x->s_mean, y->s_mean},
                                   {x->p_max, y->p_max},   {x->v_largest, y->v_largest}};
        for (size_t j = 0; j < sizeof pairs / sizeof *pairs; j++)
            assert_true(pairs[j][0] <= pairs[j][1] * (1 + 1e-12));
        assert_true(fabs(x->weight_sum / y->weight_sum - 1) < 1e-12 && x->q_largest == y->q_largest);
    }
}

/* Moves each element, up or down, by 0.9 of what the full bound allows. The rest is for rounding `out` to f32. */
static void allows_what_is_allowed(const both *b, const kvb_arithmetic *a)
{
    kvb_diff diff = {.rho = 0};
    for (size_t i = 0; i < b->full->n_rows; i++) {
        const kvb_expect *e = &b->full->rows[i];
        const kvb_group *g = kvb_model_group(&limited_model, e->layer);
        kvb_bound_factors f;
        float out[DIM];
        kvb_bound_prepare(a, KVB_BOUND_STATISTICAL, &e->row, (double)(float)g->scale, (double)g->softcap, KVB_F32, &f);
        for (uint32_t c = 0; c < g->v_dim; c++)
            out[c] = (float)(e->terms[c].o + (c % 2 ? 0.9 : -0.9) * kvb_bound_channel(&f, &e->terms[c]));
        assert_int_equal(opinion(b, i, a, out, (float)(e->lse + 0.9 * kvb_bound_log(&f, e->lse)), &diff), 0);
    }
    assert_true(diff.rows == b->full->n_rows && diff.rho <= 1 && !diff.any_failed);
}

static void opinion_is_above_the_bound(void **state)
{
    static const kvb_format *const formats[][2] = {
        {&f32, &f32}, {&f16, &int8_asym}, {&int8_had, &f16}, {&int8_had, &int8_had}};
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        both b;
        both_open(&b, formats[i][0], formats[i][1]);
        sums_are_above(&b);
        for (size_t a = 0; a < sizeof declarations / sizeof *declarations; a++)
            allows_what_is_allowed(&b, &declarations[a]);
        both_close(&b);
    }
}

static void wrong_rows_fail(void **state)
{
    both b;
    (void)state;
    both_open(&b, &f32, &f32);
    for (size_t i = 0; i < b.full->n_rows; i++) {
        const kvb_expect *e = &b.full->rows[i], *other = &b.full->rows[i ? i - 1 : 1];
        uint32_t v_dim = kvb_model_group(&limited_model, e->layer)->v_dim;
        float right[DIM], wrong[DIM] = {0};
        if (e->layer != other->layer)
            continue;
        for (uint32_t c = 0; c < v_dim; c++) {
            right[c] = (float)e->terms[c].o;
            wrong[c] = (float)other->terms[c].o;
        }
        kvb_diff honest = {.rho = 0}, stale = honest, nan = honest, lse = honest;
        assert_int_equal(opinion(&b, i, declarations, right, (float)e->lse, &honest), 0);
        assert_true(!honest.any_failed);
        assert_int_equal(opinion(&b, i, declarations, wrong, (float)e->lse, &stale), 0);
        /* heads of one KV head put the same out where one token alone is seen */
        assert_true(stale.any_failed || !memcmp(right, wrong, v_dim * sizeof *right));
        right[v_dim - 1] = NAN;
        assert_int_equal(opinion(&b, i, declarations, right, (float)e->lse, &nan), 0);
        assert_true(nan.any_failed && nan.first.channel == v_dim - 1 && nan.first.query == e->query);
        right[v_dim - 1] = (float)e->terms[v_dim - 1].o;
        assert_int_equal(opinion(&b, i, declarations, right, (float)e->lse + 0.01f, &lse), 0);
        assert_true(lse.any_failed && lse.first.channel == v_dim);
    }
    both_close(&b);
}

/* Exact outputs, to the nearest; then one channel of another. */
static void narrow_outputs(void **state)
{
    both b;
    kvb_diff right = {.rho = 0}, wrong = right;
    (void)state;
    both_open(&b, &f32, &f32);
    for (int wide = 0; wide < 2; wide++)
        for (size_t i = 0; i < b.full->n_rows; i++) {
            const kvb_expect *e = &b.full->rows[i];
            uint32_t v_dim = kvb_model_group(&limited_model, e->layer)->v_dim;
            uint16_t out[DIM];
            for (uint32_t c = 0; c < v_dim; c++)
                out[c] = (wide ? kvb_codec_bf16 : kvb_codec_f16)((float)e->terms[c].o);
            assert_int_equal(opinion_of(&b, i, declarations, wide ? KVB_BF16 : KVB_F16, out, (float)e->lse, &right), 0);
            out[v_dim - 1] ^= 0x8000;
            assert_int_equal(opinion_of(&b, i, declarations, wide ? KVB_BF16 : KVB_F16, out, (float)e->lse, &wrong), 0);
        }
    assert_true(right.rows == 2 * b.full->n_rows && !right.any_failed);
    assert_true(wrong.failed == 2 * b.full->n_rows);
    both_close(&b);
}

static void budget_chooses_calls(void **state)
{
    both b;
    size_t rows[2];
    (void)state;
    both_open(&b, &f32, &f32);
    uint64_t all = 0, chosen = 0;
    for (size_t i = 0; i < b.full->n_rows; i++)
        all += b.full->rows[i].visible;
    for (int less = 0; less < 2; less++) { /* all that the budget has room for */
        kvb_oracle *whole = oracle_open(&b, &f32, &f32, 1, all - (uint64_t)less, 1);
        assert_true((whole->opinions->n_rows == b.full->n_rows) == !less);
        kvb_oracle_free(whole);
    }
    for (uint64_t seed = 0; seed < 8; seed++) {
        kvb_oracle *some = oracle_open(&b, &f32, &f32, 1, 1000, seed);
        assert_true(some->opinions->n_rows < b.full->n_rows);
        chosen += some->opinions->n_rows;
        uint64_t pairs = 0;
        for (size_t i = 0; i < some->opinions->n_rows; i++)
            pairs += some->opinions->rows[i].expect.visible;
        assert_true(pairs <= 1000);
        kvb_opinions_of(some->opinions, 0, 1, &rows[0]);
        kvb_opinions_of(some->opinions, 2, 1, &rows[1]);
        assert_true((rows[0] == 0 || rows[0] == 80) && (rows[1] == 0 || rows[1] == 12));
        assert_true(some->opinions->heads[0][0].finite && some->opinions->heads[0][0].v_most > 0);
        kvb_oracle_free(some);
    }
    assert_true(chosen > 0);
    both_close(&b);
}

/* The largest of each channel and of them all, of rows of 3 channels that count with 2. */
static void a_head_by_hand(void **state)
{
    static double rows[] = {1, -3, 9, -4, 0.5, 9, INFINITY, 1, 9}, sizes[] = {2, 1, 9, 1, 1, 9, 1, 1, 9},
                  keys[] = {3, -4, 0, 6, 8, NAN};
    const kvb_stored v = {.rows = rows, .sizes = sizes, .dim = 3}, k = {.rows = keys, .dim = 2},
                     sized = {.rows = rows, .sizes = keys, .dim = 2};
    kvb_opinion_head head;
    (void)state;
    assert_int_equal(kvb_opinion_head_open(&head, 2), 0);
    kvb_opinion_take_v(&head, &v, 0, 2);
    assert_true(head.v_top[0] == 2 && head.v_top[1] == 3 && head.v_least == 2 && head.v_most == 3 && head.finite);
    kvb_opinion_take_v(&head, &v, 1, 2);
    assert_true(head.v_top[0] == 4 && head.v_top[1] == 3 && head.v_least == 3 && head.v_most == 4 && head.finite);
    assert_true(kvb_opinion_take_k(&head, &k, 0) == 5 && kvb_opinion_take_k(&head, &sized, 0) == 5 && head.finite);
    kvb_opinion_take_v(&head, &v, 2, 2); /* infinite sizes say nothing of the finite ones */
    assert_true(head.v_top[0] == 4 && head.v_top[1] == 3 && head.v_least == 3 && head.v_most == 4 && !head.finite);
    head.finite = true;
    assert_true(kvb_opinion_take_k(&head, &k, 1) == 6 && head.finite);
    assert_true(isnan(kvb_opinion_take_k(&head, &k, 2)) && !head.finite);
    free(head.v_top);
}

/* The bound of an element: every V may be as far from o as the largest of the channel, and has the row's mean errors.
 */
static void bounds_by_hand(void **state)
{
    double top[2] = {4, 8}, o[2] = {1, -2};
    const kvb_opinion_head head = {.v_top = top, .v_least = 4, .v_most = 8, .finite = true};
    const kvb_opinion_row row = {.expect = {.visible = 9,
                                            .lse = 1,
                                            .row = {.visible = 9,
                                                    .weight_sum = 2,
                                                    .v_mix = 1,
                                                    .a_max = 3,
                                                    .a_mean = 2,
                                                    .q_max = 5,
                                                    .q_mean = 4,
                                                    .s_max = 7,
                                                    .s_mean = 6}},
                                 .o = o};
    const kvb_arithmetic a = {.dot_chain = 100, .cell_chain = 64, .exp_error = 1e-5, .query.step = 1e-4};
    const kvb_bound_row *r = &row.expect.row;
    const kvb_bound_term terms[3] = {
        {.o = 1, .spread = 5, .spread_a = 10, .spread_q = 20, .spread_s = 30, .mass = 4, .v_max = 4},
        {.o = -2, .spread = 10, .spread_a = 20, .spread_q = 40, .spread_s = 60, .mass = 8, .v_max = 8},
        {.o = 0, .spread = 4, .spread_a = 8, .spread_q = 16, .spread_s = 24, .mass = 4, .v_max = 4}};
    double bound[3];
    (void)state;
    for (int i = 0; i < 3; i++)
        bound[i] = kvb_bound_output(&a, KVB_BOUND_STATISTICAL, r, &terms[i], 0.5, 0, KVB_F32);
    assert_true(bound[2] < bound[0] && bound[0] < bound[1]);
    const struct {
        double off[2], rho;
        uint32_t elements; /* 0: near enough to be passed without a look at each */
    } cases[] = {
        {{0.999 * bound[2], -0.999 * bound[2]}, 0, 0},
        {{1.001 * bound[2], 0}, 1.001 * bound[2] / bound[0], 2},
        {{0, -1.001 * bound[2]}, 1.001 * bound[2] / bound[1], 2},
        {{-0.9 * bound[0], 0.5 * bound[1]}, 0.9, 2},
        {{0.5 * bound[0], 1.5 * bound[1]}, 1.5, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float out[2] = {(float)(o[0] + cases[i].off[0]), (float)(o[1] + cases[i].off[1])};
        kvb_diff d = {.rho = 0};
        assert_int_equal(kvb_opinion_diff(&d, &head, &row, 2, &a, 0.5, 0, KVB_F32, out, NULL), 0);
        assert_true(d.rows == 1 && d.elements == cases[i].elements);
        assert_true(fabs(d.rho - cases[i].rho) < 1e-3);
    }
    const float out[2] = {1, -2}, lse = (float)(1 + 0.9 * kvb_bound_lse(&a, KVB_BOUND_STATISTICAL, r, 1, 0.5, 0)),
                far = (float)(1 + 1.1 * kvb_bound_lse(&a, KVB_BOUND_STATISTICAL, r, 1, 0.5, 0));
    kvb_diff near = {.rho = 0}, off = {.rho = 0};
    assert_int_equal(kvb_opinion_diff(&near, &head, &row, 2, &a, 0.5, 0, KVB_F32, out, &lse), 0);
    assert_int_equal(kvb_opinion_diff(&off, &head, &row, 2, &a, 0.5, 0, KVB_F32, out, &far), 0);
    assert_true(near.rows == 1 && near.elements == 0 && off.elements == 3 && fabs(off.rho - 1.1) < 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opinion_is_above_the_bound),
        cmocka_unit_test(wrong_rows_fail),
        cmocka_unit_test(narrow_outputs),
        cmocka_unit_test(budget_chooses_calls),
        cmocka_unit_test(a_head_by_hand),
        cmocka_unit_test(bounds_by_hand),
    };
    return cmocka_run_group_tests_name("oracle/opinion", tests, NULL, NULL);
}
