/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/judge/make.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "caches/pools/pool.h"
#include "harness/judge/recorded.h"
#include "harness/machine/team.h"
#include "oracle/codec.h"
#include "oracle/single.h"
#include "workloads/rng.h"
#include "workloads/values.h"

/* Calls that kernels get wrong. Lengths lie at and beside the borders of tiles. */
static const struct scene {
    const char *name, *profile;
    uint32_t batch, heads, kv_heads, dim, tokens, cells;
    kvb_dtype dtype;
    uint32_t window, window_sinks;
    double softcap, scale; /* scale 0: 1/sqrt(d) */
    bool sinks, all;       /* all: not causal */
} scenes[] = {
    {"decode", "gaussian", 3, 8, 2, 128, 1, 513, KVB_DTYPE_F16, .window = 0},
    {"decode-bf16", "llama", 2, 8, 1, 128, 1, 1025, KVB_DTYPE_BF16, .window = 0},
    {"decode-f32", "gaussian", 1, 4, 4, 64, 1, 127, KVB_DTYPE_F32, .window = 0},
    {"one-cell", "gaussian", 1, 4, 2, 64, 1, 1, KVB_DTYPE_F16, .window = 0},
    {"prefill", "gaussian", 1, 4, 2, 128, 129, 129, KVB_DTYPE_BF16, .window = 0},
    {"chunk", "qwen", 1, 8, 2, 128, 17, 255, KVB_DTYPE_BF16, .window = 0},
    {"both-ways", "gaussian", 2, 4, 4, 64, 31, 65, KVB_DTYPE_F16, .all = true},
    {"window", "gaussian", 1, 8, 2, 64, 40, 300, KVB_DTYPE_BF16, .window = 128},
    {"window-sinks", "gaussian", 1, 8, 2, 64, 5, 300, KVB_DTYPE_BF16, .window = 64, .window_sinks = 4},
    {"softcap", "peaked", 1, 8, 4, 128, 9, 300, KVB_DTYPE_BF16, .softcap = 30},
    {"sink-logits", "gaussian", 1, 8, 2, 64, 9, 200, KVB_DTYPE_BF16, .sinks = true},
    {"large-logits", "large-logits", 1, 4, 2, 128, 4, 200, KVB_DTYPE_F32, .window = 0},
    {"equal-keys", "equal-keys", 1, 4, 2, 128, 4, 700, KVB_DTYPE_BF16, .window = 0},
    {"giant-channel", "giant-channel", 1, 4, 2, 128, 4, 200, KVB_DTYPE_F16, .window = 0},
    {"needle", "needle", 1, 4, 2, 128, 64, 192, KVB_DTYPE_F16, .window = 0},
    {"flat", "flat", 1, 4, 2, 128, 2, 4096, KVB_DTYPE_F16, .window = 0},
    {"head-dim-80", "gaussian", 2, 6, 3, 80, 3, 97, KVB_DTYPE_F16, .window = 0},
    {"head-dim-256", "gaussian", 1, 4, 1, 256, 3, 97, KVB_DTYPE_BF16, .window = 0},
    {"other-scale", "gaussian", 1, 4, 2, 128, 3, 97, KVB_DTYPE_F16, .scale = 0.25},
};
enum { SCENES = sizeof scenes / sizeof *scenes, ARRAYS = 6 };

/* One scene's arrays, in the order of kvb_recorded_parts q, k, v, out, lse, sinks. */
typedef struct made {
    const struct scene *scene;
    char names[ARRAYS][64];
    kvb_tensor tensors[ARRAYS];
    void *data[ARRAYS];
    float *rows[3]; /* q [batch][tokens][heads][dim], K and V [batch][cells][kv_heads][dim], as they are in the file */
    bool declined;
    kvb_arithmetic arithmetic;
    double rho;
} made;

static kvb_elem elem_of(kvb_dtype dtype)
{
    return dtype == KVB_DTYPE_F16 ? KVB_F16 : dtype == KVB_DTYPE_BF16 ? KVB_BF16 : KVB_F32;
}

static const kvb_format *format_of(kvb_dtype dtype)
{
    uint32_t i = 0;
    while (strcmp(kvb_builtin_pools[i]->format->name, kvb_dtype_name(dtype)))
        i++;
    return kvb_builtin_pools[i]->format;
}

