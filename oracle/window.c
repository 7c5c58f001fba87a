/* SPDX-License-Identifier: Apache-2.0 */
/* The pools' state, cell by cell and block by block. */
#include "oracle/window.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/solve.h"
#include "workloads/array.h"
#include "workloads/trace.h"

#define NO_TOKEN UINT64_MAX

typedef struct block {
    uint64_t held;    /* bits of its cells that were ever written */
    uint64_t written; /* the side's clock at the last write: the open block with the least is encoded first */
    uint64_t stale;   /* bits of cells that changed since it was solved */
    bool open;        /* its rows are f16 */
    bool solved_open; /* it was open when it was solved */
} block;

/* K or V of a layer. */
typedef struct side {
    const kvb_storages *storages; /* [heads] */
    bool is_v;
    uint32_t layer, heads, dim;
    uint32_t width;     /* cells of a block; 1: each row is stored by itself */
    uint32_t cells;     /* room, in whole blocks */
    uint64_t *token;    /* [cells] identity of the row's token; NO_TOKEN: the cell holds no row */
    bool *own;          /* [cells] `half` is the token's row itself, not decoded from a code */
    float *half;        /* [cells][heads][dim] as the codec takes it; NULL where width is 1 */
    block *blocks;      /* [cells / width] */
    kvb_stored *stored; /* [heads] of [cells] */
    uint64_t clock;
} side;

struct kvb_window {
    side *slots[KVB_TRACE_SLOTS]; /* lists of all sides, saved; NULL: nothing was saved */
    const kvb_oracle_state *state;
    side *sides;             /* [layers][2] K, V; V of latent rows has no heads */
    kvb_opinion_head *heads; /* [layers][most heads] */
    double **k_norm;         /* [layers][most heads] of [cells of K] */
    uint32_t most_heads;
    kvb_token_run *runs; /* cells of the pools that the current query sees */
    uint32_t visible;    /* number of these cells */
    size_t n_runs, room_runs, room_scratch;
    double q[KVB_MODEL_WIDTH];
    double *scratch;       /* of an attention */
    kvb_bound_term *terms; /* [KVB_MODEL_WIDTH] */
    double *o;             /* [KVB_MODEL_WIDTH] */
    double *coding;        /* a codec's scratch, then a block's rows and sizes */
    size_t coding_scratch, coding_block;
    kvb_arena arena; /* of all that kvb_window_open() allocates */
};

/* ---- saving and loading ----------------------------------------------------------------------------------------- */

static void *copy(const void *array, size_t bytes)
{
    void *made = malloc(bytes + 1);
    if (made && bytes)
        memcpy(made, array, bytes);
    return made;
}

static size_t half_floats(const side *s, uint32_t cells)
{
    return s->width > 1 ? (size_t)cells * s->heads * s->dim : 0;
}

static size_t blocks_of(const side *s, uint32_t cells)
{
    return s->width ? cells / s->width : 0;
}

/* Frees the lists from which all else follows. */
static void lists_free(const side *s)
{
    free(s->token);
    free(s->own);
    free(s->half);
    free(s->blocks);
}

static void slot_free(const kvb_window *w, uint32_t number)
{
    for (size_t i = 0; w->slots[number] && i < 2 * (size_t)w->state->model->n_layers; i++)
        lists_free(&w->slots[number][i]);
    free(w->slots[number]);
}

int kvb_window_save(kvb_window *w, uint32_t number)
{
    const size_t n = 2 * (size_t)w->state->model->n_layers;
    side *slot = calloc(n, sizeof *slot);
    if (!slot)
        return -ENOMEM;
    slot_free(w, number);
    w->slots[number] = slot;
    for (size_t i = 0; i < n; i++) {
        const side *s = &w->sides[i];
        slot[i] = (side){.cells = s->cells,
                         .token = copy(s->token, s->cells * sizeof *s->token),
                         .own = copy(s->own, s->cells * sizeof *s->own),
                         .half = copy(s->half, half_floats(s, s->cells) * sizeof *s->half),
                         .blocks = copy(s->blocks, blocks_of(s, s->cells) * sizeof *s->blocks),
                         .clock = s->clock};
        if (!slot[i].token || !slot[i].own || !slot[i].half || !slot[i].blocks)
            return -ENOMEM;
    }
    return 0;
}

