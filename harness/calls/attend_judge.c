/* SPDX-License-Identifier: Apache-2.0 */
/* Makes attention calls, with rows, layout and masks drawn by a key, and judges them. */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"
#include "harness/calls/attend_axes.h"
#include "harness/calls/subject.h"
#include "harness/calls/pairwise.h"
#include "harness/matrix/ground_truth.h"
#include "harness/replay/guard.h"
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

#define JUDGED_PRODUCTS 3e6 /* products of the oracle for one call; a larger call has its rows sampled */
#define EXACT_PRODUCTS  1e6 /* products of the rows that are repeated to the bit */

#define HOLES 8u /* one page in so many belongs to no sequence */

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
        *lengths; /* page tables, one behind the other; [batch + 1]; [batch] positions of a sequence */
    uint64_t *bits;
    kvb_run *mask_runs, *windows;
    uint32_t *row_start;
    size_t n_runs, runs_room;
    kvb_call_buffers buffers;
    kvb_arena arena;
    size_t out_bytes, lse_bytes;
} attend_scene;

static void *input(attend_scene *s, const char *name, size_t bytes)
{
    return kvb_call_buffer(&s->buffers, name, bytes, 64, true);
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

static void model_make(const kvb_problem *p, kvb_model *m)
{
    *m = (kvb_model){.n_layers = 1, .n_groups = 1};
    m->groups[0] = (kvb_group){.heads = p->n_heads,
                               .kv_heads = p->n_kv_heads,
                               .k_dim = p->k_dim,
                               .v_dim = p->v_dim,
                               .latent = p->v_in_k,
                               .scale = (double)p->scale};
}

/* Stores one side's rows, values by the profile, in the pool cell after cell. */
static int side_store(attend_scene *s, int side, uint64_t key, char *why, size_t why_bytes)
{
    const kvb_rows kind = side ? KVB_ROWS_V : KVB_ROWS_K;
    const kvb_problem *p = &s->shape.problem;
    const kvb_pool_type *type = side ? s->shape.v_pool : s->shape.k_pool;
    const uint32_t dim = side ? p->v_dim : p->k_dim;
    const size_t token = (size_t)p->n_kv_heads * dim;
    const kvb_profile *profile = kvb_profile_find(s->shape.values);
    float *rows = kvb_arena_take(&s->arena, token * p->n_cells, sizeof *rows);
    if (!rows)
        return -ENOMEM;
    for (uint32_t c = 0; c < p->n_cells; c++)
        kvb_profile_rows(profile, &s->model, key, kind, 0, c, c, rows + c * token);
    size_t at[KVB_MODEL_LAYERS] = {0};
    kvb_values values = {.tokens = p->n_cells, .model = &s->model};
    values.block[kind] = rows;
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
    char *block = kvb_call_buffer(&s->buffers, "K and V rows", s->shape.problem.n_kv_heads * head + offset, 64, false);
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

/* Bits of the cells that query t sees. */
static void scene_sight(const attend_scene *s, uint32_t t, uint64_t *bits)
{
    memset(bits, 0, scene_words(s) * sizeof *bits);
    for (size_t r = s->first[t]; r < s->first[t + 1]; r++)
        kvb_bits_set(bits, s->runs[r].begin, s->runs[r].end);
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
    s->bits = input(s, "bits of the mask", p->n_tok * row * sizeof *s->bits);
    if (!s->bits)
        return -ENOMEM;
    for (uint32_t t = 0; t < p->n_tok; t++) {
        uint64_t *bits = s->bits + t * row;
        memset(bits, 0xff, row * sizeof *bits); /* bits behind the cells mean nothing */
        for (uint32_t c = 0; c < p->n_cells; c += 64)
            bits[c / 64] = p->n_cells - c < 64 ? UINT64_MAX << (p->n_cells - c) : 0;
        for (size_t r = s->first[t]; r < s->first[t + 1]; r++)
            kvb_bits_set(bits, run_of(s, r).begin, run_of(s, r).end);
    }
    s->call.mask.bits = s->bits;
    s->call.mask.row_words = row;
    return 0;
}

/* Runs in any order: every second call has them shuffled. */
static int runs_make(attend_scene *s, uint64_t *rng)
{
    const uint32_t n = s->shape.problem.n_tok;
    const bool shuffled = kvb_draw_below(rng, 2);
    s->mask_runs = input(s, "runs of the mask", s->n_runs * sizeof *s->mask_runs);
    s->row_start = input(s, "row_start of the mask", (n + 1) * sizeof *s->row_start);
    if (!s->mask_runs || !s->row_start)
        return -ENOMEM;
    for (size_t r = 0; r < s->n_runs; r++)
        s->mask_runs[r] = run_of(s, r);
    for (uint32_t t = 0; t <= n; t++)
        s->row_start[t] = (uint32_t)s->first[t];
    for (uint32_t t = 0; t < n && shuffled; t++)
        for (uint32_t i = s->row_start[t + 1] - s->row_start[t]; i > 1; i--) {
            kvb_run *runs = s->mask_runs + s->row_start[t], last = runs[i - 1];
            const uint32_t k = kvb_draw_below(rng, i);
            runs[i - 1] = runs[k];
            runs[k] = last;
        }
    s->call.mask.runs = s->mask_runs;
    s->call.mask.row_start = s->row_start;
    return 0;
}

/* Makes page tables. Entries that no query sees name a page that does not exist. */
static int pages_make(attend_scene *s)
{
    const kvb_attend_shape *x = &s->shape;
    const uint32_t n = x->problem.n_tok, entries = s->table_first[x->batch];
    uint32_t *pages = input(s, "page tables", entries * sizeof *pages);
    kvb_run *seen = input(s, "seen of the mask", n * sizeof *seen);
    s->row_start = input(s, "row_start of the mask", n * sizeof *s->row_start);
    if (!pages || !seen || !s->row_start)
        return -ENOMEM;
    memset(pages, 0xff, entries * sizeof *pages);
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t first = s->table_first[sequence_of(s, t)];
        s->row_start[t] = first;
        seen[t] = s->windows[t];
        for (uint32_t pos = 0; pos < s->ends[t]; pos++)
            if (pos >= seen[t].begin || pos < x->window_sinks)
                pages[first + pos / x->page] = place_of(s, s->tables[first + pos / x->page] * x->page) / x->page;
    }
    s->call.mask.pages = pages;
    s->call.mask.seen = seen;
    s->call.mask.row_start = s->row_start;
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

/* Gives the call this team, and scratch for it. 0 or -ENOMEM. */
static int scene_team(attend_scene *s, const kvb_kernel *kernel, const kvb_team *team)
{
    const size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(&s->call.problem, team->n) : 0;
    const int error = kvb_call_scratch(&s->buffers, bytes);
    s->call.scratch = s->buffers.scratch;
    s->call.team = team;
    return error;
}

static int buffers_make(attend_scene *s, const kvb_kernel *kernel, const kvb_team *team, uint64_t key)
{
    const kvb_problem *p = &s->shape.problem;
    const size_t rows = (size_t)p->n_tok * p->n_heads, align = s->shape.align;
    const kvb_profile *profile = kvb_profile_find(s->shape.values);
    float *q = kvb_call_buffer(&s->buffers, "q", rows * p->k_dim * sizeof *q, align, true), *sinks = NULL;
    s->out_bytes = rows * p->v_dim * kvb_elem_bytes(p->out_elem);
    s->lse_bytes = rows * sizeof(float);
    s->call.out = kvb_call_buffer(&s->buffers, "out", s->out_bytes, align, false);
    s->call.lse = kvb_call_buffer(&s->buffers, "lse", s->lse_bytes, align, false);
    if (p->has_sinks)
        sinks = input(s, "sinks", p->n_heads * sizeof *sinks);
    if (!q || !s->call.out || !s->call.lse || (p->has_sinks && !sinks))
        return -ENOMEM;
    for (uint32_t t = 0; t < p->n_tok; t++)
        kvb_profile_rows(profile, &s->model, key, KVB_ROWS_Q, 0, (uint64_t)p->n_cells + t,
                         s->ends[t] ? s->ends[t] - 1 : 0, q + (size_t)t * p->n_heads * p->k_dim);
    if (sinks)
        kvb_rng_normals(kvb_rng_key(key, KVB_ROWS_KINDS), (double)s->shape.sink, p->n_heads, sinks);
    s->call.q = q;
    s->call.sinks = sinks;
    if (kernel->flags & KVB_KERNEL_NO_LSE)
        s->call.lse = NULL;
    const int error = kvb_call_buffers_keep(&s->buffers);
    return error ? error : scene_team(s, kernel, team);
}

/* ---- the scene ------------------------------------------------------------------------------------------------- */

/* Draws other pages for the same tokens. */
static int pages_move(attend_scene *s, uint64_t key)
{
    const uint32_t pages = s->shape.problem.n_cells / s->shape.page;
    uint64_t rng = kvb_rng_key(key, 2);
    s->moved = kvb_arena_take(&s->arena, (size_t)pages + 1, sizeof *s->moved);
    if (s->moved)
        kvb_draw_order(&rng, true, pages, s->moved);
    return s->moved ? 0 : -ENOMEM;
}

/* Makes the call. 0; -ENOMEM; -ENOTSUP with why. team: the call's. elsewhere: tokens lie in other pages. The caller
 * closes the scene, also after an error. */
static int scene_open(const kvb_attend_shape *shape, const kvb_kernel *kernel, const kvb_team *team, uint64_t key,
                      bool elsewhere, attend_scene *s, char *why, size_t why_bytes)
{
    uint64_t rng = kvb_rng_key(key, 1);
    *s = (attend_scene){.shape = *shape,
                        .allocator = {.source = &kvb_guarded_source},
                        .finite = kernel->flags & KVB_KERNEL_FINITE_CELLS};
    model_make(&shape->problem, &s->model);
    s->call.problem = kvb_attend_problem(shape);
    s->rows.cells = shape->problem.n_cells;
    int error = elsewhere ? pages_move(s, key) : 0;
    error = error ? error : side_store(s, 0, key, why, why_bytes);
    if (!error && !shape->problem.v_in_k)
        error = side_store(s, 1, key, why, why_bytes);
    if (!error)
        error = view_make(s, 0, &s->call.k);
    if (!error && !shape->problem.v_in_k)
        error = view_make(s, 1, &s->call.v);
    if (!error && shape->problem.v_in_k) {
        s->call.v = s->call.k;
        s->call.v.dim = shape->problem.v_dim;
        if (s->call.k.front) {
            s->fronts[1] = s->fronts[0];
            s->fronts[1].dim = shape->problem.v_dim;
            s->call.v.front = &s->fronts[1];
        }
    }
    if (!error)
        error = tables_make(s, &rng);
    if (!error)
        error = sight_make(s);
    if (!error)
        error = mask_make(s, &rng);
    return error ? error : buffers_make(s, kernel, team, key);
}

static void scene_close(attend_scene *s)
{
    for (int side = 0; side < 2; side++) {
        if (s->pools[side])
            s->pools[side]->type->close(s->pools[side]);
        kvb_tall_close(&s->tall[side]);
        free(s->amax[side]);
    }
    kvb_call_buffers_free(&s->buffers);
    kvb_arena_free(&s->arena);
    free(s->runs);
    *s = (attend_scene){.n_runs = 0};
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

/* Makes K and V rows read-only, or writable. */
static void scene_protect(const attend_scene *s, bool read_only)
{
    const kvb_view *const views[] = {&s->call.k, &s->call.v, s->call.k.front, s->call.v.front};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        for (size_t lane = 0; views[i] && lane < 4; lane++) {
            const void *const lanes[] = {views[i]->base, views[i]->scales, views[i]->zeros, views[i]->recent};
            if (lanes[lane])
                kvb_guard_protect(lanes[lane], read_only);
        }
}

/* ---- the trial ------------------------------------------------------------------------------------------------- */

/* The call under judgement. */
typedef struct trial {
    const kvb_kernel *kernel;
    attend_scene scene;
    kvb_single *truth;
    kvb_poison poison;
    uint64_t *sight; /* bits of cells */
    char *before;    /* outputs of the first run */
    double *exact;   /* [heads of a KV head][v_dim] */
    kvb_call_verdict *verdict;
    kvb_call_teams *teams;
    uint64_t key;
    char *why; /* the reason of an error */
    size_t why_bytes;
    kvb_arena arena;
} trial;

static bool has_failed(const trial *x)
{
    return x->verdict->check != KVB_CHECK_NONE;
}

static size_t row_count(const trial *x)
{
    return (size_t)x->scene.shape.problem.n_tok * x->scene.shape.problem.n_heads;
}

/* ---- one run of the kernel ----------------------------------------------------------------------------------- */

static void written_check(trial *x)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const size_t bytes = kvb_elem_bytes(p->out_elem), n = row_count(x) * p->v_dim, rows = row_count(x);
    const size_t at = kvb_outputs_left(x->scene.call.out, n, bytes);
    const size_t lse = x->scene.call.lse ? kvb_outputs_left(x->scene.call.lse, rows, sizeof(float)) : rows;
    const size_t row = at < n ? at / p->v_dim : lse;
    if (at < n || lse < rows)
        kvb_call_wrong(x->verdict, KVB_CHECK_WRITTEN, "%s of query %zu, head %zu is left unwritten",
                       at < n ? "out" : "lse", row / p->n_heads, row % p->n_heads);
}

static int call_make(void *ctx)
{
    const trial *x = ctx;
    return x->kernel->attend(&x->scene.call);
}

/* Makes the call, and checks what needs no oracle. */
static void kernel_run(trial *x)
{
    attend_scene *s = &x->scene;
    scene_reset(s);
    scene_protect(s, true);
    kvb_call_watch(&s->buffers, "attend()", call_make, x, x->kernel->flags & KVB_KERNEL_FOREIGN, x->verdict);
    scene_protect(s, false);
    written_check(x);
}

/* Poisons the cells outside `visible` on both sides. */
static int hidden_poison(trial *x, const uint64_t *visible)
{
    attend_scene *s = &x->scene;
    const uint32_t heads = s->shape.problem.n_kv_heads;
    int error = kvb_poison_fill(&x->poison, &s->call.k, heads, scene_row_bytes(s, false), visible);
    if (!error && !s->shape.problem.v_in_k)
        error = kvb_poison_fill(&x->poison, &s->call.v, heads, scene_row_bytes(s, true), visible);
    return error;
}

/* ---- comparing with the oracle --------------------------------------------------------------------------------- */

/* Judges query t's rows of the query heads of one KV head. */
static int rows_judge(trial *x, uint32_t t, uint32_t kv_head, kvb_diff *diff, kvb_closeness *close)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const uint32_t each = p->n_heads / p->n_kv_heads;
    const size_t bytes = p->v_dim * kvb_elem_bytes(p->out_elem);
    char why[256];
    int error = kvb_single_judge(x->truth, t, kv_head * each, each, false, diff, x->exact, NULL, why, sizeof why);
    if (error && error != -ENOMEM) {
        kvb_call_wrong(x->verdict, KVB_CHECK_DECLARATION, "%s", why);
        return 0;
    }
    for (uint32_t i = 0; i < each && !error && x->kernel->tolerance.kind; i++)
        kvb_closeness_row(close, &x->kernel->tolerance, p->out_elem,
                          (const char *)x->scene.call.out + ((size_t)t * p->n_heads + kv_head * each + i) * bytes,
                          p->v_dim, x->exact + (size_t)i * p->v_dim, 1);
    return error;
}

static void diff_tell(trial *x, const kvb_diff *diff, const kvb_closeness *close, const char *when, kvb_check check)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const kvb_tolerance *rule = &x->kernel->tolerance;
    char where[200];
    if (rule->kind) { /* its own project's rule decides */
        const double share = kvb_closeness_share(close, rule);
        if (share > 1)
            kvb_call_wrong(x->verdict, KVB_CHECK_TOLERANCE,
                           "%soutputs are off by %.3g times what its project tolerates", when, share);
        return;
    }
    x->verdict->rho = fmax(x->verdict->rho, diff->rho);
    if (!diff->any_failed)
        return;
    kvb_diff_words(diff, p->v_dim, where, sizeof where);
    kvb_call_wrong(x->verdict, check, "%s%s", when, where);
}

