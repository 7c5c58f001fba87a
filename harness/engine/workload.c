/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded workload as a history of an engine's calls. A draft is decoded, and what is not accepted is removed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "harness/engine/engine.h"
#include "workloads/trace.h"

typedef struct drafts {
    uint32_t base[KVB_ENGINE_SEQS], pending[KVB_ENGINE_SEQS]; /* position of the first pending node, and how many */
    uint32_t slot[2];                                         /* saved last: of one sequence, of all */
} drafts;

static const char *tokens_take(const kvb_event *e, drafts *d, kvb_engine_call *c)
{
    c->verb = KVB_ENGINE_DECODE;
    for (uint32_t i = 0; i < e->n; i++) {
        const uint32_t s = e->seq[i];
        if (s >= KVB_ENGINE_SEQS)
            return "more than 4 sequences";
        if (e->kind == KVB_EVENT_PROPOSE) {
            if (e->parents[i] != (int32_t)d->pending[s] - 1)
                return "a draft tree with branches";
            d->base[s] = d->pending[s]++ ? d->base[s] : e->pos[i];
        }
        c->n[s]++;
    }
    return e->n <= KVB_SHADOW_TOKENS ? NULL : "more than 1024 tokens at once";
}

/* One event, as a call; *n: it needs so many. NULL, or what an engine has no call for. */
static const char *event_take(const kvb_event *e, drafts *d, kvb_engine_call *c, uint32_t *n)
{
    *n = 1;
    *c = (kvb_engine_call){.seq = e->src, .to = e->dst, .p0 = (int32_t)e->p0, .p1 = KVB_ENGINE_END, .delta = e->delta};
    if (e->p1 != KVB_TRACE_POS_END)
        c->p1 = (int32_t)e->p1;
    const bool all = (e->kind == KVB_EVENT_SAVE || e->kind == KVB_EVENT_LOAD) && e->src == KVB_TRACE_ALL;
    if (!all && (e->src >= KVB_ENGINE_SEQS || e->dst >= KVB_ENGINE_SEQS))
        return "more than 4 sequences";
    switch (e->kind) {
    case KVB_EVENT_STEP:
    case KVB_EVENT_PREFILL:
    case KVB_EVENT_FILL:
    case KVB_EVENT_PROPOSE:
        return tokens_take(e, d, c);
    case KVB_EVENT_COMMIT:
        for (uint32_t i = 0; i < e->n; i++)
            if (e->accepted[i] != i)
                return "a draft tree with branches";
        c->verb = KVB_ENGINE_REMOVE;
        c->p0 = (int32_t)(d->base[e->src] + e->n);
        c->p1 = KVB_ENGINE_END;
        *n = e->n < d->pending[e->src];
        d->pending[e->src] = 0;
        return NULL;
    case KVB_EVENT_SEQ_CP:
        c->verb = KVB_ENGINE_COPY;
        return NULL;
    case KVB_EVENT_SEQ_RM:
        c->verb = KVB_ENGINE_REMOVE;
        return NULL;
    case KVB_EVENT_SEQ_KEEP:
        c->verb = KVB_ENGINE_KEEP;
        return NULL;
    case KVB_EVENT_SEQ_ADD:
        c->verb = KVB_ENGINE_SHIFT;
        return NULL;
    case KVB_EVENT_REWIND:
        *c = (kvb_engine_call){.verb = KVB_ENGINE_REMOVE, .p0 = (int32_t)e->len, .p1 = KVB_ENGINE_END};
        return NULL;
    case KVB_EVENT_SAVE:
    case KVB_EVENT_LOAD:
        c->verb = e->kind == KVB_EVENT_SAVE ? KVB_ENGINE_SAVE : KVB_ENGINE_LOAD;
        if (e->kind == KVB_EVENT_LOAD && d->slot[all] != e->slot)
            return "several saved sequences at once";
        d->slot[all] = e->slot;
        return NULL;
    case KVB_EVENT_DEFRAG:
    case KVB_EVENT_REFUSED:
        *n = 0;
        return NULL; /* changes nothing */
    case KVB_EVENT_CLEAR:
    case KVB_EVENT_REORDER:
    case KVB_EVENT_SEQ_DIV:
    case KVB_EVENT_KINDS:
        break;
    }
    return kvb_event_kind_name(e->kind);
}

int kvb_engine_history_of(const char *path, kvb_engine_history *history, char *why, size_t why_bytes)
{
    kvb_trace *trace;
    drafts d = {.slot = {KVB_TRACE_SLOTS, KVB_TRACE_SLOTS}};
    int error = kvb_trace_load(path, 0, &trace, why, why_bytes);
    if (error)
        return error;
    *history = (kvb_engine_history){0};
    for (size_t i = 0; i < trace->n_events && !error; i++) {
        kvb_engine_call call;
        uint32_t n;
        const char *lack = event_take(&trace->events[i], &d, &call, &n);
        if (!lack && n && history->n == KVB_ENGINE_CALLS)
            lack = "more calls than a history holds";
        if (lack) {
            snprintf(why, why_bytes, "%s: line %llu: engines are not given this: %s", trace->header.name,
                     (unsigned long long)trace->events[i].line, lack);
            error = -ENOTSUP;
        } else if (n) {
            history->at[history->n++] = call;
        }
    }
    kvb_trace_free(trace);
    return error;
}
