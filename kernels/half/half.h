/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dots() and sums() of kernels/vector/micro.h by products of f16 (AVX-512 FP16): twice the lanes of f32, and f16 rows meet
 * them as they are stored. Sums of f16 are kept short: a lane adds HALF_CELLS cells, and the few such sums of a block; or a
 * part of a dot product, and parts are added as a tree.
 *
 * Rows are f16; e4m3 read as f16 of 2^-8 of its value; or codes of 8 bits, exact as f16, with f16 scales: ggml's blocks, or
 * code * scale + zero in groups of 32, 64 or 128 channels. dim is a multiple of 16, of 64 for e4m3, of the group for codes.
 * q is scaled by a power of two: its largest magnitude is in [2^3, 2^4), for e4m3 2^8 times that. Weights (at most 2^8)
 * likewise, by 2 and 2^7.
 * What passes f16's range that way is told, and left to f32: nothing is lost but time.
 */
#ifndef KVB_HALF_H
#define KVB_HALF_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/attend.h"
#include "kernels/cpu.h"
#include "kernels/vector/micro.h"

#define HALF_MAX_DIM 1024u
#define HALF_CELLS   16u

/* Chains of roundings to f16. 8 lanes of a row take dim / 8 products of a dot product each, and a tree of 3 additions;
 * 16 or 32 lanes take fewer, and trees of 4 or 5. A sum over a block goes by HALF_CELLS cells. */
#define HALF_DOT_CHAIN(dim) ((dim) / 8 + 4)
#define HALF_SUM_CHAIN      (HALF_CELLS + BLOCK / HALF_CELLS)

/* Too small for f16's normal numbers (oracle/bound.h): errors of one product are at most half of its smallest subnormal. */
#define HALF_ERROR     0x1p-25
#define HALF_LARGEST_Q 0x1p3 /* at least, after scaling */
/* What weights are scaled by. In the end a row's largest is at least a half. For e4m3 as if its rows were not 2^-8. */
#define HALF_WEIGHTS      2.0
#define HALF_WEIGHTS_E4M3 0.5

/* A query row: the factor that undoes its scaling, f16 from byte 64 on. */
static inline size_t kvb_half_query_bytes(uint32_t dim)
{
    return 64 + (size_t)(dim + 31) / 32 * 64;
}

/* q: `dim` floats, to: kvb_half_query_bytes(), 64-byte aligned. elem: of the K rows that it will meet. */
typedef void kvb_half_query_fn(kvb_elem elem, uint32_t dim, const float *q, void *to);

/* Rows of K or V, all of a block at most. */
typedef struct kvb_half_rows {
    kvb_elem elem;         /* F16, E4M3, Q8_0; UINT8 with f16 scales and zeros beside */
    uint32_t n, dim;       /* dim <= HALF_MAX_DIM */
    const void *const *at; /* [n]; never read past the row */
    kvb_ahead ahead;       /* as in micro.h */
    const kvb_view *view;  /* of UINT8, and for its scales: which cells these rows are, and of which KV head */
    const uint32_t *cells;
    uint32_t kv_head;
} kvb_half_rows;

/* As in micro.h, of encoded query rows. False: some score passed f16's range, or is truly not finite. */
typedef bool kvb_half_dots_fn(const kvb_half_rows *keys, const void *const *q, uint32_t n_rows, float *scores);
/* As in micro.h. False: some sum is not finite; sums are as they were. */
typedef bool kvb_half_sums_fn(const kvb_half_rows *values, const float *weights, uint32_t n_rows, float *const *sums);

typedef struct kvb_half {
    kvb_half_query_fn *query;
    kvb_half_dots_fn *dots;
    kvb_half_sums_fn *sums;
} kvb_half;

extern const kvb_half kvb_half_avx512fp16; /* x86-64 alone */

/* Has it 8-bit codes of such a kind? */
bool kvb_half_codes(const kvb_format *format);

/* Are rows of `dim` channels such, of which `values` are read as V's (all but where V lies in K's rows)? Else why not. */
bool kvb_half_fits(const kvb_format *format, uint32_t dim, uint32_t values, char *why, size_t why_bytes);

/* NULL below avx512fp16. */
const kvb_half *kvb_half_at(kvb_cpu_level level);

#endif
