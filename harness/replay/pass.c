/* SPDX-License-Identifier: Apache-2.0 */
/* The replay: one loop over events; everything that is timed goes through clock_start and clock_stop. */
#include "harness/replay/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "caches/call.h"
#include "harness/replay/samples.h"
#include "harness/replay/traffic.h"
#include "harness/replay/verdict.h"
#include "harness/replay/witness_check.h"
#include "kernels/witness.h"

#define FILL_CHUNK 4096u /* tokens of one step of a fill */

typedef struct replay {
    const kvb_replay_options *options;
    const kvb_trace *trace;
    kvb_replay_place *place;
    kvb_result *result;
    kvb_allocator allocator;
    kvb_cache *cache;
    kvb_call call;
    uint32_t *position;          /* [tokens] of every token so far, by identity */
    uint32_t *positions;         /* [room] of the fed tokens */
    float *rows[KVB_ROWS_KINDS]; /* [room][heads][dim]: fed rows, where they do not lie together */
    float *out, *lse;            /* [room][heads][v_dim], [room][heads] */
    uint64_t *seen;              /* bits of cells, for traffic */
    size_t seen_words;
    uint32_t room; /* tokens that the buffers above hold */
    kvb_samples times[KVB_STEP_KINDS];
    double step_ns, started; /* of the step under way */
    kvb_history *history;    /* witness only */
    kvb_witness_check witness;
    kvb_diff diff;
    bool ended; /* result says why */
} replay;

/* ---- time ------------------------------------------------------------------------------------------- */

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void clock_start(replay *r)
{
    r->started = now_ns();
}

static void clock_stop(replay *r)
{
    r->step_ns += now_ns() - r->started;
}

/* The step under way ends: its time is a sample of this kind. */
static int step_end(replay *r, kvb_step_kind kind)
{
    double ns = r->step_ns;
    r->step_ns = 0;
    return kvb_sample_add(&r->times[kind], ns);
}

static kvb_step_kind kind_of(const kvb_event *event)
{
    uint64_t met = 0;
    if (event->kind == KVB_EVENT_PREFILL || event->kind == KVB_EVENT_FILL)
        return event->kind == KVB_EVENT_FILL ? KVB_KIND_FILL : KVB_KIND_PREFILL;
    if (event->kind == KVB_EVENT_PROPOSE)
        return KVB_KIND_VERIFY;
    if (event->kind != KVB_EVENT_STEP)
        return KVB_KIND_CONTROL;
    for (uint32_t i = 0; i < event->n; i++) {
        if (met >> event->seq[i] & 1)
            return KVB_KIND_PREFILL; /* more than one token of a sequence */
        met |= (uint64_t)1 << event->seq[i];
    }
    return KVB_KIND_DECODE;
}

/* ---- how a replay ends early -------------------------------------------------------------------------- */

/* Says in the result how the call `what` went wrong at the present event; returns the error. */
static int refuse(replay *r, int error, const char *what, const char *why)
{
    const kvb_event *event = &r->trace->events[r->place->event];
    r->ended = true;
    r->result->status = error == -ENOTSUP ? KVB_STATUS_SKIP : KVB_STATUS_FAIL;
    snprintf(r->result->reason, sizeof r->result->reason, "line %" PRIu64 ": %s: %s", event->line, what,
             why && *why ? why : strerror(-error));
    return error;
}

bool kvb_replay_fits(const kvb_trace_needs *needs, const kvb_cache_type *cache, char *why, size_t why_bytes)
{
    const char *lack = needs->seq && !cache->seq                            ? "sequence face for several sequences"
                       : needs->tree && !cache->tree                        ? "tree face for propose and commit"
                       : needs->rewind && !cache->seq && !cache->contiguous ? "face that can rewind"
                                                                            : NULL;
    if (lack)
        snprintf(why, why_bytes, "cache %s has no %s", cache->name, lack);
    return !lack;
}

/* ---- control events -------------------------------------------------------------------------------------- */

/* Plans n tokens of an event from token `from` on. */
static int step_begin(replay *r, const kvb_event *event, uint32_t from, uint32_t n)
{
    const kvb_cache_type *type = r->cache->type;
    if (event->kind == KVB_EVENT_PROPOSE)
        return type->tree->propose(r->cache, event->parents, n);
    return type->seq ? type->seq->begin_step(r->cache, event->seq + from, n) : type->base->begin_step(r->cache, n);
}

