/* SPDX-License-Identifier: Apache-2.0 */
/* Borders between parts, and shares of units. */
#include "kernels/flash/plan.h"

#include "kernels/cpu.h"

#define LARGE_DIMS 256u /* rows with more channels of K and V together have tiles of half of TILE_ROWS */

/* q, sums and scores of a tile are to stay in the second-level cache. CPUs with AVX-512 FP16 have 2 MiB of it, most others
 * less. The level decides, not the cache's size: with one level all machines give the same bits. */
static uint32_t tile_rows(const kvb_problem *p)
{
    const kvb_cpu_level level = kvb_cpu();
    const bool large = level == KVB_CPU_AVX512FP16 || level == KVB_CPU_AMX;
    return large && p->k_dim + p->v_dim <= LARGE_DIMS ? TILE_ROWS : TILE_ROWS / 2;
}

uint32_t kvb_plan_tile_toks(const kvb_problem *p)
{
    const uint32_t toks = least(tile_rows(p) / (p->n_heads / p->n_kv_heads), TILE_TOKS);
    return toks == 0 ? 1 : least(toks, p->n_tok);
}

uint32_t kvb_plan_tiles(const kvb_problem *p)
{
    uint32_t toks = kvb_plan_tile_toks(p);
    return (p->n_tok + toks - 1) / toks;
}

uint32_t kvb_plan_parts(const kvb_problem *p, uint32_t n_threads)
{
    return p->deterministic ? FIXED_PARTS : n_threads;
}

uint32_t kvb_plan_tok(const kvb_work_plan *plan, uint32_t tile)
{
    return tile * plan->tile_toks;
}

uint32_t kvb_plan_toks(const kvb_work_plan *plan, uint32_t tile)
{
    uint32_t left = plan->args->problem.n_tok - kvb_plan_tok(plan, tile);
    return left < plan->tile_toks ? left : plan->tile_toks;
}

static void parts_cut(kvb_work_plan *plan)
{
    const uint64_t all = plan->tile_end[plan->n_tiles - 1] * plan->args->problem.n_kv_heads;
    plan->part_cost = all / plan->n_parts;
    plan->part_rest = all % plan->n_parts;
}

void kvb_plan_make(kvb_work_plan *plan, const kvb_attend *args, kvb_group_cost *cost, uint64_t *tile_end)
{
    const kvb_problem *p = &args->problem;
    uint64_t end = 0;
    kvb_blocks blocks;

    *plan = (kvb_work_plan){.args = args,
                            .group = p->n_heads / p->n_kv_heads,
                            .tile_toks = kvb_plan_tile_toks(p),
                            .n_tiles = kvb_plan_tiles(p),
                            .n_parts = kvb_plan_parts(p, args->team->n),
                            .tile_end = tile_end};
    if (plan->n_tiles == 1 && p->n_kv_heads % plan->n_parts == 0) { /* no border inside a unit: any cost will do */
        tile_end[0] = 1;
        parts_cut(plan);
        return;
    }
    kvb_blocks_open(&blocks, &args->mask, p->n_cells, cost, plan->group);
    for (uint32_t tile = 0; tile < plan->n_tiles; tile++) {
        kvb_block block;
        kvb_blocks_start(&blocks, p->n_tok, kvb_plan_tok(plan, tile), kvb_plan_toks(plan, tile));
        end++; /* a tile that sees nothing still has rows to write */
        while (kvb_blocks_next(&blocks, &block))
            end += block.span * block.cost;
        tile_end[tile] = end;
    }
    parts_cut(plan);
}

/* Cost of all units before part i. */
static uint64_t border(const kvb_work_plan *plan, uint32_t part)
{
    return plan->part_cost * part + (plan->part_rest ? plan->part_rest * part / plan->n_parts : 0);
}

/* The unit at `at` in the costs of all units, where it begins at *begin. */
static kvb_share unit_at(const kvb_work_plan *plan, uint64_t at, uint64_t *begin)
{
    uint64_t head_cost = plan->tile_end[plan->n_tiles - 1];
    uint32_t head = (uint32_t)(at / head_cost), low = 0, high = plan->n_tiles - 1;

    while (low < high) { /* the first tile that ends beyond */
        uint32_t middle = (low + high) / 2;
        if (plan->tile_end[middle] > at % head_cost)
            high = middle;
        else
            low = middle + 1;
    }
    uint64_t before = low ? plan->tile_end[low - 1] : 0;
    *begin = head * head_cost + before;
    return (kvb_share){.kv_head = head, .tile = low, .begin = 0, .end = plan->tile_end[low] - before};
}

/* The unit behind a share's. */
static kvb_share unit_behind(const kvb_work_plan *plan, const kvb_share *share)
{
    const bool last = share->tile + 1 == plan->n_tiles;
    const uint32_t tile = last ? 0 : share->tile + 1;
    return (kvb_share){.kv_head = share->kv_head + last,
                       .tile = tile,
                       .end = plan->tile_end[tile] - (tile ? plan->tile_end[tile - 1] : 0)};
}

bool kvb_plan_share(const kvb_work_plan *plan, uint32_t part, uint64_t *cursor, kvb_share *share)
{
    uint64_t from = border(plan, part), to = border(plan, part + 1), at = from + *cursor, begin = at;

    if (at >= to)
        return false;
    *share = *cursor ? unit_behind(plan, share) : unit_at(plan, at, &begin);
    uint64_t unit_end = begin + share->end, end = unit_end < to ? unit_end : to;
    share->whole = begin >= from && unit_end <= to;
    share->slot = 2 * part + (*cursor != 0);
    share->begin = at - begin;
    share->end = end - begin;
    *cursor += end - at;
    return true;
}

bool kvb_plan_split(const kvb_work_plan *plan, uint32_t part, uint32_t *cursor, kvb_share *share)
{
    uint64_t at = border(plan, part), begin;

    if (at == border(plan, plan->n_parts))
        return false;
    kvb_share unit = unit_at(plan, at, &begin);
    if (begin == at || border(plan, part - 1) > begin) /* between units, or an earlier border splits this unit */
        return false;
    for (uint32_t p = part - 1 + *cursor; p < plan->n_parts && border(plan, p) < begin + unit.end; p++, ++*cursor) {
        uint64_t reached = 0;
        while (kvb_plan_share(plan, p, &reached, share))
            if (share->kv_head == unit.kv_head && share->tile == unit.tile) {
                ++*cursor;
                return true;
            }
    }
    return false;
}
