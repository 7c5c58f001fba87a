/* SPDX-License-Identifier: Apache-2.0 */
/* One loop over events; everything that is timed lies between kvb_pass_clock() and kvb_pass_charge(). */
#include "harness/replay/pass.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "caches/cache.h"
#include "harness/replay/guard.h"
#include "harness/replay/replay.h"
#include "workloads/array.h"
#include "workloads/live/play.h"

#define FILL_CHUNK  4096u /* tokens of one step of a fill */
#define SHORT_CALLS 64u   /* most requests of one change that are refused */

/* Ends the current step: its time becomes a sample of this kind. */
static int step_end(kvb_pass *p, kvb_step_kind kind)
{
    double ns = p->meter.step_ns;
    p->meter.step_ns = 0;
    return kvb_sample_add(&p->meter.times[kind], ns);
}

/* ---- refused calls ----------------------------------------------------------------------------------------------- */

/* The state that a refused call must not change. Where memory was short, only the first SHORT_COUNTS counts are
 * compared: pools that have grown need not shrink. */
enum { SHORT_COUNTS = 4, COUNTS = 7 };
typedef struct state {
    uint64_t usage[KVB_MODEL_GROUPS][COUNTS];
    uint64_t tokens; /* sum of the sequences' lengths and pending nodes */
    uint64_t fed;
} state;

static state state_of(const kvb_pass *p, size_t n_counts)
{
    const uint64_t *feed;
    state s = {.fed = kvb_cache_feed(p->cache, &feed)};
    for (uint32_t g = 0; g < p->trace->header.model.n_groups; g++) {
        kvb_cache_usage u;
        kvb_cache_usage_of(p->cache, g, &u);
        const uint64_t counts[COUNTS] = {u.cells_live, u.cells_peak, u.cells_written, u.cells_moved,
                                         u.high_water, u.growths,    u.reserved_bytes};
        memcpy(s.usage[g], counts, n_counts * sizeof *counts);
    }
    for (uint32_t q = 0; q < p->trace->needs.seqs; q++)
        s.tokens += kvb_cache_length(p->cache, q) + kvb_cache_pending(p->cache, q);
    return s;
}

/* A call of the cache: of n tokens of a step, from token `from` on, or of another event. */
typedef int cache_call(kvb_pass *p, const kvb_event *event, uint32_t from, uint32_t n);

static int plan_call(kvb_pass *p, const kvb_event *event, uint32_t from, uint32_t n)
{
    return kvb_play_plan(p->cache, event, from, n, p->trace->needs.reuse);
}

static int control_call(kvb_pass *p, const kvb_event *event, uint32_t from, uint32_t n)
{
    (void)from;
    (void)n;
    return kvb_play_control(p->cache, event, event->kind == KVB_EVENT_REFUSED ? event->call : event->kind, &p->slots);
}

/* from: 0; n: length of the prompt. */
static int match_call(kvb_pass *p, const kvb_event *event, uint32_t from, uint32_t n)
{
    return kvb_cache_seq_match(p->cache, event->seq[from], event->tok, n, event->extra_key, &p->found, &p->ordinals);
}

static int timed_call(kvb_pass *p, cache_call *call, const kvb_event *event, uint32_t from, uint32_t n)
{
    const double started = kvb_pass_clock(p);
    const int error = call(p, event, from, n);
    kvb_pass_charge(p, started, KVB_IN_CACHE);
    return error;
}

/*
 * Makes a call. In a pass that is short of memory, the call's first request of memory is refused. Then the call is made
 * again, and its second request is refused, until a call needs no more requests. A refused call must return -ENOMEM and
 * leave the cache as it was, or succeed without the memory.
 */
