/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion between f32 and the plain element types f32, f16 and bf16, and the reading of rows of any format as
 * floats. Encoding rounds to nearest even; overflow becomes infinity; subnormals are kept; a NaN stays a NaN, made
 * quiet. Decoding of plain elements is exact.
 */
#ifndef KVB_CONVERT_H
#define KVB_CONVERT_H

#include "kernels/attend.h"

/* Bytes of a plain element; 0 for any other. */
size_t kvb_elem_bytes(kvb_elem elem);

/* n elements; elem is plain; src and dst do not overlap. */
void kvb_elems_decode(kvb_elem elem, float *dst, const void *src, size_t n);
void kvb_elems_encode(kvb_elem elem, void *dst, const float *src, size_t n);

/* The same in portable C on any CPU, with the same bits. */
void kvb_elems_decode_portable(kvb_elem elem, float *dst, const void *src, size_t n);
void kvb_elems_encode_portable(kvb_elem elem, void *dst, const float *src, size_t n);

/*
 * Row of KV head h in cell c as floats: in place if it is stored so, else decoded into tmp [view->dim]. Where V lies in
 * K's rows (v_in_k) read the K view: a format's groups and transform are those of the whole row.
 */
const float *kvb_row_read(const kvb_view *view, uint32_t h, uint32_t c, float *tmp);

/* Rows of KV head h, cells c .. c+n-1, as floats, copied or decoded to rows [n][view->dim]. */
void kvb_rows_decode(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows);

/* Adds the roundings of these functions, for a kernel that reads K and V rows by them, to the declared chains. */
void kvb_arithmetic_add_decoding(const kvb_problem *problem, kvb_arithmetic *arithmetic);

/* Can the rows of both formats be read, is the output dtype plain, and do the head counts fit? */
bool kvb_readable_supports(const kvb_problem *problem, char *why, size_t why_bytes);

#endif
