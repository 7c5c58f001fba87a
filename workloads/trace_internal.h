/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the trace format, and by no others. */
#ifndef KVB_TRACE_INTERNAL_H
#define KVB_TRACE_INTERNAL_H

#include "workloads/files.h"
#include "workloads/history.h"

#include <jansson.h>

/* An integer of min .. max. what: "\"seed\"". */
int64_t kvb_json_integer(kvb_parsing *reading, const json_t *value, const char *what, int64_t min, int64_t max);
/* Refuses a key of object that is not in known (ends with NULL), naming both. of: "model: ", or "". */
void kvb_json_keys_check(kvb_parsing *reading, const json_t *object, const char *of, const char *const *known);
/* "an integer", "a string" … of a JSON value, for messages. */
const char *kvb_json_type_name(const json_t *value);

/* ---- one line: trace_header.c, trace_event.c ------------------------------------------------------------ */

/* path: of the trace; tensors lie beside it. On failure the header is left cleared. */
int kvb_trace_header_parse(kvb_parsing *reading, const json_t *line, const char *path, kvb_trace_header *header);
void kvb_trace_header_clear(kvb_trace_header *header);
/* Prints the line of a checked header. */
void kvb_trace_header_print(FILE *out, const kvb_trace_header *header);

/* n tokens that a line gives to one more sequence. */
typedef struct kvb_trace_share {
    uint32_t at; /* index of the first in the event; after the check, of those joined last */
    uint32_t n, dst;
    uint32_t src, p0; /* after the check: a sequence that has them, and their first position there */
} kvb_trace_share;

/* An event with arrays of its own. Zero at first. */
typedef struct kvb_event_store {
    kvb_event event;
    kvb_trace_share *shares; /* that the line names */
    size_t n_shares, shares_room;
    size_t next_copy; /* the next share to be read as a seq_cp */
} kvb_event_store;

#define KVB_TRACE_SEES "sees" /* a key beside that of the event, which the reader checks */

/* Fills store->event except line, first and the positions that the line does not hold. */
int kvb_event_parse(kvb_parsing *reading, const json_t *line, kvb_event_store *store);

#endif
