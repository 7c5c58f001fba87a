/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: what the oracle finds over real pools, beside what other projects' rules let pass. */
#include <float.h>
#include <fnmatch.h>
#include <jansson.h>
#include <unistd.h>

#include "ci/tests/tests.h"
#include "ci/tests/whole/filled.h"
#include "ci/tests/whole/parts.h"
#include "harness/judge/judge.h"
#include "harness/judge/recorded.h"
#include "harness/replay/pool_watch.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "oracle/codec.h"
#include "oracle/rounded.h"
#include "oracle/oracle.h"

/*
 * The last queries of a long sequence over rows stored in a real pool, attended by real kernels, as they are or with
 * something spoilt on the way, and judged by the oracle of what is stored.
 */

/* Shapes of the one layer. ROWS: of the step, a query and a query head each. */
enum { QUERIES = 4, HEADS = 16, KV_HEADS = 2, DIM = 128, ROWS = QUERIES * HEADS };

static const char power_model[] =
    "{'kv_cache.schema_version':2,'kv_cache.layers':1,'groups':[{'layers':[0],'heads':16,'kv_heads':2,'k_dim':128,"
    "'v_dim':128}]}";

static kvb_pool_wrap power_types[2]; /* K, V */
static kvb_pool *power_pools[2];     /* opened last */

static inline int power_pool_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    int error = kvb_pool_passing.open(type, options, pool);
    power_pools[type == &power_types[1].type] = *pool;
    return error;
}

static inline void power_open(filled *r, uint32_t cells, const kvb_pool_type *pool, const char *profile)
{
    for (int side = 0; side < 2; side++) {
        power_types[side] = kvb_pool_wrap_of(pool);
        power_types[side].type.open = power_pool_open;
    }
    filled_open(r, power_model, cells, QUERIES, &power_types[0].type, &power_types[1].type, profile);
    assert_int_equal(r->oracle->n_rows, ROWS);
}

/* ---- a call, spoilt ---------------------------------------------------------------------------------------------- */

/* What a kernel is handed, and what becomes of it. */
typedef struct power_call {
    const filled *at;
    kvb_attend_spec spec;
    kvb_group group; /* the spec's */
    float q[ROWS * DIM];
    uint32_t row_start[QUERIES + 1];
    kvb_run runs[2 * QUERIES];
    bool replaced[2]; /* of K, of V: the row of this cell */
    uint32_t cell;
    bool zero; /* the output becomes 0 */
    float out[ROWS * DIM], lse[ROWS];
    kvb_elem out_elem; /* what out was written as */
} power_call;

/* No query sees the cell. */
static inline void power_hide(power_call *c, uint32_t cell)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < QUERIES; t++) {
        uint32_t end = c->at->cells - QUERIES + t + 1, part[2][2] = {{0, cell < end ? cell : end}, {cell + 1, end}};
        c->row_start[t] = n;
        for (int i = 0; i < 2; i++)
            if (part[i][0] < part[i][1])
                c->runs[n++] = (kvb_run){part[i][0], part[i][1]};
    }
    c->row_start[QUERIES] = n;
    c->spec.mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = c->row_start, .runs = c->runs};
    c->spec.generation = 0;
}

/* One side's row of a cell is another cell's, until the kernel has run. */
static inline void power_replace(power_call *c, bool of_v, uint32_t cell, uint32_t by)
{
    power_pools[of_v]->type->gather_into(power_pools[of_v], cell, &by, 1);
    c->replaced[of_v] = true;
    c->cell = cell;
}

static inline void power_restore(const power_call *c)
{
    for (int side = 0; side < 2; side++)
        if (c->replaced[side])
            power_pools[side]->type->write_run(
                power_pools[side], c->cell, 1,
                kvb_values_rows(c->at->values, side ? KVB_ROWS_V : KVB_ROWS_K, 0, c->cell));
}

typedef void power_spoil(power_call *call);

