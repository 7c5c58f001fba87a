/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the oracle's stored rows, and its account of residual cells. */
#include "ci/tests/tests.h"
#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"
#include "oracle/window.h"
#include "workloads/special_rows.h"

/*
 * Shows: the transform agrees with its definition (a sum over all channels); rows in formats with transforms and
 * residual windows; which formats refuse which rows; formats with their own reference.
 */

enum { MAX_DIM = 256, MAX_ROWS = 200 };

static float made[MAX_ROWS][MAX_DIM];
static const float *store_row_at[MAX_ROWS];
static double stored[MAX_ROWS * MAX_DIM], store_size[MAX_ROWS * MAX_DIM];
static char reason[200];

static void rows_make(uint32_t n, uint32_t dim, row_kind kind)
{
    uint64_t seed = 1 + kind;
    for (uint32_t r = 0; r < n; r++) {
        row_fill(kind, made[r], dim, &seed);
        store_row_at[r] = made[r];
    }
}

static void store_rows(const kvb_format *format, uint32_t dim, uint32_t n)
{
    const kvb_storage store = hand_storage(format, dim, NULL, 1, 0);
    hand_store(&store, store_row_at, n, stored, store_size);
}

static bool odd_bits(uint32_t x)
{
    bool odd = false;
    for (; x; x /= 2)
        odd ^= x & 1;
    return odd;
}

/* H[i][j] = (-1)^(number of bits that i and j share) / sqrt(block). */
TEST(transform_is_walshs)
{
    static const uint32_t dims[] = {1, 2, 6, 7, 12, 64, 80, 96, 128, 256};
    static const kvb_transform transforms[] = {KVB_TRANSFORM_HADAMARD, KVB_TRANSFORM_SIGNED_HADAMARD};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int t = 0; t < 2; t++) {
            uint32_t dim = dims[d], block = kvb_transform_block(dim);
            float turned[MAX_DIM];
            double back[MAX_DIM];
            rows_make(1, dim, ROW_NORMAL);
            memcpy(turned, made[0], sizeof turned);
            kvb_codec_rotate(transforms[t], dim, turned);
            for (uint32_t i = 0; i < dim; i++) {
                double sum = 0;
                for (uint32_t j = i / block * block; j < i / block * block + block; j++) {
                    bool minus = odd_bits(i % block & j % block) ^ (t == 1 && kvb_sign_flip(j));
                    sum += minus ? -(double)made[0][j] : (double)made[0][j];
                }
                assert_true(fabs((double)turned[i] - sum / sqrt(block)) < 1e-5);
                back[i] = (double)turned[i];
            }
            kvb_codec_unrotate(transforms[t], dim, back);
            for (uint32_t i = 0; i < dim; i++)
                assert_true(fabs(back[i] - (double)made[0][i]) < 2e-6);
        }
}

/* Additions are in f32, in the prescribed order: 2^24 + 1 is 2^24. */
TEST(transform_rounds_in_order)
{
    float row[4] = {0x1p24f, 1, 1, 1}, none[4] = {1, 2, 3, 4};
    kvb_codec_rotate(KVB_TRANSFORM_HADAMARD, 4, row);
    assert_true(row[0] == 0x1.000002p23f && row[1] == 0x1.fffffep22f && row[2] == 0x1.fffffcp22f && row[3] == row[1]);
    kvb_codec_rotate(KVB_TRANSFORM_NONE, 4, none);
    assert_true(none[1] == 2);
}

/* Sizes of one row. */
static void row_sizes(kvb_storage store, const float *row)
{
    hand_store(&store, &row, 1, stored, store_size);
}

/* V, in a block of 4: a 3 among zeros is +-3 / sqrt(2) in its pair after one stage, and +-3/2 in all four after two;
 * the mean of the squares is (9/2 + 9/4) / 2. Equal channels have the same size in both stages. */
static void sizes_of_v(const kvb_format *turned)
{
    kvb_storage store = hand_storage(turned, 4, NULL, 1, 0);
    store.is_v = true;
    row_sizes(store, (const float[]){0, 3, 0, 0});
    for (int c = 0; c < 4; c++)
        assert_true(fabs(store_size[c] - sqrt((9.0 / 2 + 9.0 / 4) / 2)) < 1e-6);
    row_sizes(store, (const float[]){2, -2, 2, 2});
    for (int c = 0; c < 4; c++)
        assert_true(fabs(store_size[c] - 2) < 1e-6);
}

