/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: mistakes that the oracle finds over real pools; in a table, those that other projects' rules let pass. */
#include <fnmatch.h>
#include <jansson.h>

#define TESTS_OWN_MAIN
#include "ci/tests/tests.h"
#include "ci/tests/whole/spoilt.h"
#include "harness/judge/judge.h"
#include "harness/judge/recorded.h"
#include "harness/replay/pool_watch.h"
#include "oracle/codec.h"
#include "workloads/array.h"

/*
 * The last queries of a long sequence over rows in a real pool: honest kernels pass, and a key dropped at any place, a
 * stale row, a scale off by a thousandth, two swapped heads and an output of 0 fail, in every kernel. A row with only V
 * wrong fails if weights are not rounded.
 *
 * test_power --table CELLS [FORMAT]     the same for every format, in process and through files of up to 4096 cells,
 *                                           with the verdicts of other projects' rules: JSON lines
 */

/* Shape of the only layer. ROWS: one for each query and query head of the step. */
enum { QUERIES = 4, HEADS = 16, KV_HEADS = 2, DIM = 128, ROWS = QUERIES * HEADS, ELEMENTS = ROWS * DIM };

static const char model_text[] =
    "{'kv_cache.schema_version':2,'kv_cache.layers':1,'groups':[{'layers':[0],'heads':16,'kv_heads':2,'k_dim':128,"
    "'v_dim':128}]}";

static kvb_pool_wrap types[2]; /* K, V */
static kvb_pool *pools[2];     /* the last opened */

static int pool_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    int error = kvb_pool_passing.open(type, options, pool);
    pools[type == &types[1].type] = *pool;
    return error;
}

static void rows_open(filled *r, uint32_t cells, const kvb_pool_type *pool, const char *profile)
{
    for (int side = 0; side < 2; side++) {
        types[side] = kvb_pool_wrap_of(pool);
        types[side].type.open = pool_open;
    }
    filled_open(r, model_text, cells, QUERIES, &types[0].type, &types[1].type, profile);
    assert_int_equal(r->oracle->n_rows, ROWS);
}

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

/* Replaces the row of s->cell by that of s->as, until the kernel has run: K and V, or only V. */
static void row_replaced(spoilt *c, const spoil *s)
{
    const uint32_t by = place_of(c->at->cells, s->as);
    for (int side = s->of_v; side < 2; side++)
        pools[side]->type->gather_into(pools[side], place_of(c->at->cells, s->cell), &by, 1);
}

static void row_restored(spoilt *c, const spoil *s)
{
    const uint32_t cell = place_of(c->at->cells, s->cell);
    for (int side = s->of_v; side < 2; side++)
        pools[side]->type->write_run(pools[side], cell, 1,
                                     kvb_values_rows(c->at->values, side ? KVB_ROWS_V : KVB_ROWS_K, 0, cell));
}

static const spoil mistakes[] = {
    {"first key dropped", .before = cells_seen, .seen = {{1, WHOLE}}, .of_one_cell = true},
    {"middle key dropped", .before = cells_seen, .seen = {{0, HALF}, {HALF + 1, WHOLE}}, .of_one_cell = true},
    {"last key dropped", .before = cells_seen, .seen = {{0, WHOLE - 1}}, .of_one_cell = true},
    {"stale row", 0, row_replaced, row_restored, .cell = HALF, .as = 3, .of_one_cell = true},
    {"V of a neighbour", 0, row_replaced, row_restored, .cell = HALF, .as = HALF + 1, .of_one_cell = true,
     .of_v = true},
    {"scale * 1.01", .before = scale_off, .by = 1.01},
    {"scale * 1.001", .before = scale_off, .by = 1.001},
    {"heads swapped", .before = heads_swapped, .by = 1, .cell = 0, .as = 1},
    {"output 0", .after = outputs_off, .by = 0},
};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

static spoilt honest, call; /* large */

/* ---- through files ----------------------------------------------------------------------------------------------- */