/* Are the outputs of a set, all query heads of one query and KV head, finite? They lie one behind the other. */
static bool are_finite(const trial *x, size_t set)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const size_t n = (size_t)(p->n_heads / p->n_kv_heads) * p->v_dim;
    bool finite = true;
    for (size_t i = set * n; i < (set + 1) * n; i++)
        finite &= isfinite(kvb_output_value(p->out_elem, x->scene.call.out, i)) != 0;
    return finite;
}

/* Judges the scene's outputs. A large call is sampled: first and last query, then random ones. */
static int outputs_judge(trial *x, const char *when)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const uint32_t each = p->n_heads / p->n_kv_heads;
    const size_t sets = (size_t)p->n_tok * p->n_kv_heads;
    kvb_diff diff = {0};
    kvb_closeness close = {0};
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
        for (size_t r = x->scene.first[t]; r < x->scene.first[t + 1]; r++)
            visible += x->scene.runs[r].end - x->scene.runs[r].begin;
        error = rows_judge(x, t, (uint32_t)(at % p->n_kv_heads), &diff, &close);
        products += (double)each * (p->k_dim + p->v_dim) * ((double)visible + 8);
        judged += each;
    }
    for (size_t at = 0; at < sets && judged < row_count(x) && !error && !diff.any_failed; at++)
        if (!are_finite(x, at)) { /* the sample may not have this set */
            error = rows_judge(x, (uint32_t)(at / p->n_kv_heads), (uint32_t)(at % p->n_kv_heads), &diff, &close);
            break;
        }
    diff_tell(x, &diff, &close, when, KVB_CHECK_BOUND);
    x->verdict->rows += row_count(x);
    x->verdict->judged += judged;
    x->verdict->silent += diff.silent;
    return error;
}