/* Codes are read less the middle one: -10 and 245 lie 127.5 on either side of 117.5. */
static void sizes_centred(const kvb_format *asym)
{
    kvb_storage store = hand_storage(asym, 2, NULL, 1, 0);
    store.centred = true;
    row_sizes(store, (const float[]){-10, 245});
    assert_true(store_size[0] == 127.5 + 117.5 && store_size[1] == 265);
}

/* size is the root mean square of the magnitudes within a block of the transform. */
TEST(sizes)
{
    const kvb_format plain = {.name = "f32", .elem = KVB_F32};
    const kvb_format turned = {.name = "f32+had", .elem = KVB_F32, .transform = KVB_TRANSFORM_HADAMARD};
    const kvb_format asym = {.name = "int8-asym", .elem = KVB_UINT8, .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW};
    rows_make(3, 12, ROW_NORMAL);
    store_rows(&plain, 12, 3);
    for (uint32_t i = 0; i < 36; i++)
        assert_true(stored[i] == (double)made[i / 12][i % 12] && store_size[i] == fabs(stored[i]));
    store_rows(&turned, 12, 3);
    for (uint32_t i = 0; i < 36; i++) {
        const float *block = made[i / 12] + i % 12 / 4 * 4; /* a transform keeps the norm */
        double sum = 0;
        for (int c = 0; c < 4; c++)
            sum += (double)block[c] * (double)block[c];
        assert_true(fabs(stored[i] - (double)made[i / 12][i % 12]) < 1e-6 &&
                    fabs(store_size[i] - sqrt(sum / 4)) < 1e-6);
    }
    made[0][0] = -10, made[0][1] = 245;
    store_rows(&asym, 2, 1);
    assert_true(stored[1] == 245 && store_size[1] == 265 && store_size[0] == 10);
    sizes_of_v(&turned);
    sizes_centred(&asym);
}

#define LATE .group = 32, .scale_elem = KVB_F16, .zero_elem = KVB_F16, .residual_cells = 32, .residual_blocks = 4
static const kvb_format late_k = {.name = "kivi4-k", .elem = KVB_UINT4, .axis = KVB_AXIS_TOKENS, LATE},
                        late_v = {.name = "kivi2-v", .elem = KVB_UINT2, .axis = KVB_AXIS_CHANNELS, LATE};

/* All blocks before the last four are encoded, each as a whole. */
TEST(windows_close_by_blocks)
{
    static const struct {
        uint32_t n, encoded;
    } cases[] = {{1, 0}, {128, 0}, {129, 32}, {160, 32}, {161, 64}};
    const kvb_format *const formats[] = {&late_k, &late_v};
    rows_make(MAX_ROWS, 64, ROW_NORMAL);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        uint32_t n = cases[i / 2].n, exact = 0;
        store_rows(formats[i % 2], 64, n);
        for (uint32_t r = 0; r < n; r++) {
            bool half = true;
            for (uint32_t c = 0; c < 64; c++)
                half &= stored[r * 64 + c] == kvb_codec_rounded(KVB_F16, made[r][c]);
            assert_true(half == (r >= cases[i / 2].encoded));
            exact += half;
        }
        assert_int_equal(exact, n - cases[i / 2].encoded);
    }
}

/* kivi-k: a channel has one scale over the block's 32 tokens; rows are rounded to f16 before. */
TEST(closed_blocks_are_the_codecs)
{
    rows_make(MAX_ROWS, 64, ROW_NORMAL);
    store_rows(&late_k, 64, 192);
    for (uint32_t b = 0; b < 2; b++)
        for (uint32_t c = 0; c < 64; c++) {
            float lo = INFINITY, hi = -INFINITY;
            for (uint32_t r = b * 32; r < b * 32 + 32; r++) {
                float v = (float)kvb_codec_rounded(KVB_F16, made[r][c]);
                lo = v < lo ? v : lo, hi = v > hi ? v : hi;
            }
            double step = kvb_codec_rounded(KVB_F16, (hi - lo) / 15);
            for (uint32_t r = b * 32; r < b * 32 + 32; r++) {
                double steps = (stored[r * 64 + c] - (double)lo) / step;
                assert_true(steps == rint(steps) && steps >= 0 && steps <= 15);
                assert_true(fabs(stored[r * 64 + c] - (double)made[r][c]) <= step * 0.52);
            }
        }
}

static void refuses(const kvb_format *format, uint32_t dim, const char *words)
{
    kvb_storage store;
    tests_refused(kvb_storage_init(&store, format, dim, NULL, 1, 0, reason, sizeof reason), -ENOTSUP, reason, words);
}

