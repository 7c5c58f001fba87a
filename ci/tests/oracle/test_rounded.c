/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the rows of a kernel that rounds q are those of an oracle over that q, in every layer, with sums for its step
 * of weights, and its declaration loses the rounding of q; other kernels get the oracle's own rows. A round_query that
 * goes further than is declared, in norm where K is transformed, or that gives another q for another call, is refused
 * by name.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/rounded.h"
#include "oracle/window.h"

enum { LAYERS = 3, HEADS = 4, K = 16, V = 8, LAST = 5 };
static const kvb_format f16_had = {.name = "f16+had", .elem = KVB_F16, .transform = KVB_TRANSFORM_HADAMARD};
static const kvb_model model = {.n_layers = LAYERS,
                                .n_groups = 2,
                                .group_of = {0, 1, 0},
                                .groups = {{.heads = HEADS, .kv_heads = 2, .k_dim = K, .v_dim = V, .scale = 0.25},
                                           {.heads = 2, .kv_heads = 1, .k_dim = K, .v_dim = V, .scale = 0.3}}};

/* ---- kernels: of each only how it rounds q ----------------------------------------------------------------------- */

#define STEP (1.0 / 64) /* of the row's largest */

static int to_nearest(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    double largest = 0;
    (void)k, (void)head;
    for (uint32_t c = 0; c < p->k_dim; c++)
        largest = fmax(largest, fabs((double)q[c]));
    for (uint32_t c = 0; c < p->k_dim; c++)
        rounded[c] = (double)(float)(rint((double)q[c] / (largest * STEP)) * (largest * STEP));
    return 0;
}

static int down(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    to_nearest(p, k, head, q, rounded);
    rounded[3] *= 0.97;
    return 0;
}

static int by_tokens(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    to_nearest(p, k, head, q, rounded);
    rounded[0] = p->n_tok > 1 ? (double)q[0] : rounded[0];
    return 0;
}

static int unable(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    (void)p, (void)k, (void)head, (void)q, (void)rounded;
    return -ENOMEM;
}

static int not_a_number(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    to_nearest(p, k, head, q, rounded);
    rounded[p->k_dim - 1] = NAN;
    return 0;
}

/* ---- the rig ----------------------------------------------------------------------------------------------------- */

typedef struct rig {
    hand h;
    kvb_values values;
    kvb_oracle *oracle;
} rig;

static void rig_open(rig *r, const kvb_format *k_format)
{
    char why[128];
    kvb_oracle_options options = {.k_format = k_format, .v_format = &f16, .max_pairs = 1u << 20};
    memset(&r->h, 0, sizeof r->h);
    hand_extend(&r->h, KVB_EVENT_PREFILL, 0, 0, LAST);
    hand_extend(&r->h, KVB_EVENT_STEP, 0, LAST, 1);
    hand_values(&r->h, model, 3, &r->values);
    assert_int_equal(kvb_oracle_open(&r->h.trace, &r->values, &options, &r->oracle, why, sizeof why), 0);
}

static void rig_close(rig *r)
{
    kvb_oracle_free(r->oracle);
    hand_free(&r->h);
}

static kvb_attend call_of(const kvb_format *k_format, uint32_t layer, uint32_t n_tok)
{
    const kvb_group *g = kvb_model_group(&model, layer);
    return (kvb_attend){.problem = {.n_tok = n_tok,
                                    .n_heads = g->heads,
                                    .n_kv_heads = g->kv_heads,
                                    .k_dim = K,
                                    .v_dim = V,
                                    .k_format = k_format,
                                    .v_format = &f16}};
}

static const kvb_arithmetic coarse = {.dot_chain = 16, .query.step = STEP, .sums.step = 0.01};

/* Returns what kvb_rounded_rows() returns for a kernel at the last event, layer 0, after a call of one token. */
static int refused(const kvb_format *k_format, kvb_query_round *round, uint32_t n_tok, char *why, size_t why_bytes)
{
    rig r;
    rig_open(&r, k_format);
    const kvb_kernel kernel = {.name = "k", .round_query = round};
    kvb_rounded *rounded;
    const kvb_expect *rows;
    size_t n;
    assert_int_equal(kvb_rounded_open(r.oracle, &kernel, &rounded), 0);
    kvb_attend first = call_of(k_format, 0, 1), second = call_of(k_format, 0, n_tok);
    kvb_arithmetic a = coarse;
    int error = kvb_rounded_rows(rounded, &first, 1, 0, &a, &rows, &n, why, why_bytes);
    a = coarse;
    if (!error)
        error = kvb_rounded_rows(rounded, &second, 1, 0, &a, &rows, &n, why, why_bytes);
    kvb_rounded_free(rounded);
    rig_close(&r);
    return error;
}

