/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buffers that a single call is handed, of either kind of call, and the call itself, watched: what it returns, what
 * it writes beside its outputs and into its inputs, what memory it takes.
 */
#ifndef KVB_CALLS_BUFFERS_H
#define KVB_CALLS_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/calls/verdict.h"

#define KVB_CALL_BUFFERS 16u /* most buffers of a call */

/* Zero at first. */
typedef struct kvb_call_buffers {
    struct kvb_call_buffer {
        const char *name;
        char *block, *at; /* guarded; what the kernel is handed, behind a canary that aligns it */
        size_t bytes;
        bool constant;
        char *was; /* a constant one's content */
    } of[KVB_CALL_BUFFERS];
    uint32_t n;
    void *scratch; /* NULL: none */
    size_t scratch_bytes;
} kvb_call_buffers;

/* Zeros whose start is a multiple of `align` bytes and of no larger power of two below 64. constant: an input. NULL: no
 * memory. */
void *kvb_call_buffer(kvb_call_buffers *buffers, const char *name, size_t bytes, size_t align, bool constant);
/* The constant ones are filled; no call may change them from now on. 0 or -ENOMEM. */
int kvb_call_buffers_keep(kvb_call_buffers *buffers);
/* Scratch of so many bytes instead of what there was. 0 or -ENOMEM. */
int kvb_call_scratch(kvb_call_buffers *buffers, size_t bytes);
void kvb_call_buffers_free(kvb_call_buffers *buffers);

/* Makes a call, with scratch that holds 0xff bytes. function: "attend()"; may_allocate: a foreign kernel may. */
void kvb_call_watch(const kvb_call_buffers *buffers, const char *function, int (*make)(void *ctx), void *ctx,
                    bool may_allocate, kvb_call_verdict *verdict);

#endif