TEST(what_does_not_fit)
{
    const kvb_format unknown = {.name = "f17"}, other = {.name = "q8_0", .elem = KVB_Q4_0};
    const kvb_format q8 = {.name = "q8_0", .elem = KVB_Q8_0}, a4 = {.name = "a4g64", .elem = KVB_UINT4};
    const kvb_format had = {.name = "f16+had", .elem = KVB_F16, .transform = KVB_TRANSFORM_HADAMARD};
    const kvb_format tq = {.name = "tq3", .elem = KVB_CODEBOOK, .transform = KVB_TRANSFORM_SIGNED_HADAMARD};
    refuses(&unknown, 64, "f17"), refuses(&other, 64, "q8_0");
    refuses(&q8, 48, "q8_0"), refuses(&a4, 96, "a4g64"), refuses(&had, 63, "had"), refuses(&tq, 80, "tq3");
    refuses(&late_v, 48, "kivi2-v"), refuses(&q8, 0, "q8_0");
    rows_make(1, 96, ROW_NORMAL);
    store_rows(&q8, 96, 1), store_rows(&a4, 64, 1), store_rows(&had, 62, 1), store_rows(&tq, 96, 1);
}

static void halved(const kvb_format *format, uint32_t dim, const float *row, double *to, double *to_size)
{
    (void)format;
    for (uint32_t c = 0; c < dim; c++) {
        to[c] = (double)row[c] / 2;
        to_size[c] = 3;
    }
}

/* A plug-in's format has its own function for stored rows; nothing else changes its rows. */
TEST(formats_of_others)
{
    enum { DIM = 7 };
    kvb_format own = {.name = "own", .elem = KVB_OPAQUE, .reference = halved};
    rows_make(3, DIM, ROW_NORMAL);
    store_rows(&own, DIM, 3);
    for (uint32_t i = 0; i < 3 * DIM; i++)
        assert_true(stored[i] == (double)made[i / DIM][i % DIM] / 2 && store_size[i] == 3);
    own.residual_cells = 32;
    refuses(&own, DIM, "'own' is opaque");
    refuses(&(kvb_format){.name = "own", .elem = KVB_OPAQUE}, DIM, "'own' brings no reference");
}

/* Shows: the cost of a format is 0 for f32, closed-form in a known case, and smaller for f16 than for bf16. */

static kvb_format_error cost(const hand *h, const kvb_values *values, const kvb_format *k, const kvb_format *v)
{
    kvb_oracle *oracle = hand_oracle(h, values, k, v);
    kvb_format_error format = oracle->format;
    kvb_oracle_free(oracle);
    return format;
}

TEST(ordered_by_precision)
{
    hand h = {0};
    kvb_values values;
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 60);
    const kvb_group group = {.heads = 4, .kv_heads = 2, .k_dim = 16, .v_dim = 8, .scale = 0.25};
    hand_values(&h, hand_model(2, group), 1, &values);
    kvb_format_error none = cost(&h, &values, &f32, &f32), half = cost(&h, &values, &f16, &f16),
                     brain = cost(&h, &values, &bf16, &bf16), only_v = cost(&h, &values, &f32, &f16),
                     only_k = cost(&h, &values, &f16, &f32);
    assert_true(none.max_abs == 0 && none.rel_l2 == 0 && none.kl_mean == 0 && none.kl_max == 0);
    assert_true(half.max_abs > 0 && half.max_abs * 4 < brain.max_abs);
    assert_true(half.rel_l2 > 1e-5 && half.rel_l2 * 4 < brain.rel_l2 && brain.rel_l2 < 1e-2);
    assert_true(half.kl_mean > 0 &&
                half.kl_mean * 16 < brain.kl_mean); /* the cost is about the square of the rounding */
    assert_true(half.kl_max >= half.kl_mean && brain.kl_max >= brain.kl_mean);
    assert_true(only_v.kl_max == 0 && only_v.rel_l2 > 0);
    assert_true(only_k.kl_max == half.kl_max && only_k.rel_l2 > 0);
    hand_free(&h);
}

/* One channel, scale 1, q = 1; keys 0 and `key`, values 0 and 1. The second query sees both. */
static void two_tokens(hand *h, float key, kvb_values *values)
{
    const float rows[KVB_ROWS_ATTENDED][2] = {{1, 1}, {0, key}, {0, 1}};
    hand_extend(h, KVB_EVENT_PREFILL, 0, 0, 2);
    hand_values(h, hand_model(1, (kvb_group){.heads = 1, .kv_heads = 1, .k_dim = 1, .v_dim = 1, .scale = 1}), 1,
                values);
    for (int kind = 0; kind < KVB_ROWS_ATTENDED; kind++)
        memcpy(values->block[kind], rows[kind], sizeof rows[kind]);
}

