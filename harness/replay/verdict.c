/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on a replay's outputs. */
#include "harness/replay/verdict.h"

#include <inttypes.h>

void kvb_diff_judge(const kvb_diff *d, const kvb_oracle *oracle, uint64_t passes, const kvb_trace *trace,
                    kvb_result *result)
{
    result->rho = d->rho;
    result->error.rho_worst = d->rho_worst;
    result->error.rho_lse = d->rho_lse;
    result->error.max_abs = d->max_abs;
    result->error.rel_l2 = d->rel_l2;
    result->error.not_finite = d->not_finite;
    result->error.checked_rows = d->rows / passes;
    result->error.total_rows = oracle->total_rows;
    result->error.has_place = d->rows > 0;
    result->error.event = d->event;
    result->error.layer = d->layer;
    result->error.query = d->query;
    result->error.head = d->head;
    result->error.channel = d->channel;
    result->error.got = d->got;
    result->error.want = d->want;
    result->error.bound = d->bound;
    result->error.format_max_abs = oracle->format.max_abs;
    result->error.format_rel_l2 = oracle->format.rel_l2;
    result->error.format_kl_mean = oracle->format.kl_mean;
    result->error.format_kl_max = oracle->format.kl_max;
    result->status = KVB_STATUS_FAIL;
    if (d->rows != oracle->n_rows * passes)
        snprintf(result->reason, sizeof result->reason,
                 "%" PRIu64 " rows were compared in %" PRIu64 " passes, %zu in each were to be", d->rows, passes,
                 oracle->n_rows);
    else if (!(d->rho <= 1)) {
        char where[32] = "log-sum-exp";
        if (d->channel < kvb_model_group(&trace->header.model, d->layer)->v_dim)
            snprintf(where, sizeof where, "channel %u", d->channel);
        snprintf(result->reason, sizeof result->reason,
                 "rho %.3g at line %" PRIu64 ", layer %u, query %u, head %u, %s: got %.9g, exact %.9g, bound %.3g",
                 d->rho, trace->events[d->event].line, d->layer, d->query, d->head, where, d->got, d->want, d->bound);
    } else
        result->status = KVB_STATUS_PASS;
}
