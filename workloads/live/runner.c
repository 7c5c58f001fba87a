/* SPDX-License-Identifier: Apache-2.0 */
/* The live runner: control calls, what to feed, and the forward pass. */
#include "workloads/live/runner.h"

#include "workloads/array.h"
#include "workloads/files.h"
#include "workloads/live/play.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIN_CHUNK 64u /* cells of the cache's first growth */
#define MAX_RANK  64u

static void run_in_caller(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    (void)team;
    part(ctx, 0, 1);
}

static const kvb_team alone = {.n = 1, .run = run_in_caller};

static int no_memory(kvb_runner *r)
{
    return kvb_why_set(-ENOMEM, r->why, sizeof r->why, "no memory for the live runner");
}

static int cache_failed(kvb_runner *r, int err)
{
    return kvb_why_set(err, r->why, sizeof r->why, "%s: %s", kvb_cache_type_of(r->cache)->name,
                       kvb_cache_why(r->cache));
}

int kvb_runner_open(kvb_runner *r, const kvb_runner_options *o)
{
    kvb_cache_options options = {.capacity = o->capacity,
                                 .seq_capacity = o->seq_capacity,
                                 .max_seqs = o->max_seqs,
                                 .step = o->step,
                                 .rollback = o->rollback,
                                 .state_depth = o->rollback,
                                 .min_chunk = MIN_CHUNK,
                                 .k_pool = o->k_pool,
                                 .v_pool = o->v_pool,
                                 .allocator = &r->allocator};
    *r = (kvb_runner){.weights = o->weights};
    int err = kvb_history_open(KVB_TRACE_MAX_CELLS, &r->history)
                  ? no_memory(r)
                  : kvb_cache_open(o->cache, o->model, &options, &r->cache, r->why, sizeof r->why);
    if (err) {
        kvb_history_free(r->history);
        r->history = NULL;
        return err;
    }
    r->op.cache = r->cache;
    r->op.recorder = o->recorder;
    r->op.call = (kvb_call){.kernel = o->kernel, .team = &alone};
    r->op.scan = (kvb_scan_call){.kernel = o->scan, .team = &alone};
    return 0;
}

void kvb_runner_close(kvb_runner *r)
{
    kvb_cache_close(r->cache);
    kvb_slot_files_close(&r->slots);
    kvb_history_free(r->history);
    kvb_live_op_free(&r->op);
    free(r->tok);
    free(r->pos);
    free(r->fed_tok);
    free(r->fed_pos);
    free(r->logits);
    *r = (kvb_runner){0};
}

/* Makes room for n more tokens and their logits, before the cache changes. */
static int reserve_tokens(kvb_runner *r, uint32_t n)
{
    const size_t all = r->n_tokens + n, floats = (size_t)n * r->weights->config.vocab;
    return kvb_array_reserve(&r->tok, &r->tok_room, all, sizeof *r->tok) ||
                   kvb_array_reserve(&r->pos, &r->pos_room, all, sizeof *r->pos) ||
                   kvb_array_reserve(&r->logits, &r->logits_room, floats, sizeof *r->logits)
               ? no_memory(r)
               : 0;
}

/* Records an event that the cache has taken. A proposal gets the positions of its nodes. */
static int record(kvb_runner *r, kvb_event *event)
{
    int err = kvb_history_take(r->history, event, 0, r->why, sizeof r->why);
    if (!err && r->op.recorder && kvb_recorder_event(r->op.recorder, event))
        err = no_memory(r);
    return err;
}

/* The forward pass of a planned step. The event's n tokens have been appended to tok and pos. */
static int forward(kvb_runner *r, kvb_event *event)
{
    int err = record(r, event);
    if (err)
        return err;
    kvb_live_op *op = &r->op;
    op->n_new = event->n - r->not_asked;
    op->n_fed = kvb_cache_feed(r->cache, &op->ordinals);
    assert(op->n_fed >= op->n_new && "a plan feeds at least its own tokens");
    if (kvb_array_reserve(&r->fed_tok, &r->fed_tok_room, op->n_fed, sizeof *r->fed_tok) ||
        kvb_array_reserve(&r->fed_pos, &r->fed_pos_room, op->n_fed, sizeof *r->fed_pos))
        return no_memory(r);
    for (uint32_t i = 0; i < op->n_fed; i++) {
        assert(op->ordinals[i] < r->n_tokens);
        r->fed_tok[i] = r->tok[op->ordinals[i]];
        r->fed_pos[i] = r->pos[op->ordinals[i]];
    }
    err = kvb_model_forward(r->weights, op, r->fed_tok, r->fed_pos, r->logits);
    return err ? kvb_why_set(err, r->why, sizeof r->why, "%s", op->why) : 0;
}

