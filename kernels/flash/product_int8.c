/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel `flash-int8`: products of integers. q and weights are rounded to 8 bits, codes are taken as they are
 * stored. */
#include "kernels/flash/flash.h"

#include "kernels/kernels.h"
#include "kernels/vector/int8.h"

#include <stdio.h>

/* Roughly the cycles for rows of 128 channels. Work is split by these costs, so their ratios are what matters. */
static uint32_t int8_cost(uint32_t rows, uint32_t cells)
{
    return cells * 30 + rows * kvb_padded(cells) * 4;
}

/* ---- which rows -------------------------------------------------------------------------------------------------- */

static bool side_fits(const kvb_format *f, uint32_t dim, char *why, size_t why_bytes)
{
    const int8_elem of = f->elem < KVB_ELEM_COUNT ? int8_elem_of(f->elem) : (int8_elem){0};
    const char *reason = NULL;

    if (!of.bits)
        reason = "its elements are no evenly spaced codes";
    else if (f->transform)
        reason = "its rows are transformed";
    else if (f->residual_cells || f->axis != KVB_AXIS_CHANNELS)
        reason = "its scales are shared between cells";
    else if (f->head_scale)
        reason = "it has a head scale";
    else if (of.block_bytes ? f->group != 32 : f->group != KVB_GROUP_ROW && (!f->group || f->group % 32))
        reason = "its groups are no multiples of 32 channels";
    else if (f->group == KVB_GROUP_ROW && of.bits != 8)
        reason = "a scale a row is for codes of 8 bits";
    else if (!of.block_bytes && f->scale_elem != KVB_F16 && f->scale_elem != KVB_F32)
        reason = "its scales are neither f16 nor f32";
    else if (!of.block_bytes && of.has_m && f->zero_elem != f->scale_elem)
        reason = "its zeros and scales differ in type";
    return kvb_rows_fit(f, "integer products", reason, f->group == KVB_GROUP_ROW ? 16 : f->group, INT8_MAX_DIM, dim,
                        why, why_bytes);
}

/* If V is part of K's rows, one scale for the whole row may be far larger than V needs, and so the steps of weights. */
static bool int8_fits(const kvb_problem *p, char *why, size_t why_bytes)
{
    const kvb_format *v = p->v_in_k ? p->k_format : p->v_format;
    if (!side_fits(p->k_format, p->k_dim, why, why_bytes) || !side_fits(v, p->v_dim, why, why_bytes))
        return false;
    if (p->v_in_k && v->group == KVB_GROUP_ROW) {
        snprintf(why, why_bytes, "%s: no integer products of V in K's rows: they have one scale", v->name);
        return false;
    }
    return true;
}

/*
 * Rounding weight * d to steps puts a product off by half a step times (code - middle code), at most `offset`. The step
 * is declared relative to the largest element. With a zero that is code * d + |zero|, and each group has the code
 * 2 * offset - 1. Without, the scale comes from the largest element; IQ4_NL fits it to all: at most a third less.
 */
static double weights_step(kvb_elem elem)
{
    const int8_elem of = int8_elem_of(elem);
    return of.has_m ? 1.01 * of.offset / (2 * of.offset - 1) : elem == KVB_IQ4_NL ? 1.5 : 1.01;
}

/* In some formats a row of equal elements, even of zeros, has a least scale d of 2^-23. A product with its codes may
 * be off by this much: half a step times `offset`. */
#define LEAST_SCALE_LOST 0x1p-24

static void int8_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    const kvb_elem v = p->v_in_k ? p->k_format->elem : p->v_format->elem;
    kvb_float_arithmetic(p, a);
    a->dot_chain += 2; /* roundings of the step of q, and of q in units of it */
    a->query.step = INT8_QUERY_STEP;
    a->sums.floor = 2 * INT8_LEAST_PRODUCT + (int8_elem_of(v).has_m ? LEAST_SCALE_LOST : 0);
    a->sums.step = weights_step(v) * INT8_WEIGHT_STEP;
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

static size_t int8_query_bytes_of(const kvb_problem *p)
{
    const int8_shape s = int8_shape_of(p->k_format, p->k_dim);
    return int8_query_bytes(&s);
}

static size_t int8_scratch_bytes_of(const kvb_problem *p)
{
    const int8_shape k = int8_shape_of(p->k_format, p->k_dim);
    const int8_shape v = int8_shape_of(p->v_in_k ? p->k_format : p->v_format, p->v_dim);
    const size_t keys = int8_scratch_bytes(&k), values = int8_scratch_bytes(&v);
    return keys > values ? keys : values;
}

static const void *int8_query_encode(const kvb_flash *f, uint32_t h, const float *q, void *encoded)
{
    (void)h;
    f->loops->vector->int8_query(f->k.view->format, f->args->problem.k_dim, q, encoded);
    return encoded;
}

static void int8_query_decode(const kvb_flash *f, const void *encoded, double *q)
{
    f->loops->vector->int8_decoded(f->k.view->format, f->args->problem.k_dim, encoded, q);
}

static void int8_scores(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    kvb_lookahead next = kvb_group_lookahead(f, &f->k, g);
    f->loops->vector->int8_scores(f->k.view, g->kv_head, g->cell, g->n_cells, g->query, g->n_rows, w->scores, &next,
                                  w->scratch);
}

static void int8_sums(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    kvb_lookahead next = kvb_group_lookahead(f, &f->v, g);
    kvb_view v = *f->v.view;
    v.dim = f->args->problem.v_dim; /* the first channels, where V lies in K's rows */
    f->loops->vector->int8_sums(&v, g->kv_head, g->cell, g->n_cells, w->scores, g->n_rows, g->sums, &next, w->scratch);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

const kvb_product kvb_product_int8 = {
    .loops = offsetof(kvb_loops, vector),
    .fits = int8_fits,
    .query_bytes = int8_query_bytes_of,
    .scratch_bytes = int8_scratch_bytes_of,
    .query = int8_query_encode,
    .decoded = int8_query_decode,
    .scores = int8_scores,
    .sums = int8_sums,
    .cost = int8_cost,
};

KVB_FLASH_ROUNDING_KERNEL(flash_int8, int8, .name = "flash-int8",
                          .summary = "the same by integer products: q and weights rounded to 8 bits",
                          .arithmetic = int8_arithmetic);
