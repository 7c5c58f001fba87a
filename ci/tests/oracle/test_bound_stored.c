/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the bound holds for honest f32 kernels over quantised and rotated rows, decoded first or factored out of the
 * sums, is not vacuous there, would not hold with |k| and |v| in place of magnitudes, and catches mistakes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/attention.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"

enum { DIM = 128, HEADS = 4, MAX_CELLS = 4096 };

#define A_ROW .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32, .zero_elem = KVB_F32
static const kvb_format formats[] = {
    {.name = "int8-asym", .elem = KVB_UINT8, A_ROW},
    {.name = "int8-asym+had", .elem = KVB_UINT8, .transform = KVB_TRANSFORM_HADAMARD, A_ROW},
    {.name = "int8+had", .elem = KVB_INT8, .transform = KVB_TRANSFORM_SIGNED_HADAMARD, A_ROW},
};
enum { FORMATS = 3 };

/* What rows look like. FAR: far from 0, of a small range. OUTLIERS: two channels of +-100 that q hardly asks for, the
 * others small: an element is then a small difference of large terms. SPIKE: one channel is everything. */
typedef enum shape { PLAIN, FAR, OUTLIERS, SPIKE, SHAPES } shape;
static const char *const shape_names[] = {"plain", "far", "outliers", "spike"};

/* Rows of one side: codes, scale and zero of each, and what they stand for. */
typedef struct side {
    float codes[MAX_CELLS][DIM], scale[MAX_CELLS], zero[MAX_CELLS];
    float decoded[MAX_CELLS][DIM]; /* as a kernel reads them: f32, the transform undone */
    double exact[MAX_CELLS][DIM], size[MAX_CELLS][DIM], sum[MAX_CELLS]; /* of size */
} side;

typedef struct problem {
    const kvb_format *format;
    uint32_t n;
    float scale;
    float q[HEADS][DIM];
    side k, v;
    kvb_bound_term terms[HEADS][DIM];
    kvb_expect expect[HEADS];
} problem;

typedef struct mistakes {
    const char *name;
    int64_t drop;      /* cell left out; -1: none */
    float scale;       /* factor on the scale */
    bool other_zero;   /* zero points of the row before */
    bool short_scales; /* scales cut to 16 bits */
    bool not_turned;   /* V is left transformed */
} mistakes;

static const mistakes honest = {.drop = -1, .scale = 1};

/* The inverse transform in f32: signs last. */
static void row_turn_back(kvb_transform transform, float *row)
{
    kvb_codec_rotate(transform ? KVB_TRANSFORM_HADAMARD : transform, DIM, row);
    for (uint32_t d = 0; transform == KVB_TRANSFORM_SIGNED_HADAMARD && d < DIM; d++)
        if (kvb_sign_flip(d))
            row[d] = -row[d];
}

static float element(shape s, int d, uint64_t *seed)
{
    float x = (float)hand_gauss(seed);
    switch (s) {
    case FAR:
        return 50 + x;
    case OUTLIERS:
        return d < 2 ? (d ? 100 + x : x - 100) : x;
    case SPIKE:
        return d == 5 ? 30 * x : 0.01f * x;
    default:
        return x;
    }
}

/* One row into a side: by the codec (what it stores is tested elsewhere), with its parts taken apart. */
static void row_make(const kvb_storage *store, shape s, uint64_t *seed, side *to, uint32_t i)
{
    unsigned char codes[DIM], *part[KVB_PARTS];
    const float *row = to->decoded[i];
    double scratch[DIM];
    for (int d = 0; d < DIM; d++)
        to->decoded[i][d] = element(s, d, seed);
    assert_true(kvb_storage_scratch(store) <= sizeof scratch);
    kvb_storage_rows(store, &row, 1, scratch, to->exact[i], to->size[i]);
    for (int d = 0; d < DIM; d++)
        to->sum[i] += to->size[i][d];
    part[KVB_CODES] = codes;
    part[KVB_SCALES] = (unsigned char *)&to->scale[i];
    part[KVB_ZEROS] = (unsigned char *)&to->zero[i];
    kvb_codec_rotate(store->format->transform, DIM, to->decoded[i]);
    store->codec->encode(store->codec, row, 1, DIM, 1, part);
    for (int d = 0; d < DIM; d++) {
        to->codes[i][d] = store->format->elem == KVB_INT8 ? (float)(int8_t)codes[d] : (float)codes[d];
        to->decoded[i][d] = to->codes[i][d] * to->scale[i] + to->zero[i];
    }
    row_turn_back(store->format->transform, to->decoded[i]);
}