static int control_run(replay *r, const kvb_event *event)
{
    kvb_cache *c = r->cache;
    const kvb_cache_type *type = c->type;
    switch (event->kind) {
    case KVB_EVENT_COMMIT:
        return type->tree->commit(c, event->accepted, event->n);
    case KVB_EVENT_SEQ_CP:
        return type->seq->seq_cp(c, event->src, event->dst, event->p0, event->p1);
    case KVB_EVENT_SEQ_RM:
        return type->seq->seq_rm(c, event->src, event->p0, event->p1);
    case KVB_EVENT_SEQ_KEEP:
        return type->seq->seq_keep(c, event->src);
    case KVB_EVENT_REWIND:
        return type->contiguous ? type->contiguous->rewind(c, event->len)
                                : type->seq->seq_rm(c, 0, event->len, KVB_POS_END);
    default:
        return type->base->clear(c);
    }
}

/* ---- steps --------------------------------------------------------------------------------------------------- */

static int buffer_grow(float **buffer, size_t floats)
{
    free(*buffer);
    *buffer = malloc(floats * sizeof **buffer);
    return *buffer ? 0 : -ENOMEM;
}

/* Room for n fed tokens. */
static int room_ensure(replay *r, uint32_t n)
{
    const kvb_trace_model *m = &r->trace->header.model;
    if (n <= r->room)
        return 0;
    free(r->positions);
    r->positions = malloc(n * sizeof *r->positions);
    if (!r->positions || buffer_grow(&r->rows[KVB_ROWS_Q], (size_t)n * m->heads * m->k_dim) ||
        buffer_grow(&r->rows[KVB_ROWS_K], (size_t)n * m->kv_heads * m->k_dim) ||
        buffer_grow(&r->rows[KVB_ROWS_V], (size_t)n * m->kv_heads * m->v_dim) ||
        buffer_grow(&r->out, (size_t)n * m->heads * m->v_dim) || buffer_grow(&r->lse, (size_t)n * m->heads))
        return -ENOMEM;
    r->room = n;
    return 0;
}

/* Rows of the fed tokens [n][heads][dim]: in place where they lie together, else copied together. */
static const float *rows_feed(replay *r, kvb_rows kind, uint32_t layer, const uint64_t *tokens, uint32_t n)
{
    const kvb_trace_model *m = &r->trace->header.model;
    size_t row = (size_t)(kind == KVB_ROWS_Q ? m->heads : m->kv_heads) * (kind == KVB_ROWS_V ? m->v_dim : m->k_dim);
    if (tokens[n - 1] - tokens[0] == n - 1) { /* ascending, so without a gap */
        bool together = true;
        for (uint32_t i = 1; i < n && together; i++)
            together = tokens[i] == tokens[0] + i;
        if (together)
            return kvb_values_rows(r->options->values, kind, layer, tokens[0]);
    }
    for (uint32_t i = 0; i < n; i++)
        memcpy(r->rows[kind] + i * row, kvb_values_rows(r->options->values, kind, layer, tokens[i]),
               row * sizeof(float));
    return r->rows[kind];
}

/* Adds what a step's attention will read to the traffic; refuses a step that is too large to attend. */
static int traffic_add(replay *r, const kvb_attend_spec *spec, uint32_t n_tok)
{
    const kvb_replay_options *o = r->options;
    const kvb_trace_model *m = &r->trace->header.model;
    size_t words = ((size_t)spec->k.cells + 63) / 64;
    kvb_traffic t;
    if (words > r->seen_words) {
        free(r->seen);
        r->seen = malloc(words * sizeof *r->seen);
        r->seen_words = r->seen ? words : 0;
        if (!r->seen)
            return -ENOMEM;
    }
    kvb_traffic_count(&spec->mask, n_tok, spec->k.cells, r->seen, &t);
    if (t.pairs > o->max_pairs) {
        char why[128];
        snprintf(why, sizeof why, "%u queries would attend %" PRIu64 " cells in a layer, above --max-pairs %" PRIu64,
                 n_tok, t.pairs, o->max_pairs);
        return refuse(r, -ENOTSUP, "step", why);
    }
    double cell = (double)(o->k_pool->bytes(m->kv_heads, m->k_dim, 1) + o->v_pool->bytes(m->kv_heads, m->v_dim, 1));
    r->result->traffic.cells_read += (double)t.unique_cells;
    r->result->traffic.bytes_read += (double)t.unique_cells * cell * m->layers;
    r->result->traffic.bytes_walk += (double)t.pairs * cell / m->kv_heads * m->heads * m->layers;
    return 0;
}

/* Compares what the kernel left for the event's n tokens, the last ones of the call. */
static int outputs_check(replay *r, uint32_t n, uint32_t layer)
{
    const kvb_replay_options *o = r->options;
    const kvb_problem *p = &r->call.args.problem;
    char why[256];
    if (!o->oracle) {
        int found = kvb_witness_check_step(&r->witness, r->history, p, r->call.scratch, n, layer, why, sizeof why);
        return found > 0 ? refuse(r, -EILSEQ, "visible set", why) : found;
    }
    size_t rows;
    const kvb_expect *expect = kvb_oracle_rows(o->oracle, r->place->event, layer, &rows);
    kvb_arithmetic arithmetic;
    o->kernel->arithmetic(p, &arithmetic);
    for (size_t i = 0; i < rows; i++) {
        size_t row = (size_t)(p->n_tok - n + expect[i].query) * p->n_heads + expect[i].head;
        kvb_diff_row(&r->diff, &expect[i], p->v_dim, &arithmetic, (double)p->scale, (double)p->softcap, p->out_elem,
                     r->out + row * p->v_dim, &r->lse[row]);
    }
    return 0;
}