void kvb_window_load(kvb_window *w, uint32_t number)
{
    for (size_t i = 0; i < 2 * (size_t)w->state->model->n_layers; i++) {
        side *s = &w->sides[i];
        const side *kept = &w->slots[number][i];
        if (!s->cells)
            continue;
        memcpy(s->token, kept->token, kept->cells * sizeof *s->token);
        memcpy(s->own, kept->own, kept->cells * sizeof *s->own);
        if (s->width > 1)
            memcpy(s->half, kept->half, half_floats(s, kept->cells) * sizeof *s->half);
        for (uint32_t c = kept->cells; c < s->cells; c++) /* room has grown since */
            s->token[c] = NO_TOKEN, s->own[c] = false;
        memset(s->blocks, 0, blocks_of(s, s->cells) * sizeof *s->blocks);
        memcpy(s->blocks, kept->blocks, blocks_of(s, kept->cells) * sizeof *s->blocks);
        for (size_t b = 0; b < blocks_of(s, s->cells); b++)
            s->blocks[b].stale = UINT64_MAX;
        s->clock = kept->clock;
    }
}

#define ALL UINT64_MAX

static const kvb_storage *storage_of(const side *s, uint32_t head)
{
    return s->is_v ? &s->storages[head].v : &s->storages[head].k;
}

static float *half_of(const side *s, uint32_t cell, uint32_t head)
{
    return s->half + ((size_t)cell * s->heads + head) * s->dim;
}

static const float *row_of(const kvb_window *w, const side *s, uint64_t token, uint32_t head)
{
    return kvb_values_rows(w->state->values, s->is_v ? KVB_ROWS_V : KVB_ROWS_K, s->layer, token) +
           (size_t)head * s->dim;
}

/* ---- stored rows ------------------------------------------------------------------------------------------------ */

/* A block's rows and sizes [width][dim] at one head. */
static double *rows_of(const kvb_window *w)
{
    return w->coding + w->coding_scratch;
}

static double *sizes_of(const kvb_window *w, const side *s)
{
    return rows_of(w) + (size_t)s->width * s->dim;
}

/* Encodes a block's rows of a head, and decodes them into rows_of() and sizes_of(), still transformed. */
static void block_code(const kvb_window *w, const side *s, uint32_t b, uint32_t head)
{
    float *turned = (void *)w->coding;
    double *rows = rows_of(w), *sizes = sizes_of(w, s);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->width; i++)
        if (s->blocks[b].held >> i & 1)
            memcpy(turned + (size_t)n++ * s->dim, half_of(s, b * s->width + i, head), s->dim * sizeof *turned);
    kvb_storage_code(storage_of(s, head), n, w->coding, rows, sizes);
    for (uint32_t i = s->width; i-- > 0;) /* to their cells */
        if (s->blocks[b].held >> i & 1) {
            memmove(rows + i * s->dim, rows + --n * s->dim, s->dim * sizeof *rows);
            memmove(sizes + i * s->dim, sizes + n * s->dim, s->dim * sizeof *sizes);
        }
}

/* The same for some cells of an open block, whose rows are f16. */
static void block_read(const kvb_window *w, const side *s, uint32_t b, uint32_t head, uint64_t cells)
{
    double *rows = rows_of(w), *sizes = sizes_of(w, s);
    for (uint32_t i = 0; i < s->width; i++)
        for (uint32_t c = 0; cells >> i & 1 && c < s->dim; c++) {
            rows[i * s->dim + c] = (double)half_of(s, b * s->width + i, head)[c];
            sizes[i * s->dim + c] = fabs(rows[i * s->dim + c]);
        }
}

