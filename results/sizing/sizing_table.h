/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as tables and as a page, and how they come about. */
#ifndef KVB_SIZING_TABLE_H
#define KVB_SIZING_TABLE_H

#include "results/result.h"
#include "results/sizing/sizing.h"
#include "results/text.h"

/* One engine's answer for one model, format, context and number of sequences. */
typedef struct kvb_size_row {
    const kvb_model *model;
    const kvb_engine *engine;
    kvb_size_ask ask;
    kvb_size_terms terms;
    const char *weights_why; /* why the weights are not known, or NULL */
    kvb_size size;
    int error;     /* of kvb_size_compute; size says nothing then */
    char why[256]; /* of the error */
} kvb_size_row;

/* The rows of one run: engines innermost, then sequences, contexts, formats, models. */
typedef struct kvb_sizes {
    kvb_size_row *at;
    size_t n, n_engines, n_formats; /* n is a multiple of n_engines; a model has n_formats formats */
} kvb_sizes;

#define KVB_KV_TEXT 32u
/* "f16", or "q8_0:q4_0" for K and V apart. */
void kvb_kv_text(const kvb_size_ask *ask, char text[KVB_KV_TEXT]);
/* "70,272 B". */
void kvb_exact_bytes_text(uint64_t bytes, char text[KVB_UNIT_TEXT + 8]);

/* Text, md and html are for people: the engines side by side, then all that each needs. Csv and json are for programs: one flat
 * list with numbers. 0, -EIO or -ENOMEM. */
int kvb_size_table(const kvb_sizes *rows, kvb_table_format format, FILE *out);

/* Which field gave which factor, and what the factors come to in the ask's format. 0 or -EIO. */
int kvb_size_explain(const kvb_model *model, const kvb_size_ask *ask, FILE *out);

/* A page that needs nothing beside itself: memory against context for each model, then the tables. */
int kvb_size_page(const kvb_sizes *rows, FILE *out);

#endif
