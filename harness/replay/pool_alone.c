/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop over dims and growth policies. In each turn a pool grows while rows are written, and its rows are judged. Then
 * cells are rewritten, copied, saved and loaded, and each must still read as its token did at first.
 */
#include "harness/replay/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/codec/codec.h"
#include "harness/replay/guard.h"
#include "harness/replay/kernel_io.h"
#include "harness/replay/poison.h"
#include "oracle/storage.h"
#include "workloads/array.h"
#include "workloads/rng.h"
#include "workloads/special_rows.h"

#define CHUNK    8u  /* cells of the first growth */
#define CAPACITY 40u /* cells: no power of two times CHUNK */
#define FEW      5u  /* cells of the pool that has its bytes examined */
#define REWRITES                                                                                                       \
    16u /* of a cell, with values of varying size: every byte of the cell changes at least once                        \
         */

enum { HEADS = 3, CELLS = 66, MAX_DIM = 256 };

/* In every format some of these make rows of no multiple of 16 bytes. */
static const uint32_t dims[] = {16, 32, 40, 64, 72, 80, 96, 112, 120, 128, 160, 192, 256};
static const uint32_t pattern_dim = 128;
/* Cells in use, growing: powers of two, one less and one more. */
static const uint32_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, CELLS};
static const kvb_growth growths[] = {KVB_GROWTH_DOUBLE, KVB_GROWTH_RESERVE, KVB_GROWTH_EXACT};

/* A pool at one dim. Rows are [CELLS][HEADS][dim], of tokens. */
typedef struct alone {
    const kvb_pool_type *type;
    const kvb_format *format;
    kvb_pool_options options;
    kvb_allocator allocator;
    kvb_pool *pool;
    kvb_storage store[HEADS];
    bool has_reference;
    float *rows;           /* the written rows */
    double *stored, *size; /* their expected values when stored, and the sizes that bound errors */
    float *seen;           /* the rows as first read */
    float *before;         /* scratch: rows of cells */
    double *block;         /* scratch: rows encoded together, and their sizes */
    void *scratch;
    uint32_t token_of[CELLS];
    char *why;
    size_t why_bytes;
} alone;

/* Writes what is wrong into why, after the place that begin() wrote. */
__attribute__((format(printf, 2, 3))) static int wrong(const alone *a, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(a->why, a->why_bytes, format, list);
    va_end(list);
    return -EILSEQ;
}

/* Begins why with "place: ". */
static void begin(alone *a, const char *place, char *why, size_t why_bytes)
{
    const int used = snprintf(why, why_bytes, "%s: ", place);
    const size_t at = (size_t)used < why_bytes ? (size_t)used : 0;
    a->why = why + at;
    a->why_bytes = why_bytes - at;
}

/* ---- blocks that the pool has allocated ------------------------------------------------------------------------ */

typedef struct block {
    unsigned char *at;
    size_t bytes;
} block;

static block *blocks; /* a memory source has no context */
static size_t n_blocks, blocks_room;

static void *block_take(const char *name, size_t bytes)
{
    if (kvb_array_reserve(&blocks, &blocks_room, n_blocks + 1, sizeof *blocks))
        return NULL;
    unsigned char *at = kvb_memory_take(NULL, name, bytes);
    if (at) {
        memset(at, 0, bytes);
        blocks[n_blocks++] = (block){at, bytes};
    }
    return at;
}

static void block_give(void *at, size_t bytes)
{
    size_t i = 0;
    (void)bytes;
    while (i < n_blocks && blocks[i].at != at)
        i++;
    if (i < n_blocks)
        blocks[i] = blocks[--n_blocks];
    kvb_memory_give(NULL, at, bytes);
}

static const kvb_memory_source blocks_source = {block_take, block_give};

/* The block that holds the whole span, or NULL. */
static const block *block_of(const void *at, size_t bytes)
{
    const uintptr_t from = (uintptr_t)at;
    for (size_t i = 0; i < n_blocks; i++) {
        const uintptr_t first = (uintptr_t)blocks[i].at;
        if (from >= first && bytes <= blocks[i].bytes && from - first <= blocks[i].bytes - bytes)
            return &blocks[i];
    }
    return NULL;
}