/* Compares right outputs of the first run, to the bit, with the order that the kernel declares. A large call is
 * sampled: rows at equal distances. */
static int exact_judge(trial *x)
{
    const kvb_attend *call = &x->scene.call;
    const kvb_problem *p = &call->problem;
    const double each = (double)(p->k_dim + p->v_dim) * x->scene.rows.cells + 1;
    const size_t all = row_count(x), most = (size_t)(EXACT_PRODUCTS / each) + 2, n = all < most ? all : most;
    kvb_order order;
    char why[256];
    if (!x->kernel->order || !kvb_exact_takes(p->k_format) || !kvb_exact_takes(p->v_format) ||
        !x->kernel->order(call, &order))
        return 0;
    memcpy(call->out, x->before, x->scene.out_bytes);
    if (call->lse)
        memcpy(call->lse, x->before + x->scene.out_bytes, x->scene.lse_bytes);
    for (size_t i = 0; i < n; i++) {
        const size_t row = n < 2 ? 0 : i * (all - 1) / (n - 1);
        const int alike = kvb_single_exact(x->truth, &order, x->scene.shape.apart, (uint32_t)(row / p->n_heads),
                                           (uint32_t)(row % p->n_heads), why, sizeof why);
        if (alike == -EDOM)
            return 0;
        if (alike < 0)
            return alike;
        if (!alike) {
            kvb_call_wrong(x->verdict, KVB_CHECK_EXACT, "%s", why);
            return 0;
        }
    }
    x->verdict->exact = true;
    return 0;
}

