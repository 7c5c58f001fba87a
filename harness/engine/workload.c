/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a recorded workload into a history of an engine's calls. An event without such a call becomes several:
 * - A draft tree becomes a sequence for each path. Its nodes are decoded in rounds: chains up to where they branch, then
 *   a copy for each further branch. A commit keeps the sequence of the accepted path, cut to it, and removes the others.
 * - Sequences are reordered by copies to spare ones and back.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/engine/engine.h"
#include "harness/selection/suite.h"
#include "workloads/files.h"

enum { NODES = 256 }; /* most nodes of a tree */

/* The pending nodes of a sequence. */
typedef struct tree {
    uint32_t n, base; /* nodes; position of a root */
    struct {
        uint32_t lane, pos; /* lane: the engine's sequence with the node and its ancestors */
        uint32_t round;     /* round that decoded the node; 0: not yet decoded */
        uint32_t children;  /* in the node's own event */
    } at[NODES];
} tree;

typedef struct mapping {
    kvb_engine_history *to;
    uint32_t round;
    uint32_t seqs[KVB_ENGINE_SEQS], n_seqs; /* engine's number of a sequence -> the workload's */
    bool used[KVB_ENGINE_SEQS];             /* by a sequence of the workload, or by a path */
    int32_t tip[KVB_ENGINE_SEQS];           /* last node of each lane; -1: none */
    uint32_t slot[2];                       /* slot of the last save: of one sequence, of all */
    const char *lack;                       /* why engines cannot be given the workload; NULL: they can */
    tree trees[KVB_ENGINE_SEQS];
} mapping;

/* The engine's number of the workload's sequence id. */
static uint32_t seq_of(mapping *m, uint32_t id)
{
    uint32_t s = 0;
    while (s < m->n_seqs && m->seqs[s] != id)
        s++;
    if (s == KVB_ENGINE_SEQS) {
        m->lack = "more than 32 sequences";
        return 0;
    }
    m->n_seqs += s == m->n_seqs;
    m->seqs[s] = id;
    m->used[s] = true;
    return s;
}

static void sequences_number(mapping *m, kvb_event *e)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->seq)
            e->seq[i] = seq_of(m, e->seq[i]);
        if (e->dsts) {
            e->dsts[i] = seq_of(m, e->dsts[i]);
            e->srcs[i] = seq_of(m, e->srcs[i]);
        }
    }
    e->src = e->src == KVB_TRACE_ALL ? e->src : seq_of(m, e->src);
    e->dst = seq_of(m, e->dst);
}

static void call_add(mapping *m, kvb_engine_call call)
{
    if (m->to->n == KVB_ENGINE_CALLS)
        m->lack = "more calls than a history holds";
    else
        m->to->at[m->to->n++] = call;
}

static void copy(mapping *m, uint32_t from, uint32_t to)
{
    call_add(m, (kvb_engine_call){.verb = KVB_ENGINE_COPY, .seq = from, .to = to, .p1 = KVB_ENGINE_END});
}

static void cut(mapping *m, uint32_t seq, uint32_t p0)
{
    call_add(m, (kvb_engine_call){.verb = KVB_ENGINE_REMOVE, .seq = seq, .p0 = (int32_t)p0, .p1 = KVB_ENGINE_END});
}

/* Takes an unused sequence. */
static uint32_t spare_take(mapping *m)
{
    for (uint32_t s = 0; s < KVB_ENGINE_SEQS; s++)
        if (!m->used[s]) {
            m->used[s] = true;
            return s;
        }
    m->lack = "more than 32 sequences, with one for each path of a draft tree";
    return 0;
}

static void spare_drop(mapping *m, uint32_t seq)
{
    cut(m, seq, 0);
    m->used[seq] = false;
}

/* The lane for a child of a decoded node: the parent's lane, if the parent is its tip and this round has not used it;
 * else a copy, cut behind the parent. */
static uint32_t lane_take(mapping *m, const tree *t, uint32_t seq, int32_t parent, const kvb_engine_call *round)
{
    const uint32_t from = parent < 0 ? seq : t->at[parent].lane;
    if (m->tip[from] == parent && !round->n[from])
        return from;
    const uint32_t lane = spare_take(m);
    copy(m, from, lane);
    if (m->tip[from] != parent)
        cut(m, lane, parent < 0 ? t->base : t->at[parent].pos + 1);
    return lane;
}