/* 1 + 2^-9, which bf16 stores as 1: o = sigmoid(1 + 2^-9) becomes sigmoid(1). The first query has no error. */
TEST(closed_case)
{
    hand h = {0};
    kvb_values values;
    two_tokens(&h, 1 + 0x1p-9f, &values);
    double p = 1 / (1 + exp(-(1 + 0x1p-9))), r = 1 / (1 + exp(-1.0));
    double kl = p * log(p / r) + (1 - p) * log((1 - p) / (1 - r));
    kvb_format_error brain = cost(&h, &values, &bf16, &bf16);
    assert_true(fabs(brain.max_abs - (p - r)) < 1e-15);
    assert_true(fabs(brain.rel_l2 - (p - r) / p) < 1e-14);
    assert_true(fabs(brain.kl_max - kl) < 1e-14 && kl > 1e-7);
    assert_true(fabs(brain.kl_mean - kl / 2) < 1e-14);
    kvb_format_error half = cost(&h, &values, &f16, &f16); /* f16 holds 1 + 2^-9 exactly */
    assert_true(half.max_abs == 0 && half.rel_l2 == 0 && half.kl_max == 0);
    hand_free(&h);
}

/* A key that f16 cannot hold: the cost is infinite, not a crash and not 0. */
TEST(overflow_costs_infinity)
{
    hand h = {0};
    kvb_values values;
    two_tokens(&h, 70000, &values);
    kvb_format_error half = cost(&h, &values, &f16, &f16);
    assert_true(isinf(half.max_abs) && isinf(half.kl_max));
    assert_true(cost(&h, &values, &bf16, &bf16).max_abs == 0);
    hand_free(&h);
}

/*
 * Shows: rows of formats with residual cells are stored, for each query, as the sequence that it sees, alone. The
 * account of what pools hold (oracle/window.h) gives the same rows for tokens that are written in that order, for
 * blocks anywhere and any mask, also if V is the beginning of K's rows. A moved row becomes f16; so do the rows of an
 * encoded block into which a row is written. The second opinion reads the same rows. A query that sees an empty cell is
 * reported.
 */

enum {
    LAYERS = 2,
    HEADS = 4,
    KV_HEADS = 2,
    K = 10,
    V = 32,
    LATENT_V = 7,
    TOKENS = 104,
    HELD = 100,
    CELLS = 300,
    W = 32
};

static const kvb_group group = {.heads = HEADS, .kv_heads = KV_HEADS, .k_dim = K, .v_dim = V, .scale = 0.3},
                       latent_group = {.heads = HEADS,
                                       .kv_heads = KV_HEADS,
                                       .k_dim = K,
                                       .v_dim = LATENT_V,
                                       .scale = 0.3,
                                       .latent = true};

static const kvb_format kivi_v = {.name = "kivi4-v", .elem = KVB_UINT4, .axis = KVB_AXIS_CHANNELS, HALVES},
                        kivi_had = {.name = "kivi4-k+had",
                                    .elem = KVB_UINT4,
                                    .axis = KVB_AXIS_TOKENS,
                                    .transform = KVB_TRANSFORM_HADAMARD,
                                    HALVES};

/* Sequence 0 has 90 tokens, then 10 more. A fork of 70 loses 4 and gets 4: its last query sees 70. */
static void trace_make(hand *h, kvb_values *values)
{
    *h = (hand){0};
    hand_extend(h, KVB_EVENT_PREFILL, 0, 0, 90);
    hand_cp(h, 0, 1, 0, 70);
    hand_rm(h, 1, 20, 24);
    hand_extend(h, KVB_EVENT_STEP, 0, 90, 10);
    hand_extend(h, KVB_EVENT_STEP, 1, 70, 4);
    assert_int_equal(h->tokens, TOKENS);
    hand_values(h, hand_model(LAYERS, group), 4, values);
}

