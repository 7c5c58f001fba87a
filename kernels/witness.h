/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents of a witness kernel's scratch memory (a kernel with the flag KVB_KERNEL_WITNESS).
 *
 * A witness is replayed over rows that each spell out one 32-bit code, low bits in the first channel, repeated along
 * the row to its end:
 *     rows of 32 channels or more   32 symbols of 1 bit, a channel each: -1 and 1
 *     rows of 16 to 31              16 symbols of 2 bits: symbol s is 2s - 3
 * so that the code survives a lossy format. The witness decodes whole rows, reads each channel as the symbol nearest to it,
 * and lists the codes of the rows that a query may see. The writer of the rows gives codes a meaning
 * (workloads/values.h, profile `tags`); KVB_WITNESS_TORN is no code.
 *
 * Scratch layout, all uint32_t:
 *     count[n_tok][n_kv_heads]                       cells seen
 *     seen[n_tok][n_kv_heads][n_cells][2]            code of the K row, code of the V row
 * A row is listed as KVB_WITNESS_TORN if its repeats disagree (the last, partial one included), or if an element is no symbol:
 * NaN; with 1 bit, 0; with 2 bits, a number that is 1 or more away from every symbol.
 */
#ifndef KVB_WITNESS_H
#define KVB_WITNESS_H

#include "kernels/attend.h"

#define KVB_WITNESS_TORN    0xffffffffu
#define KVB_WITNESS_MIN_DIM 16u

static inline const uint32_t *kvb_witness_count(const void *scratch, const kvb_problem *p, uint32_t t, uint32_t h)
{
    return (const uint32_t *)scratch + (size_t)t * p->n_kv_heads + h;
}

/* Pairs {K code, V code} of what query t saw at KV head h; *kvb_witness_count() of them. */
static inline const uint32_t *kvb_witness_seen(const void *scratch, const kvb_problem *p, uint32_t t, uint32_t h)
{
    size_t rows = (size_t)p->n_tok * p->n_kv_heads;
    return (const uint32_t *)scratch + rows + 2 * ((size_t)t * p->n_kv_heads + h) * p->n_cells;
}

#endif
