/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The witness: lists the codes of the rows that each query sees (layout in witness.h). Behind the lists, scratch has a
 * table code[n_kv_heads][n_cells][2], a decoded row for each thread, and a byte for each cell: 1 if some query sees it.
 * First the codes of these cells are read into the table, once. Then the lists are filled from the table. out is all
 * zeros and lse is 0.
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

/* Words of a decoded row of K or V. */
static size_t row_words(const kvb_problem *p)
{
    return p->k_dim > p->v_dim ? p->k_dim : p->v_dim;
}

static size_t scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    return (list_words(p) + code_words(p) + n_threads * row_words(p)) * sizeof(uint32_t) + p->n_cells;
}

/*
 * Does a code survive this format? A transform spreads every element's error over its block, where errors of equal
 * elements add up. Then 3 bits are too few, and the steps of e2m1 are too coarse in rows of four symbols
 * (ci/tests/whole/test_claim.c).
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

#define BITS(i) 1u << (i), 2u << (i), 4u << (i), 8u << (i), 16u << (i), 32u << (i), 64u << (i), 128u << (i)

/* Symbols of 1 bit: x [32] as bits from 0 on. False: an element is no symbol. */
static bool signs_read(const float *x, uint32_t *bits)
{
    static const uint32_t place[32] = {BITS(0), BITS(8), BITS(16), BITS(24)};
    uint32_t up = 0, none = 0;
    for (uint32_t d = 0; d < 32; d++) { /* no branches and no shifts: compilers make vectors of it */
        uint32_t is_up = -(uint32_t)(x[d] > 0.0f), is_down = -(uint32_t)(x[d] < 0.0f);
        up |= is_up & place[d];
        none |= ~(is_up | is_down);
    }
    *bits = up;
    return !none;
}

/* Symbols of 2 bits: x [n], at most 16, by the same rule. */
static bool pairs_read(const float *x, uint32_t n, uint32_t *bits)
{
    *bits = 0;
    for (uint32_t d = 0; d < n; d++) {
        if (!(x[d] > -4.0f && x[d] < 4.0f) || x[d] == -2.0f || x[d] == 0.0f || x[d] == 2.0f) /* halfway between two */
            return false;
        *bits |= (uint32_t)((x[d] + 4.0f) / 2.0f) << 2 * d;
    }
    return true;
}

/* Does each element have the sign of its counterpart in `first`? Both are symbols of 1 bit. */
static inline bool signs_repeat(const float *x, const float *first, uint32_t n)
{
    uint32_t others = 0;
    for (uint32_t d = 0; d < n; d++)
        others |= !(x[d] * first[d] > 0.0f);
    return !others;
}

static bool pairs_repeat(const float *x, uint32_t n, uint32_t code)
{
    uint32_t bits;
    return pairs_read(x, n, &bits) && bits == (n < 16 ? code & ((1u << 2 * n) - 1) : code);
}

static uint32_t row_code(const float *x, uint32_t dim)
{
    uint32_t symbols = dim >= 32 ? 32 : 16, code;
    bool whole = symbols == 32 ? signs_read(x, &code) : pairs_read(x, 16, &code);
    for (uint32_t d = symbols; d < dim && whole; d += symbols) {
        uint32_t n = dim - d < symbols ? dim - d : symbols;
        if (symbols == 16)
            whole = pairs_repeat(x + d, n, code);
        else
            whole = n == 32 ? signs_repeat(x + d, x, 32) : signs_repeat(x + d, x, n); /* 32 as a constant: vectors */
    }
    return whole ? code : KVB_WITNESS_TORN;
}

static uint32_t *codes_of(const kvb_attend *args, uint32_t h)
{
    return (uint32_t *)args->scratch + list_words(&args->problem) + 2 * (size_t)h * args->problem.n_cells;
}

static uint8_t *cells_seen(const kvb_attend *args)
{
    const kvb_problem *p = &args->problem;
    return (uint8_t *)args->scratch + scratch_bytes(p, args->team->n) - p->n_cells;
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
            if (!cells_seen(args)[c])
                continue;
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

static void cells_mark(const kvb_attend *args)
{
    const kvb_problem *p = &args->problem;
    uint8_t *seen = cells_seen(args);
    kvb_run run;
    memset(seen, 0, p->n_cells);
    for (uint32_t t = 0; t < p->n_tok; t++)
        for (uint32_t cursor = 0; kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run);)
            memset(seen + run.begin, 1, run.end - run.begin);
}

static int attend(const kvb_attend *args)
{
    const kvb_problem *p = &args->problem;
    size_t rows = (size_t)p->n_tok * p->n_heads;
    void *call = (void *)(uintptr_t)args; /* a team's context is not const */

    cells_mark(args);
    args->team->run(args->team, read_part, call);
    args->team->run(args->team, list_part, call);
    memset(args->out, 0, rows * p->v_dim * kvb_elem_bytes(p->out_elem));
    if (args->lse)
        memset(args->lse, 0, rows * sizeof *args->lse);
    return 0;
}

const kvb_kernel kvb_kernel_witness = {
    .name = "witness",
    .summary = "computes nothing: says which rows each query saw",
    .flags = KVB_KERNEL_WITNESS | KVB_KERNEL_FRONTS,
    .masks = KVB_MASKS_ALL,
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .arithmetic = arithmetic,
    .attend = attend,
};
