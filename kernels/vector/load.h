/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of every built-in format as floats, in registers' widths: what a kernel reads when the elements are no plain
 * floats. Compiled for each level of isa.h.
 */
#ifndef KVB_VECTOR_LOAD_H
#define KVB_VECTOR_LOAD_H

#include "kernels/attend.h"
#include "kernels/vector/isa.h"

/*
 * Rows of KV head h in the n cells listed, as they are stored: the transform is not undone, the head scale not applied
 * (both are applied to q, or to the result, once). rows: [n][stride] f32, 64-byte aligned, stride a multiple of 16 not
 * below view->dim; channels from view->dim on are set to 0.
 * Each element is code * scale + zero with the factors and the order of format->read, so that without transform and
 * head scale the bits are the same.
 */
typedef void kvb_load(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, float *rows, size_t stride);

/* The load of a format; NULL where there is none (a plug-in's own format: use format->read). */
kvb_load *KVB_ISA_NAME(kvb_load_of)(const kvb_format *format);

/* rows[c] = transformed row, in place: its own inverse but for the signs, which come last when `inverse`. */
void KVB_ISA_NAME(kvb_transform)(kvb_transform transform, uint32_t dim, bool inverse, float *row);

#endif
