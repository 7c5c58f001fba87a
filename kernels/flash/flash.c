/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of a flash kernel: one pass over K and V for all query rows that share them, with softmax on the way (Dao et
 * al., "FlashAttention", arXiv 2205.14135; split over cells as in flash-decoding), in powers of two (kvb_row_state).
 * The products multiply.
 *
 * Where only some rows of a group see a cell, the others add 0 times its V row. If that is not finite, neither are
 * their sums, and the pass is made once more by groups of rows that see the same cells. A cell that no row of a group
 * sees is never read.
 *
 * Scratch: the mask as bits (RUNS only), the costs of the tiles, two slots a part for the results of split units, and a
 * workspace and a partial for each thread.
 */
#include "kernels/flash/flash.h"

#include "kernels/convert.h"
#include "kernels/softmax.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG2_E 1.4426950408889634
#define LN_2   0.6931471805599453

#define SOME_ROWS 16u

/* Where things lie in scratch; bytes, whole cache lines. */
typedef struct layout {
    size_t bits, tile_ends;                     /* ends, from scratch's beginning */
    size_t sums, partial;                       /* from a partial's beginning: its sums; its end */
    size_t queries, scores, product, workspace; /* ends, from a workspace's beginning */
    size_t slots, end;                          /* ends, from scratch's beginning */
    size_t query_bytes;
} layout;

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static layout layout_of(const kvb_product *product, const kvb_problem *p, uint32_t n_threads)
{
    const uint32_t toks = kvb_plan_tile_toks(p), rows = toks * (p->n_heads / p->n_kv_heads);
    layout l = {.query_bytes = product->query_bytes(p)};

    l.bits =
        p->mask == KVB_MASK_RUNS || p->mask == KVB_MASK_PAGES ? lines(kvb_mask_bits_bytes(p->n_tok, p->n_cells)) : 0;
    l.tile_ends = l.bits + lines(kvb_plan_tiles(p) * sizeof(uint64_t));
    l.sums = lines(rows * sizeof(kvb_row_state));
    l.partial = l.sums + (size_t)rows * kvb_v_width(p) * sizeof(float);
    l.queries = rows * l.query_bytes;
    l.scores = l.queries + (size_t)rows * BLOCK * sizeof(float);
    l.product = l.scores + product->scratch_bytes(p);
    l.workspace = l.product + lines(toks * sizeof(kvb_waiting));
    l.slots = l.tile_ends + 2 * (size_t)kvb_plan_parts(p, n_threads) * l.partial;
    l.end = l.slots + n_threads * (l.workspace + l.partial);
    return l;
}

typedef struct job {
    kvb_flash flash, front; /* the views' own region, and the one before it */
    kvb_view k, v;          /* the own region of each side */
    kvb_attend args;
    layout at;
    char *scratch;
} job;

static kvb_partial partial_at(const layout *l, char *base)
{
    return (kvb_partial){.state = (kvb_row_state *)(void *)base, .sums = (float *)(void *)(base + l->sums)};
}

static kvb_partial slot_at(const job *j, uint32_t slot)
{
    return partial_at(&j->at, j->scratch + j->at.tile_ends + slot * j->at.partial);
}

/* ---- the end of a row ------------------------------------------------------------------------------------------ */

/* Adds a sink's weight to a row's sum. sink: its logit as an exponent of two. Returns the factor on the row's sums. */
static double sink_add(double sink, double *max, double *sum)
{
    double factor = 1;
    if (sink > *max) {
        factor = *max == -INFINITY ? 0 : exp2(*max - ceil(sink));
        *max = ceil(sink);
    }
    *sum = *sum * factor + (sink == -INFINITY ? 0 : exp2(sink - *max));
    return factor;
}

/* Writes every `step`-th of the unit's rows from r on, before row `end`: sums divided by the sum of weights, the sink's
 * included. */
