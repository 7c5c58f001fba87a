/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tile of neighbouring query tokens sees, in blocks of BLOCK cells, for every kind of mask. A block also says
 * which tokens' rows meet it as one group. Integers only. A block that no token of the tile sees costs nothing, but an
 * EXPLICIT mask is read whole.
 */
#ifndef KVB_FLASH_MASK_BLOCKS_H
#define KVB_FLASH_MASK_BLOCKS_H

#include "kernels/vector/vector.h"

#define TILE_TOKS 256u /* most tokens of a tile */

/* Makes a mask fit for kvb_blocks, which needs ascending runs. PAGES, and RUNS in another order, become EXPLICIT. So do
 * RUNS with more runs than words: each KV head walks them. bits: kvb_mask_bits_bytes(), 8-byte aligned. */
void kvb_mask_ascend(kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, void *bits);
size_t kvb_mask_bits_bytes(uint32_t n_tok, uint32_t n_cells);

/* Are the word's ones neighbours, or is it 0? */
static inline bool kvb_word_is_run(uint64_t word)
{
    return !(word & (word + (word & -word)));
}

static inline uint32_t kvb_word_cells(uint64_t word)
{
    if (word && kvb_word_is_run(word)) /* without a call: not every CPU counts bits by itself */
        return BLOCK - (uint32_t)(__builtin_clzll(word) + __builtin_ctzll(word));
    return (uint32_t)__builtin_popcountll(word);
}

/* What a token sees of a block. */
typedef struct kvb_seen {
    uint64_t word;  /* bit i: the token sees cell first + i; not 0 */
    uint32_t cells; /* how many bits are set */
    uint16_t tok;   /* counted from the tile's first */
    uint16_t same;  /* tokens with this word, from this one on; set only for the first of them */
} kvb_seen;

/* The cost of a group of rows that meet the same cells: about cycles, for rows of 128 channels. */
typedef uint32_t kvb_group_cost(uint32_t rows, uint32_t cells);

typedef struct kvb_block {
    const kvb_seen *seen; /* [n] tokens that see some of it, ascending */
    uint64_t any;         /* the OR of all words */
    uint64_t cost;        /* of one block of the span */
    uint32_t first;       /* cell: a multiple of BLOCK */
    uint32_t n;
    uint32_t span; /* blocks from this one on that the same tokens see whole; 1: only this one, maybe in part */
    bool together; /* all rows are one group: it costs no more than a group for each word */
} kvb_block;

/* Sets the block's cost and `together`, and `same` of its tokens. heads: query heads of a KV head. */
void kvb_block_weigh(kvb_block *block, kvb_seen *seen, kvb_group_cost *cost, uint32_t heads);

#define KEPT_BLOCKS 512u
#define KEPT_SEEN   2048u

/* The blocks of a tile. They are kept for the other KV heads if they are few: those of 16 sequences that each have
 * 2,048 cells in pages of 16 are. */
typedef struct kvb_blocks {
    const kvb_mask *mask;
    kvb_group_cost *cost;
    uint32_t heads, n_cells;
    uint32_t tok, n;                                 /* the tile */
    uint32_t at;                                     /* cells below this one are done */
    uint32_t live;                                   /* runs of tokens before this one are done; not under EXPLICIT */
    const kvb_run *next[TILE_TOKS], *end[TILE_TOKS]; /* runs of each token still to come; not under EXPLICIT */
    kvb_run run[TILE_TOKS];                          /* each token's only run, under NONE and CAUSAL */
    kvb_seen seen[KEPT_SEEN];                        /* of kept blocks; of the last two, if they are too many */
    uint32_t n_seen;                                 /* the next one's place */
    kvb_block kept[KEPT_BLOCKS];
    uint32_t n_kept, given;
    bool lost, known; /* lost: some blocks are not kept; known: all are */
} kvb_blocks;

/* Opens the blocks of a mask with ascending runs. cost: of a group; heads: query heads of a KV head. */
void kvb_blocks_open(kvb_blocks *blocks, const kvb_mask *mask, uint32_t n_cells, kvb_group_cost *cost, uint32_t heads);
/* Begins with the first block of tokens tok .. tok + n - 1 of the mask's n_tok; n <= TILE_TOKS. */
void kvb_blocks_start(kvb_blocks *blocks, uint32_t n_tok, uint32_t tok, uint32_t n);
/* Gives the next block that some token sees, with its span; valid until the call after next. False: none is left. */
bool kvb_blocks_next(kvb_blocks *blocks, kvb_block *block);

#endif