TEST(a_query_stores_what_it_sees)
{
    static const kvb_format *const pairs[][2] = {{&kivi_k, &f16}, {&f32, &kivi_v}, {&kivi_had, &kivi_v}};
    static double k[TOKENS * K], v[TOKENS * V];
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    for (size_t p = 0; p < 3; p++) {
        kvb_oracle *oracle = hand_oracle(&h, &values, pairs[p][0], pairs[p][1]);
        assert_true(kvb_oracle_needs_writes(oracle));
        for (uint32_t event = 3; event <= 4; event++)
            for (uint32_t place = 0; place < LAYERS * HEADS; place++) {
                size_t rows;
                const uint32_t layer = place / HEADS, head = place % HEADS;
                const kvb_expect *e = kvb_oracle_rows(oracle, event, layer, &rows) + rows - HEADS + head;
                uint32_t seen[TOKENS], n = 0; /* what the event's last query sees */
                for (uint32_t t = 0; t < TOKENS; t++)
                    if (event == 3 ? t < 100 : (t < 20 || (t >= 24 && t < 70) || t >= 100))
                        seen[n++] = t;
                assert_int_equal(e->head, head);
                hand_store_tokens(&values, KVB_ROWS_K, pairs[p][0], NULL, layer, head / 2, n, seen, k);
                hand_store_tokens(&values, KVB_ROWS_V, pairs[p][1], NULL, layer, head / 2, n, seen, v);
                hand_is_attention(&values, e, event == 3 ? 99 : 103, n, k, v);
            }
        assert_true(oracle->format.rel_l2 > 1e-3 && oracle->format.rel_l2 < 0.5);
        kvb_oracle_free(oracle);
    }
    hand_free(&h);
}

/* Residual cells are f16: they cost what f16 costs. */
TEST(residual_cells_cost_what_f16_costs)
{
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    kvb_oracle *residual = hand_oracle(&h, &values, &late_k, &f32), *half = hand_oracle(&h, &values, &f16, &f32);
    assert_false(kvb_oracle_needs_writes(half));
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

/* With one token the weight is 1: the sums are the magnitudes of its rows, in every format. */
TEST(magnitudes_reach_the_bound)
{
#define BLOCKS .axis = KVB_AXIS_CHANNELS, .group = 32
    const kvb_format all[] = {
        f16,
        {.name = "q8_0", .elem = KVB_Q8_0, BLOCKS},
        {.name = "q4_1", .elem = KVB_Q4_1, BLOCKS},
        {.name = "q5_1", .elem = KVB_Q5_1, BLOCKS},
        int8_asym,
        int8_had,
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
        double row[DIM], size[DIM], reach = 0, q2 = 0, size2 = 0;
        kvb_storage store = hand_storage(&all[f], DIM, NULL, 1, 0);
        kvb_oracle *oracle = hand_oracle(&h, &values, &all[f], &all[f]);
        const kvb_expect *e = oracle->rows;
        hand_store(&store, &k, 1, row, size);
        for (int d = 0; d < DIM; d++) {
            reach += fabs((double)q[d]) * size[d];
            q2 += (double)q[d] * (double)q[d];
            size2 += size[d] * size[d];
        }
        assert_true(fabs(e->row.a_max - (all[f].transform ? sqrt(q2 * size2) : reach)) < 1e-12);
        assert_true(e->row.v_mix == (all[f].transform ? sqrt(DIM) : 1));
        store.is_v = true;
        hand_store(&store, &v, 1, row, size);
        for (int c = 0; c < DIM; c++) {
            assert_true(fabs(e->terms[c].o - row[c]) < 1e-12);
            assert_true(fabs(e->terms[c].mass - fmax(size[c], fabs(row[c]))) < 1e-12);
        }
        kvb_oracle_free(oracle);
    }
    hand_free(&h);
}

/* Storing rows counts in the budget: a format with residual cells checks fewer rows. */
TEST(the_budget_counts_storing)
{
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    kvb_oracle_options options = {.k_format = &f16, .v_format = &f32, .max_pairs = 50000, .seed = 1};
    kvb_oracle *half = hand_oracle_of(&h, &values, options);
    options.k_format = &kivi_k;
    kvb_oracle *residual = hand_oracle_of(&h, &values, options);
    assert_int_equal(half->n_rows, half->total_rows);
    assert_true(residual->n_rows < residual->total_rows / 4 && residual->n_rows >= 64);
    kvb_oracle_free(half);
    kvb_oracle_free(residual);
    hand_free(&h);
}

/* ---- the account of writes, in layer 1 --------------------------------------------------------------------------- */

typedef struct rig {
    hand h;
    kvb_values values;
    kvb_oracle *oracle;
    kvb_window *window;
} rig;

static void rig_open(rig *r, const kvb_format *k, const kvb_format *v, bool latent)
{
    *r = (rig){.oracle = NULL};
    hand_extend(&r->h, KVB_EVENT_PREFILL, 0, 0, HELD);
    hand_values(&r->h, hand_model(LAYERS, latent ? latent_group : group), 4, &r->values);
    r->oracle = hand_oracle(&r->h, &r->values, k, v);
    assert_int_equal(kvb_window_open(r->oracle, &r->window), 0);
}

static void rig_close(rig *r)
{
    kvb_window_free(r->window);
    kvb_oracle_free(r->oracle);
    hand_free(&r->h);
}

/* The row of a head and of the query that sees so many tokens. */
static const kvb_expect *row_of(const rig *r, uint32_t seen, uint32_t head)
{
    size_t n;
    return kvb_oracle_rows(r->oracle, 0, 1, &n) + (seen - 1) * HEADS + head;
}

static void write_one(rig *r, uint32_t cell, uint64_t token)
{
    for (uint32_t is_v = 0; is_v < 2; is_v++)
        assert_int_equal(kvb_window_write(r->window, 1, is_v, &cell, 1, &token), 0);
}

/* Writes tokens 0 .. n-1, `some` at a time, to cells that a table of blocks of W gives; NULL: to cells 0 .. n-1. */
static void write_all(rig *r, uint32_t n, const uint32_t *table, uint32_t some)
{
    const bool latent = kvb_model_group(r->values.model, 1)->latent;
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        uint32_t cells[HELD];
        uint64_t tokens[HELD];
        end = begin + some < n ? begin + some : n;
        for (uint32_t t = begin; t < end; t++) {
            cells[t - begin] = table ? table[t / W] * W + t % W : t;
            tokens[t - begin] = t;
        }
        for (uint32_t is_v = 0; is_v < (latent ? 1 : 2); is_v++)
            assert_int_equal(kvb_window_write(r->window, 1, is_v, cells, end - begin, tokens), 0);
    }
}

