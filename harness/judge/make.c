/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/judge/judge.h"

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
#include "kernels/convert.h"
#include "oracle/codec.h"
#include "oracle/single.h"
#include "workloads/array.h"
#include "workloads/rng.h"
#include "workloads/values.h"

/* Calls that kernels often get wrong. Lengths are at and beside the borders of tiles. */
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
/* Scans that kernels often get wrong: lengths at and beside chunks, one token for each sequence, states of 16 bits,
 * with and without an initial state. */
static const struct scan_scene {
    const char *name;
    kvb_scan_kind kind;
    uint32_t batch, tokens, heads, groups, d_k, d_v;
    kvb_dtype dtype, states; /* of q, k, v and out; of states */
    bool begun;              /* has an initial state */
} scan_scenes[] = {
    {"mamba2-decode", KVB_SCAN_MAMBA2, 3, 1, 8, 2, 64, 64, KVB_DTYPE_BF16, KVB_DTYPE_F32, true},
    {"mamba2-prefill", KVB_SCAN_MAMBA2, 1, 129, 4, 1, 128, 64, KVB_DTYPE_BF16, KVB_DTYPE_F32, false},
    {"mamba2-chunk", KVB_SCAN_MAMBA2, 2, 63, 4, 2, 64, 32, KVB_DTYPE_F16, KVB_DTYPE_F16, true},
    {"mamba2-f32", KVB_SCAN_MAMBA2, 1, 65, 2, 2, 64, 64, KVB_DTYPE_F32, KVB_DTYPE_F32, true},
    {"delta-decode", KVB_SCAN_DELTA, 3, 1, 8, 4, 128, 128, KVB_DTYPE_BF16, KVB_DTYPE_F32, true},
    {"delta-prefill", KVB_SCAN_DELTA, 1, 129, 4, 2, 128, 128, KVB_DTYPE_BF16, KVB_DTYPE_F32, false},
    {"delta-chunk", KVB_SCAN_DELTA, 2, 63, 2, 2, 64, 64, KVB_DTYPE_F16, KVB_DTYPE_BF16, true},
    {"delta-f32", KVB_SCAN_DELTA, 1, 65, 2, 1, 64, 64, KVB_DTYPE_F32, KVB_DTYPE_F32, true},
    {"lightning", KVB_SCAN_LIGHTNING, 2, 130, 4, 4, 64, 64, KVB_DTYPE_BF16, KVB_DTYPE_F32, true},
    {"mamba1-decode", KVB_SCAN_MAMBA1, 3, 1, 1, 1, 16, 256, KVB_DTYPE_BF16, KVB_DTYPE_F32, true},
    {"mamba1-prefill", KVB_SCAN_MAMBA1, 1, 65, 1, 1, 16, 128, KVB_DTYPE_F32, KVB_DTYPE_F32, false},
    {"conv-decode", KVB_SCAN_CONV, 3, 1, 1, 1, 3, 256, KVB_DTYPE_BF16, KVB_DTYPE_BF16, true},
    {"conv-prefill", KVB_SCAN_CONV, 1, 65, 1, 1, 3, 128, KVB_DTYPE_BF16, KVB_DTYPE_BF16, false},
};
enum {
    SCENES = sizeof scenes / sizeof *scenes,
    ALL = SCENES + sizeof scan_scenes / sizeof *scan_scenes,
    ARRAYS = KVB_RECORDED_PARTS
};