/* Brings `stored` up to date for a block, and the facts for second opinions. In a block that stays open only stale rows
 * are solved: f16 rows do not depend on each other. */
static void block_solve(kvb_window *w, side *s, uint32_t b)
{
    const kvb_group *g = kvb_model_group(w->state->model, s->layer);
    block *of = &s->blocks[b];
    uint64_t cells = of->open && of->solved_open ? of->stale : ALL;
    for (uint32_t h = 0; h < s->heads; h++) {
        size_t place = (size_t)s->layer * w->most_heads + h;
        if (s->width == 1) {
            const float *row = row_of(w, s, s->token[b], h);
            kvb_stored_put(&s->stored[h], storage_of(s, h), b, &row, 1, w->coding);
        } else if (of->open) {
            block_read(w, s, b, h, cells & of->held);
        } else {
            block_code(w, s, b, h);
        }
        for (uint32_t i = 0; i < s->width; i++) {
            uint32_t cell = b * s->width + i;
            if (s->token[cell] == NO_TOKEN || !(cells >> i & 1))
                continue;
            if (s->width > 1)
                kvb_stored_take(&s->stored[h], storage_of(s, h), cell, rows_of(w) + i * s->dim,
                                sizes_of(w, s) + i * s->dim);
            if (!s->is_v)
                w->k_norm[place][cell] = kvb_opinion_take_k(&w->heads[place], &s->stored[h], cell);
            if (s->is_v || g->latent)
                kvb_opinion_take_v(&w->heads[place], &s->stored[h], cell, g->v_dim);
        }
    }
    of->stale = 0;
    of->solved_open = of->open;
}

/* ---- writes and moves ------------------------------------------------------------------------------------------- */

static bool items_grow(void *array, size_t n, size_t bytes)
{
    void *old;
    memcpy(&old, array, sizeof old);
    void *grown = realloc(old, n * bytes);
    if (grown)
        memcpy(array, &grown, sizeof grown);
    return grown;
}

/* Makes room for a cell. If room grows, all blocks become stale. */
static int room_make(kvb_window *w, side *s, uint32_t cell)
{
    if (cell < s->cells)
        return 0;
    uint32_t n = ((cell < 128 ? 256 : 2 * cell) / s->width + 1) * s->width;
    bool grown = items_grow(&s->token, n, sizeof *s->token) && items_grow(&s->own, n, sizeof *s->own) &&
                 items_grow(&s->blocks, n / s->width, sizeof *s->blocks) &&
                 (s->width == 1 || items_grow(&s->half, (size_t)n * s->heads * s->dim, sizeof *s->half));
    for (uint32_t h = 0; h < s->heads && grown; h++) {
        kvb_stored_close(&s->stored[h]);
        grown = !kvb_stored_open(&s->stored[h], storage_of(s, h), n) &&
                (s->is_v || items_grow(&w->k_norm[(size_t)s->layer * w->most_heads + h], n, sizeof **w->k_norm));
    }
    if (!grown)
        return -ENOMEM;
    memset(s->blocks + s->cells / s->width, 0, (n - s->cells) / s->width * sizeof *s->blocks);
    for (uint32_t c = s->cells; c < n; c++)
        s->token[c] = NO_TOKEN, s->own[c] = false;
    for (uint32_t b = 0; b < n / s->width; b++)
        s->blocks[b].stale = ALL;
    s->cells = n;
    return 0;
}

/* Rounds a decoded row to f16. A number too large becomes the largest f16, not infinity. */
static void half_again(const double *row, uint32_t dim, float *half)
{
    for (uint32_t c = 0; c < dim; c++) {
        uint16_t bits = kvb_codec_code(KVB_F16, (float)row[c]);
        half[c] = (float)kvb_codec_value(KVB_F16, (uint16_t)(bits - ((bits & 0x7fff) == 0x7c00)));
    }
}