static void propose(mapping *m, const kvb_event *e)
{
    uint32_t number[NODES], left = e->n;
    for (uint32_t i = 0; i < e->n; i++) {
        tree *t = &m->trees[e->seq[i]];
        if (i == NODES || t->n == NODES) {
            m->lack = "a draft tree of more than 256 nodes";
            return;
        }
        if (!t->n) {
            t->base = e->pos[i];
            m->tip[e->seq[i]] = -1;
        }
        number[i] = t->n++;
        t->at[number[i]].pos = e->pos[i];
        t->at[number[i]].round = t->at[number[i]].children = 0;
        if (e->parents[i] >= 0)
            t->at[e->parents[i]].children++;
    }
    while (left && !m->lack) {
        kvb_engine_call c = {.verb = KVB_ENGINE_DECODE};
        m->round++;
        for (uint32_t i = 0; i < e->n; i++) {
            tree *t = &m->trees[e->seq[i]];
            const int32_t parent = e->parents[i];
            const uint32_t made = parent < 0 ? 0 : t->at[parent].round;
            const bool follows = made == m->round && t->at[parent].children == 1;
            if (t->at[number[i]].round || (parent >= 0 && !follows && (!made || made == m->round)))
                continue;
            const uint32_t lane = follows ? t->at[parent].lane : lane_take(m, t, e->seq[i], parent, &c);
            t->at[number[i]].lane = lane;
            t->at[number[i]].round = m->round;
            c.n[lane]++;
            left--;
        }
        for (uint32_t i = 0; i < e->n; i++)
            if (m->trees[e->seq[i]].at[number[i]].round == m->round)
                m->tip[m->trees[e->seq[i]].at[number[i]].lane] = (int32_t)number[i];
        call_add(m, c);
    }
    for (uint32_t i = 0; i < e->n; i++)
        m->trees[e->seq[i]].at[number[i]].children = 0;
}

static void commit(mapping *m, const kvb_event *e)
{
    tree *t = &m->trees[e->src];
    const int32_t last = e->n ? (int32_t)e->accepted[e->n - 1] : -1;
    const uint32_t lane = e->n ? t->at[last].lane : e->src;
    const bool longer = m->tip[lane] != last;
    for (uint32_t i = 0; i < t->n; i++)
        if (m->used[t->at[i].lane] && t->at[i].lane != e->src && t->at[i].lane != lane)
            spare_drop(m, t->at[i].lane);
    if (lane != e->src) {
        cut(m, e->src, 0);
        copy(m, lane, e->src);
        spare_drop(m, lane);
    }
    if (longer)
        cut(m, e->src, t->base + e->n);
    t->n = 0;
}

static void reorder(mapping *m, const kvb_event *e)
{
    uint32_t spare[KVB_ENGINE_SEQS] = {0};
    for (uint32_t i = 0; i < e->n && !m->lack; i++)
        if (e->dsts[i] != e->srcs[i])
            copy(m, e->srcs[i], spare[i] = spare_take(m));
    for (uint32_t i = 0; i < e->n && !m->lack; i++)
        if (e->dsts[i] != e->srcs[i])
            cut(m, e->dsts[i], 0);
    for (uint32_t i = 0; i < e->n && !m->lack; i++)
        if (e->dsts[i] != e->srcs[i]) {
            copy(m, spare[i], e->dsts[i]);
            spare_drop(m, spare[i]);
        }
}

static void event_take(mapping *m, const kvb_event *e)
{
    kvb_engine_call c = {.seq = e->src, .to = e->dst, .p0 = (int32_t)e->p0, .p1 = KVB_ENGINE_END, .delta = e->delta};
    if (e->p1 != KVB_TRACE_POS_END)
        c.p1 = (int32_t)e->p1;
    const bool all = e->src == KVB_TRACE_ALL;
    switch (e->kind) {
    case KVB_EVENT_STEP:
    case KVB_EVENT_PREFILL:
    case KVB_EVENT_FILL:
        c = (kvb_engine_call){.verb = KVB_ENGINE_DECODE};
        for (uint32_t i = 0; i < e->n; i++)
            c.n[e->seq[i]]++;
        m->lack = e->n <= KVB_SHADOW_TOKENS ? NULL : "more than 1024 tokens at once";
        break;
    case KVB_EVENT_PROPOSE:
        propose(m, e);
        return;
    case KVB_EVENT_COMMIT:
        commit(m, e);
        return;
    case KVB_EVENT_REORDER:
        reorder(m, e);
        return;
    case KVB_EVENT_CLEAR:
        for (uint32_t s = 0; s < KVB_ENGINE_SEQS; s++)
            if (m->used[s])
                cut(m, s, 0);
        return;
    case KVB_EVENT_SEQ_CP:
        c.verb = KVB_ENGINE_COPY;
        break;
    case KVB_EVENT_SEQ_RM:
        c.verb = KVB_ENGINE_REMOVE;
        break;
    case KVB_EVENT_SEQ_KEEP:
        c.verb = KVB_ENGINE_KEEP;
        break;
    case KVB_EVENT_SEQ_ADD:
        c.verb = KVB_ENGINE_SHIFT;
        break;
    case KVB_EVENT_REWIND:
        cut(m, 0, e->len);
        return;
    case KVB_EVENT_SAVE:
    case KVB_EVENT_LOAD:
        c.verb = e->kind == KVB_EVENT_SAVE ? KVB_ENGINE_SAVE : KVB_ENGINE_LOAD;
        if (e->kind == KVB_EVENT_LOAD && m->slot[all] != e->slot)
            m->lack = "several saved sequences at once";
        m->slot[all] = e->slot;
        break;
    case KVB_EVENT_DEFRAG:
    case KVB_EVENT_REFUSED:
        return; /* these change nothing */
    case KVB_EVENT_SEQ_DIV:
    case KVB_EVENT_KINDS:
        m->lack = kvb_event_kind_name(e->kind);
        return;
    }
    call_add(m, c);
}

