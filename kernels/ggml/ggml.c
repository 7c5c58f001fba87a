/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ggml's attention as kernels, a plug-in: `ggml` is ggml_flash_attn_ext, `ggml-mul` the path that llama.cpp takes
 * without it (product, softmax, product; V is transposed first, since views have it by rows). Rows are read where they
 * lie: a view's strides are a tensor's. The mask is made as ggml has it, f16 0 or -infinity for each query and cell, in
 * each call.
 *
 * ggml gives no log-sum-exp and declares no arithmetic. What arithmetic() says is what a format implies: q is rounded
 * as a row of K's format is met (to f16, to bf16, to 8 bits a block of 32), `ggml` sums rows of f16 in f16.
 */
#include "kernels/ggml/engine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- what they take ---------------------------------------------------------------------------------------------- */

static bool available(char *why, size_t why_bytes)
{
    return engine_load(why, why_bytes) != NULL;
}

/* Rows that are nothing but ggml's elements. */
static bool is_plain(const kvb_format *f)
{
    return engine_type(f->elem) >= 0 && !f->transform && !f->head_scale && !f->residual_cells;
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    const char *lack = !is_plain(p->k_format) || !is_plain(p->v_format)
                           ? "reads f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 and iq4_nl"
                       : p->out_elem != KVB_F32 ? "gives f32"
                       : p->deterministic       ? "its sums may depend on the number of threads"
                                                : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

#define SCORES_MOST (UINT64_C(1) << 30) /* bytes */

static uint64_t scores_bytes(const kvb_problem *p)
{
    return (uint64_t)p->n_tok * p->n_heads * p->n_cells * sizeof(float);
}

static bool mul_supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (!supports(p, why, why_bytes))
        return false;
    const char *lack = kvb_elem_is_block(p->v_format->elem) ? "V of blocks cannot be transposed"
                       : scores_bytes(p) > SCORES_MOST      ? "scores would take more than 1 GiB"
                                                            : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

/* ---- what their formats imply ------------------------------------------------------------------------------------ */

#define EXP_ERROR 0x1p-22 /* of expf, and of ggml's own in vectors */

/* q meets floats of 16 bits in that type; blocks in 8 bits, by blocks of 32 with a scale in f16, and their sum in f16.
 */
static kvb_rounding query_rounding(kvb_elem elem)
{
    if (kvb_elem_is_block(elem))
        return (kvb_rounding){.step = 1.0 / 127, .floor = 0x1p-11};
    return (kvb_rounding){.rounding = elem};
}

static void roundings_add(const kvb_problem *p, kvb_arithmetic *a)
{
    a->accumulator = KVB_F32;
    a->dot_chain = p->k_dim + kvb_format_roundings(p->k_format, p->k_dim);
    a->cell_chain = p->n_cells + p->has_sinks + kvb_format_roundings(p->v_format, p->v_dim);
    a->exp_error = EXP_ERROR;
    a->exp_floor = 0x1p-126;
    a->query = query_rounding(p->k_format->elem);
}

static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.rescales = p->n_cells};
    roundings_add(p, a);
    if (p->v_format->elem == KVB_F16) /* added, and scaled at each new maximum, in f16 */
        a->sums = (kvb_rounding){.rounding = KVB_F16, .chain = 2 * p->n_cells, .floor = 0x1p-24};
}

static void mul_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){0};
    roundings_add(p, a);
    a->sums.rounding = p->v_format->elem; /* weights are rounded to what V is of */
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* One call's graph. */
typedef struct call {
    const engine_api *api;
    const kvb_attend *args;
    ggml_context *context;
    ggml_tensor *q, *k, *v, *mask, *sinks;
    char *scratch; /* not yet used */
} call;

#define LINE 64u

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Memory for a tensor's data. */
static ggml_tensor *placed(call *c, ggml_tensor *t)
{
    t->data = c->scratch;
    c->scratch += lines(c->api->nbytes(t));
    return t;
}

