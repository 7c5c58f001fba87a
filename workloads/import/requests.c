/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of recorded traffic, by format.
 *
 * Azure LLM inference traces (Azure/AzurePublicDataset; Patel et al., Splitwise, ISCA 2024): CSV of
 *
 *   TIMESTAMP,ContextTokens,GeneratedTokens
 *   2023-11-16 18:15:46.6805900,374,44
 *
 * Shared prefixes are not recorded. The later files add a zone to the time: +00:00.
 */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"
#include "workloads/files.h"
#include "workloads/import/import.h"
#include "workloads/trace.h"

static const char header[] = "TIMESTAMP,ContextTokens,GeneratedTokens";

enum { FRACTION_DIGITS = 7 }; /* of a second; further ones are not compared */

/* A field of a date, as wide as its bounds. */
typedef struct date_field {
    uint32_t digits, min, max;
    char after; /* 0: the last one */
} date_field;

static const date_field date_fields[] = {{4, 1970, 9999, '-'}, {2, 1, 12, '-'}, {2, 1, 31, ' '},
                                         {2, 0, 23, ':'},      {2, 0, 59, ':'}, {2, 0, 60, 0}};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads a time as a number of the same order: its fields are digits, each to the base of its bounds. */
static bool time_parse(const char *text, const char *end, uint64_t *time)
{
    uint64_t sum = 0;
    for (size_t f = 0; f < sizeof date_fields / sizeof *date_fields; f++) {
        const date_field *field = &date_fields[f];
        uint32_t number = 0;
        for (uint32_t i = 0; i < field->digits; i++, text++) {
            if (text == end || !is_digit(*text))
                return false;
            number = number * 10 + (uint32_t)(*text - '0');
        }
        if (number < field->min || number > field->max)
            return false;
        if (field->after && (text == end || *text++ != field->after))
            return false;
        sum = sum * (field->max + 1) + number;
    }
    bool fraction = text < end && *text == '.';
    text += fraction;
    for (int digits = 0; digits < FRACTION_DIGITS; digits++) {
        bool has = fraction && text < end && is_digit(*text);
        sum = sum * 10 + (has ? (uint64_t)(*text++ - '0') : 0);
    }
    while (fraction && text < end && is_digit(*text))
        text++;
    static const char zone[] = "+00:00";
    bool has_zone = (size_t)(end - text) == sizeof zone - 1 && !memcmp(text, zone, sizeof zone - 1);
    *time = sum;
    return text == end || has_zone;
}

static bool count_parse(const char *text, const char *end, int64_t *count)
{
    bool minus = text < end && *text == '-';
    int64_t n = 0;
    text += minus;
    if (text == end)
        return false;
    for (; text < end; text++)
        if (!is_digit(*text) || __builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *text - '0', &n))
            return false;
    *count = minus ? -n : n;
    return true;
}

static bool azure_parse(kvb_parsing *r, const char *line, size_t bytes, uint64_t number, kvb_import_line *request)
{
    const char *end = line + bytes;
    if (number == 1) {
        if (bytes != sizeof header - 1 || memcmp(line, header, bytes))
            kvb_parsing_fail(r, -EINVAL, "expected the header %s", header);
        return false;
    }
    const char *first = memchr(line, ',', bytes);
    const char *second = first ? memchr(first + 1, ',', (size_t)(end - first - 1)) : NULL;
    if (!second || memchr(second + 1, ',', (size_t)(end - second - 1)))
        return !kvb_parsing_fail(r, -EINVAL, "expected the three fields %s", header);
    if (!time_parse(line, first, &request->time))
        kvb_parsing_fail(r, -EINVAL, "TIMESTAMP: expected YYYY-MM-DD hh:mm:ss.fraction, found '%.*s'",
                         (int)(first - line < 40 ? first - line : 40), line);
    if (!count_parse(first + 1, second, &request->input))
        kvb_parsing_fail(r, -EINVAL, "ContextTokens: expected a whole number of 64 bits");
    if (!count_parse(second + 1, end, &request->output))
        kvb_parsing_fail(r, -EINVAL, "GeneratedTokens: expected a whole number of 64 bits");
    return !r->error;
}

const kvb_import_format kvb_import_azure = {
    .name = "azure",
    .summary = "Azure LLM inference trace (CSV)",
    .parse = azure_parse,
};

