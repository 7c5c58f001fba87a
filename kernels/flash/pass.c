/* SPDX-License-Identifier: Apache-2.0 */
/* The loop over blocks. Rows that meet the same cells form a group: scores, weights, sums. */
#include "kernels/flash/pass.h"
#include "kernels/convert.h"

#include <math.h>
#include <string.h>

#define FEW_ROWS  10u  /* up to here dots() and sums() win over packing */
#define PLACES    16u  /* that more rows read by turns: see kernels/prefetch.h */
#define RUN_BYTES 512u /* fewer places where a run would be shorter than this */

#define PACKED_ROWS 12u /* multiplied between two looks ahead: a multiple of what product() keeps in registers */

/* About cycles for rows of 128 f16 channels: kernels/NOTES.md. */
static uint32_t cost_of_floats(uint32_t rows, uint32_t cells)
{
    return rows <= FEW_ROWS ? cells * (40 + 13 * rows) : cells * 40 + rows * (BLOCK + cells) * 5;
}

static uint32_t cost_of_integers(uint32_t rows, uint32_t cells)
{
    return cells * 30 + rows * kvb_padded(cells) * 4;
}

static uint32_t cost_of_bf16(uint32_t rows, uint32_t cells)
{
    return cells * 30 + rows * kvb_padded(cells) * 6;
}

static uint32_t cost_of_halves(uint32_t rows, uint32_t cells)
{
    return cells * (15 + 9 * rows);
}

kvb_group_cost *const kvb_flash_costs[] = {
    [KVB_PRODUCTS_FLOAT] = cost_of_floats,
    [KVB_PRODUCTS_INT8] = cost_of_integers,
    [KVB_PRODUCTS_BF16] = cost_of_bf16,
    [KVB_PRODUCTS_HALF] = cost_of_halves,
};

void kvb_flash_queries(const kvb_flash *flash, uint32_t kv_head, uint32_t tile, const kvb_workspace *w)
{
    const kvb_problem *p = &flash->args->problem;
    uint32_t group = flash->plan.group, tok = kvb_plan_tok(&flash->plan, tile);
    uint32_t rows = kvb_plan_toks(&flash->plan, tile) * group;
    float factor = kvb_side_factor(&flash->k, kv_head);

    for (uint32_t r = 0; r < rows; r++) {
        const float *q =
            flash->args->q + ((size_t)(tok + r / group) * p->n_heads + kv_head * group + r % group) * p->k_dim;
        char *encoded = w->queries + r * flash->query_bytes;
        if (flash->products == KVB_PRODUCTS_INT8) {
            flash->blocks.query(flash->k.view->format, p->k_dim, q, encoded);
            continue;
        }
        float *to = (float *)(void *)(encoded + flash->query_floats);
        memcpy(to, q, p->k_dim * sizeof *q);
        memset(to + p->k_dim, 0, (flash->k.width - p->k_dim) * sizeof *q);
        if (flash->k.transform)
            flash->vector->transform(flash->k.transform, p->k_dim, false, to);
        if (flash->k.head_scaled)
            flash->vector->rescale(to, flash->k.width, factor);
        if (flash->products == KVB_PRODUCTS_BF16)
            flash->blocks.query(flash->k.view->format, p->k_dim, to, encoded);
        if (flash->products == KVB_PRODUCTS_HALF)
            flash->half->query(flash->k.elem, p->k_dim, to, encoded);
    }
}

/* What a thread is at. */
typedef struct pass {
    const kvb_flash *flash;
    const kvb_workspace *w;
    const kvb_partial *partial;
    uint32_t kv_head;
} pass;

/* Rows of a tile that are taken together, and the cells of a block that some of them see. */
typedef struct group {
    uint32_t n_rows, n_cells;
    uint32_t row[TILE_ROWS];
    uint64_t visible[TILE_ROWS]; /* bit i: the row sees cell[i] */
    uint32_t cell[BLOCK];
    const void *key[BLOCK], *value[BLOCK]; /* their rows, once read */
    uint32_t ahead;                        /* cells from each to one that is wanted soon */
    uint32_t runs, run;                    /* wanted are `run` cells from `ahead` of each of the first `runs` cells */
    bool again;                            /* the cells are those of the last time, each `ahead` further on */
} group;