static ggml_tensor *rows_of(const call *c, const kvb_view *view, uint32_t dim)
{
    const kvb_problem *p = &c->args->problem;
    ggml_tensor *t =
        c->api->new_tensor_4d(c->context, engine_type(view->format->elem), dim, p->n_cells, p->n_kv_heads, 1);
    t->data = (void *)(uintptr_t)view->base;
    t->nb[1] = view->cell_stride;
    t->nb[2] = view->head_stride;
    t->nb[3] = view->head_stride * p->n_kv_heads;
    return t;
}

static ggml_tensor *queries_of(const call *c)
{
    const kvb_problem *p = &c->args->problem;
    ggml_tensor *t = c->api->new_tensor_4d(c->context, GGML_F32, p->k_dim, p->n_tok, p->n_heads, 1);
    t->data = (void *)(uintptr_t)c->args->q;
    t->nb[2] = p->k_dim * sizeof(float);
    t->nb[1] = t->nb[2] * p->n_heads;
    return t;
}

/* ---- the mask ---------------------------------------------------------------------------------------------------- */

#define MASK_ROWS 64u /* older versions want whole multiples of rows; those added are never read */
#define HIDDEN    0xfc00u

/* Does every query see every cell? */
static bool sees_all(const kvb_problem *p)
{
    return p->mask == KVB_MASK_NONE || (p->mask == KVB_MASK_CAUSAL && p->n_tok == 1);
}

static uint32_t mask_rows(const kvb_problem *p)
{
    return sees_all(p) ? 0 : (p->n_tok + MASK_ROWS - 1) / MASK_ROWS * MASK_ROWS;
}

static void mask_part(void *ctx, uint32_t i, uint32_t n)
{
    const call *c = ctx;
    const kvb_problem *p = &c->args->problem;
    for (uint32_t t = i; t < p->n_tok; t += n) {
        uint16_t *row = (uint16_t *)c->mask->data + (size_t)t * p->n_cells;
        for (uint32_t cell = 0; cell < p->n_cells; cell++)
            row[cell] = HIDDEN;
        kvb_run run;
        for (uint32_t cursor = 0; kvb_mask_next(&c->args->mask, p->n_tok, p->n_cells, t, &cursor, &run);)
            memset(row + run.begin, 0, (run.end - run.begin) * sizeof *row);
    }
}

static void mask_make(call *c)
{
    const kvb_problem *p = &c->args->problem;
    if (sees_all(p))
        return;
    c->mask = placed(c, c->api->new_tensor_4d(c->context, GGML_F16, p->n_cells, mask_rows(p), 1, 1));
    c->args->team->run(c->args->team, mask_part, c);
}

/* ---- the two ways ------------------------------------------------------------------------------------------------ */

static ggml_tensor *flash_build(call *c)
{
    const kvb_problem *p = &c->args->problem;
    ggml_tensor *out = c->api->flash_attn_ext(c->context, c->q, c->k, c->v, c->mask, p->scale, 0, p->softcap);
    if (c->sinks)
        c->api->flash_attn_ext_add_sinks(out, c->sinks);
    c->api->flash_attn_ext_set_prec(out, GGML_PREC_F32); /* as llama.cpp does */
    return out;
}

/* The same data under another step: done in place. */
static ggml_tensor *in_place(ggml_tensor *t, const ggml_tensor *of)
{
    t->data = of->data;
    return t;
}

static ggml_tensor *mul_build(call *c)
{
    const engine_api *api = c->api;
    const kvb_problem *p = &c->args->problem;
    ggml_tensor *s = placed(c, api->mul_mat(c->context, c->k, c->q));
    api->mul_mat_set_prec(s, GGML_PREC_F32); /* as llama.cpp does */
    float scale = p->scale;
    if (p->softcap > 0) {
        s = in_place(api->scale(c->context, s, p->scale / p->softcap), s);
        s = in_place(api->tanh(c->context, s), s);
        s = in_place(api->scale(c->context, s, p->softcap), s);
        scale = 1;
    }
    s = in_place(api->soft_max_ext(c->context, s, c->mask, scale, 0), s);
    if (c->sinks)
        api->soft_max_add_sinks(s, c->sinks);
    ggml_tensor *v = placed(c, api->cont(c->context, in_place(api->transpose(c->context, c->v), c->v)));
    ggml_tensor *o = placed(c, api->mul_mat(c->context, v, s));
    return api->cont(c->context, in_place(api->permute(c->context, o, 0, 2, 1, 3), o));
}