static int to_zero(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    (void)k, (void)head, (void)q;
    for (uint32_t c = 0; c < p->k_dim; c++)
        rounded[c] = 0;
    return 0;
}

/* The same for a kernel that rounds all of q to 0. q has that size, and is multiplied by that head scale first. */
static int zero_refused(float size, float head_scale)
{
    const kvb_kernel kernel = {.name = "k", .round_query = to_zero};
    const kvb_expect *rows;
    kvb_rounded *rounded;
    kvb_arithmetic a = coarse;
    char why[256];
    size_t n;
    rig r;
    rig_open(&r, &f16);
    const size_t floats = kvb_values_floats(kvb_model_group(&model, 0), KVB_ROWS_Q) * r.h.tokens;
    for (size_t i = 0; i < floats; i++)
        r.values.block[KVB_ROWS_Q][i] *= size;
    const float scales[4] = {head_scale, head_scale, head_scale, head_scale};
    assert_true(kvb_model_group(&model, 0)->kv_heads <= 4);
    kvb_attend call = call_of(&f16, 0, 1);
    call.k.head_scales = head_scale > 0 ? scales : NULL;
    assert_int_equal(kvb_rounded_open(r.oracle, &kernel, &rounded), 0);
    int error = kvb_rounded_rows(rounded, &call, 1, 0, &a, &rows, &n, why, sizeof why);
    kvb_rounded_free(rounded);
    rig_close(&r);
    return error;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void attention_of_the_rounded_q(void **state)
{
    (void)state;
    rig r, other; /* other: q is what the kernel makes of it */
    rig_open(&r, &f16);
    rig_open(&other, &f16);
    const kvb_kernel kernel = {.name = "k", .round_query = to_nearest};
    kvb_oracle_options options = {.k_format = &f16, .v_format = &f16, .max_pairs = 1u << 20};
    kvb_rounded *rounded;
    char why[128];
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint64_t token = 0; token <= LAST; token++)
            for (uint32_t head = 0; head < kvb_model_group(&model, layer)->heads; head++) {
                double q[K];
                float *at = (float *)(uintptr_t)kvb_values_rows(&other.values, KVB_ROWS_Q, layer, token) + head * K;
                kvb_attend call = call_of(&f16, layer, 1);
                to_nearest(&call.problem, NULL, head, at, q);
                for (uint32_t c = 0; c < K; c++)
                    at[c] = (float)q[c];
            }
    kvb_oracle_free(other.oracle);
    assert_int_equal(kvb_oracle_open(&other.h.trace, &other.values, &options, &other.oracle, why, sizeof why), 0);

    assert_int_equal(kvb_rounded_open(r.oracle, &kernel, &rounded), 0);
    for (uint32_t event = 0; event < 2; event++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            kvb_attend call = call_of(&f16, layer, event ? 1 : LAST);
            kvb_arithmetic a = coarse;
            const kvb_expect *rows, *exact;
            size_t n, n_exact;
            assert_int_equal(kvb_rounded_rows(rounded, &call, event, layer, &a, &rows, &n, why, sizeof why), 0);
            exact = kvb_oracle_rows(other.oracle, event, layer, &n_exact);
            assert_true(n == n_exact && n > 0);
            assert_true(a.query.step == 0 && a.sums.step > 0 && a.dot_chain == coarse.dot_chain);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(rows[i].query, exact[i].query);
                assert_int_equal(rows[i].head, exact[i].head);
                assert_true(rows[i].lse == exact[i].lse && rows[i].row.a_max == exact[i].row.a_max);
                assert_true(rows[i].row.step == coarse.sums.step && exact[i].row.step == 0);
                for (uint32_t c = 0; c < V; c++) {
                    assert_true(rows[i].terms[c].o == exact[i].terms[c].o && rows[i].terms[c].o != 0);
                    assert_true(rows[i].terms[c].steps > 0 && rows[i].terms[c].steps2 > 0);
                }
            }
        }
    kvb_rounded_free(rounded);
    rig_close(&other);
    rig_close(&r);
}

