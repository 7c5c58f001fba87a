/* SPDX-License-Identifier: Apache-2.0 */
/* A whole trace in memory, read through the streaming reader. */
#include "workloads/trace_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void event_clear(kvb_event *event)
{
    free(event->pos);
    free(event->seq);
    free(event->tok);
    free(event->parents);
    free(event->accepted);
}

/* *array becomes a copy of its n elements of 4 bytes; NULL stays. */
static int array_copy(void **array, uint32_t n)
{
    const void *source = *array;
    if (!source)
        return 0;
    *array = malloc(n ? (size_t)n * sizeof(uint32_t) : 1);
    if (!*array)
        return -ENOMEM;
    memcpy(*array, source, (size_t)n * sizeof(uint32_t));
    return 0;
}

static int event_copy(kvb_event *copy, const kvb_event *event)
{
    void *arrays[] = {event->pos, event->seq, event->tok, event->parents, event->accepted};
    int err = 0;
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) {
        if (err)
            arrays[a] = NULL; /* not a copy: must not be freed */
        else
            err = array_copy(&arrays[a], event->n);
    }
    *copy = *event;
    copy->pos = arrays[0];
    copy->seq = arrays[1];
    copy->tok = arrays[2];
    copy->parents = arrays[3];
    copy->accepted = arrays[4];
    if (err)
        event_clear(copy);
    return err;
}

static int events_append(kvb_trace *trace, size_t *room, const kvb_event *event)
{
    if (trace->n_events == *room) {
        size_t more = *room ? 2 * *room : 64;
        kvb_event *grown = realloc(trace->events, more * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        trace->events = grown;
        *room = more;
    }
    int err = event_copy(&trace->events[trace->n_events], event);
    if (!err)
        trace->n_events++;
    return err;
}

/* The reader's header moves into the trace's. */
static int header_copy(kvb_trace_header *copy, const kvb_trace_header *header)
{
    *copy = *header;
    char **strings[] = {&copy->name, &copy->source, &copy->note, &copy->tensors, &copy->profile};
    bool failed = false;
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        if (!*strings[i])
            continue;
        *strings[i] = strdup(*strings[i]);
        failed |= !*strings[i];
    }
    return failed ? -ENOMEM : 0;
}

int kvb_trace_load(const char *path, uint32_t capacity, kvb_trace **trace, char *why, size_t why_bytes)
{
    *trace = NULL;
    kvb_trace_reader *reader = NULL;
    kvb_trace *t = NULL;
    int err = kvb_trace_open(path, &reader, why, why_bytes);
    if (err)
        return err;
    kvb_trace_reader_limit(reader, capacity);
    t = calloc(1, sizeof *t);
    if (!t || !(t->path = strdup(path)) || header_copy(&t->header, kvb_trace_reader_header(reader))) {
        err = kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
        goto out;
    }
    if (capacity)
        t->header.capacity = capacity;
    size_t room = 0;
    const kvb_event *event;
    while ((err = kvb_trace_next(reader, &event, why, why_bytes)) == 1) {
        if (events_append(t, &room, event)) {
            err = kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
            goto out;
        }
    }
    t->needs = *kvb_trace_reader_needs(reader);
out:
    kvb_trace_reader_close(reader);
    if (err)
        kvb_trace_free(t);
    else
        *trace = t;
    return err;
}

void kvb_trace_free(kvb_trace *trace)
{
    if (!trace)
        return;
    for (size_t i = 0; i < trace->n_events; i++)
        event_clear(&trace->events[i]);
    free(trace->events);
    free(trace->path);
    kvb_trace_header_clear(&trace->header);
    free(trace);
}