static void *array_add(made *m, uint32_t i, kvb_dtype dtype, uint32_t n_dims, const uint64_t *dims)
{
    kvb_tensor *t = &m->tensors[i];
    snprintf(m->names[i], sizeof m->names[i], "%s.%s", m->scene->name, kvb_recorded_parts[i]);
    *t = (kvb_tensor){.name = m->names[i], .dtype = dtype, .n_dims = n_dims};
    memcpy(t->dims, dims, n_dims * sizeof *dims);
    if (kvb_tensor_shape(t, false))
        return NULL;
    t->data = m->data[i] = calloc(t->bytes + 1, 1);
    return m->data[i];
}

/* Element i of an array becomes x, rounded; returns what it is then. */
static float put(kvb_dtype dtype, void *data, size_t i, float x)
{
    if (dtype == KVB_DTYPE_F32)
        return ((float *)data)[i] = x;
    const uint16_t bits = dtype == KVB_DTYPE_F16 ? kvb_codec_f16(x) : kvb_codec_bf16(x);
    ((uint16_t *)data)[i] = bits;
    return (float)(dtype == KVB_DTYPE_F16 ? kvb_codec_f16_value(bits) : kvb_codec_bf16_value(bits));
}

static kvb_model model_of(const struct scene *s, const float *sinks)
{
    kvb_model m = {.n_layers = 1, .n_groups = 1};
    m.groups[0] = (kvb_group){.heads = s->heads,
                              .kv_heads = s->kv_heads,
                              .k_dim = s->dim,
                              .v_dim = s->dim,
                              .window = s->window,
                              .sinks = s->window_sinks,
                              .scale = s->scale > 0 ? s->scale : 1 / sqrt((double)s->dim),
                              .softcap = (float)s->softcap,
                              .sink_logits = sinks};
    return m;
}

/* q, K or V of all sequences: token after token, and as bhsd. */
static int rows_make(made *m, uint32_t part, const kvb_model *model, uint64_t seed)
{
    static const kvb_rows kinds[] = {KVB_ROWS_Q, KVB_ROWS_K, KVB_ROWS_V};
    const struct scene *s = m->scene;
    const kvb_profile *profile = kvb_profile_find(s->profile);
    const uint32_t heads = part ? s->kv_heads : s->heads, n = part ? s->cells : s->tokens;
    const size_t token = (size_t)heads * s->dim;
    void *data = array_add(m, part, s->dtype, 4, (const uint64_t[]){s->batch, heads, n, s->dim});
    float *rows = m->rows[part] = malloc(s->batch * n * token * sizeof *rows);
    if (!data || !rows)
        return -ENOMEM;
    for (uint32_t b = 0; b < s->batch; b++)
        for (uint32_t t = 0; t < n; t++) {
            const uint32_t pos = part ? t : s->cells - s->tokens + t;
            float *at = rows + ((size_t)b * n + t) * token;
            profile->rows(model, kvb_rng_key(seed, b), kinds[part], 0, part ? t : (uint64_t)s->cells + t, pos, at);
            for (uint32_t h = 0; h < heads; h++)
                for (uint32_t c = 0; c < s->dim; c++) {
                    float *x = at + (size_t)h * s->dim + c;
                    *x = put(s->dtype, data, (((size_t)b * heads + h) * n + t) * s->dim + c, *x);
                }
        }
    return 0;
}

/* What query t sees, as one or two runs; how many. */
static uint32_t sight(const struct scene *s, uint32_t t, kvb_run runs[2])
{
    const uint32_t end = s->all ? s->cells : s->cells - s->tokens + t + 1;
    const uint32_t begin = s->window && end > s->window ? end - s->window : 0;
    const uint32_t sinks = begin < s->window_sinks ? begin : s->window_sinks;
    uint32_t n = 0;
    if (sinks && sinks < begin)
        runs[n++] = (kvb_run){0, sinks};
    runs[n++] = (kvb_run){sinks == begin ? 0 : begin, end};
    return n;
}

