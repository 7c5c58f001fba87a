/* SPDX-License-Identifier: Apache-2.0 */
/* The bf16 pool: upper half of binary32, rounded, 2 bytes an element. */
#include "caches/pools/float_rows.h"

static const kvb_format format = {.name = "bf16", .elem = KVB_BF16, .axis = KVB_AXIS_NONE};

static size_t bytes(uint32_t n_kv_heads, uint32_t dim, uint32_t cells)
{
    return (size_t)n_kv_heads * cells * dim * sizeof(uint16_t);
}

const kvb_float_rows kvb_pool_bf16 = {
    .type =
        {
            .name = "bf16",
            .summary = "upper half of binary32, rounded, 2 bytes an element",
            .format = &format,
            .bytes = bytes,
            .open = kvb_float_rows_open,
            .close = kvb_float_rows_close,
            .ensure = kvb_float_rows_ensure,
            .write_run = kvb_float_rows_write_run,
            .scatter = kvb_float_rows_scatter,
            .gather_into = kvb_float_rows_gather_into,
            .view = kvb_float_rows_view,
            .reserved = kvb_float_rows_reserved,
        },
    .elem_bytes = sizeof(uint16_t),
    .encode = kvb_row_encode_bf16,
};
