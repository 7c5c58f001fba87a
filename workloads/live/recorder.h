/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records a live run: its events, and the q, K and V rows of every token and layer, by ordinal (the token's identity in
 * the trace). A token is recorded once, when it is new, even if a cache wants its rows again: so a recording does not
 * depend on the cache.
 */
#ifndef KVB_LIVE_RECORDER_H
#define KVB_LIVE_RECORDER_H

#include "workloads/array.h"
#include "workloads/trace.h"
#include "workloads/values.h"

#define KVB_RECORDER_ROWS (KVB_ROWS_KINDS + 1)

typedef struct kvb_recorder {
    kvb_model model;
    bool has_outputs;  /* the last kind of rows: of each attending layer [heads * v_dim] */
    kvb_event *events; /* own copies; pos, seq, tok and parents filled in for tokens */
    size_t n_events, max_events;
    float **rows[KVB_RECORDER_ROWS]; /* [layers], each [max_tokens][heads of that kind * dim]; NULL: layer without it */
    const float **constant[KVB_CONSTANTS]; /* [layers], the caller's; NULL: the layer has none */
    uint64_t n_tokens, max_tokens;
    kvb_arena arena; /* of rows and constant, without the layers' rows */
} kvb_recorder;

/* 0 or -ENOMEM. */
int kvb_recorder_open(kvb_recorder *recorder, const kvb_model *model);
void kvb_recorder_close(kvb_recorder *recorder);

/* Appends a copy of an event; tokens of step, prefill, fill and propose get their identities here. 0 or -ENOMEM. */
int kvb_recorder_event(kvb_recorder *recorder, const kvb_event *event);

/* Records rows of the last n_new of n fed tokens in one layer. rows, by kind: [n][heads * dim], or NULL: the layer does
 * not have the kind, or gets it in another call. ordinals [n]. The event of the tokens must have been appended. */
void kvb_recorder_rows(kvb_recorder *recorder, uint32_t layer, const uint64_t *ordinals, uint32_t n, uint32_t n_new,
                       const float *const rows[KVB_ROWS_KINDS]);

/* Floats of one token's rows of a kind in a layer. */
size_t kvb_recorder_floats(const kvb_recorder *recorder, uint32_t layer, int kind);

/*
 * Writes directory/NAME.jsonl and directory/NAME.safetensors (the tensors first, so that a trace that exists has its
 * tensors). header: name, source, note and outputs; the rest is the recorder's. 0 or a negative errno with "path: …".
 */
int kvb_recorder_save(const kvb_recorder *recorder, const char *directory, const kvb_trace_header *header, char *why,
                      size_t why_bytes);

#endif
