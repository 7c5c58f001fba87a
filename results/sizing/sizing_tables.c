/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes for programs, and how they come about. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "results/sizing/engines.h"

/* ---- one list of numbers ----------------------------------------------------------------------------------------- */

enum { CELL = 1024 };

void kvb_kv_text(const kvb_size_ask *ask, char text[KVB_KV_TEXT])
{
    snprintf(text, KVB_KV_TEXT, ask->k == ask->v ? "%s" : "%s:%s", ask->k->name, ask->v->name);
}

void kvb_exact_bytes_text(uint64_t bytes, char text[KVB_UNIT_TEXT + 8])
{
    char digits[KVB_UNIT_TEXT];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, bytes);

    for (int i = 0; i < n; i++) {
        *text++ = digits[i];
        if (i + 1 < n && (n - i - 1) % 3 == 0)
            *text++ = ',';
    }
    memcpy(text, " B", 3);
}

typedef char cell[CELL];

/* What kind of number a column holds: a uint64_t, unless said otherwise. */
typedef enum content {
    TEXT,        /* none: column_text makes its text */
    COUNT,       /* tokens, sequences, bytes */
    KNOWN_BYTES, /* not known without the weights */
    TOKEN_BYTES, /* double: bytes of a token */
    LIMIT,       /* what fits the budget, if there is one and the weights are known */
} content;

static const struct column {
    const char *key; /* '>' marks numbers */
    content content;
    size_t offset; /* of the number in a kvb_size_row */
    bool asked;    /* has a text even if the row could not be sized */
} columns[] = {
    {"model", TEXT, 0, true},
    {"engine", TEXT, 0, true},
    {"kv", TEXT, 0, true},
    {">context", COUNT, offsetof(kvb_size_row, ask.context), true},
    {">sequences", COUNT, offsetof(kvb_size_row, ask.sequences), true},
    {">bytes_per_token", TOKEN_BYTES, offsetof(kvb_size_row, size.held.bytes_per_token), false},
    {">fixed_bytes_per_sequence", COUNT, offsetof(kvb_size_row, size.held.fixed_bytes_per_sequence), false},
    {">kv_bytes", COUNT, offsetof(kvb_size_row, size.held.kv_bytes), false},
    {">state_bytes", COUNT, offsetof(kvb_size_row, size.held.state_bytes), false},
    {">weight_bytes", KNOWN_BYTES, offsetof(kvb_size_row, size.weight_bytes), false},
    {">total_bytes", KNOWN_BYTES, offsetof(kvb_size_row, size.total_bytes), false},
    {">max_context", LIMIT, offsetof(kvb_size_row, size.max_context), false},
    {">max_sequences", LIMIT, offsetof(kvb_size_row, size.max_sequences), false},
    {">activation_bytes", COUNT, offsetof(kvb_size_row, size.activation_bytes), false},
    {">runtime_bytes", COUNT, offsetof(kvb_size_row, size.runtime_bytes), false},
    {">margin_bytes", COUNT, offsetof(kvb_size_row, size.margin_bytes), false},
    {">budget_bytes", COUNT, offsetof(kvb_size_row, size.budget_bytes), false},
    {"reason", TEXT, 0, true},
};
enum { MODEL, ENGINE, KV, COLUMNS = sizeof columns / sizeof *columns, REASON = COLUMNS - 1 };

/* Why something is missing in the row, or what is odd about it. */
static void reason_text(const kvb_size_row *r, char text[CELL])
{
    uint64_t own = r->model->max_context;
    const char *most = r->error || !r->size.at_engine_limit ? "" : "max_sequences: the engine's own";
    int n = snprintf(text, CELL, "%s%s%s%s",
                     r->error                                    ? r->why
                     : !r->terms.weights_known                   ? "weights: "
                     : !r->size.budget_bytes                     ? "no --budget: no max_context, no max_sequences"
                     : r->size.max_context == KVB_SIZE_UNBOUNDED ? "max_context: unbounded"
                     : r->size.at_model_limit                    ? "max_context: the model's own"
                                                                 : "",
                     !r->error && !r->terms.weights_known ? r->weights_why : "",
                     *most && r->size.at_model_limit ? "; " : "", most);

    if (own && r->ask.context > own && n >= 0 && n < CELL)
        snprintf(text + n, CELL - (size_t)n, "%sthe context is beyond the model's own %" PRIu64, n ? "; " : "", own);
}

/* Writes a column's text for a row; "" is an empty cell. */
static void column_text(const kvb_size_row *r, size_t i, char text[CELL])
{
    const struct column *column = &columns[i];
    const void *at = (const char *)r + column->offset;
    uint64_t number = column->content == TEXT || column->content == TOKEN_BYTES ? 0 : *(const uint64_t *)at;

    text[0] = 0;
    if (r->error && !column->asked)
        return;
    if (i == REASON)
        reason_text(r, text);
    else if (i == KV)
        kvb_kv_text(&r->ask, text);
    else if (column->content == TEXT)
        snprintf(text, CELL, "%s", i == MODEL ? r->model->name : r->engine->name);
    else if (column->content == TOKEN_BYTES)
        snprintf(text, CELL, "%.17g", *(const double *)at);
    else if (column->content == LIMIT && (!r->size.budget_bytes || !r->terms.weights_known))
        return;
    else if ((column->content == KNOWN_BYTES && !r->terms.weights_known) || number == KVB_SIZE_UNBOUNDED)
        return;
    else
        snprintf(text, CELL, "%" PRIu64, number);
}

