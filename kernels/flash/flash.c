/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flash kernels: one pass over K and V for all query rows that share them, softmax on the way (Dao et al.,
 * "FlashAttention", arXiv 2205.14135; split over cells as in flash-decoding), in powers of two (micro.h). `flash` multiplies
 * floats, `flash-int8` the stored integers with rounded q and weights, `flash-bf16` bf16, `flash-f16` halves.
 *
 * Of a cell that some rows of a group see, the others take 0 times its V row: a V row that is not finite spoils the group.
 * What no row of a group sees is never read.
 *
 * Scratch: costs of the tiles; 2 slots a part for shares of split units; a workspace and a partial for each thread.
 */
#include "kernels/bf16/bf16.h"
#include "kernels/convert.h"
#include "kernels/flash/pass.h"
#include "kernels/kernels.h"
#include "kernels/softmax.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOG2_E 1.4426950408889634
#define LN_2   0.6931471805599453

/* Where things lie in scratch; bytes, whole cache lines. */
typedef struct layout {
    size_t tile_ends;
    size_t sums, partial; /* from a partial's beginning: its sums; its end */
    size_t queries, scores, k_tile, v_tile, packed, block, workspace; /* ends, from a workspace's beginning */
    size_t slots, end;
    uint32_t rows;
    size_t query_bytes, query_floats;
} layout;

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static uint32_t v_width(const kvb_problem *p)
{
    return kvb_padded(p->v_in_k && p->k_format->transform ? p->k_dim : p->v_dim);
}

static layout layout_of(const kvb_problem *p, uint32_t n_threads, kvb_products products)
{
    const bool integers = products == KVB_PRODUCTS_INT8, bf16 = products == KVB_PRODUCTS_BF16;
    const bool floats = products == KVB_PRODUCTS_FLOAT, tiled = floats || products == KVB_PRODUCTS_HALF;
    uint32_t k = kvb_padded(p->k_dim), v = v_width(p), group = p->n_heads / p->n_kv_heads;
    layout l = {.rows = kvb_plan_tile_toks(p) * group};
    size_t tile = (size_t)BLOCK * sizeof(float);

    size_t block = integers ? kvb_int8_scratch_bytes(p->k_format, p->v_format, p->k_dim, p->v_dim, l.rows)
                   : bf16   ? kvb_bf16_scratch_bytes(k > v ? k : v)
                            : 0;

    l.query_floats = products == KVB_PRODUCTS_HALF ? kvb_half_query_bytes(p->k_dim)
                     : bf16                        ? kvb_bf16_query_bytes(p->k_dim)
                                                   : 0;
    l.query_bytes = integers ? kvb_int8_query_bytes(p->k_format, p->k_dim) : l.query_floats + k * sizeof(float);
    l.tile_ends = lines(kvb_plan_tiles(p) * sizeof(uint64_t));
    l.sums = lines(l.rows * sizeof(kvb_row_state));
    l.partial = l.sums + (size_t)l.rows * v * sizeof(float);
    l.queries = l.rows * l.query_bytes;
    l.scores = l.queries + l.rows * tile;
    l.k_tile = l.scores + (tiled && kvb_side_tiled(p->k_format, p->k_dim) ? k * tile : 0);
    l.v_tile = l.k_tile + (tiled && !p->v_in_k && kvb_side_tiled(p->v_format, p->v_dim) ? v * tile : 0);
    l.packed = l.v_tile + (floats ? (k > v ? k : v) * tile : 0);
    l.block = l.packed + lines(block);
    l.workspace = l.block + lines(kvb_plan_tile_toks(p) * sizeof(kvb_waiting));
    l.slots = l.tile_ends + 2 * (size_t)kvb_plan_parts(p, n_threads) * l.partial;
    l.end = l.slots + n_threads * (l.workspace + l.partial);
    return l;
}