static size_t scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    (void)n_threads;
    return lines((size_t)mask_rows(p) * p->n_cells * sizeof(uint16_t));
}

static size_t mul_scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    return scratch_bytes(p, n_threads) + lines(scores_bytes(p)) +
           lines((size_t)p->n_kv_heads * p->n_cells * p->v_dim * sizeof(float)) +
           lines((size_t)p->n_tok * p->n_heads * p->v_dim * sizeof(float));
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

static int call_run(const kvb_attend *args, ggml_tensor *build(call *c))
{
    const kvb_problem *p = &args->problem;
    char why[512];
    call c = {.api = engine_load(why, sizeof why), .args = args, .scratch = args->scratch};
    ggml_handle backend;
    if (!c.api)
        return -ENOTSUP;
    if (p->n_cells == 0) {
        memset(args->out, 0, (size_t)p->n_tok * p->n_heads * p->v_dim * sizeof(float));
        return 0;
    }
    int error = engine_begin(args->team, &c.context, &backend);
    if (error)
        return error;
    c.q = queries_of(&c);
    c.k = rows_of(&c, &args->k, p->k_dim);
    c.v = rows_of(&c, &args->v, p->v_dim);
    if (p->has_sinks) {
        c.sinks = c.api->new_tensor_4d(c.context, GGML_F32, p->n_heads, 1, 1, 1);
        c.sinks->data = (void *)(uintptr_t)args->sinks;
    }
    mask_make(&c);
    ggml_tensor *out = build(&c);
    out->data = args->out;
    ggml_cgraph *graph = c.api->new_graph_custom(c.context, ENGINE_NODES, false);
    c.api->build_forward_expand(graph, out);
    return c.api->backend_graph_compute(backend, graph) ? -EIO : 0;
}

static int attend(const kvb_attend *args)
{
    return call_run(args, flash_build);
}

static int mul_attend(const kvb_attend *args)
{
    return call_run(args, mul_build);
}

/* Scores of whole tiles are made before the mask is added, and hidden V rows are multiplied by 0: llama.cpp zeroes its
 * buffers. */
#define FLAGS (KVB_KERNEL_FOREIGN | KVB_KERNEL_NO_LSE | KVB_KERNEL_FINITE_CELLS)
#define OWN_RULE                                                                                                       \
    {                                                                                                                  \
        KVB_TOLERANCE_NMSE, 5e-4, 0, "llama.cpp tests/test-backend-ops.cpp, test_flash_attn_ext::max_nmse_err"         \
    }

static const kvb_kernel flash = {
    .name = "ggml",
    .summary = "ggml_flash_attn_ext of a libggml that is loaded (KVB_GGML=folder)",
    .flags = FLAGS,
    .masks = KVB_MASKS_ALL,
    .available = available,
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .arithmetic = arithmetic,
    .attend = attend,
    .tolerance = OWN_RULE,
};

static const kvb_kernel mul = {
    .name = "ggml-mul",
    .summary = "the same without flash attention: mul_mat, soft_max_ext, mul_mat",
    .flags = FLAGS,
    .masks = KVB_MASKS_ALL,
    .available = available,
    .supports = mul_supports,
    .scratch_bytes = mul_scratch_bytes,
    .arithmetic = mul_arithmetic,
    .attend = mul_attend,
    .tolerance = OWN_RULE,
};

static const kvb_kernel *const kernels[] = {&flash, &mul, NULL};

KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "ggml", .kernels = kernels};
