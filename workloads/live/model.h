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

#include "caches/cache.h"
#include "caches/call.h"
#include "kernels/view.h"
#include "workloads/live/recorder.h"
#include "workloads/live/weights.h"

/*
 * The kernel that traces are recorded with: sums in double, rounded to f32 once. The order in which a
 * cache happens to hold its cells then leaves no mark on the recorded numbers.
 */
extern const struct kvb_kernel kvb_live_kernel_exact; /* f32 rows and output only */

/*
 * The ops through which the live model meets a cache: store this step's K and V of a layer, attend; or fetch its
 * states, scan. It is the same code over every cache and every kernel; the model knows neither.
 */
typedef struct kvb_live_op {
    kvb_cache *cache;
    kvb_call call;          /* kernel, team, type of the output */
    kvb_scan_call scan;     /* of layers that scan */
    kvb_recorder *recorder; /* NULL: nothing is recorded */
    /* of the current step */
    const uint64_t *ordinals; /* of the fed tokens */
    uint32_t n_fed, n_new;    /* fed tokens; the last n_new of them are the step's own */
    kvb_scan_spec states;     /* of the layer that scans last begun */
    char why[192];
} kvb_live_op;

/* Tell the op that the cache has a plan whose last n_new fed tokens are new. */
void kvb_live_op_begin(kvb_live_op *op, uint32_t n_new);

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

/* Greedy sampling: ids of the n largest logits, best first, the lower id first where two are equal.
 * n <= vocab. */
void kvb_model_best(const float *logits, uint32_t vocab, uint32_t n, int32_t *best);

#endif