/* Bits of `word` at the places of the bits of `any`, moved together. */
static uint64_t word_gather(uint64_t word, uint64_t any)
{
    uint64_t gathered = 0;
    if (!(any & (any + (any & -any)))) /* neighbours */
        return word >> __builtin_ctzll(any);
    for (uint32_t i = 0; any; any &= any - 1, i++)
        gathered |= (word >> __builtin_ctzll(any) & 1) << i;
    return gathered;
}

/* Tokens i .. i+n-1 of a block; any: the cells that they see. */
static void group_make(group *g, const kvb_block *block, uint32_t i, uint32_t n, uint64_t any, uint32_t heads)
{
    g->n_rows = g->n_cells = 0;
    g->again = false;
    g->ahead = BLOCK / PLACES;
    for (uint32_t t = i; t < i + n; t++) {
        uint64_t visible = word_gather(block->word[t], any);
        for (uint32_t h = 0; h < heads; h++, g->n_rows++) {
            g->row[g->n_rows] = block->tok[t] * heads + h;
            g->visible[g->n_rows] = visible;
        }
    }
    if (any == UINT64_MAX)
        for (; g->n_cells < BLOCK; g->n_cells++)
            g->cell[g->n_cells] = block->first + g->n_cells;
    else
        for (; any; any &= any - 1)
            g->cell[g->n_cells++] = block->first + (uint32_t)__builtin_ctzll(any);
    g->runs = g->n_cells;
    g->run = 1;
}

/* What the group will soon want of one side. */
static kvb_ask group_ask(const pass *x, const kvb_side *side, const group *g)
{
    return (kvb_ask){side->view, g->cell, x->kv_head, g->runs, g->ahead, g->run, x->flash->prefetch->steadily, 0};
}

/* Do its rows go by dots() and sums()? Else they are packed. */
static bool unpacked(const pass *x, const group *g)
{
    return g->n_rows <= FEW_ROWS || x->flash->half;
}

/* Do its rows go by block products? Where there are others for few rows, only more than those. */
static bool by_blocks(const pass *x, const group *g)
{
    return x->flash->blocks.scores && (!x->flash->half || g->n_rows > DOTS_ROWS);
}

/* Are its rows taken as they are stored? Else they are floats in a tile. */
static bool in_place(const pass *x, const kvb_side *side, const group *g)
{
    return side->in_place && (!side->load || unpacked(x, g));
}

/* Are they brought into a tile of floats? */
static bool tiled(const pass *x, const kvb_side *side, const group *g)
{
    return !x->flash->half && !in_place(x, side, g);
}

/* Cells that are brought into a tile at a time for a few rows: what is loaded is used while it is in the first-level cache. */
#define TILE_CELLS 16u

static uint32_t cells_at_once(const pass *x, const kvb_side *side, const group *g)
{
    bool kept = x->flash->args->problem.v_in_k; /* for V */
    return !tiled(x, side, g) || kept || !unpacked(x, g) ? BLOCK : TILE_CELLS;
}

/* Rows from r on that are multiplied at a time; their share of what is wanted soon is asked for before. */
static uint32_t rows_at_once(const group *g, kvb_ask *ask, uint32_t r)
{
    uint32_t panels = (g->n_rows + PACKED_ROWS - 1) / PACKED_ROWS, left = g->n_rows - r;

    kvb_ask_until(ask, r / PACKED_ROWS + 1, panels);
    return left < PACKED_ROWS ? left : PACKED_ROWS;
}

/* The same of rows that are read in place: again, where all between here and there are its, too. */
static kvb_ahead rows_ahead(const pass *x, const group *g, size_t stride)
{
    return (kvb_ahead){g->ahead * stride, x->flash->prefetch->again && g->run == g->ahead && g->ahead % 8 == 0};
}

/* What products of halves take: n of the group's cells, from c on. */
static kvb_half_rows half_rows(const pass *x, const kvb_side *side, const group *g, uint32_t c, uint32_t n,
                               const void *const *at)
{
    return (kvb_half_rows){.elem = side->view->format->elem,
                           .n = n,
                           .dim = side->width,
                           .at = at,
                           .ahead = rows_ahead(x, g, side->view->cell_stride),
                           .view = side->view,
                           .cells = g->cell + c,
                           .kv_head = x->kv_head};
}