static problem *problem_new(const kvb_format *format, shape s, uint32_t n, uint64_t seed)
{
    problem *p = calloc(1, sizeof *p);
    kvb_storage store;
    char why[128];
    assert_non_null(p);
    assert_int_equal(kvb_storage_init(&store, format, DIM, NULL, 1, 0, why, sizeof why), 0);
    p->format = format;
    p->n = n;
    p->scale = 0.088388346f;
    for (int h = 0; h < HEADS; h++)
        for (int d = 0; d < DIM; d++)
            p->q[h][d] = (s == OUTLIERS && d < 2) || (s == SPIKE && d == 5) ? 0 : (float)hand_gauss(&seed);
    for (uint32_t i = 0; i < n; i++) {
        store.is_v = false;
        row_make(&store, s, &seed, &p->k, i);
        store.is_v = true;
        row_make(&store, s, &seed, &p->v, i);
    }
    return p;
}

/* With magnitudes, or with |k| and |v| in their place. */
static void problem_solve(problem *p, bool sized)
{
    double *scratch = malloc(kvb_attention_scratch(p->n, DIM) * sizeof *scratch);
    kvb_token_run all = {0, p->n};
    for (uint32_t h = 0; h < HEADS; h++) {
        double q[DIM];
        hand_doubles(p->q[h], DIM, q);
        kvb_attention a = {.q = q,
                           .k = p->k.exact[0],
                           .k_size = sized ? p->k.size[0] : NULL,
                           .k_sum = p->k.sum,
                           .v = p->v.exact[0],
                           .v_size = sized ? p->v.size[0] : NULL,
                           .k_turned = sized && p->format->transform,
                           .v_mix = sized && p->format->transform ? sqrt(DIM) : 1,
                           .k_dim = DIM,
                           .v_dim = DIM,
                           .v_row = DIM,
                           .scale = (double)p->scale,
                           .runs = &all,
                           .n_runs = 1,
                           .visible = p->n};
        p->expect[h] = (kvb_expect){.head = h, .visible = p->n, .terms = p->terms[h]};
        kvb_attention_solve(&a, scratch, &p->expect[h].row, &p->expect[h].lse, p->terms[h]);
    }
    free(scratch);
}

/* ---- two honest kernels -------------------------------------------------------------------------------------- */

static kvb_arithmetic declared(const problem *p)
{
    uint32_t roundings = kvb_format_roundings(p->format, DIM);
    return (kvb_arithmetic){.accumulator = KVB_F32,
                            .dot_chain = DIM + roundings,
                            .cell_chain = p->n + 1 + roundings,
                            .exp_error = 0x1p-23,
                            .exp_floor = 0x1p-126};
}

static float dot_decoded(const problem *p, const float *q, uint32_t i)
{
    float dot = 0;
    for (int d = 0; d < DIM; d++)
        dot += q[d] * p->k.decoded[i][d];
    return dot;
}

static float scale_of(const side *s, uint32_t i, const mistakes *m)
{
    return m->short_scales ? (float)kvb_codec_bf16_value(kvb_codec_bf16(s->scale[i])) : s->scale[i];
}

/* scale * sum q code + zero * sum q, q transformed. */
static float dot_factored(const problem *p, const float *turned, float sum_q, uint32_t i, const mistakes *m)
{
    float dot = 0;
    for (int d = 0; d < DIM; d++)
        dot += turned[d] * p->k.codes[i][d];
    return scale_of(&p->k, i, m) * dot + p->k.zero[m->other_zero && i ? i - 1 : i] * sum_q;
}

static void attend(const problem *p, uint32_t h, bool factored, const mistakes *m, float *out, float *lse)
{
    float s[MAX_CELLS], turned[DIM], codes[DIM] = {0}, max = -INFINITY, sum = 0, sum_q = 0, zeros = 0;
    memcpy(turned, p->q[h], sizeof turned);
    kvb_codec_rotate(p->format->transform, DIM, turned);
    for (int d = 0; d < DIM; d++)
        sum_q += turned[d];
    for (uint32_t i = 0; i < p->n; i++) {
        float dot = factored ? dot_factored(p, turned, sum_q, i, m) : dot_decoded(p, p->q[h], i);
        s[i] = dot * (p->scale * m->scale);
        if (i != m->drop)
            max = fmaxf(max, s[i]);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        float w = i == m->drop ? 0 : expf(s[i] - max), w_scale = w * scale_of(&p->v, i, m);
        sum += w;
        zeros += factored ? w * p->v.zero[i] : 0;
        for (int d = 0; d < DIM; d++)
            codes[d] += factored ? w_scale * p->v.codes[i][d] : w * p->v.decoded[i][d];
    }
    for (int d = 0; d < DIM; d++)
        out[d] = (codes[d] + zeros) / sum;
    if (factored && !m->not_turned)
        row_turn_back(p->format->transform, out);
    *lse = max + logf(sum);
}

