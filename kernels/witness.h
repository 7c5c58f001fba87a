/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a witness kernel leaves in its scratch memory (a kernel with the flag KVB_KERNEL_WITNESS).
 *
 * It is replayed over rows in which 16 consecutive channels hold one 32-bit code as 16 symbols of
 * 2 bits (low bits in the first channel), symbol s stored as the value 2s - 3, and the pattern is
 * repeated along the row. It decodes each row that a query may see, and lists the codes. The rows need
 * k_dim and v_dim of at least 16. The code's meaning belongs to whoever wrote the rows
 * (workloads/values.h, profile `tags`).
 *
 * Scratch layout, all uint32_t:
 *     count[n_tok][n_kv_heads]                       cells seen
 *     seen[n_tok][n_kv_heads][n_cells][2]            code of the K row, code of the V row
 * A row whose repeats disagree, or whose values are no symbols, is listed as KVB_WITNESS_TORN.
 */
#ifndef KVB_WITNESS_H
#define KVB_WITNESS_H

#include "attend.h"

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