static int change_make(kvb_pass *p, cache_call *call, const kvb_event *event, const char *name, uint32_t from,
                       uint32_t n)
{
    const char *const doing = p->place->doing;
    kvb_allocator *a = &p->allocator;
    char why[160];
    for (uint64_t nth = 1; nth <= SHORT_CALLS && p->short_of_memory; nth++) {
        const state before = state_of(p, SHORT_COUNTS);
        p->place->doing = "in a call that was refused memory";
        a->fail_request = a->requests + nth;
        const int error = timed_call(p, call, event, from, n);
        const bool refused = a->requests >= a->fail_request;
        a->fail_request = 0;
        p->place->doing = doing;
        p->met_shortage |= refused;
        if (!refused || !error)
            return error;
        const state after = state_of(p, SHORT_COUNTS);
        if (error == -ENOMEM && !memcmp(&before, &after, sizeof before))
            continue;
        snprintf(why, sizeof why, "the call should return ENOMEM and change nothing, but %s%s",
                 error == -ENOMEM ? "has changed the cache" : "returned ",
                 error == -ENOMEM ? "" : strerrorname_np(-error));
        return kvb_pass_refuse(p, -EPROTO, name, why);
    }
    return timed_call(p, call, event, from, n);
}

/* Opens the cache. A pass that is short of memory tries this with the first request of memory refused, then with the
 * second, the fourth, the eighth. Each try must return -ENOMEM and leave no memory, or open the cache without it. */
static int short_open(kvb_pass *p, const kvb_cache_options *options, char *why, size_t why_bytes)
{
    kvb_allocator *a = &p->allocator;
    for (uint64_t nth = 1; p->short_of_memory; nth *= 2) {
        a->fail_request = a->requests + nth;
        const int error = kvb_cache_open(p->options->cache, &p->model, options, &p->cache, why, why_bytes);
        const bool refused = a->requests >= a->fail_request;
        a->fail_request = 0;
        if (!refused)
            return error;
        if (!error)
            kvb_cache_close(p->cache);
        if ((!error || error == -ENOMEM) && !a->current_bytes)
            continue;
        snprintf(why, why_bytes, "open() should return ENOMEM and leave no memory, but returned %s and left %zu bytes",
                 error ? strerrorname_np(-error) : "0", a->current_bytes);
        return -EPROTO;
    }
    return kvb_cache_open(p->options->cache, &p->model, options, &p->cache, why, why_bytes);
}

/* ---- steps --------------------------------------------------------------------------------------------------- */

/* Asks the cache whether a step fits, then plans it; the two answers must agree. */
static int step_plan(kvb_pass *p, const kvb_event *event, uint32_t from, uint32_t n)
{
    const char *call = event->kind == KVB_EVENT_PROPOSE ? "propose" : "begin_step";
    char why[128];
    p->place->doing = "in the cache's can_extend";
    bool admitted = kvb_play_admits(p->cache, event, from, n);
    p->place->doing = "in the cache's begin_step";
    int error = change_make(p, plan_call, event, call, from, n);
    if (p->ended)
        return error;
    if (error && (error != -ENOSPC || !admitted))
        return kvb_pass_refuse(p, error, call, kvb_cache_why(p->cache));
    if (!error == admitted)
        return 0;
    snprintf(why, sizeof why, "can_extend said %s to %u tokens, but the step was %s", admitted ? "yes" : "no", n,
             error ? "refused for want of room" : "admitted");
    return kvb_pass_refuse(p, -EPROTO, call, why);
}

/* Makes room for n fed tokens, enough for every layer. */
static int room_ensure(kvb_feeding *f, const kvb_model *m, uint32_t n)
{
    int error = kvb_array_reserve(&f->positions, &f->positions_room, n, sizeof *f->positions);
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++)
        for (uint32_t g = 0; g < m->n_groups && !error; g++)
            error = kvb_array_reserve(&f->rows[kind], &f->rows_room[kind],
                                      n * kvb_values_floats(&m->groups[g], (kvb_rows)kind), sizeof *f->rows[kind]);
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = kvb_array_reserve(&f->angles, &f->angles_room, (size_t)n * m->groups[g].rope.dims, sizeof *f->angles);
    f->angles_of = NULL;
    return error;
}

/* The length of a sequence from which an engine takes positions. */
static uint32_t length_of(const kvb_pass *p, const kvb_event *event, uint32_t seq)
{
    const uint32_t length = kvb_cache_length(p->cache, seq);
    return p->options->length ? p->options->length(p->trace, (size_t)(event - p->trace->events), seq, length) : length;
}

