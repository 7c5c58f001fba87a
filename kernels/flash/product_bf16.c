/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels `flash-bf16` and `flash-amx`: products of pairs of bf16 (AVX-512 BF16, AArch64's BF16), to which q and
 * weights are rounded. Few query rows meet stored rows where they lie; for more the block is packed, and `flash-amx`
 * multiplies it by AMX's tiles.
 */
#include "kernels/flash/flash.h"

#include "kernels/convert.h"
#include "kernels/kernels.h"

#include <math.h>

/* Roughly the cycles for rows of 128 channels. Work is split by these costs, so their ratios are what matters. */
static uint32_t bf16_cost(uint32_t rows, uint32_t cells)
{
    return cells * 30 + rows * kvb_padded(cells) * 6;
}

/* Measured: packing, then tiles and softmax. */
static uint32_t amx_cost(uint32_t rows, uint32_t cells)
{
    return cells * 80 + (rows + 15) / 16 * 24 * kvb_padded(cells);
}

/* ---- which rows -------------------------------------------------------------------------------------------------- */

static bool side_fits(const kvb_format *f, uint32_t dim, char *why, size_t why_bytes)
{
    const bool fp8 = f->elem == KVB_E4M3 || f->elem == KVB_E5M2;
    const char *reason = NULL;

    if (!fp8 && f->elem != KVB_BF16)
        reason = "neither bf16 nor e4m3 nor e5m2";
    else if (f->transform)
        reason = "its rows are transformed";
    else if (f->group || f->residual_cells || (f->head_scale && !fp8))
        reason = "its rows have scales beside them";
    return kvb_rows_fit(f, "products of bf16", reason, 16, BF16_MAX_DIM, dim, why, why_bytes);
}

static bool bf16_fits(const kvb_problem *p, char *why, size_t why_bytes)
{
    return side_fits(p->k_format, p->k_dim, why, why_bytes) &&
           side_fits(p->v_in_k ? p->k_format : p->v_format, p->v_dim, why, why_bytes);
}

/*
 * The instruction treats numbers below BF16_LEAST as 0. The loss is bounded relative to the largest |q|, or to the
 * largest weight, which is at least a half in the end. With a head scale it is relative to the row's own elements:
 * before the scale, FP8 elements are 0 or at least 2^-16.
 */
static void bf16_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    const double smallest = 0x1p-16, of_weight = 4 * BF16_LEAST;

    kvb_float_arithmetic(p, a);
    a->dot_chain += BF16_OWN_PAIR;
    a->cell_chain += BF16_OWN_PAIR;
    a->query.rounding = a->sums.rounding = KVB_BF16;
    a->query.floor = BF16_LOST;
    if (p->k_format->head_scale)
        a->query.floor += 2 * BF16_LOST / smallest;
    else
        a->scores.floor = 2 * p->k_dim * BF16_LOST;
    if (p->v_format->head_scale)
        a->sums.step = 2 * of_weight / smallest;
    else
        a->sums.floor = of_weight;
}

/* Chains of scores by tiles are no longer than k_dim. In a block, sums of even and of odd products are added, then
 * added to the sums: AMX_ADDITIONS times, or once for 32 cells or fewer. */
static void amx_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    bf16_arithmetic(p, a);
    if (p->n_tok * (uint64_t)(p->n_heads / p->n_kv_heads) <= DOTS_ROWS)
        return;
    a->cell_chain += 1 + (AMX_ADDITIONS - 1) * (p->n_cells / (BLOCK / AMX_ADDITIONS));
    a->exp_error = AMX_WEIGHT_ERROR;
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

static size_t bf16_query_bytes(const kvb_problem *p)
{
    return kvb_bf16_query_bytes(p->k_dim);
}

static size_t bf16_scratch_bytes(const kvb_problem *p)
{
    return kvb_bf16_scratch_bytes(p->k_dim > p->v_dim ? p->k_dim : p->v_dim);
}

static size_t amx_scratch_bytes(const kvb_problem *p)
{
    return kvb_amx_scratch_bytes(p->k_dim, p->v_dim); /* more than bf16's */
}

static const void *bf16_query(const kvb_flash *f, uint32_t h, const float *q, void *encoded)
{
    _Alignas(64) float scaled[BF16_MAX_DIM];
    f->loops->bf16->query(f->k.view->format, f->args->problem.k_dim, kvb_float_query(f, h, q, scaled), encoded);
    return encoded;
}