/* The history of a path. 0; -ENOTSUP with why: engines have no call for an event; or kvb_trace_load()'s error. */
static int history_of(const char *path, kvb_engine_history *history, char *why, size_t why_bytes)
{
    kvb_trace *trace;
    int error = kvb_trace_load(path, 0, &trace, why, why_bytes);
    if (error)
        return error;
    mapping *m = calloc(1, sizeof *m);
    size_t i = 0;
    *history = (kvb_engine_history){0};
    if (m) {
        *m = (mapping){.to = history, .slot = {KVB_TRACE_SLOTS, KVB_TRACE_SLOTS}};
        for (uint32_t s = 0; s < trace->needs.seqs && trace->needs.seqs <= KVB_ENGINE_SEQS; s++)
            seq_of(m, s); /* if there are few enough, they keep their numbers */
        for (; i < trace->n_events && !m->lack; i++)
            if (trace->events[i].kind != KVB_EVENT_REFUSED)
                sequences_number(m, &trace->events[i]);
        i = m->lack ? i : 0;
        for (; i < trace->n_events && !m->lack; i++)
            event_take(m, &trace->events[i]);
        error = m->lack ? -ENOTSUP : 0;
    }
    if (error)
        snprintf(why, why_bytes, "%s: line %llu: engines are not given this: %s", trace->header.name,
                 (unsigned long long)trace->events[i ? i - 1 : 0].line, m->lack);
    free(m);
    kvb_trace_free(trace);
    return m ? error : -ENOMEM;
}

kvb_event kvb_engine_step_event(const kvb_shadow *shadow, const kvb_engine_call *call, uint32_t first, uint32_t last,
                                kvb_engine_step *step)
{
    uint32_t n = 0, seqs = 0;
    for (uint32_t s = first; s < last; s++) {
        seqs += call->n[s] > 0;
        for (uint32_t i = shadow->seq[s].n - call->n[s]; i < shadow->seq[s].n; i++, n++) {
            step->pos[n] = (uint32_t)shadow->seq[s].at[i].pos;
            step->tok[n] = shadow->seq[s].at[i].id;
            step->seq[n] = s;
        }
    }
    return (kvb_event){.kind = seqs == 1 && n > 1 ? KVB_EVENT_PREFILL : KVB_EVENT_STEP,
                       .n = n,
                       .pos = step->pos,
                       .seq = step->seq,
                       .tok = step->tok};
}

int kvb_engine_control(const kvb_engine *engine, void *session, const kvb_engine_call *c)
{
    switch (c->verb) {
    case KVB_ENGINE_COPY:
        return engine->copy(session, c->seq, c->to, c->p0, c->p1);
    case KVB_ENGINE_REMOVE:
        return engine->remove(session, c->seq, c->p0, c->p1);
    case KVB_ENGINE_KEEP:
        return engine->keep(session, c->seq);
    case KVB_ENGINE_SHIFT:
        return engine->shift(session, c->seq, c->p0, c->p1, c->delta);
    case KVB_ENGINE_SAVE:
        return engine->save(session, c->seq);
    case KVB_ENGINE_LOAD:
        return engine->load(session, c->seq);
    default:
        return -EINVAL;
    }
}