/*
 * Sets the positions to which rope turns a step's n tokens. Each sequence continues at the length that the cache reports.
 * A tree's nodes lie above this length by their depth, which the trace knows.
 */
static void offsets_take(kvb_pass *p, const kvb_event *event, uint32_t from, uint32_t n)
{
    int64_t *ahead = p->feeding.ahead;
    for (uint32_t i = from; i < from + n && !event->parents; i++)
        ahead[event->seq[i]] = INT64_MAX;
    for (uint32_t i = from; i < from + n; i++) {
        const uint32_t seq = event->seq[i];
        if (event->parents ? event->parents[i] < 0 : ahead[seq] == INT64_MAX)
            ahead[seq] = (int64_t)length_of(p, event, seq) - event->pos[i];
        p->feeding.offset[event->first + i] = (uint32_t)(event->pos[i] + ahead[seq]);
    }
}

/* Takes the plan's feed, for a step of n new tokens, and its positions. */
static int step_feed(kvb_pass *p, uint32_t n, const uint64_t **tokens, uint32_t *fed)
{
    *fed = kvb_cache_feed(p->cache, tokens);
    if (*fed < n)
        return kvb_pass_refuse(p, -EPROTO, "feed", "the cache asks for fewer tokens than the step brings");
    int error = room_ensure(&p->feeding, &p->trace->header.model, *fed);
    for (uint32_t i = 0; i < *fed && !error; i++) {
        if ((*tokens)[i] >= p->trace->needs.tokens)
            return kvb_pass_refuse(p, -EPROTO, "feed", "the cache asks for a token that never was");
        p->feeding.positions[i] = p->feeding.position[(*tokens)[i]];
    }
    return error;
}

/* Makes the call of a layer that attends. */
static int layer_attend(kvb_pass *p, kvb_made *made)
{
    const kvb_fed *fed = made->fed;
    const kvb_only *only = p->options->only;
    char why[128];
    p->place->doing = "in the check";
    int error = p->watch ? kvb_pool_watch_tell(p->watch, p->window, fed->tokens, fed->n, why, sizeof why) : 0;
    if (error)
        return error == -EILSEQ ? kvb_pass_refuse(p, error, "update_and_fetch", why) : error;
    const bool idle = p->short_of_memory && !p->met_shortage && p->place->event + 1 < p->trace->n_events;
    if (idle || fed->event->kind == KVB_EVENT_FILL ||
        (only && !kvb_only_has(only, p->trace, p->place->event, made->layer)))
        return 0;
    return kvb_pass_call(p, made);
}

/* Makes the calls of a layer that scans: of the convolution, if there is one, and of the recurrence. A witness reads no
 * states. */
static int layer_scan(kvb_pass *p, kvb_made *made)
{
    int error = p->options->oracle ? kvb_scans_slots(p, made->states) : 0;
    for (int part = made->states->conv.base ? KVB_PART_CONV : KVB_PART_STATE;
         part >= KVB_PART_STATE && !error && p->options->oracle; part--) {
        kvb_made call = *made;
        call.part = (kvb_scan_part)part;
        error = kvb_pass_call(p, &call);
    }
    return error;
}

/* Feeds the tokens to one layer and makes its calls. */
static int layer_run(kvb_pass *p, uint32_t layer, const kvb_fed *fed, kvb_step_traffic *traffic)
{
    const bool scans = kvb_group_scans(kvb_model_group(&p->trace->header.model, layer));
    const float *k = scans ? NULL : kvb_pass_rows(p, KVB_ROWS_K, layer, fed);
    const float *v = scans ? NULL : kvb_pass_rows(p, KVB_ROWS_V, layer, fed);
    kvb_attend_spec spec;
    kvb_scan_spec states;
    p->place->doing = scans ? "in the cache's fetch_states" : "in the cache's update_and_fetch";
    const double started = kvb_pass_clock(p);
    const int error = scans ? kvb_cache_fetch_states(p->cache, layer, p->feeding.positions, fed->n, &states)
                            : kvb_cache_update_and_fetch(p->cache, layer, p->feeding.positions, k, v, fed->n, &spec);
    kvb_pass_charge(p, started, KVB_IN_CACHE);
    if (error)
        return kvb_pass_refuse(p, error, scans ? "fetch_states" : "update_and_fetch", kvb_cache_why(p->cache));
    kvb_made made = {.layer = layer, .fed = fed, .traffic = traffic};
    if (scans) {
        made.kind = KVB_CALL_SCANS;
        made.states = &states;
        return layer_scan(p, &made);
    }
    made.kind = KVB_CALL_ATTENDS;
    made.spec = &spec;
    return layer_attend(p, &made);
}