/* ---- the checks, one after the other ---------------------------------------------------------------------------- */

static size_t outputs_keep(const trial *x, char *to)
{
    const attend_scene *s = &x->scene;
    const size_t lse = s->call.lse ? s->lse_bytes : 0;
    if (to) {
        memcpy(to, s->call.out, s->out_bytes);
        memcpy(to + s->out_bytes, s->call.lse ? (const void *)s->call.lse : "", lse);
    }
    return s->out_bytes + lse;
}

static bool outputs_differ(const trial *x)
{
    const attend_scene *s = &x->scene;
    return memcmp(x->before, s->call.out, s->out_bytes) ||
           (s->call.lse && memcmp(x->before + s->out_bytes, s->call.lse, s->lse_bytes));
}

/* The same call again. */
static int again_check(trial *x)
{
    kernel_run(x);
    return has_failed(x) || !outputs_differ(x) ? 0 : outputs_judge(x, "called again: ");
}

/* With another team the bits must be the same. */
static int team_check(trial *x)
{
    attend_scene *s = &x->scene;
    const kvb_team *own = s->call.team, *other = kvb_call_team(x->teams, own->n == 1 ? 3 : 1);
    int error = other ? scene_team(s, x->kernel, other) : -ENOMEM;
    if (error)
        return error;
    kernel_run(x);
    if (outputs_differ(x))
        kvb_call_wrong(x->verdict, KVB_CHECK_DETERMINISTIC, "deterministic, but %u and %u threads give other bits",
                       own->n, other->n);
    return scene_team(s, x->kernel, own);
}

