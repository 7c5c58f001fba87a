/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the bound holds for honest f32 kernels, with a softcap, a sink logit, latent rows, outputs of 16 bits, and
 * over quantised and rotated rows, whose scales are applied first or factored out of the sums. It is not vacuous, and
 * catches small mistakes. For such rows it would not hold with |k| and |v| in place of magnitudes.
 */
#include "ci/tests/tests.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/attention.h"
#include "oracle/codec.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"
#include "workloads/array.h"

enum { DIM = 128, HEADS = 4, MAX_CELLS = 4096 };

#define A_ROW .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32, .zero_elem = KVB_F32
static const kvb_format formats[] = {
    {.name = "f32", .elem = KVB_F32},
    {.name = "bf16", .elem = KVB_BF16},
    {.name = "f16", .elem = KVB_F16},
    {.name = "int8-asym", .elem = KVB_UINT8, A_ROW},
    {.name = "int8-asym+had", .elem = KVB_UINT8, .transform = KVB_TRANSFORM_HADAMARD, A_ROW},
    {.name = "int8+had", .elem = KVB_INT8, .transform = KVB_TRANSFORM_SIGNED_HADAMARD, A_ROW},
};
enum { F32, PLAIN = 3, FORMATS = 6 };

/* Kinds of rows. FAR: far from 0, in a small range. OUTLIERS: two channels of +-100 with small weight in q, the others
 * small: an element is a small difference of large terms. SPIKE: one channel dominates. */
typedef enum shape { GAUSSIAN, FAR, OUTLIERS, SPIKE } shape;

/* Rows of one side: their values; and for codes, what a factored kernel reads. */
typedef struct side {
    float decoded[MAX_CELLS][DIM]; /* as a kernel reads them: f32, the transform undone */
    double exact[MAX_CELLS][DIM], size[MAX_CELLS][DIM], sum[MAX_CELLS]; /* sum: of size */
    float codes[MAX_CELLS][DIM], scale[MAX_CELLS], zero[MAX_CELLS];
} side;

/* A few query heads over one KV head. */
typedef struct problem {
    const kvb_format *format;
    uint32_t n, v_dim;
    float scale, softcap, sink;
    bool has_sink, latent, factored;
    kvb_elem out_elem;
    float q[HEADS][DIM];
    side k, v;
    kvb_bound_term terms[HEADS][DIM];
    kvb_expect expect[HEADS];
} problem;

/* A kind of problems. */
static const struct variant {
    const char *name;
    double offset; /* added to every logit by a common part of all keys */
    float softcap, sink;
    kvb_elem out_elem;
    float v_factor;   /* on V, 0: none; from 1e4 on without f16 rows, which could not hold V */
    uint32_t v_dim;   /* latent rows: V's part of K's rows; 0: not latent */
    bool is_infinite; /* some outputs are too large for their type */
    bool of_codes, factored;
    shape shape;
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
    {.name = "decoded", .of_codes = true},
    {.name = "decoded, far", .of_codes = true, .shape = FAR},
    {.name = "decoded, outliers", .of_codes = true, .shape = OUTLIERS},
    {.name = "decoded, spike", .of_codes = true, .shape = SPIKE},
    {.name = "factored", .of_codes = true, .factored = true},
    {.name = "factored, far", .of_codes = true, .factored = true, .shape = FAR},
    {.name = "factored, outliers", .of_codes = true, .factored = true, .shape = OUTLIERS},
    {.name = "factored, spike", .of_codes = true, .factored = true, .shape = SPIKE},
};

/* The inverse transform in f32: signs last. */
static void row_turn_back(kvb_transform transform, float *row)
{
    kvb_codec_rotate(transform ? KVB_TRANSFORM_HADAMARD : transform, DIM, row);
    for (uint32_t d = 0; transform == KVB_TRANSFORM_SIGNED_HADAMARD && d < DIM; d++)
        if (kvb_sign_flip(d))
            row[d] = -row[d];
}