/* Runs it into call->out and call->lse. false: the kernel does not take it. */
static inline bool power_attend(filled *r, const kvb_kernel *kernel, kvb_elem out_elem, power_spoil *spoil,
                                power_call *c)
{
    static unsigned char raw[ROWS * DIM * sizeof(float)];
    *c = (power_call){.at = r, .spec = *r->spec, .group = *r->spec->group, .out_elem = out_elem};
    c->spec.group = &c->group;
    c->spec.generation = 0;
    memcpy(c->q, filled_q(r, 0), sizeof c->q);
    if (spoil)
        spoil(c);
    const bool taken = filled_attend(r, kernel, &c->spec, c->q, out_elem, raw, c->lse);
    power_restore(c);
    if (!taken)
        return false;
    if (c->zero)
        memset(raw, 0, sizeof raw);
    if (out_elem == KVB_F32)
        memcpy(c->out, raw, sizeof c->out);
    else
        kvb_elems_decode(out_elem, c->out, raw, ROWS * DIM);
    return true;
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

/* What the outputs of one kernel are judged by. */
typedef struct power_judge {
    const kvb_expect *rows; /* [ROWS] by query and head */
    kvb_rounded *rounded;
    kvb_arithmetic arithmetic, declared; /* less what it rounds q to, which is known; with it */
    double exact[ROWS * DIM];            /* attention of q itself, in double */
} power_judge;

/* After an honest call of the kernel. */
static inline void power_judge_open(filled *r, const kvb_kernel *kernel, power_judge *j)
{
    char why[256];
    size_t n;
    assert_int_equal(kvb_rounded_open(r->oracle, kernel, &j->rounded), 0);
    kvb_call_arithmetic(&r->call, &j->arithmetic);
    j->declared = j->arithmetic;
    if (kvb_rounded_rows(j->rounded, &r->call.args, 1, 0, &j->arithmetic, &j->rows, &n, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(n, ROWS);
    for (size_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < DIM; c++)
            j->exact[i * DIM + c] = r->oracle->rows[i].terms[c].o;
}

/* rho of one row's out, and of the log-sum-exp unless lse is NULL. */
static inline kvb_diff power_row_diff(const filled *r, const power_judge *j, size_t row, const float *out,
                                      kvb_elem out_elem, const float *lse)
{
    unsigned char raw[DIM * sizeof(float)];
    kvb_diff diff = {0};
    if (out_elem == KVB_F32)
        memcpy(raw, out, DIM * sizeof *out);
    else
        kvb_elems_encode(out_elem, raw, out, DIM);
    kvb_diff_row(&diff, &j->rows[row], DIM, &j->arithmetic, r->spec->group->scale, (double)r->spec->group->softcap,
                 out_elem, raw, lse);
    return diff;
}

/* The largest rho of all rows. */
static inline double power_rho(const filled *r, const power_judge *j, const power_call *c, bool with_lse)
{
    double rho = 0;
    for (size_t row = 0; row < ROWS; row++)
        rho = fmax(rho, power_row_diff(r, j, row, c->out + row * DIM, c->out_elem, with_lse ? &c->lse[row] : NULL).rho);
    return rho;
}

/* ---- through files ----------------------------------------------------------------------------------------------- */

/*
 * The same call as `kvbench judge` knows it: arrays in files, rows as they are stored, and what the kernel declares. One file
 * has q, K and V, another the outputs.
 */
enum { MOST_IN_FILES = 4096 }; /* cells: judging longer ones by each other reading takes hours */

typedef struct power_files {
    bool held; /* files hold rows of this format: codes alone */
    char folder[256], inputs[300], outputs[300], format[80];
} power_files;

static inline kvb_tensor power_tensor(const char *name, kvb_dtype dtype, const void *data, uint32_t n_dims,
                                      const uint64_t *dims)
{
    kvb_tensor t = {.name = name, .dtype = dtype, .n_dims = n_dims, .data = data};
    memcpy(t.dims, dims, n_dims * sizeof *dims);
    assert_int_equal(kvb_tensor_shape(&t, false), 0);
    return t;
}

/* All rows of one side [cells][KV_HEADS][bytes], which the caller frees. */
static inline unsigned char *power_codes(const kvb_view *view, uint32_t cells, size_t bytes)
{
    unsigned char *codes = malloc((size_t)cells * KV_HEADS * bytes);
    assert_non_null(codes);
    for (uint32_t c = 0; c < cells; c++)
        for (uint32_t h = 0; h < KV_HEADS; h++)
            memcpy(codes + ((size_t)c * KV_HEADS + h) * bytes, kvb_view_row(view, h, c), bytes);
    return codes;
}

/* wanted: else nothing is written, as for a format that files do not hold. */
static inline void power_files_open(const filled *r, bool wanted, power_files *f)
{
    const kvb_view *const sides[] = {&r->spec->k, &r->spec->v};
    const kvb_format *format = sides[0]->format;
    const kvb_codec *codec = kvb_codec_find(format->name);
    const char *tmp = getenv("TMPDIR");
    char why[512];
    *f = (power_files){.held = wanted && codec && codec->block == 1 && !format->transform && !format->head_scale &&
                               !sides[0]->scales && !sides[0]->zeros};
    if (!f->held)
        return;
    snprintf(f->folder, sizeof f->folder, "%s/kvb-power-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->inputs, sizeof f->inputs, "%s/inputs.safetensors", f->folder);
    snprintf(f->outputs, sizeof f->outputs, "%s/outputs.safetensors", f->folder);
    snprintf(f->format, sizeof f->format, "_format=%s", codec->name);
    const size_t bytes = kvb_codec_bytes(codec, DIM, KVB_CODES);
    unsigned char *codes[2];
    for (int side = 0; side < 2; side++)
        codes[side] = power_codes(sides[side], r->cells, bytes);
    const kvb_tensor list[] = {
        power_tensor("q", KVB_DTYPE_F32, filled_q(r, 0), 4, (const uint64_t[]){1, QUERIES, HEADS, DIM}),
        power_tensor("k", KVB_DTYPE_U8, codes[0], 4, (const uint64_t[]){1, r->cells, KV_HEADS, bytes}),
        power_tensor("v", KVB_DTYPE_U8, codes[1], 4, (const uint64_t[]){1, r->cells, KV_HEADS, bytes})};
    if (kvb_tensors_write(f->inputs, list, 3, NULL, why, sizeof why))
        fail_msg("%s", why);
    free(codes[0]);
    free(codes[1]);
}

static inline void power_files_close(const power_files *f)
{
    if (!f->held)
        return;
    unlink(f->inputs);
    unlink(f->outputs);
    rmdir(f->folder);
}

/* Does judging the files find the call wrong? *rho: its largest. */
static inline bool power_files_fail(const power_files *f, const kvb_kernel *kernel, const kvb_arithmetic *arithmetic,
                                    const power_call *c, double *rho)
{
    static const kvb_dtype dtypes[] = {
        [KVB_F32] = KVB_DTYPE_F32, [KVB_F16] = KVB_DTYPE_F16, [KVB_BF16] = KVB_DTYPE_BF16};
    static unsigned char raw[ROWS * DIM * sizeof(float)];
    static double rounded[ROWS * DIM];
    kvb_recorded_verdict judged;
    kvb_recordings all;
    char why[512], k_format[96], v_format[96], declared[1200];
    json_t *json = kvb_declaration_json(arithmetic, NULL);
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
        memcpy(raw, c->out, sizeof c->out);
    else
        kvb_elems_encode(c->out_elem, raw, c->out, ROWS * DIM);
    const kvb_tensor list[] = {
        power_tensor("out", dtypes[c->out_elem], raw, 4, (const uint64_t[]){1, QUERIES, HEADS, DIM}),
        power_tensor("lse", KVB_DTYPE_F32, c->lse, 3, (const uint64_t[]){1, QUERIES, HEADS}),
        power_tensor("q_rounded", KVB_DTYPE_F64, rounded, 4, (const uint64_t[]){1, QUERIES, HEADS, DIM})};
    const float *q = filled_q(c->at, 0);
    for (uint32_t row = 0; row < ROWS && kernel->round_query; row++)
        assert_int_equal(kernel->round_query(&c->at->call.args.problem, &c->at->call.args.k, row % HEADS, q + row * DIM,
                                             rounded + row * DIM),
                         0);
    int error = kvb_tensors_write(f->outputs, list, kernel->round_query ? 3 : 2, NULL, why, sizeof why);
    error = error ? error
                  : kvb_recordings_open(f->outputs, f->inputs, said, sizeof said / sizeof *said, &all, why, sizeof why);
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
 * By which rules other projects' tests of attention pass an output, as their sources have them (read in November 2026).
 * Each is given what it is most at home with: the exact output over the stored rows for its reference, and the type
 * that it is for. Nothing of theirs is copied but the numbers. Include after power_rig.h.
 */

/* What a rule compares: n elements of an output, the exact ones, their type, and what pytorch would compute in that
 * type. */
typedef struct power_outputs {
    const float *got;
    const double *exact, *low_precision;
    kvb_elem type; /* KVB_F16, KVB_BF16, or KVB_F32 */
    bool fp8;      /* K and V are */
} power_outputs;

typedef struct power_rule {
    const char *name, *source;
    bool (*passes)(const power_outputs *o);
} power_rule;

enum { ELEMENTS = ROWS * DIM };

static inline bool power_tolerated(const power_outputs *o, kvb_tolerance rule)
{
    kvb_closeness close = {0};
    kvb_closeness_row(&close, &rule, KVB_F32, o->got, ELEMENTS, o->exact, 1);
    return kvb_closeness_share(&close, &rule) <= 1;
}

static inline bool power_all_close(const power_outputs *o, double atol, double rtol)
{
    return power_tolerated(o, (kvb_tolerance){KVB_TOLERANCE_CLOSE, atol, rtol, ""});
}

static inline bool power_ggml(const power_outputs *o)
{
    return power_tolerated(o, (kvb_tolerance){KVB_TOLERANCE_NMSE, 5e-4, 0, ""});
}

static inline bool power_vllm(const power_outputs *o)
{
    return o->fp8 ? power_all_close(o, 0.2, 0.1) : power_all_close(o, 1.5e-2, 1e-2);
}

static inline bool power_sglang(const power_outputs *o)
{
    double dot = 0, got2 = 0, exact2 = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        dot += (double)o->got[i] * o->exact[i];
        got2 += (double)o->got[i] * (double)o->got[i];
        exact2 += o->exact[i] * o->exact[i];
    }
    return dot > 0.99 * sqrt(got2) * sqrt(exact2) && power_all_close(o, 3e-2, 1e-6);
}

/* FlashAttention: at most twice the error of pytorch in low precision, and 1e-5. */
static inline bool power_flash_attention(const power_outputs *o)
{
    double got = 0, low = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double error = fabs((double)o->got[i] - o->exact[i]);
        got = error > got || isnan(error) ? error : got;
        low = fmax(low, fabs(o->low_precision[i] - o->exact[i]));
    }
    return got <= 2 * low + 1e-5;
}

static inline float power_round(float x, kvb_elem type)
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
static inline bool power_benchdnn(const power_outputs *o)
{
    const double threshold = o->type == KVB_F32 ? 1e-6 : o->type == KVB_F16 ? 0x1p-10 : 0x1p-7;
    double error2 = 0, exact2 = 0;
    size_t failed = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double want = (double)power_round((float)o->exact[i], o->type), got = (double)power_round(o->got[i], o->type);
        double error = fabs(got - want), size = fabs(want);
        error2 += error * error;
        exact2 += want * want;
        failed += !((size > 1e-5 ? error / size : error) <= threshold);
    }
    return failed == 0 || (failed <= ELEMENTS / 1024 && sqrt(error2) <= 1e-4 * sqrt(exact2));
}

static const power_rule power_rules[] = {
    {"ggml", "ggml-org/llama.cpp tests/test-backend-ops.cpp: test_flash_attn_ext::max_nmse_err, 5e-4", power_ggml},
    {"vLLM",
     "vllm-project/vllm tests/kernels/attention/test_cpu_attn.py: atol 1.5e-2, rtol 1e-2; fp8 atol 0.2, rtol 0.1",
     power_vllm},
    {"SGLang", "sgl-project/sglang test/srt/cpu/test_decode.py: cosine > 0.99, atol 3e-2, rtol 1e-6", power_sglang},
    {"FlashAttention",
     "Dao-AILab/flash-attention hopper/test_flash_attn.py: largest error <= 2 x that of pytorch in low precision + "
     "1e-5",
     power_flash_attention},
    {"benchdnn",
     "oneapi-src/oneDNN tests/benchdnn: matmul.cpp setup_cmp (1e-6 for f32, else the type's epsilon), "
     "utils/compare.cpp, and "
     "graph/ref_primitive.cpp (1 of 1024 may fail if the relative L2 error is at most 1e-4)",
     power_benchdnn},
};
enum { RULES = sizeof power_rules / sizeof *power_rules };

/*
 * Attention as pytorch does it in f16 or bf16, which FlashAttention's tests take for a yardstick (attention_ref with
 * upcast=False, reorder_ops=True): K / sqrt(dim), scores, softmax and output are rounded to the type; sums are not.
 */
static inline void power_low_precision(const filled *r, kvb_elem type, double *out)
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
                s += (double)q[row * DIM + c] * (double)power_round(k[c] * scale, type);
            scores[i] = power_round((float)s, type);
            max = fmax(max, (double)scores[i]);
        }
        for (uint32_t i = 0; i < n; i++)
            sum += exp((double)scores[i] - max);
        memset(to, 0, DIM * sizeof *to);
        for (uint32_t i = 0; i < n; i++) {
            double p = (double)power_round((float)(exp((double)scores[i] - max) / sum), type);
            r->spec->v.format->read(&r->spec->v, head, i, 1, v);
            for (uint32_t c = 0; c < DIM; c++)
                to[c] += p * (double)v[c];
        }
        for (uint32_t c = 0; c < DIM; c++)
            to[c] = (double)power_round((float)to[c], type);
    }
    free(scores);
}

