/* SPDX-License-Identifier: Apache-2.0 */
/* kvb_update_and_attend: one layer of one step over any cache and kernel. */
#include "workloads/live/op.h"

#include <stdio.h>

void kvb_live_op_begin(kvb_live_op *op, uint32_t n_new)
{
    op->n_fed = kvb_cache_feed(op->cache, &op->ordinals);
    op->n_new = n_new;
}

int kvb_update_and_attend(kvb_live_op *op, const float *q, const float *k, const float *v, const uint32_t *positions,
                          uint32_t n_tok, uint32_t layer, void *out)
{
    if (op->recorder) {
        int err = kvb_recorder_rows(op->recorder, layer, op->ordinals, n_tok, op->n_new, q, k, v);
        if (err) {
            snprintf(op->why, sizeof op->why, "no memory to record layer %u", layer);
            return err;
        }
    }
    kvb_attend_spec spec;
    int err = kvb_cache_update_and_fetch(op->cache, layer, positions, k, v, n_tok, &spec);
    if (err) {
        snprintf(op->why, sizeof op->why, "%s: %s", kvb_cache_type_of(op->cache)->name, kvb_cache_why(op->cache));
        return err;
    }
    err = kvb_call_prepare(&op->call, &spec, q, n_tok, op->why, sizeof op->why);
    if (err)
        return err;
    err = kvb_call_run(&op->call, out, NULL);
    if (err)
        snprintf(op->why, sizeof op->why, "kernel %s failed", op->call.kernel->name);
    return err;
}