/* Makes the call of sequence b with the kernel; outputs go to the arrays, and are judged. */
static int call_make(made *m, const kvb_kernel *kernel, uint32_t b, const kvb_model *model, const kvb_format *format,
                     const kvb_team *team, char *why, size_t why_bytes)
{
    static uint64_t generation;
    const struct scene *s = m->scene;
    const size_t bytes = kvb_dtype_bytes(s->dtype), rows = (size_t)s->tokens * s->heads, each = s->dim;
    const size_t side = (size_t)s->kv_heads * s->cells * each;
    kvb_call call = {.kernel = kernel, .team = team, .out_elem = elem_of(s->dtype)};
    kvb_run *runs = malloc(2 * s->tokens * sizeof *runs);
    kvb_token_run *seen = malloc(2 * s->tokens * sizeof *seen);
    uint32_t *first = calloc(s->tokens + 1, sizeof *first), n = 0;
    size_t *begins = calloc(s->tokens + 1, sizeof *begins);
    char *out = malloc(rows * each * bytes);
    float *lse = malloc(rows * sizeof *lse);
    kvb_single *single = NULL;
    kvb_diff diff = {.claim = {.k_dim = s->dim, .cells = s->cells}};
    int error = runs && seen && first && begins && out && lse ? 0 : -ENOMEM;
    for (uint32_t t = 0; t < s->tokens && !error; t++) {
        n += sight(s, t, runs + n);
        first[t + 1] = n;
        begins[t + 1] = n;
    }
    for (uint32_t i = 0; i < n; i++)
        seen[i] = (kvb_token_run){runs[i].begin, runs[i].end};
    const kvb_view view = {.head_stride = s->cells * each * bytes,
                           .cell_stride = each * bytes,
                           .cells = s->cells,
                           .dim = s->dim,
                           .format = format};
    kvb_attend_spec spec = {.group = &model->groups[0],
                            .k = view,
                            .v = view,
                            .mask = {.kind = KVB_MASK_RUNS, .runs = runs, .row_start = first},
                            .generation = ++generation};
    spec.k.base = (const char *)m->data[KVB_RECORDED_K] + b * side * bytes;
    spec.v.base = (const char *)m->data[KVB_RECORDED_V] + b * side * bytes;
    if (!error)
        error = kvb_call_prepare(&call, &spec, m->rows[KVB_RECORDED_Q] + b * rows * each, s->tokens, why, why_bytes);
    m->declined = error == -ENOTSUP;
    error = error ? error : kvb_call_run(&call, out, kernel->flags & KVB_KERNEL_NO_LSE ? NULL : lse);
    const kvb_single_rows stored = {.cells = s->cells,
                                    .k = m->rows[KVB_RECORDED_K] + b * side,
                                    .v = m->rows[KVB_RECORDED_V] + b * side,
                                    .runs = seen,
                                    .first = begins};
    if (!error) {
        call.args.out = out;
        call.args.lse = kernel->flags & KVB_KERNEL_NO_LSE ? NULL : lse;
        kvb_call_arithmetic(&call, &m->arithmetic);
        error = kvb_single_open(&call.args, kernel, &m->arithmetic, &stored, &single, why, why_bytes);
    }
    const uint32_t group = s->heads / s->kv_heads;
    for (uint32_t t = 0; t < s->tokens && !error; t++)
        for (uint32_t h = 0; h < s->kv_heads && !error; h++)
            error = kvb_single_judge(single, t, h * group, group, &diff, NULL, NULL, why, why_bytes);
    m->rho = fmax(m->rho, diff.rho);
    for (uint32_t t = 0; t < s->tokens && !error; t++)
        for (uint32_t h = 0; h < s->heads; h++) {
            const size_t to = ((size_t)b * s->heads + h) * s->tokens + t, from = (size_t)t * s->heads + h;
            memcpy((char *)m->data[KVB_RECORDED_OUT] + to * each * bytes, out + from * each * bytes, each * bytes);
            if (m->data[KVB_RECORDED_LSE])
                ((float *)m->data[KVB_RECORDED_LSE])[to] = lse[from];
        }
    kvb_single_free(single);
    kvb_call_free(&call);
    void *const all[] = {runs, seen, first, begins, out, lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return error;
}

static int scene_make(made *m, const kvb_kernel *kernel, const kvb_team *team, uint64_t seed, char *why,
                      size_t why_bytes)
{
    const struct scene *s = m->scene;
    float *sinks = NULL;
    if (s->sinks) {
        sinks = array_add(m, KVB_RECORDED_SINKS, KVB_DTYPE_F32, 1, (const uint64_t[]){s->heads});
        if (!sinks)
            return -ENOMEM;
        kvb_rng_normals(kvb_rng_key(seed, 5), 4, s->heads, sinks);
    }
    const kvb_model model = model_of(s, sinks);
    int error = 0;
    for (uint32_t part = 0; part < 3 && !error; part++)
        error = rows_make(m, part, &model, seed);
    if (error || !kernel)
        return error;
    if (!array_add(m, KVB_RECORDED_OUT, s->dtype, 4, (const uint64_t[]){s->batch, s->heads, s->tokens, s->dim}) ||
        (!(kernel->flags & KVB_KERNEL_NO_LSE) &&
         !array_add(m, KVB_RECORDED_LSE, KVB_DTYPE_F32, 3, (const uint64_t[]){s->batch, s->heads, s->tokens})))
        return -ENOMEM;
    for (uint32_t b = 0; b < s->batch && !error; b++)
        error = call_make(m, kernel, b, &model, format_of(s->dtype), team, why, why_bytes);
    return m->declined ? 0 : error;
}

/* ---- the description --------------------------------------------------------------------------------------------- */

static json_t *rounding_json(const kvb_rounding *r)
{
    static const char *const names[] = {"f32", "f16", "bf16", "e4m3", "e5m2"}; /* in the order of kvb_elem */
    return json_pack("{s:s, s:I, s:f, s:f}", "rounding", names[r->rounding], "chain", (json_int_t)r->chain, "step",
                     r->step, "floor", r->floor);
}

static json_t *arithmetic_json(const kvb_arithmetic *a)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:o, s:o, s:o}", "dot_chain", (json_int_t)a->dot_chain, "cell_chain",
                     (json_int_t)a->cell_chain, "rescales", (json_int_t)a->rescales, "exp_error", a->exp_error,
                     "exp_floor", a->exp_floor, "query", rounding_json(&a->query), "scores", rounding_json(&a->scores),
                     "sums", rounding_json(&a->sums));
}

