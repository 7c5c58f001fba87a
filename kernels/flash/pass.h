/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass of a tile of query rows over blocks of cells of one KV head: what is seen of a block is read once, for all
 * rows of the tile that see it.
 */
#ifndef KVB_FLASH_PASS_H
#define KVB_FLASH_PASS_H

#include "kernels/flash/plan.h"
#include "kernels/flash/rows.h"
#include "kernels/half/half.h"
#include "kernels/prefetch.h"

/* Softmax and sums of the rows of a tile so far; row r is token r / group and query head r % group of the tile. */
typedef struct kvb_partial {
    kvb_row_state *state; /* [rows] */
    float *sums;          /* [rows][width of V], 64-byte aligned */
} kvb_partial;

/* What q and K, weights and V are multiplied as. */
typedef enum kvb_products {
    KVB_PRODUCTS_FLOAT,
    KVB_PRODUCTS_INT8, /* kernels/vector/int8.h */
    KVB_PRODUCTS_BF16, /* kernels/bf16/bf16.h */
    KVB_PRODUCTS_HALF, /* kernels/half/half.h */
} kvb_products;

/* What a call is made of; the same for all threads. */
typedef struct kvb_flash {
    const kvb_attend *args;
    const kvb_vector *vector;
    const kvb_half *half;      /* of KVB_PRODUCTS_HALF; few rows of KVB_PRODUCTS_BF16; else NULL */
    kvb_block_products blocks; /* of KVB_PRODUCTS_INT8 and KVB_PRODUCTS_BF16; else NULLs */
    const kvb_prefetch *prefetch;
    kvb_plan plan;
    kvb_side k, v; /* v is k where V lies in K's rows */
    kvb_logits logits;
    kvb_products products;
    size_t
        query_bytes; /* of one encoded query row: integers; or floats, behind bf16 or halves if those are multiplied */
    size_t query_floats; /* where in it its floats are */
} kvb_flash;

/* Cells that one token sees and that wait until there are enough of them. */
typedef struct kvb_waiting {
    uint32_t n, cell[BLOCK];
} kvb_waiting;

/* Working memory of a thread, 64-byte aligned. */
typedef struct kvb_workspace {
    char *queries;        /* [rows][query_bytes] */
    float *scores;        /* [rows][BLOCK] */
    float *k_tile;        /* [BLOCK][width of K] */
    float *v_tile;        /* [BLOCK][width of V] */
    float *packed;        /* [BLOCK * larger width]; only of KVB_PRODUCTS_FLOAT */
    void *block;          /* scratch of block products */
    kvb_waiting *waiting; /* [tokens of a tile] */
} kvb_workspace;

/* Encode the query rows of a tile for KV head `kv_head`: transformed, scaled, padded; or as integers; or as
 * bf16 or halves, too. */
void kvb_flash_queries(const kvb_flash *flash, uint32_t kv_head, uint32_t tile, const kvb_workspace *workspace);

/* The share's blocks, into a partial that is overwritten. kvb_flash_queries() was called. */
void kvb_flash_pass(const kvb_flash *flash, const kvb_share *share, const kvb_workspace *workspace,
                    const kvb_partial *partial);

/* What a group of rows costs: see plan.h. */
extern kvb_group_cost *const kvb_flash_costs[];

#endif