/* A step or proposal without its first `found` tokens, which their sequence has already. */
static int step_rest(kvb_runner *r, kvb_event *event, uint32_t found)
{
    const uint32_t n = event->n - found;
    r->not_asked = found;
    if (!kvb_play_admits(r->cache, event, found, n))
        return kvb_why_set(-ENOSPC, r->why, sizeof r->why, "%s has no room for a step of %u tokens",
                           kvb_cache_type_of(r->cache)->name, n);
    int err = kvb_play_plan(r->cache, event, found, n, true);
    if (err == -ENOSPC)
        return kvb_why_set(-EPROTO, r->why, sizeof r->why,
                           "%s said that there is room for a step of %u tokens, and refused it: %s",
                           kvb_cache_type_of(r->cache)->name, n, kvb_cache_why(r->cache));
    if (err)
        return cache_failed(r, err);
    memcpy(r->tok + r->n_tokens, event->tok, event->n * sizeof *r->tok);
    r->n_tokens += event->n;
    return forward(r, event);
}

int kvb_runner_prompt(kvb_runner *r, uint32_t seq, const int32_t *tok, uint32_t n, uint64_t extra_key)
{
    uint32_t found = 0, *seqs = malloc(n * sizeof *seqs);
    const uint64_t *ordinals;
    int err = seqs ? reserve_tokens(r, n) : no_memory(r);
    if (!err && !r->op.recorder && kvb_cache_type_of(r->cache)->flags & KVB_CACHE_PREFIX) { /* all rows are recorded */
        err = kvb_cache_seq_match(r->cache, seq, tok, n, extra_key, &found, &ordinals);
        err = err ? cache_failed(r, err) : 0;
    }
    for (uint32_t i = 0; i < n && !err; i++) {
        r->pos[r->n_tokens + i] = i;
        seqs[i] = seq;
    }
    if (!err)
        err = step_rest(r,
                        &(kvb_event){.kind = KVB_EVENT_PREFILL,
                                     .n = n,
                                     .pos = r->pos + r->n_tokens,
                                     .seq = seqs,
                                     .tok = (int32_t *)(uintptr_t)tok,
                                     .reuse = true,
                                     .extra_key = extra_key},
                        found);
    free(seqs);
    return err;
}

int kvb_runner_step(kvb_runner *r, kvb_event_kind kind, const uint32_t *seq, const int32_t *tok, uint32_t n)
{
    int err = reserve_tokens(r, n);
    if (err)
        return err;
    uint32_t *pos = r->pos + r->n_tokens;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t before = i; /* index + 1 of the last token before it in its sequence */
        while (before > 0 && seq[before - 1] != seq[i])
            before--;
        pos[i] = before ? pos[before - 1] + 1 : kvb_cache_length(r->cache, seq[i]);
    }
    /* the recorder copies the event, so it may borrow const arrays */
    kvb_event event = {
        .kind = kind, .n = n, .pos = pos, .seq = (uint32_t *)(uintptr_t)seq, .tok = (int32_t *)(uintptr_t)tok};
    return step_rest(r, &event, 0);
}

int kvb_runner_control(kvb_runner *r, const kvb_event *event)
{
    kvb_event taken = *event;
    int err =
        event->kind != KVB_EVENT_SAVE || *r->slots.folder ? 0 : kvb_slot_files_open(&r->slots, r->why, sizeof r->why);
    if (err)
        return err;
    err = kvb_play_control(r->cache, event, event->kind, &r->slots);
    return err ? cache_failed(r, err) : record(r, &taken);
}

int kvb_runner_propose(kvb_runner *r, const uint32_t *seq, const int32_t *parents, const int32_t *tok, uint32_t n)
{
    int err = reserve_tokens(r, n);
    if (err)
        return err;
    kvb_event event = {.kind = KVB_EVENT_PROPOSE,
                       .n = n,
                       .pos = r->pos + r->n_tokens,
                       .seq = (uint32_t *)(uintptr_t)seq,
                       .tok = (int32_t *)(uintptr_t)tok,
                       .parents = (int32_t *)(uintptr_t)parents};
    return step_rest(r, &event, 0);
}

int32_t kvb_runner_best(const kvb_runner *r, uint32_t i, uint32_t rank)
{
    uint32_t vocab = r->weights->config.vocab;
    int32_t best[MAX_RANK];
    assert(rank < MAX_RANK && rank < vocab && i >= r->not_asked);
    kvb_model_best(r->logits + (size_t)(i - r->not_asked) * vocab, vocab, rank + 1, best);
    return best[rank];
}