/*
 * The same call for `kvbench judge`: arrays in files, with rows as stored, and the kernel's declaration. One file has
 * q, K and V, another the outputs.
 */
enum { MOST_IN_FILES = 4096 }; /* cells: judge tries other readings of the arrays, which takes hours for more */

typedef struct files {
    bool held; /* files can hold rows of this format: it has only codes */
    char format[80];
} files;

static kvb_tensor tensor(const char *name, kvb_dtype dtype, const void *data, uint32_t n_dims, const uint64_t *dims)
{
    kvb_tensor t = {.name = name, .dtype = dtype, .n_dims = n_dims, .data = data};
    memcpy(t.dims, dims, n_dims * sizeof *dims);
    assert_int_equal(kvb_tensor_shape(&t, false), 0);
    return t;
}

/* All rows of one side [cells][KV_HEADS][bytes], which the caller frees. */
static unsigned char *codes_of(const kvb_view *view, uint32_t cells, size_t bytes)
{
    unsigned char *codes = malloc((size_t)cells * KV_HEADS * bytes);
    assert_non_null(codes);
    for (uint32_t c = 0; c < cells; c++)
        for (uint32_t h = 0; h < KV_HEADS; h++)
            memcpy(codes + ((size_t)c * KV_HEADS + h) * bytes, kvb_view_row(view, h, c), bytes);
    return codes;
}

/* Writes the files, if they are wanted and can hold rows of this format. */
static void files_open(const filled *r, bool wanted, files *f)
{
    const kvb_view *const sides[] = {&r->spec->k, &r->spec->v};
    const kvb_format *format = sides[0]->format;
    const kvb_codec *codec = kvb_codec_find(format->name);
    char why[512];
    *f = (files){.held = wanted && codec && codec->block == 1 && !format->transform && !format->head_scale &&
                         !sides[0]->scales && !sides[0]->zeros};
    if (!f->held)
        return;
    snprintf(f->format, sizeof f->format, "_format=%s", codec->name);
    const size_t bytes = kvb_codec_bytes(codec, DIM, KVB_CODES);
    unsigned char *codes[2];
    for (int side = 0; side < 2; side++)
        codes[side] = codes_of(sides[side], r->cells, bytes);
    const kvb_tensor list[] = {
        tensor("q", KVB_DTYPE_F32, filled_q(r, 0), 4, (const uint64_t[]){1, QUERIES, HEADS, DIM}),
        tensor("k", KVB_DTYPE_U8, codes[0], 4, (const uint64_t[]){1, r->cells, KV_HEADS, bytes}),
        tensor("v", KVB_DTYPE_U8, codes[1], 4, (const uint64_t[]){1, r->cells, KV_HEADS, bytes})};
    if (kvb_safetensors_write(tests_path("inputs.safetensors"), list, 3, NULL, why, sizeof why))
        fail_msg("%s", why);
    free(codes[0]);
    free(codes[1]);
}