/* A number of variance 1, about Gaussian, drawn fast. */
static float bell(uint64_t *seed)
{
    double sum = -2;
    for (int i = 0; i < 4; i++)
        sum += hand_uniform(seed);
    return (float)(sqrt(3) * sum);
}

static float element(shape s, int d, uint64_t *seed)
{
    float x = bell(seed);
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

/* Puts one row into a side: encodes it by the codec, which other tests check, and separates codes, scale and zero. */
static void row_make(const kvb_storage *store, const float *row, side *to, uint32_t i)
{
    unsigned char codes[4 * DIM], *part[KVB_PARTS];
    double scratch[DIM];
    assert_true(kvb_storage_scratch(store) <= sizeof scratch);
    kvb_storage_rows(store, &row, 1, scratch, to->exact[i], to->size[i]);
    for (int d = 0; d < DIM; d++) {
        to->sum[i] += to->size[i][d];
        to->decoded[i][d] = (float)to->exact[i][d];
    }
    if (store->format->elem != KVB_INT8 && store->format->elem != KVB_UINT8)
        return;
    memcpy(to->decoded[i], row, sizeof to->decoded[i]);
    part[KVB_CODES] = codes;
    part[KVB_SCALES] = (unsigned char *)&to->scale[i];
    part[KVB_ZEROS] = (unsigned char *)&to->zero[i];
    kvb_codec_rotate(store->format->transform, DIM, to->decoded[i]);
    kvb_codec_encode(store->codec, to->decoded[i], 1, DIM, 1, part);
    for (int d = 0; d < DIM; d++) {
        to->codes[i][d] = store->format->elem == KVB_INT8 ? (float)(int8_t)codes[d] : (float)codes[d];
        to->decoded[i][d] = to->codes[i][d] * to->scale[i] + to->zero[i];
    }
    row_turn_back(store->format->transform, to->decoded[i]);
}

static problem *problem_new(const struct variant *v, const kvb_format *format, uint32_t n, uint64_t seed)
{
    problem *p = calloc(1, sizeof *p);
    kvb_storage store;
    char why[128];
    float common[DIM], row[DIM];
    double square = 0;
    assert_non_null(p);
    assert_int_equal(kvb_storage_init(&store, format, DIM, NULL, 1, 0, why, sizeof why), 0);
    p->format = format;
    p->n = n;
    p->scale = 0.088388346f; /* 1/sqrt(128) */
    p->softcap = v->softcap;
    p->has_sink = v->sink != 0;
    p->sink = v->sink;
    p->out_elem = v->out_elem;
    p->latent = v->v_dim > 0;
    p->v_dim = v->v_dim ? v->v_dim : DIM;
    p->factored = v->factored;
    for (int d = 0; d < DIM; d++) {
        common[d] = v->offset != 0 ? bell(&seed) : 0;
        square += v->offset != 0 ? (double)common[d] * (double)common[d] : 1;
    }
    for (int h = 0; h < HEADS; h++)
        for (int d = 0; d < DIM; d++)
            p->q[h][d] = (v->shape == OUTLIERS && d < 2) || (v->shape == SPIKE && d == 5)
                             ? 0
                             : common[d] + (v->offset != 0 ? 0.01f : 1.0f) * bell(&seed);
    for (uint32_t i = 0; i < n; i++) {
        for (int d = 0; d < DIM; d++)
            row[d] = (float)((double)element(v->shape, d, &seed) +
                             v->offset / (square * (double)p->scale) * (double)common[d]);
        store.is_v = false;
        row_make(&store, row, &p->k, i);
        for (int d = 0; d < DIM; d++)
            row[d] = element(v->shape, d, &seed) * (v->v_factor > 0 ? v->v_factor : 1);
        store.is_v = true;
        row_make(&store, row, &p->v, i);
    }
    return p;
}

/* Solves with magnitudes (sized), or with |k| and |v| in their place. */
static void problem_solve(problem *p, bool sized)
{
    double *scratch = malloc(kvb_attention_scratch(p->n, DIM) * sizeof *scratch), q[DIM];
    const side *v = p->latent ? &p->k : &p->v;
    const kvb_token_run all = {0, p->n};
    for (uint32_t h = 0; h < HEADS; h++) {
        hand_doubles(p->q[h], DIM, q);
        kvb_attention a = {.q = q,
                           .k = p->k.exact[0],
                           .k_size = sized ? p->k.size[0] : NULL,
                           .k_sum = p->k.sum,
                           .v = v->exact[0],
                           .v_size = sized ? v->size[0] : NULL,
                           .k_turned = sized && p->format->transform,
                           .v_mix = sized && p->format->transform ? sqrt(DIM) : 1,
                           .k_dim = DIM,
                           .v_dim = p->v_dim,
                           .v_row = DIM,
                           .scale = (double)p->scale,
                           .softcap = (double)p->softcap,
                           .sink = p->has_sink ? &p->sink : NULL,
                           .runs = &all,
                           .n_runs = 1,
                           .visible = p->n};
        p->expect[h] = (kvb_expect){.head = h, .visible = p->n, .terms = p->terms[h]};
        kvb_attention_solve(&a, scratch, &p->expect[h].row, &p->expect[h].lse, p->terms[h]);
    }
    free(scratch);
}

/* ---- two honest kernels: plain f32 loops, and their declarations --------------------------------------------- */

typedef struct mistakes {
    const char *name;
    int64_t drop;      /* cell left out; -1: none */
    float scale;       /* factor on the scale */
    float exp_off;     /* factor on each exp of an odd cell */
    bool swap;         /* heads 0 and 1 are exchanged */
    bool cut_p;        /* weights cut to bf16, undeclared */
    bool other_zero;   /* zero points of the previous row */
    bool short_scales; /* scales cut to 16 bits */
    bool not_turned;   /* V's transform is not undone */
} mistakes;

static const mistakes honest = {.drop = -1, .scale = 1, .exp_off = 1};

static kvb_arithmetic declared(const kvb_format *format, uint32_t n)
{
    const uint32_t roundings = kvb_format_roundings(format, DIM);
    return (kvb_arithmetic){.accumulator = KVB_F32,
                            .dot_chain = DIM + roundings,
                            .cell_chain = n + 1 + roundings,
                            .exp_error = 0x1p-23,
                            .exp_floor = 0x1p-126};
}

static float cut(float x)
{
    return (float)kvb_codec_rounded(KVB_BF16, x);
}

static float scale_of(const side *s, uint32_t i, const mistakes *m)
{
    return m->short_scales ? cut(s->scale[i]) : s->scale[i];
}

static void attend(const problem *p, uint32_t h, const mistakes *m, float *out, float *lse)
{
    static float s[MAX_CELLS];
    const side *v = p->latent ? &p->k : &p->v;
    float q[DIM], o[DIM] = {0}, max = p->has_sink ? p->sink : -INFINITY, sum = 0, sum_q = 0, zeros = 0;
    memcpy(q, p->q[m->swap && h < 2 ? 1 - h : h], sizeof q);
    if (p->factored)
        kvb_codec_rotate(p->format->transform, DIM, q);
    for (int d = 0; d < DIM; d++)
        sum_q += q[d];
    for (uint32_t i = 0; i < p->n; i++) {
        const float *k = p->factored ? p->k.codes[i] : p->k.decoded[i];
        float dot = 0;
        for (int d = 0; d < DIM; d++)
            dot += q[d] * k[d];
        if (p->factored) /* scale * sum q code + zero * sum q */
            dot = scale_of(&p->k, i, m) * dot + p->k.zero[m->other_zero && i ? i - 1 : i] * sum_q;
        s[i] = dot * (p->scale * m->scale);
        if (p->softcap > 0)
            s[i] = p->softcap * tanhf(s[i] / p->softcap);
        if (i != m->drop)
            max = fmaxf(max, s[i]);
    }
    if (p->has_sink)
        sum = expf(p->sink - max);
    for (uint32_t i = 0; i < p->n; i++) {
        const float *row = p->factored ? v->codes[i] : v->decoded[i];
        const float w = i == m->drop ? 0 : expf(s[i] - max) * (i & 1 ? m->exp_off : 1);
        const float used = (m->cut_p ? cut(w) : w) * (p->factored ? scale_of(v, i, m) : 1);
        sum += w;
        zeros += p->factored ? w * v->zero[i] : 0;
        for (int d = 0; d < DIM; d++)
            o[d] += used * row[d];
    }
    for (int d = 0; d < DIM; d++)
        out[d] = (o[d] + zeros) / sum;
    if (p->factored && !m->not_turned)
        row_turn_back(p->format->transform, out);
    *lse = max + logf(sum);
}

/* Runs a kernel with these mistakes and judges it. per_row: each row's rho; counts infinite elements in *infinite. */
static kvb_diff judge(const problem *p, const mistakes *m, const kvb_arithmetic *arithmetic, double *per_row,
                      uint32_t *infinite)
{
    kvb_diff diff = {0};
    for (uint32_t h = 0; h < HEADS; h++) {
        float out[DIM], lse;
        uint16_t narrow[DIM];
        kvb_diff one = {0};
        attend(p, h, m, out, &lse);
        for (uint32_t c = 0; c < p->v_dim && p->out_elem != KVB_F32; c++) {
            narrow[c] = kvb_codec_code(p->out_elem, out[c]);
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

/* Tries formats from .. to-1, each over a sweep of sizes; formats with codes without the largest size. */
static void variant_holds(const struct variant *v, size_t from, size_t to)
{
    static const uint32_t sizes[] = {1, 2, 16, 100, 512, 1024, 4096};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    double rho[PLAIN * SIZES * HEADS], worst = 0, bare = 0;
    uint32_t infinite = 0;
    size_t n = 0;
    for (size_t f = from; f < to; f++)
        for (size_t i = 0; i + v->of_codes < SIZES; i++, n += HEADS) {
            problem *p = problem_new(v, &formats[f], sizes[i], 77 * (f + 1) + i);
            const kvb_arithmetic arithmetic = declared(p->format, p->n);
            problem_solve(p, true);
            kvb_diff diff = judge(p, &honest, &arithmetic, &rho[n], &infinite);
            if (!(diff.rho <= 1))
                fail_msg("%s, %s, %u cells: rho %g, got %.9g want %.17g bound %g", v->name, p->format->name, p->n,
                         diff.rho, diff.worst.got, diff.worst.want, diff.worst.bound);
            assert_true(diff.rho_worst <= diff.rho);
            assert_int_equal(diff.not_finite, 0);
            worst = fmax(worst, diff.rho);
            if (v->of_codes) {
                problem_solve(p, false);
                bare = fmax(bare, judge(p, &honest, &arithmetic, NULL, NULL).rho);
            }
            free(p);
        }
    kvb_doubles_sort(rho, n);
    print_message("# %s, %s: rho median %.3g, max %.3g over %zu rows; with |k|, |v| %.3g\n", v->name,
                  formats[from].name, rho[n / 2], worst, n, bare);
    assert_true(rho[n / 2] >= 1e-3 && worst >= 1e-2);
    assert_int_equal(infinite > 0, v->is_infinite);
    assert_true(!v->of_codes || bare > 1 || v->shape == FAR); /* FAR: an element is as large as its terms */
}

TEST(holds_and_is_not_vacuous)
{
    for (const struct variant *v = variants; v < variants + sizeof variants / sizeof *variants; v++)
        if (!v->of_codes)
            variant_holds(v, 0, v->v_factor > 1e4f ? 2 : PLAIN);
        else
            for (size_t f = PLAIN; f < FORMATS; f++)
                variant_holds(v, f, f + 1);
}

/* Each of these must give rho > 1 with rows of every format that can have it. */
TEST(mistakes_are_caught)
{
    static const mistakes planted[] = {
        {"one key of 4096 dropped", .drop = 1234, .scale = 1, .exp_off = 1},
        {"scale * 1.001", .drop = -1, .scale = 1.001f, .exp_off = 1},
        {"two heads swapped", .drop = -1, .scale = 1, .swap = true, .exp_off = 1},
        {"weights cut to bf16", .drop = -1, .scale = 1, .cut_p = true, .exp_off = 1},
        {"exp off by 0.1 %", .drop = -1, .scale = 1, .exp_off = 1.001f},
        {"zero point of another row", .drop = -1, .scale = 1, .exp_off = 1, .other_zero = true},
        {"scales cut to bf16", .drop = -1, .scale = 1, .exp_off = 1, .short_scales = true},
        {"out left transformed", .drop = -1, .scale = 1, .exp_off = 1, .not_turned = true},
    };
    for (size_t f = 0; f < FORMATS; f++) {
        const struct variant v = {.factored = f >= PLAIN};
        problem *p = problem_new(&v, &formats[f], MAX_CELLS, 5);
        const kvb_arithmetic arithmetic = declared(p->format, p->n);
        problem_solve(p, true);
        assert_true(judge(p, &honest, &arithmetic, NULL, NULL).rho <= 1);
        for (const mistakes *m = planted; m < planted + sizeof planted / sizeof *planted; m++) {
            if ((m->other_zero && !kvb_format_has_zeros(p->format)) || (m->not_turned && !p->format->transform) ||
                (m->short_scales && f < PLAIN) || (m->cut_p && f >= PLAIN)) /* the bound of codes allows it */
                continue;
            kvb_diff diff = judge(p, m, &arithmetic, NULL, NULL);
            print_message("# %s rows, %s: rho %.3g\n", p->format->name, m->name, diff.rho);
            if (!(diff.rho > 1))
                fail_msg("%s rows: %s passes with rho %g", p->format->name, m->name, diff.rho);
        }
        free(p);
    }
}

/* A kernel that declares it may cut weights to bf16. */
TEST(declared_rounding_is_allowed)
{
    mistakes cut_p = honest;
    cut_p.cut_p = true;
    problem *p = problem_new(&variants[0], &formats[F32], 512, 9);
    kvb_arithmetic arithmetic = declared(p->format, p->n);
    arithmetic.sums.rounding = KVB_BF16;
    problem_solve(p, true);
    double rho = judge(p, &cut_p, &arithmetic, NULL, NULL).rho;
    assert_true(rho <= 1 && rho > 1e-2);
    free(p);
}

/* All keys are the same row, beside a sink: roundings of equal weights add up. Independent roundings would not. */
TEST(equal_terms_take_the_worst)
{
    double as_equal = 0, as_apart = 0;
    for (uint32_t n = 64; n <= MAX_CELLS; n *= 2)
        for (int i = 0; i < 4; i++) {
            uint32_t infinite = 0;
            problem *p = problem_new(&variants[0], &formats[F32], n, 100 + i);
            const kvb_arithmetic arithmetic = declared(p->format, n);
            p->has_sink = true;
            p->sink = 9 + 0.37f * (float)i;
            for (uint32_t c = 1; c < n; c++) {
                memcpy(p->k.decoded[c], p->k.decoded[0], sizeof p->k.decoded[0]);
                memcpy(p->k.exact[c], p->k.exact[0], sizeof p->k.exact[0]);
                memcpy(p->k.size[c], p->k.size[0], sizeof p->k.size[0]);
                p->k.sum[c] = p->k.sum[0];
            }
            problem_solve(p, true);
            as_equal = fmax(as_equal, judge(p, &honest, &arithmetic, NULL, &infinite).rho);
            for (int h = 0; h < HEADS; h++) {
                assert_true(p->expect[h].row.equal);
                p->expect[h].row.equal = false;
            }
            as_apart = fmax(as_apart, judge(p, &honest, &arithmetic, NULL, &infinite).rho);
            free(p);
        }
    print_message("# rho %.3g, as independent roundings %.3g\n", as_equal, as_apart);
    assert_true(as_equal <= 1 && as_equal > 0.01);
    assert_true(as_apart > 1);
}