/* A block becomes the last one written and is f16 from now on. If it was encoded, rows outside `cells` are decoded. */
static void block_open(const kvb_window *w, side *s, uint32_t b, uint64_t cells)
{
    block *of = &s->blocks[b], *oldest = NULL;
    uint64_t others = of->open ? 0 : of->held & ~cells;
    uint32_t open = 0;
    for (block *i = s->blocks; !of->open && i < s->blocks + s->cells / s->width; i++) {
        open += i->open;
        if (i->open && (!oldest || i->written < oldest->written))
            oldest = i;
    }
    if (oldest && open == storage_of(s, 0)->format->residual_blocks)
        oldest->open = false;
    for (uint32_t h = 0; others && h < s->heads; h++) {
        block_code(w, s, b, h);
        for (uint32_t i = 0; i < s->width; i++)
            if (others >> i & 1)
                half_again(rows_of(w) + i * s->dim, s->dim, half_of(s, b * s->width + i, h));
    }
    for (uint32_t i = 0; others && i < s->width; i++)
        s->own[b * s->width + i] &= !(others >> i & 1);
    of->stale |= others;
    of->held |= cells;
    of->open = true;
    of->written = ++s->clock;
}

int kvb_window_write(kvb_window *w, uint32_t layer, bool is_v, const uint32_t *cells, uint32_t n,
                     const uint64_t *tokens)
{
    side *s = &w->sides[2 * (size_t)layer + is_v];
    for (uint32_t i = 0, end; i < n; i = end) {
        uint32_t b = cells[i] / s->width;
        uint64_t of_block = 0;
        int error = room_make(w, s, cells[i]);
        if (error)
            return error;
        for (end = i; end < n && cells[end] / s->width == b; end++)
            of_block |= UINT64_C(1) << cells[end] % s->width;
        if (s->width > 1)
            block_open(w, s, b, of_block);
        for (uint32_t c; i < end; i++) {
            c = cells[i];
            if (s->token[c] == tokens[i] && s->own[c])
                continue; /* it is there */
            s->token[c] = tokens[i];
            s->own[c] = true;
            s->blocks[b].stale |= UINT64_C(1) << c % s->width;
            for (uint32_t h = 0; s->width > 1 && h < s->heads; h++)
                kvb_storage_turn(storage_of(s, h), row_of(w, s, tokens[i], h), half_of(s, c, h));
        }
    }
    return 0;
}

/* An encoded block from which rows are moved: its rows, decoded to f16, [width][heads][dim]. */
typedef struct source {
    float *half;
    uint32_t block; /* UINT32_MAX: none */
} source;

static const float *source_row(const kvb_window *w, const side *s, uint32_t cell, source *from)
{
    const uint32_t b = cell / s->width;
    for (uint32_t h = 0; from->block != b && h < s->heads; h++) {
        block_code(w, s, b, h);
        for (uint32_t i = 0; i < s->width; i++)
            if (s->blocks[b].held >> i & 1)
                half_again(rows_of(w) + i * s->dim, s->dim, from->half + ((size_t)i * s->heads + h) * s->dim);
    }
    from->block = b;
    return from->half + (size_t)(cell % s->width) * s->heads * s->dim;
}

/* Moves a row as its f16, or as f16 decoded from its code. */
static void row_move(const kvb_window *w, side *s, uint32_t to, uint32_t from, source *closed)
{
    bool open = s->blocks[from / s->width].open, own = open && s->own[from];
    const float *row = open ? half_of(s, from, 0) : source_row(w, s, from, closed);
    block_open(w, s, to / s->width, UINT64_C(1) << to % s->width);
    memcpy(half_of(s, to, 0), row, (size_t)s->heads * s->dim * sizeof *row);
    s->own[to] = own;
    if (closed->block == to / s->width)
        closed->block = UINT32_MAX;
}

