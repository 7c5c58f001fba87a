/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer that scans: RMSNorm, a projection, the convolution and the recurrence through the op, the skip term, the gate
 * z, a norm, and a projection back. As Mamba (arXiv 2312.00752), Mamba-2 (2405.21060) and Gated DeltaNet (2412.06464)
 * have it, but that all of them have the norm.
 */
#ifndef KVB_LIVE_MIXER_H
#define KVB_LIVE_MIXER_H

#include "workloads/live/op.h"
#include "workloads/live/weights.h"

/* Working memory for n tokens. */
size_t kvb_mixer_floats(const kvb_model_config *config, uint32_t n);

/* Adds the layer's outputs to x [n][hidden]. 0 or what the op returned. */
int kvb_mixer_forward(const kvb_model_config *config, const kvb_layer_weights *weights, float *work, kvb_live_op *op,
                      const uint32_t *positions, uint32_t n, uint32_t layer, float *x);

/* y [rows] = w [rows][columns] x [columns]; out [n] = x [n] over its root mean square, times gain: out may be x. */
void kvb_live_project(const float *w, const float *x, size_t rows, size_t columns, float *y);
void kvb_live_normalise(const float *x, const float *gain, size_t n, float eps, float *out);

#endif
