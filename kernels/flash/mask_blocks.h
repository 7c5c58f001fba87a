/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tile of neighbouring query tokens sees, block by block of BLOCK cells, whatever the kind of the mask. Integers
 * only. It costs what is visible: blocks that no token of the tile sees are stepped over by runs. (Of EXPLICIT masks every
 * word is looked at.)
 */
#ifndef KVB_FLASH_MASK_BLOCKS_H
#define KVB_FLASH_MASK_BLOCKS_H

#include "kernels/vector/vector.h"

#define TILE_TOKS 256u /* most tokens of a tile */

/* Blocks want runs ascending. A RUNS mask with others becomes EXPLICIT, in bits: kvb_mask_bits_bytes(), 8-byte aligned. */
void kvb_mask_ascend(kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, void *bits);
size_t kvb_mask_bits_bytes(uint32_t n_tok, uint32_t n_cells);

typedef struct kvb_block {
    uint32_t first;           /* cell: a multiple of BLOCK */
    uint32_t n;               /* tokens that see some of it */
    uint32_t tok[TILE_TOKS];  /* which, counted from the tile's first; ascending */
    uint64_t word[TILE_TOKS]; /* bit i: sees cell first + i */
    uint64_t any;             /* all words together */
    uint32_t span;            /* so many blocks, from this one on, are seen alike: 1, or all words are full */
} kvb_block;

typedef struct kvb_blocks {
    const kvb_mask *mask;
    uint32_t n_cells;
    uint32_t tok, n;                                 /* the tile */
    uint32_t at;                                     /* cells below are done */
    const kvb_run *next[TILE_TOKS], *end[TILE_TOKS]; /* the runs of each token that are not done; not under EXPLICIT */
    kvb_run run[TILE_TOKS];                          /* the only one, under NONE and CAUSAL */
} kvb_blocks;

/* Tokens tok .. tok + n - 1 of the mask's n_tok; n <= TILE_TOKS. Runs are ascending. */
void kvb_blocks_start(kvb_blocks *blocks, const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint32_t tok,
                      uint32_t n);
/* The next block that some token sees, and those behind it that are seen alike. False: there is none. */
bool kvb_blocks_next(kvb_blocks *blocks, kvb_block *block);

#endif