static void same_row(const kvb_expect *actual, const kvb_expect *e, uint32_t v_dim)
{
    assert_true(actual->event == e->event && actual->layer == e->layer && actual->query == e->query);
    assert_true(actual->head == e->head && actual->visible == e->visible);
    assert_true(fabs(actual->lse - e->lse) < 1e-12);
    assert_true(fabs(actual->row.a_max - e->row.a_max) < 1e-12 && fabs(actual->row.a_mean - e->row.a_mean) < 1e-12);
    assert_true(fabs(actual->row.q_mean - e->row.q_mean) < 1e-12 && e->row.q_mean > 0);
    assert_true(actual->row.v_mix == e->row.v_mix);
    for (uint32_t c = 0; c < v_dim; c++) {
        assert_true(fabs(actual->terms[c].o - e->terms[c].o) < 1e-12);
        assert_true(fabs(actual->terms[c].mass - e->terms[c].mass) < 1e-12);
    }
}

static void opinion_is_of_the_same_rows(rig *r, const kvb_expect *e, const kvb_attend_of *of)
{
    kvb_opinion_row row;
    assert_int_equal(kvb_window_look(r->window, e->layer, of), 0);
    const kvb_opinion_head *head = kvb_window_opinion(r->window, e, &row);
    assert_true(head->finite && head->v_most > 0 && fabs(row.expect.lse - e->lse) < 1e-12);
    assert_true(row.expect.row.a_max >= e->row.a_max * (1 - 1e-12));
    for (uint32_t c = 0; c < kvb_model_group(r->values.model, 1)->v_dim; c++)
        assert_true(fabs(row.o[c] - e->terms[c].o) < 1e-12);
}

static const kvb_mask every = {.kind = KVB_MASK_NONE}, causal = {.kind = KVB_MASK_CAUSAL};

static void stored_as_a_sequence_by_itself(const kvb_format *k, const kvb_format *v, bool latent)
{
    static const uint32_t table[] = {3, 8, 2, 6}, shifted[] = {2, 3, 4, 5}, start[] = {0, 1};
    static const kvb_run later = {64, 64 + HELD}, whole = {0, HELD};
    uint64_t bits[2][5] = {{0}}; /* the first of two queries sees nothing */
    for (uint32_t t = 0; t < HELD; t++)
        bits[1][table[t / W] / 2] |= (uint64_t)1 << (table[t / W] % 2 * W + t % W);
    const kvb_mask pages = {.kind = KVB_MASK_PAGES,
                            .row_start = start,
                            .pages = table,
                            .seen = &whole,
                            .page_cells = W},
                   runs = {.kind = KVB_MASK_RUNS, .row_start = start, .runs = &later},
                   scattered = {.kind = KVB_MASK_EXPLICIT, .bits = bits[0], .row_words = 5};
    const struct {
        const uint32_t *table;
        uint32_t some; /* tokens at a time */
        kvb_attend_of of;
    } ways[] = {
        {NULL, 31, {&every, HELD, 1, 0}},        {table, 30, {&pages, 9 * W, 1, 0}},
        {shifted, 70, {&runs, 64 + HELD, 1, 0}}, {table, HELD, {&scattered, 9 * W, 2, 1}},
        {NULL, 1, {&causal, HELD + 1, 3, 1}}, /* token 1 of 3 sees all cells but the last, which is empty */
    };
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        rig r;
        rig_open(&r, k, v, latent);
        write_all(&r, HELD, ways[way].table, ways[way].some);
        for (uint32_t head = 0; head < HEADS; head++) {
            const kvb_expect *e = row_of(&r, HELD, head);
            kvb_expect actual;
            assert_int_equal(kvb_window_solve(r.window, e, &ways[way].of, &actual), 0);
            same_row(&actual, e, kvb_model_group(r.values.model, 1)->v_dim);
            opinion_is_of_the_same_rows(&r, e, &ways[way].of);
        }
        rig_close(&r);
    }
}

