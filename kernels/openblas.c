/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BLAS kernel: scores and output as OpenBLAS products over f32 rows. The team's threads take a KV head each. Paged
 * rows, and rows of any format but f32, are decoded into scratch first, once for all queries of the head; plain f32 rows
 * are read in place.
 *
 * Rows of a product: with one query token the g query heads of the KV head, else up to TILE tokens of one query head.
 * Products cover only the runs of cells that some row of the tile sees: a cell that is hidden from all of them, which
 * may hold NaN, is never multiplied. Where only some rows of a tile see a cell, the others add 0 times its V row. If a
 * sum of a tile is not finite, its sums are made once more, each row's over the cells that it sees.
 *
 * Scratch per thread, f32 unless said otherwise: scores [rows][n_cells], sums [rows][v_dim], max [rows],
 * denominators [rows], decoded K [n_cells][k_dim] and V [n_cells][v_dim] when needed, and for EXPLICIT
 * masks the tile's bit row (uint64_t).
 */
#include "kernels/blas.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "kernels/softmax.h"
#include "kernels/vector/vector.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- products, safe to call from several threads at once --------------------------------------------------------- */

/*
 * A sequential OpenBLAS (Debian's libopenblas-serial) is built without locks: two threads may get the same packing
 * buffer, and then products are wrong, about one in twenty on two cores (OpenBLAS 0.3.21; its issues 2126 and 2711 say
 * why). With such a build one product runs at a time. A threaded build guards its buffers; it is set to one thread, and
 * the team's threads run side by side.
 */
static pthread_mutex_t one_product = PTHREAD_MUTEX_INITIALIZER;

static const kvb_blas *blas; /* set before the first product */

/* Keeps a threaded OpenBLAS to the thread that calls it. Not while another thread is in a product. False with why: there
 * is no OpenBLAS. */
static bool blas_ready(char *why, size_t why_bytes)
{
    blas = kvb_blas_open(why, why_bytes);
    /* Only if needed: setting the number starts a pool of threads again that a fork had ended. */
    if (blas && blas->threads() != 1)
        blas->set_threads(1);
    return blas;
}

static void product_begin(void)
{
    if (blas->parallel() == OPENBLAS_SEQUENTIAL)
        pthread_mutex_lock(&one_product);
}

static void product_end(void)
{
    if (blas->parallel() == OPENBLAS_SEQUENTIAL)
        pthread_mutex_unlock(&one_product);
}

/* ---- tiles of query rows ----------------------------------------------------------------------------------------- */

#define TILE 64u /* query tokens of a product; bounds the scores held at once */

/* Where a thread's buffers begin, in floats from the start of its scratch. */
typedef struct layout {
    size_t sums, max, denominators, k, v, bits, end;
} layout;

/* Rows of one KV head as BLAS takes them. */
typedef struct matrix {
    const float *rows;
    int ld; /* floats from one cell to the next */
} matrix;

typedef struct tile {
    const kvb_attend *args;
    matrix k, v;
    uint32_t tok, head; /* of row 0 */
    bool by_tok;        /* rows are tokens; else heads */
    uint32_t rows;
    kvb_mask cover; /* query cover_tok of this mask sees every cell that a row of the tile sees */
    uint32_t cover_tok;
    float *scores, *sums, *max, *denominators;
} tile;

static uint32_t tile_rows(const kvb_problem *p)
{
    if (p->n_tok == 1)
        return p->n_heads / p->n_kv_heads;
    return p->n_tok < TILE ? p->n_tok : TILE;
}

/* Token and head of row r. */
static uint32_t row_tok(const tile *tl, uint32_t r)
{
    return tl->tok + (tl->by_tok ? r : 0);
}

static uint32_t row_head(const tile *tl, uint32_t r)
{
    return tl->head + (tl->by_tok ? 0 : r);
}

static bool staged(const kvb_format *format)
{
    return !kvb_format_is_f32(format);
}

static size_t lines(size_t floats)
{
    return (floats + 15) / 16 * 16; /* whole cache lines of 16 floats */
}

static layout layout_of(const kvb_problem *p)
{
    size_t rows = tile_rows(p), cells = p->n_cells;
    layout l;

    l.sums = lines(rows * cells);
    l.max = l.sums + lines(rows * p->v_dim);
    l.denominators = l.max + lines(rows);
    l.k = l.denominators + lines(rows);
    l.v = l.k + (staged(p->k_format) ? lines(cells * p->k_dim) : 0);
    l.bits = l.v + (staged(p->v_format) && !p->v_in_k ? lines(cells * p->v_dim) : 0);
    l.end = l.bits + (p->mask == KVB_MASK_EXPLICIT ? lines((cells + 63) / 64 * 2) : 0);
    return l;
}

