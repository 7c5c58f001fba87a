/* SPDX-License-Identifier: Apache-2.0 */
/* Makes attention calls, with rows, layout and masks drawn by a key, and judges them. */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"
#include "harness/calls/attend_axes.h"
#include "harness/calls/subject.h"
#include "harness/calls/pairwise.h"
#include "harness/matrix/ground_truth.h"
#include "harness/replay/kernel_io.h"
#include "harness/replay/poison.h"
#include "kernels/convert.h"
#include "oracle/exact.h"
#include "oracle/single.h"
#include "oracle/oracle.h"
#include "workloads/array.h"
#include "workloads/files.h"
#include "workloads/rng.h"
#include "workloads/values.h"

#define JUDGED_PRODUCTS 3e6  /* products of the oracle for one call; a larger call has its rows sampled */
#define ORDER_PRODUCTS  1000 /* products that take as long as asking for the order of a row */
#define HOLES           8u   /* one page in so many belongs to no sequence */

/* An attention call: rows in a pool, sequences in pages, a mask, queries, all drawn by a key. */
typedef struct attend_scene {
    kvb_attend_shape shape;
    kvb_attend call; /* out and lse are filled with the NaN of kernel_io.h before each run */
    kvb_single_rows rows;
    uint64_t *seen; /* bits of cells that some query sees */
    uint32_t *ends; /* [n_tok] a query's own position + 1; 0: it sees nothing */
    /* owned by the scene */
    kvb_model model;
    kvb_allocator allocator;
    kvb_pool *pools[2];
    const float **amax[2];
    kvb_view fronts[2];
    kvb_tall tall[2]; /* of rows that lie apart */
    bool finite;      /* bytes between these are finite: all that the kernel's project promises to take */
    kvb_token_run *runs;
    size_t *first;
    uint32_t *moved; /* page of the pool -> page for the kernel; NULL: the same */
    uint32_t *tables, *table_first,
        *lengths;     /* page tables, one behind the other; [batch + 1]; [batch] positions of a sequence */
    kvb_run *windows; /* [n_tok] positions that a query sees, without sinks */
    size_t n_runs, runs_room;
    kvb_call_buffers buffers;
    kvb_arena arena;
    size_t out_bytes, lse_bytes;
    /* of the judged call */
    kvb_single *truth;
    kvb_order order; /* declared */
    kvb_poison poison;
    uint64_t *sight; /* bits of cells */
} attend_scene;

