/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The witness: lists the codes of the rows that each query sees (layout in witness.h). Behind the lists, scratch has a table
 * code[n_kv_heads][n_cells][2] and a decoded row for each thread. Every cell's codes are read once, into the table; then the
 * lists are filled from it. out is all zeros and lse is 0.
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

static size_t code_words(const kvb_problem *p)
{
    return 2 * (size_t)p->n_kv_heads * p->n_cells;
}

/* Of a decoded row, K's or V's. */
static size_t row_words(const kvb_problem *p)
{
    return p->k_dim > p->v_dim ? p->k_dim : p->v_dim;
}

static size_t scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    return (list_words(p) + code_words(p) + n_threads * row_words(p)) * sizeof(uint32_t);
}

/*
 * Does a code survive this format? A transform spreads every element's error over its block, where errors of equal elements
 * add up. Then 3 bits are too few, and so are the steps of e2m1 in rows of four symbols (ci/tests/whole/test_legible.c).
 */
static bool legible(const kvb_format *f, uint32_t dim)
{
    bool coarse = f->elem == KVB_UINT2 || (f->elem == KVB_CODEBOOK && f->level_bits < 4);
    return !f->transform || !(coarse || (f->elem == KVB_E2M1 && dim < 32));
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (!kvb_readable_supports(p, why, why_bytes))
        return false;
    if (p->k_dim < KVB_WITNESS_MIN_DIM || p->v_dim < KVB_WITNESS_MIN_DIM) {
        snprintf(why, why_bytes, "a code takes rows of at least %u elements", KVB_WITNESS_MIN_DIM);
        return false;
    }
    if (!legible(p->k_format, p->k_dim) || !legible(p->v_format, p->v_dim)) {
        snprintf(why, why_bytes, "transformed %s rows are too coarse to spell out a code",
                 (legible(p->k_format, p->k_dim) ? p->v_format : p->k_format)->name);
        return false;
    }
    return true;
}

/* It computes no sum and rounds nothing. */
static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    (void)p;
    *a = (kvb_arithmetic){.accumulator = KVB_F32};
}

/* The symbol of that many bits nearest to x. False: there is none. */
static bool symbol_read(float x, uint32_t bits, uint32_t *symbol)
{
    if (bits == 1) {
        *symbol = x > 0.0f;
        return x > 0.0f || x < 0.0f;
    }
    if (!(x > -4.0f && x < 4.0f))
        return false;
    *symbol = (uint32_t)((x + 4.0f) / 2.0f);
    return x != -2.0f && x != 0.0f && x != 2.0f; /* halfway between two symbols */
}

static uint32_t row_code(const float *x, uint32_t dim)
{
    uint32_t bits = dim >= 32 ? 1 : 2, code = 0, symbol;

    for (uint32_t d = 0; d < dim; d++) {
        uint32_t at = d * bits % 32;
        if (!symbol_read(x[d], bits, &symbol))
            return KVB_WITNESS_TORN;
        if (d * bits < 32)
            code |= symbol << at;
        else if ((code >> at & (bits == 1 ? 1u : 3u)) != symbol)
            return KVB_WITNESS_TORN;
    }
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
    const kvb_problem *p = &args->problem;
    const kvb_view *v = p->v_in_k ? &args->k : &args->v; /* then V is the beginning of the row */
    float *row = (float *)args->scratch + list_words(p) + code_words(p) + i * row_words(p);

    for (uint32_t h = 0; h < p->n_kv_heads; h++)
        for (uint32_t c = i; c < p->n_cells; c += n) {
            uint32_t *codes = codes_of(args, h) + 2 * (size_t)c;
            codes[0] = row_code(kvb_row_read(&args->k, h, c, row), p->k_dim);
            codes[1] = row_code(kvb_row_read(v, h, c, row), p->v_dim);
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
