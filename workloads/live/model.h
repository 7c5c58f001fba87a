/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward pass: embedding, then for every layer RMSNorm, q/k/v, QK-norm, RoPE, attention through the
 * op, o, residual, RMSNorm, SwiGLU, residual; then the final norm and the lm head. A layer that scans has a mixer in
 * attention's place.
 *
 * Latent attention (MLA, DeepSeek-V2, arXiv 2405.04434) is absorbed: with c the latent row, K = [U c; r] and V = W c,
 * q . K = [U' q; q's rest] . [c; r] and the mean of V is W times the mean of c. So the cache holds [c; r], one row for
 * all heads.
 *
 * Every token is computed on its own, in an order of sums that does not depend on how many tokens share
 * the step: its numbers are the same bits in a prefill, a batch, a tree and a decode step.
 */
#ifndef KVB_LIVE_MODEL_H
#define KVB_LIVE_MODEL_H

#include "workloads/live/op.h"
#include "workloads/live/weights.h"

/* Working memory of a forward pass, grown as needed; zero at first. */
typedef struct kvb_forward {
    float *block;
    size_t block_floats;
    float *scan_block; /* of layers that scan */
    size_t scan_floats;
} kvb_forward;

/*
 * tok [n]: vocabulary ids, positions [n]; logits [n_new][vocab] of the last n_new tokens.
 * 0, -ENOMEM or what the op returned (op->why).
 */
int kvb_model_forward(const kvb_weights *weights, kvb_forward *work, kvb_live_op *op, const int32_t *tok,
                      const uint32_t *positions, uint32_t n, uint32_t n_new, float *logits);
void kvb_forward_free(kvb_forward *work);

/* Rotate x [dim] to a position: pairs i, i + dim/2, angle position * theta^(-2i/dim). */
void kvb_model_rope(float *x, uint32_t dim, uint32_t position, double theta);

/* Greedy sampling: ids of the n largest logits, best first, the lower id first where two are equal.
 * n <= vocab. */
void kvb_model_best(const float *logits, uint32_t vocab, uint32_t n, int32_t *best);

#endif