/* Poisons all cells that one query does not see, though others may. Its rows must still be right. */
static int query_check(trial *x)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const uint32_t t = (uint32_t)(kvb_rng_key(x->key, 5) >> 16) % p->n_tok;
    kvb_diff diff = {0};
    kvb_closeness close = {0};
    scene_sight(&x->scene, t, x->sight);
    if (!memcmp(x->sight, x->scene.seen, scene_words(&x->scene) * sizeof *x->sight))
        return 0;
    int error = hidden_poison(x, x->sight);
    if (!error)
        kernel_run(x);
    kvb_poison_restore(&x->poison);
    for (uint32_t h = 0; h < p->n_kv_heads && !error && !has_failed(x); h++)
        error = rows_judge(x, t, h, &diff, &close);
    diff_tell(x, &diff, &close, "with NaN in cells that the query does not see: ", KVB_CHECK_POISON);
    return error;
}

/* Makes another call of the same kernel, of a larger or smaller shape, before the judged one. */
static int other_call(const trial *x, bool larger)
{
    kvb_attend_shape shape = x->scene.shape;
    kvb_problem *p = &shape.problem;
    attend_scene *s = calloc(1, sizeof *s);
    const uint32_t n_tok = p->n_tok, n_cells = p->n_cells;
    p->n_tok = larger ? n_tok * 2 : (n_tok + 1) / 2;
    p->n_cells = larger ? n_cells * 2 : n_cells / 2;
    if (p->n_tok < shape.batch || p->n_cells / shape.page < shape.batch || p->n_cells < shape.front ||
        p->n_cells < p->n_tok || kvb_attend_cost(&shape) > KVB_ATTEND_COST)
        *p = x->scene.shape.problem;
    if (!s)
        return -ENOMEM;
    int error = 0;
    if (!x->kernel->supports || x->kernel->supports(p, x->why, x->why_bytes)) {
        error = scene_open(&shape, x->kernel, kvb_call_team(x->teams, shape.threads), kvb_rng_key(x->key, 7), false, s,
                           x->why, x->why_bytes);
        scene_reset(s);
        if (!error)
            x->kernel->attend(&s->call);
    }
    scene_close(s);
    free(s);
    return error;
}