/* Runs one step over n tokens of an event, from token `from` on. */
static int step_run(kvb_pass *p, const kvb_event *event, uint32_t from, uint32_t n)
{
    kvb_step_kind kind = kvb_step_kind_of(event);
    kvb_step_traffic traffic = {0};
    const uint64_t *tokens = NULL;
    uint32_t fed = 0;
    if (p->feeding.offset)
        offsets_take(p, event, from, n);
    int error = step_plan(p, event, from, n);
    if (!error)
        error = step_feed(p, n, &tokens, &fed);
    const kvb_fed all = {event, tokens, fed, n, from, event->kind == KVB_EVENT_FILL ? n : event->n};
    for (uint32_t layer = 0; layer < p->trace->header.model.n_layers && !error; layer++) {
        p->place->layer = layer;
        error = layer_run(p, layer, &all, &traffic);
    }
    if (!error && p->number == 0 && event->kind != KVB_EVENT_FILL) {
        p->meter.bytes[kind] += traffic.bytes;
        p->meter.flops[kind] += traffic.flops;
        error = kvb_sample_add(&p->meter.cells[kind], traffic.cells);
        if (!error)
            error = kvb_sample_add(&p->meter.step_bytes[kind], traffic.bytes);
    }
    return error ? error : step_end(p, kind);
}

static bool takes_prompts(const kvb_pass *p)
{
    return p->trace->needs.reuse && p->options->cache->flags & KVB_CACHE_PREFIX;
}

/* Offers a prompt to a cache that may hold its beginning. Each of the tokens found must have the same prefix as the
 * prompt's token. */
static int prompt_offer(kvb_pass *p, const kvb_event *event)
{
    char why[256];
    p->found = 0;
    if (!event->reuse || !takes_prompts(p))
        return 0;
    p->place->doing = "in the cache's seq_match";
    int error = change_make(p, match_call, event, "seq_match", 0, event->n);
    if (p->ended)
        return error;
    if (error)
        return kvb_pass_refuse(p, error, "seq_match", kvb_cache_why(p->cache));
    if (p->found >= event->n)
        return kvb_pass_refuse(p, -EPROTO, "seq_match", "the cache has all of the prompt, and no query is left");
    for (uint32_t i = 0; i < p->found; i++)
        if (!kvb_history_same_prefix(p->history, p->ordinals[i], event->first + i, why, sizeof why))
            return kvb_pass_refuse(p, -EPROTO, "seq_match", why);
    p->holdings.found += p->number == 0 ? p->found : 0;
    kvb_scans_found(p->scans, p->found);
    p->holdings.offered += p->number == 0 ? event->n : 0;
    return 0;
}

/* Saves or loads the oracle's account of the pools when the trace saves or loads. */
static int slot_tell(kvb_pass *p, const kvb_event *event)
{
    char why[128];
    const bool saves = event->kind == KVB_EVENT_SAVE;
    if (!p->watch || (!saves && event->kind != KVB_EVENT_LOAD))
        return 0;
    int error = kvb_pool_watch_tell(p->watch, p->window, NULL, 0, why, sizeof why);
    if (error)
        return error == -EILSEQ ? kvb_pass_refuse(p, error, kvb_event_kind_name(event->kind), why) : error;
    if (saves)
        return kvb_window_save(p->window, event->slot);
    kvb_window_load(p->window, event->slot);
    return 0;
}