int kvb_size_table(const kvb_sizes *rows, kvb_table_format format, FILE *out)
{
    const char *headings[COLUMNS + 1] = {NULL}, *cells[COLUMNS];
    cell *texts = NULL;
    int error = 0;

    if (format != KVB_TABLE_CSV && format != KVB_TABLE_JSON)
        return kvb_size_text(rows, format, out);
    for (size_t i = 0; i < COLUMNS; i++)
        headings[i] = columns[i].key;
    kvb_table *table = kvb_table_new(headings);

    texts = malloc(COLUMNS * sizeof *texts);
    if (!table || !texts)
        error = -ENOMEM;
    for (size_t row = 0; row < rows->n && !error; row++) {
        for (size_t i = 0; i < COLUMNS; i++) {
            column_text(&rows->at[row], i, texts[i]);
            cells[i] = *texts[i] ? texts[i] : NULL;
        }
        error = kvb_table_row(table, cells);
    }
    if (!error)
        error = kvb_table_print(table, format, out);
    kvb_table_free(table);
    free(texts);
    return error;
}

/* ---- --explain: the reader's notes on each field, and what they make --------------------------------------------- */

static void notes_print(const kvb_sized_model *m, int group, const char *indent, FILE *out)
{
    for (size_t i = 0; i < m->n_notes; i++)
        if (m->notes[i].group == group)
            fprintf(out, "%s%s  <- %s\n", indent, m->notes[i].text, m->notes[i].source);
}

/* Prints the product for one layer. */
static void layer_print(const kvb_sized_model *m, const kvb_sized_group *g, const kvb_size_ask *ask, FILE *out)
{
    char kv[KVB_KV_TEXT], bytes[KVB_UNIT_TEXT + 8], why[256];
    uint64_t row = 0, plain = kvb_plain_bytes(m, ask);

    kvb_kv_text(ask, kv);
    int error = kvb_layer_row_bytes(g, ask, &row, why, sizeof why);
    if (error) {
        fprintf(out, "    = cannot be stored: %s\n", why);
        return;
    }
    kvb_exact_bytes_text(row, bytes);
    switch (g->kind) {
    case KVB_SIZED_LATENT:
        fprintf(out, "    = %u + %u elements in %s: %s a token and layer\n", g->latent_dim, g->rope_dim, kv, bytes);
        break;
    case KVB_SIZED_STATE:
        fprintf(out,
                "    = %" PRIu64 " x %u + %" PRIu64 " x %" PRIu64 " bytes a sequence and layer, whatever the context\n",
                g->state_elements,
                g->state_f32 ? 4
                : ask->state ? kvb_dtype_bytes(ask->state)
                             : (unsigned)plain,
                g->conv_elements, plain);
        break;
    case KVB_SIZED_NONE:
        fprintf(out, "    = nothing\n");
        break;
    default:
        fprintf(out, "    = %u KV heads x (%u + %u) elements in %s: %s a token and layer", g->kv_heads, g->k_dim,
                g->v_dim, kv, bytes);
        if (g->kind == KVB_SIZED_WINDOW)
            fprintf(out, ", of the last %u tokens", g->window);
        if (g->kind == KVB_SIZED_CHUNK)
            fprintf(out, ", of at most %u tokens", g->window);
        if (g->sinks)
            fprintf(out, " and the first %u", g->sinks);
        fputc('\n', out);
    }
    if (g->index_dim)
        fprintf(out, "    + %u + 4 x %" PRIu64 " bytes a token and layer for the indexer\n", g->index_dim,
                kvb_ceil_div(g->index_dim, 128));
}

int kvb_size_explain(const kvb_sized_model *m, const kvb_size_ask *ask, FILE *out)
{
    char text[KVB_UNIT_TEXT + 8], why[256];
    kvb_size_allocation whole;

    fprintf(out, "%s: %s, %u layers%s%s\n", m->name, m->architecture ? m->architecture : "?", m->n_layers,
            m->source ? "; " : "", m->source ? m->source : "");
    notes_print(m, -1, "  ", out);
    for (size_t i = 0; i < m->n_groups; i++) {
        fprintf(out, "  %u x %s\n", m->groups[i].n, m->groups[i].name ? m->groups[i].name : "layer");
        notes_print(m, (int)i, "    ", out);
        layer_print(m, &m->groups[i], ask, out);
    }
    if (kvb_size_engine_ideal.allocate(m, ask, &whole, why, sizeof why) == 0) {
        kvb_exact_bytes_text((uint64_t)whole.bytes_per_token, text);
        fprintf(out, "  together: %s a token", text);
        kvb_exact_bytes_text(whole.fixed_bytes_per_sequence, text);
        fprintf(out, ", and %s a sequence\n", text);
    }
    return ferror(out) ? -EIO : 0;
}
