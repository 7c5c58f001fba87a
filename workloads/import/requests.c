/* SPDX-License-Identifier: Apache-2.0 */
/* From a file to requests: lines, what every format has in common, and the limits of the trace format. */
#include "workloads/import/import.h"
#include "workloads/trace.h"
#include "workloads/why.h"
#include "workloads/array.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest line. The longest of the Mooncake traces takes about 2 KB. */
#define MAX_LINE_BYTES ((size_t)1 << 20)

const kvb_import_format *const kvb_import_formats[] = {&kvb_import_mooncake, &kvb_import_azure, NULL};

int kvb_import_choose(const char *text, const kvb_import_format **format, const char **file, char *why,
                      size_t why_bytes)
{
    const char *colon = strchr(text, ':');
    char known[128] = "";
    size_t used = 0;
    for (const kvb_import_format *const *f = kvb_import_formats; *f && used < sizeof known; f++) {
        if (colon && strlen((*f)->name) == (size_t)(colon - text) &&
            !strncmp((*f)->name, text, (size_t)(colon - text))) {
            *format = *f;
            *file = colon + 1;
            return **file ? 0 : kvb_why_set(-EINVAL, why, why_bytes, "'%s': the file is missing", text);
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", (*f)->name);
    }
    if (!colon)
        return kvb_why_set(-EINVAL, why, why_bytes, "'%s': expected FORMAT:FILE; known formats: %s", text, known);
    return kvb_why_set(-EINVAL, why, why_bytes, "no format '%.*s'; known: %s", (int)(colon - text), text, known);
}

/* 1: a line of *bytes bytes, without its newline; 0: end. */
static int line_read(FILE *stream, char *line, size_t *bytes, char *why, size_t why_bytes)
{
    int c;
    *bytes = 0;
    while ((c = getc_unlocked(stream)) != EOF && c != '\n') {
        if (*bytes == MAX_LINE_BYTES)
            return kvb_why_set(-EINVAL, why, why_bytes, "expected a line of at most %zu bytes", MAX_LINE_BYTES);
        line[(*bytes)++] = (char)c;
    }
    if (ferror(stream))
        return kvb_why_set(-EIO, why, why_bytes, "cannot be read: %s", strerror(errno));
    if (*bytes && line[*bytes - 1] == '\r')
        --*bytes;
    return c != EOF || *bytes;
}

static bool line_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (line[i] != ' ' && line[i] != '\t')
            return false;
    return true;
}

/* Tokens after division. The prompt enters in one prefill, so it is to fit into one event. */
static int length_shrink(const char *what, int64_t tokens, uint32_t shrink, uint32_t *left, char *why, size_t why_bytes)
{
    int64_t most = (int64_t)KVB_TRACE_MAX_STEP * shrink;
    if (tokens < 1 || tokens > most)
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "expected %s of 1 to %lld tokens (%u after division by %u), found %lld", what,
                           (long long)most, KVB_TRACE_MAX_STEP, shrink, (long long)tokens);
    *left = tokens < shrink ? 1 : (uint32_t)(tokens / shrink);
    return 0;
}

static int request_check(const kvb_import_line *line, const kvb_import_options *options, kvb_import_request *request,
                         char *why, size_t why_bytes)
{
    int err = length_shrink("a prompt", line->input, options->shrink, &request->input, why, why_bytes);
    if (!err)
        err = length_shrink("an output", line->output, options->shrink, &request->output, why, why_bytes);
    uint32_t block = options->format->block_tokens;
    if (err || !block)
        return err;
    int64_t most = (line->input + block - 1) / block;
    if (line->n_blocks > (size_t)most)
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "expected at most %lld prefix blocks of %u tokens for a prompt of %lld, found %zu",
                           (long long)most, block, (long long)line->input, line->n_blocks);
    return 0;
}

static int request_add(kvb_import_requests *requests, const kvb_import_request *request, char *why, size_t why_bytes)
{
    if (kvb_array_reserve(&requests->at, &requests->room, requests->n + 1, sizeof *requests->at))
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory");
    requests->at[requests->n++] = *request;
    return 0;
}

/* Where reading is. */
typedef struct progress {
    uint64_t line;   /* 1-based */
    uint64_t time;   /* of the last request */
    uint64_t tokens; /* of all requests, shared ones not deducted */
} progress;

/* One line: its request, if it has one, is added. */
static int line_take(const char *line, size_t bytes, const kvb_import_options *options, progress *at,
                     kvb_import_requests *requests, char *why, size_t why_bytes)
{
    kvb_import_line parsed = {0};
    kvb_import_request request = {0};
    int got = options->format->parse(line, bytes, at->line, &parsed, why, why_bytes);
    int err = got == 1 ? request_check(&parsed, options, &request, why, why_bytes) : got;
    if (err || got == 0)
        goto out;
    if (parsed.time < at->time) {
        err = kvb_why_set(-EINVAL, why, why_bytes, "expected requests in order of arrival, found an earlier time");
        goto out;
    }
    at->time = parsed.time;
    at->tokens += request.input + request.output;
    if (at->tokens > KVB_TRACE_MAX_CELLS) {
        err = kvb_why_set(-EINVAL, why, why_bytes,
                          "expected at most %u tokens up to here: take fewer requests, or divide more",
                          KVB_TRACE_MAX_CELLS);
        goto out;
    }
    request.blocks = parsed.blocks;
    request.n_blocks = parsed.n_blocks;
    err = request_add(requests, &request, why, why_bytes);
    if (!err)
        parsed.blocks = NULL; /* the list owns them now */
out:
    free(parsed.blocks);
    return err;
}

int kvb_import_read(const char *file, const kvb_import_options *options, kvb_import_requests *requests, char *why,
                    size_t why_bytes)
{
    char text[300] = "";
    progress at = {0};
    size_t bytes = 0;
    int err = 0, got;
    *requests = (kvb_import_requests){0};
    FILE *stream = fopen(file, "re");
    if (!stream)
        return kvb_why_set(-errno, why, why_bytes, "%s: cannot be read: %s", file, strerror(errno));
    char *line = malloc(MAX_LINE_BYTES);
    if (!line)
        err = kvb_why_set(-ENOMEM, text, sizeof text, "no memory");
    while (!err && requests->n < options->requests) {
        at.line++;
        got = line_read(stream, line, &bytes, text, sizeof text);
        if (got <= 0) {
            err = got;
            break;
        }
        if (!line_blank(line, bytes))
            err = line_take(line, bytes, options, &at, requests, text, sizeof text);
    }
    if (!err && requests->n == 0)
        err = kvb_why_set(-EINVAL, text, sizeof text, "expected a request, found the end: the file holds none");
    if (err) {
        kvb_import_requests_free(requests);
        kvb_why_set(err, why, why_bytes, "%s:%llu: %s", file, (unsigned long long)at.line, text);
    }
    free(line);
    fclose(stream);
    return err;
}

void kvb_import_requests_free(kvb_import_requests *requests)
{
    for (size_t i = 0; i < requests->n; i++)
        free(requests->at[i].blocks);
    free(requests->at);
    *requests = (kvb_import_requests){0};
}
