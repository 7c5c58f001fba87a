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

/* 16 rows of tiles take 16 cycles for 32 cells and as many channels, twice; the rest is softmax. */
static uint32_t amx_cost(uint32_t rows, uint32_t cells)
{
    return cells * 30 + (rows + 15) / 16 * 16 * kvb_padded(cells) * 2;
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
    a->cell_chain += 1 + (AMX_ADDITIONS - 1) * (p->n_cells / (BLOCK / AMX_ADDITIONS));
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
    return kvb_amx_scratch_bytes(p->k_dim > p->v_dim ? p->k_dim : p->v_dim);
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

static void bf16_scores_of(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g, kvb_block_scores_fn *block)
{
    const kvb_side *k = &f->k;
    if (g->n_rows > DOTS_ROWS) {
        kvb_lookahead next = kvb_group_lookahead(f, k, g);
        block(k->view, g->kv_head, g->cell, g->n_cells, g->query, g->n_rows, w->scores, &next, w->scratch);
        return;
    }
    const kvb_stored_rows keys = kvb_side_rows(f, k, g, g->key, false);
    f->loops->bf16->dots(&keys, g->query, g->n_rows, w->scores);
}

static void bf16_sums_of(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g, kvb_block_sums_fn *block)
{
    const kvb_problem *p = &f->args->problem;
    const kvb_side *v = &f->v;
    if (g->n_rows > DOTS_ROWS) {
        kvb_lookahead next = kvb_group_lookahead(f, v, g);
        kvb_view rows = *v->view;
        rows.dim = p->v_dim; /* the first channels, where V lies in K's rows */
        block(&rows, g->kv_head, g->cell, g->n_cells, w->scores, g->n_rows, g->sums, &next, w->scratch);
        return;
    }
    const kvb_stored_rows values = kvb_side_rows(f, v, g, p->v_in_k ? g->key : g->value, p->v_in_k);
    f->loops->bf16->sums(&values, w->scores, g->n_rows, g->sums);
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

#define KERNEL(LOOPS, NAME, SUMMARY)                                                                                   \
    static void LOOPS##_scores(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)                           \
    {                                                                                                                  \
        bf16_scores_of(f, w, g, f->loops->LOOPS->block_scores);                                                        \
    }                                                                                                                  \
    static void LOOPS##_sums(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)                             \
    {                                                                                                                  \
        bf16_sums_of(f, w, g, f->loops->LOOPS->block_sums);                                                            \
    }                                                                                                                  \
    const kvb_product kvb_product_##LOOPS = {                                                                          \
        .loops = offsetof(kvb_loops, LOOPS),                                                                           \
        .fits = bf16_fits,                                                                                             \
        .query_bytes = bf16_query_bytes,                                                                               \
        .scratch_bytes = LOOPS##_scratch_bytes,                                                                        \
        .query = bf16_query,                                                                                           \
        .decoded = bf16_decoded,                                                                                       \
        .scores = LOOPS##_scores,                                                                                      \
        .sums = LOOPS##_sums,                                                                                          \
        .cost = LOOPS##_cost,                                                                                          \
    };                                                                                                                 \
    KVB_FLASH_ROUNDING_KERNEL(flash_##LOOPS, LOOPS, .name = NAME, .summary = SUMMARY, .arithmetic = LOOPS##_arithmetic)

KERNEL(bf16, "flash-bf16", "the same by pairs of bf16, q and weights rounded to it: rows of bf16, e4m3, e5m2");
KERNEL(amx, "flash-amx", "the same, more than 8 query rows by AMX's tiles: rows of bf16, e4m3, e5m2");