/* ---- the same bits in other ways? -------------------------------------------------------------------------------- */

/* Compares query t's outputs, made in another way, with the judged ones: bits, then the difference in units of the
 * bound. */
static int same_note(trial *x, kvb_same_kind kind, uint32_t t, const void *out)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const size_t row = (size_t)p->n_heads * p->v_dim, bytes = row * kvb_elem_bytes(p->out_elem);
    const char *was = x->before + t * bytes;
    if (kvb_call_same_bits(x->verdict, kind, was, out, bytes))
        return 0;
    double *bounds = malloc(2 * row * sizeof *bounds);
    const uint32_t each = p->n_heads / p->n_kv_heads;
    char why[256];
    int error = bounds ? 0 : -ENOMEM;
    for (uint32_t h = 0; h < p->n_kv_heads && !error; h++) {
        kvb_diff diff = {0};
        const size_t at = (size_t)h * each * p->v_dim;
        error = kvb_single_judge(x->truth, t, h * each, each, false, &diff, bounds + row + at, bounds + at, why,
                                 sizeof why);
    }
    for (size_t i = 0; i < row && !error; i++)
        kvb_call_same_off(x->verdict, kind, kvb_output_value(p->out_elem, was, i),
                          kvb_output_value(p->out_elem, out, i), bounds[i]);
    free(bounds);
    return error == -ENOMEM ? error : 0;
}

/* Makes the scene's call, and compares its first and its last query. */
static int same_make(trial *x, kvb_same_kind kind, attend_scene *s)
{
    const kvb_problem *p = &s->call.problem;
    const size_t bytes = (size_t)p->n_heads * p->v_dim * kvb_elem_bytes(p->out_elem);
    scene_reset(s);
    if (x->kernel->attend(&s->call))
        return 0;
    const int error = same_note(x, kind, 0, s->call.out);
    return error ? error : same_note(x, kind, p->n_tok - 1, (const char *)s->call.out + (p->n_tok - 1) * bytes);
}