/* Attends one layer of the step and checks it. n: the event's own tokens among the fed ones. */
static int layer_attend(replay *r, uint32_t layer, const kvb_attend_spec *spec, const float *q, uint32_t fed,
                        uint32_t n)
{
    const kvb_trace_model *m = &r->trace->header.model;
    char why[256] = "";
    int error = layer == 0 ? traffic_add(r, spec, fed) : 0;
    if (error)
        return error;
    r->place->doing = "in the kernel's supports()";
    clock_start(r);
    error = kvb_call_prepare(&r->call, spec, q, fed, layer > 0, why, sizeof why);
    clock_stop(r);
    if (error)
        return refuse(r, error, r->options->kernel->name, why);
    /* all bits set is a NaN: a row left unwritten is an infinite error */
    memset(r->out, 0xff, (size_t)fed * m->heads * m->v_dim * sizeof *r->out);
    memset(r->lse, 0xff, (size_t)fed * m->heads * sizeof *r->lse);
    r->place->doing = "in the kernel's attend()";
    clock_start(r);
    error = kvb_call_run(&r->call, r->out, r->lse);
    clock_stop(r);
    if (error)
        return refuse(r, error == -ENOTSUP ? -EPROTO : error, r->options->kernel->name, "attend() failed");
    r->place->doing = "in the check";
    return outputs_check(r, n, layer);
}

/* One step over n tokens of an event, from token `from` on. */
static int step_run(replay *r, const kvb_event *event, uint32_t from, uint32_t n)
{
    const kvb_byte_face *bytes = kvb_cache_bytes(r->cache);
    const uint64_t *tokens;
    int error;

    r->place->doing = "in the cache's begin_step";
    clock_start(r);
    error = step_begin(r, event, from, n);
    clock_stop(r);
    if (error)
        return refuse(r, error, event->kind == KVB_EVENT_PROPOSE ? "propose" : "begin_step", r->cache->why);
    uint32_t fed = bytes->feed(r->cache, &tokens);
    if (fed < n)
        return refuse(r, -EPROTO, "feed", "the cache asks for fewer tokens than the step brings");
    error = room_ensure(r, fed);
    for (uint32_t i = 0; i < fed && !error; i++) {
        if (tokens[i] >= r->trace->needs.tokens)
            return refuse(r, -EPROTO, "feed", "the cache asks for a token that never was");
        r->positions[i] = r->position[tokens[i]];
    }
    for (uint32_t layer = 0; layer < r->trace->header.model.layers && !error; layer++) {
        const float *k = rows_feed(r, KVB_ROWS_K, layer, tokens, fed);
        const float *v = rows_feed(r, KVB_ROWS_V, layer, tokens, fed);
        kvb_attend_spec spec;
        r->place->layer = layer;
        r->place->doing = "in the cache's update_and_fetch";
        clock_start(r);
        error = bytes->update_and_fetch(r->cache, layer, r->positions, k, v, fed, &spec);
        clock_stop(r);
        if (error)
            return refuse(r, error, "update_and_fetch", r->cache->why);
        if (event->kind != KVB_EVENT_FILL)
            error = layer_attend(r, layer, &spec, rows_feed(r, KVB_ROWS_Q, layer, tokens, fed), fed, n);
    }
    return error ? error : step_end(r, kind_of(event));
}

static int event_run(replay *r, const kvb_event *event)
{
    bool brings = event->kind <= KVB_EVENT_PROPOSE;
    int error = r->history ? kvb_history_apply(r->history, event) : 0;
    if (error)
        return error;
    if (!brings) {
        r->place->doing = "in a control call";
        clock_start(r);
        error = control_run(r, event);
        clock_stop(r);
        return error ? refuse(r, error, "control call", r->cache->why) : step_end(r, KVB_KIND_CONTROL);
    }
    memcpy(r->position + event->first, event->pos, event->n * sizeof *r->position);
    uint32_t chunk = event->kind == KVB_EVENT_FILL ? FILL_CHUNK : event->n;
    for (uint32_t from = 0; from < event->n && !error; from += chunk)
        error = step_run(r, event, from, event->n - from < chunk ? event->n - from : chunk);
    return error;
}

/* ---- the whole replay ------------------------------------------------------------------------------------------ */