static int control_step(kvb_pass *p, const kvb_event *event)
{
    p->place->doing = "in a control call";
    int error = change_make(p, control_call, event, kvb_event_kind_name(event->kind), 0, 0);
    if (p->ended)
        return error;
    if (error)
        return kvb_pass_refuse(p, error, kvb_event_kind_name(event->kind), kvb_cache_why(p->cache));
    error = slot_tell(p, event);
    return error ? error : step_end(p, KVB_KIND_CONTROL);
}

/* Makes a call that the cache must refuse, with the trace's error and without a change. */
static int refusal_run(kvb_pass *p, const kvb_event *event)
{
    const char *call = kvb_event_kind_name(event->call), *error = kvb_refusal_name(event->error);
    const bool steps = event->call <= KVB_EVENT_PROPOSE;
    const state before = state_of(p, COUNTS);
    char why[320];
    p->place->doing = "in a call that it must refuse";
    bool admitted = steps && event->error == -ENOSPC && kvb_play_admits(p->cache, event, 0, event->n);
    int got = timed_call(p, steps ? plan_call : control_call, event, 0, event->n);
    const state after = state_of(p, COUNTS);
    if (got == -ENOTSUP)
        return kvb_pass_refuse(p, got, call, kvb_cache_why(p->cache));
    if (!got)
        snprintf(why, sizeof why, "should be refused with %s, but was accepted", error);
    else if (got != event->error)
        snprintf(why, sizeof why, "should be refused with %s, but was with %s: %s", error, strerror(-got),
                 kvb_cache_why(p->cache));
    else if (admitted)
        snprintf(why, sizeof why, "was refused with %s, as it should be, but can_extend had said yes", error);
    else if (memcmp(&before, &after, sizeof before))
        snprintf(why, sizeof why, "was refused with %s, as it should be, but has changed the cache", error);
    else
        return 0;
    return kvb_pass_refuse(p, -EPROTO, call, why);
}

void kvb_usage_add(kvb_cache_usage *all, const kvb_cache_usage *group)
{
    all->cells_live += group->cells_live;
    all->cells_peak += group->cells_peak;
    all->high_water += group->high_water;
    all->cells_written += group->cells_written;
    all->cells_moved += group->cells_moved;
    all->growths += group->growths;
    all->copied_bytes += group->copied_bytes;
    all->copy_ns += group->copy_ns;
    all->reserved_bytes += group->reserved_bytes;
}

/* Notes the memory after an event; the first pass logs it. */
static int memory_watch(kvb_pass *p, const kvb_event *event)
{
    kvb_cache_usage all = {0};
    double live_bytes = 0;
    for (uint32_t g = 0; g < p->trace->header.model.n_groups; g++) {
        kvb_cache_usage_of(p->cache, g, &p->holdings.usage[g]);
        kvb_usage_add(&all, &p->holdings.usage[g]);
        live_bytes += p->holdings.usage[g].cells_live * kvb_cell_bytes(p->options, g);
    }
    if (all.reserved_bytes > p->holdings.reserved_peak)
        p->holdings.reserved_peak = all.reserved_bytes;
    if (p->number > 0)
        return 0;
    if (p->options->timeline)
        kvb_timeline_print(p->options->timeline, p->result, p->place->event, event, kvb_step_kind_of(event), &all,
                           &p->allocator);
    return kvb_memory_log_add(&p->holdings.log, (kvb_memory_point){.event = p->place->event,
                                                                   .live_bytes = live_bytes,
                                                                   .held_bytes = (double)p->allocator.current_bytes});
}

/* Compares the cells in use with the rows that sequences hold. A cache of exact capacity uses one cell for each row. Any
 * cache uses none if there are no rows. The first pass does not check this, as the witness says more there. */