int kvb_window_move(kvb_window *w, uint32_t layer, bool is_v, uint32_t base, const uint32_t *cells, uint32_t n)
{
    side *s = &w->sides[2 * (size_t)layer + is_v];
    source closed = {malloc((size_t)s->width * s->heads * s->dim * sizeof *closed.half), UINT32_MAX};
    int error = closed.half ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n && !error; i++) {
        uint32_t from = cells[i], to = base + i;
        if (from == to || from >= s->cells || s->token[from] == NO_TOKEN)
            continue;
        error = room_make(w, s, to);
        if (error)
            break;
        if (s->width > 1)
            row_move(w, s, to, from, &closed);
        else
            s->own[to] = true;
        s->token[to] = s->token[from];
        s->blocks[to / s->width].stale |= UINT64_C(1) << to % s->width;
    }
    free(closed.half);
    return error;
}

/* ---- attention -------------------------------------------------------------------------------------------------- */

/* The cells that a query sees, as runs. */
static int runs_take(kvb_window *w, const kvb_attend_of *of)
{
    uint32_t cursor = 0;
    w->n_runs = 0;
    w->visible = 0;
    for (kvb_run run; kvb_mask_next(of->mask, of->n_tok, of->n_cells, of->query, &cursor, &run);) {
        if (kvb_array_reserve(&w->runs, &w->room_runs, w->n_runs + 1, sizeof *w->runs))
            return -ENOMEM;
        w->runs[w->n_runs++] = (kvb_token_run){run.begin, run.end};
        w->visible += run.end - run.begin;
    }
    return 0;
}

/* Brings the rows in the cells of the runs up to date. -EILSEQ: one of them holds none. */
static int runs_solve(kvb_window *w, side *s)
{
    for (size_t r = 0; r < w->n_runs && s->heads; r++)
        for (uint32_t c = w->runs[r].begin; c < w->runs[r].end; c++) {
            if (c >= s->cells || s->token[c] == NO_TOKEN)
                return -EILSEQ;
            const block *b = &s->blocks[c / s->width];
            if (b->stale || b->solved_open != b->open)
                block_solve(w, s, c / s->width);
        }
    return 0;
}

int kvb_window_look(kvb_window *w, uint32_t layer, const kvb_attend_of *of)
{
    const kvb_group *g = kvb_model_group(w->state->model, layer);
    int error = runs_take(w, of);
    for (int v = 0; v < 2 && !error; v++)
        error = runs_solve(w, &w->sides[2 * (size_t)layer + v]);
    size_t room = kvb_attention_scratch(w->visible, g->v_dim);
    return error ? error : kvb_array_reserve(&w->scratch, &w->room_scratch, room, sizeof *w->scratch);
}

/* The attention of a row of the current query, without sums. */
static kvb_attention attention_of(kvb_window *w, const kvb_expect *expect)
{
    const kvb_group *g = kvb_model_group(w->state->model, expect->layer);
    const side *s = &w->sides[2 * (size_t)expect->layer];
    uint32_t head = expect->head / (g->heads / g->kv_heads);
    kvb_attention attention = kvb_state_attention(w->state, expect, w->q);
    kvb_state_take(w->state, expect, &s[0].stored[head], false, s[1].heads ? &s[1].stored[head] : NULL, false,
                   &attention);
    attention.runs = w->runs;
    attention.n_runs = w->n_runs;
    attention.visible = w->visible;
    return attention;
}

int kvb_window_solve(kvb_window *w, const kvb_expect *expect, const kvb_attend_of *of, kvb_expect *actual)
{
    int error = kvb_window_look(w, expect->layer, of);
    if (!error && w->visible != expect->visible)
        error = -EILSEQ;
    if (error)
        return error;
    kvb_attention attention = attention_of(w, expect);
    *actual = *expect;
    actual->terms = w->terms;
    kvb_attention_solve(&attention, w->scratch, &actual->row, &actual->lse, w->terms);
    return 0;
}

