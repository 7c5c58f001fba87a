/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding of one row of f32 elements into what a pool stores. Rounded to nearest even; overflow becomes
 * infinity; subnormals are kept; a NaN stays a NaN, made quiet, with the upper bits of its payload.
 */
#ifndef KVB_ENCODE_H
#define KVB_ENCODE_H

#include <stddef.h>
#include <stdint.h>

/* dst: n encoded elements; src: n floats. They do not overlap. */
typedef void kvb_row_encode(void *dst, const float *src, size_t n);

kvb_row_encode kvb_row_encode_f32;
kvb_row_encode kvb_row_encode_f16; /* F16C where the CPU has it: the same bits */
kvb_row_encode kvb_row_encode_bf16;

/* The f16 row in portable C, whatever the CPU. */
kvb_row_encode kvb_row_encode_f16_portable;

#endif
