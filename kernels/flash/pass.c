/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass of a tile of query rows over the blocks of cells of one KV head. Each block is read once for all rows of the
 * tile that see it. Rows that meet the same cells form a group, which gets its scores, weights and sums together.
 */
#include "kernels/flash/flash.h"

#include <math.h>
#include <string.h>

#define FEW_ROWS   10u  /* up to here kvb_prefetch.places says from how many places rows read a sequence in turns */
#define MANY_ROWS  256u /* more query rows than this read a sequence in order, from one place */
#define PLACES     16u  /* from how many places other numbers of query rows read a sequence */
#define SOME_CELLS 16u  /* of one token in a block: fewer wait until there are more of them */
#define RUN_BYTES  512u /* fewer places where a run would be shorter than this */

/* What a thread works on. */
typedef struct pass {
    const kvb_flash *flash, *own; /* flash: of the region being read, which begins at cell `first`; own: of the last */
    uint32_t first;
    const kvb_workspace *w;
    const kvb_partial *partial;
    uint32_t kv_head, toks; /* tokens of the tile */
    uint32_t ahead;      /* from a block's cells to those of the next one, of this unit or the next; 0: there is none */
    bool apart;          /* rows of a group see the same cells */
    bool mixed;          /* set if they did not: some rows then added 0 times a V row that they do not see */
    const void **query;  /* of each row of the tile: what is to be multiplied */
    kvb_late_sums *late; /* of the group before, if it has rows; its weights are in w->scores */
} pass;

