/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kind of step an event is, for timing it apart: prefill (several tokens of one sequence), decode (one token a
 * sequence), fork (a decode in which sequences of one trunk take part together), verify (a draft tree), fill, control.
 */
#ifndef KVB_STEP_KIND_H
#define KVB_STEP_KIND_H

#include "results/result.h"
#include "workloads/trace.h"

/* Which sequences stem from one trunk. Zero at first: none do. */
typedef struct kvb_kinship {
    uint16_t family[KVB_TRACE_MAX_SEQS];      /* of each sequence: that of the trunk it was copied from last; 0: none */
    uint16_t members[KVB_TRACE_MAX_SEQS + 1]; /* of each family */
    uint16_t saved[KVB_TRACE_SLOTS];          /* family of the sequence that a slot holds; of all none is known */
} kvb_kinship;

/* Learn from a control event. */
void kvb_kinship_apply(kvb_kinship *kinship, const kvb_event *event);

kvb_step_kind kvb_step_kind_of(const kvb_kinship *kinship, const kvb_event *event);

#endif
