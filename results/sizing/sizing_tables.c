/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as tables, and how they come about. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "results/sizing/engines.h"

/* ---- tables: columns, each with a text for programs and one for people ---------------------------------------------- */

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
    COUNT,       /* tokens, sequences */
    BYTES,       /* with a unit for people */
    KNOWN_BYTES, /* the same, not known without the weights */
    EXACT,       /* bytes to the last one, also for people */
    TOKEN_BYTES, /* double: bytes of a token */
    LIMIT,       /* what fits the budget, if there is one and the weights are known */
} content;

/* When people see a column. */
typedef enum shown { ALWAYS, WITH_BUDGET, WITH_RUNTIME, WITH_MARGIN, WITH_REASON } shown;

static const struct column {
    const char *key, *heading; /* for programs, for people; '>' marks numbers */
    content content;
    size_t offset; /* of the number in a kvb_size_row */
    bool asked;    /* has a text even if the row could not be sized */
    shown shown;
} columns[] = {
    /* in the order for programs */
    {"model", "model", TEXT, 0, true, ALWAYS},
    {"engine", "engine", TEXT, 0, true, ALWAYS},
    {"kv", "kv", TEXT, 0, true, ALWAYS},
    {">context", ">context", COUNT, offsetof(kvb_size_row, ask.context), true, ALWAYS},
    {">sequences", ">sequences", COUNT, offsetof(kvb_size_row, ask.sequences), true, ALWAYS},
    {">bytes_per_token", ">a token", TOKEN_BYTES, offsetof(kvb_size_row, size.held.bytes_per_token), false, ALWAYS},
    {">fixed_bytes_per_sequence", ">a sequence", EXACT, offsetof(kvb_size_row, size.held.fixed_bytes_per_sequence),
     false, ALWAYS},
    {">kv_bytes", ">KV", BYTES, offsetof(kvb_size_row, size.held.kv_bytes), false, ALWAYS},
    {">state_bytes", ">states", BYTES, offsetof(kvb_size_row, size.held.state_bytes), false, ALWAYS},
    {">weight_bytes", ">weights", KNOWN_BYTES, offsetof(kvb_size_row, size.weight_bytes), false, ALWAYS},
    {">total_bytes", ">total", KNOWN_BYTES, offsetof(kvb_size_row, size.total_bytes), false, ALWAYS},
    {">max_context", ">longest context", LIMIT, offsetof(kvb_size_row, size.max_context), false, WITH_BUDGET},
    {">max_sequences", ">most sequences", LIMIT, offsetof(kvb_size_row, size.max_sequences), false, WITH_BUDGET},
    {">activation_bytes", ">activations", BYTES, offsetof(kvb_size_row, size.activation_bytes), false, ALWAYS},
    {">runtime_bytes", ">runtime", BYTES, offsetof(kvb_size_row, size.runtime_bytes), false, WITH_RUNTIME},
    {">margin_bytes", ">margin", BYTES, offsetof(kvb_size_row, size.margin_bytes), false, WITH_MARGIN},
    {"reason", "reason", TEXT, 0, true, WITH_REASON},
};
enum { MODEL, ENGINE, KV, CONTEXT, SEQUENCES, REASON = 16, COLUMNS };
_Static_assert(COLUMNS == sizeof columns / sizeof *columns, "REASON is the last column");

/* People see the parts of the total before it. */
static const unsigned char order_for_people[COLUMNS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 10, 11, 12, REASON};

static void limit_text(const kvb_size_row *r, const struct column *column, bool people, uint64_t limit, char text[CELL])
{
    bool own = r->size.at_model_limit && column->offset == offsetof(kvb_size_row, size.max_context);

    if (!r->terms.budget || !r->terms.weights_known)
        return;
    if (limit != KVB_SIZE_UNBOUNDED)
        snprintf(text, CELL, "%" PRIu64 "%s", limit, people && own ? " (all)" : "");
    else if (people)
        snprintf(text, CELL, "unbounded");
}

/* Why something is missing in the row. People are told only what they would not expect. */
static void reason_text(const kvb_size_row *r, bool people, char text[CELL])
{
    const char *because = r->error                                    ? r->why
                          : !r->terms.weights_known                   ? r->weights_why
                          : people                                    ? ""
                          : !r->terms.budget                          ? "no --budget: no max_context, no max_sequences"
                          : r->size.max_context == KVB_SIZE_UNBOUNDED ? "max_context: unbounded"
                          : r->size.at_model_limit                    ? "max_context: the model's own"
                                                                      : "";

    snprintf(text, CELL, "%s%s", r->error || r->terms.weights_known ? "" : "weights: ", because);
}

/* Writes a column's text for a row; "" is an empty cell. people: with units. */
static void column_text(const kvb_size_row *r, size_t i, bool people, char text[CELL])
{
    const struct column *column = &columns[i];
    const void *at = (const char *)r + column->offset;
    uint64_t number = column->content == TEXT || column->content == TOKEN_BYTES ? 0 : *(const uint64_t *)at;
    bool unknown = column->content == KNOWN_BYTES && !r->terms.weights_known;

    text[0] = 0;
    if (r->error && !column->asked)
        return;
    if (i == REASON)
        reason_text(r, people, text);
    else if (i == KV)
        kvb_kv_text(&r->ask, text);
    else if (column->content == TEXT)
        snprintf(text, CELL, "%s", i == MODEL ? r->model->name : r->engine->name);
    else if (column->content == LIMIT)
        limit_text(r, column, people, number, text);
    else if (column->content == TOKEN_BYTES && !people)
        snprintf(text, CELL, "%.17g", *(const double *)at);
    else if (column->content == TOKEN_BYTES)
        kvb_exact_bytes_text((uint64_t) * (const double *)at, text);
    else if (unknown)
        snprintf(text, CELL, "%s", people ? "?" : "");
    else if (!people || column->content == COUNT)
        snprintf(text, CELL, "%" PRIu64, number);
    else if (column->content == EXACT)
        kvb_exact_bytes_text(number, text);
    else
        kvb_bytes_text((double)number, text);
}

