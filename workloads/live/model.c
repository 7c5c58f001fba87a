/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/live/model.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workloads/array.h"
#include "workloads/files.h"

static bool exact_supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    bool plain = p->k_format->elem == KVB_F32 && p->v_format->elem == KVB_F32 && p->out_elem == KVB_F32;
    plain = plain && p->k_format->transform == KVB_TRANSFORM_NONE && p->v_format->transform == KVB_TRANSFORM_NONE;
    plain = plain && !(p->softcap > 0);
    if (!plain)
        snprintf(why, why_bytes, "exact: f32 rows and output, no softcap");
    return plain;
}

/* Scores of one row [n_cells] and one output row [v_dim], in double. */
static size_t exact_scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    (void)n_threads;
    return ((size_t)p->n_cells + p->v_dim) * sizeof(double);
}

/* The kernel is far better than this; a chain of one rounding is the least that can be declared. */
static void exact_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    (void)p;
    *a = (kvb_arithmetic){.accumulator = KVB_F32, .dot_chain = 1, .cell_chain = 1, .exp_error = DBL_EPSILON};
}

enum { ABREAST = 4 };

/* Scores of n cells, at most ABREAST, from cell c on. A cell's sum has one order however many are abreast; together they
 * hide the latency of the adds. */
static inline void cells_score(const kvb_attend *args, const float *q, uint32_t kv_head, uint32_t c, uint32_t n,
                               double *score)
{
    const float *k[ABREAST];
    double s[ABREAST] = {0};
    for (uint32_t j = 0; j < n; j++)
        k[j] = kvb_view_row(&args->k, kv_head, c + j);
    for (uint32_t i = 0; i < args->problem.k_dim; i++)
        for (uint32_t j = 0; j < n; j++)
            s[j] += (double)q[i] * k[j][i];
    for (uint32_t j = 0; j < n; j++)
        score[j] = s[j] * args->problem.scale;
}

static void attend_row(const kvb_attend *args, uint32_t t, uint32_t head)
{
    const kvb_problem *p = &args->problem;
    uint32_t kv_head = head / (p->n_heads / p->n_kv_heads), cursor = 0;
    size_t row = (size_t)t * p->n_heads + head;
    const float *q = args->q + row * p->k_dim;
    double *score = args->scratch, *sum = score + p->n_cells,
           max = p->has_sinks ? (double)args->sinks[head] : -INFINITY;
    kvb_run run;

    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run)) {
        uint32_t c = run.begin;
        for (; run.end - c >= ABREAST; c += ABREAST)
            cells_score(args, q, kv_head, c, ABREAST, score + c);
        for (; c < run.end; c++)
            cells_score(args, q, kv_head, c, 1, score + c);
        for (c = run.begin; c < run.end; c++)
            max = score[c] > max ? score[c] : max;
    }
    double total = p->has_sinks ? exp((double)args->sinks[head] - max) : 0;
    for (uint32_t i = 0; i < p->v_dim; i++)
        sum[i] = 0;
    cursor = 0;
    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run))
        for (uint32_t c = run.begin; c < run.end; c++) {
            const float *v = kvb_view_row(&args->v, kv_head, c);
            double weight = exp(score[c] - max);
            total += weight;
            for (uint32_t i = 0; i < p->v_dim; i++)
                sum[i] += weight * v[i];
        }
    float *out = (float *)args->out + row * p->v_dim;
    for (uint32_t i = 0; i < p->v_dim; i++)
        out[i] = total > 0 ? (float)(sum[i] / total) : 0.0f;
    if (args->lse)
        args->lse[row] = total > 0 ? (float)(max + log(total)) : -INFINITY;
}

static int exact_attend(const kvb_attend *args)
{
    for (uint32_t t = 0; t < args->problem.n_tok; t++)
        for (uint32_t h = 0; h < args->problem.n_heads; h++)
            attend_row(args, t, h);
    return 0;
}

