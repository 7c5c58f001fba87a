/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the work of one call is cut into equal parts. A unit is a tile of query tokens for one KV head. Units lie one
 * after the other, heads outermost, each as long as it costs, and part i takes the i-th of n equal lengths. A unit with
 * a border inside is split between its blocks of cells, and its shares are merged in the end. Integers only.
 */
#ifndef KVB_FLASH_PLAN_H
#define KVB_FLASH_PLAN_H

#include "kernels/attend.h"
#include "kernels/flash/mask_blocks.h"

#define TILE_ROWS   256u /* most rows (tokens x query heads of a KV head) of a tile, unless one token has more */
#define FIXED_PARTS 16u  /* of a deterministic problem, whatever the team */

typedef struct kvb_work_plan {
    const kvb_attend *args;
    uint32_t group; /* query heads of a KV head */
    uint32_t tile_toks, n_tiles;
    uint32_t n_parts;
    uint64_t part_cost, part_rest; /* of all units: of a part, and what is left over */
    uint64_t *tile_end;            /* [n_tiles] cost of all tiles up to this one, itself included, for one KV head */
} kvb_work_plan;

/* The share of a part in a unit: the blocks whose cost begins at begin .. end-1 of the unit's. */
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

/* Shares of a part, one after the other: call with *cursor = 0, again with the same cursor and share until it returns
 * false. */
bool kvb_plan_share(const kvb_work_plan *plan, uint32_t part, uint64_t *cursor, kvb_share *share);

/*
 * The shares of the unit that the border before `part` (1 .. n_parts-1) splits, in order: call with *cursor = 0, again
 * until it returns false. It does so at once if that border splits no unit, or one that an earlier border splits as
 * well.
 */
bool kvb_plan_split(const kvb_work_plan *plan, uint32_t part, uint32_t *cursor, kvb_share *share);

#endif
