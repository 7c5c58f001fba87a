/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: rows of formats with residual cells are stored as the sequence that each query sees, by itself; and rows that are
 * read from a cache's views are attended as they are there, whatever mask says which, also where V is the beginning of K's.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, K = 10, V = 32, TOKENS = 104, SEEN = 100, W = 32 };

static const kvb_group group = {.heads = HEADS, .kv_heads = KV_HEADS, .k_dim = K, .v_dim = V, .scale = 0.3};

#define HALVES .group = W, .scale_elem = KVB_F16, .zero_elem = KVB_F16, .residual_cells = W, .residual_blocks = 1
static const kvb_format f32 = {.name = "f32", .elem = KVB_F32}, f16 = {.name = "f16", .elem = KVB_F16},
                        kivi_k = {.name = "kivi4-k", .elem = KVB_UINT4, .axis = KVB_AXIS_TOKENS, HALVES},
                        kivi_v = {.name = "kivi4-v", .elem = KVB_UINT4, .axis = KVB_AXIS_CHANNELS, HALVES},
                        kivi_had = {.name = "kivi4-k+had",
                                    .elem = KVB_UINT4,
                                    .axis = KVB_AXIS_TOKENS,
                                    .transform = KVB_TRANSFORM_HADAMARD,
                                    HALVES};

/* 90 tokens, 4 of them removed; a fork of 70 goes on by 10 and by 4: 84 and 70 seen at last. */
static void trace_of(hand *h, kvb_group of, kvb_values *values)
{
    *h = (hand){0};
    hand_extend(h, KVB_EVENT_PREFILL, 0, 0, 90);
    hand_cp(h, 0, 1, 0, 70);
    hand_rm(h, 1, 20, 24);
    hand_extend(h, KVB_EVENT_STEP, 0, 90, 10);
    hand_extend(h, KVB_EVENT_STEP, 1, 70, 4);
    assert_int_equal(h->tokens, TOKENS);
    hand_values(h, hand_model(LAYERS, of), 4, values);
}

static void trace_make(hand *h, kvb_values *values)
{
    trace_of(h, group, values);
}

/* The tokens that the last query of those events sees. */
static uint32_t seen_by_last(uint32_t event, uint32_t *seen)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < TOKENS; t++)
        if (event == 3 ? t < 100 : (t < 20 || (t >= 24 && t < 70) || t >= 100))
            seen[n++] = t;
    return n;
}

static kvb_oracle *oracle_open(const hand *h, const kvb_values *values, const kvb_format *k, const kvb_format *v)
{
    kvb_oracle_options options = {.k_format = k, .v_format = v, .max_pairs = UINT64_MAX, .seed = 1};
    kvb_oracle *oracle;
    char why[128];
    assert_int_equal(kvb_oracle_open(&h->trace, values, &options, &oracle, why, sizeof why), 0);
    return oracle;
}

static const kvb_expect *last_row(const kvb_oracle *oracle, uint32_t event, uint32_t layer, uint32_t head)
{
    size_t n;
    const kvb_expect *rows = kvb_oracle_rows(oracle, event, layer, &n);
    assert_true(n >= HEADS && rows[n - 1].head == HEADS - 1);
    return &rows[n - HEADS + head];
}

/* Attention once more: rows k, v [n][dim] against what is expected. */
static void check_dims(const kvb_values *values, const kvb_expect *e, uint64_t token, uint32_t n, const double *k,
                       const double *v, uint32_t v_dim, uint32_t v_row)
{
    const float *q = kvb_values_rows(values, KVB_ROWS_Q, e->layer, token) + e->head * K;
    double z = 0, out[V] = {0};
    for (uint32_t i = 0; i < n; i++) {
        double s = 0;
        for (int d = 0; d < K; d++)
            s += (double)q[d] * k[i * K + d];
        double w = exp(s * (double)0.3f);
        z += w;
        for (uint32_t c = 0; c < v_dim; c++)
            out[c] += w * v[i * v_row + c];
    }
    assert_int_equal(e->visible, n);
    assert_true(fabs(e->lse - log(z)) < 1e-12);
    for (uint32_t c = 0; c < v_dim; c++)
        assert_true(fabs(e->terms[c].o - out[c] / z) < 1e-12);
}