const kvb_kernel kvb_live_kernel_exact = {
    .name = "exact",
    .summary = "sums in double, rounded to f32 once: for recording",
    .masks = KVB_MASKS_ALL,
    .supports = exact_supports,
    .scratch_bytes = exact_scratch_bytes,
    .arithmetic = exact_arithmetic,
    .attend = exact_attend,
};

/* ---- the op: one layer of one step over any cache and kernel ------------------------------------------------------ */

static int refused(kvb_live_op *op, int error)
{
    return kvb_why_set(error, op->why, sizeof op->why, "%s: %s", kvb_cache_type_of(op->cache)->name,
                       kvb_cache_why(op->cache));
}

/*
 * Stores k [n_tok][kv_heads][dim] and v (latent: NULL), fetches the cache's spec, and attends q [n_tok][heads][dim]
 * into out [n_tok][heads][dim] of the call's out_elem. positions [n_tok]: of the fed tokens. 0 or an errno with why.
 */
static int update_and_attend(kvb_live_op *op, const float *q, const float *k, const float *v, const uint32_t *positions,
                             uint32_t n_tok, uint32_t layer, void *out)
{
    const float *const rows[KVB_ROWS_KINDS] = {q, k, v};
    if (op->recorder)
        kvb_recorder_rows(op->recorder, layer, op->ordinals, n_tok, op->n_new, rows);
    kvb_attend_spec spec;
    int err = kvb_cache_update_and_fetch(op->cache, layer, positions, k, v, n_tok, &spec);
    if (err)
        return refused(op, err);
    err = kvb_call_prepare(&op->call, &spec, q, n_tok, op->why, sizeof op->why);
    if (err)
        return err;
    err = kvb_call_run(&op->call, out, NULL);
    return err ? kvb_why_set(err, op->why, sizeof op->why, "kernel %s failed", op->call.kernel->name) : 0;
}

/* Calls its convolution, and later its recurrence, over all fed tokens. x: inputs as in kernels/scan.h; out f32. */
static int scan_layer(kvb_live_op *op, uint32_t layer, bool conv, const kvb_scan *x, float *out)
{
    const float *const of_conv[KVB_ROWS_KINDS] = {[KVB_ROWS_X] = x->v}, *const of_state[KVB_ROWS_KINDS] = {
                                                                            x->q, x->k, x->v, x->gate, x->beta};
    if (op->recorder)
        kvb_recorder_rows(op->recorder, layer, op->ordinals, op->states.n_tok, op->n_new, conv ? of_conv : of_state);
    int err = kvb_scan_call_prepare(&op->scan, &op->states, conv, x, op->why, sizeof op->why);
    if (err)
        return err;
    err = kvb_scan_call_run(&op->scan, out);
    return err ? kvb_why_set(err, op->why, sizeof op->why, "kernel %s failed", op->scan.kernel->name) : 0;
}

/* ---- products and norms ------------------------------------------------------------------------------------------ */

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

/* y [rows] = w [rows][columns] x [columns], at most 4 rows. A row's sum has four chains; its order depends on columns
 * only. The chains of all rows together hide the latency of the adds. */
static inline void dots(const float *w, const float *x, size_t rows, size_t columns, float *y)
{
    four s[4] = {{0}};
    size_t i = 0;
    for (; i + 4 <= columns; i += 4)
        for (size_t r = 0; r < rows; r++)
            s[r] += *(const four *)(w + r * columns + i) * *(const four *)(x + i);
    for (; i < columns; i++)
        for (size_t r = 0; r < rows; r++)
            s[r][0] += w[r * columns + i] * x[i];
    for (size_t r = 0; r < rows; r++)
        y[r] = (s[r][0] + s[r][1]) + (s[r][2] + s[r][3]);
}

static float dot(const float *a, const float *b, size_t n)
{
    float sum;
    dots(a, b, 1, n, &sum);
    return sum;
}

/* y [rows] = w [rows][columns] x [columns] */
static void project(const float *w, const float *x, size_t rows, size_t columns, float *y)
{
    size_t r = 0;
    for (; r + 4 <= rows; r += 4)
        dots(w + r * columns, x, 4, columns, y + r);
    for (; r < rows; r++)
        y[r] = dot(w + r * columns, x, columns);
}