const kvb_opinion_head *kvb_window_opinion(kvb_window *w, const kvb_expect *expect, kvb_opinion_row *row)
{
    const kvb_group *g = kvb_model_group(w->state->model, expect->layer);
    size_t place = (size_t)expect->layer * w->most_heads + expect->head / (g->heads / g->kv_heads);
    *row = (kvb_opinion_row){.expect = *expect, .o = w->o};
    row->expect.visible = w->visible;
    kvb_attention_row one = {.a = attention_of(w, expect),
                             .scratch = w->scratch,
                             .row = &row->expect.row,
                             .lse = &row->expect.lse,
                             .o = w->o};
    kvb_opinion_solve(&one, 1, &w->heads[place], w->k_norm[place]);
    return &w->heads[place];
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static void layer_open(kvb_window *w, uint32_t layer)
{
    const kvb_group *g = kvb_model_group(w->state->model, layer);
    const kvb_storages *storages = w->state->storages[layer];
    for (int v = 0; v < (g->latent ? 1 : 2); v++) {
        side *s = &w->sides[2 * (size_t)layer + v];
        *s = (side){.storages = storages, .is_v = v, .layer = layer, .heads = g->kv_heads};
        const kvb_storage *store = storage_of(s, 0);
        s->dim = store->dim;
        s->width = store->codec && store->format->residual_cells ? store->format->residual_cells : 1;
        s->stored = kvb_arena_take(&w->arena, s->heads, sizeof *s->stored);
        size_t scratch = kvb_stored_scratch(store), rows = 2 * (size_t)s->width * s->dim;
        w->coding_scratch = w->coding_scratch > scratch ? w->coding_scratch : scratch;
        w->coding_block = w->coding_block > rows ? w->coding_block : rows;
    }
    for (uint32_t h = 0; h < g->kv_heads; h++)
        kvb_opinion_head_open(&w->heads[(size_t)layer * w->most_heads + h], g->v_dim, &w->arena);
}

int kvb_window_open(const kvb_oracle *oracle, kvb_window **window)
{
    const kvb_model *m = oracle->state->model;
    kvb_window *w = calloc(1, sizeof *w);
    *window = w;
    if (!w)
        return -ENOMEM;
    w->state = oracle->state;
    for (uint32_t g = 0; g < m->n_groups; g++)
        w->most_heads = w->most_heads > m->groups[g].kv_heads ? w->most_heads : m->groups[g].kv_heads;
    size_t heads = (size_t)m->n_layers * w->most_heads;
    w->sides = kvb_arena_take(&w->arena, 2 * (size_t)m->n_layers, sizeof *w->sides);
    w->heads = kvb_arena_take(&w->arena, heads, sizeof *w->heads);
    w->k_norm = kvb_arena_take(&w->arena, heads, sizeof *w->k_norm);
    w->terms = kvb_arena_take(&w->arena, KVB_MODEL_WIDTH, sizeof *w->terms);
    w->o = kvb_arena_take(&w->arena, KVB_MODEL_WIDTH, sizeof *w->o);
    for (uint32_t layer = 0; layer < m->n_layers && !w->arena.failed; layer++)
        if (!kvb_group_scans(kvb_model_group(m, layer)))
            layer_open(w, layer);
    w->coding = kvb_arena_take(&w->arena, w->coding_scratch + w->coding_block + 1, sizeof *w->coding);
    return w->arena.failed ? -ENOMEM : 0;
}

void kvb_window_free(kvb_window *w)
{
    if (!w)
        return;
    for (size_t i = 0; w->sides && i < 2 * (size_t)w->state->model->n_layers; i++) {
        side *s = &w->sides[i];
        for (uint32_t h = 0; s->stored && h < s->heads; h++)
            kvb_stored_close(&s->stored[h]);
        lists_free(s);
    }
    for (size_t i = 0; w->k_norm && i < (size_t)w->state->model->n_layers * w->most_heads; i++)
        free(w->k_norm[i]);
    for (uint32_t i = 0; i < KVB_TRACE_SLOTS; i++)
        slot_free(w, i);
    kvb_arena_free(&w->arena);
    free(w->runs);
    free(w->scratch);
    free(w);
}