/*
 * Shows what the oracle finds: honest kernels pass, and a key dropped at any place, a stale row, a scale off by a thousandth,
 * two heads swapped and an output of 0 fail, in every kernel. A wrong row of V alone fails where weights are not rounded.
 *
 *     test_power --table CELLS [FORMAT]     the same for every format, in process and through files of up to 4096 cells, with what
 *                                           other projects' rules let pass: JSON lines
 */

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

static void first_dropped(power_call *c)
{
    power_hide(c, 0);
}

static void middle_dropped(power_call *c)
{
    power_hide(c, c->at->cells / 2);
}

static void last_dropped(power_call *c)
{
    power_hide(c, c->at->cells - 1);
}

static void row_stale(power_call *c)
{
    power_replace(c, false, c->at->cells / 2, 3);
    power_replace(c, true, c->at->cells / 2, 3);
}

static void v_of_a_neighbour(power_call *c)
{
    power_replace(c, true, c->at->cells / 2, c->at->cells / 2 + 1);
}

static void scaled_by_101(power_call *c)
{
    c->group.scale *= 1.01;
}

static void scaled_by_1001(power_call *c)
{
    c->group.scale *= 1.001;
}

static void heads_swapped(power_call *c)
{
    float head[DIM];
    memcpy(head, c->q, sizeof head);
    memcpy(c->q, c->q + DIM, sizeof head);
    memcpy(c->q + DIM, head, sizeof head);
}

