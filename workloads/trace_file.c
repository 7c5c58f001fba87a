/* SPDX-License-Identifier: Apache-2.0 */
/* Traces as files, JSON Lines: the writer, in the key order that trace.h shows, and the reader. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"
#include "workloads/files.h"
#include "workloads/trace_internal.h"
#include "workloads/values.h"

/* ---- header -------------------------------------------------------------------------------------------- */

/* Checks that the header can be read back. */
static int header_check(const kvb_trace_header *h, const char *path, char *why, size_t why_bytes)
{
    const char *wrong = NULL;
    const kvb_trace_outputs *o = &h->outputs;
    const char *strings[] = {h->name,   h->source, h->note,  h->tensors, h->profile,
                             o->engine, o->model,  o->setup, o->rows,    o->arithmetic};
    for (size_t i = 0; i < sizeof strings / sizeof *strings && !wrong; i++) {
        json_t *value = json_string(strings[i] ? strings[i] : "");
        wrong = value ? NULL : "a text is not UTF-8";
        json_decref(value);
    }
    if (!h->name || !*h->name || !h->source)
        wrong = "name or source is missing";
    else if (!h->tensors == !h->profile)
        wrong = "values are either tensors or a profile";
    else if (o->engine && (!h->tensors || !o->model || !o->setup || !o->rows || !o->arithmetic))
        wrong = "outputs need tensors, a model, a setup, rows and an arithmetic";
    else if (h->profile && !kvb_profile_find(h->profile))
        wrong = "unknown profile";
    else if (h->seed > INT64_MAX)
        wrong = "seed is above 2^63 - 1";
    char text[200];
    if (!wrong && kvb_model_check(&h->model, text, sizeof text))
        wrong = text;
    return wrong ? kvb_why_set(-EINVAL, why, why_bytes, "%s: header: %s", path, wrong) : 0;
}

int kvb_trace_create(const char *path, const kvb_trace_header *header, kvb_output_file *file, char *why,
                     size_t why_bytes)
{
    *file = (kvb_output_file){0};
    int err = header_check(header, path, why, why_bytes);
    err = err ? err : kvb_output_file_open(path, false, file, why, why_bytes);
    if (!err)
        kvb_trace_header_print(file->stream, header);
    return err;
}

/*
 * Lines that give a token to several sequences: the token belongs to the first, and copies (seq_cp) after the event
 * give it to the others. That is equivalent as long as no token of the event would see tokens that its sequence gets by
 * these copies.
 */

typedef struct sharing {
    const kvb_history *history;
    kvb_event_store *store;
    size_t n_shares, n;                /* shares of the line; those checked and joined, the first of store->shares */
    uint32_t last[KVB_TRACE_MAX_SEQS]; /* number, from 1 on, of the last share with a sequence; 0: none */
    uint32_t own[KVB_TRACE_MAX_SEQS];  /* tokens of the line so far, by sequence */
} sharing;

/* Checks a share, and joins it to the last one of its sequence if it continues that one. */
static void share_join(kvb_parsing *r, sharing *all, kvb_trace_share share)
{
    kvb_trace_share *last = all->last[share.dst] ? &all->store->shares[all->last[share.dst] - 1] : NULL;
    const uint32_t next = last ? last->p0 + last->n : kvb_history_next(all->history, share.dst) + all->own[share.dst];
    if (share.dst == share.src || (last && last->at == share.at))
        kvb_parsing_fail(r, -EINVAL, "names sequence %u twice for position %u", share.dst, share.p0);
    if (share.p0 != next)
        kvb_parsing_fail(r, -EINVAL, "shares position %u with sequence %u, whose next one is %u", share.p0, share.dst,
                         next);
    if (last && last->src == share.src) {
        last->at = share.at;
        last->n += share.n;
        return;
    }
    all->store->shares[all->n] = share;
    all->last[share.dst] = (uint32_t)++all->n;
}