/* Does `judge` find the call in the files wrong? *rho: the largest. */
static bool files_fail(const files *f, const judge *j, const spoilt *c, double *rho)
{
    static const kvb_dtype dtypes[] = {
        [KVB_F32] = KVB_DTYPE_F32, [KVB_F16] = KVB_DTYPE_F16, [KVB_BF16] = KVB_DTYPE_BF16};
    static unsigned char raw[ELEMENTS * sizeof(float)];
    static double rounded[ELEMENTS];
    kvb_recorded_verdict judged;
    kvb_recordings all;
    char why[512], k_format[96], v_format[96], declared[1200];
    json_t *json = kvb_declaration_json(&j->declared, NULL);
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(json);
    assert_non_null(text);
    snprintf(k_format, sizeof k_format, "k%s", f->format);
    snprintf(v_format, sizeof v_format, "v%s", f->format);
    assert_in_range(snprintf(declared, sizeof declared, "arithmetic=%s", text), 1, sizeof declared - 1);
    free(text);
    const char *const said[] = {
        "layout=bshd", "lse_layout=tokens-first", "causal=lower-right", "scale=1/sqrt(d)", k_format, v_format,
        declared};
    if (c->out_elem == KVB_F32)
        memcpy(raw, c->out, sizeof raw);
    else
        kvb_elems_encode(c->out_elem, raw, c->out, ELEMENTS);
    const kvb_tensor list[] = {
        tensor("out", dtypes[c->out_elem], raw, 4, (const uint64_t[]){1, QUERIES, HEADS, DIM}),
        tensor("lse", KVB_DTYPE_F32, c->lse, 3, (const uint64_t[]){1, QUERIES, HEADS}),
        tensor("q_rounded", KVB_DTYPE_F64, rounded, 4, (const uint64_t[]){1, QUERIES, HEADS, DIM})};
    const float *q = filled_q(c->at, 0);
    for (uint32_t row = 0; row < ROWS && c->kernel->round_query; row++)
        assert_int_equal(c->kernel->round_query(&c->at->call.args.problem, &c->at->call.args.k, row % HEADS,
                                                q + row * DIM, rounded + row * DIM),
                         0);
    int error = kvb_safetensors_write(tests_path("outputs.safetensors"), list, c->kernel->round_query ? 3 : 2, NULL,
                                      why, sizeof why);
    error = error ? error
                  : kvb_recordings_open(tests_path("outputs.safetensors"), tests_path("inputs.safetensors"), said,
                                        sizeof said / sizeof *said, &all, why, sizeof why);
    if (error)
        fail_msg("%s", why);
    assert_int_equal(all.n, 1);
    if (kvb_recorded_judge(&all.calls[0], &(kvb_judge_options){.products = 1e9}, &judged, why, sizeof why))
        fail_msg("%s", why);
    kvb_recordings_close(&all);
    *rho = judged.result.rho;
    return judged.result.status != KVB_STATUS_PASS;
}

/*
 * The rules by which other projects' tests of attention pass an output, from their sources (read in November 2026).
 * Each gets the best conditions: the exact output over the stored rows as its reference, and the type for which it is
 * made. Only the numbers are copied.
 */

/* What a rule compares: the elements of an output, the exact ones, the type, and PyTorch's result in that type. */
typedef struct outputs {
    const float *got;
    const double *exact, *low_precision;
    kvb_elem type; /* KVB_F16, KVB_BF16, or KVB_F32 */
    bool fp8;      /* K and V are fp8 */
} outputs;

typedef struct rule {
    const char *name, *source;
    bool (*passes)(const outputs *o);
} rule;

static bool tolerated(const outputs *o, kvb_tolerance by)
{
    kvb_closeness close = {0};
    kvb_closeness_row(&close, &by, KVB_F32, o->got, ELEMENTS, o->exact, 1);
    return kvb_closeness_share(&close, &by) <= 1;
}

static bool all_close(const outputs *o, double atol, double rtol)
{
    return tolerated(o, (kvb_tolerance){KVB_TOLERANCE_CLOSE, atol, rtol, ""});
}

static bool ggml(const outputs *o)
{
    return tolerated(o, (kvb_tolerance){KVB_TOLERANCE_NMSE, 5e-4, 0, ""});
}

static bool vllm(const outputs *o)
{
    return o->fp8 ? all_close(o, 0.2, 0.1) : all_close(o, 1.5e-2, 1e-2);
}

static bool sglang(const outputs *o)
{
    double dot = 0, got2 = 0, exact2 = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        dot += (double)o->got[i] * o->exact[i];
        got2 += (double)o->got[i] * (double)o->got[i];
        exact2 += o->exact[i] * o->exact[i];
    }
    return dot > 0.99 * sqrt(got2) * sqrt(exact2) && all_close(o, 3e-2, 1e-6);
}

/* FlashAttention: at most twice the error of PyTorch in low precision, plus 1e-5. */
static bool flash_attention(const outputs *o)
{
    double got = 0, low = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double error = fabs((double)o->got[i] - o->exact[i]);
        got = error > got || isnan(error) ? error : got;
        low = fmax(low, fabs(o->low_precision[i] - o->exact[i]));
    }
    return got <= 2 * low + 1e-5;
}

