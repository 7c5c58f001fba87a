/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the bound holds for an honest f32 kernel, also with a softcap, a sink logit, latent rows and outputs of 16
 * bits; is not vacuous, and catches small mistakes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/attention.h"
#include "oracle/codec.h"
#include "oracle/oracle.h"

enum { DIM = 128, HEADS = 4, MAX_CELLS = 4096 };

/* A few query heads over one KV head. */
typedef struct problem {
    uint32_t n;
    uint32_t v_dim;
    float scale, softcap, sink;
    bool has_sink;
    kvb_elem out_elem;
    float q[HEADS][DIM];
    float *k, *v; /* stored rows [n][DIM]: all three formats' values are f32 values. v is k where rows are latent */
    kvb_token_run run;
    kvb_bound_term terms[HEADS][DIM];
    kvb_expect expect[HEADS];
} problem;

/* A row as it is stored, in floats. */
static void row_store(const kvb_codec *codec, const float *row, float *stored)
{
    unsigned char bytes[4 * DIM], *const part[KVB_PARTS] = {bytes};
    double back[DIM], size[DIM];
    codec->encode(codec, row, 1, DIM, 1, part);
    codec->decode(codec, (const unsigned char *const *)part, DIM, 1, back, size);
    for (int d = 0; d < DIM; d++)
        stored[d] = (float)back[d];
}

/* Gaussian rows taken through a format; `offset` is added to every logit by a common part of all keys. */
static problem *problem_new(const char *format, uint32_t n, double offset, uint64_t seed)
{
    const kvb_codec *codec = kvb_codec_find(format);
    problem *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->n = n;
    p->v_dim = DIM;
    p->scale = 0.088388346f; /* 1/sqrt(128) */
    p->k = malloc(n * DIM * sizeof *p->k);
    p->v = malloc(n * DIM * sizeof *p->v);
    float common[DIM];
    double square = 0;
    for (int d = 0; d < DIM; d++) {
        common[d] = (float)hand_gauss(&seed);
        square += (double)common[d] * (double)common[d];
    }
    for (int h = 0; h < HEADS; h++)
        for (int d = 0; d < DIM; d++)
            p->q[h][d] = (offset != 0 ? common[d] : 0) + (offset != 0 ? 0.01f : 1.0f) * (float)hand_gauss(&seed);
    for (uint32_t i = 0; i < n; i++) {
        float row[DIM];
        for (int d = 0; d < DIM; d++)
            row[d] = (float)(hand_gauss(&seed) + offset / (square * (double)p->scale) * (double)common[d]);
        row_store(codec, row, p->k + i * DIM);
        for (int d = 0; d < DIM; d++)
            row[d] = (float)hand_gauss(&seed);
        row_store(codec, row, p->v + i * DIM);
    }
    return p;
}

static void problem_solve(problem *p)
{
    double *k = malloc(p->n * DIM * sizeof *k), *v = malloc(p->n * DIM * sizeof *v);
    double *scratch = malloc(kvb_attention_scratch(p->n, DIM) * sizeof *scratch);
    double *k_sum = calloc(p->n, sizeof *k_sum), q[DIM];
    for (size_t i = 0; i < (size_t)p->n * DIM; i++) {
        k_sum[i / DIM] += fabs((double)p->k[i]);
        k[i] = (double)p->k[i];
        v[i] = (double)p->v[i];
    }
    p->run = (kvb_token_run){0, p->n};
    for (uint32_t h = 0; h < HEADS; h++) {
        hand_doubles(p->q[h], DIM, q);
        kvb_attention a = {.q = q,
                           .k = k,
                           .k_sum = k_sum,
                           .v = v,
                           .v_mix = 1,
                           .k_dim = DIM,
                           .v_dim = p->v_dim,
                           .v_row = DIM,
                           .scale = (double)p->scale,
                           .softcap = (double)p->softcap,
                           .sink = p->has_sink ? &p->sink : NULL,
                           .runs = &p->run,
                           .n_runs = 1,
                           .visible = p->n};
        p->expect[h] = (kvb_expect){.head = h, .visible = p->n, .terms = p->terms[h]};
        kvb_attention_solve(&a, scratch, &p->expect[h].row, &p->expect[h].lse, p->terms[h]);
    }
    free(k);
    free(k_sum);
    free(v);
    free(scratch);
}