static void output_zero(power_call *c)
{
    c->zero = true;
}

typedef struct mistake {
    const char *name;
    power_spoil *spoil;
    bool of_one_cell; /* what it changes is of the size of one weight, … */
    bool of_v;        /* … and the log-sum-exp not at all */
} mistake;

static const mistake mistakes[] = {
    {"first key dropped", first_dropped, true, false},
    {"middle key dropped", middle_dropped, true, false},
    {"last key dropped", last_dropped, true, false},
    {"stale row", row_stale, true, false},
    {"V of a neighbour", v_of_a_neighbour, true, true},
    {"scale * 1.01", scaled_by_101, false, false},
    {"scale * 1.001", scaled_by_1001, false, false},
    {"heads swapped", heads_swapped, false, false},
    {"output 0", output_zero, false, false},
};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

static bool is_here(const kvb_kernel *kernel)
{
    char why[256];
    return kernel->attend && !(kernel->flags & KVB_KERNEL_WITNESS) &&
           (!kernel->available || kernel->available(why, sizeof why));
}

static power_call call; /* large */

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
    const kvb_pool_type *pool = pool_named(s->pool);
    static power_judge judge;
    filled r;
    power_files files;
    power_open(&r, s->cells, pool, s->profile);
    power_files_open(&r, s->cells <= 512, &files);
    for (size_t k = 0; kvb_builtin_kernels[k]; k++) {
        const kvb_kernel *kernel = kvb_builtin_kernels[k];
        if (!is_here(kernel) || !power_attend(&r, kernel, KVB_F32, NULL, &call))
            continue;
        power_judge_open(&r, kernel, &judge);
        double rho = power_rho(&r, &judge, &call, true);
        print_message("# %s, %s, %u cells, %s: %.3g", s->pool, s->profile, s->cells, kernel->name, rho);
        assert_true(rho <= 1 && rho > 0);
        double in_files = 0;
        if (files.held) {
            assert_false(power_files_fail(&files, kernel, &judge.declared, &call, &in_files));
            print_message(" (%.3g in files)", in_files);
        }
        const double found = sums_in_f16(kernel->name) ? fmin(1, 2 * rho) : 1;
        bool uniform = strcmp(s->profile, "gaussian") == 0; /* each cell has a weight that matters */
        for (const mistake *m = mistakes; m < mistakes + MISTAKES; m++) {
            if (!power_attend(&r, kernel, KVB_F32, m->spoil, &call))
                continue;
            rho = power_rho(&r, &judge, &call, true);
            print_message(", %s %.3g", m->name, rho);
            /* one cell of a sink's or a needle's decides little; one V row hides among rounded weights */
            if ((uniform || !m->of_one_cell) && (!kernel->round_query || !m->of_v)) {
                assert_true(rho > found);
                if (files.held && found == 1)
                    assert_true(power_files_fail(&files, kernel, &judge.declared, &call, &in_files));
            }
        }
        print_message("\n");
        kvb_rounded_free(judge.rounded);
    }
    power_files_close(&files);
    filled_close(&r);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest relative error of all outputs alike that `fails`, by bisection. */
