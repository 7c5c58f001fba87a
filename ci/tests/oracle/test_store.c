/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the oracle's stored rows, and its account of residual cells. */
#include <errno.h>

#include "ci/tests/tests.h"
#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"
#include "oracle/window.h"
#include "workloads/special_rows.h"

/* Shows: rows through formats with transforms and windows, and what a format costs. */

/*
 * Shows: the transform against its definition (a sum over all channels), rows through formats with transforms and
 * windows, which formats refuse which rows, and formats that bring their own reference.
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

static void store_rows(const kvb_format *format, uint32_t dim, uint32_t n, double *to, double *to_size)
{
    kvb_storage store;
    assert_int_equal(kvb_storage_init(&store, format, dim, NULL, 1, 0, reason, sizeof reason), 0);
    void *scratch = malloc(kvb_storage_scratch(&store)); /* its exact size: a sanitiser sees what lies beyond */
    assert_non_null(scratch);
    kvb_storage_rows(&store, store_row_at, n, scratch, to, to_size);
    free(scratch);
}

static bool odd_bits(uint32_t x)
{
    bool odd = false;
    for (; x; x /= 2)
        odd ^= x & 1;
    return odd;
}

/* H[i][j] = (-1)^(bits that i and j share) / sqrt(block). */
static void transform_is_walshs(void **state)
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

/* Additions of f32 in the order that is prescribed: 2^24 + 1 is 2^24. */
static void transform_rounds_in_order(void **state)
{
    float row[4] = {0x1p24f, 1, 1, 1}, none[4] = {1, 2, 3, 4};
    kvb_codec_rotate(KVB_TRANSFORM_HADAMARD, 4, row);
    assert_true(row[0] == 0x1.000002p23f && row[1] == 0x1.fffffep22f && row[2] == 0x1.fffffcp22f && row[3] == row[1]);
    kvb_codec_rotate(KVB_TRANSFORM_NONE, 4, none);
    assert_true(none[1] == 2);
}

/* V, a block of 4: one channel of 3 among zeros meets its pair as +-3 / sqrt(2), and all four as +-3/2; the mean of the
 * squares is (9/2 + 9/4) / 2. Equal channels have one size in both stages. */
static void sizes_of_v(const kvb_format *turned)
{
    const float giant[4] = {0, 3, 0, 0}, equal[4] = {2, -2, 2, 2};
    const float *row = giant;
    double scratch[64];
    kvb_storage store;
    assert_int_equal(kvb_storage_init(&store, turned, 4, NULL, 1, 0, reason, sizeof reason), 0);
    store.is_v = true;
    kvb_storage_rows(&store, &row, 1, scratch, stored, store_size);
    for (int c = 0; c < 4; c++)
        assert_true(fabs(store_size[c] - sqrt((9.0 / 2 + 9.0 / 4) / 2)) < 1e-6);
    row = equal;
    kvb_storage_rows(&store, &row, 1, scratch, stored, store_size);
    for (int c = 0; c < 4; c++)
        assert_true(fabs(store_size[c] - 2) < 1e-6);
}

/* Read with codes less the middle one: -10 and 245 are 117.5 and 127.5 on either side of it. */
static void sizes_centred(const kvb_format *asym)
{
    const float range[2] = {-10, 245};
    const float *row = range;
    double scratch[64];
    kvb_storage store;
    assert_int_equal(kvb_storage_init(&store, asym, 2, NULL, 1, 0, reason, sizeof reason), 0);
    store.centred = true;
    kvb_storage_rows(&store, &row, 1, scratch, stored, store_size);
    assert_true(store_size[0] == 127.5 + 117.5 && store_size[1] == 265);
}