static void problem_free(problem *p)
{
    if (p->v != p->k)
        free(p->v);
    free(p->k);
    free(p);
}

/* ---- an honest kernel: plain f32 loops, and what it declares ------------------------------------------------ */

typedef struct mistakes {
    int64_t drop;  /* cell left out; -1: none */
    float scale;   /* factor on the scale */
    bool swap;     /* heads 0 and 1 change places */
    bool cut_p;    /* weights cut to bf16 without saying so */
    float exp_off; /* factor on each exp of an odd cell */
} mistakes;

static const mistakes honest = {.drop = -1, .scale = 1, .exp_off = 1};

static kvb_arithmetic declared(uint32_t n)
{
    return (kvb_arithmetic){
        .accumulator = KVB_F32, .dot_chain = DIM, .cell_chain = n + 1, .exp_error = 0x1p-23, .exp_floor = 0x1p-126};
}

static void attend_f32(const problem *p, uint32_t h, const mistakes *m, float *out, float *lse)
{
    float *s = malloc(p->n * sizeof *s);
    float max = p->has_sink ? p->sink : -INFINITY, sum = 0;
    const float *q = p->q[m->swap && h < 2 ? 1 - h : h];
    for (uint32_t i = 0; i < p->n; i++) {
        float dot = 0;
        for (int d = 0; d < DIM; d++)
            dot += q[d] * p->k[i * DIM + d];
        s[i] = dot * (p->scale * m->scale);
        if (p->softcap > 0)
            s[i] = p->softcap * tanhf(s[i] / p->softcap);
        if (i != m->drop)
            max = fmaxf(max, s[i]);
    }
    float o[DIM] = {0};
    if (p->has_sink)
        sum = expf(p->sink - max);
    for (uint32_t i = 0; i < p->n; i++) {
        float w = i == m->drop ? 0 : expf(s[i] - max) * (i & 1 ? m->exp_off : 1);
        sum += w;
        float used = m->cut_p ? (float)kvb_codec_bf16_value(kvb_codec_bf16(w)) : w;
        for (int d = 0; d < DIM; d++)
            o[d] += used * p->v[i * DIM + d];
    }
    for (int d = 0; d < DIM; d++)
        out[d] = o[d] / sum;
    *lse = max + logf(sum);
    free(s);
}

