/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block products (kernels/vector/block_products.h) by pairs of bf16: AVX-512 BF16, which adds two products to a float. q
 * and weights are rounded to bf16; stored rows are exact, and sums are of f32, as flash's are: a chain of dim for a dot
 * product, of the cells of a block and one more for a sum.
 *
 * Rows are bf16, e4m3 or e5m2, without scales beside them; dim a multiple of 16. The instruction takes numbers below
 * 2^-126 for 0 and makes 0 of sums that come out there. A query row whose largest magnitude is below BF16_LEAST_Q is
 * multiplied by a power of two first, so that this is BF16_LOST of it at most.
 */
#ifndef KVB_BF16_H
#define KVB_BF16_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu.h"
#include "kernels/half/half.h"
#include "kernels/vector/block_products.h"

#define BF16_MAX_DIM 1024u

#define BF16_LEAST   0x1p-126
#define BF16_LEAST_Q 0x1p-40
#define BF16_LOST    (BF16_LEAST / BF16_LEAST_Q)

/* Can rows of this format and dim be multiplied so? Else the reason in why. */
bool kvb_bf16_fits(const kvb_format *format, uint32_t dim, char *why, size_t why_bytes);

/* Bytes of an encoded query row: the factor that undoes its scaling, bf16 from byte 64 on; zeros up to a multiple of 64
 * channels. */
static inline size_t kvb_bf16_query_bytes(uint32_t dim)
{
    return 64 + (size_t)(dim + 63) / 64 * 128;
}

/* Bytes of scratch, 64-byte aligned, for rows of at most `dim` channels. */
size_t kvb_bf16_scratch_bytes(uint32_t dim);

/* x86-64 alone. The second takes up to DOTS_ROWS rows and packs nothing: query rows are encoded alike; it is never false. */
extern const kvb_block_products kvb_bf16_avx512bf16;
extern const kvb_half kvb_bf16_few_avx512bf16;

/* NULL below avx512bf16. */
const kvb_block_products *kvb_bf16_at(kvb_cpu_level level);
const kvb_half *kvb_bf16_few_at(kvb_cpu_level level);

#endif