/* size is the root mean square of the magnitudes within a block of the transform. */
static void sizes(void **state)
{
    const kvb_format plain = {.name = "f32", .elem = KVB_F32};
    const kvb_format turned = {.name = "f32+had", .elem = KVB_F32, .transform = KVB_TRANSFORM_HADAMARD};
    const kvb_format asym = {.name = "int8-asym", .elem = KVB_UINT8, .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW};
    rows_make(3, 12, ROW_NORMAL);
    store_rows(&plain, 12, 3, stored, store_size);
    for (uint32_t i = 0; i < 36; i++)
        assert_true(stored[i] == (double)made[i / 12][i % 12] && store_size[i] == fabs(stored[i]));
    store_rows(&turned, 12, 3, stored, store_size);
    for (uint32_t i = 0; i < 36; i++) {
        const float *block = made[i / 12] + i % 12 / 4 * 4; /* a transform keeps the norm */
        double sum = 0;
        for (int c = 0; c < 4; c++)
            sum += (double)block[c] * (double)block[c];
        assert_true(fabs(stored[i] - (double)made[i / 12][i % 12]) < 1e-6 &&
                    fabs(store_size[i] - sqrt(sum / 4)) < 1e-6);
    }
    made[0][0] = -10, made[0][1] = 245;
    store_rows(&asym, 2, 1, stored, store_size);
    assert_true(stored[1] == 245 && store_size[1] == 265 && store_size[0] == 10);
    sizes_of_v(&turned);
    sizes_centred(&asym);
}

static const kvb_format late_k = {.name = "kivi4-k",
                                  .elem = KVB_UINT4,
                                  .axis = KVB_AXIS_TOKENS,
                                  .group = 32,
                                  .scale_elem = KVB_F16,
                                  .zero_elem = KVB_F16,
                                  .residual_cells = 32,
                                  .residual_blocks = 4};
static const kvb_format late_v = {.name = "kivi2-v",
                                  .elem = KVB_UINT2,
                                  .axis = KVB_AXIS_CHANNELS,
                                  .group = 32,
                                  .scale_elem = KVB_F16,
                                  .zero_elem = KVB_F16,
                                  .residual_cells = 32,
                                  .residual_blocks = 4};

/* Blocks before the last four are encoded, and a row counts with its block. */
static void windows_close_by_blocks(void **state)
{
    static const struct {
        uint32_t n, encoded;
    } cases[] = {{1, 0}, {128, 0}, {129, 32}, {160, 32}, {161, 64}};
    const kvb_format *const formats[] = {&late_k, &late_v};
    rows_make(MAX_ROWS, 64, ROW_NORMAL);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        uint32_t n = cases[i / 2].n, exact = 0;
        store_rows(formats[i % 2], 64, n, stored, store_size);
        for (uint32_t r = 0; r < n; r++) {
            bool half = true;
            for (uint32_t c = 0; c < 64; c++)
                half &= stored[r * 64 + c] == kvb_codec_f16_value(kvb_codec_f16(made[r][c]));
            assert_true(half == (r >= cases[i / 2].encoded));
            exact += half;
        }
        assert_int_equal(exact, n - cases[i / 2].encoded);
    }
}

/* kivi-k: channels share over the block's 32 tokens; its rows are f16 before that. */
static void closed_blocks_are_the_codecs(void **state)
{
    rows_make(MAX_ROWS, 64, ROW_NORMAL);
    store_rows(&late_k, 64, 192, stored, store_size);
    for (uint32_t b = 0; b < 2; b++)
        for (uint32_t c = 0; c < 64; c++) {
            float lo = INFINITY, hi = -INFINITY;
            for (uint32_t r = b * 32; r < b * 32 + 32; r++) {
                float v = (float)kvb_codec_f16_value(kvb_codec_f16(made[r][c]));
                lo = v < lo ? v : lo, hi = v > hi ? v : hi;
            }
            double step = kvb_codec_f16_value(kvb_codec_f16((hi - lo) / 15));
            for (uint32_t r = b * 32; r < b * 32 + 32; r++) {
                double steps = (stored[r * 64 + c] - (double)lo) / step;
                assert_true(steps == rint(steps) && steps >= 0 && steps <= 15);
                assert_true(fabs(stored[r * 64 + c] - (double)made[r][c]) <= step * 0.52);
            }
        }
}