/* Elements that became infinite are counted. */
static kvb_diff judge(const problem *p, const mistakes *m, const kvb_arithmetic *arithmetic, double *per_row,
                      uint32_t *infinite)
{
    kvb_diff diff = {0};
    for (uint32_t h = 0; h < HEADS; h++) {
        float out[DIM], lse;
        uint16_t narrow[DIM];
        kvb_diff one = {0};
        attend_f32(p, h, m, out, &lse);
        for (uint32_t c = 0; c < p->v_dim && p->out_elem != KVB_F32; c++) {
            narrow[c] = p->out_elem == KVB_F16 ? kvb_codec_f16(out[c]) : kvb_codec_bf16(out[c]);
            *infinite += p->out_elem == KVB_F16 && (narrow[c] & 0x7fff) == 0x7c00;
        }
        kvb_diff_row(&one, &p->expect[h], p->v_dim, arithmetic, (double)p->scale, (double)p->softcap, p->out_elem,
                     p->out_elem == KVB_F32 ? (const void *)out : narrow, &lse);
        if (per_row)
            per_row[h] = one.rho;
        if (h == 0 || one.rho > diff.rho)
            diff = one;
    }
    return diff;
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

static const char *const formats[] = {"f32", "bf16", "f16"};

static int double_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const struct variant {
    const char *name;
    double offset; /* as in problem_new */
    float softcap, sink;
    kvb_elem out_elem;
    float v_factor;   /* on V, 0: none; with one of 1e4 and more f16 rows are left out, they would not hold it */
    uint32_t v_dim;   /* latent: of the beginning of K's rows; 0: not latent */
    bool is_infinite; /* some outputs are too large for their type */
} variants[] = {
    {.name = "plain"},
    {.name = "common offset of ten thousand", .offset = 1e4},
    {.name = "softcap 3", .softcap = 3},
    {.name = "softcap that all logits are far beyond", .softcap = 0.05f},
    {.name = "sink", .sink = 1.5f},
    {.name = "sink that takes nearly all", .sink = 20},
    {.name = "softcap and sink", .softcap = 3, .sink = 1.5f},
    {.name = "out f16", .out_elem = KVB_F16},
    {.name = "out bf16", .out_elem = KVB_BF16},
    {.name = "out f16, subnormal", .out_elem = KVB_F16, .v_factor = 1e-6f},
    {.name = "out f16, too large", .out_elem = KVB_F16, .v_factor = 6e4f, .is_infinite = true},
    {.name = "out bf16, large", .out_elem = KVB_BF16, .v_factor = 1e30f},
    {.name = "latent rows", .v_dim = 96},
    {.name = "latent rows, softcap, sink, out bf16", .softcap = 3, .sink = 1, .out_elem = KVB_BF16, .v_dim = 64},
};

static problem *variant_new(const struct variant *v, const char *format, uint32_t n, uint64_t seed)
{
    problem *p = problem_new(format, n, v->offset, seed);
    p->softcap = v->softcap;
    p->has_sink = v->sink != 0;
    p->sink = v->sink;
    p->out_elem = v->out_elem;
    for (uint32_t i = 0; v->v_factor != 0 && i < n * DIM; i++)
        p->v[i] *= v->v_factor;
    if (v->v_dim) {
        free(p->v);
        p->v = p->k;
        p->v_dim = v->v_dim;
    }
    return p;
}

/* Over a sweep of sizes. */
static void holds_and_is_not_vacuous(void **state)
{
    static const uint32_t sizes[] = {1, 2, 16, 100, 512, 4096};
    (void)state;
    for (const struct variant *v = variants; v < variants + sizeof variants / sizeof *variants; v++) {
        double rho[3 * 6 * 2 * HEADS], worst = 0;
        uint32_t infinite = 0;
        size_t n = 0, last = v->v_factor > 1e4f ? 2 : 3;
        for (size_t f = 0; f < last; f++)
            for (size_t i = 0; i < 6; i++)
                for (uint64_t seed = 1; seed <= 2; seed++) {
                    problem *p = variant_new(v, formats[f], sizes[i], seed * 77 + i);
                    kvb_arithmetic arithmetic = declared(p->n);
                    problem_solve(p);
                    kvb_diff diff = judge(p, &honest, &arithmetic, &rho[n], &infinite);
                    if (!(diff.rho <= 1))
                        fail_msg("%s, %s, %u cells: rho %g, got %.9g want %.17g bound %g", v->name, formats[f], p->n,
                                 diff.rho, diff.worst.got, diff.worst.want, diff.worst.bound);
                    assert_true(diff.rho_worst <= diff.rho);
                    assert_int_equal(diff.not_finite, 0);
                    worst = fmax(worst, diff.rho);
                    n += HEADS;
                    problem_free(p);
                }
        qsort(rho, n, sizeof *rho, double_order);
        print_message("# %s: rho median %.3g, max %.3g over %zu rows\n", v->name, rho[n / 2], worst, n);
        assert_true(rho[n / 2] >= 1e-3 && worst >= 1e-2);
        assert_int_equal(infinite > 0, v->is_infinite);
    }
}

/* Each of these must give rho > 1 with rows of every format. */
static void mistakes_are_caught(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        mistakes m;
    } planted[] = {
        {"one key of 4096 dropped", {.drop = 1234, .scale = 1, .exp_off = 1}},
        {"scale * 1.001", {.drop = -1, .scale = 1.001f, .exp_off = 1}},
        {"two heads swapped", {.drop = -1, .scale = 1, .swap = true, .exp_off = 1}},
        {"weights cut to bf16", {.drop = -1, .scale = 1, .cut_p = true, .exp_off = 1}},
        {"exp off by 0.1 %", {.drop = -1, .scale = 1, .exp_off = 1.001f}},
    };
    for (size_t f = 0; f < 3; f++) {
        problem *p = problem_new(formats[f], MAX_CELLS, 0, 5);
        kvb_arithmetic arithmetic = declared(p->n);
        problem_solve(p);
        assert_true(judge(p, &honest, &arithmetic, NULL, NULL).rho <= 1);
        for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
            kvb_diff diff = judge(p, &planted[i].m, &arithmetic, NULL, NULL);
            print_message("# %s rows, %s: rho %.3g\n", formats[f], planted[i].name, diff.rho);
            if (!(diff.rho > 1))
                fail_msg("%s rows: %s passes with rho %g", formats[f], planted[i].name, diff.rho);
        }
        problem_free(p);
    }
}