/* ---- bytes() --------------------------------------------------------------------------------------------------- */

static int held_check(const alone *a, uint32_t cells)
{
    const size_t says = a->type->bytes(a->type, &a->options, cells), holds = a->allocator.current_bytes;
    return says == holds ? 0
                         : wrong(a, "bytes() says %zu for %u cells of %u x %u, and the allocator holds %zu", says,
                                 cells, a->options.n_kv_heads, a->options.dim, holds);
}

typedef int pool_call(alone *a, uint32_t cells);

static int call_open(alone *a, uint32_t cells)
{
    (void)cells;
    return a->type->open(a->type, &a->options, &a->pool);
}

static int call_ensure(alone *a, uint32_t cells)
{
    return a->type->ensure(a->pool, cells);
}

/* Makes a call. It is tried with its first request of memory refused, then with its second, until a try needs no more.
 * The tries before must return ENOMEM and hold no more memory than there was. */
static int short_call(alone *a, pool_call *call, const char *name, uint32_t cells)
{
    kvb_allocator *memory = &a->allocator;
    for (uint64_t nth = 1;; nth++) {
        const size_t held = memory->current_bytes;
        memory->fail_request = memory->requests + nth;
        const int error = call(a, cells);
        const bool refused = memory->requests >= memory->fail_request;
        memory->fail_request = 0;
        if (error && !(refused && error == -ENOMEM))
            return wrong(a, "%s for %u of at most %u cells%s: %s", name, cells, a->options.capacity,
                         refused ? ", refused memory" : "", strerror(-error));
        if (!error)
            return 0;
        if (memory->current_bytes != held)
            return wrong(a, "%s for %u cells, refused memory, leaves %zu bytes of the allocator, before it %zu", name,
                         cells, memory->current_bytes, held);
    }
}

static int pool_ensure(alone *a, uint32_t cells)
{
    const int error = short_call(a, call_ensure, "ensure()", cells);
    return error ? error : held_check(a, cells);
}

static int pool_open(alone *a, const kvb_memory_source *source)
{
    a->options.allocator = &a->allocator;
    a->allocator = (kvb_allocator){.source = source};
    a->pool = NULL;
    const int error = short_call(a, call_open, "open()", 0);
    if (error)
        a->pool = NULL;
    return error ? error : held_check(a, 0);
}

static int pool_close(alone *a, int error)
{
    if (a->pool)
        a->type->close(a->pool);
    a->pool = NULL;
    return error || !a->allocator.current_bytes
               ? error
               : wrong(a, "close() leaves %zu bytes of the allocator", a->allocator.current_bytes);
}

static int growth_check(alone *a)
{
    static const uint32_t cells[] = {1, CHUNK, CHUNK + 1, 3 * CHUNK, CAPACITY};
    int error = pool_open(a, NULL);
    for (size_t i = 0; i < sizeof cells / sizeof *cells && !error; i++)
        error = pool_ensure(a, cells[i]);
    const double row = a->type->row_bytes(a->type, a->options.dim), rows = row * a->options.n_kv_heads * CAPACITY;
    if (!error && !(rows <= (double)a->allocator.current_bytes))
        error = wrong(
            a, "row_bytes() says %g for rows of %u, which makes %g for %u cells of %u, and the allocator holds %zu",
            row, a->options.dim, rows, CAPACITY, a->options.n_kv_heads, a->allocator.current_bytes);
    return pool_close(a, error);
}

/* ---- row_bytes() ---------------------------------------------------------------------- */

/* Spans of rows. */
typedef struct span {
    const unsigned char *at;
    size_t bytes;
} span;

typedef struct spans {
    span *span;
    size_t n, room;
} spans;

static int span_note(void *ctx, const void *at, size_t bytes)
{
    spans *s = ctx;
    int error = bytes ? kvb_array_reserve(&s->span, &s->room, s->n + 1, sizeof *s->span) : 0;
    if (bytes && !error)
        s->span[s->n++] = (span){at, bytes};
    return error;
}

