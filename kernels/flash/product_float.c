/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel `flash`: products of floats. Few query rows meet stored rows where they lie, or rows of other formats as
 * floats in a tile, some cells at a time. For many query rows the block is packed.
 */
#include "kernels/flash/flash.h"

#include "kernels/convert.h"
#include "kernels/kernels.h"

#include <string.h>

#define FEW_ROWS    10u   /* up to here dots() and sums() win over packing */
#define MANY_CELLS  2048u /* from here on rows of q are copied side by side, else they push each other out of cache */
#define TILE_CELLS  16u   /* cells of a tile for few rows: they stay in the first-level cache until they are used */
#define PACKED_ROWS 12u   /* query rows between two bursts of prefetching: a multiple of what product() takes at once */

/* Roughly the cycles for rows of 128 f16 channels. Work is split by these costs, so their ratios are what matters. */
static uint32_t float_cost(uint32_t rows, uint32_t cells)
{
    return rows <= FEW_ROWS ? cells * (40 + 13 * rows) : cells * 40 + rows * (BLOCK / 2 + cells) * 5;
}

/*
 * The chain of a sum over cells counts the cells of a block, then an addition for each quarter of a block (a tile), then
 * one for each part of a split unit. A block of cells that waited may be half empty: so it counts BLOCK / 2 cells. Groups
 * of 16 cells fit in, too: two of them have at least 17 cells.
 */
void kvb_float_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){
        .accumulator = KVB_F32,
        .dot_chain = p->k_dim,
        .cell_chain =
            (p->n_cells < BLOCK ? p->n_cells : BLOCK) + 4 * (p->n_cells / (BLOCK / 2) + 1) + FIXED_PARTS + p->has_sinks,
        .exp_error = WEIGHT_ERROR,
        .exp_floor = WEIGHT_FLOOR,
    };
    kvb_arithmetic_add_decoding(p, a);
}

/* ---- query rows and scratch -------------------------------------------------------------------------------------- */

size_t kvb_float_query_bytes(const kvb_problem *p)
{
    return kvb_padded(p->k_dim) * sizeof(float);
}

bool kvb_float_query_stays(const kvb_flash *f)
{
    const kvb_problem *p = &f->args->problem;
    const bool few = (uint64_t)p->n_tok * f->plan.group <= FEW_ROWS || p->n_cells < MANY_CELLS;
    return few && !f->k.transform && !f->k.head_scaled && f->k.width == p->k_dim;
}

const float *kvb_float_query(const kvb_flash *f, uint32_t h, const float *q, float *to)
{
    const uint32_t dim = f->args->problem.k_dim;
    if (f->query_stays && (uintptr_t)q % 64 == 0)
        return q;
    memcpy(to, q, dim * sizeof *q);
    memset(to + dim, 0, (f->k.width - dim) * sizeof *q);
    if (f->k.transform)
        f->loops->vector->hadamard(f->k.transform, dim, false, to);
    if (f->k.head_scaled)
        f->loops->vector->rescale(to, to, f->k.width, kvb_side_factor(&f->k, h));
    return to;
}

static const void *float_query(const kvb_flash *f, uint32_t h, const float *q, void *encoded)
{
    return kvb_float_query(f, h, q, encoded);
}

static size_t tile_bytes(const kvb_format *format, uint32_t dim)
{
    return kvb_side_tiled(format, dim) ? (size_t)BLOCK * kvb_padded(dim) * sizeof(float) : 0;
}

size_t kvb_float_v_tile(const kvb_problem *p)
{
    return p->v_in_k ? 0 : tile_bytes(p->k_format, p->k_dim);
}

size_t kvb_float_tiles_bytes(const kvb_problem *p)
{
    return tile_bytes(p->k_format, p->k_dim) + (p->v_in_k ? 0 : tile_bytes(p->v_format, p->v_dim));
}

/* The tiles, and behind them the packed block. */
static size_t scratch_bytes_of_product(const kvb_problem *p)
{
    const uint32_t k = kvb_padded(p->k_dim), v = kvb_v_width(p);
    return kvb_float_tiles_bytes(p) + (size_t)BLOCK * (k > v ? k : v) * sizeof(float);
}

static float *scratch_at(const kvb_workspace *w, size_t at)
{
    return (float *)(void *)(w->scratch + at);
}