static int cells_check(kvb_pass *p, uint32_t held, const char *call)
{
    const bool exact = p->options->cache->flags & KVB_CACHE_EXACT;
    char why[128];
    for (uint32_t g = 0; g < p->model.n_groups; g++) {
        kvb_cache_usage u;
        kvb_cache_usage_of(p->cache, g, &u);
        if (u.cells_live == held || (held && (!exact || kvb_group_scans(&p->model.groups[g]))))
            continue;
        snprintf(why, sizeof why, "sequences hold %u rows, and group %u has %u cells in use", held, g, u.cells_live);
        p->short_of_memory = false; /* it is not why */
        return kvb_pass_refuse(p, -EPROTO, call, why);
    }
    return 0;
}

/* Clears the cache at the end of a pass that was short of memory. No cell may stay in use, not even that of a node. Then
 * a token must fit into as many sequences as the history had at once. */
static int cells_cleared(kvb_pass *p)
{
    const kvb_trace_needs *needs = &p->trace->needs;
    const bool seqs = p->options->cache->flags & KVB_CACHE_SEQ;
    p->place->doing = "in the cache's clear";
    p->short_of_memory = false;
    kvb_cache_propose(p->cache, NULL, (const int32_t[]){-1}, 1);
    int error = kvb_cache_clear(p->cache);
    error = error ? kvb_pass_refuse(p, error, "clear", kvb_cache_why(p->cache)) : cells_check(p, 0, "clear");
    for (uint32_t q = 0; q < needs->alive && q < needs->cells && !error; q++) {
        error = kvb_cache_begin_step(p->cache, seqs ? &q : NULL, 1);
        if (error)
            error = kvb_pass_refuse(p, error, "begin_step after clear", kvb_cache_why(p->cache));
    }
    return error;
}

static int event_run(kvb_pass *p, const kvb_event *event)
{
    p->met_shortage = false;
    int error = p->history ? kvb_history_apply(p->history, event) : 0;
    if (event->kind == KVB_EVENT_REFUSED) {
        error = error ? error : refusal_run(p, event);
    } else if (event->kind > KVB_EVENT_PROPOSE) {
        error = error ? error : control_step(p, event);
    } else {
        uint32_t chunk = event->kind == KVB_EVENT_FILL ? FILL_CHUNK : event->n;
        memcpy(p->feeding.position + event->first, event->pos, event->n * sizeof *p->feeding.position);
        if (p->feeding.offset) /* for tokens that the cache finds */
            memcpy(p->feeding.offset + event->first, event->pos, event->n * sizeof *p->feeding.offset);
        error = error ? error : prompt_offer(p, event);
        for (uint32_t from = p->found; from < event->n && !error; from += chunk)
            error = step_run(p, event, from, event->n - from < chunk ? event->n - from : chunk);
    }
    if (!error)
        error = memory_watch(p, event);
    if (!error && p->short_of_memory)
        error = cells_check(p, kvb_history_held(p->history), kvb_event_kind_name(event->kind));
    return error;
}

/* ---- a pass ------------------------------------------------------------------------------------------ */

static int cache_open(kvb_pass *p)
{
    const kvb_replay_options *o = p->options;
    const kvb_trace_needs *needs = &o->trace->needs;
    const uint32_t capacity = needs->full ? needs->full : (uint32_t)o->knobs->capacity;
    char why[256] = "";
    /* slab may hold a shared token once for each sequence; a plug-in's cache with an exact capacity gets no spare cell */
    bool exact = o->cache->flags & KVB_CACHE_EXACT;
    for (const kvb_cache_type *const *built_in = kvb_builtin_caches; *built_in && exact; built_in++)
        exact = strcmp(o->cache->name, (*built_in)->name) != 0;
    uint64_t all = exact ? 0 : (uint64_t)needs->alive * needs->seq_len;
    all = all < needs->cells ? needs->cells : all > KVB_TRACE_MAX_CELLS ? KVB_TRACE_MAX_CELLS : all;
    kvb_cache_options cache = {
        .capacity = capacity ? capacity : (uint32_t)all,
        .seq_capacity = needs->seq_len,
        .seq_ids = needs->seqs,
        .max_seqs = needs->alive,
        .step = (needs->fill && needs->step < FILL_CHUNK ? FILL_CHUNK : needs->step) + needs->nodes,
        .rollback = needs->rollback,
        .state_depth = needs->rollback,
        .min_chunk = o->min_chunk,
        .page_cells = o->page_cells,
        .prefix_bytes = o->prefix_bytes,
        .hash_bits = o->hash_bits,
        .k_pool = p->watch ? kvb_pool_watch_type(p->watch, false) : o->k_pool,
        .v_pool = p->watch ? kvb_pool_watch_type(p->watch, true) : o->v_pool,
        .growth = o->growth,
        .k_amax = o->k_amax,
        .v_amax = o->v_amax,
        .allocator = &p->allocator,
    };
    /* Tags are symbols, not vectors: the cache must not turn them. Rows lie in the same places either way. */
    p->model = o->trace->header.model;
    for (uint32_t g = 0; g < p->model.n_groups && !strcmp(o->values->profile, "tags"); g++)
        p->model.groups[g].rope.dims = 0;
    p->place->doing = "in the cache's open";
    int error = short_open(p, &cache, why, sizeof why);
    return error ? kvb_pass_refuse(p, error, o->cache->name, why) : 0;
}