typedef struct job {
    kvb_flash flash;
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

/* Writes row r of the unit: sums divided by the sum of weights, the sink's included. */
static void row_finish(const kvb_flash *f, const kvb_share *unit, uint32_t r, const kvb_partial *partial)
{
    const kvb_attend *args = f->args;
    const kvb_problem *p = &args->problem;
    uint32_t group = f->plan.group, t = kvb_plan_tok(&f->plan, unit->tile) + r / group;
    uint32_t h = unit->kv_head * group + r % group;
    size_t row = (size_t)t * p->n_heads + h;
    float *sums = partial->sums + (size_t)r * f->v.width;
    double max = (double)partial->state[r].max, sum = partial->state[r].sum, factor = 1;
    double sink = (double)kvb_sink_logit(args, h) * LOG2_E;

    if (sink > max) { /* -infinity, without sinks: never */
        factor = max == -INFINITY ? 0 : exp2(max - ceil(sink));
        max = ceil(sink);
    }
    sum = sum * factor + (sink == -INFINITY ? 0 : exp2(sink - max));
    f->vector->rescale(sums, f->v.width,
                       sum == 0 ? 0 : (float)(factor / sum * (double)kvb_side_factor(&f->v, unit->kv_head)));
    if (f->v.transform)
        f->vector->transform(f->v.transform, f->v.view->dim, true, sums);
    kvb_elems_encode(p->out_elem, (char *)args->out + row * p->v_dim * kvb_elem_bytes(p->out_elem), sums, p->v_dim);
    if (args->lse)
        args->lse[row] = sum == 0 ? -INFINITY : (float)(max * LN_2 + log(sum));
}

/* `from` is added to `into`: both are brought to the larger max first, by a power of two. */
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

static void parts_run(void *ctx, uint32_t i, uint32_t n)
{
    const job *j = ctx;
    const kvb_flash *f = &j->flash;
    const layout *l = &j->at;
    char *base = j->scratch + l->slots + i * (l->workspace + l->partial);
    kvb_workspace w = {.queries = base,
                       .scores = (float *)(void *)(base + l->queries),
                       .k_tile = (float *)(void *)(base + l->scores),
                       .v_tile = (float *)(void *)(base + l->k_tile),
                       .packed = (float *)(void *)(base + l->v_tile),
                       .block = base + l->packed,
                       .waiting = (kvb_waiting *)(void *)(base + l->block)};
    kvb_partial own = partial_at(l, base + l->workspace);
    kvb_share share;

    for (uint32_t part = i; part < f->plan.n_parts; part += n) {
        uint64_t cursor = 0;
        while (kvb_plan_share(&f->plan, part, &cursor, &share)) {
            kvb_partial partial = share.whole ? own : slot_at(j, share.slot);
            kvb_flash_queries(f, share.kv_head, share.tile, &w);
            kvb_flash_pass(f, &share, &w, &partial);
            for (uint32_t r = 0; share.whole && r < unit_rows(f, &share); r++)
                row_finish(f, &share, r, &partial);
        }
    }
}

/* Units that lie in several parts: each row's shares are merged, in the order of the parts. */
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
        for (uint32_t r = i; r < unit_rows(f, &first); r += n)
            row_finish(f, &first, r, &into);
    }
}

static bool splits(const kvb_plan *plan)
{
    kvb_share share;
    for (uint32_t part = 1; part < plan->n_parts; part++) {
        uint32_t cursor = 0;
        if (kvb_plan_split(plan, part, &cursor, &share))
            return true;
    }
    return false;
}

static int flash_attend(const kvb_attend *args, kvb_products products)
{
    const kvb_problem *p = &args->problem;
    job j = {.flash = {.args = args,
                       .vector = kvb_vector_at(kvb_cpu()),
                       .half = products == KVB_PRODUCTS_HALF ? kvb_half_at(kvb_cpu()) : NULL,
                       .prefetch = kvb_prefetch_here(),
                       .products = products},
             .scratch = args->scratch};
    kvb_flash *f = &j.flash;

    if (p->n_tok == 0)
        return 0;
    if (products == KVB_PRODUCTS_INT8)
        f->blocks = (kvb_block_products){f->vector->int8_query, f->vector->int8_scores, f->vector->int8_sums};
    if (products == KVB_PRODUCTS_BF16) {
        f->blocks = *kvb_bf16_at(kvb_cpu());
        f->half = kvb_bf16_few_at(kvb_cpu());
    }
    j.at = layout_of(p, args->team->n, products);
    f->query_bytes = j.at.query_bytes;
    f->query_floats = j.at.query_floats;
    f->logits = p->softcap > 0 ? (kvb_logits){p->scale / p->softcap, (float)((double)p->softcap * LOG2_E)}
                               : (kvb_logits){(float)((double)p->scale * LOG2_E), 0};
    kvb_side_init(&f->k, f->vector, &args->k, p->v_in_k ? v_width(p) : p->k_dim);
    kvb_side_init(&f->v, f->vector, p->v_in_k ? &args->k : &args->v, v_width(p));
    f->v.width = v_width(p);
    kvb_plan_make(&f->plan, args, kvb_flash_costs[products], (uint64_t *)args->scratch);
    args->team->run(args->team, parts_run, &j);
    if (splits(&f->plan))
        args->team->run(args->team, parts_merge, &j);
    return 0;
}