/* Weights cut to bf16 are fine for a kernel that says so. */
static void declared_rounding_is_allowed(void **state)
{
    (void)state;
    mistakes cut = honest;
    cut.cut_p = true;
    problem *p = problem_new("f32", 512, 0, 9);
    kvb_arithmetic arithmetic = declared(p->n);
    arithmetic.sums.rounding = KVB_BF16;
    problem_solve(p);
    double rho = judge(p, &cut, &arithmetic, NULL, NULL).rho;
    assert_true(rho <= 1 && rho > 1e-2);
    problem_free(p);
}

/* One row whose every sum is chosen by hand: the bound is then a number that can be written down. */
static void closed_case(void **state)
{
    (void)state;
    const double u = kvb_unit_roundoff(KVB_F32), tiny = 0x1p-149;
    assert_true(u == 0x1p-24 && kvb_unit_roundoff(KVB_F16) == 0x1p-11 && kvb_unit_roundoff(KVB_BF16) == 0x1p-8);
    kvb_arithmetic a = {.accumulator = KVB_F32, .dot_chain = 4, .cell_chain = 9};
    kvb_bound_row row = {.visible = 1, .weight_sum = 1, .v_mix = 1};
    kvb_bound_term o_only = {.o = 2};

    /* gamma: 9 u worst, below 7 * 3 u; only the denominator and the rounding of |o| count */
    double gamma = 9 * u / (1 - 9 * u), sums = gamma * 2 / (1 - gamma);
    double expected = sums + 3 * u * (2 + sums) + 2 * tiny;
    assert_true(fabs(kvb_bound_output(&a, KVB_BOUND_STATISTICAL, &row, &o_only, 1, 0, KVB_F32) - expected) < 1e-20);

    /* a long chain: 7 sqrt(m) u */
    a.cell_chain = 10000;
    gamma = 700 * u;
    sums = gamma * 2 / (1 - gamma);
    expected = sums + 3 * u * (2 + sums) + 2 * tiny;
    assert_true(fabs(kvb_bound_output(&a, KVB_BOUND_STATISTICAL, &row, &o_only, 1, 0, KVB_F32) - expected) < 1e-20);
    gamma = 10000 * u / (1 - 10000 * u);
    sums = gamma * 2 / (1 - gamma);
    expected = sums + 3 * u * (2 + sums) + 2 * tiny;
    assert_true(fabs(kvb_bound_output(&a, KVB_BOUND_WORST, &row, &o_only, 1, 0, KVB_F32) - expected) < 1e-20);

    /* the output dtype: 2^-11 and 2^-8 of |o| */
    a.cell_chain = 0;
    expected = 2 * (0x1p-11 + 2 * u) + 0x1p-24 + tiny;
    assert_true(fabs(kvb_bound_output(&a, KVB_BOUND_STATISTICAL, &row, &o_only, 1, 0, KVB_F16) - expected) < 1e-20);
    expected = 2 * (0x1p-8 + 2 * u) + 0x1p-133 + tiny;
    assert_true(fabs(kvb_bound_output(&a, KVB_BOUND_STATISTICAL, &row, &o_only, 1, 0, KVB_BF16) - expected) < 1e-20);

    /* a logit error alone: a spread of 1 at A = 3 with scale -0.5, chain 4: 4 u / (1 - 4 u) < 7 * 2 u */
    kvb_bound_term spread = {.spread = 1, .spread_a = 3, .v_max = 1};
    row.a_max = row.a_mean = 3;
    double d = 0.5 * 3 * 4 * u / (1 - 4 * u), first = expm1(d) * exp(d);
    expected = first * (1 + 3 * u) + 2 * tiny;
    assert_true(fabs(kvb_bound_output(&a, KVB_BOUND_STATISTICAL, &row, &spread, -0.5, 0, KVB_F32) - expected) < 1e-18);

    /* a softcap of 30 besides: the slope of tanh is at most 1, so that it adds its own roundings, 4 u 30, and no more
     */
    double capped = d + 4 * u * 30;
    expected = expm1(capped) * exp(capped) * (1 + 3 * u) + 2 * tiny;
    assert_true(fabs(kvb_bound_output(&a, KVB_BOUND_STATISTICAL, &row, &spread, -0.5, 30, KVB_F32) - expected) < 1e-18);

    /* weights dropped below 1e-3: two sums of 8 cells lose them, of a total weight of 4 */
    kvb_arithmetic drops = {.accumulator = KVB_F32, .exp_floor = 1e-3};
    kvb_bound_row eight = {.visible = 8, .weight_sum = 4, .v_mix = 1};
    kvb_bound_term far = {.v_max = 5};
    expected = 8 * 2 * 1e-3 * 5 / 4;
    assert_true(fabs(kvb_bound_output(&drops, KVB_BOUND_STATISTICAL, &eight, &far, 1, 0, KVB_F32) - expected) < 1e-15);
    /* likewise weights rounded to f16 where its spacing is 2^-24 */
    kvb_arithmetic rounds = {.accumulator = KVB_F32, .sums.rounding = KVB_F16};
    expected = 8 * 0x1p-25 * 5 / 4;
    assert_true(fabs(kvb_bound_output(&rounds, KVB_BOUND_STATISTICAL, &eight, &far, 1, 0, KVB_F32) - expected) < 1e-15);

    /* a transform of 64 channels mixes V: 8 times the mass and the largest V, for the worst strength alone */
    kvb_arithmetic sum = {.accumulator = KVB_F32, .cell_chain = 9, .exp_floor = 1e-3};
    kvb_bound_row mixed = {.visible = 8, .weight_sum = 4, .v_mix = 8};
    kvb_bound_term mass = {.mass = 3, .v_max = 5};
    gamma = 9 * u / (1 - 9 * u);
    expected = 8 * 2 * 1e-3 * 5 / 4 + gamma / (1 - gamma) * 3 * (1 + 3 * u);
    assert_true(fabs(kvb_bound_output(&sum, KVB_BOUND_STATISTICAL, &mixed, &mass, 1, 0, KVB_F32) - expected) < 1e-15);
    expected *= 8;
    assert_true(fabs(kvb_bound_output(&sum, KVB_BOUND_WORST, &mixed, &mass, 1, 0, KVB_F32) - expected) < 1e-14);
    /* no weights move it further than |o| and the largest V */
    kvb_bound_term wild = {.spread = 1, .spread_a = 1e30, .v_max = 5};
    mixed.a_max = mixed.a_mean = 1;
    kvb_arithmetic dots = {.accumulator = KVB_F32, .dot_chain = 4};
    assert_true(fabs(kvb_bound_output(&dots, KVB_BOUND_STATISTICAL, &mixed, &wild, 1, 0, KVB_F32) - 5) < 1e-5);
    assert_true(fabs(kvb_bound_output(&dots, KVB_BOUND_WORST, &mixed, &wild, 1, 0, KVB_F32) - 40) < 1e-4);

    /* q in steps of 1/100 of its largest: Q = 20 at scale -0.5 is 0.5 * 20 / 200 of a logit, and 4 u of that */
    kvb_arithmetic steps = {.accumulator = KVB_F32, .dot_chain = 4, .query.step = 0.01};
    kvb_bound_row far_row = {.visible = 1, .weight_sum = 1, .v_mix = 1, .q_max = 20, .q_mean = 10};
    kvb_bound_term by_q = {.spread_q = 7, .v_max = 1e9};
    double rounded = 1 + 4 * u / (1 - 4 * u), d_max = 0.05 * rounded, d_mean = 0.025 * rounded;
    expected = expm1(d_max) / d_max * exp(d_mean) * 0.5 * 7 / 200 * rounded * (1 + 3 * u);
    for (int strength = 0; strength < 2; strength++)
        assert_true(fabs(kvb_bound_output(&steps, (kvb_bound_strength)strength, &far_row, &by_q, -0.5, 0, KVB_F32) -
                         expected) < 1e-15);
    expected = expm1(d_max) / d_max * d_mean + 2 * u * 8 + tiny;
    assert_true(fabs(kvb_bound_lse(&steps, KVB_BOUND_STATISTICAL, &far_row, 8, -0.5, 0) - expected) < 1e-15);
    /* products in steps of 1/1000 of the largest weight, 1/4, and the largest V, 12: of 100 cells 7 * 10 add up,
     * at worst all; of 16 all. Where weights may be off, the largest may be larger, but not above 1 */
    kvb_arithmetic parts = {.accumulator = KVB_F32, .sums.step = 0.001};
    kvb_bound_row many = {.visible = 100, .weight_sum = 1, .v_mix = 1, .p_max = 0.25, .v_largest = 12};
    kvb_bound_term none = {0};
    double each = 0.0005 * 0.25 * 12 * (1 + 3 * u);
    assert_true(fabs(kvb_bound_output(&parts, KVB_BOUND_STATISTICAL, &many, &none, 1, 0, KVB_F32) - 70 * each) < 1e-15);
    assert_true(fabs(kvb_bound_output(&parts, KVB_BOUND_WORST, &many, &none, 1, 0, KVB_F32) - 100 * each) < 1e-15);
    assert_true(kvb_bound_lse(&parts, KVB_BOUND_WORST, &many, 0, 1, 0) <= tiny);
    many.visible = 16;
    assert_true(fabs(kvb_bound_output(&parts, KVB_BOUND_STATISTICAL, &many, &none, 1, 0, KVB_F32) - 16 * each) < 1e-15);
    parts.query.step = 0.01;
    many.q_max = many.q_mean = 20;
    expected = 16 * each * exp(0.2);
    assert_true(fabs(kvb_bound_output(&parts, KVB_BOUND_STATISTICAL, &many, &none, 1, 0, KVB_F32) - expected) < 1e-12);
    many.q_max = 1e6;
    assert_true(fabs(kvb_bound_output(&parts, KVB_BOUND_STATISTICAL, &many, &none, 1, 0, KVB_F32) - 64 * each) < 1e-12);
    many.v_largest = INFINITY; /* of another channel */
    parts.sums.step = 0;
    assert_true(kvb_bound_output(&parts, KVB_BOUND_STATISTICAL, &many, &none, 1, 0, KVB_F32) <= 20 * tiny);

    /* log-sum-exp: the same logit error, and 2 u |lse| */
    expected = expm1(d) + 2 * u * 8 + tiny;
    assert_true(fabs(kvb_bound_lse(&a, KVB_BOUND_STATISTICAL, &row, 8, -0.5, 0) - expected) < 1e-18);
}

