/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The witness: lists the codes of the rows that each query sees (layout in witness.h). Every cell's codes
 * are read once, into a table behind the lists in scratch, code[n_kv_heads][n_cells][2]; then the lists
 * are filled from it. out is all zeros and lse is 0.
 */
#include "kernels/witness.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <string.h>

static size_t list_words(const kvb_problem *p)
{
    return (size_t)p->n_tok * p->n_kv_heads * (1 + 2 * (size_t)p->n_cells);
}

static size_t scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    (void)n_threads; /* all of it is shared */
    return (list_words(p) + 2 * (size_t)p->n_kv_heads * p->n_cells) * sizeof(uint32_t);
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (!kvb_plain_supports(p, why, why_bytes))
        return false;
    if (p->k_dim < KVB_WITNESS_MIN_DIM || p->v_dim < KVB_WITNESS_MIN_DIM) {
        snprintf(why, why_bytes, "a code takes rows of at least %u elements", KVB_WITNESS_MIN_DIM);
        return false;
    }
    return true;
}

/* It computes no sum and rounds nothing. */
static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    (void)p;
    *a = (kvb_arithmetic){.accumulator = KVB_F32, .q_rounded = KVB_F32, .p_rounded = KVB_F32};
}

/* The code of 16 symbols. False: one of them is none. */
static bool symbols_read(const float *x, uint32_t *code)
{
    *code = 0;
    for (uint32_t i = 0; i < KVB_WITNESS_MIN_DIM; i++) {
        if (!(x[i] == -3.0f || x[i] == -1.0f || x[i] == 1.0f || x[i] == 3.0f))
            return false;
        *code |= (uint32_t)((x[i] + 3.0f) / 2.0f) << 2 * i;
    }
    return true;
}

/* The first repeat is decoded; the others must be the same bytes. */
static uint32_t row_code(const kvb_view *view, uint32_t h, uint32_t c)
{
    const char *row = kvb_view_row(view, h, c);
    size_t elem = kvb_elem_bytes(view->format->elem), period = KVB_WITNESS_MIN_DIM * elem;
    uint32_t code;
    float x[KVB_WITNESS_MIN_DIM];

    kvb_elems_decode(view->format->elem, x, row, KVB_WITNESS_MIN_DIM);
    if (!symbols_read(x, &code) || memcmp(row, row + period, view->dim * elem - period))
        return KVB_WITNESS_TORN;
    return code;
}

static uint32_t *codes_of(const kvb_attend *args, uint32_t h)
{
    return (uint32_t *)args->scratch + list_words(&args->problem) + 2 * (size_t)h * args->problem.n_cells;
}

/* Cells are dealt out in stripes, every head of each. */
static void read_part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_attend *args = ctx;

    for (uint32_t h = 0; h < args->problem.n_kv_heads; h++)
        for (uint32_t c = i; c < args->problem.n_cells; c += n) {
            codes_of(args, h)[2 * (size_t)c] = row_code(&args->k, h, c);
            codes_of(args, h)[2 * (size_t)c + 1] = row_code(&args->v, h, c);
        }
}

static void list_part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_attend *args = ctx;
    const kvb_problem *p = &args->problem;
    uint32_t *counts = args->scratch, *lists = counts + (size_t)p->n_tok * p->n_kv_heads;

    for (uint32_t t = i; t < p->n_tok; t += n)
        for (uint32_t h = 0; h < p->n_kv_heads; h++) {
            size_t row = (size_t)t * p->n_kv_heads + h;
            uint32_t *list = lists + 2 * row * p->n_cells, cursor = 0, count = 0;
            kvb_run run;
            while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run)) {
                memcpy(list + 2 * (size_t)count, codes_of(args, h) + 2 * (size_t)run.begin,
                       2 * sizeof *list * (run.end - run.begin));
                count += run.end - run.begin;
            }
            counts[row] = count;
        }
}

static int attend(const kvb_attend *args)
{
    const kvb_problem *p = &args->problem;
    size_t rows = (size_t)p->n_tok * p->n_heads;
    kvb_attend copy = *args; /* the team's context is not const */

    args->team->run(args->team, read_part, &copy);
    args->team->run(args->team, list_part, &copy);
    memset(args->out, 0, rows * p->v_dim * kvb_elem_bytes(p->out_elem));
    if (args->lse)
        memset(args->lse, 0, rows * sizeof *args->lse);
    return 0;
}

const kvb_kernel kvb_kernel_witness = {
    .name = "witness",
    .summary = "computes nothing: says which rows each query saw",
    .flags = KVB_KERNEL_WITNESS,
    .masks = KVB_MASK_BIT(KVB_MASK_NONE) | KVB_MASK_BIT(KVB_MASK_CAUSAL) | KVB_MASK_BIT(KVB_MASK_EXPLICIT) |
             KVB_MASK_BIT(KVB_MASK_RUNS),
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .arithmetic = arithmetic,
    .attend = attend,
};