/* The arrays of a scene, in the order of kvb_recorded_parts. */
typedef struct made {
    const char *name;
    const struct scene *scene;     /* attention; NULL: a scan */
    const struct scan_scene *scan; /* NULL: attention */
    char names[ARRAYS][64];
    kvb_tensor tensors[ARRAYS];
    void *data[ARRAYS];
    /* Inputs, rounded as in the file. Attention: q [batch][tokens][heads][dim], K and V [batch][cells][kv_heads][dim].
     * Scans: in the order of the file. */
    float *rows[ARRAYS];
    bool declined;
    kvb_arithmetic arithmetic;
    kvb_scan_arithmetic scan_arithmetic;
    double rho;
    kvb_arena arena; /* of data and rows */
} made;

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
    snprintf(m->names[i], sizeof m->names[i], "%s.%s", m->name, kvb_recorded_parts[i]);
    *t = (kvb_tensor){.name = m->names[i], .dtype = dtype, .n_dims = n_dims};
    memcpy(t->dims, dims, n_dims * sizeof *dims);
    if (kvb_tensor_shape(t, false))
        return NULL;
    t->data = m->data[i] = kvb_arena_take(&m->arena, t->bytes + 1, 1);
    return m->data[i];
}

/* Stores x, rounded, as element i of an array. Returns the rounded value. */
static float put(kvb_dtype dtype, void *data, size_t i, float x)
{
    if (dtype == KVB_DTYPE_F32)
        return ((float *)data)[i] = x;
    const kvb_elem elem = dtype == KVB_DTYPE_F16 ? KVB_F16 : KVB_BF16;
    ((uint16_t *)data)[i] = kvb_codec_code(elem, x);
    return (float)kvb_codec_rounded(elem, x);
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

/* Makes q, K or V of all sequences: m->rows token after token, the file's array as bhsd. */
static int rows_make(made *m, uint32_t part, const kvb_model *model, uint64_t seed)
{
    static const kvb_rows kinds[] = {KVB_ROWS_Q, KVB_ROWS_K, KVB_ROWS_V};
    const struct scene *s = m->scene;
    const kvb_profile *profile = kvb_profile_find(s->profile);
    const uint32_t heads = part ? s->kv_heads : s->heads, n = part ? s->cells : s->tokens;
    const size_t token = (size_t)heads * s->dim;
    void *data = array_add(m, part, s->dtype, 4, (const uint64_t[]){s->batch, heads, n, s->dim});
    float *rows = m->rows[part] = kvb_arena_take(&m->arena, s->batch * n * token, sizeof *rows);
    if (!data || !rows)
        return -ENOMEM;
    for (uint32_t b = 0; b < s->batch; b++)
        for (uint32_t t = 0; t < n; t++) {
            const uint32_t pos = part ? t : s->cells - s->tokens + t;
            float *at = rows + ((size_t)b * n + t) * token;
            kvb_profile_rows(profile, model, kvb_rng_key(seed, b), kinds[part], 0, part ? t : (uint64_t)s->cells + t,
                             pos, at);
            for (uint32_t h = 0; h < heads; h++)
                for (uint32_t c = 0; c < s->dim; c++) {
                    float *x = at + (size_t)h * s->dim + c;
                    *x = put(s->dtype, data, (((size_t)b * heads + h) * n + t) * s->dim + c, *x);
                }
        }
    return 0;
}

/* The one or two runs of cells that query t sees; returns how many. */
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

/* Makes the call of sequence b with the kernel, stores its outputs in the arrays, and judges them. */
static int call_make(made *m, const kvb_kernel *kernel, uint32_t b, const kvb_model *model, const kvb_format *format,
                     const kvb_team *team, char *why, size_t why_bytes)
{
    static uint64_t generation;
    const struct scene *s = m->scene;
    const kvb_dtype dtype = m->tensors[KVB_RECORDED_OUT].dtype;
    const size_t bytes = kvb_dtype_bytes(s->dtype), rows = (size_t)s->tokens * s->heads, each = s->dim;
    const size_t side = (size_t)s->kv_heads * s->cells * each, row = each * kvb_dtype_bytes(dtype);
    kvb_call call = {.kernel = kernel, .team = team, .out_elem = kvb_dtype_elem(dtype)};
    kvb_arena arena = {0};
    kvb_run *runs = kvb_arena_take(&arena, 2 * s->tokens, sizeof *runs);
    kvb_token_run *seen = kvb_arena_take(&arena, 2 * s->tokens, sizeof *seen);
    uint32_t *first = kvb_arena_take(&arena, s->tokens + 1, sizeof *first), n = 0;
    size_t *begins = kvb_arena_take(&arena, s->tokens + 1, sizeof *begins);
    char *out = kvb_arena_take(&arena, rows, row);
    float *lse = kvb_arena_take(&arena, rows, sizeof *lse);
    kvb_single *single = NULL;
    kvb_diff diff = {.claim = {.k_dim = s->dim, .cells = s->cells}};
    int error = arena.failed ? -ENOMEM : 0;
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
    double *rounded = m->data[KVB_RECORDED_Q_ROUNDED];
    for (uint32_t i = 0; i < rows && rounded && !error; i++) {
        const uint32_t t = i / s->heads, h = i % s->heads;
        error = kernel->round_query(&call.args.problem, &call.args.k, h, call.args.q + (size_t)i * each,
                                    rounded + (((size_t)b * s->heads + h) * s->tokens + t) * each);
    }
    for (uint32_t t = 0; t < s->tokens && !error; t++)
        for (uint32_t h = 0; h < s->kv_heads && !error; h++)
            error = kvb_single_judge(single, t, h * group, group, false, &diff, NULL, NULL, why, why_bytes);
    m->rho = fmax(m->rho, diff.rho);
    for (uint32_t t = 0; t < s->tokens && !error; t++)
        for (uint32_t h = 0; h < s->heads; h++) {
            const size_t to = ((size_t)b * s->heads + h) * s->tokens + t, from = (size_t)t * s->heads + h;
            memcpy((char *)m->data[KVB_RECORDED_OUT] + to * row, out + from * row, row);
            if (m->data[KVB_RECORDED_LSE])
                ((float *)m->data[KVB_RECORDED_LSE])[to] = lse[from];
        }
    kvb_single_free(single);
    kvb_call_free(&call);
    kvb_arena_free(&arena);
    return error;
}

/* Makes the calls of all sequences, with outputs of type `out`. */
static int calls_make(made *m, const kvb_kernel *kernel, kvb_dtype out, const kvb_model *model, const kvb_team *team,
                      char *why, size_t why_bytes)
{
    const struct scene *s = m->scene;
    if (!array_add(m, KVB_RECORDED_OUT, out, 4, (const uint64_t[]){s->batch, s->heads, s->tokens, s->dim}))
        return -ENOMEM;
    int error = 0;
    for (uint32_t b = 0; b < s->batch && !error; b++)
        error = call_make(m, kernel, b, model, format_of(s->dtype), team, why, why_bytes);
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
    if (!(kernel->flags & KVB_KERNEL_NO_LSE) &&
        !array_add(m, KVB_RECORDED_LSE, KVB_DTYPE_F32, 3, (const uint64_t[]){s->batch, s->heads, s->tokens}))
        return -ENOMEM;
    if (kernel->round_query && !array_add(m, KVB_RECORDED_Q_ROUNDED, KVB_DTYPE_F64, 4,
                                          (const uint64_t[]){s->batch, s->heads, s->tokens, s->dim}))
        return -ENOMEM;
    error = calls_make(m, kernel, s->dtype, &model, team, why, why_bytes);
    if (m->declined) /* a kernel may write f32 only */
        error = calls_make(m, kernel, KVB_DTYPE_F32, &model, team, why, why_bytes);
    return m->declined ? 0 : error;
}

/* ---- scans ------------------------------------------------------------------------------------------------------- */

/* A model with one such layer. A convolution belongs to a layer with another recurrence. */
static kvb_model scan_model_of(const struct scan_scene *s)
{
    const bool conv = s->kind == KVB_SCAN_CONV;
    kvb_model m = {.n_layers = 1, .n_groups = 1};
    m.groups[0] = (kvb_group){.kind = KVB_GROUP_SCAN,
                              .scan = {.kind = conv ? KVB_SCAN_MAMBA2 : s->kind,
                                       .heads = s->heads,
                                       .groups = s->groups,
                                       .d_k = s->d_k,
                                       .d_v = s->d_v,
                                       .conv_width = conv ? s->d_k + 1 : 0,
                                       .conv_channels = conv ? s->d_v : 0}};
    return m;
}

/* Adds an input. The caller fills the returned floats, then calls scan_input_round(). NULL: no memory. */
static float *scan_input_add(made *m, kvb_recorded_part part, kvb_dtype dtype, uint32_t n_dims, const uint64_t *dims)
{
    if (!array_add(m, part, dtype, n_dims, dims))
        return NULL;
    return m->rows[part] = kvb_arena_take(&m->arena, m->tensors[part].elements + 1, sizeof(float));
}

static void scan_input_round(made *m, kvb_recorded_part part)
{
    for (size_t i = 0; i < m->tensors[part].elements; i++)
        m->rows[part][i] = put(m->tensors[part].dtype, m->data[part], i, m->rows[part][i]);
}

/* Adds rows of all tokens: [batch][tokens][heads][dim], or [batch][tokens][heads] with one number for each head. */
static int scan_rows_add(made *m, kvb_recorded_part part, kvb_rows kind, const kvb_model *model, uint64_t seed)
{
    const struct scan_scene *s = m->scan;
    const kvb_group *group = &model->groups[0];
    const uint32_t heads = kvb_rows_heads(group, kind), dim = kvb_rows_dim(group, kind);
    const kvb_dtype dtype = part > KVB_RECORDED_V ? KVB_DTYPE_F32 : s->dtype;
    if (!heads || !dim)
        return 0;
    float *rows = scan_input_add(m, part, dtype, dim > 1 ? 4 : 3, (const uint64_t[]){s->batch, s->tokens, heads, dim});
    if (!rows)
        return -ENOMEM;
    for (uint64_t t = 0; t < (uint64_t)s->batch * s->tokens; t++)
        kvb_scan_rows_make(model, seed, kind, 0, t, rows + t * heads * dim);
    scan_input_round(m, part);
    return 0;
}

static int scan_constant_add(made *m, kvb_recorded_part part, kvb_constant constant, const kvb_model *model,
                             uint64_t seed)
{
    uint64_t dims[3];
    const uint32_t n = kvb_constant_shape(&model->groups[0], constant, dims);
    float *floats = n ? scan_input_add(m, part, KVB_DTYPE_F32, n, dims) : NULL;
    if (floats) {
        kvb_scan_constant_make(model, seed, constant, 0, floats);
        scan_input_round(m, part);
    }
    return n && !floats ? -ENOMEM : 0;
}

static int scan_inputs_make(made *m, uint64_t seed)
{
    const struct scan_scene *s = m->scan;
    const kvb_model model = scan_model_of(s);
    const bool conv = s->kind == KVB_SCAN_CONV;
    static const struct {
        kvb_recorded_part part;
        kvb_rows kind;
    } rows[] = {{KVB_RECORDED_Q, KVB_ROWS_Q},
                {KVB_RECORDED_K, KVB_ROWS_K},
                {KVB_RECORDED_V, KVB_ROWS_V},
                {KVB_RECORDED_GATE, KVB_ROWS_GATE},
                {KVB_RECORDED_BETA, KVB_ROWS_BETA}};
    int error = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !conv && !error; i++)
        error = scan_rows_add(m, rows[i].part, rows[i].kind, &model, seed);
    if (conv)
        error = scan_rows_add(m, KVB_RECORDED_V, KVB_ROWS_X, &model, seed);
    error =
        error ? error : scan_constant_add(m, KVB_RECORDED_A, conv ? KVB_CONSTANT_TAPS : KVB_CONSTANT_A, &model, seed);
    error = error || !conv ? error : scan_constant_add(m, KVB_RECORDED_BIAS, KVB_CONSTANT_BIAS, &model, seed);
    const uint64_t dims[] = {s->batch, s->heads, s->d_k, s->d_v};
    float *state = s->begun && !error ? scan_input_add(m, KVB_RECORDED_INITIAL, s->states, 4, dims) : NULL;
    if (state) {
        kvb_rng_normals(kvb_rng_key(seed, 9), 4, (uint32_t)m->tensors[KVB_RECORDED_INITIAL].elements, state);
        scan_input_round(m, KVB_RECORDED_INITIAL);
    }
    return !error && s->begun && !state ? -ENOMEM : error;
}