/* Checks the shares token by token, against what the sequences hold at each token. */
static void tokens_share(kvb_parsing *r, sharing *all)
{
    const kvb_event *event = &all->store->event;
    for (size_t i = 0, at = 0; i < event->n && !r->error; i++) {
        const uint32_t s = event->seq[i];
        const uint32_t next = kvb_history_next(all->history, s) + all->own[s]++,
                       pos = event->kind == KVB_EVENT_FILL ? next : event->pos[i];
        if (all->last[s])
            kvb_parsing_fail(r, -EINVAL,
                             "position %u of sequence %u would not see what others share with it in the same line", pos,
                             s);
        for (; at < all->n_shares && all->store->shares[at].at == i && !r->error; at++) {
            kvb_trace_share share = all->store->shares[at];
            share.src = s;
            share.p0 = pos;
            share_join(r, all, share);
        }
    }
}

/* Before the event is applied: may its tokens be shared in this way? Shares that continue each other are joined. */
static void shares_check(kvb_parsing *r, const kvb_history *history, kvb_event_store *store)
{
    store->next_copy = 0;
    if (!store->n_shares || r->error)
        return;
    sharing *all = calloc(1, sizeof *all);
    if (!all) {
        kvb_parsing_fail(r, -ENOMEM, "no memory");
        return;
    }
    all->history = history;
    all->store = store;
    all->n_shares = store->n_shares;
    tokens_share(r, all);
    store->n_shares = store->event.error ? 0 : all->n; /* a refused event has no copies */
    free(all);
}

/* After it: turns the event into the next seq_cp of the line, to be applied like any other. False: no more. */
static bool shares_next(kvb_event_store *store)
{
    if (store->next_copy == store->n_shares)
        return false;
    const kvb_trace_share *share = &store->shares[store->next_copy++];
    store->event = (kvb_event){
        .kind = KVB_EVENT_SEQ_CP, .src = share->src, .dst = share->dst, .p0 = share->p0, .p1 = share->p0 + share->n};
    return true;
}

/* Longest line: three arrays of KVB_TRACE_MAX_STEP numbers take about 2 MB. */
#define MAX_LINE_BYTES ((size_t)16 << 20)

typedef struct reader {
    kvb_trace *trace; /* what was read so far */
    FILE *file;
    char *line; /* last read, without its newline; may hold NUL bytes */
    size_t line_bytes, line_room;
    uint64_t line_number; /* 1-based */
    bool ends_in_newline; /* the line last read */
    kvb_event_store store;
    kvb_history *history;
    json_t *sees;    /* of the event that was read last, or NULL */
    uint32_t stated; /* the header's capacity, for events that must be refused */
    kvb_parsing reading;
} reader;

/* Reads the next line that is not blank. False: the end, or an error. */
static bool line_read(reader *r)
{
    bool blank = true;
    while (blank) {
        int c;
        r->line_bytes = 0;
        r->ends_in_newline = false;
        r->line_number++;
        while ((c = getc_unlocked(r->file)) != EOF) {
            if (c == '\n') {
                r->ends_in_newline = true;
                break;
            }
            if (r->line_bytes == MAX_LINE_BYTES)
                return !kvb_parsing_fail(&r->reading, -EINVAL, "line is longer than %zu bytes", MAX_LINE_BYTES);
            if (kvb_array_reserve(&r->line, &r->line_room, r->line_bytes + 1, 1))
                return !kvb_parsing_fail(&r->reading, -ENOMEM, "no memory");
            blank &= c == ' ' || c == '\t' || c == '\r';
            r->line[r->line_bytes++] = (char)c;
        }
        if (ferror(r->file))
            return !kvb_parsing_fail(&r->reading, -EIO, "cannot be read: %s", strerror(errno));
        if (c == EOF && blank)
            return false;
    }
    return true;
}

/* NULL: no JSON. */
static json_t *line_parse(reader *r)
{
    json_error_t error;
    json_t *json = json_loadb(r->line, r->line_bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!json)
        kvb_parsing_fail(&r->reading, -EINVAL, "%scolumn %d: %s",
                         r->ends_in_newline ? "" : "truncated? the last line has no newline and is not JSON: ",
                         error.column, error.text);
    return json;
}

/* ---- a model in place of the header's ------------------------------------------------------------------ */

static kvb_model instead; /* n_groups 0: none */

void kvb_trace_model_set(const kvb_model *model)
{
    instead = model ? *model : (kvb_model){0};
    for (uint32_t i = 0; i < instead.n_groups; i++) {
        kvb_group *g = &instead.groups[i];
        if (kvb_group_scans(g))
            continue;
        g->scale = 1 / sqrt(g->k_dim);
        g->rope = kvb_rope_usual(g);
    }
}