/* y [columns] = x [rows] w [rows][columns] */
static void project_back(const float *w, const float *x, size_t rows, size_t columns, float *y)
{
    memset(y, 0, columns * sizeof *y);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < columns; i++)
            y[i] += x[r] * w[r * columns + i];
}

/* out [n] = x [n] over its root mean square, times gain; out may be x. */
static void normalise(const float *x, const float *gain, size_t n, float eps, float *out)
{
    float factor = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * factor * gain[i];
}

/* ---- layers that attend ------------------------------------------------------------------------------------------ */

/* The rotation of dim channels to a position: pairs i, i + dim/2. */
typedef struct turning {
    kvb_rope rope;
    float angles[KVB_MODEL_WIDTH];
} turning;

static void turning_make(turning *t, uint32_t dim, uint32_t position, double theta)
{
    t->rope = (kvb_rope){.dims = dim, .base = theta};
    kvb_rope_angles(&t->rope, position, t->angles);
}

/* Heads of one token's q or K: QK-norm, then RoPE (NULL: none). */
static void position_heads(float *x, const float *gain, const kvb_model_config *c, uint32_t heads, const turning *rope)
{
    for (uint32_t h = 0; h < heads; h++, x += c->head_dim) {
        if (gain)
            normalise(x, gain, c->head_dim, c->norm_eps, x);
        if (rope)
            kvb_rope_turn(&rope->rope, rope->angles, x);
    }
}

/* One head's part of kv_b: that of K, then that of V. */
static const float *up_of(const kvb_model_config *c, const kvb_layer_weights *w, uint32_t head)
{
    return w->kv_b + (size_t)head * (c->head_dim - c->rope_dim + c->v_dim) * c->kv_lora_rank;
}

/* Makes q, K and V rows of one token with latent attention. x: normalised; work [heads * head_dim + kv_lora_rank +
 * rope_dim]. */
static void latent_rows(const kvb_model_config *c, const kvb_layer_weights *w, const float *x, uint32_t position,
                        float *work, float *q, float *k, float *v)
{
    uint32_t rank = c->kv_lora_rank, rest = c->head_dim - c->rope_dim;
    float *head = work, *row = work + (size_t)c->heads * c->head_dim;
    project(w->q, x, (size_t)c->heads * c->head_dim, c->hidden, head);
    project(w->kv_a, x, rank + c->rope_dim, c->hidden, row);
    normalise(row, w->kv_a_norm, rank, c->norm_eps, row);
    turning rope;
    turning_make(&rope, c->rope_dim, position, c->rope_theta);
    kvb_rope_turn(&rope.rope, rope.angles, row + rank);
    for (uint32_t h = 0; h < c->heads; h++, head += c->head_dim) {
        const float *up = up_of(c, w, h);
        kvb_rope_turn(&rope.rope, rope.angles, head + rest);
        if (c->expanded) {
            memcpy(q + h * c->head_dim, head, c->head_dim * sizeof *q);
            project(up, row, rest, rank, k + h * c->head_dim);
            memcpy(k + h * c->head_dim + rest, row + rank, c->rope_dim * sizeof *k);
            project(up + rest * rank, row, c->v_dim, rank, v + h * c->v_dim);
        } else {
            project_back(up, head, rest, rank, q);
            memcpy(q + rank, head + rest, c->rope_dim * sizeof *q);
            q += rank + c->rope_dim;
        }
    }
    if (!c->expanded)
        memcpy(k, row, (rank + c->rope_dim) * sizeof *k);
}

/* Makes one token's V rows [heads * v_dim] from its attention over latent rows, attended [heads][kv_lora_rank]. */
static void latent_outputs(const kvb_model_config *c, const kvb_layer_weights *w, const float *attended, float *out)
{
    size_t rest = c->head_dim - c->rope_dim, rank = c->kv_lora_rank;
    for (uint32_t h = 0; h < c->heads; h++)
        project(up_of(c, w, h) + rest * rank, attended + h * rank, c->v_dim, rank, out + h * c->v_dim);
}