static size_t scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    return layout_of(p).end * sizeof(float) * n_threads;
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (!kvb_readable_supports(p, why, why_bytes))
        return false;
    if ((uint64_t)p->n_heads * p->k_dim > INT_MAX || p->v_dim > INT_MAX || p->n_cells > INT_MAX) {
        snprintf(why, why_bytes, "a dimension passes the 32-bit integers of BLAS");
        return false;
    }
    return true;
}

/* Rows of KV head h: in place, or decoded into stage [cells][dim]. */
static matrix matrix_of(const kvb_problem *p, const kvb_view *view, uint32_t h, float *stage)
{
    if (p->n_cells == 0)
        return (matrix){stage, (int)view->dim}; /* never read */
    if (!staged(view->format))
        return (matrix){kvb_view_row(view, h, 0), (int)(view->cell_stride / sizeof(float))};
    kvb_rows_decode(view, h, 0, p->n_cells, stage);
    return (matrix){stage, (int)view->dim};
}

/* Finds the cells that the tile sees: under NONE and CAUSAL those of its last row, else the union of its bit rows. */
static void tile_cover(tile *tl, uint64_t *bits)
{
    const kvb_mask *mask = &tl->args->mask;
    size_t words = ((size_t)tl->args->problem.n_cells + 63) / 64;
    uint32_t toks = tl->by_tok ? tl->rows : 1;

    if (mask->kind != KVB_MASK_EXPLICIT) {
        tl->cover = *mask;
        tl->cover_tok = tl->tok + toks - 1;
        return;
    }
    memset(bits, 0, words * sizeof *bits);
    for (uint32_t t = tl->tok; t < tl->tok + toks; t++)
        for (size_t w = 0; w < words; w++)
            bits[w] |= mask->bits[t * mask->row_words + w];
    tl->cover = (kvb_mask){.kind = KVB_MASK_EXPLICIT, .bits = bits, .row_words = words};
    tl->cover_tok = 0;
}

static bool cover_next(const tile *tl, uint32_t *cursor, kvb_run *run)
{
    const kvb_problem *p = &tl->args->problem;
    return kvb_mask_next(&tl->cover, p->n_tok, p->n_cells, tl->cover_tok, cursor, run);
}

/* scores [rows][run] = q . K^T, unscaled. One row is a matrix-vector product: K is not packed. */
static void scores_multiply(const tile *tl, kvb_run run)
{
    const kvb_problem *p = &tl->args->problem;
    const float *q = tl->args->q + ((size_t)tl->tok * p->n_heads + tl->head) * p->k_dim,
                *k = tl->k.rows + (size_t)run.begin * tl->k.ld;
    const int n = (int)(run.end - run.begin), dim = (int)p->k_dim, q_ld = tl->by_tok ? dim * (int)p->n_heads : dim;
    float *s = tl->scores + run.begin;

    if (tl->rows == 1) /* beta is 1: s may hold NaN, and not every sgemv takes beta 0 as "do not read y" */
        memset(s, 0, (size_t)n * sizeof *s);
    product_begin();
    if (tl->rows == 1)
        blas->sgemv(CblasRowMajor, CblasNoTrans, n, dim, 1.0f, k, tl->k.ld, q, 1, 1.0f, s, 1);
    else
        blas->sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)tl->rows, n, dim, 1.0f, q, q_ld, k, tl->k.ld, 0.0f, s,
                    (int)p->n_cells);
    product_end();
}

/* sums [rows][v_dim] += weights . V, for `rows` rows from the r-th on */
static void sums_multiply(const tile *tl, uint32_t r, uint32_t rows, kvb_run run)
{
    const kvb_problem *p = &tl->args->problem;
    const float *w = tl->scores + (size_t)r * p->n_cells + run.begin, *v = tl->v.rows + (size_t)run.begin * tl->v.ld;
    const int n = (int)(run.end - run.begin), dim = (int)p->v_dim;
    float *o = tl->sums + (size_t)r * p->v_dim;

    product_begin();
    if (rows == 1)
        blas->sgemv(CblasRowMajor, CblasTrans, n, dim, 1.0f, v, tl->v.ld, w, 1, 1.0f, o, 1);
    else
        blas->sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, dim, n, 1.0f, w, (int)p->n_cells, v, tl->v.ld,
                    1.0f, o, dim);
    product_end();
}

/* Turns row r's scores into weights; keeps their sum and the largest score. Hidden cells below `end` get weight 0. */
static void row_weigh(const tile *tl, uint32_t r, uint32_t end)
{
    const kvb_attend *args = tl->args;
    const kvb_problem *p = &args->problem;
    uint32_t t = row_tok(tl, r), h = row_head(tl, r), cursor = 0, done = 0;
    float *s = tl->scores + (size_t)r * p->n_cells, max = kvb_sink_logit(args, h), sum;
    kvb_run run;

    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run))
        for (uint32_t c = run.begin; c < run.end; c++) {
            s[c] = kvb_logit(p, s[c]);
            if (s[c] > max)
                max = s[c];
        }

    sum = kvb_sink_weight(args, h, max);
    cursor = 0;
    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run)) {
        memset(s + done, 0, (run.begin - done) * sizeof *s);
        sum = kvb_weights(s + run.begin, run.end - run.begin, max, sum);
        done = run.end;
    }
    memset(s + done, 0, (end - done) * sizeof *s);
    tl->max[r] = max;
    tl->denominators[r] = sum;
}