static void *input(attend_scene *s, const char *name, size_t bytes)
{
    return kvb_call_buffer(&s->buffers, name, bytes, 64, KVB_CALL_INPUT);
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

/* How a scene gets its rows and q. */
typedef struct scene_values {
    uint64_t key;
    const attend_scene *drawn; /* has the same ones; NULL: they are drawn by key */
    uint32_t different;        /* draws the rows of so many cells and queries, which the next ones repeat; 0: of all */
} scene_values;

/* Are cells that no query sees filled with NaN? Cells that lie apart are not: bytes between them are filled already. */
static bool scene_hides(const attend_scene *s)
{
    return !s->finite && !s->shape.apart;
}

/* Draws the rows of one side, [n_cells][kv_heads][dim]. A hidden cell gets a copy of the row before it, unless rows of the
 * format depend on each other. */
static const float *rows_draw(attend_scene *s, kvb_rows kind, uint32_t dim, const kvb_format *format,
                              const scene_values *values)
{
    const kvb_problem *p = &s->shape.problem;
    const bool all = !scene_hides(s) || format->head_scale || format->residual_cells;
    const kvb_profile *profile = kvb_profile_find(s->shape.values);
    const size_t token = (size_t)p->n_kv_heads * dim;
    const uint32_t most = values->different ? values->different : p->n_cells;
    float *rows = kvb_arena_take(&s->arena, token * p->n_cells, sizeof *rows);
    for (uint32_t c = 0; rows && c < p->n_cells; c++) {
        const bool hidden = !all && c && !(s->seen[c / 64] >> c % 64 & 1);
        if (hidden || c >= most)
            memcpy(rows + c * token, rows + (c - (hidden ? 1 : most)) * token, token * sizeof *rows);
        else
            kvb_profile_rows(profile, &s->model, values->key, kind, 0, c, c, rows + c * token);
    }
    return rows;
}

/* Stores one side's rows, values by the profile, in the pool cell after cell. */
static int side_store(attend_scene *s, int side, const scene_values *from, char *why, size_t why_bytes)
{
    const kvb_rows kind = side ? KVB_ROWS_V : KVB_ROWS_K;
    const kvb_problem *p = &s->shape.problem;
    const kvb_pool_type *type = side ? s->shape.v_pool : s->shape.k_pool;
    const uint32_t dim = side ? p->v_dim : p->k_dim;
    const float *rows = !from->drawn ? rows_draw(s, kind, dim, type->format, from)
                        : side       ? from->drawn->rows.v
                                     : from->drawn->rows.k;
    if (!rows)
        return -ENOMEM;
    size_t at[KVB_MODEL_LAYERS] = {0};
    kvb_values values = {.tokens = p->n_cells, .model = &s->model};
    values.block[kind] = (float *)(uintptr_t)rows; /* only read */
    values.layer_at[kind] = at;
    int error = kvb_calibrate(&s->model, &values, kind, type->format, &s->amax[side]);
    const float *amax = s->amax[side] ? s->amax[side][0] : NULL;
    const kvb_pool_options options = {.n_kv_heads = p->n_kv_heads,
                                      .dim = dim,
                                      .min_chunk = p->n_cells,
                                      .capacity = p->n_cells,
                                      .amax = amax,
                                      .allocator = &s->allocator};
    if (!error)
        error = type->open(type, &options, &s->pools[side]);
    if (!error)
        error = type->ensure(s->pools[side], p->n_cells);
    if (error)
        return kvb_why_set(error, why, why_bytes, "pool %s: %s", type->name, strerror(-error));
    type->write_run(s->pools[side], 0, p->n_cells, rows);
    *(side ? &s->rows.v : &s->rows.k) = rows;
    *(side ? &s->rows.v_amax : &s->rows.k_amax) = amax;
    return 0;
}

/* The kernel's index of a cell of the pool. */
static uint32_t place_of(const attend_scene *s, uint32_t cell)
{
    const uint32_t page = cell / s->shape.page;
    if (s->moved && page < s->call.problem.n_cells / s->shape.page)
        return s->moved[page] * s->shape.page + cell % s->shape.page;
    return s->shape.apart && page % 2 ? cell + s->shape.apart : cell;
}

/* Copies cells of a view to a separate block, with a gap behind each row. */
static int cells_move(attend_scene *s, const kvb_view *from, uint32_t first, uint32_t n, size_t row, kvb_view *to)
{
    const size_t align = s->shape.align, unit = row % 4 ? 2 : align, stride = (row + unit - 1) / unit * unit + unit;
    const size_t head = n * stride + unit, offset = unit % 64;
    char *block =
        kvb_call_buffer(&s->buffers, "K and V rows", s->shape.problem.n_kv_heads * head + offset, 64, KVB_CALL_ROWS);
    if (!block)
        return -ENOMEM;
    memset(block, 0xff, s->shape.problem.n_kv_heads * head + offset);
    *to = *from;
    to->base = block + offset;
    to->head_stride = head;
    to->cell_stride = stride;
    to->cells = n;
    for (uint32_t h = 0; h < s->shape.problem.n_kv_heads; h++)
        for (uint32_t c = 0; c < n; c++)
            memcpy(block + offset + h * head + place_of(s, c) * stride, kvb_view_row(from, h, first + c), row);
    return 0;
}

/* Copies the rows of a view far apart. Bytes between them are 0xff; s->finite: 0. */
static int cells_part(attend_scene *s, int side, const kvb_view *from, size_t row, kvb_view *to)
{
    const kvb_problem *p = &s->shape.problem;
    kvb_tall *tall = &s->tall[side];
    const int error = kvb_tall_open(tall, s->shape.apart_stride, p->n_cells + s->shape.apart, p->n_kv_heads, s->finite);
    if (error)
        return error;
    for (uint32_t h = 0; h < p->n_kv_heads; h++)
        for (uint32_t c = 0; c < p->n_cells; c++)
            memcpy(kvb_tall_row(tall, h, place_of(s, c)), kvb_view_row(from, h, c), row);
    to->base = tall->base;
    to->head_stride = tall->head_stride;
    to->cell_stride = tall->cell_stride;
    to->cells = p->n_cells + s->shape.apart;
    return 0;
}

static const void *shifted(const void *at, size_t bytes)
{
    return at ? (const char *)at + bytes : NULL;
}

/* Makes the call's view of one side: rows in place in the pool; copied if they are moved, aligned or have a front. */
static int view_make(attend_scene *s, int side, kvb_view *view)
{
    const kvb_problem *p = &s->shape.problem;
    const kvb_pool_type *type = side ? s->shape.v_pool : s->shape.k_pool;
    const uint32_t front = s->shape.front;
    kvb_view stored;
    type->view(s->pools[side], p->n_cells, &stored);
    *view = stored;
    const size_t row = kvb_codes_bytes(stored.format, stored.dim);
    if (s->shape.apart)
        return cells_part(s, side, &stored, row, view);
    if (!front && s->shape.align == 64 && !s->moved)
        return 0;
    int error = cells_move(s, &stored, front, p->n_cells - front, row, view);
    if (!error && front)
        error = cells_move(s, &stored, 0, front, row, &s->fronts[side]);
    view->cells = p->n_cells;
    view->front = front ? &s->fronts[side] : NULL;
    view->scales = shifted(view->scales, front * view->scale_cell_stride);
    view->zeros = shifted(view->zeros, front * view->zero_cell_stride);
    return error;
}

/* ---- sequences ------------------------------------------------------------------------------------------------- */

/* Deals pages out to sequences, at least one to each. Every second sequence begins with some pages of the first. */
static int tables_make(attend_scene *s, uint64_t *rng)
{
    const kvb_attend_shape *x = &s->shape;
    const uint32_t pages = x->problem.n_cells / x->page, batch = x->batch;
    uint32_t *order = kvb_arena_take(&s->arena, (size_t)pages + 1, sizeof *order), n = 0, taken = 0;
    s->tables = kvb_arena_take(&s->arena, (size_t)pages * 2 * batch + 1, sizeof *s->tables);
    s->table_first = kvb_arena_take(&s->arena, batch + 1u, sizeof *s->table_first);
    s->lengths = kvb_arena_take(&s->arena, batch + 1u, sizeof *s->lengths);
    if (s->arena.failed)
        return -ENOMEM;
    const bool plain = x->problem.mask == KVB_MASK_NONE || x->problem.mask == KVB_MASK_CAUSAL;
    kvb_draw_order(rng, !plain, pages, order);
    const uint32_t used = plain || pages < 2 * HOLES || pages < batch + pages / HOLES ? pages : pages - pages / HOLES;
    for (uint32_t b = 0; b < batch; b++) {
        const uint32_t left = used - taken - (batch - 1 - b); /* leaves one for each other sequence */
        const uint32_t own = b + 1 == batch ? left : 1 + kvb_draw_below(rng, (left - 1) / 2 + 1);
        const uint32_t shared = b % 2 && s->table_first[1] > 1 ? kvb_draw_below(rng, s->table_first[1]) : 0;
        for (uint32_t i = 0; i < shared; i++)
            s->tables[n++] = s->tables[i];
        for (uint32_t i = 0; i < own; i++)
            s->tables[n++] = order[taken++];
        s->table_first[b + 1] = n;
        s->lengths[b] = (shared + own) * x->page - (plain ? 0 : kvb_draw_below(rng, x->page));
    }
    return 0;
}

static int run_add(attend_scene *s, uint32_t first, uint32_t cell)
{
    if (s->n_runs > first && s->runs[s->n_runs - 1].end == cell && place_of(s, cell - 1) + 1 == place_of(s, cell)) {
        s->runs[s->n_runs - 1].end++;
        return 0;
    }
    if (kvb_array_reserve(&s->runs, &s->runs_room, s->n_runs + 1, sizeof *s->runs))
        return -ENOMEM;
    s->runs[s->n_runs++] = (kvb_token_run){cell, cell + 1};
    return 0;
}

static bool is_blind(const kvb_attend_shape *x, uint32_t t)
{
    const uint32_t n = x->problem.n_tok, quarter = n / 4 ? n / 4 : 1;
    return x->blind == KVB_BLIND_FIRST  ? t < quarter
           : x->blind == KVB_BLIND_LAST ? t >= n - quarter
           : x->blind == KVB_BLIND_SOME ? t % 3 == 1 || n == 1
                                        : false;
}

static uint32_t sequence_of(const attend_scene *s, uint32_t t)
{
    return (uint32_t)((uint64_t)t * s->shape.batch / s->shape.problem.n_tok);
}

/* 64-bit words of a row with a bit for each cell. */
static size_t scene_words(const attend_scene *s)
{
    return ((size_t)s->shape.problem.n_cells + 63) / 64;
}

/* What each query sees, as runs of cells in the order of positions. */
static int sight_make(attend_scene *s)
{
    const kvb_attend_shape *x = &s->shape;
    const kvb_problem *p = &x->problem;
    const uint32_t n = p->n_tok;
    s->first = kvb_arena_take(&s->arena, (size_t)n + 1, sizeof *s->first);
    s->windows = kvb_arena_take(&s->arena, (size_t)n + 1, sizeof *s->windows);
    s->ends = kvb_arena_take(&s->arena, (size_t)n + 1, sizeof *s->ends);
    s->seen = kvb_arena_take(&s->arena, scene_words(s), sizeof *s->seen);
    if (s->arena.failed || kvb_array_reserve(&s->runs, &s->runs_room, 1, sizeof *s->runs))
        return -ENOMEM;
    int error = 0;
    for (uint32_t t = 0; t < n && !error; t++) {
        const uint32_t b = sequence_of(s, t), *table = s->tables + s->table_first[b];
        uint32_t behind = 0; /* queries of the same sequence behind this one */
        while (t + behind + 1 < n && sequence_of(s, t + behind + 1) == b)
            behind++;
        const uint32_t least = p->mask == KVB_MASK_NONE ? s->lengths[b] : 1;
        const uint32_t end = s->lengths[b] > behind + least ? s->lengths[b] - behind : least;
        const uint32_t begin = x->chunk                       ? (end - 1) / x->chunk * x->chunk
                               : x->window && end > x->window ? end - x->window
                                                              : 0;
        s->ends[t] = is_blind(x, t) ? 0 : end;
        s->windows[t] = is_blind(x, t) ? (kvb_run){0, 0} : (kvb_run){begin, end};
        s->first[t] = s->n_runs;
        for (uint32_t pos = 0; pos < s->ends[t] && !error; pos++) {
            const uint32_t cell =
                x->problem.mask <= KVB_MASK_CAUSAL ? pos : table[pos / x->page] * x->page + pos % x->page;
            if (pos >= begin || pos < x->window_sinks)
                error = run_add(s, (uint32_t)s->first[t], cell);
        }
        for (size_t r = s->first[t]; r < s->n_runs; r++)
            kvb_bits_set(s->seen, s->runs[r].begin, s->runs[r].end);
    }
    s->first[n] = s->n_runs;
    s->rows.runs = s->runs;
    s->rows.first = s->first;
    return error;
}

/* ---- masks ----------------------------------------------------------------------------------------------------- */

/* A run in the kernel's cells. */
static kvb_run run_of(const attend_scene *s, size_t r)
{
    const uint32_t begin = place_of(s, s->runs[r].begin);
    return (kvb_run){begin, begin + s->runs[r].end - s->runs[r].begin};
}

static int bits_make(attend_scene *s)
{
    const kvb_problem *p = &s->call.problem;
    const size_t words = ((size_t)p->n_cells + 63) / 64, row = words + s->shape.more_words;
    uint64_t *all = input(s, "bits of the mask", p->n_tok * row * sizeof *all);
    if (!all)
        return -ENOMEM;
    for (uint32_t t = 0; t < p->n_tok; t++) {
        uint64_t *bits = all + t * row;
        memset(bits, 0xff, row * sizeof *bits); /* bits behind the cells mean nothing */
        for (uint32_t c = 0; c < p->n_cells; c += 64)
            bits[c / 64] = p->n_cells - c < 64 ? UINT64_MAX << (p->n_cells - c) : 0;
        for (size_t r = s->first[t]; r < s->first[t + 1]; r++)
            kvb_bits_set(bits, run_of(s, r).begin, run_of(s, r).end);
    }
    s->call.mask.bits = all;
    s->call.mask.row_words = row;
    return 0;
}

/* Runs in any order: every second call has them shuffled. */
static int runs_make(attend_scene *s, uint64_t *rng)
{
    const uint32_t n = s->shape.problem.n_tok;
    const bool shuffled = kvb_draw_below(rng, 2);
    kvb_run *all = input(s, "runs of the mask", s->n_runs * sizeof *all);
    uint32_t *row_start = input(s, "row_start of the mask", (n + 1) * sizeof *row_start);
    if (!all || !row_start)
        return -ENOMEM;
    for (size_t r = 0; r < s->n_runs; r++)
        all[r] = run_of(s, r);
    for (uint32_t t = 0; t <= n; t++)
        row_start[t] = (uint32_t)s->first[t];
    for (uint32_t t = 0; t < n && shuffled; t++)
        for (uint32_t i = row_start[t + 1] - row_start[t]; i > 1; i--) {
            kvb_run *runs = all + row_start[t], last = runs[i - 1];
            const uint32_t k = kvb_draw_below(rng, i);
            runs[i - 1] = runs[k];
            runs[k] = last;
        }
    s->call.mask.runs = all;
    s->call.mask.row_start = row_start;
    return 0;
}

/* Makes page tables. Entries that no query sees name a page that does not exist. */
static int pages_make(attend_scene *s)
{
    const kvb_attend_shape *x = &s->shape;
    const uint32_t n = x->problem.n_tok, entries = s->table_first[x->batch];
    uint32_t *pages = input(s, "page tables", entries * sizeof *pages);
    kvb_run *seen = input(s, "seen of the mask", n * sizeof *seen);
    uint32_t *row_start = input(s, "row_start of the mask", n * sizeof *row_start);
    if (!pages || !seen || !row_start)
        return -ENOMEM;
    memset(pages, 0xff, entries * sizeof *pages);
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t first = s->table_first[sequence_of(s, t)];
        row_start[t] = first;
        seen[t] = s->windows[t];
        for (uint32_t pos = 0; pos < s->ends[t]; pos++)
            if (pos >= seen[t].begin || pos < x->window_sinks)
                pages[first + pos / x->page] = place_of(s, s->tables[first + pos / x->page] * x->page) / x->page;
    }
    s->call.mask.pages = pages;
    s->call.mask.seen = seen;
    s->call.mask.row_start = row_start;
    s->call.mask.page_cells = x->page;
    s->call.mask.sinks = x->window_sinks;
    return 0;
}