static void rows_finish(const kvb_flash *f, const kvb_share *unit, uint32_t r, uint32_t end, uint32_t step,
                        const kvb_partial *partial)
{
    const kvb_vector *vector = f->loops->vector;
    const kvb_attend *args = f->args;
    const kvb_problem *p = &args->problem;
    const uint32_t group = f->plan.group, n_heads = p->n_heads, width = f->v.width, head = unit->kv_head * group;
    const bool direct = p->out_elem == KVB_F32 && !f->v.transform && p->v_dim == width, sinks = p->has_sinks;
    const size_t out_bytes = p->v_dim * kvb_elem_bytes(p->out_elem);
    const double of_v = (double)kvb_side_factor(&f->v, unit->kv_head);
    size_t token =
        (kvb_plan_tok(&f->plan, unit->tile) + (size_t)r / group) * n_heads + head; /* row of out of its first head */

    for (uint32_t h = r % group; r < end; r += step) {
        double max = (double)partial->state[r].max, sum = partial->state[r].sum, factor = 1;
        float *sums = partial->sums + (size_t)r * width;
        void *out = (char *)args->out + (token + h) * out_bytes;

        if (sinks)
            factor = sink_add((double)kvb_sink_logit(args, head + h) * LOG2_E, &max, &sum);
        const double share = sum == 0 ? 0 : factor / sum;
        float *to = direct ? out : sums;
        const bool tiny = share * of_v < 0x1p-126; /* a single factor would lose digits, or all */
        vector->rescale(to, sums, width, (float)(tiny ? share : share * of_v));
        if (tiny && sum != 0)
            vector->rescale(to, to, width, (float)of_v);
        if (f->v.transform)
            vector->hadamard(f->v.transform, f->v.view->dim, true, sums);
        if (!direct)
            kvb_elems_encode(p->out_elem, out, sums, p->v_dim);
        if (args->lse)
            args->lse[token + h] = sum == 0 ? -INFINITY : (float)(max * LN_2 + log(sum));
        for (h += step; h >= group; h -= group)
            token += n_heads;
    }
}

/* Adds `from` to `into`. Both are brought to the larger max first, by a power of two. */
static void row_merge(const kvb_flash *f, uint32_t r, const kvb_partial *into, const kvb_partial *from)
{
    kvb_row_state *a = &into->state[r];
    const kvb_row_state *b = &from->state[r];
    float *x = into->sums + (size_t)r * f->v.width;
    const float *y = from->sums + (size_t)r * f->v.width;
    float max = a->max > b->max ? a->max : b->max;

    if (b->max == -INFINITY && b->sum == 0) /* nothing was seen there */
        return;
    double of_a = a->max == -INFINITY ? 0 : exp2((double)(a->max - max)), of_b = exp2((double)(b->max - max));
    for (uint32_t c = 0; c < f->v.width; c++)
        x[c] = (float)of_a * x[c] + (float)of_b * y[c];
    *a = (kvb_row_state){.max = max, .sum = of_a * a->sum + of_b * b->sum};
}

/* ---- parts ----------------------------------------------------------------------------------------------------- */

static uint32_t unit_rows(const kvb_flash *f, const kvb_share *unit)
{
    return kvb_plan_toks(&f->plan, unit->tile) * f->plan.group;
}

/* Makes the pass over a share, and writes its rows if it is a whole unit. If rows met cells that they do not see and a
 * sum is not finite, the pass is repeated with rows apart. */
static void share_run(const kvb_flash *f, const kvb_share *share, const kvb_workspace *w, const kvb_partial *partial)
{
    const uint32_t rows = unit_rows(f, share), width = f->v.width;
    bool mixed = true, finite = false;

    for (int apart = 0; mixed && !finite; apart++) {
        mixed = kvb_flash_pass(f, share, w, partial, apart);
        finite = true;
        for (uint32_t r = 0, some; r < rows; r += some) { /* few, so that they are still in the nearest cache */
            some = rows - r < SOME_ROWS ? rows - r : SOME_ROWS;
            if (share->whole)
                rows_finish(f, share, r, r + some, 1, partial);
            finite &= !mixed || f->loops->vector->all_finite(partial->sums + (size_t)r * width, some * width);
        }
    }
}

/* The workspace of thread i. */
static kvb_workspace workspace_at(const job *j, uint32_t i, kvb_blocks *blocks)
{
    const layout *l = &j->at;
    char *base = j->scratch + l->slots + i * (l->workspace + l->partial);
    return (kvb_workspace){.queries = base,
                           .scores = (float *)(void *)(base + l->queries),
                           .scratch = base + l->scores,
                           .waiting = (kvb_waiting *)(void *)(base + l->product),
                           .blocks = blocks};
}