static int replay_open(replay *r, const kvb_replay_options *o, char *why, size_t why_bytes)
{
    const kvb_trace_needs *needs = &o->trace->needs;
    const kvb_trace_model *m = &o->trace->header.model;
    kvb_model_facts facts = {m->layers, m->heads, m->kv_heads, m->k_dim, m->v_dim};
    kvb_metadata_entry metadata[KVB_METADATA_ENTRIES];
    /* slab keeps private rows: it may hold a shared token once for each sequence */
    uint64_t all = (uint64_t)needs->seqs * needs->seq_len;
    all = all < needs->cells ? needs->cells : all > KVB_TRACE_MAX_CELLS ? KVB_TRACE_MAX_CELLS : all;
    uint32_t capacity = o->capacity ? o->capacity : (uint32_t)all;
    kvb_cache_options cache = {
        .capacity = capacity,
        .seq_capacity = needs->seq_len,
        .max_seqs = needs->seqs,
        .min_chunk = o->min_chunk,
        .k_pool = o->k_pool,
        .v_pool = o->v_pool,
        .allocator = &r->allocator,
    };
    r->call = (kvb_call){
        .kernel = o->kernel,
        .team = o->team,
        .n_heads = m->heads,
        .n_kv_heads = m->kv_heads,
        .scale = (float)m->scale,
        .out_elem = KVB_F32,
    };
    kvb_metadata_write(&facts, metadata);
    int error = kvb_metadata_read(metadata, KVB_METADATA_ENTRIES, &facts, why, why_bytes);
    if (error)
        return error;
    r->position = malloc((needs->tokens ? needs->tokens : 1) * sizeof *r->position);
    if (!r->position)
        return -ENOMEM;
    if (!o->oracle &&
        ((error = kvb_history_open(&r->history)) || (error = kvb_witness_check_open(&r->witness, needs->tokens))))
        return error;
    r->place->doing = "in the cache's open";
    return o->cache->open(o->cache, &facts, &cache, &r->cache, why, why_bytes);
}

static void replay_close(replay *r)
{
    if (r->cache)
        r->cache->type->close(r->cache);
    kvb_call_free(&r->call);
    kvb_history_free(r->history);
    kvb_witness_check_close(&r->witness);
    for (int kind = 0; kind < KVB_STEP_KINDS; kind++)
        kvb_samples_free(&r->times[kind]);
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++)
        free(r->rows[kind]);
    free(r->position);
    free(r->positions);
    free(r->out);
    free(r->lse);
    free(r->seen);
}

static void memory_report(replay *r)
{
    kvb_result *result = r->result;
    kvb_cache_usage usage;
    struct rusage self;
    r->cache->type->base->usage(r->cache, &usage);
    getrusage(RUSAGE_SELF, &self);
    result->memory.allocator_peak = (double)r->allocator.peak_bytes;
    result->memory.allocator_live = (double)r->allocator.current_bytes;
    result->memory.reserved_bytes = (double)usage.reserved_bytes;
    result->memory.cells = usage.cells_live;
    result->memory.cells_peak = usage.cells_peak;
    result->memory.high_water = usage.high_water;
    result->memory.cells_written = (double)usage.cells_written;
    result->memory.cells_moved = (double)usage.cells_moved;
    result->memory.resident_peak = (double)self.ru_maxrss * 1024;
    result->memory.scratch_bytes = (double)(r->call.scratch_bytes + r->call.bits_words * sizeof *r->call.bits);
}

static void errors_report(replay *r)
{
    r->result->status = KVB_STATUS_PASS;
    if (r->options->oracle)
        kvb_diff_judge(&r->diff, r->options->oracle, r->trace, r->result);
    r->result->error.witness_queries = r->witness.queries;
    r->result->error.witness_cells = r->witness.cells;
}

int kvb_replay_run(const kvb_replay_options *options, kvb_replay_place *place, kvb_result *result)
{
    replay r = {.options = options, .trace = options->trace, .place = place, .result = result};
    char why[256] = "";
    result->traffic.bytes_read = result->traffic.bytes_walk = result->traffic.cells_read = 0;
    place->event = place->layer = 0;
    int error = replay_open(&r, options, why, sizeof why);
    if (error && *why) {
        r.ended = true;
        result->status = error == -ENOTSUP ? KVB_STATUS_SKIP : KVB_STATUS_FAIL;
        snprintf(result->reason, sizeof result->reason, "cache %s: %s", options->cache->name, why);
    }
    for (uint32_t i = 0; i < options->trace->n_events && !error; i++) {
        place->event = i;
        error = event_run(&r, &options->trace->events[i]);
    }
    if (!error && !(error = kvb_samples_report(r.times, result))) {
        memory_report(&r);
        errors_report(&r);
    }
    replay_close(&r);
    return r.ended ? 0 : error;
}