static void check(const kvb_values *values, const kvb_expect *e, uint64_t token, uint32_t n, const double *k,
                  const double *v)
{
    check_dims(values, e, token, n, k, v, V, V);
}

static void side_store(const kvb_values *values, kvb_rows kind, const kvb_format *format, const kvb_expect *e,
                       uint32_t n, const uint32_t *seen, double *rows)
{
    static double sizes[TOKENS * V], scratch[W * V * 4];
    uint32_t dim = kind == KVB_ROWS_K ? K : V;
    const float *from[TOKENS];
    kvb_storage store;
    char why[128];
    assert_int_equal(kvb_storage_init(&store, format, dim, NULL, KV_HEADS, 0, why, sizeof why), 0);
    assert_true(kvb_storage_scratch(&store) <= sizeof scratch);
    for (uint32_t i = 0; i < n; i++)
        from[i] = kvb_values_rows(values, kind, e->layer, seen[i]) + e->head / 2 * dim;
    kvb_storage_rows(&store, from, n, scratch, rows, sizes);
}

static void a_query_stores_what_it_sees(void **state)
{
    (void)state;
    static const kvb_format *const pairs[][2] = {{&kivi_k, &f16}, {&f32, &kivi_v}, {&kivi_had, &kivi_v}};
    static double k[TOKENS * K], v[TOKENS * V];
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    for (size_t p = 0; p < 3; p++) {
        kvb_oracle *oracle = oracle_open(&h, &values, pairs[p][0], pairs[p][1]);
        assert_true(kvb_oracle_reads_views(oracle));
        for (uint32_t event = 3; event <= 4; event++)
            for (uint32_t place = 0; place < LAYERS * HEADS; place++) {
                const kvb_expect *e = last_row(oracle, event, place / HEADS, place % HEADS);
                uint32_t seen[TOKENS], n = seen_by_last(event, seen);
                side_store(&values, KVB_ROWS_K, pairs[p][0], e, n, seen, k);
                side_store(&values, KVB_ROWS_V, pairs[p][1], e, n, seen, v);
                check(&values, e, event == 3 ? 99 : 103, n, k, v);
            }
        assert_true(oracle->format.rel_l2 > 1e-3 && oracle->format.rel_l2 < 0.5);
        kvb_oracle_free(oracle);
    }
    hand_free(&h);
}

/* Residual cells are f16: they cost what f16 costs. */
static void residual_cells_cost_what_f16_costs(void **state)
{
    (void)state;
    kvb_format all_residual = kivi_k;
    all_residual.residual_blocks = 4;
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    kvb_oracle *residual = oracle_open(&h, &values, &all_residual, &f32), *half = oracle_open(&h, &values, &f16, &f32);
    assert_false(kvb_oracle_reads_views(half));
    assert_true(half->format.kl_mean > 0);
    assert_memory_equal(&residual->format, &half->format, sizeof half->format);
    for (size_t r = 0; r < half->n_rows; r++) {
        assert_true(residual->rows[r].lse == half->rows[r].lse);
        assert_memory_equal(residual->rows[r].terms, half->rows[r].terms, V * sizeof(kvb_bound_term));
    }
    kvb_oracle_free(residual);
    kvb_oracle_free(half);
    hand_free(&h);
}