static void others_get_the_oracles_own(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, &f16);
    const kvb_kernel kernel = {.name = "k"};
    kvb_rounded *rounded;
    const kvb_expect *rows, *own;
    size_t n, n_own;
    char why[128];
    assert_int_equal(kvb_rounded_open(r.oracle, &kernel, &rounded), 0);
    kvb_attend call = call_of(&f16, 1, 1);
    kvb_arithmetic a = {.query.step = STEP};
    own = kvb_oracle_rows(r.oracle, 1, 1, &n_own);
    assert_int_equal(kvb_rounded_rows(rounded, &call, 1, 1, &a, &rows, &n, why, sizeof why), 0);
    assert_true(rows == own && n == n_own && a.query.step == STEP);
    /* steps of weights alone: the same q, with the sums */
    a.sums.step = 0.01;
    assert_int_equal(kvb_rounded_rows(rounded, &call, 1, 1, &a, &rows, &n, why, sizeof why), 0);
    assert_true(rows != own && n == n_own && a.query.step == STEP);
    assert_true(rows[0].lse == own[0].lse && rows[0].row.step == 0.01 && rows[0].terms[0].steps > 0);
    kvb_rounded_free(rounded);
    rig_close(&r);
}

/* Formats with residual cells are solved over the account of writes: the rows bring q and step along. */
static void the_account_takes_q_and_step(void **state)
{
    (void)state;
    static const uint32_t cells[LAST + 1] = {0, 1, 2, 3, 4, 5};
    static const uint64_t tokens[LAST + 1] = {0, 1, 2, 3, 4, 5};
    const kvb_format *const formats[] = {&f16, &kivi_k}; /* so few rows are f16 in both */
    const kvb_kernel kernel = {.name = "k", .round_query = to_nearest};
    const kvb_mask mask = {.kind = KVB_MASK_NONE};
    rig r[2];
    kvb_rounded *rounded[2];
    const kvb_expect *rows[2];
    kvb_expect actual;
    kvb_window *window;
    size_t n;
    char why[128];
    for (int i = 0; i < 2; i++) {
        rig_open(&r[i], formats[i]);
        assert_int_equal(kvb_rounded_open(r[i].oracle, &kernel, &rounded[i]), 0);
        kvb_attend call = call_of(&f16, 0, 1); /* staged, say */
        kvb_arithmetic a = coarse;
        assert_int_equal(kvb_rounded_rows(rounded[i], &call, 1, 0, &a, &rows[i], &n, why, sizeof why), 0);
        assert_int_equal(n, HEADS);
    }
    assert_int_equal(kvb_window_open(r[1].oracle, &window), 0);
    for (int is_v = 0; is_v < 2; is_v++)
        assert_int_equal(kvb_window_write(window, 0, is_v, cells, LAST + 1, tokens), 0);
    assert_int_equal(kvb_window_solve(window, &rows[1][2], &(kvb_attend_of){&mask, LAST + 1, 1, 0}, &actual), 0);
    assert_true(fabs(actual.lse - rows[0][2].lse) < 1e-12 && fabs(actual.lse - r[0].oracle->rows[2].lse) > 1e-6);
    assert_true(actual.row.step == coarse.sums.step);
    kvb_window_free(window);
    for (int i = 0; i < 2; i++) {
        kvb_rounded_free(rounded[i]);
        rig_close(&r[i]);
    }
}

static void what_breaks_the_declaration_is_refused(void **state)
{
    (void)state;
    char why[256];
    assert_int_equal(refused(&f16, to_nearest, 4, why, sizeof why), 0);
    assert_int_equal(refused(&f16, down, 1, why, sizeof why), -EILSEQ);
    assert_non_null(strstr(why, "as far as the kernel declares"));
    assert_int_equal(refused(&f16, not_a_number, 1, why, sizeof why), -EILSEQ);
    assert_int_equal(refused(&f16, by_tokens, 1, why, sizeof why), 0);
    assert_int_equal(refused(&f16, by_tokens, 4, why, sizeof why), -EILSEQ);
    assert_non_null(strstr(why, "another q for another call"));
    assert_int_equal(refused(&f16, unable, 1, why, sizeof why), -ENOMEM);
    /* in norm a single channel may go further */
    assert_int_equal(refused(&f16_had, down, 1, why, sizeof why), 0);
    assert_int_equal(refused(&f16_had, not_a_number, 1, why, sizeof why), -EILSEQ);
}

/* Moves one channel by a share of itself and of the largest |q|, or of q's norm. */
static double of_itself, of_largest, of_norm;

static int moved(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    double largest = 0, norm2 = 0;
    (void)k, (void)head;
    for (uint32_t c = 0; c < p->k_dim; c++) {
        rounded[c] = (double)q[c];
        largest = fmax(largest, fabs(rounded[c]));
        norm2 += rounded[c] * rounded[c];
    }
    rounded[3] -= of_itself * fabs(rounded[3]) + of_largest * largest + of_norm * sqrt(norm2);
    return 0;
}