static int description_write(const char *path, const made *all, const kvb_kernel *kernel, char *why, size_t why_bytes)
{
    char file[4096];
    json_t *calls = json_object();
    for (uint32_t i = 0; i < SCENES; i++) {
        const struct scene *s = all[i].scene;
        if (all[i].declined)
            continue;
        json_t *one = json_object();
        json_object_set_new(one, "causal", json_string(s->all ? "no" : "lower-right"));
        if (s->scale > 0)
            json_object_set_new(one, "scale", json_real(s->scale));
        if (s->window)
            json_object_set_new(one, "window", json_integer(s->window));
        if (s->window_sinks)
            json_object_set_new(one, "window_sinks", json_integer(s->window_sinks));
        if (s->softcap > 0)
            json_object_set_new(one, "softcap", json_real(s->softcap));
        if (kernel)
            json_object_set_new(one, "arithmetic", arithmetic_json(&all[i].arithmetic));
        json_object_set_new(calls, s->name, one);
    }
    json_t *root = json_pack("{s:s, s:s, s:s, s:o}", "layout", "bhsd", "lse_layout", "heads-first", "scale",
                             "1/sqrt(d)", "calls", calls);
    kvb_recorded_beside(path, file, sizeof file);
    const int error = !root ? -ENOMEM : json_dump_file(root, file, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) ? -EIO : 0;
    if (error)
        snprintf(why, why_bytes, "%s: cannot be written", file);
    json_decref(root);
    return error;
}

int kvb_judge_make(const char *path, const kvb_kernel *kernel, uint64_t seed, double *rho, char *why, size_t why_bytes)
{
    made *all = calloc(SCENES, sizeof *all);
    kvb_tensor *list = calloc((size_t)SCENES * ARRAYS, sizeof *list);
    kvb_threads *threads = NULL;
    uint32_t n = 0;
    int error = all && list ? kvb_threads_start(1, false, &threads) : -ENOMEM;
    *rho = 0;
    for (uint32_t i = 0; i < SCENES && !error; i++) {
        all[i].scene = &scenes[i];
        error = scene_make(&all[i], kernel, kvb_threads_team(threads), kvb_rng_key(seed, i), why, why_bytes);
        for (uint32_t part = 0; part < ARRAYS && !error && !all[i].declined; part++)
            if (all[i].data[part])
                list[n++] = all[i].tensors[part];
        *rho = fmax(*rho, all[i].rho);
    }
    error = error ? error : kvb_tensors_write(path, list, n, NULL, why, why_bytes);
    error = error ? error : description_write(path, all, kernel, why, why_bytes);
    if (threads)
        kvb_threads_end(threads);
    for (uint32_t i = 0; all && i < SCENES; i++) {
        for (uint32_t part = 0; part < ARRAYS; part++)
            free(all[i].data[part]);
        for (uint32_t part = 0; part < 3; part++)
            free(all[i].rows[part]);
    }
    free(all);
    free(list);
    return error;
}