/* Makes one call of all sequences with the kernel, stores outputs and states in the arrays, and judges them. */
static int scan_call_make(made *m, const kvb_kernel *kernel, const kvb_team *team)
{
    const struct scan_scene *s = m->scan;
    const uint32_t n = s->batch * s->tokens;
    kvb_scan call = {.problem = {.kind = s->kind,
                                 .n_tok = n,
                                 .run = s->tokens,
                                 .heads = s->heads,
                                 .groups = s->groups,
                                 .d_k = s->d_k,
                                 .d_v = s->d_v,
                                 .state_elem = kvb_dtype_elem(s->states),
                                 .out_elem = kvb_dtype_elem(s->dtype),
                                 .silu = s->kind == KVB_SCAN_CONV},
                     .q = m->rows[KVB_RECORDED_Q],
                     .k = m->rows[KVB_RECORDED_K],
                     .v = m->rows[KVB_RECORDED_V],
                     .gate = m->rows[KVB_RECORDED_GATE],
                     .beta = m->rows[KVB_RECORDED_BETA],
                     .a = m->rows[KVB_RECORDED_A],
                     .bias = m->rows[KVB_RECORDED_BIAS],
                     .team = team};
    char why[256];
    m->declined = kernel->scan->supports && !kernel->scan->supports(&call.problem, why, sizeof why);
    if (m->declined)
        return 0;
    call.out = array_add(m, KVB_RECORDED_OUT, s->dtype, 4, (const uint64_t[]){s->batch, s->tokens, s->heads, s->d_v});
    char *final =
        array_add(m, KVB_RECORDED_FINAL, s->states, 4, (const uint64_t[]){s->batch, s->heads, s->d_k, s->d_v});
    const char *initial = m->data[KVB_RECORDED_INITIAL];
    const size_t bytes = final ? m->tensors[KVB_RECORDED_FINAL].bytes / s->batch : 0, slot = (bytes + 63) / 64 * 64,
                 scratch = kernel->scan->scratch_bytes ? kernel->scan->scratch_bytes(&call.problem, team->n) : 0;
    uint32_t *places = calloc(2 * (size_t)n, sizeof *places);
    char *before = calloc(s->batch, slot + 1);
    kvb_diff diff = {0};
    call.states = (kvb_scan_states){aligned_alloc(64, s->batch * slot + 64), slot, s->batch};
    call.scratch = aligned_alloc(64, (scratch + 127) / 64 * 64);
    int error = call.out && final && places && before && call.states.base && call.scratch ? 0 : -ENOMEM;
    for (uint32_t t = 0; t < n && !error; t++) {
        const uint32_t b = t / s->tokens, at = t % s->tokens;
        places[t] = at ? KVB_SCAN_PREVIOUS : initial ? b : KVB_SCAN_ZERO;
        places[n + t] = at + 1 < s->tokens ? KVB_SCAN_NONE : b;
    }
    for (uint32_t b = 0; b < s->batch && initial && !error; b++)
        memcpy(before + b * slot, initial + b * bytes, bytes);
    if (!error)
        memcpy(call.states.base, before, s->batch * slot);
    call.from = places;
    call.to = places + n;
    if (!error)
        error = kernel->scan->scan(&call);
    for (uint32_t b = 0; b < s->batch && !error; b++)
        memcpy(final + b * bytes, (const char *)call.states.base + b * slot, bytes);
    if (!error)
        kernel->scan->arithmetic(&call.problem, &m->scan_arithmetic);
    for (uint32_t h = 0; h < s->heads && !error; h++)
        error = kvb_lane_judge(&call, before, &m->scan_arithmetic, &(kvb_lane){.head = h, .n = s->d_v}, &diff, &diff);
    m->rho = diff.rho;
    free(places);
    free(before);
    free(call.states.base);
    free(call.scratch);
    return error;
}

