/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More rows than fit into memory. The cells of a tall area are one block of a few MiB, mapped again and again, so that
 * byte offsets pass 2^32 while the area takes little more than that block. All cells hold the same bytes at first. A
 * write gives its page a copy of its own, so chosen rows may differ: each page written to takes memory, each page read
 * does not.
 *
 * The rows lie as a view says, codes, scales and zeros each in an area of their own. Beside an area lies address space
 * that must not be touched; between the last row and its end lies less than a page.
 */
#ifndef KVB_TALL_H
#define KVB_TALL_H

#include <stddef.h>
#include <stdint.h>

/* The row of KV head h in cell c: base + h * head_stride + c * cell_stride. */
typedef struct kvb_tall {
    unsigned char *base; /* aligned to a page */
    size_t head_stride;  /* cells * cell_stride */
    size_t cell_stride;
    void *mapping; /* with what must not be touched */
    size_t mapping_bytes;
} kvb_tall;

/*
 * An area of n_kv_heads * cells rows, each of which holds `row` [cell_stride bytes] until it is written; NULL: bytes
 * 0xff, NaN in every type of float. 0 or a negative errno: -ENOMEM, -EOVERFLOW (more than half of the address space),
 * or what the system refuses. The area is then {0}. Fork shares what is written before it, and keeps apart what is
 * written later.
 */
int kvb_tall_open(kvb_tall *tall, size_t cell_stride, uint32_t cells, uint32_t n_kv_heads, const void *row);
void kvb_tall_close(kvb_tall *tall); /* or one that is {0} */

/* Where a row lies, for writing too. */
static inline void *kvb_tall_row(const kvb_tall *tall, uint32_t h, uint32_t c)
{
    return tall->base + h * tall->head_stride + c * tall->cell_stride;
}

#endif
