/* SPDX-License-Identifier: Apache-2.0 */
/* Binds what a cache says of a layer's states to a scan kernel, as call.h does for attention: states the problem,
 * provides scratch. */
#ifndef KVB_SCAN_CALL_H
#define KVB_SCAN_CALL_H

#include "caches/cache.h"

typedef struct kvb_scan_call {
    /* set by the caller, constant over a replay */
    const kvb_kernel *kernel; /* its face `scan` */
    const kvb_team *team;
    kvb_elem out_elem;               /* of recurrences; what follows a convolution is f32 */
    const kvb_memory_source *source; /* of scratch; NULL: the C library */
    /* owned by the call, grown as needed; zero at first */
    void *scratch[2]; /* of the recurrence; of the convolution, which takes turns with it */
    size_t scratch_bytes[2];
    kvb_scan args; /* of the call last prepared */
} kvb_scan_call;

/* The problem of a layer: of its recurrence or, conv, of the convolution before it. run: of the longest run. */
kvb_scan_problem kvb_scan_call_problem(const kvb_group_scan *scan, bool conv, kvb_elem out_elem, uint32_t n_tok,
                                       uint32_t run);
/*
 * Prepares a call for the tokens of spec. inputs: q, k, v, gate, beta, a and bias as in kernels/scan.h; its other fields
 * are not read. 0; -ENOTSUP with the kernel's reason in why; -ENOMEM.
 */
int kvb_scan_call_prepare(kvb_scan_call *call, const kvb_scan_spec *spec, bool conv, const kvb_scan *inputs, char *why,
                          size_t why_bytes);
/* Runs what was prepared into out. The kernel's result. */
int kvb_scan_call_run(kvb_scan_call *call, void *out);
void kvb_scan_call_free(kvb_scan_call *call);

#endif