TEST(written_one_after_the_other)
{
    stored_as_a_sequence_by_itself(&kivi_k, &f16, false);
    stored_as_a_sequence_by_itself(&f32, &kivi_v, false);
    stored_as_a_sequence_by_itself(&kivi_had, &kivi_v, false);
    stored_as_a_sequence_by_itself(&kivi_k, &f16, true);
    stored_as_a_sequence_by_itself(&f16, &f32, false); /* no residual cells */
}

/* ---- rows that are f16 again: K rows are kivi4-k ----------------------------------------------------------------- */

static uint32_t numbers[HELD]; /* 0, 1, 2, … */

static int numbers_fill(void **state)
{
    for (uint32_t i = 0; i < HELD; i++)
        numbers[i] = i;
    return 0;
}

static CMFixtureFunction tests_setup = numbers_fill;

/* K rows of that KV head when tokens 0 .. n-1 are stored: [n][K]. */
static void keys_store(const rig *r, uint32_t kv_head, uint32_t n, double *rows)
{
    hand_store_tokens(&r->values, KVB_ROWS_K, &kivi_k, NULL, 1, kv_head, n, numbers, rows);
}

static double half(double x)
{
    return kvb_codec_rounded(KVB_F16, (float)x);
}

/* Encodes and decodes a block's f16 rows. */
static void block_code(double *rows)
{
    static float f[W * K];
    const float *at[W];
    kvb_format no_residual = kivi_k;
    no_residual.residual_blocks = 0;
    for (uint32_t i = 0; i < W * K; i++)
        f[i] = (float)rows[i];
    for (uint32_t i = 0; i < W; i++)
        at[i] = f + i * K;
    const kvb_storage store = hand_storage(&no_residual, K, NULL, KV_HEADS, 0);
    hand_store(&store, at, W, rows, NULL);
}

/* The window's attention over a run of cells must be attention over these keys and these tokens' V in f16. */
static void rows_are(rig *r, uint32_t kv_head, kvb_run run, const double *keys, const uint32_t *tokens)
{
    static const uint32_t start[] = {0, 1};
    static double v[HELD * V];
    const kvb_mask mask = {.kind = KVB_MASK_RUNS, .row_start = start, .runs = &run};
    const uint32_t n = run.end - run.begin;
    kvb_expect actual;
    hand_store_tokens(&r->values, KVB_ROWS_V, &f16, NULL, 1, kv_head, n, tokens, v);
    for (uint32_t head = kv_head * 2; head < kv_head * 2 + 2; head++) {
        assert_int_equal(kvb_window_solve(r->window, row_of(r, n, head), &(kvb_attend_of){&mask, CELLS, 1, 0}, &actual),
                         0);
        hand_is_attention(&r->values, &actual, n - 1, n, keys, v);
    }
}

static void move(rig *r, uint32_t to, const uint32_t *from, uint32_t n)
{
    for (uint32_t is_v = 0; is_v < 2; is_v++)
        assert_int_equal(kvb_window_move(r->window, 1, is_v, to, from, n), 0);
}