static void queries_encode(pass *x, const kvb_share *share, uint32_t rows)
{
    const kvb_flash *f = x->flash;
    const kvb_problem *p = &f->args->problem;
    const uint32_t group = f->plan.group, tok = kvb_plan_tok(&f->plan, share->tile);

    for (uint32_t r = 0, t = tok; r < rows; t++) {
        const float *q = f->args->q + ((size_t)t * p->n_heads + share->kv_head * group) * p->k_dim;
        for (uint32_t h = 0; h < group; h++, r++, q += p->k_dim)
            x->query[r] = f->product->query(f, share->kv_head, q, x->w->queries + r * f->query_bytes);
    }
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* The bits of `word` where `any` has ones, moved together at the low end. */
static uint64_t word_gather(uint64_t word, uint64_t any)
{
    uint64_t gathered = 0;
    if (kvb_word_is_run(any))
        return word >> __builtin_ctzll(any);
    for (uint32_t i = 0; any; any &= any - 1, i++)
        gathered |= (word >> __builtin_ctzll(any) & 1) << i;
    return gathered;
}

/* Notes the group's n cells, neighbours if `run`, and what is read next: the n cells that follow a whole block, or each
 * cell's counterpart in the next block. */
static void group_follow(const pass *x, kvb_row_group *g, uint32_t n, bool run)
{
    g->n_cells = n;
    g->neighbours = run;
    g->ahead = x->ahead;
    g->turn = run && x->ahead == BLOCK;
    g->runs = g->turn ? 1 : n;
    g->run = g->turn ? n : 1;
}

/* The rows of one more token, with what they see of the group's cells. */
static void group_add(const pass *x, kvb_row_group *g, uint32_t tok, uint64_t visible)
{
    const uint32_t heads = x->flash->plan.group, width = x->flash->v.width;
    for (uint32_t row = tok * heads; row < (tok + 1) * heads; row++, g->n_rows++) {
        g->row[g->n_rows] = row;
        g->state[g->n_rows] = &x->partial->state[row];
        g->query[g->n_rows] = x->query[row];
        g->sums[g->n_rows] = x->partial->sums + (size_t)row * width;
        g->visible[g->n_rows] = visible;
    }
}

/* Appends the cells of the bits of a word, which is not 0. Returns how many there are then. */
static uint32_t cells_append(uint32_t *cell, uint32_t n, uint32_t first, uint64_t word)
{
    if (kvb_word_is_run(word)) {
        const uint32_t cells = kvb_word_cells(word), from = first + (uint32_t)__builtin_ctzll(word);
        cell += n;
        for (uint32_t c = 0; c < cells; c++)
            cell[c] = from + c;
        return n + cells;
    }
    for (; word; word &= word - 1)
        cell[n++] = first + (uint32_t)__builtin_ctzll(word);
    return n;
}

/* A group of tokens i .. i+n-1 of a block. any: the cells that some of them see. */
static void group_make(const pass *x, kvb_row_group *g, const kvb_block *block, uint32_t i, uint32_t n, uint64_t any)
{
    g->kv_head = x->kv_head;
    g->n_rows = 0;
    for (uint32_t t = i; t < i + n; t++)
        group_add(x, g, block->seen[t].tok, word_gather(block->seen[t].word & any, any));
    group_follow(x, g, cells_append(g->cell, 0, block->first - x->first, any), any == UINT64_MAX);
    g->neighbours = kvb_word_is_run(any);
}

static void scores_weigh(const pass *x, const kvb_row_group *g)
{
    const kvb_flash *f = x->flash;
    const kvb_vector *vector = f->loops->vector;
    float earlier[TILE_ROWS];
    vector->weigh(f->logits, x->w->scores, g->n_cells, g->n_rows, g->visible, g->state, earlier);
    for (uint32_t r = 0; r < g->n_rows; r++)
        if (earlier[r] != 1.0f)
            vector->rescale(g->sums[r], g->sums[r], f->v.width, earlier[r]);
}

/* Computes the late sums, if there are any. */
static void late_sum(pass *x)
{
    if (x->late->n_rows)
        x->flash->product->beside(x->flash, x->w, NULL, x->late);
    x->late->n_rows = 0;
}

static void sums_leave(const pass *x, kvb_row_group *g)
{
    const kvb_side *v = &x->flash->v;
    kvb_late_sums *late = x->late;
    kvb_rows_in_place(x->flash, v, g, late->value);
    late->n_rows = g->n_rows;
    late->n_cells = g->n_cells;
    late->ahead = kvb_group_row_ahead(x->flash, g, v);
    memcpy(late->sums, g->sums, g->n_rows * sizeof *late->sums);
}

static bool may_beside(const kvb_flash *f, const kvb_row_group *g)
{
    return f->product->beside && f->product->fits_beside(f, g);
}

/*
 * Where that is faster, a group's sums are left for later and made beside the scores of the next group, so that K and V
 * are read side by side (kernels/NOTES.md). The bits are the same.
 */
static void group_attend(pass *x, kvb_row_group *g)
{
    const kvb_flash *f = x->flash;
    const kvb_product *product = f->product;
    if (product->group && product->group(f, x->w, g, 1))
        return;
    const bool later = may_beside(f, g) && kvb_group_reading(f, g, &f->k)->beside;

    if (!later || x->late->n_rows != g->n_rows || x->late->n_cells != g->n_cells)
        late_sum(x);
    if (x->late->n_rows)
        product->beside(f, x->w, g, x->late);
    else
        product->scores(f, x->w, g);
    scores_weigh(x, g);
    if (later)
        sums_leave(x, g);
    else
        product->sums(f, x->w, g);
}

/* Most cells of a token that are attended at once, if it does not see a whole block (kvb_prefetch.group_bytes). */
static uint32_t group_cells(const kvb_flash *f)
{
    uint32_t cells = f->prefetch->group_bytes && f->plan.group <= FEW_ROWS ? SOME_CELLS : BLOCK;
    while (cells < BLOCK && cells * f->k.view->cell_stride < f->prefetch->group_bytes)
        cells *= 2;
    return cells;
}

/* ---- few cells of one token: of sequences that were filled step by step, which lie between each other ------------ */

/* Distance from the waiting cells of token `tok` to those that are attended next: of the next token with any. */
static uint32_t waiting_ahead(const pass *x, uint32_t tok)
{
    const kvb_waiting *waiting = x->w->waiting;
    uint32_t next = tok;
    do
        next = next + 1 < x->toks ? next + 1 : 0;
    while (next != tok && !waiting[next].n);
    return waiting[next].cell[0] > waiting[tok].cell[0] ? waiting[next].cell[0] - waiting[tok].cell[0] : 0;
}

/* Attends the cells that wait for token `tok` of the tile. */
static void waiting_attend(pass *x, uint32_t tok)
{
    kvb_waiting *waiting = &x->w->waiting[tok];
    kvb_row_group g;

    if (!waiting->n)
        return;
    g.kv_head = x->kv_head;
    g.n_rows = 0;
    group_add(x, &g, tok, UINT64_MAX);
    group_follow(x, &g, waiting->n, false);
    memcpy(g.cell, waiting->cell, waiting->n * sizeof *g.cell);
    g.ahead = waiting_ahead(x, tok);
    group_attend(x, &g);
    waiting->n = 0;
}

static void cells_wait(pass *x, uint32_t first, const kvb_seen *seen)
{
    kvb_waiting *waiting = &x->w->waiting[seen->tok];

    if (waiting->n + seen->cells > group_cells(x->flash))
        waiting_attend(x, seen->tok);
    waiting->n = cells_append(waiting->cell, waiting->n, first, seen->word);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/*
 * A block is attended in steps of `cells` cells. Returns those cells of `word` that the step at cell `from` takes. With
 * `cut`, a word that has only whole steps is taken step by step, unless it is the whole block. Any other word is taken at
 * once, in the step of its first cell.
 */
static uint64_t word_piece(uint64_t word, uint32_t from, uint32_t cells, bool cut)
{
    const uint64_t piece = UINT64_MAX >> (BLOCK - cells), firsts = UINT64_MAX / piece;
    if (cut && word != UINT64_MAX && (word & firsts) * piece == word)
        return word & piece << from;
    return (uint32_t)__builtin_ctzll(word) / cells == from / cells ? word : 0;
}

/* Pages that are shorter than a block, and not too many, are attended in the order of memory. */
static void block_attend(pass *x, const kvb_block *block)
{
    const bool together = !x->apart && block->together;
    const uint32_t cells = together || block->n > BLOCK / SOME_CELLS ? BLOCK : group_cells(x->flash);
    kvb_row_group g;

    x->mixed |= together && block->seen->same < block->n;
    for (uint32_t from = 0; from < BLOCK; from += cells)
        for (uint32_t i = 0, n; i < block->n; i += n) {
            const kvb_seen *seen = &block->seen[i];
            n = together ? block->n : seen->same;
            const uint64_t word = word_piece(together ? block->any : seen->word, from, cells, n == 1);
            if (!word)
                continue;
            if (n == 1 && seen->cells < SOME_CELLS) {
                cells_wait(x, block->first - x->first, seen);
                continue;
            }
            group_make(x, &g, block, i, n, word);
            group_attend(x, &g);
        }
}

/* How many neighbouring cells a turn reads at each place: RUN_BYTES at least, if rows lie side by side. */
static uint32_t turn_run(const kvb_flash *f, const kvb_row_group *g)
{
    const uint32_t places = may_beside(f, g) || g->n_rows > MANY_ROWS ? 1
                            : g->n_rows <= FEW_ROWS                   ? f->prefetch->places
                                                                      : PLACES;
    uint32_t run = BLOCK / places;
    while (run < BLOCK && run * f->k.view->cell_stride < RUN_BYTES)
        run *= 2;
    return run;
}

static void turn_next(kvb_row_group *g)
{
    const uint32_t n = g->n_cells, run = g->run;
    for (uint32_t i = 0; i < n; i++)
        g->cell[i] += run;
}

/*
 * Attends `span` blocks that the same rows see whole. Each turn takes a run of neighbouring cells from each of some
 * places at equal distances: how many suits the CPU's prefetchers (kernels/prefetch.h). The number of turns is odd, so
 * that the places do not fall into the same sets of a cache. A block left over makes a last turn.
 */
static void span_attend(pass *x, const kvb_block *block, uint32_t span)
{
    const uint32_t first = block->first - x->first, turns = (span - 1) | 1;
    kvb_row_group g;

    if (span == 1)
        block_attend(x, block);
    if (span < 2)
        return;
    group_make(x, &g, block, 0, block->n, block->any);
    if (x->flash->product->group && x->flash->product->group(x->flash, x->w, &g, span))
        return;
    g.run = g.ahead = turn_run(x->flash, &g);
    g.runs = BLOCK / g.run;
    g.turn = true;
    g.neighbours = g.runs == 1;
    for (uint32_t c = 0, i = 0; i < BLOCK; c++)
        for (uint32_t place = 0; place < g.runs; place++, i++)
            g.cell[i] = first + place * turns * g.run + c;
    for (uint32_t turn = 0; turn < turns; turn++, turn_next(&g))
        group_attend(x, &g);
    if (turns == span)
        return;
    for (uint32_t i = 0; i < BLOCK; i++)
        g.cell[i] = first + turns * BLOCK + i;
    group_follow(x, &g, BLOCK, true);
    group_attend(x, &g);
}

/* All waiting cells lie in one region. */
static void all_waiting_attend(pass *x)
{
    for (uint32_t tok = 0; tok < x->toks; tok++)
        waiting_attend(x, tok);
}

/* Attends the cells of these bits. */
static void part_attend(pass *x, const kvb_block *block, uint64_t bits)
{
    kvb_seen seen[TILE_TOKS];
    kvb_block part = {.seen = seen, .any = block->any & bits, .first = block->first, .span = 1};
    for (uint32_t i = 0; i < block->n; i++) {
        const uint64_t word = block->seen[i].word & bits;
        if (word)
            seen[part.n++] = (kvb_seen){word, kvb_word_cells(word), block->seen[i].tok, 0};
    }
    if (!part.n)
        return;
    kvb_block_weigh(&part, seen, x->flash->product->cost, x->flash->plan.group);
    block_attend(x, &part);
}

/* Attends `span` blocks: cells of the front, then the view's own. A block with cells of both is cut in two. */
static void regions_attend(pass *x, kvb_block *block, uint32_t span)
{
    const uint32_t border = kvb_view_front_cells(&x->own->args->k);
    const uint32_t whole = border > block->first ? (border - block->first) / BLOCK : 0;
    if (x->first == border || whole >= span) {
        span_attend(x, block, span);
        return;
    }
    span_attend(x, block, whole);
    block->first += whole * BLOCK;
    const uint64_t of_front = border > block->first ? (UINT64_C(1) << (border - block->first)) - 1 : 0;
    if (of_front)
        part_attend(x, block, of_front);
    all_waiting_attend(x);
    x->flash = x->own;
    x->first = border;
    if (of_front)
        part_attend(x, block, ~of_front);
    block->first += of_front ? BLOCK : 0;
    span_attend(x, block, span - whole - (of_front != 0));
}

/* How many of `span` blocks, which begin at cost `at` and cost `cost` each, begin before `border`. */
static uint32_t blocks_before(uint64_t border, uint64_t at, uint64_t cost, uint32_t span)
{
    uint64_t n = border <= at ? 0 : (border - at + cost - 1) / cost;
    return n < span ? (uint32_t)n : span;
}

/* Cells from a cell to the same cell of the next unit. 0: there is no next unit, or the distance is not known. */
static uint32_t next_unit_ahead(const pass *x)
{
    return x->kv_head + 1 < x->own->args->problem.n_kv_heads ? x->own->unit_ahead : 0;
}

/* Overwrites the partial with what the share's blocks give. */
static void share_attend(pass *x, const kvb_share *share)
{
    const kvb_flash *flash = x->flash;
    const kvb_problem *p = &flash->args->problem;
    const kvb_partial *partial = x->partial;
    const uint32_t toks = x->toks, rows = toks * flash->plan.group;
    uint64_t at = 1; /* the plan counts 1 for the tile itself */
    kvb_blocks *blocks = x->w->blocks;
    kvb_block read[2];

    for (uint32_t r = 0; r < rows; r++)
        partial->state[r] = (kvb_row_state){.max = -INFINITY};
    for (uint32_t tok = 0; tok < toks; tok++)
        x->w->waiting[tok].n = 0;
    memset(partial->sums, 0, (size_t)rows * flash->v.width * sizeof *partial->sums);
    kvb_blocks_start(blocks, p->n_tok, kvb_plan_tok(&flash->plan, share->tile), toks);
    bool more = kvb_blocks_next(blocks, &read[0]);
    const uint32_t after = more ? read[0].first + next_unit_ahead(x) : 0; /* the next unit's first block */
    for (uint32_t i = 0; more && (share->whole || at < share->end); i ^= 1) {
        kvb_block *block = &read[i];
        uint32_t from = 0, to = block->span;
        if (!share->whole) {
            from = blocks_before(share->begin, at, block->cost, block->span);
            to = blocks_before(share->end, at, block->cost, block->span);
            at += block->span * block->cost;
        }
        more = kvb_blocks_next(blocks, &read[i ^ 1]);
        const uint32_t next = more ? read[i ^ 1].first : after, last = block->first + (block->span - 1) * BLOCK;
        x->ahead = next > last ? next - last : 0;
        block->first += from * BLOCK;
        regions_attend(x, block, to - from);
    }
    all_waiting_attend(x);
    late_sum(x);
}

bool kvb_flash_pass(const kvb_flash *flash, const kvb_share *share, const kvb_workspace *w, const kvb_partial *partial,
                    bool apart)
{
    const uint32_t toks = kvb_plan_toks(&flash->plan, share->tile), rows = toks * flash->plan.group;
    const kvb_flash *first = flash->front ? flash->front : flash;
    const void *query[TILE_ROWS];
    kvb_late_sums late;
    pass x = {.flash = first,
              .own = flash,
              .w = w,
              .late = &late,
              .partial = partial,
              .kv_head = share->kv_head,
              .toks = toks,
              .apart = apart,
              .query = query};

    late.n_rows = 0;
    queries_encode(&x, share, rows);
    share_attend(&x, share);
    return x.mixed;
}