static kvb_diff judge(const problem *p, bool factored, const mistakes *m, double *per_row)
{
    kvb_arithmetic arithmetic = declared(p);
    kvb_diff diff = {0};
    for (uint32_t h = 0; h < HEADS; h++) {
        float out[DIM], lse;
        kvb_diff one = {0};
        attend(p, h, factored, m, out, &lse);
        kvb_diff_row(&diff, &p->expect[h], DIM, &arithmetic, (double)p->scale, 0, KVB_F32, out, &lse);
        kvb_diff_row(&one, &p->expect[h], DIM, &arithmetic, (double)p->scale, 0, KVB_F32, out, &lse);
        if (per_row)
            per_row[h] = one.rho;
    }
    return diff;
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

static int double_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void holds_and_is_not_vacuous(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 16, 100, 1024};
    for (size_t f = 0; f < FORMATS; f++)
        for (shape s = 0; s < SHAPES; s++)
            for (int factored = 0; factored < 2; factored++) {
                double rho[4 * HEADS], worst = 0, bare = 0;
                size_t n = 0;
                for (size_t i = 0; i < 4; i++, n += HEADS) {
                    problem *p = problem_new(&formats[f], s, sizes[i], 31 * i + s);
                    problem_solve(p, true);
                    kvb_diff diff = judge(p, factored, &honest, &rho[n]);
                    if (!(diff.rho <= 1))
                        fail_msg("%s, %s, %u cells: rho %g, got %.9g want %.17g bound %g", formats[f].name,
                                 shape_names[s], sizes[i], diff.rho, diff.worst.got, diff.worst.want, diff.worst.bound);
                    assert_true(diff.rho_worst <= diff.rho);
                    worst = fmax(worst, diff.rho);
                    problem_solve(p, false);
                    bare = fmax(bare, judge(p, factored, &honest, NULL).rho);
                    free(p);
                }
                qsort(rho, n, sizeof *rho, double_order);
                print_message("# %s %s %s: rho median %.3g, max %.3g; with |k|, |v| %.3g\n", formats[f].name,
                              shape_names[s], factored ? "factored" : "decoded", rho[n / 2], worst, bare);
                assert_true(rho[n / 2] >= 1e-3);
                assert_true(worst >= 1e-2);
                assert_true(bare > 1 || s == FAR); /* there an element is what its terms are */
            }
}

static void mistakes_are_caught(void **state)
{
    (void)state;
    static const mistakes planted[] = {
        {.name = "one key of 4096 dropped", .drop = 1234, .scale = 1},
        {.name = "scale * 1.001", .drop = -1, .scale = 1.001f},
        {.name = "zero point of another row", .drop = -1, .scale = 1, .other_zero = true},
        {.name = "scales cut to bf16", .drop = -1, .scale = 1, .short_scales = true},
        {.name = "out left transformed", .drop = -1, .scale = 1, .not_turned = true},
    };
    for (size_t f = 0; f < FORMATS; f++) {
        problem *p = problem_new(&formats[f], PLAIN, MAX_CELLS, 5);
        problem_solve(p, true);
        assert_true(judge(p, true, &honest, NULL).rho <= 1);
        for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
            if ((planted[i].other_zero && !kvb_format_has_zeros(p->format)) ||
                (planted[i].not_turned && !p->format->transform))
                continue;
            kvb_diff diff = judge(p, true, &planted[i], NULL);
            print_message("# %s, %s: rho %.3g\n", p->format->name, planted[i].name, diff.rho);
            if (!(diff.rho > 1))
                fail_msg("%s: %s passes with rho %g", p->format->name, planted[i].name, diff.rho);
        }
        free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_and_is_not_vacuous),
        cmocka_unit_test(mistakes_are_caught),
    };
    return cmocka_run_group_tests_name("oracle/bound_stored", tests, NULL, NULL);
}
