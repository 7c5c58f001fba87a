/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows the account of pools with residual cells: rows that are written one after the other are those of a sequence
 * stored by itself, wherever its blocks lie; a moved row, and the rows beside one that is written into an encoded
 * block, are f16 from then on; the second opinion is of the same rows; and a query that sees an empty cell is told.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/storage.h"
#include "oracle/window.h"

enum { TOKENS = 100, HEADS = 4, KV_HEADS = 2, K = 10, V = 32, LATENT_V = 7, W = 32, CELLS = 300 };

#define HALVES .group = W, .scale_elem = KVB_F16, .zero_elem = KVB_F16, .residual_cells = W, .residual_blocks = 1
static const kvb_format f32 = {.name = "f32", .elem = KVB_F32}, f16 = {.name = "f16", .elem = KVB_F16},
                        kivi_k = {.name = "kivi4-k", .elem = KVB_UINT4, .axis = KVB_AXIS_TOKENS, HALVES},
                        kivi_v = {.name = "kivi4-v", .elem = KVB_UINT4, .axis = KVB_AXIS_CHANNELS, HALVES},
                        kivi_had = {.name = "kivi4-k+had",
                                    .elem = KVB_UINT4,
                                    .axis = KVB_AXIS_TOKENS,
                                    .transform = KVB_TRANSFORM_HADAMARD,
                                    HALVES};

typedef struct rig {
    hand h;
    kvb_values values;
    kvb_oracle *oracle;
    kvb_window *window;
    uint32_t n_cells; /* readable */
} rig;

static void rig_open(rig *r, const kvb_format *k, const kvb_format *v, bool latent)
{
    const kvb_oracle_options options = {.k_format = k, .v_format = v, .max_pairs = UINT64_MAX};
    const kvb_group group = {.heads = HEADS,
                             .kv_heads = KV_HEADS,
                             .k_dim = K,
                             .v_dim = latent ? LATENT_V : V,
                             .scale = 0.3,
                             .latent = latent};
    char why[128];
    *r = (rig){.n_cells = TOKENS};
    hand_extend(&r->h, KVB_EVENT_PREFILL, 0, 0, TOKENS);
    hand_values(&r->h, hand_model(1, group), 4, &r->values);
    assert_int_equal(kvb_oracle_open(&r->h.trace, &r->values, &options, &r->oracle, why, sizeof why), 0);
    assert_int_equal(kvb_window_open(r->oracle, &r->window), 0);
}

static void rig_close(rig *r)
{
    kvb_window_free(r->window);
    kvb_oracle_free(r->oracle);
    hand_free(&r->h);
}

/* The row of a query and head that sees as many tokens. */
static const kvb_expect *row_of(const rig *r, uint32_t seen, uint32_t head)
{
    return &r->oracle->rows[(seen - 1) * HEADS + head];
}

static void write_one(rig *r, bool is_v, uint32_t cell, uint64_t token)
{
    assert_int_equal(kvb_window_write(r->window, 0, is_v, &cell, 1, &token), 0);
}

/* Tokens 0 .. n-1, some at a time, in cells that a table of blocks of W says; NULL: in as many from 0 on. */
static void write_all(rig *r, uint32_t n, const uint32_t *table)
{
    static const uint32_t steps[] = {30, 1, 40, 1000};
    bool latent = kvb_model_group(r->values.model, 0)->latent;
    for (uint32_t begin = 0, step = 0, end; begin < n; begin = end, step++) {
        uint32_t cells[TOKENS];
        uint64_t tokens[TOKENS];
        end = begin + steps[step] < n ? begin + steps[step] : n;
        for (uint32_t t = begin; t < end; t++) {
            cells[t - begin] = table ? table[t / W] * W + t % W : t;
            tokens[t - begin] = t;
        }
        for (uint32_t is_v = 0; is_v < (latent ? 1 : 2); is_v++)
            assert_int_equal(kvb_window_write(r->window, 0, is_v, cells, end - begin, tokens), 0);
    }
}

static int solve(rig *r, const kvb_expect *e, const kvb_mask *mask, kvb_expect *actual)
{
    const kvb_attend_of of = {.mask = mask, .n_cells = r->n_cells, .n_tok = 1};
    return kvb_window_solve(r->window, e, &of, actual);
}

static const kvb_mask every = {.kind = KVB_MASK_NONE};

static void same_row(const rig *r, const kvb_expect *got, const kvb_expect *want)
{
    assert_int_equal(got->visible, want->visible);
    assert_true(fabs(got->lse - want->lse) < 1e-12 && fabs(got->row.a_max - want->row.a_max) < 1e-12);
    for (uint32_t c = 0; c < kvb_model_group(r->values.model, 0)->v_dim; c++) {
        assert_true(fabs(got->terms[c].o - want->terms[c].o) < 1e-12);
        assert_true(fabs(got->terms[c].mass - want->terms[c].mass) < 1e-12);
    }
}