static int header_change(kvb_trace_header *h)
{
    for (uint32_t g = 0; g < h->model.n_groups; g++)
        free((float *)(uintptr_t)h->model.groups[g].sink_logits);
    h->model = instead;
    if (h->profile)
        return 0;
    free(h->tensors);
    h->tensors = NULL;
    h->seed = 1;
    h->profile = strdup("llama");
    return h->profile ? 0 : -ENOMEM;
}

/* capacity: in place of the header's, if it is not 0. */
static void header_read(reader *r, uint32_t capacity)
{
    kvb_trace_header *header = &r->trace->header;
    json_t *json = line_read(r) ? line_parse(r) : NULL;
    if (json)
        kvb_trace_header_parse(&r->reading, json, r->trace->path, header);
    else
        kvb_parsing_fail(&r->reading, -EINVAL, "empty: expected a header line, {\"kvbench_trace\":1,…}");
    json_decref(json);
    if (!r->reading.error && instead.n_groups && header_change(header))
        kvb_parsing_fail(&r->reading, -ENOMEM, "no memory");
    r->stated = header->capacity;
    header->capacity = capacity ? capacity : header->capacity;
    kvb_history_rope_unknown(r->history, kvb_model_unknown_rope(&header->model));
}

/* ---- "sees" ---------------------------------------------------------------------------------------------- */

/* Does query i of the last event see the listed tokens in the group, and no others? */
static void list_check(reader *r, const kvb_group *group, uint32_t i, const json_t *list)
{
    const kvb_row_run *runs;
    const int64_t n_runs = kvb_history_visible(r->history, group, i, &runs);
    size_t seen = 0, k;
    if (n_runs < 0)
        kvb_parsing_fail(&r->reading, -ENOMEM, "no memory");
    for (k = 0; k < json_array_size(list); k++)
        if (!json_is_integer(json_array_get(list, k)))
            kvb_parsing_fail(&r->reading, -EINVAL, "\"" KVB_TRACE_SEES "\"[%u][%zu]: expected an integer, found %s", i,
                             k, kvb_json_type_name(json_array_get(list, k)));
    for (int64_t run = 0; run < n_runs; run++)
        for (uint32_t row = runs[run].row; row < runs[run].row + runs[run].n; row++, seen++) {
            const json_int_t token = (json_int_t)kvb_history_token(r->history, row);
            for (k = 0; k < json_array_size(list) && json_integer_value(json_array_get(list, k)) != token;)
                k++;
            if (k == json_array_size(list))
                kvb_parsing_fail(&r->reading, -EINVAL, "\"" KVB_TRACE_SEES "\"[%u]: the query sees token %lld, too", i,
                                 (long long)token);
        }
    if (seen != json_array_size(list))
        kvb_parsing_fail(&r->reading, -EINVAL, "\"" KVB_TRACE_SEES "\"[%u]: the query sees %zu tokens, not %zu", i,
                         seen, json_array_size(list));
}

/* Checks "sees" of the last event. Not with a model in place of the header's, which has other limits. */
static void sees_check(reader *r)
{
    const kvb_event *e = &r->store.event;
    const kvb_model *model = &r->trace->header.model;
    if (!r->sees || instead.n_groups)
        return;
    if (e->kind > KVB_EVENT_PROPOSE || e->kind == KVB_EVENT_FILL || json_array_size(r->sees) != e->n)
        kvb_parsing_fail(&r->reading, -EINVAL,
                         "%s: \"" KVB_TRACE_SEES "\": expected a list or null for each of %u queries",
                         kvb_event_kind_name(e->kind), e->kind > KVB_EVENT_PROPOSE ? 0 : e->n);
    for (uint32_t i = 0; i < e->n && !r->reading.error; i++) {
        const json_t *lists = json_array_get(r->sees, i);
        const bool each = json_is_array(json_array_get(lists, 0));
        if (json_is_null(lists))
            continue;
        if (!json_is_array(lists) || (each && json_array_size(lists) != model->n_groups))
            kvb_parsing_fail(&r->reading, -EINVAL,
                             "\"" KVB_TRACE_SEES "\"[%u]: expected a list of tokens, or one for each of %u groups", i,
                             model->n_groups);
        for (uint32_t g = 0; g < model->n_groups && !r->reading.error; g++)
            if (!kvb_group_scans(&model->groups[g]))
                list_check(r, &model->groups[g], i, each ? json_array_get(lists, g) : lists);
    }
}