static void refuses(const kvb_format *format, uint32_t dim)
{
    kvb_storage store;
    reason[0] = 0;
    assert_int_equal(kvb_storage_init(&store, format, dim, NULL, 1, 0, reason, sizeof reason), -ENOTSUP);
    assert_true(reason[0]);
}

static void what_does_not_fit(void **state)
{
    const kvb_format unknown = {.name = "f17"}, other = {.name = "q8_0", .elem = KVB_Q4_0};
    const kvb_format q8 = {.name = "q8_0", .elem = KVB_Q8_0}, a4 = {.name = "a4g64", .elem = KVB_UINT4};
    const kvb_format had = {.name = "f16+had", .elem = KVB_F16, .transform = KVB_TRANSFORM_HADAMARD};
    const kvb_format tq = {.name = "tq3", .elem = KVB_CODEBOOK, .transform = KVB_TRANSFORM_SIGNED_HADAMARD};
    refuses(&unknown, 64), refuses(&other, 64);
    refuses(&q8, 48), refuses(&a4, 96), refuses(&had, 63), refuses(&tq, 80), refuses(&late_v, 48), refuses(&q8, 0);
    rows_make(1, 96, ROW_NORMAL);
    store_rows(&q8, 96, 1, stored, store_size);
    store_rows(&a4, 64, 1, stored, store_size);
    store_rows(&had, 62, 1, stored, store_size);
    store_rows(&tq, 96, 1, stored, store_size);
}

static void halved(const kvb_format *format, uint32_t dim, const float *row, double *to, double *to_size)
{
    (void)format;
    for (uint32_t c = 0; c < dim; c++) {
        to[c] = (double)row[c] / 2;
        to_size[c] = 3;
    }
}

/* A plug-in's format brings what is stored along, and nothing is done to its rows. */
static void formats_of_others(void **state)
{
    enum { DIM = 7 };
    kvb_format own = {.name = "own", .elem = KVB_OPAQUE, .reference = halved};
    kvb_storage store;
    rows_make(3, DIM, ROW_NORMAL);
    store_rows(&own, DIM, 3, stored, store_size);
    for (uint32_t i = 0; i < 3 * DIM; i++)
        assert_true(stored[i] == (double)made[i / DIM][i % DIM] / 2 && store_size[i] == 3);
    own.residual_cells = 32;
    assert_int_equal(kvb_storage_init(&store, &own, DIM, NULL, 1, 0, reason, sizeof reason), -ENOTSUP);
    assert_non_null(strstr(reason, "'own' is opaque"));
    own = (kvb_format){.name = "own", .elem = KVB_OPAQUE};
    assert_int_equal(kvb_storage_init(&store, &own, DIM, NULL, 1, 0, reason, sizeof reason), -ENOTSUP);
    assert_non_null(strstr(reason, "'own' brings no reference"));
}

/* Shows: the cost of a format is 0 for f32, closed-form in a known case, and smaller for f16 than for bf16. */

static kvb_format_error cost(const hand *h, const kvb_values *values, const kvb_format *k, const kvb_format *v)
{
    kvb_oracle_options options = {.k_format = k, .v_format = v, .max_pairs = UINT64_MAX, .seed = 1};
    kvb_oracle *oracle;
    char why[128];
    assert_int_equal(kvb_oracle_open(&h->trace, values, &options, &oracle, why, sizeof why), 0);
    kvb_format_error format = oracle->format;
    kvb_oracle_free(oracle);
    return format;
}

