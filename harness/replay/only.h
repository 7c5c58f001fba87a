/* SPDX-License-Identifier: Apache-2.0 */
/* --only: the calls of a replay that are made and judged; the cache goes through all events before them. */
#ifndef KVB_ONLY_H
#define KVB_ONLY_H

#include <stdbool.h>
#include <stdint.h>

#include "workloads/trace.h"

typedef struct kvb_only {
    const char *text;            /* as typed; NULL: all calls */
    uint64_t event, line, layer; /* events count from 0, as in records; lines as in messages; UINT64_MAX: any */
} kvb_only;

/* "line=12,layer=0", each part once or left out: event, line, layer. -EINVAL with why. text NULL: all. */
int kvb_only_parse(const char *text, kvb_only *only, char *why, size_t why_bytes);
bool kvb_only_has(const kvb_only *only, const kvb_trace *trace, uint32_t event, uint32_t layer);
/* Has the trace such a call? Else why says so. */
bool kvb_only_fits(const kvb_only *only, const kvb_trace *trace, char *why, size_t why_bytes);
/* Called just before attend() of such a call, where --only is said: a place for a debugger to stop at. */
void kvb_only_stop(void);

#endif