/* Every part of a declaration makes the bound wider. */
static void every_part_of_the_declaration_counts(void **state)
{
    (void)state;
    kvb_arithmetic base = declared(100);
    kvb_bound_row row = {.visible = 100,
                         .a_max = 9,
                         .q_max = 12,
                         .s_max = 4,
                         .a_mean = 5,
                         .q_mean = 8,
                         .q_largest = 2,
                         .s_mean = 2,
                         .p_max = 0.05,
                         .v_largest = 3,
                         .logit_max = 3,
                         .weight_sum = 20,
                         .v_mix = 1};
    kvb_bound_term term = {
        .o = 0.1, .spread = 0.5, .spread_a = 2, .spread_q = 3, .spread_s = 1, .mass = 0.6, .v_max = 3};
    double narrow = kvb_bound_output(&base, KVB_BOUND_STATISTICAL, &row, &term, 1, 0, KVB_F32);
    double narrow_lse = kvb_bound_lse(&base, KVB_BOUND_STATISTICAL, &row, 3, 1, 0);
    enum { PARTS = 14 };
    kvb_arithmetic parts[PARTS];
    for (int part = 0; part < PARTS; part++)
        parts[part] = base;
    /* these have no part in the log-sum-exp */
    parts[0].sums.rounding = KVB_BF16;
    parts[1].sums = (kvb_rounding){.rounding = KVB_F16, .chain = 2};
    parts[2].sums.step = 0.001;
    parts[3].sums.floor = 0.001;
    parts[4].dot_chain *= 4;
    parts[5].cell_chain *= 4;
    parts[6].rescales = 10;
    parts[7].exp_error *= 100;
    parts[8].exp_floor = 1e-6;
    parts[9].query.rounding = KVB_BF16;
    parts[10].query.step = 0.01;
    parts[11].query.floor = 0.005;
    parts[12].scores = (kvb_rounding){.rounding = KVB_F16, .chain = 2};
    parts[13].scores.floor = 0.001;
    for (int part = 0; part <= PARTS; part++) { /* the last one: a softcap */
        const kvb_arithmetic *a = part < PARTS ? &parts[part] : &base;
        double softcap = part < PARTS ? 0 : 30;
        double wide = kvb_bound_output(a, KVB_BOUND_STATISTICAL, &row, &term, 1, softcap, KVB_F32);
        double wide_lse = kvb_bound_lse(a, KVB_BOUND_STATISTICAL, &row, 3, 1, softcap);
        assert_true(wide > 1.01 * narrow);
        assert_true(part < 4 ? wide_lse == narrow_lse : wide_lse > 1.01 * narrow_lse);
    }
    /* and so do the sums that depend on the data */
    for (int sum = 0; sum < 4; sum++) {
        kvb_bound_term more = term;
        double *field[] = {&more.spread, &more.spread_a, &more.spread_s, &more.mass};
        *field[sum] *= 3;
        assert_true(kvb_bound_output(&base, KVB_BOUND_STATISTICAL, &row, &more, 1, 0, KVB_F32) > 1.001 * narrow);
    }
    assert_true(kvb_bound_output(&base, KVB_BOUND_STATISTICAL, &row, &term, 1, 0, KVB_BF16) > 1.5 * narrow);
}