static kvb_partial own_partial_at(const job *j, uint32_t i)
{
    const layout *l = &j->at;
    return partial_at(l, j->scratch + l->slots + i * (l->workspace + l->partial) + l->workspace);
}

static void parts_run(void *ctx, uint32_t i, uint32_t n)
{
    const job *j = ctx;
    const kvb_flash *f = &j->flash;
    kvb_blocks blocks;
    const kvb_workspace w = workspace_at(j, i, &blocks);
    const kvb_partial own = own_partial_at(j, i);
    kvb_share share;

    kvb_blocks_open(&blocks, &f->args->mask, f->args->problem.n_cells, f->product->cost, f->plan.group);
    for (uint32_t part = i; part < f->plan.n_parts; part += n) {
        uint64_t cursor = 0;
        while (kvb_plan_share(&f->plan, part, &cursor, &share)) {
            kvb_partial partial = share.whole ? own : slot_at(j, share.slot);
            share_run(f, &share, &w, &partial);
        }
    }
}

/* Merges units that lie in several parts, row by row, in the order of the parts. */
static void parts_merge(void *ctx, uint32_t i, uint32_t n)
{
    const job *j = ctx;
    const kvb_flash *f = &j->flash;

    for (uint32_t part = 1; part < f->plan.n_parts; part++) {
        uint32_t cursor = 0;
        kvb_share first, share;
        if (!kvb_plan_split(&f->plan, part, &cursor, &first))
            continue;
        kvb_partial into = slot_at(j, first.slot);
        while (kvb_plan_split(&f->plan, part, &cursor, &share)) {
            kvb_partial from = slot_at(j, share.slot);
            for (uint32_t r = i; r < unit_rows(f, &first); r += n)
                row_merge(f, r, &into, &from);
        }
        rows_finish(f, &first, i, unit_rows(f, &first), n, &into);
    }
}

static bool splits(const kvb_work_plan *plan)
{
    kvb_share share;
    for (uint32_t part = 1; part < plan->n_parts; part++) {
        uint32_t cursor = 0;
        if (kvb_plan_split(plan, part, &cursor, &share))
            return true;
    }
    return false;
}

/* ---- the call -------------------------------------------------------------------------------------------------- */

static void sides_init(kvb_flash *f, const kvb_view *k, const kvb_view *v)
{
    const kvb_problem *p = &f->args->problem;
    const uint32_t values = kvb_v_width(p);
    kvb_side_init(&f->k, f->loops->vector, k, p->v_in_k ? values : p->k_dim, kvb_padded(p->k_dim));
    kvb_side_init(&f->v, f->loops->vector, p->v_in_k ? k : v, values, values);
    f->query_stays = kvb_float_query_stays(f);
}

/* kvb_flash.unit_ahead */
static uint32_t unit_ahead(const kvb_flash *f)
{
    const kvb_view *k = f->k.view, *v = f->v.view;
    if (f->front || f->plan.n_tiles > 1 || !k->cell_stride)
        return 0;
    const size_t n = k->head_stride / k->cell_stride;
    const bool whole = n * k->cell_stride == k->head_stride && n * v->cell_stride == v->head_stride;
    return whole && n <= UINT32_MAX / 2 ? (uint32_t)n : 0;
}

static void job_open(job *j, const kvb_product *product, const kvb_attend *args)
{
    const kvb_problem *p = &args->problem;
    kvb_flash *f = &j->flash;

    *j = (job){.args = *args, .at = layout_of(product, p, args->team->n), .scratch = args->scratch};
    kvb_mask_ascend(&j->args.mask, p->n_tok, p->n_cells, args->scratch);
    *f = (kvb_flash){.args = &j->args,
                     .product = product,
                     .loops = kvb_loops_at(kvb_cpu()),
                     .prefetch = kvb_prefetch_here(),
                     .query_bytes = j->at.query_bytes};
    f->logits = p->softcap > 0 ? (kvb_logits){p->scale / p->softcap, (float)((double)p->softcap * LOG2_E)}
                               : (kvb_logits){(float)((double)p->scale * LOG2_E), 0};
    kvb_plan_make(&f->plan, &j->args, product->cost, (uint64_t *)(void *)(j->scratch + j->at.bits));
    j->k = kvb_view_own(&args->k);
    j->v = kvb_view_own(&args->v);
    if (args->k.front) {
        j->front = *f;
        sides_init(&j->front, args->k.front, args->v.front);
        f->front = &j->front;
    }
    sides_init(f, &j->k, &j->v);
    f->unit_ahead = unit_ahead(f);
}