static float rounded_to(float x, kvb_elem type)
{
    uint16_t bits;
    if (type == KVB_F32)
        return x;
    kvb_elems_encode(type, &bits, &x, 1);
    kvb_elems_decode(type, &x, &bits, 1);
    return x;
}

/* benchdnn: rounds both to the type, and judges each element's relative error. If at most 1 of 1024 elements fails, it
 * judges the relative L2 error of all of them. */
static bool benchdnn(const outputs *o)
{
    const double threshold = o->type == KVB_F32 ? 1e-6 : o->type == KVB_F16 ? 0x1p-10 : 0x1p-7;
    double error2 = 0, exact2 = 0;
    size_t failed = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double want = (double)rounded_to((float)o->exact[i], o->type), got = (double)rounded_to(o->got[i], o->type);
        double error = fabs(got - want), size = fabs(want);
        error2 += error * error;
        exact2 += want * want;
        failed += !((size > 1e-5 ? error / size : error) <= threshold);
    }
    return failed == 0 || (failed <= ELEMENTS / 1024 && sqrt(error2) <= 1e-4 * sqrt(exact2));
}

static const rule rules[] = {
    {"ggml", "ggml-org/llama.cpp tests/test-backend-ops.cpp: test_flash_attn_ext::max_nmse_err, 5e-4", ggml},
    {"vLLM",
     "vllm-project/vllm tests/kernels/attention/test_cpu_attn.py: atol 1.5e-2, rtol 1e-2; fp8 atol 0.2, rtol 0.1",
     vllm},
    {"SGLang", "sgl-project/sglang test/srt/cpu/test_decode.py: cosine > 0.99, atol 3e-2, rtol 1e-6", sglang},
    {"FlashAttention",
     "Dao-AILab/flash-attention hopper/test_flash_attn.py: largest error <= 2 x that of pytorch in low precision + "
     "1e-5",
     flash_attention},
    {"benchdnn",
     "oneapi-src/oneDNN tests/benchdnn: matmul.cpp setup_cmp (1e-6 for f32, else the type's epsilon), "
     "utils/compare.cpp, and "
     "graph/ref_primitive.cpp (1 of 1024 may fail if the relative L2 error is at most 1e-4)",
     benchdnn},
};
enum { RULES = sizeof rules / sizeof *rules };

/*
 * Attention as in PyTorch in f16 or bf16, the reference of FlashAttention's tests (attention_ref with upcast=False,
 * reorder_ops=True): K / sqrt(dim), scores, softmax and output are rounded to the type; sums are not.
 */
static void low_precision(const filled *r, kvb_elem type, double *out)
{
    static float k[DIM], v[DIM];
    float scale = (float)r->spec->group->scale, *scores = malloc((size_t)r->cells * sizeof *scores);
    const float *q = filled_q(r, 0);
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t head = row % HEADS / (HEADS / KV_HEADS), n = r->cells - QUERIES + row / HEADS + 1;
        double max = -INFINITY, sum = 0, *to = out + (size_t)row * DIM;
        for (uint32_t i = 0; i < n; i++) {
            double s = 0;
            r->spec->k.format->read(&r->spec->k, head, i, 1, k);
            for (uint32_t c = 0; c < DIM; c++)
                s += (double)q[row * DIM + c] * (double)rounded_to(k[c] * scale, type);
            scores[i] = rounded_to((float)s, type);
            max = fmax(max, (double)scores[i]);
        }
        for (uint32_t i = 0; i < n; i++)
            sum += exp((double)scores[i] - max);
        memset(to, 0, DIM * sizeof *to);
        for (uint32_t i = 0; i < n; i++) {
            double p = (double)rounded_to((float)(exp((double)scores[i] - max) / sum), type);
            r->spec->v.format->read(&r->spec->v, head, i, 1, v);
            for (uint32_t c = 0; c < DIM; c++)
                to[c] += p * (double)v[c];
        }
        for (uint32_t c = 0; c < DIM; c++)
            to[c] = (double)rounded_to((float)to[c], type);
    }
    free(scores);
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */

