/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops through which the live model meets a cache: store this step's K and V of a layer, attend; or fetch its
 * states, scan. It is the same code over every cache and every kernel; the model knows neither.
 */
#ifndef KVB_LIVE_OP_H
#define KVB_LIVE_OP_H

#include "caches/cache.h"
#include "caches/call.h"
#include "caches/scan_call.h"
#include "workloads/live/recorder.h"

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

/*
 * Store k [n_tok][kv_heads][dim] and v (latent: NULL), fetch the cache's spec, attend q [n_tok][heads][dim] into
 * out [n_tok][heads][dim] of the call's out_elem. positions [n_tok]: of the fed tokens. 0 or a negative errno (why).
 */
int kvb_update_and_attend(kvb_live_op *op, const float *q, const float *k, const float *v, const uint32_t *positions,
                          uint32_t n_tok, uint32_t layer, void *out);

/* A layer that scans: the states that its calls go by. constants [KVB_CONSTANTS]: what is recorded as the layer's own.
 */
int kvb_fetch_states(kvb_live_op *op, const uint32_t *positions, uint32_t n_tok, uint32_t layer,
                     const float *const constants[]);
/* Its convolution, and then its recurrence, over all fed tokens: inputs as kernels/scan.h names them; out f32. */
int kvb_scan_layer(kvb_live_op *op, uint32_t layer, bool conv, const kvb_scan *inputs, float *out);

#endif
