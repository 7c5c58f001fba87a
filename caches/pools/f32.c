/* SPDX-License-Identifier: Apache-2.0 */
/* The f32 pool: rows as they come, 4 bytes an element. */
#include "caches/pools/float_rows.h"

static const kvb_format format = {.name = "f32", .elem = KVB_F32, .axis = KVB_AXIS_NONE};

static size_t bytes(uint32_t n_kv_heads, uint32_t dim, uint32_t cells)
{
    return (size_t)n_kv_heads * cells * dim * sizeof(float);
}

const kvb_float_rows kvb_pool_f32 = {
    .type =
        {
            .name = "f32",
            .summary = "rows as they come, 4 bytes an element",
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
    .elem_bytes = sizeof(float),
    .encode = kvb_row_encode_f32,
};