/* Tokens 0 .. 63 are encoded, 64 .. 69 are f16. */
static void moved_rows_of(uint32_t kv_head)
{
    enum { N = 70 };
    static double keys[HELD * K], want[HELD * K];
    uint32_t first[W], last[] = {64, 68, 5, 67, 68, 69};
    rig r;
    rig_open(&r, &kivi_k, &f16, false);
    write_all(&r, N, NULL, 30);
    keys_store(&r, kv_head, N, keys);
    rows_are(&r, kv_head, (kvb_run){64, N}, keys + 64 * K, numbers + 64);
    assert_int_equal(kvb_window_save(r.window, 0), 0);
    assert_int_equal(kvb_window_save(r.window, 1), 0);
    /* within the open block; from an encoded one; a cell to itself; an empty cell; a cell that never existed */
    move(&r, 64, (const uint32_t[]){64, 68, 5, 67, 200, 5000}, 6);
    for (uint32_t i = 0; i < 6 * K; i++)
        want[i] = i / K == 2 ? half(keys[5 * K + i % K]) : keys[last[i / K] * K + i % K];
    rows_are(&r, kv_head, (kvb_run){64, N}, want, last);
    /* far away, where the account has no room yet */
    move(&r, CELLS - 1, (const uint32_t[]){64}, 1);
    rows_are(&r, kv_head, (kvb_run){CELLS - 1, CELLS}, want, last);
    assert_int_equal(kvb_window_save(r.window, 1), 0);
    kvb_window_load(r.window, 0); /* as saved, though there is room for more now */
    rows_are(&r, kv_head, (kvb_run){0, W}, keys, numbers);
    rows_are(&r, kv_head, (kvb_run){64, N}, keys + 64 * K, numbers + 64);
    kvb_window_load(r.window, 1);
    rows_are(&r, kv_head, (kvb_run){CELLS - 1, CELLS}, want, last);
    /* within an encoded block, which becomes f16 */
    move(&r, 6, (const uint32_t[]){5}, 1);
    memcpy(first, numbers, sizeof first);
    first[6] = 5;
    for (uint32_t i = 0; i < W * K; i++)
        want[i] = half(keys[first[i / K] * K + i % K]);
    rows_are(&r, kv_head, (kvb_run){0, W}, want, first);
    rig_close(&r);
}

TEST(moved_rows)
{
    rig r;
    for (uint32_t kv_head = 0; kv_head < KV_HEADS; kv_head++)
        moved_rows_of(kv_head);
    rig_open(&r, &kivi_k, &f16, false); /* an empty account can be saved, too */
    assert_int_equal(kvb_window_save(r.window, 0), 0);
    kvb_window_load(r.window, 0);
    rig_close(&r);
}

/* Token 99 is written to cell 3 of the first block, whose other rows become f16 of the decoded ones. Writing it again
 * changes nothing. Then cell 40 moves to cell 64, and the first block is encoded again: only one block is f16. */
TEST(written_into_an_encoded_block)
{
    static double keys[HELD * K], opened[W * K];
    for (uint32_t kv_head = 0; kv_head < KV_HEADS; kv_head++) {
        uint32_t tokens[HELD];
        rig r;
        rig_open(&r, &kivi_k, &f16, false);
        write_all(&r, 64, NULL, 30);
        keys_store(&r, kv_head, 64, keys);
        memcpy(tokens, numbers, sizeof tokens);
        rows_are(&r, kv_head, (kvb_run){0, 64}, keys, tokens);
        tokens[3] = 99;
        tokens[64] = 40;
        for (uint32_t i = 0; i < W * K; i++)
            opened[i] =
                half(i / K == 3 ? (double)kvb_values_rows(&r.values, KVB_ROWS_K, 1, 99)[kv_head * K + i % K] : keys[i]);
        block_code(keys + W * K); /* the second block is encoded */
        for (uint32_t i = 0; i < K; i++)
            keys[64 * K + i] = half(keys[40 * K + i]);
        memcpy(keys, opened, sizeof opened);
        for (int again = 0; again < 2; again++) {
            write_one(&r, 3, 99);
            rows_are(&r, kv_head, (kvb_run){0, 64}, keys, tokens);
        }
        move(&r, 64, (const uint32_t[]){40}, 1);
        block_code(keys);
        rows_are(&r, kv_head, (kvb_run){0, 65}, keys, tokens);
        rig_close(&r);
    }
}

TEST(what_is_not_there)
{
    const struct {
        uint32_t held, seen;
        kvb_attend_of of;
        int error;
    } cases[] = {
        {HELD - 1, HELD, {&every, HELD, 1, 0}, -EILSEQ},     /* sees an empty cell */
        {HELD - 1, HELD, {&every, HELD - 1, 1, 0}, -EILSEQ}, /* sees one cell too few */
        {HELD - 1, HELD - 1, {&every, HELD - 1, 1, 0}, 0},
        {HELD, HELD, {&causal, HELD + 1, 3, 2}, -EILSEQ}, /* the last of 3 tokens sees an empty cell */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_expect actual;
        rig r;
        rig_open(&r, &kivi_k, &f16, false);
        write_all(&r, cases[i].held, NULL, HELD);
        assert_int_equal(kvb_window_solve(r.window, row_of(&r, cases[i].seen, 0), &cases[i].of, &actual),
                         cases[i].error);
        rig_close(&r);
    }
}