static void opinion_is_of_the_same_rows(rig *r, const kvb_expect *e)
{
    const kvb_attend_of of = {.mask = &every, .n_cells = r->n_cells, .n_tok = 1};
    kvb_opinion_row row;
    assert_int_equal(kvb_window_look(r->window, e->layer, &of), 0);
    const kvb_opinion_head *head = kvb_window_opinion(r->window, e, &row);
    assert_true(head->finite && fabs(row.expect.lse - e->lse) < 1e-12);
    assert_true(row.expect.row.a_max >= e->row.a_max * (1 - 1e-12));
    for (uint32_t c = 0; c < kvb_model_group(r->values.model, 0)->v_dim; c++)
        assert_true(fabs(row.o[c] - e->terms[c].o) < 1e-12);
}

static void stored_as_a_sequence_by_itself(const kvb_format *k, const kvb_format *v, bool latent)
{
    static const uint32_t table[] = {3, 8, 2, 6}, start[] = {0, 1};
    static const kvb_run later = {64, 64 + TOKENS};
    static const uint32_t shifted[] = {2, 3, 4, 5};
    static const kvb_run whole = {0, TOKENS};
    const kvb_mask masks[] = {
        every,
        {.kind = KVB_MASK_PAGES, .row_start = start, .pages = table, .seen = &whole, .page_cells = W},
        {.kind = KVB_MASK_RUNS, .row_start = start, .runs = &later},
    };
    for (int way = 0; way < 3; way++) {
        rig r;
        rig_open(&r, k, v, latent);
        write_all(&r, TOKENS, way == 0 ? NULL : way == 1 ? table : shifted);
        r.n_cells = (uint32_t[]){TOKENS, 9 * W, 64 + TOKENS}[way];
        for (uint32_t head = 0; head < HEADS; head++) {
            const kvb_expect *e = row_of(&r, TOKENS, head);
            kvb_expect actual;
            assert_int_equal(solve(&r, e, &masks[way], &actual), 0);
            same_row(&r, &actual, e);
            if (way == 0)
                opinion_is_of_the_same_rows(&r, e);
        }
        rig_close(&r);
    }
}

static void written_one_after_the_other(void **state)
{
    (void)state;
    stored_as_a_sequence_by_itself(&kivi_k, &f16, false);
    stored_as_a_sequence_by_itself(&f32, &kivi_v, false);
    stored_as_a_sequence_by_itself(&kivi_had, &kivi_v, false);
    stored_as_a_sequence_by_itself(&kivi_k, &f16, true);
}

/* ---- rows that are f16 again ------------------------------------------------------------------------------------- */

/* K rows of KV head 0 when tokens 0 .. n-1 are stored: [n][K]. */
static void keys_store(const rig *r, uint32_t n, double *rows)
{
    double sizes[TOKENS * K], scratch[1000];
    const float *from[TOKENS];
    kvb_storage store;
    char why[128];
    assert_int_equal(kvb_storage_init(&store, &kivi_k, K, NULL, KV_HEADS, 0, why, sizeof why), 0);
    assert_true(kvb_storage_scratch(&store) <= sizeof scratch);
    for (uint32_t t = 0; t < n; t++)
        from[t] = kvb_values_rows(&r->values, KVB_ROWS_K, 0, t);
    kvb_storage_rows(&store, from, n, scratch, rows, sizes);
}

static double half(double x)
{
    return kvb_codec_f16_value(kvb_codec_f16((float)x));
}

/* Head 0's log-sum-exp over the cells of a run is that of these keys. */
static void lse_is(rig *r, kvb_run run, const double *keys)
{
    static const uint32_t start[] = {0, 1};
    const kvb_mask mask = {.kind = KVB_MASK_RUNS, .row_start = start, .runs = &run};
    uint32_t n = run.end - run.begin;
    const kvb_expect *e = row_of(r, n, 0);
    const float *q = kvb_values_rows(&r->values, KVB_ROWS_Q, 0, n - 1);
    double z = 0;
    kvb_expect actual;
    for (uint32_t i = 0; i < n; i++) {
        double s = 0;
        for (uint32_t c = 0; c < K; c++)
            s += (double)q[c] * keys[i * K + c];
        z += exp((double)0.3f * s);
    }
    r->n_cells = CELLS;
    assert_int_equal(solve(r, e, &mask, &actual), 0);
    assert_true(fabs(actual.lse - log(z)) < 1e-12);
}

