/* SPDX-License-Identifier: Apache-2.0 */
/* The trace writer: header and events as JSON Lines, in the key order that trace.h shows. */
#include "workloads/output_file.h"
#include "workloads/trace_internal.h"
#include "workloads/values.h"
#include "workloads/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct kvb_trace_writer {
    kvb_output_file file;
};

/* ---- header -------------------------------------------------------------------------------------------- */

/* What can be read back; the rest is as the caller made it. */
static int header_check(const kvb_trace_header *h, const char *path, char *why, size_t why_bytes)
{
    const char *wrong = NULL;
    const char *strings[] = {h->name, h->source, h->note, h->tensors, h->profile};
    for (size_t i = 0; i < sizeof strings / sizeof *strings && !wrong; i++) {
        json_t *value = json_string(strings[i] ? strings[i] : "");
        wrong = value ? NULL : "a text is not UTF-8";
        json_decref(value);
    }
    if (!h->name || !*h->name || !h->source)
        wrong = "name or source is missing";
    else if (!h->tensors == !h->profile)
        wrong = "values are either tensors or a profile";
    else if (h->profile && !kvb_profile_find(h->profile))
        wrong = "unknown profile";
    else if (h->seed > INT64_MAX)
        wrong = "seed is above 2^63 - 1";
    char text[200];
    if (!wrong && kvb_model_check(&h->model, text, sizeof text))
        wrong = text;
    return wrong ? kvb_why_set(-EINVAL, why, why_bytes, "%s: header: %s", path, wrong) : 0;
}

int kvb_trace_create(const char *path, const kvb_trace_header *header, kvb_trace_writer **writer, char *why,
                     size_t why_bytes)
{
    *writer = NULL;
    int err = header_check(header, path, why, why_bytes);
    if (err)
        return err;
    kvb_trace_writer *w = calloc(1, sizeof *w);
    if (!w)
        return kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    err = kvb_output_file_open(path, &w->file, why, why_bytes);
    if (err) {
        free(w);
        return err;
    }
    kvb_trace_header_print(w->file.stream, header);
    *writer = w;
    return 0;
}

int kvb_trace_write(kvb_trace_writer *writer, const kvb_event *event, char *why, size_t why_bytes)
{
    FILE *out = writer->file.stream;
    const bool refused = event->kind == KVB_EVENT_REFUSED;
    const kvb_event_kind kind = refused ? event->call : event->kind;
    if ((unsigned)kind >= KVB_EVENT_REFUSED || (refused && !kvb_refusal_name(event->error)))
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: event of an unknown kind", writer->file.path);
    errno = 0;
    kvb_event_print(out, event);
    if (!ferror(out))
        return 0;
    int err = errno ? errno : EIO;
    return kvb_why_set(-err, why, why_bytes, "%s: cannot be written: %s", writer->file.path, strerror(err));
}

int kvb_trace_writer_close(kvb_trace_writer *writer, bool commit, char *why, size_t why_bytes)
{
    if (!writer)
        return 0;
    int err = kvb_output_file_close(&writer->file, commit, why, why_bytes);
    free(writer);
    return err;
}
