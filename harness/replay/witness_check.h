/* SPDX-License-Identifier: Apache-2.0 */
/* Oracle question 1: compares what a witness kernel saw with the oracle's visible sets, token by token. */
#ifndef KVB_WITNESS_CHECK_H
#define KVB_WITNESS_CHECK_H

#include "kernels/attend.h"
#include "workloads/history.h"
#include "workloads/values.h"

typedef struct kvb_witness_check {
    uint64_t queries, cells; /* checked so far: (query, layer, KV head), and cells they saw */
    uint64_t *stamp;         /* [tokens] epoch in which a token was expected or met */
    uint64_t tokens, epoch;
    kvb_tag tag; /* how rows spell out their codes */
} kvb_witness_check;

/* model: whose values profile `tags` made. 0 or -ENOMEM */
int kvb_witness_check_open(kvb_witness_check *check, const kvb_model *model, uint64_t tokens);
void kvb_witness_check_close(kvb_witness_check *check);

/*
 * After a witness ran on a step of problem->n_tok queries, the last n_new of which are the event's tokens:
 * each must have seen exactly the tokens that it may see in this layer, each once, at every KV head, in K and in V.
 * 0; 1 with the first difference in why; -ENOMEM.
 */
int kvb_witness_check_step(kvb_witness_check *check, kvb_history *history, const kvb_group *group,
                           const kvb_problem *problem, const void *scratch, uint32_t n_new, uint32_t layer, char *why,
                           size_t why_bytes);

#endif