int kvb_flash_attend(const kvb_product *product, const kvb_attend *args)
{
    job j;
    if (args->problem.n_tok == 0)
        return 0;
    job_open(&j, product, args);
    args->team->run(args->team, parts_run, &j);
    if (splits(&j.flash.plan))
        args->team->run(args->team, parts_merge, &j);
    return 0;
}

void kvb_flash_tiles(kvb_noting *noting, const kvb_attend *args, uint32_t row)
{
    const kvb_problem *p = &args->problem;
    const uint32_t group = p->n_heads / p->n_kv_heads, t = row / p->n_heads, head = row % p->n_heads;
    job j;
    job_open(&j, &noting->product, args);
    const kvb_flash *f = &j.flash;
    kvb_blocks blocks;
    const kvb_workspace w = workspace_at(&j, 0, &blocks);
    const kvb_partial partial = own_partial_at(&j, 0);
    kvb_share share;

    kvb_blocks_open(&blocks, &f->args->mask, p->n_cells, f->product->cost, group);
    noting->part = false;
    for (uint32_t part = 0; part < f->plan.n_parts; part++)
        for (uint64_t cursor = 0; kvb_plan_share(&f->plan, part, &cursor, &share);) {
            const uint32_t first = kvb_plan_tok(&f->plan, share.tile);
            if (share.kv_head != head / group || t < first || t - first >= kvb_plan_toks(&f->plan, share.tile))
                continue;
            noting->row = (t - first) * group + head % group;
            kvb_flash_pass(f, &share, &w, &partial, false);
            noting->part = true;
        }
}

int kvb_flash_round_query(const kvb_product *product, const kvb_problem *p, const kvb_view *k, uint32_t head,
                          const float *q, double *rounded)
{
    const kvb_attend args = {.problem = *p, .k = *k};
    kvb_flash f = {.args = &args, .product = product, .loops = kvb_loops_at(kvb_cpu())};
    uint32_t h = head / (p->n_heads / p->n_kv_heads);
    void *encoded = aligned_alloc(64, product->query_bytes(p));

    if (!encoded)
        return -ENOMEM;
    kvb_side_init(&f.k, f.loops->vector, &args.k, p->v_in_k ? kvb_v_width(p) : p->k_dim, kvb_padded(p->k_dim));
    product->query(&f, h, q, encoded);
    product->decoded(&f, encoded, rounded);
    for (uint32_t c = 0; c < p->k_dim; c++)
        rounded[c] /= (double)kvb_side_factor(&f.k, h); /* which query() multiplied by */
    free(encoded);
    return 0;
}

size_t kvb_flash_scratch_bytes(const kvb_product *product, const kvb_problem *p, uint32_t n_threads)
{
    return layout_of(product, p, n_threads).end;
}

/* If this level lacks the loops, why names the least level of this CPU that has them, else what the CPU lacks for the
 * least of all. */
bool kvb_flash_available(const kvb_product *product, char *why, size_t why_bytes)
{
    char lack[128];
    bool known = false, here = false;

    if (kvb_loops_part(kvb_cpu(), product->loops))
        return true;
    snprintf(why, why_bytes, "no level of this architecture has such products");
    for (int level = 0; level < KVB_CPU_LEVELS && !here; level++) {
        if (!kvb_loops_part((kvb_cpu_level)level, product->loops))
            continue;
        here = kvb_cpu_has((kvb_cpu_level)level, lack, sizeof lack);
        if (here)
            snprintf(why, why_bytes, "--cpu-mask: no %s", kvb_cpu_level_names[level]);
        else if (!known)
            snprintf(why, why_bytes, "%s", lack);
        known = true;
    }
    return false;
}

bool kvb_flash_supports(const kvb_product *product, const kvb_problem *p, char *why, size_t why_bytes)
{
    if (!kvb_readable_supports(p, why, why_bytes))
        return false;
    if (p->n_heads / p->n_kv_heads > TILE_ROWS) {
        snprintf(why, why_bytes, "more than %u query heads for a KV head", TILE_ROWS);
        return false;
    }
    return !product->fits || product->fits(p, why, why_bytes);
}