/* One token, so that its weight is 1: the sums are the magnitudes of its rows, whatever the format. */
static void magnitudes_reach_the_bound(void **state)
{
    (void)state;
#define BLOCKS .axis = KVB_AXIS_CHANNELS, .group = 32
#define A_ROW  .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32, .zero_elem = KVB_F32
    static const kvb_format all[] = {
        {.name = "f16", .elem = KVB_F16},
        {.name = "q8_0", .elem = KVB_Q8_0, BLOCKS},
        {.name = "q4_1", .elem = KVB_Q4_1, BLOCKS},
        {.name = "q5_1", .elem = KVB_Q5_1, BLOCKS},
        {.name = "int8-asym", .elem = KVB_UINT8, A_ROW},
        {.name = "int8+had", .elem = KVB_INT8, .transform = KVB_TRANSFORM_HADAMARD, A_ROW},
        {.name = "q4_1+had", .elem = KVB_Q4_1, .transform = KVB_TRANSFORM_HADAMARD, BLOCKS},
    };
    enum { DIM = 32 };
    hand h = {0};
    kvb_values values;
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 1);
    hand_values(&h, hand_model(1, (kvb_group){.heads = 1, .kv_heads = 1, .k_dim = DIM, .v_dim = DIM, .scale = 0.2}), 3,
                &values);
    const float *q = kvb_values_rows(&values, KVB_ROWS_Q, 0, 0), *k = kvb_values_rows(&values, KVB_ROWS_K, 0, 0),
                *v = kvb_values_rows(&values, KVB_ROWS_V, 0, 0);
    for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
        double row[DIM], size[DIM], scratch[256], reach = 0, q2 = 0, size2 = 0;
        kvb_storage store;
        char why[128];
        kvb_oracle *oracle = oracle_open(&h, &values, &all[f], &all[f]);
        const kvb_expect *e = oracle->rows;
        assert_int_equal(kvb_storage_init(&store, &all[f], DIM, NULL, 1, 0, why, sizeof why), 0);
        assert_true(kvb_storage_scratch(&store) <= sizeof scratch);
        kvb_storage_rows(&store, &k, 1, scratch, row, size);
        for (int d = 0; d < DIM; d++) {
            reach += fabs((double)q[d]) * size[d];
            q2 += (double)q[d] * (double)q[d];
            size2 += size[d] * size[d];
        }
        assert_true(fabs(e->row.a_max - (all[f].transform ? sqrt(q2 * size2) : reach)) < 1e-12);
        assert_true(e->row.v_mix == (all[f].transform ? sqrt(DIM) : 1));
        kvb_storage_rows(&store, &v, 1, scratch, row, size);
        for (int c = 0; c < DIM; c++) {
            assert_true(fabs(e->terms[c].o - row[c]) < 1e-12);
            assert_true(fabs(e->terms[c].mass - fmax(size[c], fabs(row[c]))) < 1e-12);
        }
        kvb_oracle_free(oracle);
    }
    hand_free(&h);
}

/* A budget that another format would use up is kept to by storing less often. */
static void the_budget_counts_storing(void **state)
{
    (void)state;
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    kvb_oracle_options options = {.k_format = &f16, .v_format = &f32, .max_pairs = 50000, .seed = 1};
    kvb_oracle *half, *residual;
    char why[128];
    assert_int_equal(kvb_oracle_open(&h.trace, &values, &options, &half, why, sizeof why), 0);
    options.k_format = &kivi_k;
    assert_int_equal(kvb_oracle_open(&h.trace, &values, &options, &residual, why, sizeof why), 0);
    assert_int_equal(half->n_rows, half->total_rows);
    assert_true(residual->n_rows < residual->total_rows / 4 && residual->n_rows >= 64);
    kvb_oracle_free(half);
    kvb_oracle_free(residual);
    hand_free(&h);
}

/* ---- views -------------------------------------------------------------------------------------------------- */