/*
 * Request traces of Mooncake (kvcache-ai/Mooncake, FAST25-release/traces): JSON Lines of
 *
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353, 2354]}
 *
 * timestamp in ms; a hash id stands for a block of 512 tokens together with all blocks before it. Further keys are
 * ignored.
 */

static int64_t integer_get(kvb_parsing *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        kvb_parsing_fail(r, -EINVAL, "expected an integer \"%s\", found %s", key, value ? "something else" : "none");
    return json_integer_value(value);
}

static void blocks_get(kvb_parsing *r, const json_t *object, kvb_import_line *request)
{
    const json_t *ids = json_object_get(object, "hash_ids");
    if (!json_is_array(ids))
        kvb_parsing_fail(r, -EINVAL, "expected an array \"hash_ids\", found %s", ids ? "something else" : "none");
    const size_t n = json_array_size(ids);
    request->blocks = malloc((n + 1) * sizeof *request->blocks);
    if (!request->blocks)
        kvb_parsing_fail(r, -ENOMEM, "no memory");
    for (size_t i = 0; i < n && request->blocks; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            kvb_parsing_fail(r, -EINVAL, "expected \"hash_ids\"[%zu] to be an integer of at least 0", i);
        request->blocks[i] = json_integer_value(id);
    }
    request->n_blocks = n;
}

static bool mooncake_parse(kvb_parsing *r, const char *line, size_t bytes, uint64_t number, kvb_import_line *request)
{
    (void)number;
    json_error_t error;
    json_t *json = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!json)
        return !kvb_parsing_fail(r, -EINVAL, "expected a JSON object, column %d: %s", error.column, error.text);
    if (!json_is_object(json))
        kvb_parsing_fail(r, -EINVAL, "expected a JSON object with timestamp, input_length, output_length, hash_ids");
    const int64_t time = integer_get(r, json, "timestamp");
    if (time < 0)
        kvb_parsing_fail(r, -EINVAL, "expected a \"timestamp\" of at least 0 ms, found %lld", (long long)time);
    request->time = (uint64_t)time;
    request->input = integer_get(r, json, "input_length");
    request->output = integer_get(r, json, "output_length");
    blocks_get(r, json, request);
    json_decref(json);
    return !r->error;
}

const kvb_import_format kvb_import_mooncake = {
    .name = "mooncake",
    .summary = "Mooncake request trace (JSON Lines)",
    .block_tokens = 512,
    .parse = mooncake_parse,
};

/* ---- from a file to requests: lines, checks of every format, and the limits of the trace format ------------- */

/* Longest line. The longest of the Mooncake traces takes about 2 KB. */
#define MAX_LINE_BYTES ((size_t)1 << 20)

/* ends with NULL */
static const kvb_import_format *const import_formats[] = {&kvb_import_mooncake, &kvb_import_azure, NULL};

int kvb_import_choose(const char *text, const kvb_import_format **format, const char **file, char *why,
                      size_t why_bytes)
{
    const char *colon = strchr(text, ':');
    char known[128] = "";
    for (const kvb_import_format *const *f = import_formats; *f; f++) {
        if (colon && strlen((*f)->name) == (size_t)(colon - text) &&
            !strncmp((*f)->name, text, (size_t)(colon - text))) {
            *format = *f;
            *file = colon + 1;
            return **file ? 0 : kvb_why_set(-EINVAL, why, why_bytes, "'%s': the file is missing", text);
        }
        kvb_list_add(known, sizeof known, ", ", "%s", (*f)->name);
    }
    if (!colon)
        return kvb_why_set(-EINVAL, why, why_bytes, "'%s': expected FORMAT:FILE; known formats: %s", text, known);
    return kvb_why_set(-EINVAL, why, why_bytes, "no format '%.*s'; known: %s", (int)(colon - text), text, known);
}