/* Reads the next event: a copy of the last line, or the event of the next line. False: the end, or an error. */
static bool event_read(reader *r)
{
    json_decref(r->sees);
    r->sees = NULL;
    r->reading.where[0] = '\0';
    if (shares_next(&r->store))
        return true;
    json_t *json = line_read(r) ? line_parse(r) : NULL;
    if (!json)
        return false;
    if (!kvb_event_parse(&r->reading, json, &r->store))
        r->sees = json_incref(json_object_get(json, KVB_TRACE_SEES));
    json_decref(json);
    shares_check(&r->reading, r->history, &r->store);
    r->reading.where[0] = '\0';
    return !r->reading.error;
}

/* ---- a whole trace ------------------------------------------------------------------------------------- */

void kvb_trace_free(kvb_trace *trace)
{
    if (!trace)
        return;
    for (size_t i = 0; i < trace->n_events; i++)
        kvb_event_clear(&trace->events[i]);
    free(trace->events);
    free(trace->like);
    free(trace->path);
    kvb_trace_header_clear(&trace->header);
    free(trace);
}

/* Reads and checks all events. */
static void events_read(reader *r)
{
    kvb_trace *t = r->trace;
    size_t room = 0;
    while (!r->reading.error && event_read(r)) {
        char text[400];
        kvb_event *event = &r->store.event;
        const int err =
            kvb_history_take(r->history, event, event->error ? r->stated : t->header.capacity, text, sizeof text);
        event->line = r->line_number;
        if (err)
            kvb_parsing_fail(&r->reading, err, "%s", text);
        else
            sees_check(r);
        if (kvb_array_reserve(&t->events, &room, t->n_events + 1, sizeof *t->events)) {
            kvb_parsing_fail(&r->reading, -ENOMEM, "no memory");
            return;
        }
        t->events[t->n_events++] = *event; /* moves */
        *event = (kvb_event){0};
    }
    t->needs = *kvb_history_needs(r->history);
    if (!r->reading.error && t->needs.reuse && kvb_alike_find(t, &t->like))
        kvb_parsing_fail(&r->reading, -ENOMEM, "no memory");
}

static int trace_read(const char *path, uint32_t capacity, bool whole, kvb_trace **trace, char *why, size_t why_bytes)
{
    reader *r = calloc(1, sizeof *r);
    kvb_trace *t = *trace = calloc(1, sizeof *t);
    int err = r && t && (t->path = strdup(path)) && !kvb_history_open(KVB_TRACE_MAX_CELLS, &r->history) ? 0 : -ENOMEM;
    if (err)
        kvb_why_set(err, why, why_bytes, "%s: no memory", path);
    else if (!(r->file = fopen(path, "re")))
        err = kvb_why_set(-errno, why, why_bytes, "%s: cannot be read: %s", path, strerror(errno));
    if (!err) {
        r->trace = t;
        header_read(r, capacity);
        if (whole && !r->reading.error)
            events_read(r);
        if (r->reading.error)
            err = kvb_why_set(r->reading.error, why, why_bytes, "%s:%llu: %s", path, (unsigned long long)r->line_number,
                              r->reading.text);
        fclose(r->file);
        free(r->line);
        json_decref(r->sees);
        kvb_event_clear(&r->store.event);
        free(r->store.shares);
    }
    if (r)
        kvb_history_free(r->history);
    free(r);
    if (err) {
        kvb_trace_free(t);
        *trace = NULL;
    }
    return err;
}

int kvb_trace_load(const char *path, uint32_t capacity, kvb_trace **trace, char *why, size_t why_bytes)
{
    return trace_read(path, capacity, true, trace, why, why_bytes);
}

int kvb_trace_load_header(const char *path, kvb_trace **trace, char *why, size_t why_bytes)
{
    return trace_read(path, 0, false, trace, why, why_bytes);
}
