/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion between f32 and the plain element types f32, f16 and bf16, and the reading of rows whose
 * format is plain (no scales, no transform). Encoding rounds to nearest even; overflow becomes infinity;
 * subnormals are kept; a NaN stays a NaN, made quiet. Decoding is exact.
 */
#ifndef KVB_CONVERT_H
#define KVB_CONVERT_H

#include "attend.h"

/* Bytes of a plain element; 0 for any other. */
size_t kvb_elem_bytes(kvb_elem elem);

/* n elements; elem is plain; src and dst do not overlap. */
void kvb_elems_decode(kvb_elem elem, float *dst, const void *src, size_t n);
void kvb_elems_encode(kvb_elem elem, void *dst, const float *src, size_t n);

/* The same in portable C, whatever the CPU: the same bits. */
void kvb_elems_decode_portable(kvb_elem elem, float *dst, const void *src, size_t n);
void kvb_elems_encode_portable(kvb_elem elem, void *dst, const float *src, size_t n);

/* Row of KV head h in cell c as floats: in place when it is f32, else decoded into tmp [view->dim]. */
const float *kvb_row_read(const kvb_view *view, uint32_t h, uint32_t c, float *tmp);

/* Are both formats plain, is the output dtype plain, and do the head counts fit? */
bool kvb_plain_supports(const kvb_problem *problem, char *why, size_t why_bytes);

#endif