/* ---- the description --------------------------------------------------------------------------------------------- */

/* NULL: left out. */
static json_t *above_zero(double x)
{
    return x > 0 ? json_real(x) : NULL;
}

static json_t *count_above_zero(uint32_t n)
{
    return n ? json_integer(n) : NULL;
}

static json_t *call_json(const made *m, const kvb_kernel *kernel)
{
    const struct scene *s = m->scene;
    if (s)
        return json_pack("{s:s, s:o*, s:o*, s:o*, s:o*, s:o*}", "causal", s->all ? "no" : "lower-right", "scale",
                         above_zero(s->scale), "window", count_above_zero(s->window), "window_sinks",
                         count_above_zero(s->window_sinks), "softcap", above_zero(s->softcap), "arithmetic",
                         kernel ? kvb_declaration_json(&m->arithmetic, NULL) : NULL);
    const bool conv = m->scan->kind == KVB_SCAN_CONV;
    return json_pack("{s:s, s:s, s:s, s:o, s:o*}", "recurrence", kvb_scan_kind_name(m->scan->kind), "layout", "bshd",
                     "state_layout", "kv", conv ? "activation" : "scale", conv ? json_string("silu") : json_integer(1),
                     "arithmetic", kernel ? kvb_declaration_json(NULL, &m->scan_arithmetic) : NULL);
}

