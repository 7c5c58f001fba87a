/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts recorded production workloads (arrivals, prompt and output lengths, shared prefixes) to traces.
 *
 * A trace keeps the order of arrival, prompt and output lengths, and the prefix blocks that requests share. All token
 * counts are divided by `shrink` (at least 1 is left), so that the trace replays in seconds. Arrival times are not
 * kept: a request is admitted as soon as fewer than `sequences` are alive.
 *
 * Errors: -EINVAL for bad content, -ENOMEM, -EIO, or the error of fopen; why gets "file:line: what was expected".
 * Nothing is printed.
 */
#ifndef KVB_IMPORT_H
#define KVB_IMPORT_H

#include "workloads/files.h"

#define KVB_IMPORT_MAX_REQUESTS (1u << 20)
#define KVB_IMPORT_MAX_SHRINK   512u

/* A request as read from its line. */
typedef struct kvb_import_line {
    uint64_t time;         /* of arrival, only compared within a file */
    int64_t input, output; /* tokens; checked by the caller */
    int64_t *blocks;       /* [n_blocks] id i names the prompt's whole prefix up to block i; malloc'ed, or NULL */
    size_t n_blocks;
} kvb_import_line;

typedef struct kvb_import_format {
    const char *name;
    const char *summary;   /* for `source` of the trace */
    uint32_t block_tokens; /* tokens of a prefix block; 0: the format has no sharing */
    /* Parses a line without its newline; number is 1-based. False: no request, such as a header, or an error. */
    bool (*parse)(kvb_parsing *reading, const char *line, size_t bytes, uint64_t number, kvb_import_line *request);
} kvb_import_format;

extern const kvb_import_format kvb_import_mooncake, kvb_import_azure;

typedef struct kvb_import_options {
    const kvb_import_format *format;
    uint32_t requests;  /* 1 .. KVB_IMPORT_MAX_REQUESTS: at most this many, from the top of the file */
    uint32_t shrink;    /* 1 .. KVB_IMPORT_MAX_SHRINK */
    uint32_t sequences; /* 1 .. KVB_TRACE_MAX_SEQS: most alive at once */
    uint64_t seed;      /* of the values */
} kvb_import_options;

/* A request with token counts after division. */
typedef struct kvb_import_request {
    uint32_t input, output;
    int64_t *blocks; /* [n_blocks] */
    size_t n_blocks;
} kvb_import_request;

/* Requests in order of arrival, together within the limits of trace.h. */
typedef struct kvb_import_requests {
    kvb_import_request *at;
    size_t n, room;
} kvb_import_requests;

/* "FORMAT:FILE": the format, and where the file's name begins. */
int kvb_import_choose(const char *text, const kvb_import_format **format, const char **file, char *why,
                      size_t why_bytes);

/* On failure there is nothing to free. */
int kvb_import_read(const char *file, const kvb_import_options *options, kvb_import_requests *requests, char *why,
                    size_t why_bytes);
void kvb_import_requests_free(kvb_import_requests *requests);

typedef struct kvb_import_outcome {
    uint64_t prompt_tokens; /* of all requests */
    uint64_t shared_tokens; /* those of them that enter by seq_cp */
} kvb_import_outcome;

/* Writes the trace to path, whole or not at all. name: of the workload, not empty. */
int kvb_import_write(const kvb_import_requests *requests, const kvb_import_options *options, const char *name,
                     const char *path, kvb_import_outcome *outcome, char *why, size_t why_bytes);

#endif
