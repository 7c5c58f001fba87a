/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of single calls. */
#include "harness/calls/buffers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/replay/guard.h"
#include "harness/replay/heap_watch.h"

#define CANARY 0xc5

void *kvb_call_buffer(kvb_call_buffers *b, const char *name, size_t bytes, size_t align, bool constant)
{
    const size_t offset = align % 64;
    char *block = b->n < KVB_CALL_BUFFERS ? kvb_guard_alloc(name, bytes + offset) : NULL;
    if (!block)
        return NULL;
    memset(block, CANARY, offset);
    b->of[b->n++] = (struct kvb_call_buffer){
        .name = name, .block = block, .at = block + offset, .bytes = bytes, .constant = constant};
    return block + offset;
}

int kvb_call_buffers_keep(kvb_call_buffers *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        struct kvb_call_buffer *one = &b->of[i];
        if (!one->constant)
            continue;
        one->was = malloc(one->bytes + 1);
        if (!one->was)
            return -ENOMEM;
        memcpy(one->was, one->at, one->bytes);
    }
    return 0;
}

int kvb_call_scratch(kvb_call_buffers *b, size_t bytes)
{
    kvb_guard_free(b->scratch);
    b->scratch = bytes ? kvb_guard_alloc("scratch", bytes) : NULL;
    b->scratch_bytes = b->scratch ? bytes : 0;
    return bytes && !b->scratch ? -ENOMEM : 0;
}

void kvb_call_buffers_free(kvb_call_buffers *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        kvb_guard_free(b->of[i].block);
        free(b->of[i].was);
    }
    kvb_guard_free(b->scratch);
    *b = (kvb_call_buffers){.n = 0};
}

static bool is_whole(const char *from, const char *end)
{
    while (from < end && *from == (char)CANARY)
        from++;
    return from == end;
}

void kvb_call_watch(const kvb_call_buffers *b, const char *function, int (*make)(void *ctx), void *ctx,
                    bool may_allocate, kvb_call_verdict *verdict)
{
    char where[192];
    if (b->scratch)
        memset(b->scratch, 0xff, b->scratch_bytes);
    kvb_guard_null(b->scratch ? NULL : "scratch is NULL, as scratch_bytes() asked for none");
    kvb_threads_forget();
    kvb_heap_watch_start();
    const int returned = make(ctx);
    const uint64_t allocations = kvb_heap_watch_stop();
    kvb_guard_null(NULL);
    if (returned)
        kvb_call_wrong(verdict, KVB_CHECK_RETURN, "%s returned %d", function, returned);
    if (!kvb_guard_check(where, sizeof where))
        kvb_call_wrong(verdict, KVB_CHECK_MARGINS, "%s", where);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct kvb_call_buffer *one = &b->of[i];
        if (!is_whole(one->block, one->at))
            kvb_call_wrong(verdict, KVB_CHECK_MARGINS, "write before the start of %s", one->name);
        if (one->was && memcmp(one->at, one->was, one->bytes))
            kvb_call_wrong(verdict, KVB_CHECK_INPUTS, "%s wrote to %s", function, one->name);
    }
    if (kvb_threads_started() && !may_allocate) {
        kvb_threads_words(where, sizeof where);
        kvb_call_wrong(verdict, KVB_CHECK_ALLOCATIONS, "%s started a thread: %s", function, where);
    }
    if (allocations && !may_allocate) {
        kvb_heap_watch_words(where, sizeof where);
        kvb_call_wrong(verdict, KVB_CHECK_ALLOCATIONS, "%s allocated or freed memory: %s", function, where);
    }
}