/* Cell c holds token TOKENS-1-c in f16 K and f32 V: so far what the oracle expects, in another order. */
static void views_of_plain_rows(void **state)
{
    (void)state;
    static uint16_t k[KV_HEADS][TOKENS][K];
    static float v[KV_HEADS][TOKENS][V];
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    kvb_oracle *oracle = oracle_open(&h, &values, &f16, &f32);
    kvb_view k_view = {.base = k, .head_stride = sizeof k[0], .cell_stride = sizeof k[0][0], .cells = TOKENS, .dim = K};
    kvb_view v_view = {.base = v, .head_stride = sizeof v[0], .cell_stride = sizeof v[0][0], .cells = TOKENS, .dim = V};
    k_view.format = &f16;
    v_view.format = &f32;
    uint64_t bits[2][2] = {{0}};
    uint32_t seen[TOKENS], n = seen_by_last(4, seen);
    for (uint32_t i = 0; i < n; i++)
        bits[1][(TOKENS - 1 - seen[i]) / 64] |= (uint64_t)1 << (TOKENS - 1 - seen[i]) % 64;
    /* the same cells as runs, for a step of one token */
    static const kvb_run runs[] = {{0, 4}, {34, 80}, {84, 104}};
    static const uint32_t row_start[] = {0, 3};
    const kvb_mask explicit_mask = {.kind = KVB_MASK_EXPLICIT, .bits = bits[0], .row_words = 2},
                   runs_mask = {.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = runs};

    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t g = 0; g < KV_HEADS; g++)
            for (uint32_t c = 0; c < TOKENS; c++) {
                const float *key = kvb_values_rows(&values, KVB_ROWS_K, layer, TOKENS - 1 - c) + g * K;
                for (uint32_t d = 0; d < K; d++)
                    k[g][c][d] = kvb_codec_f16(key[d]);
                memcpy(v[g][c], kvb_values_rows(&values, KVB_ROWS_V, layer, TOKENS - 1 - c) + g * V, sizeof v[g][c]);
            }
        for (uint32_t head = 0; head < HEADS; head++) {
            const kvb_expect *e = last_row(oracle, 4, layer, head);
            kvb_expect actual;
            for (int way = 0; way < 2; way++) {
                int err = way ? kvb_oracle_solve_views(oracle, e, &k_view, &v_view, &runs_mask, 1, 0, &actual)
                              : kvb_oracle_solve_views(oracle, e, &k_view, &v_view, &explicit_mask, 2, 1, &actual);
                assert_int_equal(err, 0);
                assert_true(actual.event == 4 && actual.layer == layer && actual.head == head);
                assert_int_equal(actual.query, e->query);
                assert_int_equal(actual.visible, n);
                assert_true(fabs(actual.lse - e->lse) < 1e-12);
                assert_true(fabs(actual.row.a_mean - e->row.a_mean) < 1e-12 && actual.row.v_mix == 1);
                assert_true(fabs(actual.row.q_mean - e->row.q_mean) < 1e-12 && e->row.q_mean > 0);
                for (int c = 0; c < V; c++) {
                    assert_true(fabs(actual.terms[c].o - e->terms[c].o) < 1e-12);
                    assert_true(fabs(actual.terms[c].mass - e->terms[c].mass) < 1e-12);
                }
            }
        }
    }
    kvb_oracle_free(oracle);
    hand_free(&h);
}

