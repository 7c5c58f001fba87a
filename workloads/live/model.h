/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward pass: embedding, then for every layer RMSNorm, q/k/v, QK-norm, RoPE, attention through the op, o,
 * residual, RMSNorm, SwiGLU, residual; then the final norm and the lm head. In a layer that scans a mixer replaces
 * attention.
 *
 * Latent attention (MLA, DeepSeek-V2, arXiv 2405.04434) is absorbed: with c the latent row, K = [U c; r] and V = W c,
 * q . K = [U' q; q's rest] . [c; r] and the mean of V is W times the mean of c. So the cache holds [c; r], one row for
 * all heads.
 *
 * Every token is computed by itself, in an order of sums that does not depend on the number of tokens in the step: its
 * numbers have the same bits in a prefill, a batch, a tree and a decode step.
 */
#ifndef KVB_LIVE_MODEL_H
#define KVB_LIVE_MODEL_H

#include "caches/cache.h"
#include "caches/call.h"
#include "kernels/view.h"
#include "workloads/live/recorder.h"
#include "workloads/live/weights.h"

/*
 * The kernel with which traces are recorded: sums in double, rounded to f32 once. So recorded numbers do not depend on
 * the order in which a cache holds its cells.
 */
extern const struct kvb_kernel kvb_live_kernel_exact; /* f32 rows and output only */

/*
 * The op connects the live model to a cache and a kernel, neither of which the model knows: for a layer it stores the
 * step's K and V and attends, or fetches states and scans.
 */
typedef struct kvb_live_op {
    kvb_cache *cache;
    kvb_call call;          /* kernel, team, type of the output */
    kvb_scan_call scan;     /* of layers that scan */
    kvb_recorder *recorder; /* NULL: nothing is recorded */
    /* of the current step */
    const uint64_t *ordinals; /* of the fed tokens */
    uint32_t n_fed, n_new;    /* fed tokens; the last n_new of them are the step's own */
    kvb_scan_spec states;     /* of the last layer that scans */
    kvb_arena arena;          /* of a forward pass */
    char why[192];
} kvb_live_op;

void kvb_live_op_free(kvb_live_op *op);

/* Computes the step that the op describes and the cache has planned. tok [n_fed]: vocabulary ids, positions [n_fed];
 * logits [n_new][vocab] of the last n_new tokens. 0, -ENOMEM, or the op's error (op->why). */
int kvb_model_forward(const kvb_weights *weights, kvb_live_op *op, const int32_t *tok, const uint32_t *positions,
                      float *logits);

/* Greedy sampling: ids of the n largest logits, best first; of equal ones the lower id first. n <= vocab. */
void kvb_model_best(const float *logits, uint32_t vocab, uint32_t n, int32_t *best);

#endif
