/* SPDX-License-Identifier: Apache-2.0 */
/* One loop over events; everything that is timed lies between clock_start and clock_stop. */
#include "harness/replay/pass.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/replay/guard.h"
#include "harness/replay/heap_watch.h"
#include "harness/replay/traffic.h"
#include "kernels/witness.h"

#define FILL_CHUNK 4096u /* tokens of one step of a fill */

/* ---- time ------------------------------------------------------------------------------------------- */

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Moves what is pending to the counts that counters see. */
static void counts_add(kvb_own_counts *counts, kvb_own_counts *pending)
{
    counts->cells_read += pending->cells_read;
    counts->bytes_read += pending->bytes_read;
    counts->bytes_walk += pending->bytes_walk;
    counts->mask_words += pending->mask_words;
    counts->rescales += pending->rescales;
    *pending = (kvb_own_counts){0};
}

/* Counters run in the first pass only: starting them is a system call, outside what the clock sees. */
static double clock_start(kvb_pass *p)
{
    if (p->number == 0 && p->options->counters)
        kvb_counters_start(p->options->counters);
    counts_add(p->options->counts, &p->pending);
    return now_ns();
}

static void clock_stop(kvb_pass *p, double started, kvb_account account)
{
    double ns = now_ns() - started;
    if (p->number == 0 && p->options->counters)
        kvb_counters_stop(p->options->counters);
    p->step_ns += ns;
    p->account_ns[account] += ns;
    p->intervals++;
}

/* The step under way ends: its time is a sample of this kind. */
static int step_end(kvb_pass *p, kvb_step_kind kind)
{
    double ns = p->step_ns;
    p->step_ns = 0;
    return kvb_sample_add(&p->times[kind], ns);
}

/* ---- how a pass ends early -------------------------------------------------------------------------- */

/* Says in the result how the call `what` went wrong at the present event; returns the error. */
static int refuse(kvb_pass *p, int error, const char *what, const char *why)
{
    const kvb_event *event = &p->trace->events[p->place->event];
    p->ended = true;
    p->result->status = error == -ENOTSUP ? KVB_STATUS_SKIP : KVB_STATUS_FAIL;
    snprintf(p->result->reason, sizeof p->result->reason, "line %" PRIu64 ": %s: %s", event->line, what,
             why && *why ? why : strerror(-error));
    return error;
}

/* ---- control events -------------------------------------------------------------------------------------- */

/* Plans n tokens of an event from token `from` on. */
static int step_begin(kvb_pass *p, const kvb_event *event, uint32_t from, uint32_t n)
{
    const kvb_cache_type *type = p->cache->type;
    if (event->kind == KVB_EVENT_PROPOSE)
        return type->tree->propose(p->cache, event->parents, n);
    return type->seq ? type->seq->begin_step(p->cache, event->seq + from, n) : type->base->begin_step(p->cache, n);
}