/* All keys are one row, beside a sink: a sum of equal weights, which is off to one side. Independent roundings would
 * not be. */
static void equal_terms_take_the_worst(void **state)
{
    (void)state;
    double as_equal = 0, as_apart = 0;
    for (uint32_t n = 64; n <= MAX_CELLS; n *= 2)
        for (int i = 0; i < 8; i++) {
            uint32_t infinite = 0;
            problem *p = problem_new("f32", n, 0, 100 + i);
            const kvb_arithmetic arithmetic = declared(n);
            p->has_sink = true;
            p->sink = 9 + 0.37f * (float)i;
            for (uint32_t c = 1; c < n; c++)
                memcpy(p->k + c * DIM, p->k, DIM * sizeof *p->k);
            problem_solve(p);
            as_equal = fmax(as_equal, judge(p, &honest, &arithmetic, NULL, &infinite).rho);
            for (int h = 0; h < HEADS; h++) {
                assert_true(p->expect[h].row.equal);
                p->expect[h].row.equal = false;
            }
            as_apart = fmax(as_apart, judge(p, &honest, &arithmetic, NULL, &infinite).rho);
            problem_free(p);
        }
    print_message("# rho %.3g, as independent roundings %.3g\n", as_equal, as_apart);
    assert_true(as_equal <= 1 && as_equal > 0.01);
    assert_true(as_apart > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_case),
        cmocka_unit_test(every_part_of_the_declaration_counts),
        cmocka_unit_test(holds_and_is_not_vacuous),
        cmocka_unit_test(mistakes_are_caught),
        cmocka_unit_test(declared_rounding_is_allowed),
        cmocka_unit_test(equal_terms_take_the_worst),
    };
    return cmocka_run_group_tests_name("oracle/bound", tests, NULL, NULL);
}