kvb_event kvb_engine_control_event(const kvb_engine_call *call)
{
    static const kvb_event_kind kinds[KVB_ENGINE_VERBS] = {
        [KVB_ENGINE_COPY] = KVB_EVENT_SEQ_CP,   [KVB_ENGINE_REMOVE] = KVB_EVENT_SEQ_RM,
        [KVB_ENGINE_KEEP] = KVB_EVENT_SEQ_KEEP, [KVB_ENGINE_SHIFT] = KVB_EVENT_SEQ_ADD,
        [KVB_ENGINE_SAVE] = KVB_EVENT_SAVE,     [KVB_ENGINE_LOAD] = KVB_EVENT_LOAD};
    return (kvb_event){.kind = kinds[call->verb],
                       .src = call->seq == KVB_ENGINE_ALL ? KVB_TRACE_ALL : call->seq,
                       .dst = call->to,
                       .p0 = (uint32_t)call->p0,
                       .p1 = call->p1 == KVB_ENGINE_END ? KVB_TRACE_POS_END : (uint32_t)call->p1,
                       .delta = call->delta,
                       .slot = call->seq == KVB_ENGINE_ALL};
}

/* Writes a call's event. Before a load it removes live sequences: in a trace, load needs an empty sequence. */
static void call_write(FILE *out, const kvb_shadow *before, const kvb_shadow *shadow, const kvb_engine_call *call,
                       kvb_engine_step *step)
{
    const bool decodes = call->verb == KVB_ENGINE_DECODE;
    const kvb_event e =
        decodes ? kvb_engine_step_event(shadow, call, 0, KVB_ENGINE_SEQS, step) : kvb_engine_control_event(call);
    for (uint32_t s = 0; s < KVB_ENGINE_SEQS && call->verb == KVB_ENGINE_LOAD; s++)
        if (before->seq[s].n && (call->seq == s || call->seq == KVB_ENGINE_ALL))
            kvb_event_print(out, &(kvb_event){.kind = KVB_EVENT_SEQ_RM, .src = s, .p1 = KVB_TRACE_POS_END});
    if (!decodes || e.n)
        kvb_event_print(out, &e);
}

int kvb_engine_history_write(const kvb_engine_history *history, const kvb_engine_facts *facts, const char *path,
                             const char *source, char *why, size_t why_bytes)
{
    kvb_group group = {.heads = 4, .kv_heads = 2, .k_dim = 64, .v_dim = 64, .scale = 0.125, .window = facts->window};
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char bare[128];
    group.rope = kvb_rope_usual(&group); /* shifts need one */
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(name, "."), name);
    const kvb_trace_header header = {.name = bare,
                                     .source = (char *)(uintptr_t)source,
                                     .model = {.n_layers = 1, .n_groups = 1, .groups = {group}},
                                     .profile = (char *)(uintptr_t) "llama",
                                     .seed = 1};
    kvb_output_file file = {0};
    kvb_trace *trace = NULL;
    kvb_shadow *shadow = calloc(2, sizeof *shadow), *before = shadow ? shadow + 1 : NULL;
    kvb_engine_step *step = malloc(sizeof *step);
    const char *reason;
    int error = shadow && step ? kvb_trace_create(path, &header, &file, why, why_bytes) : -ENOMEM;
    for (uint32_t i = 0; i < history->n && !error; i++) {
        kvb_shadow_copy(before, shadow);
        if (kvb_shadow_apply(shadow, facts, &history->at[i], &reason))
            error = kvb_why_set(-ENOTSUP, why, why_bytes, "%s", reason);
        else
            call_write(file.stream, before, shadow, &history->at[i], step);
    }
    const int closed = file.stream ? kvb_output_file_close(&file, !error, why, why_bytes) : 0;
    error = error ? error : closed;
    if (!error && kvb_trace_load(path, 0, &trace, why, why_bytes)) {
        remove(path);
        error = -ENOTSUP;
    }
    kvb_trace_free(trace);
    free(step);
    free(shadow);
    return error;
}

int kvb_engine_history_find(const char *command, const char *word, kvb_engine_history *history)
{
    kvb_workloads known = {0};
    char why[512], names[4096] = "";
    int error = strstr(word, ".jsonl") ? 0 : kvb_workloads_find(NULL, &known, why, sizeof why);
    const char *path = strstr(word, ".jsonl") ? word : NULL;
    for (size_t i = 0; i < known.n && !error && !path; i++) {
        path = strcmp(known.at[i].name, word) ? NULL : known.at[i].path;
        kvb_list_add(names, sizeof names, ", ", "%s", known.at[i].name);
    }
    int code = -1;
    if (!error && !path)
        code = kvb_unknown(command, "unknown workload", word, names);
    error = error || !path ? error : history_of(path, history, why, sizeof why);
    if (error)
        code = kvb_complain(command, KVB_EXIT_USAGE, "%s", why);
    kvb_workloads_free(&known);
    return code;
}