/* Reads a line of *bytes bytes, without its newline. False: the end, or an error. */
static bool line_read(kvb_parsing *r, FILE *stream, char *line, size_t *bytes)
{
    int c;
    *bytes = 0;
    while ((c = getc_unlocked(stream)) != EOF && c != '\n') {
        if (*bytes == MAX_LINE_BYTES)
            return !kvb_parsing_fail(r, -EINVAL, "expected a line of at most %zu bytes", MAX_LINE_BYTES);
        line[(*bytes)++] = (char)c;
    }
    if (ferror(stream))
        return !kvb_parsing_fail(r, -EIO, "cannot be read: %s", strerror(errno));
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

/* The tokens after division. A prompt enters in one prefill, so it must fit in one event. */
static uint32_t length_shrink(kvb_parsing *r, const char *what, int64_t tokens, uint32_t shrink)
{
    const int64_t most = (int64_t)KVB_TRACE_MAX_STEP * shrink;
    if (tokens < 1 || tokens > most)
        kvb_parsing_fail(r, -EINVAL, "expected %s of 1 to %lld tokens (%u after division by %u), found %lld", what,
                         (long long)most, KVB_TRACE_MAX_STEP, shrink, (long long)tokens);
    return tokens < shrink ? 1 : (uint32_t)(tokens / shrink);
}

/* The state of reading. */
typedef struct progress {
    uint64_t line;   /* 1-based */
    uint64_t time;   /* of the last request */
    uint64_t tokens; /* of all requests, shared ones not deducted */
} progress;

/* Takes one line and adds its request, if it has one. */
static void line_take(kvb_parsing *r, const char *line, size_t bytes, const kvb_import_options *options, progress *at,
                      kvb_import_requests *requests)
{
    kvb_import_line parsed = {0};
    const int64_t block = options->format->block_tokens;
    if (!options->format->parse(r, line, bytes, at->line, &parsed)) {
        free(parsed.blocks);
        return;
    }
    kvb_import_request request = {.input = length_shrink(r, "a prompt", parsed.input, options->shrink),
                                  .output = length_shrink(r, "an output", parsed.output, options->shrink),
                                  .blocks = parsed.blocks,
                                  .n_blocks = parsed.n_blocks};
    const int64_t most = block && !r->error ? (parsed.input + block - 1) / block : INT64_MAX;
    if (request.n_blocks > (size_t)most)
        kvb_parsing_fail(r, -EINVAL, "expected at most %lld prefix blocks of %u tokens for a prompt of %lld, found %zu",
                         (long long)most, options->format->block_tokens, (long long)parsed.input, request.n_blocks);
    if (parsed.time < at->time)
        kvb_parsing_fail(r, -EINVAL, "expected requests in order of arrival, found an earlier time");
    at->time = parsed.time;
    at->tokens += request.input + request.output;
    if (at->tokens > KVB_TRACE_MAX_CELLS)
        kvb_parsing_fail(r, -EINVAL, "expected at most %u tokens up to here: take fewer requests, or divide more",
                         KVB_TRACE_MAX_CELLS);
    if (kvb_array_reserve(&requests->at, &requests->room, requests->n + 1, sizeof *requests->at))
        kvb_parsing_fail(r, -ENOMEM, "no memory");
    if (r->error)
        free(request.blocks);
    else
        requests->at[requests->n++] = request;
}

void kvb_import_requests_free(kvb_import_requests *requests)
{
    for (size_t i = 0; i < requests->n; i++)
        free(requests->at[i].blocks);
    free(requests->at);
    *requests = (kvb_import_requests){0};
}

int kvb_import_read(const char *file, const kvb_import_options *options, kvb_import_requests *requests, char *why,
                    size_t why_bytes)
{
    kvb_parsing r = {0};
    progress at = {0};
    size_t bytes = 0;
    *requests = (kvb_import_requests){0};
    FILE *stream = fopen(file, "re");
    if (!stream)
        return kvb_why_set(-errno, why, why_bytes, "%s: cannot be read: %s", file, strerror(errno));
    char *line = malloc(MAX_LINE_BYTES);
    if (!line)
        kvb_parsing_fail(&r, -ENOMEM, "no memory");
    while (!r.error && requests->n < options->requests) {
        at.line++;
        if (!line_read(&r, stream, line, &bytes))
            break;
        if (!line_blank(line, bytes))
            line_take(&r, line, bytes, options, &at, requests);
    }
    if (requests->n == 0)
        kvb_parsing_fail(&r, -EINVAL, "expected a request, found the end: the file holds none");
    if (r.error) {
        kvb_import_requests_free(requests);
        kvb_why_set(r.error, why, why_bytes, "%s:%llu: %s", file, (unsigned long long)at.line, r.text);
    }
    free(line);
    fclose(stream);
    return r.error;
}