/* Cells first .. end - 1 of a group: from the first to the last that some rows see. At the edges of a mask these are
 * part of the block. */
typedef struct cells_seen {
    uint32_t first, end;
} cells_seen;

static cells_seen rows_see(const kvb_row_group *g, uint32_t r, uint32_t n)
{
    uint64_t any = 0;
    for (uint32_t i = r; i < r + n; i++)
        any |= g->visible[i];
    if (!any)
        return (cells_seen){0, 0};
    return (cells_seen){(uint32_t)__builtin_ctzll(any), least(BLOCK - (uint32_t)__builtin_clzll(any), g->n_cells)};
}

/* ---- few query rows ---------------------------------------------------------------------------------------------- */

/* Cells that are converted at a time: all if V lies in K's rows, as sums() uses the tile of scores(). */
static uint32_t tile_cells(const kvb_flash *f)
{
    return f->args->problem.v_in_k ? BLOCK : TILE_CELLS;
}

/* Scores, or sums, of cells c .. c + rows->n - 1. */
typedef void rows_multiply(const kvb_flash *f, const kvb_workspace *w, const kvb_row_group *g,
                           const kvb_stored_rows *rows, uint32_t c);

static void keys_dot(const kvb_flash *f, const kvb_workspace *w, const kvb_row_group *g, const kvb_stored_rows *keys,
                     uint32_t c)
{
    for (uint32_t r = 0; r < g->n_rows; r += DOTS_ROWS)
        f->loops->vector->dots(keys, g->query + r, least(DOTS_ROWS, g->n_rows - r), w->scores + r * BLOCK + c);
}

static void values_sum(const kvb_flash *f, const kvb_workspace *w, const kvb_row_group *g,
                       const kvb_stored_rows *values, uint32_t c)
{
    for (uint32_t r = 0; r < g->n_rows; r += DOTS_ROWS)
        f->loops->vector->sums(values, w->scores + r * BLOCK + c, least(DOTS_ROWS, g->n_rows - r), g->sums + r);
}

/* Multiplies K's rows, or the values, where they lie or as floats in a tile. Where V lies in K's rows, scores() has
 * found them. */