/* x += SwiGLU(norm(x)); row [hidden], gate and up [ffn] are working memory. */
static void mlp(const kvb_model_config *c, const kvb_layer_weights *w, float *x, float *row, float *gate, float *up)
{
    normalise(x, w->mlp_norm, c->hidden, c->norm_eps, row);
    project(w->gate, row, c->ffn, c->hidden, gate);
    project(w->up, row, c->ffn, c->hidden, up);
    for (uint32_t i = 0; i < c->ffn; i++)
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    project(w->down, gate, c->hidden, c->ffn, row);
    for (uint32_t i = 0; i < c->hidden; i++)
        x[i] += row[i];
}

/* ---- layers that scan -------------------------------------------------------------------------------------------- */

/*
 * The mixer: RMSNorm, a projection, the convolution and the recurrence through the op, the skip term, the gate z, a
 * norm, and a projection back. As in Mamba (arXiv 2312.00752), Mamba-2 (2405.21060) and Gated DeltaNet (2412.06464),
 * except that all of them have the norm. All except the two calls is done token by token, so that a token's numbers do
 * not depend on its batch mates.
 */

static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The rows of n tokens, for all heads of the layer. */
typedef struct token_rows {
    float *projected, *inputs, *mixed, *q, *k, *v, *gate, *beta, *out, *row;
    size_t channels, width, inner, keys, gates; /* floats of a token */
} token_rows;

static float *floats_take(kvb_live_op *op, size_t n)
{
    return kvb_arena_take(&op->arena, n, sizeof(float));
}

static token_rows rows_take(const kvb_model_config *c, uint32_t n, kvb_live_op *op)
{
    const kvb_group_scan *s = &c->scan;
    token_rows r = {.channels = s->conv_channels,
                    .width = kvb_scan_projected(s),
                    .inner = (size_t)s->heads * s->d_v,
                    .keys = (size_t)s->groups * s->d_k,
                    .gates = s->kind == KVB_SCAN_MAMBA1 ? s->d_v : s->heads};
    float **const rows[] = {&r.projected, &r.inputs, &r.mixed, &r.q, &r.k, &r.v, &r.gate, &r.beta, &r.out};
    const size_t floats[] = {r.width, r.channels, r.channels, r.keys, r.keys, r.inner, r.gates, s->heads, r.inner};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        *rows[i] = floats_take(op, n * floats[i]);
    r.row = floats_take(op, c->hidden + c->dt_rank + 2 * (size_t)s->d_k);
    return r;
}

static void unit(float *x, uint32_t n, float scale)
{
    float sum = 1e-6f;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        x[i] *= scale / sqrtf(sum);
}

/* Makes the inputs of the recurrence for token t. The convolved row holds v in mamba1; v, k, q in mamba2; q, k, v in
 * the delta rule. */
static void token_take(const kvb_model_config *c, const kvb_layer_weights *w, const token_rows *r, size_t t)
{
    const kvb_group_scan *s = &c->scan;
    const float *mixed = r->mixed + t * r->channels, *rest = r->projected + t * r->width + r->channels + r->inner;
    float *q = r->q + t * r->keys, *k = r->k + t * r->keys, *v = r->v + t * r->inner, *gate = r->gate + t * r->gates;
    const bool delta = s->kind == KVB_SCAN_DELTA;
    memcpy(v, mixed + (delta ? 2 * r->keys : 0), r->inner * sizeof *v);
    if (s->kind == KVB_SCAN_MAMBA1) {
        project(w->select, v, c->dt_rank + 2u * s->d_k, s->d_v, r->row);
        project(w->dt, r->row, s->d_v, c->dt_rank, gate);
        for (uint32_t i = 0; i < s->d_v; i++)
            gate[i] = softplus(gate[i] + w->dt_bias[i]);
        memcpy(k, r->row + c->dt_rank, r->keys * sizeof *k);
        memcpy(q, r->row + c->dt_rank + r->keys, r->keys * sizeof *q);
        return;
    }
    memcpy(k, mixed + (delta ? r->keys : r->inner), r->keys * sizeof *k);
    memcpy(q, mixed + (delta ? 0 : r->inner + r->keys), r->keys * sizeof *q);
    for (uint32_t h = 0; h < s->heads; h++)
        gate[h] = softplus(rest[h] + w->dt_bias[h]) * (delta ? w->a[h] : 1.0f);
    for (uint32_t h = 0; delta && h < s->heads; h++)
        r->beta[t * s->heads + h] = sigmoid(rest[s->heads + h]);
    for (uint32_t g = 0; delta && g < s->groups; g++) {
        unit(q + (size_t)g * s->d_k, s->d_k, 1.0f / sqrtf((float)s->d_k));
        unit(k + (size_t)g * s->d_k, s->d_k, 1.0f);
    }
}