static double smallest_failing(bool (*fails)(const void *ctx, const power_call *spoilt), const void *ctx,
                               const power_call *honest)
{
    static power_call spoilt;
    double low = 1e-9, high = 100;
    if (fails(ctx, honest))
        return 0;
    while (high / low > 1.02) {
        double e = sqrt(low * high);
        spoilt = *honest;
        for (size_t i = 0; i < ELEMENTS; i++)
            spoilt.out[i] = (float)((double)honest->out[i] * (1 + e));
        if (fails(ctx, &spoilt))
            high = e;
        else
            low = e;
    }
    return high;
}

typedef struct by_bound {
    const filled *at;
    const power_judge *judge;
} by_bound;

static bool bound_fails(const void *ctx, const power_call *c)
{
    const by_bound *b = ctx;
    return power_rho(b->at, b->judge, c, false) > 1;
}

typedef struct by_rule {
    const power_rule *rule;
    power_outputs outputs;
} by_rule;

static bool rule_fails(const void *ctx, const power_call *c)
{
    const by_rule *b = ctx;
    power_outputs o = b->outputs;
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

/* One line: a kernel over a format and a length. */
static void row_print(filled *r, const power_files *files, const kvb_kernel *kernel, const kvb_pool_type *pool,
                      kvb_elem out_elem, const double *low)
{
    static const char *const outs[] = {[KVB_F32] = "f32", [KVB_F16] = "f16", [KVB_BF16] = "bf16"};
    static power_judge judge;
    static power_call honest;
    double rho[ROWS], error = 0, largest = 0, error2 = 0, exact2 = 0;
    if (!power_attend(r, kernel, out_elem, NULL, &honest))
        return;
    power_judge_open(r, kernel, &judge);
    for (size_t row = 0; row < ROWS; row++)
        rho[row] = power_row_diff(r, &judge, row, honest.out + row * DIM, out_elem, &honest.lse[row]).rho;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double off = fabs((double)honest.out[i] - judge.exact[i]);
        error = fmax(error, off);
        largest = fmax(largest, fabs(judge.exact[i]));
        error2 += off * off;
        exact2 += judge.exact[i] * judge.exact[i];
    }
    qsort(rho, ROWS, sizeof *rho, by_size);
    printf("{\"kernel\": \"%s\", \"format\": \"%s\", \"out\": \"%s\", \"cells\": %u, \"rounds\": %s", kernel->name,
           pool->name, outs[out_elem], r->cells, kernel->round_query ? "true" : "false");
    number_print("rho_median", rho[ROWS / 2]);
    number_print("rho_max", rho[ROWS - 1]);
    number_print("own_error", error / largest);
    number_print("own_l2", sqrt(error2 / exact2));
    double in_files;
    if (files->held)
        printf(", \"files\": %s",
               power_files_fail(files, kernel, &judge.declared, &honest, &in_files) ? "true" : "false");
    number_print("smallest", smallest_failing(bound_fails, &(by_bound){r, &judge}, &honest));

    by_rule rules[RULES];
    for (size_t i = 0; i < RULES; i++) {
        const kvb_elem elem = pool->format->elem;
        rules[i] = (by_rule){&power_rules[i],
                             {.exact = judge.exact,
                              .low_precision = low,
                              .type = elem == KVB_F32 || elem == KVB_F16 ? elem : KVB_BF16,
                              .fp8 = elem == KVB_E4M3 || elem == KVB_E5M2}};
        number_print(power_rules[i].name, smallest_failing(rule_fails, &rules[i], &honest));
    }
    printf(", \"mistakes\": {");
    for (size_t m = 0, n = 0; m < MISTAKES; m++) {
        if (!power_attend(r, kernel, out_elem, mistakes[m].spoil, &call))
            continue;
        printf("%s\"%s\": {\"rho\": %.4g, \"out\": %.4g", n++ ? ", " : "", mistakes[m].name,
               fmin(power_rho(r, &judge, &call, true), 1e300), fmin(power_rho(r, &judge, &call, false), 1e300));
        if (files->held)
            printf(", \"files\": %s",
                   power_files_fail(files, kernel, &judge.declared, &call, &in_files) ? "true" : "false");
        for (size_t i = 0; i < RULES; i++)
            printf(", \"%s\": %s", power_rules[i].name, rule_fails(&rules[i], &call) ? "true" : "false");
        printf("}");
    }
    printf("}}\n");
    fflush(stdout);
    kvb_rounded_free(judge.rounded);
}