/* The same rows as the loops of floats take them, where they passed the range of halves. */
static const void *const *rows_again(const pass *x, const kvb_side *side, const kvb_half_rows *rows, float *tile,
                                     const void *again[BLOCK])
{
    if (!x->flash->half || side->in_place)
        return rows->at;
    kvb_side_rows(side, x->kv_head, rows->cells, rows->n, 0, false, tile, again);
    return again;
}

static void scores_make(const pass *x, group *g)
{
    const kvb_flash *flash = x->flash;
    const kvb_vector *v = flash->vector;
    const kvb_side *k = &flash->k;
    kvb_ask ask = group_ask(x, k, g);
    float *tile = tiled(x, k, g) ? x->w->k_tile : NULL;
    const kvb_ahead ahead = rows_ahead(x, g, k->stride);
    const kvb_elem elem = in_place(x, k, g) ? k->elem : KVB_F32;
    const void *queries[TILE_ROWS];
    const float *q[TILE_ROWS];
    float *scores[TILE_ROWS];

    for (uint32_t r = 0; r < g->n_rows; r++) {
        const char *encoded = x->w->queries + g->row[r] * flash->query_bytes;
        queries[r] = encoded;
        q[r] = (const float *)(const void *)(encoded + flash->query_floats);
        scores[r] = x->w->scores + (size_t)r * BLOCK;
    }
    if (by_blocks(x, g)) {
        flash->blocks.scores(k->view, x->kv_head, g->cell, g->n_cells, queries, g->n_rows, x->w->scores, &ask,
                             x->w->block);
        return;
    }
    for (uint32_t c = 0, n, step = cells_at_once(x, k, g); c < g->n_cells; c += n) {
        n = g->n_cells - c < step ? g->n_cells - c : step;
        const void *again[BLOCK];
        kvb_side_rows(k, x->kv_head, g->cell + c, n, g->ahead, g->again, tile, g->key + c);
        const kvb_half_rows halves = half_rows(x, k, g, c, n, g->key + c);
        if (tile && unpacked(x, g))
            kvb_ask_until(&ask, c / step + 1, (g->n_cells + step - 1) / step);
        for (uint32_t r = 0, rows; r < g->n_rows && unpacked(x, g); r += rows) {
            rows = g->n_rows - r < DOTS_ROWS ? g->n_rows - r : DOTS_ROWS;
            if (flash->half && flash->half->dots(&halves, queries + r, rows, scores[r] + c))
                continue;
            v->dots(elem, q + r, rows, rows_again(x, k, &halves, x->w->k_tile, again), ahead, n, k->width,
                    scores[r] + c);
        }
    }
    if (!unpacked(x, g)) {
        v->pack_keys(elem, g->key, g->n_cells, k->width, x->w->packed);
        for (uint32_t r = 0, rows; r < g->n_rows; r += rows) {
            rows = rows_at_once(g, &ask, r);
            v->product(rows, k->width, BLOCK, q + r, x->w->packed, scores + r, false);
        }
    }
}

static void scores_weigh(const pass *x, const group *g)
{
    const kvb_flash *flash = x->flash;
    for (uint32_t r = 0; r < g->n_rows; r++) {
        uint32_t row = g->row[r];
        float factor = flash->vector->weigh(flash->logits, x->w->scores + (size_t)r * BLOCK, g->n_cells, g->visible[r],
                                            &x->partial->state[row]);
        if (factor != 1.0f)
            flash->vector->rescale(x->partial->sums + (size_t)row * flash->v.width, flash->v.width, factor);
    }
}