/* ---- the kernels ----------------------------------------------------------------------------------------------- */

/* What differs between them is what is multiplied. */
#define VARIANT(NAME, PRODUCTS)                                                                                        \
    static int attend_##NAME(const kvb_attend *args)                                                                   \
    {                                                                                                                  \
        return flash_attend(args, PRODUCTS);                                                                           \
    }                                                                                                                  \
    static size_t scratch_bytes_##NAME(const kvb_problem *p, uint32_t n_threads)                                       \
    {                                                                                                                  \
        return layout_of(p, n_threads, PRODUCTS).end;                                                                  \
    }
VARIANT(floats, KVB_PRODUCTS_FLOAT)
VARIANT(integers, KVB_PRODUCTS_INT8)
VARIANT(bf16, KVB_PRODUCTS_BF16)
VARIANT(halves, KVB_PRODUCTS_HALF)

static bool available_at(kvb_cpu_level level, char *why, size_t why_bytes)
{
    if (!kvb_cpu_has(level, why, why_bytes))
        return false;
    if (kvb_cpu() < level)
        snprintf(why, why_bytes, "--cpu-mask: no %s", kvb_cpu_level_names[level]);
    return kvb_cpu() >= level;
}

static bool available_bf16(char *why, size_t why_bytes)
{
    return available_at(KVB_CPU_AVX512BF16, why, why_bytes);
}

static bool available_halves(char *why, size_t why_bytes)
{
    return available_at(KVB_CPU_AVX512FP16, why, why_bytes);
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (!kvb_readable_supports(p, why, why_bytes))
        return false;
    if (p->n_heads / p->n_kv_heads > TILE_ROWS) {
        snprintf(why, why_bytes, "more than %u query heads for a KV head", TILE_ROWS);
        return false;
    }
    return true;
}

static bool supports_integers(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (!supports(p, why, why_bytes))
        return false;
    if (p->v_in_k) {
        snprintf(why, why_bytes, "multiplies no integers of V in K's rows");
        return false;
    }
    return kvb_int8_fits(p->k_format, p->k_dim, why, why_bytes) && kvb_int8_fits(p->v_format, p->v_dim, why, why_bytes);
}

static bool supports_bf16(const kvb_problem *p, char *why, size_t why_bytes)
{
    return supports(p, why, why_bytes) && kvb_bf16_fits(p->k_format, p->k_dim, why, why_bytes) &&
           kvb_bf16_fits(p->v_in_k ? p->k_format : p->v_format, p->v_dim, why, why_bytes);
}

static bool supports_halves(const kvb_problem *p, char *why, size_t why_bytes)
{
    return supports(p, why, why_bytes) &&
           kvb_half_fits(p->k_format, p->k_dim, p->v_in_k ? v_width(p) : p->k_dim, why, why_bytes) &&
           (p->v_in_k || kvb_half_fits(p->v_format, p->v_dim, p->v_dim, why, why_bytes));
}

/*
 * Sums over cells: a block on its own, or a quarter of one that is loaded in tiles; then one addition for each, and for each
 * part that a unit is split into. Blocks of cells that waited may be half empty.
 */
static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){
        .accumulator = KVB_F32,
        .dot_chain = p->k_dim,
        .cell_chain =
            (p->n_cells < BLOCK ? p->n_cells : BLOCK) + 4 * (p->n_cells / (BLOCK / 2) + 1) + FIXED_PARTS + p->has_sinks,
        .q_rounded = KVB_F32,
        .p_rounded = KVB_F32,
        .exp_error = WEIGHT_ERROR,
        .exp_floor = WEIGHT_FLOOR,
    };
    kvb_arithmetic_add_decoding(p, a);
}

static void arithmetic_integers(const kvb_problem *p, kvb_arithmetic *a)
{
    arithmetic(p, a);
    a->dot_chain += 2; /* the step of q, and the rounded q in units of it */
    a->q_step = INT8_QUERY_STEP;
    a->p_step = 2 * INT8_WEIGHT_STEP; /* a scale times its largest code may pass the largest element: int8.h */
}

