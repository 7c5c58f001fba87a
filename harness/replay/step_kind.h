/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kind of step an event is, for timing it apart: prefill (several tokens of one sequence), decode (one token a
 * sequence), fork (a decode in which two branches of a trunk take part), verify (a draft tree), fill, control.
 */
#ifndef KVB_STEP_KIND_H
#define KVB_STEP_KIND_H

#include "results/result.h"
#include "workloads/trace.h"

static inline kvb_step_kind kvb_step_kind_of(const kvb_event *event)
{
    static const kvb_step_kind kinds[] = {[KVB_EVENT_STEP] = KVB_KIND_DECODE,
                                          [KVB_EVENT_PREFILL] = KVB_KIND_PREFILL,
                                          [KVB_EVENT_FILL] = KVB_KIND_FILL,
                                          [KVB_EVENT_PROPOSE] = KVB_KIND_VERIFY};
    return event->kind > KVB_EVENT_PROPOSE ? KVB_KIND_CONTROL
           : event->several                ? KVB_KIND_PREFILL
           : event->branches               ? KVB_KIND_FORK
                                           : kinds[event->kind];
}

#endif