static int by_address(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* All rows must lie in memory from the allocator, and no two may overlap. */
static int rows_apart(alone *a, const kvb_view *view, size_t row)
{
    const uint64_t none = 0;
    spans all = {NULL, 0, 0};
    int error = kvb_hidden_walk(view, a->options.n_kv_heads, row, &none, span_note, &all);
    if (!error && all.n)
        qsort(all.span, all.n, sizeof *all.span, by_address);
    for (size_t i = 0; i < all.n && !error; i++) {
        const span *s = &all.span[i];
        if (!block_of(s->at, s->bytes))
            error = wrong(a, "rows of %zu bytes by row_bytes(), pass the memory that it has of the allocator", row);
        else if (i + 1 < all.n && (size_t)(all.span[i + 1].at - s->at) < s->bytes)
            error = wrong(a, "rows of %zu bytes by row_bytes(), lie in each other by the strides of view()", row);
    }
    free(all.span);
    return error;
}

/* Rewrites a cell, and marks each byte of the blocks that ever differs from `before`. */
static void cell_rewrite(alone *a, uint32_t cell, float *rows, const unsigned char *before, unsigned char *differs)
{
    const unsigned char mark = cell ? 2 : 1;
    const block *own = block_of(a->pool, sizeof *a->pool); /* its padding was never written */
    for (uint32_t i = 0; i < REWRITES; i++) {
        kvb_rng_normals(cell * REWRITES + i + 1, ldexp(1, 2 * (int)(i % 8) - 8), a->options.n_kv_heads * a->options.dim,
                        rows);
        a->type->scatter(a->pool, &cell, 1, rows);
        for (size_t b = 0, at = 0; b < n_blocks; at += blocks[b++].bytes)
            for (size_t j = 0; j < blocks[b].bytes && &blocks[b] != own; j++)
                differs[at + j] |= before[at + j] != blocks[b].at[j] ? mark : 0;
    }
}

/* The bytes that change with one cell alone must be no more than row_bytes(). Bytes that also change with another cell
 * are working memory. */
static int cells_own(alone *a, float *rows, size_t row)
{
    const size_t says = row * a->options.n_kv_heads;
    size_t all = 0, own[2] = {0, 0};
    for (size_t b = 0; b < n_blocks; b++)
        all += blocks[b].bytes;
    unsigned char *before = malloc(all + 1), *differs = calloc(all + 1, 1);
    int error = before && differs ? 0 : -ENOMEM;
    for (size_t b = 0, at = 0; b < n_blocks && !error; at += blocks[b++].bytes)
        memcpy(before + at, blocks[b].at, blocks[b].bytes);
    for (uint32_t cell = 0; cell < FEW && !error; cell += FEW - 1)
        cell_rewrite(a, cell, rows, before, differs);
    for (size_t i = 0; i < all && !error; i++) {
        own[0] += differs[i] == 1;
        own[1] += differs[i] == 2;
    }
    for (int i = 0; i < 2 && !error; i++)
        if (own[i] > says)
            error = wrong(
                a,
                "row_bytes() says %zu for rows of %u, which makes %zu for a cell, and scatter() changes %zu bytes "
                "of each cell's own",
                row, a->options.dim, says, own[i]);
    free(before);
    free(differs);
    return error;
}

static int rows_check(alone *a)
{
    const uint32_t floats = a->options.n_kv_heads * a->options.dim;
    const size_t row = (size_t)ceil(a->type->row_bytes(a->type, a->options.dim));
    float *rows = malloc(FEW * floats * sizeof *rows);
    n_blocks = 0;
    a->options.capacity = FEW;
    a->options.growth = KVB_GROWTH_DOUBLE;
    int error = rows ? pool_open(a, &blocks_source) : -ENOMEM;
    error = error ? error : pool_ensure(a, FEW);
    if (!error) {
        kvb_rng_normals(0, 1, FEW * floats, rows);
        a->type->write_run(a->pool, 0, FEW, rows);
        kvb_view view;
        a->type->view(a->pool, FEW, &view);
        error = view.format->elem == KVB_OPAQUE ? rows_apart(a, &view, row) : 0;
    }
    error = error ? error : cells_own(a, rows, row);
    error = pool_close(a, error);
    free(rows);
    free(blocks);
    blocks = NULL;
    n_blocks = blocks_room = 0;
    return error;
}

int kvb_pools_check(const kvb_replay_options *o, char *why, size_t why_bytes)
{
    const kvb_model *m = &o->trace->header.model;
    int error = 0;
    for (uint32_t i = 0; i < 2 * m->n_groups && !error; i++) {
        const kvb_group *g = &m->groups[i / 2];
        const bool is_v = i % 2;
        const kvb_pool_type *type = is_v ? o->v_pool : o->k_pool;
        if (kvb_group_scans(g) || (is_v && g->latent))
            continue;
        alone a = {.type = type,
                   .options = {.n_kv_heads = g->kv_heads,
                               .dim = is_v ? g->v_dim : g->k_dim,
                               .min_chunk = CHUNK,
                               .capacity = CAPACITY,
                               .growth = o->growth}};
        begin(&a, type->name, why, why_bytes);
        error = growth_check(&a);
        /* rows that share scales, or are encoded together, change together */
        if (!error && type->format->axis != KVB_AXIS_TOKENS && !type->format->residual_cells)
            error = rows_check(&a);
    }
    return error;
}

static size_t row_at(const alone *a, uint32_t token, uint32_t h)
{
    return ((size_t)token * HEADS + h) * a->options.dim;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static const char *const kinds[ROW_KINDS] = {
    "normal numbers", "ties between codes", "ties between floats", "subnormals", "zeros of both signs", "equal numbers",
    "an outlier",     "mixed magnitudes",   "small numbers",       "saturation", "infinities",          "NaN",
    "any bits",
};

static row_kind kind_of(uint32_t token, uint32_t h)
{
    return (row_kind)((token + 5 * h) % ROW_KINDS);
}

static void rows_special(const alone *a)
{
    uint64_t seed = a->options.dim;
    for (uint32_t t = 0; t < CELLS; t++)
        for (uint32_t h = 0; h < HEADS; h++) {
            float *row = a->rows + row_at(a, t, h);
            row_fill(kind_of(t, h), row, a->options.dim, &seed);
            for (uint32_t c = 0; c < a->options.dim && a->format->elem == KVB_OPAQUE; c++)
                row[c] = isnan(row[c]) ? 1 : row[c] > 65504 ? 65504 : row[c] < -65504 ? -65504 : row[c];
        }
}

/* Lower halves of floats at and around ties of formats with fewer bits. */
static const uint32_t lows[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
#define LOWS     (sizeof lows / sizeof *lows)
#define PATTERNS (65536 * LOWS)

/* Fills the expected values. With residual cells a row depends on its neighbours: those of a sequence written in order. */
static void expect(const alone *a)
{
    const uint32_t dim = a->options.dim, n = a->format->residual_cells ? CELLS : 1;
    for (uint32_t h = 0; h < HEADS && a->has_reference; h++)
        for (uint32_t t = 0; t < CELLS; t += n) {
            const float *rows[CELLS];
            for (uint32_t i = 0; i < n; i++)
                rows[i] = a->rows + row_at(a, t + i, h);
            kvb_storage_rows(&a->store[h], rows, n, a->scratch, a->block, a->block + (size_t)n * dim);
            for (uint32_t i = 0; i < n; i++) {
                memcpy(a->stored + row_at(a, t + i, h), a->block + (size_t)i * dim, dim * sizeof *a->block);
                memcpy(a->size + row_at(a, t + i, h), a->block + (size_t)(n + i) * dim, dim * sizeof *a->block);
            }
        }
}

/* ---- views ------------------------------------------------------------------------------------------------------ */

static size_t elem_bytes(kvb_elem elem)
{
    return elem == KVB_F32 ? 4 : elem == KVB_F16 || elem == KVB_BF16 ? 2 : 1;
}

static bool is_aligned(const void *base, size_t head_stride, size_t cell_stride, size_t to)
{
    return ((uintptr_t)base | head_stride | cell_stride) % to == 0;
}

static int view_check(const alone *a, uint32_t cells, kvb_view *v)
{
    const kvb_format *f = a->format;
    const bool scales = f->elem != KVB_OPAQUE && f->group && !kvb_elem_is_block(f->elem);
    memset(v, 0, sizeof *v);
    a->type->view(a->pool, cells, v);
    if (v->cells != cells || v->dim != a->options.dim || v->front)
        return wrong(a, "the view has %u cells of %u elements%s, expected %u of %u", v->cells, v->dim,
                     v->front ? " and a front" : "", cells, a->options.dim);
    if (v->format != f)
        return wrong(a, "the view's format is %s", v->format ? v->format->name : "NULL");
    if (!v->base || (scales && !v->scales) || (kvb_format_has_zeros(f) && !v->zeros) ||
        (f->head_scale && !v->head_scales) || (f->residual_cells && (!v->recent || !v->recent_slot)))
        return wrong(a, "the view lacks rows, scales, zeros or head scales that its format has");
    if (!is_aligned(v->base, v->head_stride, v->cell_stride, elem_bytes(f->elem)) ||
        (scales && !is_aligned(v->scales, v->scale_head_stride, v->scale_cell_stride, elem_bytes(f->scale_elem))) ||
        (kvb_format_has_zeros(f) &&
         !is_aligned(v->zeros, v->zero_head_stride, v->zero_cell_stride, elem_bytes(f->zero_elem))))
        return wrong(a, "rows, scales or zeros are not aligned to their elements: base %p, strides %zu and %zu",
                     v->base, v->head_stride, v->cell_stride);
    return 0;
}

/* Reads the rows of cells 0 .. n-1 by read(), [n][HEADS][dim]. */
static int cells_read(const alone *a, uint32_t n, float *rows)
{
    kvb_view v;
    int error = n ? view_check(a, n, &v) : 0;
    for (uint32_t c = 0; c < n && !error; c++)
        for (uint32_t h = 0; h < HEADS; h++)
            v.format->read(&v, h, c, 1, rows + row_at(a, c, h));
    return error;
}

/* Each of cells 0 .. n-1 must read as its token did at first, bit for bit. */
static int cells_compare(const alone *a, const char *after, uint32_t n)
{
    int error = cells_read(a, n, a->before);
    for (uint32_t c = 0; c < n && !error; c++)
        for (uint32_t h = 0; h < HEADS && !error; h++) {
            const float *got = a->before + row_at(a, c, h), *want = a->seen + row_at(a, a->token_of[c], h);
            for (uint32_t e = 0; e < a->options.dim && !error; e++)
                if (memcmp(&got[e], &want[e], sizeof *got))
                    error = wrong(a, "%s cell %u, head %u, channel %u reads as %.9g, expected %.9g as before", after, c,
                                  h, e, (double)got[e], (double)want[e]);
        }
    return error;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static bool same(double got, double want, bool signs)
{
    return (isnan(got) && isnan(want)) || (got == want && (!signs || signbit(got) == signbit(want)));
}

/* A stored row, decoded by the oracle, must have exactly the expected values: kernels that read codes see these. */
static int codes_judge(const alone *a, const kvb_view *v, uint32_t cell, uint32_t h, const char *kind)
{
    const kvb_storage *s = &a->store[h];
    const kvb_format *f = a->format;
    const uint32_t token = a->token_of[cell];
    const unsigned char *part[KVB_PARTS] = {kvb_view_row(v, h, cell)};
    double got[MAX_DIM], size[MAX_DIM];
    const bool signs = f->elem <= KVB_E2M1 && !f->transform;
    if (v->scales)
        part[1] = (const unsigned char *)v->scales + h * v->scale_head_stride + cell * v->scale_cell_stride;
    if (v->zeros)
        part[2] = (const unsigned char *)v->zeros + h * v->zero_head_stride + cell * v->zero_cell_stride;
    if (f->head_scale && v->head_scales[h] != s->head_scale)
        return wrong(a, "the view's scale of head %u is %.9g, expected %.9g", h, (double)v->head_scales[h],
                     (double)s->head_scale);
    kvb_codec_decode(s->codec, part, s->dim, s->head_scale, got, size);
    kvb_storage_finish(s, got, size);
    for (uint32_t c = 0; c < s->dim; c++)
        if (!same(got[c], a->stored[row_at(a, token, h) + c], signs))
            return wrong(a, "cell %u, head %u, channel %u (%s): %.9g is stored as %.9g, expected %.9g", cell, h, c,
                         kind, (double)a->rows[row_at(a, token, h) + c], got[c], a->stored[row_at(a, token, h) + c]);
    return 0;
}

/* read() must give the expected values, up to the roundings that the format allows. */
static int read_judge(const alone *a, const float *got, uint32_t token, uint32_t h, const char *kind)
{
    const kvb_format *f = a->format;
    const uint32_t dim = a->options.dim;
    const double *want = a->stored + row_at(a, token, h), *size = a->size + row_at(a, token, h);
    const double unit = kvb_format_roundings(f, dim) * 0x1.01p-24 * (f->transform ? sqrt(kvb_transform_block(dim)) : 1);
    const double least = f->elem == KVB_OPAQUE ? 0x1p-126 : 0x1p-140;
    for (uint32_t c = 0; c < dim; c++) {
        const bool judged = size[c] < 0x1p120; /* else it may overflow on the way */
        const bool special = !isfinite(want[c]) && !f->transform && f->elem != KVB_OPAQUE;
        if ((judged && !(fabs((double)got[c] - want[c]) <= unit * size[c] + least)) ||
            (special && !same((double)got[c], want[c], false)))
            return wrong(a, "token %u, head %u, channel %u (%s): %.9g reads as %.9g, expected %.9g", token, h, c, kind,
                         (double)a->rows[row_at(a, token, h) + c], (double)got[c], want[c]);
    }
    return 0;
}

/* Judges all cells; cell c holds token c. kind: of all rows; NULL: each row has its own. */
static int values_judge(const alone *a, const char *kind)
{
    kvb_view v;
    int error = view_check(a, CELLS, &v);
    for (uint32_t c = 0; c < CELLS && a->has_reference && !error; c++)
        for (uint32_t h = 0; h < HEADS && !error; h++) {
            const char *what = kind ? kind : kinds[kind_of(c, h)];
            if (a->format->elem != KVB_OPAQUE && !a->format->residual_cells)
                error = codes_judge(a, &v, c, h, what);
            if (!error)
                error = read_judge(a, a->seen + row_at(a, c, h), c, h, what);
        }
    return error;
}

/* ---- growing ---------------------------------------------------------------------------------------------------- */

/* Writes tokens from .. to-1: as a run, or scattered, one by one and backwards (with residual cells: in order). */
static void tokens_write(const alone *a, uint32_t from, uint32_t to, bool run)
{
    uint32_t cells[CELLS];
    if (run) {
        a->type->write_run(a->pool, from, to - from, a->rows + row_at(a, from, 0));
        return;
    }
    if (a->format->residual_cells) { /* in the order of a sequence */
        for (uint32_t c = from; c < to; c++)
            cells[c - from] = c;
        a->type->scatter(a->pool, cells, to - from, a->rows + row_at(a, from, 0));
    }
    for (uint32_t c = to; c-- > from && !a->format->residual_cells;)
        a->type->scatter(a->pool, &c, 1, a->rows + row_at(a, c, 0));
}

static int grow(alone *a)
{
    int error = 0;
    uint32_t held = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !error; i++) {
        const uint32_t n = lengths[i];
        error = cells_read(a, held, a->seen);
        error = error ? error : pool_ensure(a, n);
        error = error ? error : cells_compare(a, "after growth", held);
        if (!error)
            tokens_write(a, held, n, i % 2);
        held = n;
    }
    error = error ? error : cells_read(a, CELLS, a->seen);
    if (!error && a->type->ensure(a->pool, CELLS + 1) != -ENOSPC)
        return wrong(a, "ensure(%u) of at most %u cells is not refused with ENOSPC", CELLS + 1, CELLS);
    return error ? error : cells_compare(a, "after a refused growth", CELLS);
}

/* ---- writing again, copies, saving ------------------------------------------------------------------------------- */

static int scatter_again(alone *a)
{
    static const uint32_t cells[] = {CELLS - 1, 0, 33}, tokens[] = {20, 21, 22};
    a->type->scatter(a->pool, cells, 3, a->rows + row_at(a, tokens[0], 0));
    for (int i = 0; i < 3; i++)
        a->token_of[cells[i]] = tokens[i];
    return cells_compare(a, "after scatter", CELLS);
}

static int run_again(alone *a)
{
    a->type->write_run(a->pool, 5, 4, a->rows + row_at(a, 40, 0));
    for (uint32_t i = 0; i < 4; i++)
        a->token_of[5 + i] = 40 + i;
    return cells_compare(a, "after write_run", CELLS);
}

static int gather(alone *a)
{
    static const struct {
        uint32_t base, cells[3];
    } moves[] = {{10, {12, 40, 13}}, {50, {20, 22, 21}}, {0, {CELLS - 1, 1, 2}}};
    int error = 0;
    for (size_t m = 0; m < sizeof moves / sizeof *moves && !error; m++) {
        a->type->gather_into(a->pool, moves[m].base, moves[m].cells, 3);
        for (uint32_t i = 0; i < 3; i++)
            a->token_of[moves[m].base + i] = a->token_of[moves[m].cells[i]];
        error = cells_compare(a, "after gather_into", CELLS);
    }
    return error;
}

/* Saves some cells, in any order, and loads them into other cells of the same pool. */
static int cells_save(alone *a)
{
    static const uint32_t from[] = {CELLS - 1, 3, 17}, to[] = {1, 44, 2};
    const size_t bytes = a->type->raw_bytes(a->pool, from, 3);
    void *raw = bytes ? kvb_guard_alloc("what read_raw saves", bytes) : NULL;
    if (!raw)
        return bytes ? -ENOMEM : 0;
    a->type->read_raw(a->pool, from, 3, raw);
    a->type->write_raw(a->pool, to, 3, raw);
    kvb_guard_free(raw);
    for (int i = 0; i < 3; i++)
        a->token_of[to[i]] = a->token_of[from[i]];
    return cells_compare(a, "saved and loaded alone,", CELLS);
}

/* Saves the whole pool and loads it into another one, which must read the same and save the same bytes. */
static int pool_save(alone *a)
{
    const size_t bytes = a->type->raw_bytes(a->pool, NULL, CELLS);
    unsigned char *raw = kvb_guard_alloc("what read_raw saves", bytes),
                  *again = kvb_guard_alloc("what read_raw saves", bytes);
    int error = raw && again ? 0 : -ENOMEM;
    if (!error) {
        a->type->read_raw(a->pool, NULL, CELLS, raw);
        if (a->type->check_raw && !a->type->check_raw(a->pool, CELLS, raw))
            error = wrong(a, "check_raw refuses what read_raw saved");
    }
    error = pool_close(a, error);
    error = error ? error : pool_open(a, &kvb_guarded_source);
    error = error ? error : pool_ensure(a, CELLS);
    if (!error) {
        a->type->write_raw(a->pool, NULL, CELLS, raw);
        error = cells_compare(a, "saved and loaded,", CELLS);
    }
    if (!error && a->type->raw_bytes(a->pool, NULL, CELLS) == bytes) {
        a->type->read_raw(a->pool, NULL, CELLS, again);
        for (size_t i = 0; i < bytes && !error; i++)
            if (raw[i] != again[i])
                error = wrong(a, "saved, loaded and saved again, byte %zu is %02x, expected %02x", i, again[i], raw[i]);
    } else if (!error) {
        error =
            wrong(a, "raw_bytes() is %zu after loading, expected %zu", a->type->raw_bytes(a->pool, NULL, CELLS), bytes);
    }
    kvb_guard_free(raw);
    kvb_guard_free(again);
    return error;
}

/* ---- one dim ---------------------------------------------------------------------------------------------------- */

static int turn(alone *a)
{
    for (uint32_t c = 0; c < CELLS; c++)
        a->token_of[c] = c;
    rows_special(a);
    expect(a);
    int error = pool_open(a, &kvb_guarded_source);
    error = error ? error : grow(a);
    error = error ? error : values_judge(a, NULL);
    if (!error && !a->format->residual_cells) {
        error = scatter_again(a);
        error = error ? error : run_again(a);
        error = error ? error : gather(a);
        error = !error && a->type->read_raw ? cells_save(a) : error;
    }
    error = !error && a->type->read_raw ? pool_save(a) : error;
    return pool_close(a, error);
}

/* For formats without group scales: every pattern of upper bits, and so each code, each tie, each number that saturates.
 */
static int patterns_judge(alone *a)
{
    int error = pool_open(a, &kvb_guarded_source);
    for (uint32_t c = 0; c < CELLS; c++)
        a->token_of[c] = c;
    error = error ? error : pool_ensure(a, CELLS);
    for (uint64_t next = 0; next < PATTERNS && !error;) {
        for (size_t i = 0; i < row_at(a, CELLS, 0); i++, next++) /* each lower half below every upper half */
            a->rows[i] = row_float((uint32_t)(next / LOWS % 65536) << 16 | lows[next % LOWS]);
        expect(a);
        tokens_write(a, 0, CELLS, true);
        error = cells_read(a, CELLS, a->seen);
        error = error ? error : values_judge(a, "every pattern of bits");
    }
    return pool_close(a, error);
}

static int dim_judge(alone *a, uint32_t dim, char *place, size_t place_bytes, char *why, size_t why_bytes)
{
    static const float amax[HEADS] = {3, 700, 0.01f};
    const kvb_format *f = a->format;
    char lack[256];
    int error = 0;
    for (int given = 0; given < (f->head_scale ? 2 : 1) && !error; given++)
        for (size_t g = 0; g < sizeof growths / sizeof *growths && !error; g++) {
            a->options = (kvb_pool_options){HEADS, dim, 4, CELLS, growths[g], given ? amax : NULL, NULL};
            a->has_reference = true;
            for (uint32_t h = 0; h < HEADS; h++)
                a->has_reference &=
                    !kvb_storage_init(&a->store[h], f, dim, a->options.amax, HEADS, h, lack, sizeof lack);
            free(a->scratch);
            a->scratch = a->has_reference ? malloc(kvb_storage_scratch(&a->store[0])) : NULL;
            if (a->has_reference && !a->scratch)
                return -ENOMEM;
            snprintf(place, place_bytes, "pool %s by itself, format %s, dim %u, %d KV heads, growth %s%s",
                     a->type->name, f->name, dim, HEADS, kvb_growth_names[growths[g]],
                     given ? ", with head scales" : "");
            begin(a, place, why, why_bytes);
            error = turn(a);
            if (!error && !g && dim == pattern_dim && a->has_reference && !f->group && !f->residual_cells &&
                f->elem != KVB_OPAQUE)
                error = patterns_judge(a);
        }
    return error;
}

int kvb_pool_alone(const kvb_pool_type *type, char *place, size_t place_bytes, char *why, size_t why_bytes)
{
    const size_t rows = (size_t)CELLS * HEADS * MAX_DIM;
    kvb_arena arena = {0};
    alone a = {.type = type,
               .format = type->format,
               .rows = kvb_arena_take(&arena, rows, sizeof *a.rows),
               .seen = kvb_arena_take(&arena, rows, sizeof *a.seen),
               .before = kvb_arena_take(&arena, rows, sizeof *a.before),
               .stored = kvb_arena_take(&arena, rows, sizeof *a.stored),
               .size = kvb_arena_take(&arena, rows, sizeof *a.size),
               .block = kvb_arena_take(&arena, 2 * (size_t)CELLS * MAX_DIM, sizeof *a.block)};
    char lack[256];
    int error = arena.failed ? -ENOMEM : 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims && !error; i++)
        if (!type->supports || type->supports(type, dims[i], lack, sizeof lack))
            error = dim_judge(&a, dims[i], place, place_bytes, why, why_bytes);
    free(a.scratch);
    kvb_arena_free(&arena);
    return error;
}
