/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From requests to events. Requests are admitted in order of arrival while fewer than `sequences` are alive, each under
 * the lowest free id. The longest prefix that a live sequence holds in its own prompt enters by seq_cp, the rest by
 * prefill. Then all live sequences decode one token each, in one step. A sequence with all its output leaves by seq_rm.
 * Every token of an output enters the cache.
 */
#include "workloads/import/import.h"
#include "workloads/trace.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Heads and dims of Llama 3 8B, one layer: the cost of a layer's attention does not depend on their number. */
static const kvb_model model = {
    .n_layers = 1,
    .n_groups = 1,
    .groups =
        {{.heads = 32, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .scale = 0.08838834764831845 /* 1/sqrt(128) */}},
};

typedef struct live_sequence {
    const kvb_import_request *request; /* NULL: dead */
    uint32_t length;                   /* tokens held */
} live_sequence;

typedef struct schedule {
    const kvb_import_options *options;
    live_sequence live[KVB_TRACE_MAX_SEQS];
    uint32_t alive, pos[KVB_TRACE_MAX_SEQS], seq[KVB_TRACE_MAX_SEQS]; /* of a step */
    kvb_output_file file;
    kvb_import_outcome *outcome;
} schedule;

/* Tokens of the request's prompt that the live sequence holds in its own prompt. The request's last token is never
 * shared, since its query is needed. Block counts are rounded up, hence the clamps. */
static uint32_t shared_tokens(const kvb_import_options *options, const kvb_import_request *request,
                              const live_sequence *live)
{
    const kvb_import_request *other = live->request;
    uint32_t block = options->format->block_tokens / options->shrink;
    size_t same = 0;
    while (same < request->n_blocks && same < other->n_blocks && request->blocks[same] == other->blocks[same])
        same++;
    size_t tokens = same * (block ? block : 1);
    tokens = tokens < request->input - 1 ? tokens : request->input - 1;
    return (uint32_t)(tokens < other->input ? tokens : other->input);
}

static void request_admit(schedule *s, const kvb_import_request *request)
{
    uint32_t id = 0, source = 0, shared = 0;
    while (s->live[id].request)
        id++;
    assert(id < s->options->sequences);
    for (uint32_t i = 0; i < s->options->sequences; i++) {
        uint32_t tokens = s->live[i].request ? shared_tokens(s->options, request, &s->live[i]) : 0;
        if (tokens > shared) {
            source = i;
            shared = tokens;
        }
    }
    if (shared)
        kvb_event_print(s->file.stream,
                        &(kvb_event){.kind = KVB_EVENT_SEQ_CP, .src = source, .dst = id, .p0 = 0, .p1 = shared});
    kvb_event_print(s->file.stream,
                    &(kvb_event){.kind = KVB_EVENT_PREFILL, .n = request->input - shared, .pos = &shared, .seq = &id});
    s->live[id] = (live_sequence){.request = request, .length = request->input};
    s->alive++;
    s->outcome->prompt_tokens += request->input;
    s->outcome->shared_tokens += shared;
}

/* Decodes one token for each live sequence; then those that are done leave. */
static void step_decode(schedule *s)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < s->options->sequences; id++) {
        if (!s->live[id].request)
            continue;
        s->pos[n] = s->live[id].length++;
        s->seq[n++] = id;
    }
    kvb_event_print(s->file.stream, &(kvb_event){.kind = KVB_EVENT_STEP, .n = n, .pos = s->pos, .seq = s->seq});
    for (uint32_t i = 0; i < n; i++) {
        live_sequence *live = &s->live[s->seq[i]];
        if (live->length < live->request->input + live->request->output)
            continue;
        kvb_event_print(s->file.stream,
                        &(kvb_event){.kind = KVB_EVENT_SEQ_RM, .src = s->seq[i], .p0 = 0, .p1 = KVB_TRACE_POS_END});
        live->request = NULL;
        s->alive--;
    }
}

int kvb_import_write(const kvb_import_requests *requests, const kvb_import_options *options, const char *name,
                     const char *path, kvb_import_outcome *outcome, char *why, size_t why_bytes)
{
    assert(requests->n && options->shrink && options->sequences && options->sequences <= KVB_TRACE_MAX_SEQS);
    *outcome = (kvb_import_outcome){0};
    schedule *s = calloc(1, sizeof *s);
    char *source = NULL, *note = NULL;
    int err = -ENOMEM;
    if (asprintf(&source, "%s, first %zu requests, token counts divided by %u", options->format->summary, requests->n,
                 options->shrink) < 0)
        source = NULL;
    if (asprintf(&note,
                 "real: order of arrival, lengths%s; synthetic: values, and the schedule (at most %u sequences alive, "
                 "arrival times dropped, all decode in lockstep)",
                 options->format->block_tokens ? ", shared prefixes" : "", options->sequences) < 0)
        note = NULL;
    if (!s || !source || !note) {
        snprintf(why, why_bytes, "%s: no memory", path);
        goto out;
    }
    s->options = options;
    s->outcome = outcome;
    kvb_trace_header header = {.name = (char *)name,
                               .source = source,
                               .note = note,
                               .model = model,
                               .profile = (char *)"llama",
                               .seed = options->seed};
    err = kvb_trace_create(path, &header, &s->file, why, why_bytes);
    for (size_t next = 0; !err && (next < requests->n || s->alive);) {
        if (next < requests->n && s->alive < options->sequences)
            request_admit(s, &requests->at[next++]);
        else
            step_decode(s);
    }
    err = err ? err : kvb_output_file_close(&s->file, true, why, why_bytes);
out:
    free(source);
    free(note);
    free(s);
    return err;
}