static int control_run(kvb_pass *p, const kvb_event *event)
{
    kvb_cache *c = p->cache;
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
static int room_ensure(kvb_pass *p, uint32_t n)
{
    const kvb_trace_model *m = &p->trace->header.model;
    if (n <= p->room)
        return 0;
    free(p->positions);
    p->positions = malloc(n * sizeof *p->positions);
    if (!p->positions || buffer_grow(&p->rows[KVB_ROWS_Q], (size_t)n * m->heads * m->k_dim) ||
        buffer_grow(&p->rows[KVB_ROWS_K], (size_t)n * m->kv_heads * m->k_dim) ||
        buffer_grow(&p->rows[KVB_ROWS_V], (size_t)n * m->kv_heads * m->v_dim))
        return -ENOMEM;
    p->room = n;
    return 0;
}

/* Rows of the fed tokens [n][heads][dim]: in place where they lie together, else copied together. */
static const float *rows_feed(kvb_pass *p, kvb_rows kind, uint32_t layer, const uint64_t *tokens, uint32_t n)
{
    const kvb_trace_model *m = &p->trace->header.model;
    size_t row = (size_t)(kind == KVB_ROWS_Q ? m->heads : m->kv_heads) * (kind == KVB_ROWS_V ? m->v_dim : m->k_dim);
    if (tokens[n - 1] - tokens[0] == n - 1) { /* ascending, so without a gap */
        bool together = true;
        for (uint32_t i = 1; i < n && together; i++)
            together = tokens[i] == tokens[0] + i;
        if (together)
            return kvb_values_rows(p->options->values, kind, layer, tokens[0]);
    }
    for (uint32_t i = 0; i < n; i++)
        memcpy(p->rows[kind] + i * row, kvb_values_rows(p->options->values, kind, layer, tokens[i]),
               row * sizeof(float));
    return p->rows[kind];
}

/* Refuses a step that is too large to attend; in the first pass adds what it will read to the traffic. */
static int traffic_add(kvb_pass *p, const kvb_attend_spec *spec, uint32_t n_tok, kvb_step_kind kind)
{
    const kvb_replay_options *o = p->options;
    const kvb_trace_model *m = &p->trace->header.model;
    size_t words = ((size_t)spec->k.cells + 63) / 64;
    kvb_traffic t;
    if (p->number > 0)
        return 0;
    if (words > p->seen_words) {
        free(p->seen);
        p->seen = malloc(words * sizeof *p->seen);
        p->seen_words = p->seen ? words : 0;
        if (!p->seen)
            return -ENOMEM;
    }
    kvb_traffic_count(&spec->mask, n_tok, spec->k.cells, p->seen, &t);
    if (t.pairs > o->max_pairs) {
        char why[128];
        snprintf(why, sizeof why, "%u queries would attend %" PRIu64 " cells in a layer, above --max-pairs %" PRIu64,
                 n_tok, t.pairs, o->max_pairs);
        return refuse(p, -ENOTSUP, "step", why);
    }
    double cell = kvb_cell_bytes(o);
    uint64_t unique = (uint64_t)((double)t.unique_cells * cell);
    p->pending.cells_read += (long long)t.unique_cells;
    p->pending.bytes_read += (long long)unique;
    p->pending.bytes_walk += (long long)((double)t.pairs * cell / m->kv_heads * m->heads);
    p->bytes[kind] += (double)unique;
    p->flops[kind] += 2.0 * (double)t.pairs * m->heads * (m->k_dim + m->v_dim) * m->layers;
    return kvb_sample_add(&p->cells[kind], (double)t.unique_cells);
}

/* Words of the mask as the kernel gets it, and rescales as it declares them. */
static void call_count(kvb_pass *p)
{
    const kvb_problem *problem = &p->call.args.problem;
    kvb_arithmetic arithmetic;
    kvb_traffic t;
    if (p->number > 0)
        return;
    kvb_traffic_count(&p->call.args.mask, problem->n_tok, problem->n_cells, p->seen, &t);
    kvb_call_arithmetic(&p->call, &arithmetic);
    p->pending.mask_words += (long long)t.mask_words;
    p->pending.rescales += (long long)arithmetic.rescales * problem->n_tok * problem->n_heads;
}

/* Compares what the kernel left for the event's n tokens, the last ones of the call. */
static int outputs_check(kvb_pass *p, const kvb_attend_spec *spec, uint32_t n, uint32_t layer)
{
    const kvb_replay_options *o = p->options;
    const kvb_problem *problem = &p->call.args.problem;
    char why[256];
    if (!kvb_kernel_io_written(&p->io, problem->n_heads, why, sizeof why))
        return refuse(p, -EILSEQ, o->kernel->name, why);
    if (o->guarded && p->number == 0 && !kvb_guard_check(why, sizeof why))
        return refuse(p, -EILSEQ, o->kernel->name, why);
    if (!o->oracle) {
        int found =
            kvb_witness_check_step(&p->witness, p->history, problem, p->call.scratch, n, layer, why, sizeof why);
        return found > 0 ? refuse(p, -EILSEQ, "visible set", why) : found;
    }
    if (p->number == 0)
        p->digest = kvb_kernel_io_digest(&p->io, n, p->digest);
    size_t rows;
    const kvb_expect *expect = kvb_oracle_rows(o->oracle, p->place->event, layer, &rows);
    kvb_arithmetic arithmetic;
    kvb_call_arithmetic(&p->call, &arithmetic);
    for (size_t i = 0; i < rows; i++) {
        uint32_t query = problem->n_tok - n + expect[i].query;
        size_t row = (size_t)query * problem->n_heads + expect[i].head;
        kvb_expect actual = expect[i];
        int error = kvb_oracle_reads_views(o->oracle)
                        ? kvb_oracle_solve_views(o->oracle, &expect[i], &spec->k, &spec->v, &spec->mask, problem->n_tok,
                                                 query, &actual)
                        : 0;
        if (error)
            return error;
        kvb_diff_row(&p->diff, &actual, problem->v_dim, &arithmetic, (double)problem->scale, (double)problem->softcap,
                     problem->out_elem, p->io.out + row * problem->v_dim, &p->io.lse[row]);
    }
    return 0;
}

/* Brings the processor's caches into the state asked for. */
static void caches_prepare(kvb_pass *p, const kvb_attend_spec *spec, uint32_t fed)
{
    const kvb_trace_model *m = &p->trace->header.model;
    if (p->options->cache_state == KVB_STATE_HOT)
        kvb_call_run(&p->call, p->io.out, p->io.lse);
    if (p->options->cache_state == KVB_STATE_COLD) {
        kvb_view_flush(&spec->k, m->kv_heads);
        kvb_view_flush(&spec->v, m->kv_heads);
        kvb_view_flush(&p->call.args.k, m->kv_heads); /* decoded rows, where they were staged */
        kvb_view_flush(&p->call.args.v, m->kv_heads);
        kvb_block_flush(p->io.q, (size_t)fed * m->heads * m->k_dim * sizeof *p->io.q);
    }
}

/* In the first pass K and V may not be written while the kernel has them. */
static void rows_protect(const kvb_pass *p, const kvb_attend_spec *spec, bool read_only)
{
    if (!p->options->guarded || p->number > 0)
        return;
    const kvb_view *got_k = &p->call.args.k, *got_v = &p->call.args.v; /* what the kernel got: maybe the same */
    const void *const lanes[] = {spec->k.base, spec->k.scales, spec->k.zeros, spec->k.recent, got_k->base,
                                 spec->v.base, spec->v.scales, spec->v.zeros, spec->v.recent, got_v->base};
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        if (lanes[i])
            kvb_guard_protect(lanes[i], read_only);
}

/* Attends one layer of the step and checks it. n: the event's own tokens among the fed ones. */
static int layer_attend(kvb_pass *p, uint32_t layer, const kvb_attend_spec *spec, const float *q, uint32_t fed,
                        uint32_t n, kvb_step_kind kind)
{
    char why[256] = "";
    int error = layer == 0 ? traffic_add(p, spec, fed, kind) : 0;
    if (!error)
        error = kvb_kernel_io_fill(&p->io, fed, q);
    if (error)
        return error;
    p->place->doing = "in the kernel's supports()";
    double started = clock_start(p);
    error = kvb_call_prepare(&p->call, spec, p->io.q, fed, layer > 0, why, sizeof why);
    /* turning a mask or rows into what the kernel takes is the kernel's cost */
    bool turned = p->call.args.mask.kind != spec->mask.kind || p->call.staged_k || p->call.staged_v;
    clock_stop(p, started, turned ? KVB_IN_KERNEL : KVB_IN_HARNESS);
    if (error)
        return refuse(p, error, p->options->kernel->name, why);
    call_count(p);
    caches_prepare(p, spec, fed);
    kvb_kernel_io_poison(&p->io);
    rows_protect(p, spec, true);
    p->place->doing = "in the kernel's attend()";
    kvb_heap_watch_start();
    started = clock_start(p);
    error = kvb_call_run(&p->call, p->io.out, p->io.lse);
    clock_stop(p, started, KVB_IN_KERNEL);
    uint64_t allocations = kvb_heap_watch_stop();
    p->place->doing = "in the check";
    rows_protect(p, spec, false);
    if (error)
        return refuse(p, error == -ENOTSUP ? -EPROTO : error, p->options->kernel->name, "attend() failed");
    if (allocations) {
        snprintf(why, sizeof why, "attend() allocated or freed memory %" PRIu64 " times", allocations);
        return refuse(p, -EPROTO, p->options->kernel->name, why);
    }
    return outputs_check(p, spec, n, layer);
}

/* The tokens that the plan of a step wants, their positions in p->positions. */
static int feed_take(kvb_pass *p, uint32_t n, const uint64_t **tokens, uint32_t *fed)
{
    *fed = kvb_cache_bytes(p->cache)->feed(p->cache, tokens);
    if (*fed < n)
        return refuse(p, -EPROTO, "feed", "the cache asks for fewer tokens than the step brings");
    int error = room_ensure(p, *fed);
    for (uint32_t i = 0; i < *fed && !error; i++) {
        if ((*tokens)[i] >= p->trace->needs.tokens)
            return refuse(p, -EPROTO, "feed", "the cache asks for a token that never was");
        p->positions[i] = p->position[(*tokens)[i]];
    }
    return error;
}

/* One step over n tokens of an event, from token `from` on. */
static int step_run(kvb_pass *p, const kvb_event *event, uint32_t from, uint32_t n)
{
    const kvb_byte_face *bytes = kvb_cache_bytes(p->cache);
    kvb_step_kind kind = kvb_step_kind_of(&p->kinship, event);
    const uint64_t *tokens;
    uint32_t fed;

    p->place->doing = "in the cache's begin_step";
    double started = clock_start(p);
    int error = step_begin(p, event, from, n);
    clock_stop(p, started, KVB_IN_CACHE);
    if (error)
        return refuse(p, error, event->kind == KVB_EVENT_PROPOSE ? "propose" : "begin_step", p->cache->why);
    error = feed_take(p, n, &tokens, &fed);
    for (uint32_t layer = 0; layer < p->trace->header.model.layers && !error; layer++) {
        const float *k = rows_feed(p, KVB_ROWS_K, layer, tokens, fed);
        const float *v = rows_feed(p, KVB_ROWS_V, layer, tokens, fed);
        kvb_attend_spec spec;
        p->place->layer = layer;
        p->place->doing = "in the cache's update_and_fetch";
        started = clock_start(p);
        error = bytes->update_and_fetch(p->cache, layer, p->positions, k, v, fed, &spec);
        clock_stop(p, started, KVB_IN_CACHE);
        if (error)
            return refuse(p, error, "update_and_fetch", p->cache->why);
        if (event->kind != KVB_EVENT_FILL)
            error = layer_attend(p, layer, &spec, rows_feed(p, KVB_ROWS_Q, layer, tokens, fed), fed, n, kind);
    }
    return error ? error : step_end(p, kind);
}

static int control_step(kvb_pass *p, const kvb_event *event)
{
    p->place->doing = "in a control call";
    double started = clock_start(p);
    int error = control_run(p, event);
    clock_stop(p, started, KVB_IN_CACHE);
    return error ? refuse(p, error, "control call", p->cache->why) : step_end(p, KVB_KIND_CONTROL);
}

/* Looks at the memory after an event; in the first pass it is logged. */
static int memory_watch(kvb_pass *p, const kvb_event *event)
{
    p->cache->type->base->usage(p->cache, &p->usage);
    if (p->usage.reserved_bytes > p->reserved_peak)
        p->reserved_peak = p->usage.reserved_bytes;
    if (p->number > 0)
        return 0;
    if (p->options->timeline)
        kvb_timeline_print(p->options->timeline, p->result, p->place->event, event,
                           kvb_step_kind_of(&p->kinship, event), &p->usage, &p->allocator);
    return kvb_memory_log_add(&p->memory,
                              (kvb_memory_point){.event = p->place->event,
                                                 .live_bytes = p->usage.cells_live * kvb_cell_bytes(p->options),
                                                 .held_bytes = (double)p->allocator.current_bytes});
}

static int event_run(kvb_pass *p, const kvb_event *event)
{
    int error = p->history ? kvb_history_apply(p->history, event) : 0;
    if (event->kind > KVB_EVENT_PROPOSE) {
        error = error ? error : control_step(p, event);
    } else {
        uint32_t chunk = event->kind == KVB_EVENT_FILL ? FILL_CHUNK : event->n;
        memcpy(p->position + event->first, event->pos, event->n * sizeof *p->position);
        for (uint32_t from = 0; from < event->n && !error; from += chunk)
            error = step_run(p, event, from, event->n - from < chunk ? event->n - from : chunk);
    }
    if (!error)
        error = memory_watch(p, event);
    kvb_kinship_apply(&p->kinship, event);
    return error;
}

/* ---- a pass ------------------------------------------------------------------------------------------ */

static int cache_open(kvb_pass *p)
{
    const kvb_replay_options *o = p->options;
    const kvb_trace_needs *needs = &o->trace->needs;
    const kvb_trace_model *m = &o->trace->header.model;
    kvb_model_facts facts = {m->layers, m->heads, m->kv_heads, m->k_dim, m->v_dim};
    kvb_metadata_entry metadata[KVB_METADATA_ENTRIES];
    char why[256] = "";
    /* slab keeps private rows: it may hold a shared token once for each sequence */
    uint64_t all = (uint64_t)needs->seqs * needs->seq_len;
    all = all < needs->cells ? needs->cells : all > KVB_TRACE_MAX_CELLS ? KVB_TRACE_MAX_CELLS : all;
    kvb_cache_options cache = {
        .capacity = o->capacity ? o->capacity : (uint32_t)all,
        .seq_capacity = needs->seq_len,
        .max_seqs = needs->seqs,
        .min_chunk = o->min_chunk,
        .k_pool = o->k_pool,
        .v_pool = o->v_pool,
        .growth = o->growth,
        .k_amax = o->k_amax,
        .v_amax = o->v_amax,
        .allocator = &p->allocator,
    };
    p->allocator = (kvb_allocator){.source = o->guarded ? &kvb_guarded_source : &kvb_plain_source};
    kvb_metadata_write(&facts, metadata);
    int error = kvb_metadata_read(metadata, KVB_METADATA_ENTRIES, &facts, why, sizeof why);
    p->place->doing = "in the cache's open";
    if (!error)
        error = o->cache->open(o->cache, &facts, &cache, &p->cache, why, sizeof why);
    return error ? refuse(p, error, o->cache->name, why) : 0;
}

int kvb_pass_open(kvb_pass *p, const kvb_replay_options *o, kvb_replay_place *place, kvb_result *result)
{
    const kvb_trace_model *m = &o->trace->header.model;
    uint64_t tokens = o->trace->needs.tokens;
    *p = (kvb_pass){.options = o, .trace = o->trace, .place = place, .result = result, .digest = KVB_DIGEST_START};
    kvb_kernel_io_init(&p->io, m, o->guarded);
    p->call = (kvb_call){
        .kernel = o->kernel,
        .team = o->team,
        .n_heads = m->heads,
        .n_kv_heads = m->kv_heads,
        .scale = (float)m->scale,
        .out_elem = KVB_F32,
        .no_staging = o->no_staging,
        .deterministic = o->deterministic,
        .source = o->guarded ? &kvb_guarded_source : &kvb_plain_source,
    };
    place->event = place->layer = 0;
    p->position = malloc((tokens ? tokens : 1) * sizeof *p->position);
    if (!p->position)
        return -ENOMEM;
    return o->oracle ? 0 : kvb_witness_check_open(&p->witness, tokens);
}

int kvb_pass_run(kvb_pass *p)
{
    int error = cache_open(p);
    p->kinship = (kvb_kinship){0};
    if (!error && !p->options->oracle)
        error = kvb_history_open(&p->history);
    for (uint32_t i = 0; i < p->trace->n_events && !error; i++) {
        p->place->event = i;
        error = event_run(p, &p->trace->events[i]);
    }
    char why[128];
    if (!error && p->options->guarded && !kvb_guard_check(why, sizeof why)) /* later passes: once is enough */
        error = refuse(p, -EILSEQ, p->options->kernel->name, why);
    p->allocator_live = p->allocator.current_bytes;
    p->place->doing = "in the cache's close";
    if (p->cache)
        p->cache->type->close(p->cache);
    p->cache = NULL;
    kvb_history_free(p->history);
    p->history = NULL;
    p->number++;
    return error;
}

void kvb_pass_close(kvb_pass *p)
{
    kvb_call_free(&p->call);
    kvb_kernel_io_free(&p->io);
    kvb_witness_check_close(&p->witness);
    for (int kind = 0; kind < KVB_STEP_KINDS; kind++) {
        kvb_samples_free(&p->times[kind]);
        kvb_samples_free(&p->cells[kind]);
    }
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++)
        free(p->rows[kind]);
    free(p->position);
    free(p->positions);
    free(p->seen);
    kvb_memory_log_free(&p->memory);
}