/* Applies the skip term, the gate z, the norm and the projection back. */
static void token_add(const kvb_model_config *c, const kvb_layer_weights *w, const token_rows *r, size_t t, float *x)
{
    const kvb_group_scan *s = &c->scan;
    const float *z = r->projected + t * r->width + r->channels, *v = r->v + t * r->inner;
    float *out = r->out + t * r->inner;
    for (size_t i = 0; i < r->inner; i++) {
        const float skip = s->kind == KVB_SCAN_DELTA    ? 0.0f
                           : s->kind == KVB_SCAN_MAMBA1 ? w->skip[i]
                                                        : w->skip[i / s->d_v];
        out[i] = (out[i] + skip * v[i]) * (z[i] * sigmoid(z[i]));
    }
    normalise(out, w->scan_norm, r->inner, c->norm_eps, out);
    project(w->out, out, c->hidden, r->inner, r->row);
    for (uint32_t i = 0; i < c->hidden; i++)
        x[i] += r->row[i];
}

/* Adds the layer's outputs to x [n][hidden]. 0 or the op's error. */
static int mixer_forward(const kvb_model_config *c, const kvb_layer_weights *w, const token_rows *r, kvb_live_op *op,
                         const uint32_t *positions, uint32_t n, uint32_t layer, float *x)
{
    const bool delta = c->scan.kind == KVB_SCAN_DELTA;
    const float *const constants[KVB_CONSTANTS] = {delta ? NULL : w->a, w->taps, w->bias};
    for (int i = 0; op->recorder && i < KVB_CONSTANTS; i++)
        op->recorder->constant[i][layer] = constants[i];
    int err = kvb_cache_fetch_states(op->cache, layer, positions, n, &op->states);
    err = err ? refused(op, err) : 0;
    for (size_t t = 0; t < n && !err; t++) {
        normalise(x + t * c->hidden, w->attn_norm, c->hidden, c->norm_eps, r->row);
        project(w->in, r->row, r->width, c->hidden, r->projected + t * r->width);
        memcpy(r->inputs + t * r->channels, r->projected + t * r->width, r->channels * sizeof *r->inputs);
    }
    if (!err)
        err = scan_layer(op, layer, true, &(kvb_scan){.v = r->inputs, .a = w->taps, .bias = w->bias}, r->mixed);
    for (size_t t = 0; t < n && !err; t++)
        token_take(c, w, r, t);
    if (!err)
        err = scan_layer(op, layer, false,
                         &(kvb_scan){.q = r->q,
                                     .k = r->k,
                                     .v = r->v,
                                     .gate = r->gate,
                                     .beta = delta ? r->beta : NULL,
                                     .a = delta ? NULL : w->a},
                         r->out);
    for (size_t t = 0; t < n && !err; t++)
        token_add(c, w, r, t, x + t * c->hidden);
    return err;
}

/* ---- the forward pass -------------------------------------------------------------------------------------------- */

void kvb_live_op_free(kvb_live_op *op)
{
    kvb_call_free(&op->call);
    kvb_scan_call_free(&op->scan);
    kvb_arena_free(&op->arena);
}