static inline void few_multiply(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g, bool values,
                                rows_multiply *multiply)
{
    const kvb_problem *p = &f->args->problem;
    const kvb_side *side = values ? &f->v : &f->k;
    const bool found = values && p->v_in_k;
    const void **at = values && !found ? g->value : g->key;

    if (side->in_place) {
        const kvb_stored_rows rows = kvb_side_rows(f, side, g, at, found);
        multiply(f, w, g, &rows, 0);
        return;
    }
    const uint32_t step = tile_cells(f), steps = (g->n_cells + step - 1) / step;
    kvb_lookahead next = kvb_group_lookahead(f, side, g);
    kvb_stored_rows rows = {.elem = KVB_F32, .dim = side->width};
    for (uint32_t c = 0; c < g->n_cells; c += step) {
        rows.n = least(step, g->n_cells - c);
        rows.at = at + c;
        if (!found)
            kvb_rows_in_tile(side, g, c, rows.n, scratch_at(w, values ? kvb_float_v_tile(p) : 0), at + c);
        kvb_lookahead_until(&next, c / step + 1, steps);
        multiply(f, w, g, &rows, c);
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

static void packed_scores(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    const kvb_vector *vector = f->loops->vector;
    const kvb_side *k = &f->k;
    const bool in_place = k->in_place && !k->load;
    const uint32_t panels = (g->n_rows + PACKED_ROWS - 1) / PACKED_ROWS;
    kvb_lookahead next = kvb_group_lookahead(f, k, g);
    float *packed = scratch_at(w, kvb_float_tiles_bytes(&f->args->problem)), *scores[PACKED_ROWS];
    const float *q[PACKED_ROWS];

    if (in_place)
        kvb_rows_in_place(f, k, g, g->key);
    else
        kvb_rows_in_tile(k, g, 0, g->n_cells, scratch_at(w, 0), g->key);
    vector->pack_keys(in_place ? k->elem : KVB_F32, g->key, g->n_cells, k->width, packed);
    for (uint32_t i = 0, r = 0; i < panels; i++, r += PACKED_ROWS) {
        const uint32_t n = least(PACKED_ROWS, g->n_rows - r);
        const cells_seen seen = rows_see(g, r, n);
        const uint32_t first = seen.first / 16 * 16, end = kvb_padded(seen.end);
        for (uint32_t j = 0; j < n; j++) {
            q[j] = g->query[r + j];
            scores[j] = w->scores + (size_t)(r + j) * BLOCK + first;
        }
        kvb_lookahead_until(&next, i + 1, panels);
        vector->product(n, k->width, end - first, q, packed + first, BLOCK, scores, false);
    }
}

static void float_scores(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    if (g->n_rows <= FEW_ROWS)
        few_multiply(f, w, g, false, keys_dot);
    else
        packed_scores(f, w, g);
}

/* ---- sums. Where V lies in K's rows, scores() has found them ----------------------------------------------------- */

/* Do the rows, from `first` on, lie as pack_values() would leave them? */
static bool lies_packed(const kvb_side *v, const kvb_row_group *g, const void *first)
{
    return g->neighbours && v->in_place && v->elem == KVB_F32 && v->view->cell_stride == v->width * sizeof(float) &&
           (uintptr_t)first % 64 == 0;
}

static void packed_sums(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    const kvb_problem *p = &f->args->problem;
    const kvb_vector *vector = f->loops->vector;
    const kvb_side *v = &f->v;
    const void **at = p->v_in_k ? g->key : g->value;
    const bool in_place = v->in_place && !v->load;
    const uint32_t panels = (g->n_rows + PACKED_ROWS - 1) / PACKED_ROWS;
    kvb_lookahead next = kvb_group_lookahead(f, v, g);
    float *scratch = scratch_at(w, kvb_float_tiles_bytes(p));
    const float *packed = scratch, *weights[PACKED_ROWS];

    if (in_place && !p->v_in_k)
        kvb_rows_in_place(f, v, g, at);
    if (!in_place && !p->v_in_k)
        kvb_rows_in_tile(v, g, 0, g->n_cells, scratch_at(w, kvb_float_v_tile(p)), at);
    if (lies_packed(v, g, at[0]))
        packed = at[0];
    else
        vector->pack_values(in_place ? v->elem : KVB_F32, at, g->n_cells, v->width, scratch);
    for (uint32_t i = 0, r = 0; i < panels; i++, r += PACKED_ROWS) {
        const uint32_t n = least(PACKED_ROWS, g->n_rows - r);
        const cells_seen seen = rows_see(g, r, n);
        for (uint32_t j = 0; j < n; j++)
            weights[j] = w->scores + (size_t)(r + j) * BLOCK + seen.first;
        kvb_lookahead_until(&next, i + 1, panels);
        vector->product(n, seen.end - seen.first, v->width, weights, packed + (size_t)seen.first * v->width, v->width,
                        g->sums + r, true);
    }
}

static void float_sums(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    if (g->n_rows <= FEW_ROWS)
        few_multiply(f, w, g, true, values_sum);
    else
        packed_sums(f, w, g);
}

/* ---- scores of a turn beside sums of the one before -------------------------------------------------------------- */

static bool float_fits_beside(const kvb_flash *f, const kvb_row_group *g)
{
    const kvb_side *k = &f->k, *v = &f->v;
    return kvb_beside_takes(g->n_rows) && g->n_cells % BESIDE_CELLS == 0 && k->in_place && v->in_place && !k->load &&
           !v->load && k->elem == v->elem && k->width == BESIDE_DIM && v->width == BESIDE_DIM &&
           !f->args->problem.v_in_k;
}

static void float_beside(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g, const kvb_late_sums *late)
{
    const kvb_vector *vector = f->loops->vector;
    const kvb_stored_rows values = {
        .elem = f->v.elem, .at = late->value, .n = late->n_cells, .dim = BESIDE_DIM, .ahead = late->ahead};
    if (!g) {
        vector->sums(&values, w->scores, late->n_rows, late->sums);
        return;
    }
    const kvb_stored_rows keys = kvb_side_rows(f, &f->k, g, g->key, false);
    vector->beside(&keys, g->query, w->scores, &values, w->scores, g->n_rows, late->sums);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

const kvb_product kvb_product_float = {
    .loops = offsetof(kvb_loops, vector),
    .query_bytes = kvb_float_query_bytes,
    .scratch_bytes = scratch_bytes_of_product,
    .query = float_query,
    .scores = float_scores,
    .sums = float_sums,
    .fits_beside = float_fits_beside,
    .beside = float_beside,
    .cost = float_cost,
};

/* ---- the order of additions -------------------------------------------------------------------------------------- */

/* By level: lanes of dots() and of weigh(). Levels that are not listed declare no order. */
static const struct {
    kvb_sum_lanes dots, weights;
} orders[KVB_CPU_LEVELS] = {
    [KVB_CPU_PORTABLE] = {{4, {2, 1}}, {4, {2, 1}}},
#if defined(__x86_64__)
    [KVB_CPU_AVX2] = {{8, {1, 2, 4}}, {8, {4, 2, 1}}},
    [KVB_CPU_AVXVNNI] = {{8, {1, 2, 4}}, {8, {4, 2, 1}}},
    [KVB_CPU_AVX512] = {{16, {2, 1, 8, 4}}, {16, {8, 4, 2, 1}}},
    [KVB_CPU_AVX512VNNI] = {{16, {2, 1, 8, 4}}, {16, {8, 4, 2, 1}}},
    [KVB_CPU_AMX] = {{16, {2, 1, 8, 4}}, {16, {8, 4, 2, 1}}},
#endif
};

static void group_note(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    const kvb_noting *noting = (const kvb_noting *)(const void *)f->product;
    const bool few = g->n_rows <= FEW_ROWS;
    const uint32_t first = f->front ? kvb_view_front_cells(&f->args->k) : 0;
    kvb_order_tile tile = {.cells = g->n_cells,
                           .dot = few ? orders[kvb_vector_level(f->loops->vector)].dots : (kvb_sum_lanes){.n = 1},
                           .v_cells = few && !f->v.in_place ? tile_cells(f) : BLOCK,
                           .part = noting->part};
    memset(w->scores, 0, (size_t)g->n_rows * BLOCK * sizeof *w->scores);
    for (uint32_t r = 0; r < g->n_rows; r++) {
        uint32_t cells[BLOCK];
        for (uint32_t i = 0; i < g->n_cells; i++)
            cells[i] = g->visible[r] >> i & 1 ? first + g->cell[i] : KVB_CELL_NONE;
        if (g->row[r] == noting->row) {
            noting->take(noting->ctx, &tile, cells);
            ((kvb_noting *)(uintptr_t)noting)->part = false;
        }
    }
}

static void nothing_sum(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g)
{
    (void)f, (void)w, (void)g;
}

static void beside_note(const kvb_flash *f, const kvb_workspace *w, kvb_row_group *g, const kvb_late_sums *late)
{
    (void)late;
    if (g)
        group_note(f, w, g);
}

static void tiles(const kvb_attend *args, uint32_t row, kvb_tile_take *take, void *ctx)
{
    kvb_noting noting = {.product = kvb_product_float, .take = take, .ctx = ctx};
    noting.product.scores = group_note;
    noting.product.sums = nothing_sum;
    noting.product.beside = beside_note;
    kvb_flash_tiles(&noting, args, row);
}

/* 2^x for x <= 8, computed by weigh(): the weight of a score x with a maximum of 0. */
static float power(float x)
{
    _Alignas(64) float scores[BLOCK] = {x};
    kvb_row_state state = {.max = 0}, *const states = &state;
    const uint64_t visible = 1;
    float earlier;
    kvb_vector_at(kvb_cpu())->weigh((kvb_logits){.scale = 1}, scores, 1, 1, &visible, &states, &earlier);
    return scores[0];
}

static bool order(const kvb_attend *args, kvb_order *order)
{
    const kvb_cpu_level level = kvb_vector_level(kvb_vector_at(kvb_cpu()));
    *order = (kvb_order){.softmax = KVB_SOFTMAX_POWERS,
                         .fused = level != KVB_CPU_PORTABLE,
                         .weights = orders[level].weights,
                         .exp = power,
                         .tiles = tiles};
    return orders[level].dots.n && args->problem.softcap == 0;
}

KVB_FLASH_KERNEL(flash, float, .name = "flash", .summary = "one pass, each row read once for all queries that see it",
                 .arithmetic = kvb_float_arithmetic, .order = order);
