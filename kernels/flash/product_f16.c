/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel `flash-f16`: products and short sums of f16 (AVX-512 FP16), over rows where they lie. Where a score or sum
 * passes f16's range the loops return false, and the same rows are multiplied as floats.
 */
#include "kernels/flash/flash.h"

#include "kernels/convert.h"
#include "kernels/kernels.h"

/* Roughly the cycles for rows of 128 channels. Work is split by these costs, so their ratios are what matters. */
static uint32_t f16_cost(uint32_t rows, uint32_t cells)
{
    return cells * (15 + 9 * rows);
}

/* ---- which rows -------------------------------------------------------------------------------------------------- */

/* Codes of 8 bits with f16 scales: ggml's blocks, or code * scale + zero in groups. */
static bool is_codes(const kvb_format *f)
{
    return f->elem == KVB_Q8_0 || (f->elem == KVB_UINT8 && f->axis == KVB_AXIS_CHANNELS && f->scale_elem == KVB_F16 &&
                                   f->zero_elem == KVB_F16 && (f->group == 32 || f->group == 64 || f->group == 128));
}

/* values: channels that are read as V: all, unless V lies in K's rows. */
static bool side_fits(const kvb_format *f, uint32_t dim, uint32_t values, char *why, size_t why_bytes)
{
    const bool codes = is_codes(f);
    const uint32_t step = codes ? f->group : f->elem == KVB_E4M3 ? FP8_DIM : 16;
    const char *reason = NULL;

    if (!codes && f->elem != KVB_F16 && f->elem != KVB_E4M3)
        reason = "neither f16 nor e4m3 nor 8 bits with f16 scales";
    else if (f->transform)
        reason = "its rows are transformed";
    else if (codes ? f->residual_cells || f->head_scale
                   : !kvb_side_in_place(f, kvb_loops_at(kvb_cpu())->vector, dim - dim % step, values - values % step))
        reason = "its rows have scales of another kind";
    return kvb_rows_fit(f, "products of f16", reason, step, F16_MAX_DIM, dim, why, why_bytes) &&
           kvb_rows_fit(f, "products of f16", NULL, step, F16_MAX_DIM, values, why, why_bytes);
}

static bool f16_fits(const kvb_problem *p, char *why, size_t why_bytes)
{
    return side_fits(p->k_format, p->k_dim, p->v_in_k ? kvb_v_width(p) : p->k_dim, why, why_bytes) &&
           (p->v_in_k || side_fits(p->v_format, p->v_dim, p->v_dim, why, why_bytes));
}

/*
 * The loss below f16's normal numbers is bounded relative to the largest |q| or weight. With a head scale it is
 * relative to the row's own elements: those of e4m3 are 0 or at least 2^-9.
 */
static void f16_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    const kvb_format *v = p->v_in_k ? p->k_format : p->v_format;
    const double smallest = 0x1p-9, of_q = F16_ERROR / F16_LARGEST_Q,
                 of_weight = 2 * F16_ERROR / (v->elem == KVB_E4M3 ? F16_WEIGHTS_E4M3 : F16_WEIGHTS);

    kvb_float_arithmetic(p, a);
    a->query.rounding = a->scores.rounding = a->sums.rounding = KVB_F16;
    a->scores.chain = F16_DOT_CHAIN(p->k_dim);
    a->sums.chain = F16_SUM_CHAIN;
    a->query.floor = of_q;
    if (p->k_format->head_scale)
        a->query.floor += of_q / smallest;
    else
        a->scores.floor = p->k_dim * of_q;
    if (v->head_scale)
        a->sums.step = 2 * of_weight / smallest;
    else
        a->sums.floor = of_weight;
    if (is_codes(p->k_format)) { /* converting a code rounds once; a small element is off by an absolute error */
        a->scores.chain++;
        a->scores.floor += p->k_dim * F16_ERROR;
    }
    if (is_codes(v)) {
        a->sums.chain++;
        a->sums.floor += F16_ERROR;
    }
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

/* A query row as f16, then room for the row as floats. */
static size_t f16_query_bytes(const kvb_problem *p)
{
    return kvb_f16_query_bytes(p->k_dim) + kvb_float_query_bytes(p);
}

