/* SPDX-License-Identifier: Apache-2.0 */
/* The trace writer: header and events as JSON Lines, in the key order that trace.h shows. */
#include "workloads/output_file.h"
#include "workloads/trace_internal.h"
#include "workloads/values.h"
#include "workloads/why.h"

#include <errno.h>
#include <inttypes.h>
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

/* ---- events -------------------------------------------------------------------------------------------- */

static void array_write(FILE *out, const char *key, const uint32_t *array, uint32_t n)
{
    fprintf(out, "\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++)
        fprintf(out, "%s%u", i ? "," : "", array[i]);
    fputc(']', out);
}

static void signed_array_write(FILE *out, const char *key, const int32_t *array, uint32_t n)
{
    fprintf(out, "\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++)
        fprintf(out, "%s%d", i ? "," : "", array[i]);
    fputc(']', out);
}

static void tokens_write(FILE *out, const kvb_event *e)
{
    if (!e->tok)
        return;
    fputc(',', out);
    signed_array_write(out, "tok", e->tok, e->n);
}

/* Absent ends of a range stand for the whole sequence. */
static void range_write(FILE *out, const kvb_event *e)
{
    if (e->p0 != 0)
        fprintf(out, ",\"p0\":%u", e->p0);
    if (e->p1 != KVB_TRACE_POS_END)
        fprintf(out, ",\"p1\":%u", e->p1);
}

static void step_write(FILE *out, const kvb_event *e)
{
    array_write(out, "pos", e->pos, e->n);
    fputc(',', out);
    array_write(out, "seq", e->seq, e->n);
    tokens_write(out, e);
}

static void prefill_write(FILE *out, const kvb_event *e)
{
    fprintf(out, "\"seq\":%u,\"from\":%u,\"n\":%u", e->seq[0], e->pos[0], e->n);
    tokens_write(out, e);
    if (e->reuse)
        fprintf(out, ",\"reuse\":%" PRIu64, e->extra_key);
}

static void fill_write(FILE *out, const kvb_event *e)
{
    fprintf(out, "\"seq\":%u,\"n\":%u", e->seq[0], e->n);
}

static void propose_write(FILE *out, const kvb_event *e)
{
    uint32_t others = 0;
    signed_array_write(out, "parents", e->parents, e->n);
    for (uint32_t i = 0; i < e->n && e->seq; i++)
        others |= e->seq[i];
    if (others) {
        fputc(',', out);
        array_write(out, "seq", e->seq, e->n);
    }
    tokens_write(out, e);
}

static void commit_write(FILE *out, const kvb_event *e)
{
    array_write(out, "accepted", e->accepted, e->n);
    if (e->src)
        fprintf(out, ",\"seq\":%u", e->src);
}

static void seq_cp_write(FILE *out, const kvb_event *e)
{
    fprintf(out, "\"src\":%u,\"dst\":%u", e->src, e->dst);
    range_write(out, e);
}

static void seq_rm_write(FILE *out, const kvb_event *e)
{
    fprintf(out, "\"seq\":%u", e->src);
    range_write(out, e);
}

static void seq_keep_write(FILE *out, const kvb_event *e)
{
    fprintf(out, "\"seq\":%u", e->src);
}

static void rewind_write(FILE *out, const kvb_event *e)
{
    fprintf(out, "\"len\":%u", e->len);
}

static void reorder_write(FILE *out, const kvb_event *e)
{
    array_write(out, "dst", e->dsts, e->n);
    fputc(',', out);
    array_write(out, "src", e->srcs, e->n);
}

static void clear_write(FILE *out, const kvb_event *e)
{
    (void)out, (void)e;
}

static void seq_add_write(FILE *out, const kvb_event *e)
{
    fprintf(out, "\"seq\":%u", e->src);
    range_write(out, e);
    fprintf(out, ",\"delta\":%d", (int)e->delta);
}

static void seq_div_write(FILE *out, const kvb_event *e)
{
    fprintf(out, "\"seq\":%u", e->src);
    range_write(out, e);
    fprintf(out, ",\"d\":%u", e->divisor);
}

static void slot_write(FILE *out, const kvb_event *e)
{
    fprintf(out, "\"slot\":%u", e->slot);
    if (e->src != KVB_TRACE_ALL)
        fprintf(out, ",\"seq\":%u", e->src);
}

static void (*const body_writers[])(FILE *out, const kvb_event *e) = {
    [KVB_EVENT_STEP] = step_write,       [KVB_EVENT_PREFILL] = prefill_write,   [KVB_EVENT_FILL] = fill_write,
    [KVB_EVENT_PROPOSE] = propose_write, [KVB_EVENT_COMMIT] = commit_write,     [KVB_EVENT_SEQ_CP] = seq_cp_write,
    [KVB_EVENT_SEQ_RM] = seq_rm_write,   [KVB_EVENT_SEQ_KEEP] = seq_keep_write, [KVB_EVENT_REWIND] = rewind_write,
    [KVB_EVENT_CLEAR] = clear_write,     [KVB_EVENT_REORDER] = reorder_write,   [KVB_EVENT_SEQ_ADD] = seq_add_write,
    [KVB_EVENT_DEFRAG] = clear_write,    [KVB_EVENT_SAVE] = slot_write,         [KVB_EVENT_LOAD] = slot_write,
    [KVB_EVENT_SEQ_DIV] = seq_div_write,
};

int kvb_trace_write(kvb_trace_writer *writer, const kvb_event *event, char *why, size_t why_bytes)
{
    FILE *out = writer->file.stream;
    const bool refused = event->kind == KVB_EVENT_REFUSED;
    const kvb_event_kind kind = refused ? event->call : event->kind;
    if ((unsigned)kind >= KVB_EVENT_REFUSED || (refused && !kvb_refusal_name(event->error)))
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: event of an unknown kind", writer->file.path);
    errno = 0;
    fprintf(out, "{\"%s\":{", kvb_event_kind_name(kind));
    body_writers[kind](out, event);
    if (refused)
        fprintf(out, "},\"%s\":\"%s", kvb_event_kind_name(KVB_EVENT_REFUSED), kvb_refusal_name(event->error));
    fputs(refused ? "\"}\n" : "}}\n", out);
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
