/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts the work of one call into parts of equal cost. A unit is a tile of query tokens for one KV head. Units lie one
 * after the other, heads outermost, each as long as its cost; part i of n is the i-th of n equal lengths. A unit with a
 * border inside is split between two of its blocks of cells, and its shares are merged in the end. Integers only.
 */
#ifndef KVB_FLASH_PLAN_H
#define KVB_FLASH_PLAN_H

#include "kernels/attend.h"
#include "kernels/flash/mask_blocks.h"

#define TILE_ROWS   512u /* most rows (tokens x query heads of a KV head) of a tile */
#define FIXED_PARTS 16u  /* of a deterministic problem, whatever the team */

static inline uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

typedef struct kvb_work_plan {
    const kvb_attend *args;
    uint32_t group; /* query heads of a KV head */
    uint32_t tile_toks, n_tiles;
    uint32_t n_parts;
    uint64_t part_cost, part_rest; /* cost of all units divided by n_parts, and the remainder */
    uint64_t *tile_end;            /* [n_tiles] cost of all tiles up to this one, itself included, for one KV head */
} kvb_work_plan;

/* A part's share of a unit: the blocks that begin at costs begin .. end-1 of the unit. */
typedef struct kvb_share {
    uint32_t kv_head, tile;
    uint64_t begin, end;
    bool whole;    /* no other part has a share in this unit */
    uint32_t slot; /* where the part leaves its result, unless whole: 2 * part, or 2 * part + 1 */
} kvb_share;

uint32_t kvb_plan_tile_toks(const kvb_problem *problem);
uint32_t kvb_plan_tiles(const kvb_problem *problem);
uint32_t kvb_plan_parts(const kvb_problem *problem, uint32_t n_threads);

/* Costs of all tiles, from the mask. tile_end: [kvb_plan_tiles()] */
void kvb_plan_make(kvb_work_plan *plan, const kvb_attend *args, kvb_group_cost *cost, uint64_t *tile_end);

/* Token where a tile begins, and how many it has. */
uint32_t kvb_plan_tok(const kvb_work_plan *plan, uint32_t tile);
uint32_t kvb_plan_toks(const kvb_work_plan *plan, uint32_t tile);

/* Gives the shares of a part, in order: call with *cursor = 0, again with the same cursor and share until false. */
bool kvb_plan_share(const kvb_work_plan *plan, uint32_t part, uint64_t *cursor, kvb_share *share);

/*
 * Gives the shares of the unit that the border before `part` (1 .. n_parts-1) splits, in order: call with *cursor = 0,
 * again until false. False at once: that border splits no unit, or a unit that an earlier border splits, too.
 */
bool kvb_plan_split(const kvb_work_plan *plan, uint32_t part, uint32_t *cursor, kvb_share *share);

#endif
