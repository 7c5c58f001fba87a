/* SPDX-License-Identifier: Apache-2.0 */
/* One layer of one step over any cache and kernel. */
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
    const float *const rows[KVB_ROWS_KINDS] = {q, k, v};
    if (op->recorder)
        kvb_recorder_rows(op->recorder, layer, op->ordinals, n_tok, op->n_new, rows);
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

int kvb_fetch_states(kvb_live_op *op, const uint32_t *positions, uint32_t n_tok, uint32_t layer,
                     const float *const constants[])
{
    for (int c = 0; op->recorder && c < KVB_CONSTANTS; c++)
        op->recorder->constant[c][layer] = constants[c];
    int err = kvb_cache_fetch_states(op->cache, layer, positions, n_tok, &op->states);
    if (err)
        snprintf(op->why, sizeof op->why, "%s: %s", kvb_cache_type_of(op->cache)->name, kvb_cache_why(op->cache));
    return err;
}

int kvb_scan_layer(kvb_live_op *op, uint32_t layer, bool conv, const kvb_scan *x, float *out)
{
    const float *const of_conv[KVB_ROWS_KINDS] = {[KVB_ROWS_X] = x->v}, *const of_state[KVB_ROWS_KINDS] = {
                                                                            x->q, x->k, x->v, x->gate, x->beta};
    if (op->recorder)
        kvb_recorder_rows(op->recorder, layer, op->ordinals, op->states.n_tok, op->n_new, conv ? of_conv : of_state);
    int err = kvb_scan_call_prepare(&op->scan, &op->states, conv, x, op->why, sizeof op->why);
    if (err)
        return err;
    err = kvb_scan_call_run(&op->scan, out);
    if (err)
        snprintf(op->why, sizeof op->why, "kernel %s failed", op->scan.kernel->name);
    return err;
}