static void sums_add(const pass *x, group *g)
{
    const kvb_flash *flash = x->flash;
    const kvb_vector *v = flash->vector;
    const kvb_side *side = &flash->v;
    kvb_ask ask = group_ask(x, side, g);
    float *tile = tiled(x, side, g) ? x->w->v_tile : NULL;
    const kvb_ahead ahead = rows_ahead(x, g, side->stride);
    const kvb_elem elem = in_place(x, side, g) ? side->elem : KVB_F32;
    const void **values = flash->args->problem.v_in_k ? g->key : g->value;
    const float *weights[TILE_ROWS];
    float *sums[TILE_ROWS];

    for (uint32_t r = 0; r < g->n_rows; r++) {
        weights[r] = x->w->scores + (size_t)r * BLOCK;
        sums[r] = x->partial->sums + (size_t)g->row[r] * side->width;
    }
    if (by_blocks(x, g)) {
        kvb_view rows = *side->view;
        rows.dim = flash->args->problem.v_dim; /* the first channels, where V lies in K's rows */
        flash->blocks.sums(&rows, x->kv_head, g->cell, g->n_cells, x->w->scores, g->n_rows, sums, &ask, x->w->block);
        return;
    }
    for (uint32_t c = 0, n, step = cells_at_once(x, side, g); c < g->n_cells; c += n) {
        n = g->n_cells - c < step ? g->n_cells - c : step;
        const void *again[BLOCK];
        if (values == g->value)
            kvb_side_rows(side, x->kv_head, g->cell + c, n, g->ahead, g->again, tile, values + c);
        const kvb_half_rows halves = half_rows(x, side, g, c, n, values + c);
        if (tile && unpacked(x, g))
            kvb_ask_until(&ask, c / step + 1, (g->n_cells + step - 1) / step);
        for (uint32_t r = 0, rows; r < g->n_rows && unpacked(x, g); r += rows) {
            rows = g->n_rows - r < DOTS_ROWS ? g->n_rows - r : DOTS_ROWS;
            if (flash->half && flash->half->sums(&halves, weights[r] + c, rows, sums + r))
                continue;
            v->sums(elem, weights[r] + c, rows, rows_again(x, side, &halves, x->w->v_tile, again), ahead, n,
                    side->width, sums + r);
        }
    }
    if (!unpacked(x, g)) {
        v->pack_values(elem, values, g->n_cells, side->width, x->w->packed);
        for (uint32_t r = 0, rows; r < g->n_rows; r += rows) {
            rows = rows_at_once(g, &ask, r);
            v->product(rows, g->n_cells, side->width, weights + r, x->w->packed, sums + r, true);
        }
    }
}

static void group_attend(const pass *x, group *g)
{
    scores_make(x, g);
    scores_weigh(x, g);
    sums_add(x, g);
}

/* The cells that have waited for token `tok` of the tile. */
static void waiting_attend(const pass *x, uint32_t tok)
{
    kvb_waiting *waiting = &x->w->waiting[tok];
    kvb_block block = {.n = 1, .tok = {tok}, .word = {UINT64_MAX}};
    group g;

    if (!waiting->n)
        return;
    group_make(&g, &block, 0, 1, UINT64_MAX, x->flash->plan.group);
    g.n_cells = waiting->n;
    g.runs = waiting->n;
    memcpy(g.cell, waiting->cell, waiting->n * sizeof *g.cell);
    g.ahead = 1; /* what the next token sees */
    group_attend(x, &g);
    waiting->n = 0;
}

/* A few cells of one token alone: sequences that were filled step by step lie between each other. */
static void cells_wait(const pass *x, uint32_t first, uint32_t tok, uint64_t word)
{
    kvb_waiting *waiting = &x->w->waiting[tok];

    if (waiting->n + (uint32_t)__builtin_popcountll(word) > BLOCK)
        waiting_attend(x, tok);
    for (; word; word &= word - 1)
        waiting->cell[waiting->n++] = first + (uint32_t)__builtin_ctzll(word);
}

static void block_attend(const pass *x, const kvb_block *block)
{
    group g;
    uint32_t heads = x->flash->plan.group;
    bool together = kvb_block_together(&x->flash->plan, block);

    for (uint32_t i = 0, n; i < block->n; i += n) {
        n = together ? block->n : kvb_block_same(block, i);
        if (n == 1 && block->word[i] != UINT64_MAX) {
            cells_wait(x, block->first, block->tok[i], block->word[i]);
            continue;
        }
        group_make(&g, block, i, n, together ? block->any : block->word[i], heads);
        group_attend(x, &g);
    }
}