static void bf16_decoded(const kvb_flash *f, const void *encoded, double *q)
{
    const uint32_t dim = f->args->problem.k_dim;
    const float *back = encoded;
    float scaled[BF16_MAX_DIM];
    kvb_elems_decode(KVB_BF16, scaled, (const char *)encoded + 64, dim);
    for (uint32_t c = 0; c < dim; c++) /* as the instruction reads it */
        q[c] = fabs((double)scaled[c]) < BF16_LEAST ? 0 : (double)scaled[c] * (double)*back;
}

static void bf16_scores(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    const kvb_side *k = &f->k;
    if (g->n_rows > DOTS_ROWS) {
        kvb_lookahead next = kvb_group_lookahead(f, k, g);
        f->loops->bf16->block_scores(k->view, g->kv_head, g->cell, g->n_cells, g->query, g->n_rows, w->scores, &next,
                                     w->scratch);
        return;
    }
    const kvb_stored_rows keys = kvb_side_rows(f, k, g, g->key, false);
    f->loops->bf16->dots(&keys, g->query, g->n_rows, w->scores);
}

/* V's rows: the first channels of K's, where V lies in them. */
static kvb_view values_of(const kvb_flash *f)
{
    kvb_view values = *f->v.view;
    values.dim = f->args->problem.v_dim;
    return values;
}

static void bf16_sums(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    const bool v_in_k = f->args->problem.v_in_k;
    const kvb_side *v = &f->v;
    if (g->n_rows > DOTS_ROWS) {
        kvb_lookahead next = kvb_group_lookahead(f, v, g);
        const kvb_view rows = values_of(f);
        f->loops->bf16->block_sums(&rows, g->kv_head, g->cell, g->n_cells, w->scores, g->n_rows, g->sums, &next,
                                   w->scratch);
        return;
    }
    const kvb_stored_rows values = kvb_side_rows(f, v, g, v_in_k ? g->key : g->value, v_in_k);
    f->loops->bf16->sums(&values, w->scores, g->n_rows, g->sums);
}

static bool amx_group(const kvb_flash *f, const kvb_workspace *w, const kvb_row_group *g, uint32_t blocks)
{
    kvb_lookahead next[2] = {kvb_group_lookahead(f, &f->k, g), kvb_group_lookahead(f, &f->v, g)};
    const kvb_view values = values_of(f);
    const kvb_amx_group group = {.k = f->k.view,
                                 .v = &values,
                                 .kv_head = g->kv_head,
                                 .cells = g->cell,
                                 .n_cells = g->n_cells,
                                 .blocks = blocks,
                                 .n_rows = g->n_rows,
                                 .queries = g->query,
                                 .visible = g->visible,
                                 .state = g->state,
                                 .sums = g->sums,
                                 .logits = f->logits};
    if (g->n_rows <= DOTS_ROWS)
        return false;
    for (int i = 0; i < 2; i++)
        next[i].ahead += (blocks - 1) * BLOCK;
    f->loops->amx->attend(&group, &next[0], &next[1], w->scratch);
    return true;
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

#define PRODUCT(LOOPS, ...)                                                                                            \
    const kvb_product kvb_product_##LOOPS = {.loops = offsetof(kvb_loops, LOOPS),                                      \
                                             .fits = bf16_fits,                                                        \
                                             .query_bytes = bf16_query_bytes,                                          \
                                             .scratch_bytes = LOOPS##_scratch_bytes,                                   \
                                             .query = bf16_query,                                                      \
                                             .decoded = bf16_decoded,                                                  \
                                             .scores = bf16_scores,                                                    \
                                             .sums = bf16_sums,                                                        \
                                             .cost = LOOPS##_cost,                                                     \
                                             __VA_ARGS__}
PRODUCT(bf16);
PRODUCT(amx, .group = amx_group);

KVB_FLASH_ROUNDING_KERNEL(flash_bf16, bf16, .name = "flash-bf16",
                          .summary = "the same by pairs of bf16, q and weights rounded to it: rows of bf16, e4m3, e5m2",
                          .arithmetic = bf16_arithmetic);
KVB_FLASH_ROUNDING_KERNEL(flash_amx, amx, .name = "flash-amx",
                          .summary = "the same, more than 8 query rows by AMX's tiles: rows of bf16, e4m3, e5m2",
                          .arithmetic = amx_arithmetic);
