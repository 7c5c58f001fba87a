/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block products (block_products.h) of integers: q and weights rounded to 8 bits, codes of K and V as they are stored. For formats whose
 * elements are (code - offset) * scale + zero, with a scale for a row or for neighbouring channels, and no transform.
 * Compiled for each level of isa.h (the fast one has VNNI).
 *
 * A query row is rounded to multiples of its largest magnitude / 127. A weight times the scale of a V group is rounded to
 * multiples of INT8_WEIGHT_STEP times the largest such product of the row and block.
 */
#ifndef KVB_VECTOR_INT8_H
#define KVB_VECTOR_INT8_H

#include "kernels/vector/block_products.h"
#include "kernels/vector/micro.h"

#define INT8_QUERY_STEP  (1.0 / 127)
#define INT8_WEIGHT_STEP (1.0 / 127)

/* Can rows of this format and dim be multiplied as integers? Else the reason in why. */
bool kvb_int8_fits(const kvb_format *format, uint32_t dim, char *why, size_t why_bytes);

/* Bytes of one encoded query row for K of this format (a multiple of 64), and of scratch for a block of up to `rows`
 * query rows. */
size_t kvb_int8_query_bytes(const kvb_format *k, uint32_t dim);
size_t kvb_int8_scratch_bytes(const kvb_format *k, const kvb_format *v, uint32_t k_dim, uint32_t v_dim, uint32_t rows);

kvb_block_query_fn KVB_ISA_NAME(kvb_int8_query);
kvb_block_scores_fn KVB_ISA_NAME(kvb_int8_scores);
kvb_block_sums_fn KVB_ISA_NAME(kvb_int8_sums);

#endif