static int mask_make(attend_scene *s, uint64_t *rng)
{
    s->call.mask = (kvb_mask){.kind = s->shape.problem.mask};
    switch (s->shape.problem.mask) {
    case KVB_MASK_EXPLICIT:
        return bits_make(s);
    case KVB_MASK_RUNS:
        return runs_make(s, rng);
    case KVB_MASK_PAGES:
        return pages_make(s);
    default:
        return 0;
    }
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

static int scene_team(void *scene, const kvb_kernel *kernel, const kvb_team *team)
{
    attend_scene *s = scene;
    const size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(&s->call.problem, team->n) : 0;
    const int error = kvb_call_scratch(&s->buffers, bytes);
    s->call.scratch = s->buffers.scratch;
    s->call.team = team;
    return error;
}

static int buffers_make(attend_scene *s, const kvb_kernel *kernel, const kvb_team *team, const scene_values *values)
{
    const kvb_problem *p = &s->shape.problem;
    const size_t rows = (size_t)p->n_tok * p->n_heads, align = s->shape.align;
    const kvb_profile *profile = kvb_profile_find(s->shape.values);
    float *q = kvb_call_buffer(&s->buffers, "q", rows * p->k_dim * sizeof *q, align, KVB_CALL_INPUT), *sinks = NULL;
    s->out_bytes = rows * p->v_dim * kvb_elem_bytes(p->out_elem);
    s->lse_bytes = rows * sizeof(float);
    s->call.out = kvb_call_buffer(&s->buffers, "out", s->out_bytes, align, KVB_CALL_OUTPUT);
    s->call.lse = kvb_call_buffer(&s->buffers, "lse", s->lse_bytes, align, KVB_CALL_OUTPUT);
    if (p->has_sinks)
        sinks = input(s, "sinks", p->n_heads * sizeof *sinks);
    if (!q || !s->call.out || !s->call.lse || (p->has_sinks && !sinks))
        return -ENOMEM;
    if (values->drawn)
        memcpy(q, values->drawn->call.q, rows * p->k_dim * sizeof *q);
    const size_t token = (size_t)p->n_heads * p->k_dim;
    for (uint32_t t = 0; t < p->n_tok && !values->drawn; t++)
        if (values->different && t >= values->different)
            memcpy(q + t * token, q + (t - values->different) * token, token * sizeof *q);
        else
            kvb_profile_rows(profile, &s->model, values->key, KVB_ROWS_Q, 0, (uint64_t)p->n_cells + t,
                             s->ends[t] ? s->ends[t] - 1 : 0, q + t * token);
    if (sinks)
        kvb_rng_normals(kvb_rng_key(values->key, KVB_ROWS_KINDS), (double)s->shape.sink, p->n_heads, sinks);
    s->call.q = q;
    s->call.sinks = sinks;
    if (kernel->flags & KVB_KERNEL_NO_LSE)
        s->call.lse = NULL;
    return scene_team(s, kernel, team);
}

/* ---- the scene ------------------------------------------------------------------------------------------------- */

/* Makes the call. 0; -ENOMEM; -ENOTSUP with why. team: the call's. elsewhere: tokens lie in other pages. The caller
 * closes the scene, also after an error. */
static int scene_open(const kvb_attend_shape *shape, const kvb_kernel *kernel, const kvb_team *team,
                      const scene_values *values, bool elsewhere, attend_scene *s, char *why, size_t why_bytes)
{
    const kvb_problem *p = &shape->problem;
    uint64_t rng = kvb_rng_key(values->key, 1), moves = kvb_rng_key(values->key, 2);
    int error = 0;
    *s = (attend_scene){.shape = *shape,
                        .allocator = {.source = &kvb_guarded_source},
                        .finite = kernel->flags & KVB_KERNEL_FINITE_CELLS};
    s->model = (kvb_model){.n_layers = 1, .n_groups = 1};
    s->model.groups[0] = (kvb_group){.heads = p->n_heads,
                                     .kv_heads = p->n_kv_heads,
                                     .k_dim = p->k_dim,
                                     .v_dim = p->v_dim,
                                     .latent = p->v_in_k,
                                     .scale = (double)p->scale};
    s->call.problem = kvb_attend_problem(shape);
    s->rows.cells = p->n_cells;
    if (elsewhere) {
        const uint32_t pages = p->n_cells / shape->page;
        s->moved = kvb_arena_take(&s->arena, (size_t)pages + 1, sizeof *s->moved);
        error = s->moved ? 0 : -ENOMEM;
        if (!error)
            kvb_draw_order(&moves, true, pages, s->moved);
    }
    error = error ? error : tables_make(s, &rng);
    if (!error)
        error = sight_make(s);
    if (!error)
        error = side_store(s, 0, values, why, why_bytes);
    if (!error && !p->v_in_k)
        error = side_store(s, 1, values, why, why_bytes);
    if (!error)
        error = view_make(s, 0, &s->call.k);
    if (!error && !p->v_in_k)
        error = view_make(s, 1, &s->call.v);
    if (!error && p->v_in_k) {
        s->call.v = s->call.k;
        s->call.v.dim = p->v_dim;
        if (s->call.k.front) {
            s->fronts[1] = s->fronts[0];
            s->fronts[1].dim = p->v_dim;
            s->call.v.front = &s->fronts[1];
        }
    }
    if (!error)
        error = mask_make(s, &rng);
    return error ? error : buffers_make(s, kernel, team, values);
}

static void scene_close(void *scene)
{
    attend_scene *s = scene;
    kvb_single_free(s->truth);
    kvb_poison_free(&s->poison);
    for (int side = 0; side < 2; side++) {
        if (s->pools[side])
            s->pools[side]->type->close(s->pools[side]);
        kvb_tall_close(&s->tall[side]);
        free(s->amax[side]);
    }
    kvb_call_buffers_free(&s->buffers);
    kvb_arena_free(&s->arena);
    free(s->runs);
}

/* Bytes of a row of one side in its pool. */
static size_t scene_row_bytes(const attend_scene *s, bool v)
{
    const kvb_pool_type *pool = v ? s->shape.v_pool : s->shape.k_pool;
    return (size_t)pool->row_bytes(pool, v ? s->call.v.dim : s->call.k.dim);
}

/* Fills outputs with the NaN that marks unwritten ones. */
static void scene_reset(attend_scene *s)
{
    const kvb_elem elem = s->shape.problem.out_elem;
    kvb_outputs_fill(s->call.out, s->out_bytes / kvb_elem_bytes(elem), kvb_elem_bytes(elem));
    if (s->call.lse)
        kvb_outputs_fill(s->call.lse, s->lse_bytes / sizeof(float), sizeof(float));
}

/* ---- one run of the kernel ----------------------------------------------------------------------------------- */

static size_t row_count(const attend_scene *s)
{
    return (size_t)s->shape.problem.n_tok * s->shape.problem.n_heads;
}

static void begin(kvb_call_trial *x)
{
    const attend_scene *s = x->scene;
    scene_reset(x->scene);
    kvb_view_protect(&s->call.k, true);
    kvb_view_protect(&s->call.v, true);
}

static int run(kvb_call_trial *x)
{
    const attend_scene *s = x->scene;
    return x->kernel->attend(&s->call);
}

/* Is every output written? */
static void look(kvb_call_trial *x)
{
    const attend_scene *s = x->scene;
    const kvb_problem *p = &s->shape.problem;
    const size_t bytes = kvb_elem_bytes(p->out_elem), rows = row_count(s), n = rows * p->v_dim;
    const size_t at = kvb_outputs_left(s->call.out, n, bytes);
    const size_t lse = s->call.lse ? kvb_outputs_left(s->call.lse, rows, sizeof(float)) : rows;
    const size_t row = at < n ? at / p->v_dim : lse;
    kvb_view_protect(&s->call.k, false);
    kvb_view_protect(&s->call.v, false);
    if (at < n || lse < rows)
        kvb_call_wrong(x->verdict, KVB_CHECK_WRITTEN, "%s of query %zu, head %zu is left unwritten",
                       at < n ? "out" : "lse", row / p->n_heads, row % p->n_heads);
}

/* Poisons the cells outside `visible` on both sides. */
static int hidden_poison(attend_scene *s, const uint64_t *visible)
{
    const uint32_t heads = s->shape.problem.n_kv_heads;
    int error = kvb_poison_fill(&s->poison, &s->call.k, heads, scene_row_bytes(s, false), visible);
    if (!error && !s->shape.problem.v_in_k)
        error = kvb_poison_fill(&s->poison, &s->call.v, heads, scene_row_bytes(s, true), visible);
    return error;
}

static int hide(kvb_call_trial *x, bool hidden)
{
    attend_scene *s = x->scene;
    if (hidden)
        return hidden_poison(s, s->seen);
    kvb_poison_restore(&s->poison);
    return 0;
}

/* ---- comparing with the oracle --------------------------------------------------------------------------------- */

/* Judges query t's rows of the query heads of one KV head. */
static int rows_judge(kvb_call_trial *x, uint32_t t, uint32_t kv_head, kvb_diff *diff)
{
    const attend_scene *s = x->scene;
    const kvb_problem *p = &s->shape.problem;
    const uint32_t each = p->n_heads / p->n_kv_heads;
    char why[256];
    const int error = kvb_single_judge(s->truth, t, kv_head * each, each, false, diff, NULL, NULL, why, sizeof why);
    if (!error || error == -ENOMEM)
        return error;
    kvb_call_wrong(x->verdict, KVB_CHECK_DECLARATION, "%s", why);
    return 0;
}

static void diff_tell(kvb_call_trial *x, const kvb_diff *diff, const char *when, kvb_check check)
{
    const attend_scene *s = x->scene;
    const kvb_tolerance *rule = &x->kernel->tolerance;
    char where[200];
    if (rule->kind) { /* its own project's rule decides */
        const double share = kvb_closeness_share(&diff->close, rule);
        if (share > 1)
            kvb_call_wrong(x->verdict, KVB_CHECK_TOLERANCE,
                           "%soutputs are off by %.3g times what its project tolerates", when, share);
        return;
    }
    x->verdict->rho = fmax(x->verdict->rho, diff->rho);
    if (!diff->any_failed)
        return;
    kvb_diff_words(diff, s->shape.problem.v_dim, where, sizeof where);
    kvb_call_wrong(x->verdict, check, "%s%s", when, where);
}

/* Are the outputs of a set, all query heads of one query and KV head, finite? They lie one behind the other. */
static bool are_finite(const attend_scene *s, size_t set)
{
    const kvb_problem *p = &s->shape.problem;
    const size_t n = (size_t)(p->n_heads / p->n_kv_heads) * p->v_dim;
    return kvb_call_finite(p->out_elem, (const char *)s->call.out + set * n * kvb_elem_bytes(p->out_elem), n) == n;
}

/* Judges the scene's outputs. A large call is sampled: first and last query, then random ones. */
static int outputs_judge(kvb_call_trial *x, const char *when)
{
    const attend_scene *s = x->scene;
    const kvb_problem *p = &s->shape.problem;
    const uint32_t each = p->n_heads / p->n_kv_heads;
    const size_t sets = (size_t)p->n_tok * p->n_kv_heads;
    kvb_diff diff = {0};
    double products = 0;
    uint64_t rng = x->key, judged = 0;
    int error = 0;
    for (size_t i = 0; i < sets && products < JUDGED_PRODUCTS && !error; i++) {
        /* all in turn if they are few enough; else first, last, and random ones */
        const double all = (double)sets * each * (p->k_dim + p->v_dim) * p->n_cells;
        rng = kvb_rng_key(rng, i);
        const size_t at = all <= JUDGED_PRODUCTS * 4 ? i : i == 0 ? 0 : i == 1 ? sets - 1 : (rng >> 16) % sets;
        const uint32_t t = (uint32_t)(at / p->n_kv_heads);
        size_t visible = 0;
        for (size_t r = s->first[t]; r < s->first[t + 1]; r++)
            visible += s->runs[r].end - s->runs[r].begin;
        error = rows_judge(x, t, (uint32_t)(at % p->n_kv_heads), &diff);
        products += (double)each * (p->k_dim + p->v_dim) * ((double)visible + 8);
        judged += each;
    }
    for (size_t at = 0; at < sets && judged < row_count(s) && !error && !diff.any_failed; at++)
        if (!are_finite(s, at)) { /* the sample may not have this set */
            error = rows_judge(x, (uint32_t)(at / p->n_kv_heads), (uint32_t)(at % p->n_kv_heads), &diff);
            break;
        }
    diff_tell(x, &diff, when, KVB_CHECK_BOUND);
    x->verdict->rows += row_count(s);
    x->verdict->judged += judged;
    x->verdict->silent += diff.silent;
    return error;
}

static bool order_of(kvb_call_trial *x)
{
    attend_scene *s = x->scene;
    const kvb_problem *p = &s->call.problem;
    return x->kernel->order && kvb_exact_takes(p->k_format) && kvb_exact_takes(p->v_format) &&
           x->kernel->order(&s->call, &s->order);
}

static int row_exact(kvb_call_trial *x, size_t row, char *why, size_t why_bytes)
{
    const attend_scene *s = x->scene;
    const uint32_t heads = s->call.problem.n_heads;
    return kvb_single_exact(s->truth, &s->order, s->shape.apart, (uint32_t)(row / heads), (uint32_t)(row % heads), why,
                            why_bytes);
}

/* ---- other runs ------------------------------------------------------------------------------------------------- */

/* Poisons all cells that one query does not see, though others may. Its rows must still be right. */
static int query_check(kvb_call_trial *x)
{
    attend_scene *s = x->scene;
    const kvb_problem *p = &s->shape.problem;
    const uint32_t t = (uint32_t)(kvb_rng_key(x->key, 5) >> 16) % p->n_tok;
    kvb_diff diff = {0};
    memset(s->sight, 0, scene_words(s) * sizeof *s->sight);
    for (size_t r = s->first[t]; r < s->first[t + 1]; r++)
        kvb_bits_set(s->sight, s->runs[r].begin, s->runs[r].end);
    if (!x->hides || !memcmp(s->sight, s->seen, scene_words(s) * sizeof *s->sight))
        return 0;
    int error = hidden_poison(s, s->sight);
    if (!error)
        kvb_trial_run(x);
    kvb_poison_restore(&s->poison);
    for (uint32_t h = 0; h < p->n_kv_heads && !error && x->verdict->check == KVB_CHECK_NONE; h++)
        error = rows_judge(x, t, h, &diff);
    diff_tell(x, &diff, "with NaN in cells that the query does not see: ", KVB_CHECK_POISON);
    return error;
}

#define OTHER_CELLS 64u /* different rows of a call that is not judged: it only must have other numbers */

static int other_call(kvb_call_trial *x, bool larger)
{
    const attend_scene *judged = x->scene;
    kvb_attend_shape shape = judged->shape;
    kvb_problem *p = &shape.problem;
    attend_scene s;
    const uint32_t n_tok = p->n_tok, n_cells = p->n_cells;
    p->n_tok = larger ? n_tok * 2 : (n_tok + 1) / 2;
    p->n_cells = larger ? n_cells * 2 : n_cells / 2;
    if (p->n_tok < shape.batch || p->n_cells / shape.page < shape.batch || p->n_cells < shape.front ||
        p->n_cells < p->n_tok || kvb_attend_cost(&shape) > KVB_ATTEND_COST)
        *p = judged->shape.problem;
    if (x->kernel->supports && !x->kernel->supports(p, x->why, x->why_bytes))
        return 0;
    const scene_values values = {.key = kvb_rng_key(x->key, 7), .different = OTHER_CELLS};
    const int error = scene_open(&shape, x->kernel, x->team, &values, false, &s, x->why, x->why_bytes);
    if (!error) {
        scene_reset(&s);
        x->kernel->attend(&s.call);
    }
    scene_close(&s);
    return error;
}

/* ---- the same bits in other ways? -------------------------------------------------------------------------------- */

/* Compares query t's outputs, made in another way, with the judged ones: bits, then the difference in units of the
 * bound. */
static int same_note(kvb_call_trial *x, kvb_same_kind way, uint32_t t, const void *out)
{
    const attend_scene *s = x->scene;
    const kvb_problem *p = &s->shape.problem;
    const size_t row = (size_t)p->n_heads * p->v_dim, bytes = row * kvb_elem_bytes(p->out_elem);
    const char *was = kvb_call_first(&s->buffers, s->call.out) + t * bytes;
    if (kvb_call_same_bits(x->verdict, way, was, out, bytes))
        return 0;
    double *bounds = malloc(row * sizeof *bounds);
    const uint32_t each = p->n_heads / p->n_kv_heads;
    char why[256];
    int error = bounds ? 0 : -ENOMEM;
    for (uint32_t h = 0; h < p->n_kv_heads && !error; h++) {
        kvb_diff diff = {0};
        error = kvb_single_judge(s->truth, t, h * each, each, false, &diff, NULL, bounds + (size_t)h * each * p->v_dim,
                                 why, sizeof why);
    }
    for (size_t i = 0; i < row && !error; i++)
        kvb_call_same_off(x->verdict, way, kvb_output_value(p->out_elem, was, i), kvb_output_value(p->out_elem, out, i),
                          bounds[i]);
    free(bounds);
    return error == -ENOMEM ? error : 0;
}

/* Makes the scene's call, and compares its first and its last query. */
static int same_make(kvb_call_trial *x, kvb_same_kind way, attend_scene *s)
{
    const kvb_problem *p = &s->call.problem;
    const size_t bytes = (size_t)p->n_heads * p->v_dim * kvb_elem_bytes(p->out_elem);
    scene_reset(s);
    if (x->kernel->attend(&s->call))
        return 0;
    const int error = same_note(x, way, 0, s->call.out);
    return error ? error : same_note(x, way, p->n_tok - 1, (const char *)s->call.out + (p->n_tok - 1) * bytes);
}

/* Repeats query t alone, in a call of one token. */
static int alone_make(kvb_call_trial *x, uint32_t t)
{
    attend_scene *s = x->scene;
    const kvb_attend whole = s->call;
    kvb_problem *p = &s->call.problem;
    char why[256];
    p->n_tok = 1;
    s->call.q += (size_t)t * p->n_heads * p->k_dim;
    if (whole.mask.bits)
        s->call.mask.bits += t * whole.mask.row_words;
    if (whole.mask.row_start)
        s->call.mask.row_start += t;
    if (whole.mask.seen)
        s->call.mask.seen += t;
    if (whole.mask.kind == KVB_MASK_CAUSAL)
        s->call.k.cells = s->call.v.cells = p->n_cells -= whole.problem.n_tok - 1 - t;
    int error = 0;
    bool made = false;
    if (p->n_cells > s->shape.front && (!x->kernel->supports || x->kernel->supports(p, why, sizeof why))) {
        error = scene_team(s, x->kernel, whole.team);
        scene_reset(s);
        made = !error && !x->kernel->attend(&s->call);
    }
    s->call = whole;
    error = error ? error : scene_team(s, x->kernel, whole.team);
    return error || !made ? error : same_note(x, KVB_SAME_BATCH, t, s->call.out);
}

/* Repeats the call in another scene: rows in other pages, or with another alignment. */
static int scene_again(kvb_call_trial *x, kvb_same_kind way)
{
    kvb_attend_shape shape = ((attend_scene *)x->scene)->shape;
    attend_scene s;
    if (way == KVB_SAME_ALIGNMENT)
        shape.align = shape.align == 64 ? 16 : 64;
    const scene_values values = {.key = x->key, .drawn = x->scene};
    int error = scene_open(&shape, x->kernel, x->team, &values, way == KVB_SAME_PAGES, &s, x->why, x->why_bytes);
    error = error ? error : same_make(x, way, &s);
    scene_close(&s);
    return error;
}

static int again(kvb_call_trial *x, kvb_same_kind way)
{
    attend_scene *s = x->scene;
    const kvb_attend *call = &s->call;
    const bool beside =
        call->k.scales || call->v.scales || call->k.zeros || call->v.zeros || call->k.recent || call->v.recent;
    /* only mask PAGES lists cells in the order of tokens wherever the pages lie */
    const bool moves = !beside && s->shape.problem.mask == KVB_MASK_PAGES;
    int error = 0;
    switch (way) {
    case KVB_SAME_THREADS:
    case KVB_SAME_AGAIN:
        return same_make(x, way, s);
    case KVB_SAME_BATCH:
        error = alone_make(x, 0);
        return error ? error : alone_make(x, call->problem.n_tok - 1);
    case KVB_SAME_PAGES:
    case KVB_SAME_ALIGNMENT:
        return !s->shape.front && !s->shape.apart && (moves || way == KVB_SAME_ALIGNMENT) ? scene_again(x, way) : 0;
    default:
        return 0;
    }
}

/* ---- as a subject --------------------------------------------------------------------------------------------- */

static int open_call(kvb_call_trial *x, const kvb_call_subject *subject, const kvb_point *point)
{
    attend_scene *s = x->scene;
    kvb_attend_shape shape;
    const kvb_problem *p = &shape.problem;
    if (!kvb_attend_shape_of(subject->shapes, point, &shape, x->why, x->why_bytes))
        return -EINVAL;
    x->team = kvb_call_team(x->teams, shape.threads);
    const scene_values values = {.key = x->key};
    int error = x->team ? scene_open(&shape, x->kernel, x->team, &values, false, s, x->why, x->why_bytes) : -ENOMEM;
    error = error ? error : kvb_single_open(&s->call, x->kernel, NULL, &s->rows, &s->truth, x->why, x->why_bytes);
    if (error)
        return error;
    s->sight = kvb_arena_take(&s->arena, scene_words(s) + 1, sizeof *s->sight);
    x->buffers = &s->buffers;
    x->order = shape.order;
    x->same_bits = p->deterministic;
    x->hides = scene_hides(s);
    x->may_allocate = x->kernel->flags & KVB_KERNEL_FOREIGN;
    x->rows = row_count(s);
    x->row_products = (double)(p->k_dim + p->v_dim) * p->n_cells + ORDER_PRODUCTS;
    return s->arena.failed ? -ENOMEM : 0;
}

static const kvb_trial_kind kind = {"attend()",    "cells that no query sees",
                                    false,         sizeof(attend_scene),
                                    open_call,     scene_close,
                                    scene_team,    other_call,
                                    hide,          begin,
                                    run,           look,
                                    outputs_judge, order_of,
                                    row_exact,     again,
                                    query_check};

static bool subject_fits(const kvb_call_subject *s, const kvb_point *point, char *why, size_t why_bytes)
{
    kvb_attend_shape shape;
    return kvb_attend_shape_of(s->shapes, point, &shape, why, why_bytes) &&
           kvb_attend_takes(s->kernel, &shape, why, why_bytes);
}

/* A kernel with scratch for every cell also decodes the cells between rows that lie apart. Each of a head's lies on
 * another memory page. */
#define APART_CELL_NS 1500.0
/* For each query and each cell between the rows, if rows are repeated to the bit: the kernel's order is asked again. */
#define APART_EXACT_NS 3.0

static double subject_cost(const kvb_call_subject *s, const kvb_point *point)
{
    const kvb_kernel *kernel = s->kernel;
    kvb_attend_shape shape;
    char why[256];
    if (!point->at[KVB_AT_PLACE]) { /* most points: what formats decide costs nothing */
        kvb_attend_numbers_of(s->shapes, point, &shape);
        return kvb_attend_cost(&shape);
    }
    const bool apart = kvb_attend_shape_of(s->shapes, point, &shape, why, sizeof why) && shape.apart &&
                       kvb_attend_takes(kernel, &shape, why, sizeof why);
    const kvb_problem all = kvb_attend_problem(&shape);
    const bool decodes_all =
        apart && kernel->scratch_bytes &&
        kernel->scratch_bytes(&all, shape.threads) >= (size_t)all.n_cells * all.k_dim * sizeof(float);
    const bool exact = apart && kernel->order && kvb_exact_takes(all.k_format) && kvb_exact_takes(all.v_format);
    return kvb_attend_cost(&shape) + (decodes_all ? APART_CELL_NS * all.n_cells * all.n_kv_heads * 2 : 0) +
           (exact ? APART_EXACT_NS * all.n_tok * shape.apart : 0);
}

kvb_call_subject kvb_attend_subject(const kvb_attend_space *space, const kvb_kernel *kernel)
{
    return (kvb_call_subject){&space->space, kernel, &kind, space, subject_fits, subject_cost, kvb_attend_mutes};
}
