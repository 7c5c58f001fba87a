/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one block of at most BLOCK cells of one KV head does to some query rows: scores, weights, sums. Compiled for each
 * level of isa.h. A query row is one token and one query head; rows here all belong to the block's KV head.
 *
 * Cells come as pointers to their rows (paged, strided and scattered cells are then all alike), query rows and the sums
 * likewise. Rows of K, V, q and of sums are `dim` floats or plain elements, dim a multiple of 16 (pad with zeros); dots() and
 * sums() take E4M3 and E5M2 too, dim then a multiple of FP8_DIM;
 * q and sums are 64-byte aligned, stored rows need not be. Scores and weights: [row][BLOCK] f32, 64-byte aligned.
 *
 * Two forms. Few rows: dots() and sums() read each stored element once, in place, for all of up to DOTS_ROWS rows.
 * Many rows: the block is packed (pack_keys, pack_values) and multiplied by product(), a register-blocked
 * matrix product.
 */
#ifndef KVB_VECTOR_MICRO_H
#define KVB_VECTOR_MICRO_H

#include "kernels/attend.h"
#include "kernels/vector/isa.h"

#define BLOCK     64u /* cells; the bits of a word */
#define DOTS_ROWS 8u
#define FP8_DIM   64u

/*
 * What dots() and sums() ask for while they work on a row: the one `bytes` further on, which the same function will probably
 * be given next time, and where `again` is set also those between here and there, at some places that are whole cells apart:
 * they were asked for before, which may have been in vain. Never read, so that it may be any address. Into which
 * cache and how often: kernels/prefetch.h.
 */
typedef struct kvb_ahead {
    size_t bytes; /* of a multiple of 8 cells, with `again` */
    bool again;
} kvb_ahead;

/*
 * Chains of f32 roundings (see kvb_arithmetic): dots() dim / VL and log2(VL), at most dim / 4 + 2 and less the wider the
 * vectors; product() depth; sums() n; and one more for the addition to what is there. So that a row's sums
 * over all cells have a chain of BLOCK and one for each block.
 */

/* scores[r][i] = q[r] . keys[i] for r < n_rows <= DOTS_ROWS, i < n <= BLOCK. keys: rows of elements as above.
 * From n on, up to a multiple of 16, scores are arbitrary. */
void KVB_ISA_NAME(kvb_dots)(kvb_elem elem, const float *const *q, uint32_t n_rows, const void *const *keys,
                            kvb_ahead ahead, uint32_t n, uint32_t dim, float *scores);

/* sums[r][c] += weights[r][i] values[i][c] for the same. A value that is not finite makes NaN of 0 weights, too. */
void KVB_ISA_NAME(kvb_sums)(kvb_elem elem, const float *weights, uint32_t n_rows, const void *const *values,
                            kvb_ahead ahead, uint32_t n, uint32_t dim, float *const *sums);

/* packed [dim][BLOCK] f32: packed[c][i] = keys[i][c]; where keys[i] is NULL and for i >= n: 0. */
void KVB_ISA_NAME(kvb_pack_keys)(kvb_elem elem, const void *const *keys, uint32_t n, uint32_t dim, float *packed);

/* packed [BLOCK][dim] f32: a copy of the rows, 0 where values[i] is NULL and for i >= n. */
void KVB_ISA_NAME(kvb_pack_values)(kvb_elem elem, const void *const *values, uint32_t n, uint32_t dim, float *packed);

/*
 * c[r][j] = sum over k of a[r][k] b[k][j], added to what c holds when `add`; r < rows (any number), k < depth,
 * j < width (a multiple of 16). b: [depth][width], 64-byte aligned.
 */
void KVB_ISA_NAME(kvb_product)(uint32_t rows, uint32_t depth, uint32_t width, const float *const *a, const float *b,
                               float *const *c, bool add);

/*
 * The softmax of one query row so far, in powers of two: weights are 2^(s log2(e) - max). max is a whole number, so that
 * going over to another one multiplies by a power of two: exact.
 */
typedef struct kvb_row_state {
    float max;  /* -infinity: nothing seen yet */
    double sum; /* of the weights; in double: thousands of equal weights drift in float */
} kvb_row_state;

/* How scores become exponents of two. */
typedef struct kvb_logits {
    float scale;   /* without softcap: scale * log2(e); with: scale / softcap */
    float softcap; /* 0: none; else softcap * log2(e), the factor on tanh */
} kvb_logits;

/*
 * Scores of one row [n rounded up to 16] become weights in place: 0 where bit i of `visible` is not set (whatever the
 * score is, NaN too) and from n on. The state's max is raised only when a weight would pass 2^8 (or at first), and then
 * to the block's own, rounded up. Returns what the row's earlier sums have to be multiplied by: 1, or a power of two
 * (0 when nothing was seen before).
 * Relative error of a weight: WEIGHT_ERROR of its exponential, apart from the roundings of its exponent: of s * scale (not
 * where there is a fused multiply-add) and of the difference from max.
 */
float KVB_ISA_NAME(kvb_weigh)(kvb_logits logits, float *scores, uint32_t n, uint64_t visible, kvb_row_state *state);
#define WEIGHT_ERROR 0x1p-23  /* found by trying every float: ci/tests/kernels/test_vector_weigh */
#define WEIGHT_FLOOR 0x1p-125 /* what falls below this, relative to the largest weight of the row, may have become 0 */
#define TANH_ERROR   0x1p-22  /* absolute, of tanh(scale s); found likewise */

/* sums[c] *= factor for c < dim. */
void KVB_ISA_NAME(kvb_rescale)(float *sums, uint32_t dim, float factor);

#endif