/* Each row's sums over the cells that it sees. */
static void sums_apart(const tile *tl)
{
    const kvb_problem *p = &tl->args->problem;
    kvb_run run;

    for (uint32_t r = 0; r < tl->rows; r++)
        for (uint32_t cursor = 0; kvb_mask_next(&tl->args->mask, p->n_tok, p->n_cells, row_tok(tl, r), &cursor, &run);)
            sums_multiply(tl, r, 1, run);
}

static void tile_attend(const tile *tl)
{
    const kvb_vector *vector = kvb_vector_at(kvb_cpu());
    const size_t sums = lines((size_t)tl->rows * tl->args->problem.v_dim); /* floats behind the last sum are 0 */
    uint32_t v_dim = tl->args->problem.v_dim, cursor = 0, end = 0;
    kvb_run run;

    while (cover_next(tl, &cursor, &run)) {
        scores_multiply(tl, run);
        end = run.end;
    }
    for (uint32_t r = 0; r < tl->rows; r++)
        row_weigh(tl, r, end);
    memset(tl->sums, 0, sums * sizeof *tl->sums);
    cursor = 0;
    while (cover_next(tl, &cursor, &run))
        sums_multiply(tl, 0, tl->rows, run);
    if (tl->by_tok && !vector->all_finite(tl->sums, (uint32_t)sums)) {
        memset(tl->sums, 0, sums * sizeof *tl->sums);
        sums_apart(tl);
    }
    for (uint32_t r = 0; r < tl->rows; r++)
        kvb_row_finish(tl->args, row_tok(tl, r), row_head(tl, r), tl->sums + (size_t)r * v_dim, tl->max[r],
                       tl->denominators[r]);
}

/* One KV head: prepares its rows once, then takes its query heads tile by tile. */
static void head_attend(const kvb_attend *args, uint32_t kv_head, float *scratch)
{
    const kvb_problem *p = &args->problem;
    layout l = layout_of(p);
    uint64_t *bits = (uint64_t *)(void *)(scratch + l.bits);
    uint32_t group = p->n_heads / p->n_kv_heads;
    tile tl = {
        .args = args,
        .k = matrix_of(p, &args->k, kv_head, scratch + l.k),
        .by_tok = p->n_tok > 1,
        .scores = scratch,
        .sums = scratch + l.sums,
        .max = scratch + l.max,
        .denominators = scratch + l.denominators,
    };

    tl.v = p->v_in_k ? tl.k : matrix_of(p, &args->v, kv_head, scratch + l.v);
    for (tl.tok = 0; tl.tok < p->n_tok; tl.tok += tl.by_tok ? tl.rows : 1) {
        tl.rows = tl.by_tok ? (p->n_tok - tl.tok < TILE ? p->n_tok - tl.tok : TILE) : group;
        tile_cover(&tl, bits);
        for (uint32_t g = 0; g < (tl.by_tok ? group : 1); g++) {
            tl.head = kv_head * group + g;
            tile_attend(&tl);
        }
    }
}

static void part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_attend *args = ctx;
    float *scratch = (float *)args->scratch + i * layout_of(&args->problem).end;

    for (uint32_t h = i; h < args->problem.n_kv_heads; h += n)
        head_attend(args, h, scratch);
}

/* BLAS takes a leading dimension in floats, not below the row. */
static bool strides_fit(const kvb_problem *p, const kvb_view *view)
{
    size_t ld = view->cell_stride / sizeof(float);
    return staged(view->format) || p->n_cells == 0 ||
           (view->cell_stride % sizeof(float) == 0 && ld >= view->dim && ld <= INT_MAX);
}

static int attend(const kvb_attend *args)
{
    if (!strides_fit(&args->problem, &args->k) || !strides_fit(&args->problem, &args->v))
        return -EINVAL;
    if (!blas_ready(NULL, 0))
        return -ENOSYS;
    args->team->run(args->team, part, (void *)(uintptr_t)args);
    return 0;
}

const kvb_kernel kvb_kernel_openblas = {
    .name = "openblas",
    .summary = "scores and output as OpenBLAS products over f32 rows",
    .masks = KVB_MASK_BIT(KVB_MASK_NONE) | KVB_MASK_BIT(KVB_MASK_CAUSAL) | KVB_MASK_BIT(KVB_MASK_EXPLICIT),
    .available = blas_ready,
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .arithmetic = kvb_softmax_arithmetic, /* how OpenBLAS blocks its sums is not documented: no chain is longer */
    .attend = attend,
};
