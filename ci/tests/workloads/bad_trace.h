/* SPDX-License-Identifier: Apache-2.0 */
/* A bad trace, and what is said of it. */
#ifndef KVB_TEST_BAD_TRACE_H
#define KVB_TEST_BAD_TRACE_H

#include "scratch.h"

#include "workloads/trace.h"

#include <errno.h>

/* events follow a good header unless `whole`. The message must hold "bad.jsonl:LINE: " and part. */
typedef struct bad {
    const char *text;
    int line;
    const char *part;
    bool whole;
    uint32_t capacity;
} bad;

#define WHOLE(text, reason)                                                                                            \
    {                                                                                                                  \
        text "\n", 1, reason, true, 0                                                                                  \
    }
#define VALUES ",\"values\":{\"profile\":\"gaussian\",\"seed\":1}"
#define DIMS   "\"kv_cache.heads\":4,\"kv_cache.kv_heads\":2,\"kv_cache.k_dim\":16,\"kv_cache.v_dim\":16"

static inline void check(const bad *b)
{
    char text[4096], why[400] = "", place[500];
    snprintf(text, sizeof text, "%s%s", b->whole ? "" : HEADER, b->text);
    const char *path = scratch_text("bad.jsonl", text);
    kvb_trace *trace;
    int err = kvb_trace_load(path, b->capacity, &trace, why, sizeof why);
    if (err != -EINVAL)
        fail_msg("%d for: %s", err, b->text);
    assert_null(trace);
    snprintf(place, sizeof place, "%s:%d: ", path, b->line);
    assert_contains(why, place);
    assert_contains(why, b->part);
    assert_null(strchr(why, '\n'));
}

#endif