/* Closes the cache. It must give back all memory, unless the pass has failed already, with this error. */
static int cache_close(kvb_pass *p, int error)
{
    char why[128];
    p->place->doing = "in the cache's close";
    kvb_cache_close(p->cache);
    p->cache = NULL;
    if (error || !p->allocator.current_bytes || kvb_check_is_off(KVB_CHECK_PROTOCOL))
        return error;
    snprintf(why, sizeof why, "the cache leaves %zu bytes of the allocator", p->allocator.current_bytes);
    return kvb_pass_refuse(p, -EILSEQ, "close", why);
}

size_t kvb_restart_event(const kvb_trace *trace)
{
    size_t i = trace->needs.tree ? trace->n_events : trace->n_events / 2;
    while (i < trace->n_events && trace->events[i].kind >= KVB_EVENT_PROPOSE)
        i++;
    return i;
}

/* Saves or loads the whole cache. */
static int cache_store(kvb_pass *p, kvb_event_kind kind)
{
    const bool saves = kind == KVB_EVENT_SAVE;
    const char *what = saves ? "save of the whole cache" : "load of the whole cache";
    p->place->doing = saves ? "in the cache's save" : "in the cache's load";
    const kvb_event all = {.kind = kind, .src = KVB_SEQ_ALL, .slot = KVB_TRACE_SLOTS};
    const int error = change_make(p, control_call, &all, what, 0, 0);
    p->meter.step_ns = 0; /* restarts are not timed */
    return error && !p->ended ? kvb_pass_refuse(p, error, what, kvb_cache_why(p->cache)) : error;
}

/* Goes on with a new cache, which has the content of the old one from a file. */
static int cache_restart(kvb_pass *p)
{
    int error = cache_store(p, KVB_EVENT_SAVE);
    error = error ? error : cache_close(p, 0);
    error = error ? error : cache_open(p);
    return error ? error : cache_store(p, KVB_EVENT_LOAD);
}