/* Repeats query t alone, in a call of one token. */
static int alone_make(trial *x, uint32_t t)
{
    attend_scene *s = &x->scene;
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
static int scene_again(trial *x, kvb_same_kind kind)
{
    kvb_attend_shape shape = x->scene.shape;
    attend_scene *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    if (kind == KVB_SAME_ALIGNMENT)
        shape.align = shape.align == 64 ? 16 : 64;
    int error =
        scene_open(&shape, x->kernel, x->scene.call.team, x->key, kind == KVB_SAME_PAGES, s, x->why, x->why_bytes);
    error = error ? error : same_make(x, kind, s);
    scene_close(s);
    free(s);
    return error;
}

static int same_team(void *ctx, const kvb_team *team)
{
    trial *x = ctx;
    return scene_team(&x->scene, x->kernel, team);
}

static int same_before(void *ctx)
{
    return other_call(ctx, false);
}

static int same_whole(void *ctx, kvb_same_kind kind)
{
    trial *x = ctx;
    return same_make(x, kind, &x->scene);
}

static int same_otherwise(void *ctx, kvb_same_kind kind)
{
    trial *x = ctx;
    const kvb_attend *call = &x->scene.call;
    const bool plain = !x->scene.shape.front && !x->scene.shape.apart;
    const bool beside =
        call->k.scales || call->v.scales || call->k.zeros || call->v.zeros || call->k.recent || call->v.recent;
    int error = 0;
    if (kind == KVB_SAME_BATCH) {
        error = alone_make(x, 0);
        return error ? error : alone_make(x, call->problem.n_tok - 1);
    }
    /* only mask PAGES lists cells in the order of tokens wherever the pages lie */
    const bool moves = kind == KVB_SAME_PAGES && !beside && x->scene.shape.problem.mask == KVB_MASK_PAGES;
    return plain && (moves || kind == KVB_SAME_ALIGNMENT) ? scene_again(x, kind) : 0;
}

static const kvb_call_ways same_ways = {same_team, same_before, same_whole, same_otherwise};

static int trial_open(trial *x, const kvb_attend_shape *shape, const kvb_team *team, char *why, size_t why_bytes)
{
    const kvb_problem *p = &shape->problem;
    int error = scene_open(shape, x->kernel, team, x->key, false, &x->scene, why, why_bytes);
    if (!error)
        error = kvb_single_open(&x->scene.call, x->kernel, NULL, &x->scene.rows, &x->truth, why, why_bytes);
    if (error)
        return error;
    x->sight = kvb_arena_take(&x->arena, scene_words(&x->scene) + 1, sizeof *x->sight);
    x->before = kvb_arena_take(&x->arena, outputs_keep(x, NULL) + 1, 1);
    x->exact = kvb_arena_take(&x->arena, (size_t)(p->n_heads / p->n_kv_heads) * p->v_dim, sizeof *x->exact);
    return x->arena.failed ? -ENOMEM : 0;
}

static void trial_close(trial *x)
{
    kvb_single_free(x->truth);
    kvb_poison_free(&x->poison);
    scene_close(&x->scene);
    kvb_arena_free(&x->arena);
    free(x);
}

/* Runs all checks. Cells that no query sees hold NaN from the start, if the kernel's project promises to take that. */
static int checks_run(trial *x)
{
    const kvb_attend_shape *shape = &x->scene.shape;
    /* rows that lie apart are not poisoned here: bytes between them are filled already */
    const bool finite = x->scene.finite || shape->apart;
    const bool others = shape->order == KVB_ORDER_AFTER_LARGER || shape->order == KVB_ORDER_AFTER_SMALLER;
    int error = others ? other_call(x, shape->order == KVB_ORDER_AFTER_LARGER) : 0;
    if (!error && !finite)
        error = hidden_poison(x, x->scene.seen);
    if (error)
        return error;
    kernel_run(x);
    outputs_keep(x, x->before);
    error = has_failed(x) ? 0 : outputs_judge(x, "");
    if (!error && !has_failed(x) && shape->order == KVB_ORDER_REPEATED)
        error = again_check(x);
    if (!error && !has_failed(x) && shape->problem.deterministic)
        error = team_check(x);
    const bool reads_hidden = !error && !finite && x->verdict->check == KVB_CHECK_BOUND;
    kvb_poison_restore(&x->poison);
    if (reads_hidden) { /* is the call right with finite hidden cells? */
        const kvb_call_verdict wrong = *x->verdict;
        x->verdict->check = KVB_CHECK_NONE;
        kernel_run(x);
        error = has_failed(x) ? 0 : outputs_judge(x, "");
        const bool right = x->verdict->check == KVB_CHECK_NONE;
        *x->verdict = wrong;
        if (right) {
            x->verdict->check = KVB_CHECK_POISON;
            snprintf(x->verdict->words, sizeof x->verdict->words, "only with NaN in cells that no query sees: %.270s",
                     wrong.words);
        }
    }
    if (!error && !has_failed(x))
        error = exact_judge(x);
    if (!error && !has_failed(x))
        error = kvb_call_same(&same_ways, x, x->key, x->scene.call.team, x->teams, x->verdict);
    return error || has_failed(x) || finite ? error : query_check(x);
}

/* Makes and judges the call of a shape that the kernel takes. key: for its values and layout. 0 with the verdict;
 * -ENOMEM; -ENOTSUP with why: nothing can judge it. A crash of the kernel ends the process. */
static int kvb_attend_judge(const kvb_kernel *kernel, const kvb_attend_shape *shape, uint64_t key,
                            kvb_call_teams *teams, kvb_call_verdict *verdict, char *why, size_t why_bytes)
{
    const kvb_team *team = kvb_call_team(teams, shape->threads);
    trial *x = calloc(1, sizeof *x);
    *verdict = (kvb_call_verdict){.check = KVB_CHECK_NONE};
    why[0] = '\0';
    if (!x || !team) {
        free(x);
        return -ENOMEM;
    }
    *x = (trial){.kernel = kernel, .verdict = verdict, .teams = teams, .key = key, .why = why, .why_bytes = why_bytes};
    int error = trial_open(x, shape, team, why, why_bytes);
    if (!error)
        error = checks_run(x);
    trial_close(x);
    return error;
}

/* ---- as a subject --------------------------------------------------------------------------------------------- */

static bool subject_fits(const kvb_call_subject *s, const kvb_point *point, char *why, size_t why_bytes)
{
    kvb_attend_shape shape;
    return kvb_attend_shape_of(s->shapes, point, &shape, why, why_bytes) &&
           kvb_attend_takes(s->definition, &shape, why, why_bytes);
}

/* A kernel with scratch for every cell also decodes the cells between rows that lie apart. Each of a head's lies on
 * another memory page. */
#define APART_CELL_NS 1500.0

static double subject_cost(const kvb_call_subject *s, const kvb_point *point)
{
    const kvb_kernel *kernel = s->definition;
    kvb_attend_shape shape;
    char why[256];
    const bool apart = kvb_attend_shape_of(s->shapes, point, &shape, why, sizeof why) && shape.apart &&
                       kvb_attend_takes(kernel, &shape, why, sizeof why);
    const kvb_problem all = kvb_attend_problem(&shape);
    const bool decodes_all =
        apart && kernel->scratch_bytes &&
        kernel->scratch_bytes(&all, shape.threads) >= (size_t)all.n_cells * all.k_dim * sizeof(float);
    return kvb_attend_cost(&shape) + (decodes_all ? APART_CELL_NS * all.n_cells * all.n_kv_heads * 2 : 0);
}

static uint32_t subject_mutes(const kvb_call_subject *s, const kvb_point *point)
{
    return kvb_attend_mutes(s->shapes, point);
}

static int subject_judge(const kvb_call_subject *s, const kvb_point *point, uint64_t seed, kvb_call_teams *teams,
                         kvb_call_verdict *verdict, char *why, size_t why_bytes)
{
    kvb_attend_shape shape;
    if (!kvb_attend_shape_of(s->shapes, point, &shape, why, why_bytes))
        return -EINVAL;
    return kvb_attend_judge(s->definition, &shape, kvb_point_key(s->space, point, seed), teams, verdict, why,
                            why_bytes);
}

kvb_call_subject kvb_attend_subject(const kvb_attend_space *space, const kvb_kernel *kernel)
{
    return (kvb_call_subject){.kernel = kernel->name,
                              .space = &space->space,
                              .definition = kernel,
                              .shapes = space,
                              .fits = subject_fits,
                              .cost = subject_cost,
                              .mutes = subject_mutes,
                              .judge = subject_judge};
}