static void f16_decoded(const kvb_flash *f, const void *encoded, double *q)
{
    const uint32_t dim = f->args->problem.k_dim;
    const float *back = encoded; /* with the 2^8 that undo an E4M3 row's 2^-8 */
    float scaled[F16_MAX_DIM];
    kvb_elems_decode(KVB_F16, scaled, (const char *)encoded + 64, dim);
    for (uint32_t c = 0; c < dim; c++)
        q[c] = (double)scaled[c] * (double)*back / (f->k.view->format->elem == KVB_E4M3 ? 256 : 1);
}

static const void *f16_query(const kvb_flash *f, uint32_t h, const float *q, void *encoded)
{
    const uint32_t dim = f->args->problem.k_dim;
    float *floats = (float *)(void *)((char *)encoded + kvb_f16_query_bytes(dim));
    f->loops->f16->query(f->k.view->format, dim, kvb_float_query(f, h, q, floats), encoded);
    return encoded;
}

/* Sets the floats of an encoded row to its f16, so that all blocks of cells meet the same q. */
static const float *f16_query_floats(const kvb_flash *f, const kvb_workspace *w, const kvb_row_group *g, uint32_t r)
{
    const uint32_t dim = f->args->problem.k_dim;
    char *encoded = w->queries + g->row[r] * f->query_bytes;
    float *floats = (float *)(void *)(encoded + kvb_f16_query_bytes(dim));
    double rounded[F16_MAX_DIM];
    f16_decoded(f, encoded, rounded);
    for (uint32_t c = 0; c < dim; c++)
        floats[c] = (float)rounded[c];
    return floats;
}

/* Stored rows for the loops of floats: in place, or converted in a tile. */
static kvb_stored_rows rows_as_floats(const kvb_side *side, const kvb_row_group *g, const kvb_stored_rows *rows,
                                      char *tile, const void *at[BLOCK])
{
    kvb_stored_rows floats = *rows;
    if (side->in_place)
        return floats;
    kvb_rows_in_tile(side, g, 0, g->n_cells, (float *)(void *)tile, at);
    floats.elem = KVB_F32;
    floats.at = at;
    floats.ahead = (kvb_row_ahead){0};
    return floats;
}

static uint32_t rows_at_once(const kvb_row_group *g, uint32_t r)
{
    return g->n_rows - r < DOTS_ROWS ? g->n_rows - r : DOTS_ROWS;
}

static void f16_scores(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    const kvb_stored_rows keys = kvb_side_rows(f, &f->k, g, g->key, false);

    for (uint32_t r = 0, rows; r < g->n_rows; r += rows) {
        const void *floats[DOTS_ROWS], *at[BLOCK];
        rows = rows_at_once(g, r);
        if (f->loops->f16->dots(&keys, g->query + r, rows, w->scores + r * BLOCK))
            continue;
        const kvb_stored_rows again = rows_as_floats(&f->k, g, &keys, w->scratch, at);
        for (uint32_t i = 0; i < rows; i++)
            floats[i] = f16_query_floats(f, w, g, r + i);
        f->loops->vector->dots(&again, floats, rows, w->scores + r * BLOCK);
    }
}

static void f16_sums(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    const kvb_problem *p = &f->args->problem;
    const kvb_stored_rows values = kvb_side_rows(f, &f->v, g, p->v_in_k ? g->key : g->value, p->v_in_k);

    for (uint32_t r = 0, rows; r < g->n_rows; r += rows) {
        const void *at[BLOCK];
        rows = rows_at_once(g, r);
        if (f->loops->f16->sums(&values, w->scores + r * BLOCK, rows, g->sums + r))
            continue;
        const kvb_stored_rows again = rows_as_floats(&f->v, g, &values, w->scratch + kvb_float_v_tile(p), at);
        f->loops->vector->sums(&again, w->scores + r * BLOCK, rows, g->sums + r);
    }
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

const kvb_product kvb_product_f16 = {
    .loops = offsetof(kvb_loops, f16),
    .fits = f16_fits,
    .query_bytes = f16_query_bytes,
    .scratch_bytes = kvb_float_tiles_bytes,
    .query = f16_query,
    .decoded = f16_decoded,
    .scores = f16_scores,
    .sums = f16_sums,
    .cost = f16_cost,
};

KVB_FLASH_ROUNDING_KERNEL(flash_f16, f16, .name = "flash-f16",
                          .summary = "the same by products and short sums of f16: rows of f16, e4m3, some of 8 bits",
                          .arithmetic = f16_arithmetic);