static void ordered_by_precision(void **state)
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
    assert_true(half.kl_mean > 0 && half.kl_mean * 16 < brain.kl_mean); /* goes with the square */
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
static void closed_case(void **state)
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
static void overflow_costs_infinity(void **state)
{
    hand h = {0};
    kvb_values values;
    two_tokens(&h, 70000, &values);
    kvb_format_error half = cost(&h, &values, &f16, &f16);
    assert_true(isinf(half.max_abs) && isinf(half.kl_max));
    assert_true(cost(&h, &values, &bf16, &bf16).max_abs == 0);
    hand_free(&h);
}

/* Shows: formats with residual cells store what each query sees, and the account of what pools hold agrees. */

/*
 * Shows: rows of formats with residual cells are stored as the sequence that each query sees, by itself; and the
 * account of what pools hold (oracle/window.h) gives the same for tokens that are written in that order, whatever mask
 * says where they lie, also where V is the beginning of K's. Blocks that are written again, and rows that are moved, go
 * by way of f16.
 */

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, K = 10, V = 32, TOKENS = 104, SEEN = 100, W = 32 };

static const kvb_group group = {.heads = HEADS, .kv_heads = KV_HEADS, .k_dim = K, .v_dim = V, .scale = 0.3};

static const kvb_format kivi_v = {.name = "kivi4-v", .elem = KVB_UINT4, .axis = KVB_AXIS_CHANNELS, HALVES},
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
static void check(const kvb_values *values, const kvb_expect *e, uint64_t token, uint32_t n, const double *k,
                  const double *v)
{
    const float *q = kvb_values_rows(values, KVB_ROWS_Q, e->layer, token) + e->head * K;
    double z = 0, out[V] = {0};
    for (uint32_t i = 0; i < n; i++) {
        double s = 0;
        for (int d = 0; d < K; d++)
            s += (double)q[d] * k[i * K + d];
        double w = exp(s * (double)0.3f);
        z += w;
        for (uint32_t c = 0; c < V; c++)
            out[c] += w * v[i * V + c];
    }
    assert_int_equal(e->visible, n);
    assert_true(fabs(e->lse - log(z)) < 1e-12);
    for (uint32_t c = 0; c < V; c++)
        assert_true(fabs(e->terms[c].o - out[c] / z) < 1e-12);
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
    static const kvb_format *const pairs[][2] = {{&kivi_k, &f16}, {&f32, &kivi_v}, {&kivi_had, &kivi_v}};
    static double k[TOKENS * K], v[TOKENS * V];
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    for (size_t p = 0; p < 3; p++) {
        kvb_oracle *oracle = oracle_open(&h, &values, pairs[p][0], pairs[p][1]);
        assert_true(kvb_oracle_needs_writes(oracle));
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
    kvb_format all_residual = kivi_k;
    all_residual.residual_blocks = 4;
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    kvb_oracle *residual = oracle_open(&h, &values, &all_residual, &f32), *half = oracle_open(&h, &values, &f16, &f32);
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

/* One token, so that its weight is 1: the sums are the magnitudes of its rows, whatever the format. */
static void magnitudes_reach_the_bound(void **state)
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
        store.is_v = true;
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

/* ---- the account of writes ---------------------------------------------------------------------------------- */

/* Tokens' K and V rows into cells from first on. */
static void cells_write(kvb_window *window, const kvb_group *g, uint32_t layer, uint32_t first, const uint32_t *tokens,
                        uint32_t n)
{
    uint32_t cells[TOKENS];
    uint64_t written[TOKENS];
    for (uint32_t i = 0; i < n; i++) {
        cells[i] = first + i;
        written[i] = tokens[i];
    }
    for (int is_v = 0; is_v < (g->latent ? 1 : 2); is_v++)
        assert_int_equal(kvb_window_write(window, layer, is_v, cells, n, written), 0);
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

/* Cell c holds token TOKENS-1-c: what the oracle expects, in another order. */
static void any_mask(void **state)
{
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    kvb_oracle *oracle = oracle_open(&h, &values, &f16, &f32);
    uint32_t seen[TOKENS], n = seen_by_last(4, seen), backwards[TOKENS];
    /* what the second of 2 queries sees; the same cells as runs, for a step of one token */
    uint64_t bits[2][2] = {{0}};
    static const kvb_run runs[] = {{0, 4}, {34, 80}, {84, 104}};
    static const uint32_t row_start[] = {0, 3};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cell = TOKENS - 1 - seen[i];
        bits[1][cell / 64] |= (uint64_t)1 << cell % 64;
    }
    for (uint32_t c = 0; c < TOKENS; c++)
        backwards[c] = TOKENS - 1 - c;
    const kvb_mask explicit_mask = {.kind = KVB_MASK_EXPLICIT, .bits = bits[0], .row_words = 2},
                   runs_mask = {.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = runs};
    const kvb_attend_of ways[] = {{&runs_mask, TOKENS, 1, 0}, {&explicit_mask, TOKENS, 2, 1}};
    kvb_window *window;
    kvb_expect actual;
    assert_int_equal(kvb_window_open(oracle, &window), 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        cells_write(window, &group, layer, 0, backwards, TOKENS);
    for (uint32_t place = 0; place < LAYERS * HEADS; place++)
        for (int way = 0; way < 2; way++) {
            const kvb_expect *e = last_row(oracle, 4, place / HEADS, place % HEADS);
            assert_int_equal(kvb_window_solve(window, e, &ways[way], &actual), 0);
            same_row(&actual, e, V);
        }
    kvb_window_free(window);
    kvb_oracle_free(oracle);
    hand_free(&h);
}

/* What a query sees, written in that order: token by token, or all at once. */
static void written_in_order(bool latent)
{
    enum { LATENT_V = 7 };
    static const kvb_format *const pairs[][2] = {{&kivi_k, &f16}, {&f32, &kivi_v}, {&kivi_had, &kivi_v}};
    hand h;
    kvb_values values;
    kvb_group of = group;
    of.latent = latent;
    of.v_dim = latent ? LATENT_V : V;
    trace_of(&h, of, &values);
    for (uint32_t p = 0; p < (latent ? 1 : 3); p++)
        for (uint32_t event = 3; event <= 4; event++) {
            kvb_oracle *oracle = oracle_open(&h, &values, pairs[p][0], pairs[p][1]);
            uint32_t seen[TOKENS], n = seen_by_last(event, seen), step = event == 3 ? 1 : n;
            const kvb_mask causal = {.kind = KVB_MASK_CAUSAL};
            kvb_window *window;
            kvb_expect actual;
            assert_int_equal(kvb_window_open(oracle, &window), 0);
            for (uint32_t i = 0; i < n; i += step)
                cells_write(window, &of, 1, i, seen + i, step);
            for (uint32_t head = 0; head < HEADS; head++) {
                const kvb_expect *e = last_row(oracle, event, 1, head);
                /* the last but one of 3 tokens: all cells but the last, which holds nothing */
                assert_int_equal(kvb_window_solve(window, e, &(kvb_attend_of){&causal, n + 1, 3, 1}, &actual), 0);
                same_row(&actual, e, of.v_dim);
                assert_int_equal(kvb_window_solve(window, e, &(kvb_attend_of){&causal, n + 1, 3, 2}, &actual), -EILSEQ);
            }
            kvb_window_free(window);
            kvb_oracle_free(oracle);
        }
    hand_free(&h);
}

static void writes_in_order_give_the_sequence(void **state)
{
    written_in_order(false);
    written_in_order(true);
}

/* W rows [W][K] as they are decoded once they are encoded together, then rounded to f16. */
static void block_code(const float *rows, double *decoded, float *halves)
{
    static double sizes[W * K], scratch[W * K * 4];
    const float *row_at[W];
    kvb_format no_residual = kivi_k;
    kvb_storage store;
    char why[128];
    no_residual.residual_blocks = 0;
    assert_int_equal(kvb_storage_init(&store, &no_residual, K, NULL, KV_HEADS, 0, why, sizeof why), 0);
    assert_true(kvb_storage_scratch(&store) <= sizeof scratch);
    for (uint32_t i = 0; i < W; i++)
        row_at[i] = rows + i * K;
    kvb_storage_rows(&store, row_at, W, scratch, decoded, sizes);
    for (uint32_t i = 0; i < W * K; i++)
        halves[i] = (float)kvb_codec_f16_value(kvb_codec_f16((float)decoded[i]));
}

/* Blocks 0 and 1 are written; then cell 5 again, by token 70; then cell 40 is moved to cell 64. One block is f16 at a
 * time. */
static void blocks_written_again(void **state)
{
    enum { CELLS = 2 * W + 1 };
    static double k[CELLS * K], v[CELLS * V], decoded[W * K];
    static float first[W * K], second[W * K], halves[W * K];
    hand h;
    kvb_values values;
    trace_make(&h, &values);
    kvb_oracle *oracle = oracle_open(&h, &values, &kivi_k, &f32);
    const kvb_mask all = {.kind = KVB_MASK_NONE};
    const uint32_t again = 70, moved = 40;
    uint32_t tokens[CELLS];
    kvb_window *window;
    assert_int_equal(kvb_window_open(oracle, &window), 0);
    for (uint32_t i = 0; i < CELLS; i++)
        tokens[i] = i;
    cells_write(window, &group, 1, 0, tokens, 2 * W);
    cells_write(window, &group, 1, 5, &again, 1);
    for (int step = 0; step < 2; step++) {
        const uint32_t n = step ? CELLS : 2 * W;
        if (step)
            for (int is_v = 0; is_v < 2; is_v++)
                assert_int_equal(kvb_window_move(window, 1, is_v, 2 * W, &moved, 1), 0);
        tokens[5] = again;
        tokens[2 * W] = moved;
        for (uint32_t head = 0; head < HEADS; head++) {
            const uint32_t g = head / 2;
            for (uint32_t i = 0; i < W; i++) {
                memcpy(first + i * K, kvb_values_rows(&values, KVB_ROWS_K, 1, i) + g * K, K * sizeof *first);
                memcpy(second + i * K, kvb_values_rows(&values, KVB_ROWS_K, 1, W + i) + g * K, K * sizeof *second);
            }
            for (uint32_t i = 0; i < n; i++)
                hand_doubles(kvb_values_rows(&values, KVB_ROWS_V, 1, tokens[i]) + g * V, V, v + i * V);
            block_code(first, decoded, first);
            for (uint32_t d = 0; d < K; d++)
                first[5 * K + d] = (float)kvb_codec_f16_value(
                    kvb_codec_f16(kvb_values_rows(&values, KVB_ROWS_K, 1, again)[g * K + d]));
            hand_doubles(first, W * K, k);
            block_code(second, k + W * K, second);
            hand_doubles(second + (moved - W) * K, K, k + 2 * W * K);
            if (step) /* the first block gave way */
                block_code(first, k, halves);
            kvb_expect e = *last_row(oracle, 3, 1, head), actual;
            e.visible = n;
            assert_int_equal(kvb_window_solve(window, &e, &(kvb_attend_of){&all, n, 1, 0}, &actual), 0);
            check(&values, &actual, 99, n, k, v);
        }
    }
    kvb_window_free(window);
    kvb_oracle_free(oracle);
    hand_free(&h);
}

/*
 * Shows the account of pools with residual cells: rows that are written one after the other are those of a sequence
 * stored by itself, wherever its blocks lie; a moved row, and the rows beside one that is written into an encoded
 * block, are f16 from then on; the second opinion is of the same rows; and a query that sees an empty cell is told.
 */

enum { HELD = 100, LATENT_V = 7, CELLS = 300 };

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
    const kvb_group held = {.heads = HEADS,
                            .kv_heads = KV_HEADS,
                            .k_dim = K,
                            .v_dim = latent ? LATENT_V : V,
                            .scale = 0.3,
                            .latent = latent};
    char why[128];
    *r = (rig){.n_cells = HELD};
    hand_extend(&r->h, KVB_EVENT_PREFILL, 0, 0, HELD);
    hand_values(&r->h, hand_model(1, held), 4, &r->values);
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
        uint32_t cells[HELD];
        uint64_t tokens[HELD];
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

static void same_held_row(const rig *r, const kvb_expect *got, const kvb_expect *want)
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
    static const kvb_run later = {64, 64 + HELD};
    static const uint32_t shifted[] = {2, 3, 4, 5};
    static const kvb_run whole = {0, HELD};
    const kvb_mask masks[] = {
        every,
        {.kind = KVB_MASK_PAGES, .row_start = start, .pages = table, .seen = &whole, .page_cells = W},
        {.kind = KVB_MASK_RUNS, .row_start = start, .runs = &later},
    };
    for (int way = 0; way < 3; way++) {
        rig r;
        rig_open(&r, k, v, latent);
        write_all(&r, HELD, way == 0 ? NULL : way == 1 ? table : shifted);
        r.n_cells = (uint32_t[]){HELD, 9 * W, 64 + HELD}[way];
        for (uint32_t head = 0; head < HEADS; head++) {
            const kvb_expect *e = row_of(&r, HELD, head);
            kvb_expect actual;
            assert_int_equal(solve(&r, e, &masks[way], &actual), 0);
            same_held_row(&r, &actual, e);
            if (way == 0)
                opinion_is_of_the_same_rows(&r, e);
        }
        rig_close(&r);
    }
}

static void written_one_after_the_other(void **state)
{
    stored_as_a_sequence_by_itself(&kivi_k, &f16, false);
    stored_as_a_sequence_by_itself(&f32, &kivi_v, false);
    stored_as_a_sequence_by_itself(&kivi_had, &kivi_v, false);
    stored_as_a_sequence_by_itself(&kivi_k, &f16, true);
}

/* ---- rows that are f16 again ------------------------------------------------------------------------------------- */

/* K rows of KV head 0 when tokens 0 .. n-1 are stored: [n][K]. */
static void keys_store(const rig *r, uint32_t n, double *rows)
{
    double sizes[HELD * K], scratch[1000];
    const float *from[HELD];
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
    enum { N = 70 };
    static double keys[HELD * K], want[HELD * K];
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
    static double keys[HELD * K];
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
    kvb_expect actual;
    rig r;
    rig_open(&r, &kivi_k, &f16, false);
    write_all(&r, HELD - 1, NULL);
    assert_int_equal(solve(&r, row_of(&r, HELD, 0), &every, &actual), -EILSEQ); /* the last one */
    r.n_cells = HELD - 1;
    assert_int_equal(solve(&r, row_of(&r, HELD, 0), &every, &actual), -EILSEQ); /* one too few */
    assert_int_equal(solve(&r, row_of(&r, HELD - 1, 0), &every, &actual), 0);
    rig_close(&r);
}

int main(void)
{
    return TESTS_RUN("rows that are stored", T(transform_is_walshs), T(transform_rounds_in_order), T(sizes),
                     T(windows_close_by_blocks), T(closed_blocks_are_the_codecs), T(what_does_not_fit),
                     T(formats_of_others), T(ordered_by_precision), T(closed_case), T(overflow_costs_infinity),
                     T(a_query_stores_what_it_sees), T(residual_cells_cost_what_f16_costs),
                     T(magnitudes_reach_the_bound), T(the_budget_counts_storing), T(any_mask),
                     T(writes_in_order_give_the_sequence), T(blocks_written_again), T(written_one_after_the_other),
                     T(moved_rows), T(written_into_an_encoded_block), T(what_is_not_there));
}