/* Cells 0 .. 31 encoded, 32 .. 59 residual, bytes chosen at random: what counts is what is there. */
static void views_of(bool latent)
{
    enum { CELLS = 60, LATENT_V = 7 };
    static unsigned char codes[KV_HEADS][CELLS][K / 2];
    static uint16_t scales[KV_HEADS][2][K], zeros[KV_HEADS][2][K], recent[KV_HEADS][W][K], v[KV_HEADS][CELLS][V];
    static double k_rows[CELLS * K], v_rows[CELLS * V];
    static const uint32_t slots[] = {KVB_SLOT_NONE, 0};
    uint64_t seed = 8;
    hand h;
    kvb_values values;
    kvb_group of = group;
    of.latent = latent;
    of.v_dim = latent ? LATENT_V : V;
    trace_of(&h, of, &values);
    kvb_oracle *oracle = oracle_open(&h, &values, &kivi_k, &f16);
    kvb_view k_view = {.base = codes,
                       .head_stride = sizeof codes[0],
                       .cell_stride = sizeof codes[0][0],
                       .cells = CELLS,
                       .dim = K,
                       .format = &kivi_k,
                       .scales = scales,
                       .scale_head_stride = sizeof scales[0],
                       .scale_cell_stride = sizeof scales[0][0],
                       .zeros = zeros,
                       .zero_head_stride = sizeof zeros[0],
                       .zero_cell_stride = sizeof zeros[0][0],
                       .recent = recent,
                       .recent_slot = slots,
                       .recent_slot_stride = sizeof recent,
                       .recent_head_stride = sizeof recent[0]};
    kvb_view v_view = {.base = v, .head_stride = sizeof v[0], .cell_stride = sizeof v[0][0], .cells = CELLS, .dim = V};
    v_view.format = &f16;
    for (uint32_t i = 0; i < sizeof codes; i++)
        (&codes[0][0][0])[i] = (unsigned char)(256 * hand_uniform(&seed));
    for (uint32_t i = 0; i < KV_HEADS * 2 * K; i++) {
        (&scales[0][0][0])[i] = kvb_codec_f16((float)hand_uniform(&seed) / 8);
        (&zeros[0][0][0])[i] = kvb_codec_f16((float)hand_gauss(&seed));
    }
    for (uint32_t i = 0; i < KV_HEADS * W * K; i++)
        (&recent[0][0][0])[i] = kvb_codec_f16((float)hand_gauss(&seed));
    for (uint32_t i = 0; i < KV_HEADS * CELLS * V; i++)
        (&v[0][0][0])[i] = kvb_codec_f16((float)hand_gauss(&seed));

    for (uint32_t head = 0; head < HEADS; head++) {
        const kvb_expect *e = last_row(oracle, 3, 1, head);
        uint32_t g = head / 2;
        kvb_expect actual;
        double k_size = 0;
        for (uint32_t c = 0; c < CELLS; c++)
            for (uint32_t d = 0; d < K; d++) {
                double scale = kvb_codec_f16_value(scales[g][0][d]), zero = kvb_codec_f16_value(zeros[g][0][d]);
                double code = codes[g][c][d / 2] >> d % 2 * 4 & 15;
                k_rows[c * K + d] = c < W ? code * scale + zero : kvb_codec_f16_value(recent[g][c - W][d]);
                const float *q = kvb_values_rows(&values, KVB_ROWS_Q, 1, 99) + head * K;
                if (c == 7)
                    k_size += fabs((double)q[d]) * (fabs(code * scale) + fabs(zero));
            }
        for (uint32_t c = 0; c < CELLS; c++)
            for (uint32_t d = 0; d < V; d++)
                v_rows[c * V + d] = kvb_codec_f16_value(v[g][c][d]);
        /* the last but one of 3 tokens: all cells but the last */
        const kvb_mask causal = {.kind = KVB_MASK_CAUSAL};
        assert_int_equal(kvb_oracle_solve_views(oracle, e, &k_view, &v_view, &causal, 3, 1, &actual), 0);
        check_dims(&values, &actual, 99, CELLS - 1, k_rows, latent ? k_rows : v_rows, of.v_dim, latent ? K : V);
        /* one encoded cell alone: A is made of the sizes of its terms */
        static const uint32_t row_start[] = {0, 1};
        static const kvb_run one = {7, 8};
        const kvb_mask single = {.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = &one};
        assert_int_equal(kvb_oracle_solve_views(oracle, e, &k_view, &v_view, &single, 1, 0, &actual), 0);
        assert_true(fabs(actual.row.a_max - k_size) < 1e-12);
    }
    kvb_oracle_free(oracle);
    hand_free(&h);
}

static void views_with_residual_cells(void **state)
{
    (void)state;
    views_of(false);
    views_of(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_query_stores_what_it_sees), cmocka_unit_test(residual_cells_cost_what_f16_costs),
        cmocka_unit_test(magnitudes_reach_the_bound),  cmocka_unit_test(the_budget_counts_storing),
        cmocka_unit_test(views_of_plain_rows),         cmocka_unit_test(views_with_residual_cells),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("oracle/residual", tests, NULL, NULL);
}