int kvb_model_forward(const kvb_weights *weights, kvb_live_op *op, const int32_t *tok, const uint32_t *positions,
                      float *logits)
{
    const uint32_t n = op->n_fed, n_new = op->n_new;
    const kvb_model_config *c = &weights->config;
    const kvb_group g = kvb_model_config_group(c);
    size_t hidden = c->hidden, q_row = (size_t)g.heads * g.k_dim, out_row = (size_t)g.heads * g.v_dim;
    size_t k_row = (size_t)g.kv_heads * g.k_dim, v_row = g.latent ? 0 : (size_t)g.kv_heads * g.v_dim;
    size_t o_row = c->kv_lora_rank ? (size_t)c->heads * c->v_dim : out_row;
    size_t latent = c->kv_lora_rank ? (size_t)c->heads * c->head_dim + c->kv_lora_rank + c->rope_dim + o_row : 0;
    kvb_arena_free(&op->arena);
    float *x = floats_take(op, n * hidden), *q = floats_take(op, n * q_row), *k = floats_take(op, n * k_row),
          *v = floats_take(op, n * v_row), *attended = floats_take(op, n * out_row), *row = floats_take(op, hidden),
          *gate = floats_take(op, c->ffn), *up = floats_take(op, c->ffn), *heads = floats_take(op, latent);
    const token_rows mixer = rows_take(c, n, op);
    int err = 0;
    if (op->arena.failed)
        return kvb_why_set(-ENOMEM, op->why, sizeof op->why, "no memory for a step of %u tokens", n);

    for (size_t t = 0; t < n; t++)
        memcpy(x + t * hidden, weights->embed + (size_t)tok[t] * hidden, hidden * sizeof *x);
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        const kvb_layer_weights *w = &weights->layers[layer];
        if (kvb_model_config_scans(c, layer)) {
            err = mixer_forward(c, w, &mixer, op, positions, n, layer, x);
            if (err)
                return err;
            for (size_t t = 0; t < n; t++)
                mlp(c, w, x + t * hidden, row, gate, up);
            continue;
        }
        const bool turns = !c->no_rope_every || (layer + 1) % c->no_rope_every;
        for (size_t t = 0; t < n; t++) {
            normalise(x + t * hidden, w->attn_norm, hidden, c->norm_eps, row);
            if (c->kv_lora_rank) {
                latent_rows(c, w, row, positions[t], heads, q + t * q_row, k + t * k_row, v + t * v_row);
                continue;
            }
            project(w->q, row, q_row, hidden, q + t * q_row);
            project(w->k, row, k_row, hidden, k + t * k_row);
            project(w->v, row, v_row, hidden, v + t * v_row);
            turning rope;
            if (turns)
                turning_make(&rope, c->head_dim, positions[t], c->rope_theta);
            position_heads(q + t * q_row, w->q_norm, c, c->heads, turns ? &rope : NULL);
            position_heads(k + t * k_row, w->k_norm, c, c->kv_heads, turns ? &rope : NULL);
        }
        err = update_and_attend(op, q, k, g.latent ? NULL : v, positions, n, layer, attended);
        if (err)
            return err;
        /* of the last layer only the new tokens' outputs are needed */
        for (size_t t = layer + 1 < c->layers ? 0 : n - n_new; t < n; t++) {
            if (g.latent)
                latent_outputs(c, w, attended + t * out_row, heads);
            project(w->o, g.latent ? heads : attended + t * out_row, hidden, o_row, row);
            for (size_t i = 0; i < hidden; i++)
                x[t * hidden + i] += row[i];
            mlp(c, w, x + t * hidden, row, gate, up);
        }
    }
    for (size_t t = n - n_new; t < n; t++, logits += c->vocab) {
        normalise(x + t * hidden, weights->norm, hidden, c->norm_eps, row);
        project(weights->lm_head, row, c->vocab, hidden, logits);
    }
    return 0;
}

void kvb_model_best(const float *logits, uint32_t vocab, uint32_t n, int32_t *best)
{
    uint32_t found = 0;
    for (uint32_t id = 0; id < vocab; id++) {
        uint32_t place = found;
        while (place > 0 && logits[id] > logits[best[place - 1]])
            place--;
        if (place == n)
            continue;
        found += found < n;
        for (uint32_t i = found - 1; i > place; i--)
            best[i] = best[i - 1];
        best[place] = (int32_t)id;
    }
}