/*
 * What is taken for 0 is so much of the largest |q|, or of the largest weight (which is a half at least, in the end), whatever
 * bf16 rows are. Small floats that are not 0 are 2^-16 at least, under a head scale a share of that: it is one of theirs.
 */
static void arithmetic_bf16(const kvb_problem *p, kvb_arithmetic *a)
{
    const double least = 0x1p-16, of_weight = 4 * BF16_LEAST;

    arithmetic(p, a);
    a->q_rounded = a->p_rounded = KVB_BF16;
    a->q_step = 2 * BF16_LOST;
    if (p->k_format->head_scale)
        a->q_step += 4 * BF16_LOST / least;
    else
        a->dot_floor = 2 * p->k_dim * BF16_LOST;
    if (p->v_format->head_scale)
        a->p_step = 2 * of_weight / least;
    else
        a->cell_floor = of_weight;
}

/*
 * What is lost below f16's normal numbers is so much of the largest |q|, or weight, whatever the rows are. Under a head
 * scale it is a share of a row's own: no e4m3 code but 0 is below 2^-9.
 */
static void arithmetic_halves(const kvb_problem *p, kvb_arithmetic *a)
{
    const double least = 0x1p-9, of_q = HALF_ERROR / HALF_LARGEST_Q,
                 of_weight = 2 * HALF_ERROR / (p->v_format->elem == KVB_E4M3 ? HALF_WEIGHTS_E4M3 : HALF_WEIGHTS);

    arithmetic(p, a);
    a->q_rounded = a->p_rounded = KVB_F16;
    a->dot_half_chain = HALF_DOT_CHAIN(p->k_dim);
    a->cell_half_chain = HALF_SUM_CHAIN;
    a->q_step = 2 * of_q;
    if (p->k_format->head_scale)
        a->q_step += 2 * of_q / least;
    else
        a->dot_floor = p->k_dim * of_q;
    if (p->v_format->head_scale)
        a->p_step = 2 * of_weight / least;
    else
        a->cell_floor = of_weight;
    if (kvb_half_codes(p->k_format)) { /* an element is rounded once, absolutely where it is small */
        a->dot_half_chain++;
        a->dot_floor += p->k_dim * HALF_ERROR;
    }
    if (kvb_half_codes(p->v_format)) {
        a->cell_half_chain++;
        a->cell_floor += HALF_ERROR;
    }
}

#define EVERY_MASK                                                                                                     \
    (KVB_MASK_BIT(KVB_MASK_NONE) | KVB_MASK_BIT(KVB_MASK_CAUSAL) | KVB_MASK_BIT(KVB_MASK_EXPLICIT) |                   \
     KVB_MASK_BIT(KVB_MASK_RUNS))

const kvb_kernel kvb_kernel_flash = {
    .name = "flash",
    .summary = "one pass, each row read once for all queries that see it",
    .flags = KVB_KERNEL_VECTOR,
    .masks = EVERY_MASK,
    .supports = supports,
    .scratch_bytes = scratch_bytes_floats,
    .arithmetic = arithmetic,
    .attend = attend_floats,
};

const kvb_kernel kvb_kernel_flash_int8 = {
    .name = "flash-int8",
    .summary = "the same by integer products: q and weights rounded to 8 bits",
    .flags = KVB_KERNEL_VECTOR,
    .masks = EVERY_MASK,
    .supports = supports_integers,
    .scratch_bytes = scratch_bytes_integers,
    .arithmetic = arithmetic_integers,
    .attend = attend_integers,
};

const kvb_kernel kvb_kernel_flash_bf16 = {
    .name = "flash-bf16",
    .summary = "the same by pairs of bf16, q and weights rounded to it: rows of bf16, e4m3, e5m2",
    .flags = KVB_KERNEL_VECTOR,
    .masks = EVERY_MASK,
    .available = available_bf16,
    .supports = supports_bf16,
    .scratch_bytes = scratch_bytes_bf16,
    .arithmetic = arithmetic_bf16,
    .attend = attend_bf16,
};

const kvb_kernel kvb_kernel_flash_f16 = {
    .name = "flash-f16",
    .summary = "the same by products and short sums of f16: rows of f16, e4m3, some of 8 bits",
    .flags = KVB_KERNEL_VECTOR,
    .masks = EVERY_MASK,
    .available = available_halves,
    .supports = supports_halves,
    .scratch_bytes = scratch_bytes_halves,
    .arithmetic = arithmetic_halves,
    .attend = attend_halves,
};