typedef struct scene {
    const char *pool, *profile;
    uint32_t cells;
} scene;

static const scene scenes[] = {{"f32", "gaussian", 64},        {"bf16", "gaussian", 64},     {"a4g64", "gaussian", 64},
                               {"e4m3-head", "gaussian", 512}, {"q4_0", "gaussian", 512},    {"int8", "llama", 512},
                               {"f16", "gaussian", 4096},      {"bf16", "gaussian", 4096},   {"q8_0", "gaussian", 4096},
                               {"a4g32", "needle", 4096},      {"int8+had", "gaussian", 512}};
enum { SCENES = sizeof scenes / sizeof *scenes };

static void mistakes_fail(void **state)
{
    const scene *s = *state;
    filled r;
    files f;
    judge j;
    rows_open(&r, s->cells, pool_named(s->pool), s->profile);
    files_open(&r, s->cells <= 512, &f);
    for (size_t k = 0; kvb_builtin_kernels[k]; k++) {
        const kvb_kernel *kernel = kvb_builtin_kernels[k];
        if (!honest_run(&r, kernel, KVB_F32, &honest))
            continue;
        judge_open(&honest, &j);
        double rho = rho_of(&honest, &j, true), in_files = 0;
        print_message("# %s, %s, %u cells, %s: %.3g", s->pool, s->profile, s->cells, kernel->name, rho);
        assert_true(rho <= 1 && rho > 0);
        if (f.held) {
            assert_false(files_fail(&f, &j, &honest, &in_files));
            print_message(" (%.3g in files)", in_files);
        }
        const double found = sums_in_f16(kernel->name) ? fmin(1, 2 * rho) : 1;
        bool uniform = strcmp(s->profile, "gaussian") == 0; /* each cell has a weight that matters */
        for (const spoil *m = mistakes; m < mistakes + MISTAKES; m++) {
            if (!spoilt_make(&honest, m, &call))
                continue;
            rho = rho_of(&call, &j, true);
            print_message(", %s %.3g", m->name, rho);
            /* with other profiles one cell may matter little; rounded weights may hide one V row */
            if ((uniform || !m->of_one_cell) && (!kernel->round_query || !m->of_v)) {
                assert_true(rho > found);
                if (f.held && found == 1)
                    assert_true(files_fail(&f, &j, &call, &in_files));
            }
        }
        print_message("\n");
        judge_close(&j);
    }
    filled_close(&r);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static bool bound_fails(const void *by, const spoilt *c)
{
    return rho_of(c, by, false) > 1;
}

typedef struct by_rule {
    const rule *rule;
    outputs outputs;
} by_rule;

static bool rule_fails(const void *by, const spoilt *c)
{
    const by_rule *b = by;
    outputs o = b->outputs;
    o.got = c->out;
    return !b->rule->passes(&o);
}

static void number_print(const char *key, double x)
{
    printf(", \"%s\": ", key);
    if (isfinite(x))
        printf("%.4g", x);
    else
        printf("null");
}

/* Prints one line, for a kernel, a format and a length. */
static void row_print(filled *r, const files *f, const kvb_kernel *kernel, const kvb_pool_type *pool, kvb_elem out_elem,
                      const double *low)
{
    static const char *const outs[] = {[KVB_F32] = "f32", [KVB_F16] = "f16", [KVB_BF16] = "bf16"};
    static double exact[ELEMENTS];
    double rho[ROWS], in_files, l2;
    judge j;
    if (!honest_run(r, kernel, out_elem, &honest))
        return;
    judge_open(&honest, &j);
    for (size_t row = 0; row < ROWS; row++) {
        kvb_diff diff = {0};
        row_judge(&honest, &j, row, true, &diff);
        rho[row] = diff.rho;
    }
    for (size_t i = 0; i < ELEMENTS; i++)
        exact[i] = j.own[i / DIM].terms[i % DIM].o;
    kvb_doubles_sort(rho, ROWS);
    printf("{\"kernel\": \"%s\", \"format\": \"%s\", \"out\": \"%s\", \"cells\": %u, \"rounds\": %s", kernel->name,
           pool->name, outs[out_elem], r->cells, kernel->round_query ? "true" : "false");
    number_print("rho_median", rho[ROWS / 2]);
    number_print("rho_max", rho[ROWS - 1]);
    number_print("own_error", own_error(&honest, j.own, &l2));
    number_print("own_l2", l2);
    if (f->held)
        printf(", \"files\": %s", files_fail(f, &j, &honest, &in_files) ? "true" : "false");
    number_print("smallest", smallest_failing(bound_fails, &j, &honest));

    by_rule by[RULES];
    for (size_t i = 0; i < RULES; i++) {
        const kvb_elem elem = pool->format->elem;
        by[i] = (by_rule){&rules[i],
                          {.exact = exact,
                           .low_precision = low,
                           .type = elem == KVB_F32 || elem == KVB_F16 ? elem : KVB_BF16,
                           .fp8 = elem == KVB_E4M3 || elem == KVB_E5M2}};
        number_print(rules[i].name, smallest_failing(rule_fails, &by[i], &honest));
    }
    printf(", \"mistakes\": {");
    for (size_t m = 0, n = 0; m < MISTAKES; m++) {
        if (!spoilt_make(&honest, &mistakes[m], &call))
            continue;
        printf("%s\"%s\": {\"rho\": %.4g, \"out\": %.4g", n++ ? ", " : "", mistakes[m].name,
               fmin(rho_of(&call, &j, true), 1e300), fmin(rho_of(&call, &j, false), 1e300));
        if (f->held)
            printf(", \"files\": %s", files_fail(f, &j, &call, &in_files) ? "true" : "false");
        for (size_t i = 0; i < RULES; i++)
            printf(", \"%s\": %s", rules[i].name, rule_fails(&by[i], &call) ? "true" : "false");
        printf("}");
    }
    printf("}}\n");
    fflush(stdout);
    judge_close(&j);
}

static int table_print(uint32_t cells, const char *pattern)
{
    double *low = malloc(ELEMENTS * sizeof *low);
    for (size_t i = 0; i < RULES; i++)
        printf("{\"rule\": \"%s\", \"source\": \"%s\"}\n", rules[i].name, rules[i].source);
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        for (const kvb_pool_type *pool = *p; pool; pool = pool->rotated) {
            filled r;
            files f;
            if (fnmatch(pattern, pool->name, 0) != 0 || strcmp(pool->format->name, "f32+had") == 0 ||
                pool->format->residual_cells) /* a row depends on its neighbours */
                continue;
            rows_open(&r, cells, pool, "gaussian");
            files_open(&r, cells <= MOST_IN_FILES, &f);
            low_precision(&r, pool->format->elem == KVB_F16 ? KVB_F16 : KVB_BF16, low);
            for (size_t k = 0; kvb_builtin_kernels[k]; k++)
                for (size_t out = 0; out < 3; out++) {
                    static const kvb_elem outs[] = {KVB_F32, KVB_F16, KVB_BF16};
                    bool wanted = out == 0 || (kvb_builtin_kernels[k] == &kvb_kernel_flash && pool == *p &&
                                               pool->format->elem == outs[out]);
                    if (wanted)
                        row_print(&r, &f, kvb_builtin_kernels[k], pool, outs[out], low);
                }
            filled_close(&r);
        }
    free(low);
    return tests_clean();
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--table") == 0)
        return table_print((uint32_t)strtoul(argv[2], NULL, 10), argc > 3 ? argv[3] : "*");
    char names[SCENES][64];
    for (size_t i = 0; i < SCENES; i++) {
        snprintf(names[i], sizeof names[i], "%s_%s_%u", scenes[i].pool, scenes[i].profile, scenes[i].cells);
        tests_add(__LINE__, (struct CMUnitTest){names[i], mistakes_fail, NULL, NULL, (void *)(uintptr_t)&scenes[i]});
    }
    return tests_run();
}