/* ones: of a q of ones, in the last token. */
static int moves(const kvb_format *k_format, kvb_rounding query, bool ones)
{
    rig r;
    const kvb_kernel kernel = {.name = "k", .round_query = moved};
    kvb_rounded *rounded;
    const kvb_expect *rows;
    size_t n;
    char why[256];
    rig_open(&r, k_format);
    for (uint32_t i = 0; ones && i < HEADS * K; i++)
        ((float *)(uintptr_t)kvb_values_rows(&r.values, KVB_ROWS_Q, 0, LAST))[i] = 1;
    assert_int_equal(kvb_rounded_open(r.oracle, &kernel, &rounded), 0);
    kvb_attend call = call_of(k_format, 0, 1);
    kvb_arithmetic a = {.dot_chain = 16, .query = query};
    int error = kvb_rounded_rows(rounded, &call, 1, 0, &a, &rows, &n, why, sizeof why);
    assert_true(error || (a.query.step == 0 && a.query.floor == 0 && a.query.rounding == KVB_F32));
    kvb_rounded_free(rounded);
    rig_close(&r);
    return error;
}

/* step / 2 + floor of the largest |q|, the roundoff of the type of an element itself, and 8 roundings of f32. A turned
 * q may move by as much in all of its 16 channels: 4 times as far in norm, and by the roundoff. */
static void how_far_q_may_move_by_hand(void **state)
{
    const double wide = 8 * 0x1p-24;
    const struct {
        kvb_rounding query;
        double of_largest, of_itself;
    } cases[] = {
        {{.step = 1.0 / 64}, 1.0 / 128 + wide, 0},
        {{.floor = 1.0 / 256}, 1.0 / 256 + wide, 0},
        {{.step = 1.0 / 64, .floor = 1.0 / 256}, 3.0 / 256 + wide, 0},
        {{.rounding = KVB_BF16}, wide, 1.0 / 256},
        {{.rounding = KVB_F16, .step = 1.0 / 128}, 1.0 / 256 + wide, 1.0 / 2048},
        {{.rounding = KVB_F32}, wide, 0},
        {{.rounding = KVB_E5M2}, wide, 1.0 / 8},
        /* more is declared than codes of 8 bits need */
        {{.step = 0.9}, 1.0 / 128 + wide, 0},
        {{.floor = 0.9}, 1.0 / 256 + wide, 0},
        {{.step = 0.9, .floor = 0.9}, 3.0 / 256 + wide, 0},
        {{.rounding = KVB_E2M1}, wide, 1.0 / 8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int far = 0; far < 2; far++) {
            const double by = far ? 1 + 1e-6 : 1 - 1e-6;
            of_largest = cases[i].of_largest * by, of_itself = cases[i].of_itself * by, of_norm = 0;
            assert_int_equal(moves(&f16, cases[i].query, false), far ? -EILSEQ : 0);
            of_norm = (4 * cases[i].of_largest + cases[i].of_itself) * by, of_largest = of_itself = 0;
            assert_int_equal(moves(&f16_had, cases[i].query, false), far ? -EILSEQ : 0);
        }
    of_itself = of_norm = 0; /* just as far as is declared */
    of_largest = 1.0 / 128 + wide;
    assert_int_equal(moves(&f16, (kvb_rounding){.step = 1.0 / 64}, true), 0);
}

/* An instruction may take what is below the normal numbers for 0. */
static void tiny_queries_may_be_zero(void **state)
{
    (void)state;
    assert_int_equal(zero_refused(0x1p-132f, 0), 0);
    assert_int_equal(zero_refused(0x1p-120f, 0), -EILSEQ);
    assert_int_equal(zero_refused(0x1p-120f, 0x1p-20f), 0);
    assert_int_equal(zero_refused(0x1p-100f, 0x1p-20f), -EILSEQ);
    assert_int_equal(zero_refused(0x1p-120f, 0x1p20f), -EILSEQ);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_the_rounded_q),   cmocka_unit_test(others_get_the_oracles_own),
        cmocka_unit_test(the_account_takes_q_and_step), cmocka_unit_test(what_breaks_the_declaration_is_refused),
        cmocka_unit_test(how_far_q_may_move_by_hand),   cmocka_unit_test(tiny_queries_may_be_zero),
    };
    return cmocka_run_group_tests_name("oracle/rounded", tests, NULL, NULL);
}