static int description_write(const char *path, const made *all, const kvb_kernel *kernel, char *why, size_t why_bytes)
{
    char file[4096];
    json_t *calls = json_object();
    for (uint32_t i = 0; i < ALL; i++)
        if (!all[i].declined)
            json_object_set_new(calls, all[i].name, call_json(&all[i], kernel));
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
    made *all = calloc(ALL, sizeof *all);
    kvb_tensor *list = calloc((size_t)ALL * ARRAYS, sizeof *list);
    kvb_threads *threads = NULL;
    uint32_t n = 0;
    int error = all && list ? kvb_threads_start(1, false, &threads) : -ENOMEM;
    *rho = 0;
    for (uint32_t i = 0; i < ALL && !error; i++) {
        made *m = &all[i];
        const uint64_t own = kvb_rng_key(seed, i);
        m->scene = i < SCENES ? &scenes[i] : NULL;
        m->scan = i < SCENES ? NULL : &scan_scenes[i - SCENES];
        m->name = m->scene ? m->scene->name : m->scan->name;
        m->declined = kernel && !(m->scene ? kernel->attend != NULL : kernel->scan != NULL);
        if (m->declined)
            continue;
        error =
            m->scene ? scene_make(m, kernel, kvb_threads_team(threads), own, why, why_bytes) : scan_inputs_make(m, own);
        if (!error && m->scan && kernel)
            error = scan_call_make(m, kernel, kvb_threads_team(threads));
        for (uint32_t part = 0; part < ARRAYS && !error && !all[i].declined; part++)
            if (all[i].data[part])
                list[n++] = all[i].tensors[part];
        *rho = fmax(*rho, all[i].rho);
    }
    error = error ? error : kvb_safetensors_write(path, list, n, NULL, why, why_bytes);
    error = error ? error : description_write(path, all, kernel, why, why_bytes);
    if (threads)
        kvb_threads_end(threads);
    for (uint32_t i = 0; all && i < ALL; i++)
        kvb_arena_free(&all[i].arena);
    free(all);
    free(list);
    return error;
}