int kvb_pass_open(kvb_pass *p, const kvb_replay_options *o, kvb_replay_place *place, kvb_result *result)
{
    uint64_t tokens = o->trace->needs.tokens;
    *p = (kvb_pass){
        .options = o, .trace = o->trace, .place = place, .result = result, .judging.digest = KVB_DIGEST_START};
    p->io = (kvb_kernel_io){.source = !o->knobs->no_guard ? &kvb_guarded_source : &kvb_plain_source,
                            .out_elem = o->out_elem,
                            .no_lse = o->kernel->flags & KVB_KERNEL_NO_LSE};
    p->call = (kvb_call){
        .kernel = o->kernel,
        .team = o->team,
        .out_elem = o->out_elem,
        .no_staging = o->knobs->no_staging,
        .deterministic = o->deterministic,
        .source = p->io.source,
    };
    p->callee = o->kernel->name;
    place->event = place->layer = 0;
    char why[320];
    if (o->slots)
        snprintf(p->slots.folder, sizeof p->slots.folder, "%s", o->slots);
    else if (kvb_replay_saves(o) && kvb_slot_files_open(&p->slots, why, sizeof why))
        return kvb_pass_refuse(p, -EIO, "save", why);
    p->feeding.position = malloc((tokens ? tokens : 1) * sizeof *p->feeding.position);
    const bool turns = o->trace->header.before_rope;
    p->feeding.offset = turns ? malloc((tokens ? tokens : 1) * sizeof *p->feeding.offset) : NULL;
    p->feeding.ahead = turns ? malloc((o->trace->needs.seqs + 1) * sizeof *p->feeding.ahead) : NULL;
    if (!p->feeding.position || (turns && !(p->feeding.offset && p->feeding.ahead)))
        return -ENOMEM;
    if (o->restart && kvb_restart_event(o->trace) == o->trace->n_events)
        return kvb_pass_refuse(p, -ENOTSUP, "restart", "the history has trees, or no step in its second half");
    place->doing = "in the pool's own calls";
    int error = kvb_check_is_off(KVB_CHECK_PROTOCOL) ? 0 : kvb_pools_check(o, why, sizeof why);
    if (error)
        return error == -EILSEQ ? kvb_pass_refuse(p, error, "pool", why) : error;
    error = o->oracle ? kvb_scans_open(o, &p->scans) : 0;
    return error ? error : kvb_checks_open(p);
}

int kvb_pass_run(kvb_pass *p)
{
    const kvb_replay_options *o = p->options;
    const bool watches = o->oracle && kvb_oracle_needs_writes(o->oracle); /* rows depend on the order of writes */
    int error = watches ? kvb_window_open(o->oracle, &p->window) : 0;
    error = error || !watches ? error : kvb_pool_watch_open(o->k_pool, o->v_pool, &p->place->layer, &p->watch);
    error = error ? error : kvb_scans_begin(p->scans);
    p->allocator = (kvb_allocator){.source = !o->knobs->no_guard                          ? &kvb_guarded_source
                                             : o->kernel->flags & KVB_KERNEL_FINITE_CELLS ? &kvb_zeroed_source
                                                                                          : &kvb_plain_source};
    p->place->event = 0;
    error = error ? error : cache_open(p);
    if (p->number == kvb_pass_counted(p))
        *p->options->counts = (kvb_own_counts){0};
    if (!error && (!p->options->oracle || takes_prompts(p)))
        error = kvb_history_open(p->trace->needs.tokens, &p->history);
    if (!error && p->history && p->trace->needs.reuse)
        kvb_history_know_prefixes(p->history);
    for (uint32_t i = 0; i < p->trace->n_events && !error; i++) {
        p->place->event = i;
        error = event_run(p, &p->trace->events[i]);
        if (!error && o->restart && i == kvb_restart_event(p->trace))
            error = cache_restart(p);
    }
    char why[128];
    if (!error && !p->options->knobs->no_guard &&
        !kvb_guard_check(why, sizeof why)) /* later passes check the margins here only */
        error = kvb_pass_fail(p, KVB_CHECK_MARGINS, why);
    p->holdings.allocator_live = p->allocator.current_bytes;
    if (!error && p->short_of_memory)
        error = cells_cleared(p);
    error = cache_close(p, error);
    kvb_history_free(p->history);
    p->history = NULL;
    kvb_window_free(p->window);
    p->window = NULL;
    kvb_pool_watch_free(p->watch);
    p->watch = NULL;
    p->judging.diff.again = true;
    p->number++;
    return error;
}

void kvb_pass_close(kvb_pass *p)
{
    if (!p->options->slots)
        kvb_slot_files_close(&p->slots);
    kvb_checks_close(p);
    kvb_scans_close(p->scans);
    kvb_call_free(&p->call);
    kvb_kernel_io_free(&p->io);
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++)
        free(p->feeding.rows[kind]);
    free(p->feeding.position);
    free(p->feeding.positions);
    free(p->feeding.angles);
    free(p->feeding.offset);
    free(p->feeding.ahead);
    kvb_memory_log_free(&p->holdings.log);
}