static bool is_shown(const struct column *column, const kvb_sizes *rows)
{
    const kvb_size_terms *terms = &rows->at[0].terms;
    bool reason = false;

    for (size_t i = 0; i < rows->n; i++)
        reason = reason || rows->at[i].error || !rows->at[i].terms.weights_known;
    const bool asked[] = {
        [ALWAYS] = true,
        [WITH_BUDGET] = terms->budget,
        [WITH_RUNTIME] = terms->runtime_bytes,
        [WITH_MARGIN] = terms->margin,
        [WITH_REASON] = reason,
    };
    return asked[column->shown];
}

/* A table of every row, with every column that is shown. */
static int split_print(const kvb_sizes *rows, kvb_table_format format, FILE *out)
{
    bool people = format != KVB_TABLE_CSV && format != KVB_TABLE_JSON;
    const char *headings[COLUMNS + 1], *cells[COLUMNS];
    size_t used[COLUMNS];
    cell *texts = malloc(COLUMNS * sizeof *texts);
    size_t n = 0;
    int error = 0;

    for (size_t i = 0; i < COLUMNS; i++) {
        size_t column = people ? order_for_people[i] : i;

        if (!people || is_shown(&columns[column], rows))
            used[n++] = column;
    }
    for (size_t i = 0; i < n; i++)
        headings[i] = people ? columns[used[i]].heading : columns[used[i]].key;
    headings[n] = NULL;
    kvb_table *table = kvb_table_new(headings);

    if (!table || !texts)
        error = -ENOMEM;
    for (size_t row = 0; row < rows->n && !error; row++) {
        for (size_t i = 0; i < n; i++) {
            column_text(&rows->at[row], used[i], people, texts[i]);
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

/* A table with a row for each model, format, context and number of sequences, and a column for each engine. */
static int side_by_side_print(const kvb_sizes *rows, kvb_table_format format, FILE *out)
{
    static const unsigned char asked[] = {MODEL, KV, CONTEXT, SEQUENCES};
    enum { ASKED = sizeof asked };
    size_t n = ASKED + rows->n_engines;
    const char **headings = calloc(n + 1, sizeof *headings), **cells = calloc(n, sizeof *cells);
    cell *texts = calloc(n, sizeof *texts);
    kvb_table *table = NULL;
    int error = headings && cells && texts ? 0 : -ENOMEM;

    if (!error) {
        for (size_t i = 0; i < ASKED; i++)
            headings[i] = columns[asked[i]].heading;
        for (size_t i = 0; i < rows->n_engines; i++) {
            snprintf(texts[i], CELL, ">%s", rows->at[i].engine->name);
            headings[ASKED + i] = texts[i];
        }
        table = kvb_table_new(headings);
        error = table ? 0 : -ENOMEM;
    }
    for (size_t row = 0; row < rows->n && !error; row += rows->n_engines) {
        for (size_t i = 0; i < n; i++) {
            const kvb_size_row *r = &rows->at[i < ASKED ? row : row + i - ASKED];

            if (i < ASKED)
                column_text(r, asked[i], true, texts[i]);
            else if (r->error)
                snprintf(texts[i], CELL, "-");
            else
                kvb_bytes_text((double)r->size.held.kv_bytes + (double)r->size.held.state_bytes, texts[i]);
            cells[i] = texts[i];
        }
        error = kvb_table_row(table, cells);
    }
    if (!error)
        error = kvb_table_print(table, format, out);
    kvb_table_free(table);
    free(texts);
    free(cells);
    free(headings);
    return error;
}

int kvb_size_table(const kvb_sizes *rows, kvb_table_format format, FILE *out)
{
    if (format == KVB_TABLE_CSV || format == KVB_TABLE_JSON)
        return split_print(rows, format, out);
    const bool page = format == KVB_TABLE_HTML;
    const char *const before = page ? "<p>" : "",
                      *const after = page ? "</p>\n<div class=\"scroll\" tabindex=\"0\">\n" : "\n\n",
                      *const end = page ? "</div>\n" : "\n";

    fprintf(out, "%sWhat the context takes (KV rows, recurrent states), by who allocates it:%s", before, after);
    int error = side_by_side_print(rows, format, out);

    if (error)
        return error;
    fprintf(out,
            "%s%sAll of it, on one rank. A token: what one more of a long sequence takes; a sequence: what each has "
            "besides:\n"
            "its windows when full, and its states.%s",
            end, before, after);
    error = split_print(rows, format, out);
    if (page)
        fputs(end, out);
    return error ? error : ferror(out) ? -EIO : 0;
}

/* ---- --explain: the reader's notes on each field, and what they make ----------------------------------------------- */

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