/* Are its rows few and narrow enough for short turns? They are slower with products of halves (NOTES.md). */
static bool near(const pass *x, const kvb_side *side, const group *g)
{
    return !x->flash->half && side->in_place && side->row_bytes <= x->flash->prefetch->near_bytes &&
           g->n_rows <= x->flash->prefetch->near_rows;
}

/* Neighbouring cells of a turn: enough for RUN_BYTES where rows lie one after the other. */
static uint32_t turn_run(const kvb_flash *flash, const group *g, uint32_t cells)
{
    uint32_t run = cells / (g->n_rows <= FEW_ROWS ? flash->prefetch->places : PLACES);
    while (run < cells && run * flash->k.view->cell_stride < RUN_BYTES)
        run *= 2;
    return run;
}

/*
 * `span` blocks that the same rows see whole, in an order that lets memory run ahead: each turn takes a run of neighbouring
 * cells from each of some places at equal distances, as the CPU's prefetchers like it (kernels/prefetch.h). An odd
 * number of turns keeps the places from falling into the same sets of a cache.
 */
static void span_attend(const pass *x, const kvb_block *block, uint32_t span)
{
    group g;

    if (span == 1)
        block_attend(x, block);
    if (span < 2)
        return;
    group_make(&g, block, 0, block->n, block->any, x->flash->plan.group);
    uint32_t per = near(x, &x->flash->k, &g) && near(x, &x->flash->v, &g) ? x->flash->prefetch->near_cells : BLOCK;
    uint32_t turns = (span * BLOCK / per - 1) | 1, left = span * BLOCK;
    g.n_cells = per;
    g.run = g.ahead = turn_run(x->flash, &g, per);
    g.runs = per / g.run;
    for (uint32_t i = 0; i < per; i++)
        g.cell[i] = block->first + i % g.runs * turns * g.run + i / g.runs;
    for (uint32_t turn = 0; turn < turns; turn++, left -= per) {
        group_attend(x, &g);
        g.again = true;
        for (uint32_t i = 0; i < per; i++)
            g.cell[i] += g.run;
    }
    if (!left)
        return;
    for (uint32_t i = 0; i < left; i++)
        g.cell[i] = block->first + span * BLOCK - left + i;
    g.n_cells = g.runs = left;
    g.run = 1;
    g.again = false;
    group_attend(x, &g);
}

/* How many of `span` blocks, that begin at `at` and cost as much each, begin before `border`. */
static uint32_t blocks_before(uint64_t border, uint64_t at, uint64_t cost, uint32_t span)
{
    uint64_t n = border <= at ? 0 : (border - at + cost - 1) / cost;
    return n < span ? (uint32_t)n : span;
}

void kvb_flash_pass(const kvb_flash *flash, const kvb_share *share, const kvb_workspace *w, const kvb_partial *partial)
{
    const kvb_problem *p = &flash->args->problem;
    uint32_t toks = kvb_plan_toks(&flash->plan, share->tile), rows = toks * flash->plan.group;
    pass x = {.flash = flash, .w = w, .partial = partial, .kv_head = share->kv_head};
    uint64_t at = 1; /* the plan counts 1 for the tile itself */
    kvb_blocks blocks;
    kvb_block block;

    for (uint32_t r = 0; r < rows; r++)
        partial->state[r] = (kvb_row_state){.max = -INFINITY};
    for (uint32_t tok = 0; tok < toks; tok++)
        w->waiting[tok].n = 0;
    memset(partial->sums, 0, (size_t)rows * flash->v.width * sizeof *partial->sums);
    kvb_blocks_start(&blocks, &flash->args->mask, p->n_tok, p->n_cells, kvb_plan_tok(&flash->plan, share->tile), toks);
    while ((share->whole || at < share->end) && kvb_blocks_next(&blocks, &block)) {
        uint64_t cost = kvb_block_cost(&flash->plan, &block);
        uint32_t from = blocks_before(share->begin, at, cost, block.span);
        uint32_t to = share->whole ? block.span : blocks_before(share->end, at, cost, block.span);
        at += block.span * cost;
        block.first += from * BLOCK;
        span_attend(&x, &block, to - from);
    }
    for (uint32_t tok = 0; tok < toks; tok++)
        waiting_attend(&x, tok);
}