/* Tokens 0 .. 63 are encoded, 64 .. 69 are f16. */
static void moved_rows(void **state)
{
    (void)state;
    enum { N = 70 };
    static double keys[TOKENS * K], want[TOKENS * K];
    rig r;
    rig_open(&r, &kivi_k, &f16, false);
    write_all(&r, N, NULL);
    keys_store(&r, N, keys);
    memcpy(want, keys + 64 * K, 6 * K * sizeof *want);
    lse_is(&r, (kvb_run){64, N}, want);
    assert_int_equal(kvb_window_save(r.window, 0), 0);
    assert_int_equal(kvb_window_save(r.window, 1), 0);
    /* within the open block; from an encoded one; a cell to itself; one that holds nothing; one that was never there */
    const uint32_t from[] = {64, 68, 5, 67, 200, 5000};
    for (uint32_t is_v = 0; is_v < 2; is_v++)
        assert_int_equal(kvb_window_move(r.window, 0, is_v, 64, from, 6), 0);
    memcpy(want + 1 * K, keys + 68 * K, K * sizeof *want);
    for (uint32_t c = 0; c < K; c++)
        want[2 * K + c] = half(keys[5 * K + c]);
    lse_is(&r, (kvb_run){64, N}, want);
    /* far away, where there was no room */
    for (uint32_t is_v = 0; is_v < 2; is_v++)
        assert_int_equal(kvb_window_move(r.window, 0, is_v, CELLS - 1, (const uint32_t[]){64}, 1), 0);
    lse_is(&r, (kvb_run){CELLS - 1, CELLS}, want);
    assert_int_equal(kvb_window_save(r.window, 1), 0);
    kvb_window_load(r.window, 0); /* as it was, though there is room for more now */
    lse_is(&r, (kvb_run){0, W}, keys);
    lse_is(&r, (kvb_run){64, N}, keys + 64 * K);
    kvb_window_load(r.window, 1);
    lse_is(&r, (kvb_run){CELLS - 1, CELLS}, want);
    /* within an encoded block, which is opened for it */
    for (uint32_t is_v = 0; is_v < 2; is_v++)
        assert_int_equal(kvb_window_move(r.window, 0, is_v, 6, (const uint32_t[]){5}, 1), 0);
    for (uint32_t i = 0; i < W * K; i++)
        want[i] = half(keys[i]);
    memcpy(want + 6 * K, want + 5 * K, K * sizeof *want);
    lse_is(&r, (kvb_run){0, W}, want);
    rig_close(&r);
    rig_open(&r, &kivi_k, &f16, false); /* nothing is a thing, too */
    assert_int_equal(kvb_window_save(r.window, 0), 0);
    kvb_window_load(r.window, 0);
    rig_close(&r);
}

/* Token 99 comes to cell 3 of the first block; the others there are f16 of what was decoded. It stays so when it comes
 * again. */
static void written_into_an_encoded_block(void **state)
{
    (void)state;
    static double keys[TOKENS * K];
    rig r;
    rig_open(&r, &kivi_k, &f16, false);
    write_all(&r, 70, NULL);
    keys_store(&r, 70, keys);
    lse_is(&r, (kvb_run){0, W}, keys);
    for (uint32_t i = 0; i < W * K; i++)
        keys[i] = half(keys[i]);
    for (uint32_t c = 0; c < K; c++)
        keys[3 * K + c] = half((double)kvb_values_rows(&r.values, KVB_ROWS_K, 0, 99)[c]);
    for (int again = 0; again < 2; again++) {
        write_one(&r, false, 3, 99);
        write_one(&r, true, 3, 99);
        lse_is(&r, (kvb_run){0, W}, keys);
    }
    rig_close(&r);
}

static void what_is_not_there(void **state)
{
    (void)state;
    kvb_expect actual;
    rig r;
    rig_open(&r, &kivi_k, &f16, false);
    write_all(&r, TOKENS - 1, NULL);
    assert_int_equal(solve(&r, row_of(&r, TOKENS, 0), &every, &actual), -EILSEQ); /* the last one */
    r.n_cells = TOKENS - 1;
    assert_int_equal(solve(&r, row_of(&r, TOKENS, 0), &every, &actual), -EILSEQ); /* one too few */
    assert_int_equal(solve(&r, row_of(&r, TOKENS - 1, 0), &every, &actual), 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_one_after_the_other),
        cmocka_unit_test(moved_rows),
        cmocka_unit_test(written_into_an_encoded_block),
        cmocka_unit_test(what_is_not_there),
    };
    return cmocka_run_group_tests_name("oracle/window", tests, NULL, NULL);
}