static int table_print(uint32_t cells, const char *pattern)
{
    double *low = malloc(ELEMENTS * sizeof *low);
    for (size_t i = 0; i < RULES; i++)
        printf("{\"rule\": \"%s\", \"source\": \"%s\"}\n", power_rules[i].name, power_rules[i].source);
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        for (const kvb_pool_type *pool = *p; pool; pool = pool->rotated) {
            filled r;
            power_files files;
            if (fnmatch(pattern, pool->name, 0) != 0 || strcmp(pool->format->name, "f32+had") == 0 ||
                pool->format->residual_cells) /* rows depend on their neighbours */
                continue;
            power_open(&r, cells, pool, "gaussian");
            power_files_open(&r, cells <= MOST_IN_FILES, &files);
            power_low_precision(&r, pool->format->elem == KVB_F16 ? KVB_F16 : KVB_BF16, low);
            for (size_t k = 0; kvb_builtin_kernels[k]; k++)
                for (size_t out = 0; out < 3; out++) {
                    static const kvb_elem outs[] = {KVB_F32, KVB_F16, KVB_BF16};
                    bool wanted = out == 0 || (kvb_builtin_kernels[k] == &kvb_kernel_flash && pool == *p &&
                                               pool->format->elem == outs[out]);
                    if (wanted && is_here(kvb_builtin_kernels[k]))
                        row_print(&r, &files, kvb_builtin_kernels[k], pool, outs[out], low);
                }
            power_files_close(&files);
            filled_close(&r);
        }
    free(low);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--table") == 0)
        return table_print((uint32_t)strtoul(argv[2], NULL, 10), argc > 3 ? argv[3] : "*");
    struct CMUnitTest tests[SCENES];
    char names[SCENES][64];
    for (size_t i = 0; i < SCENES; i++) {
        snprintf(names[i], sizeof names[i], "%s_%s_%u", scenes[i].pool, scenes[i].profile, scenes[i].cells);
        tests[i] = (struct CMUnitTest){
            .name = names[i], .test_func = mistakes_fail, .initial_state = (void *)(uintptr_t)&scenes[i]};
    }
    return cmocka_run_group_tests_name("power", tests, NULL, NULL);
}
