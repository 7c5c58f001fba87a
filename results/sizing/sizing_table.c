/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of sizes as tables: a table of columns, each with a text for programs and one for people. */
#include "results/sizing/sizing_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

typedef struct cell {
    char text[CELL]; /* "": empty, null in json */
} cell;

static void number_put(cell *c, uint64_t x)
{
    snprintf(c->text, sizeof c->text, "%" PRIu64, x);
}

static void bytes_put(cell *c, bool people, uint64_t x)
{
    if (people)
        kvb_bytes_text((double)x, c->text);
    else
        number_put(c, x);
}

/* What a column says of a row that is sized; people: with units. */
typedef void column_put(const kvb_size_row *row, bool people, cell *c);

static void model_put(const kvb_size_row *r, bool people, cell *c)
{
    (void)people;
    snprintf(c->text, sizeof c->text, "%s", r->model->name);
}

static void engine_put(const kvb_size_row *r, bool people, cell *c)
{
    (void)people;
    snprintf(c->text, sizeof c->text, "%s", r->engine->name);
}

static void kv_put(const kvb_size_row *r, bool people, cell *c)
{
    (void)people;
    kvb_kv_text(&r->ask, c->text);
}

static void context_put(const kvb_size_row *r, bool people, cell *c)
{
    (void)people;
    number_put(c, r->ask.context);
}

static void sequences_put(const kvb_size_row *r, bool people, cell *c)
{
    (void)people;
    number_put(c, r->ask.sequences);
}

static void token_put(const kvb_size_row *r, bool people, cell *c)
{
    if (people)
        kvb_exact_bytes_text((uint64_t)r->size.held.bytes_per_token, c->text);
    else
        snprintf(c->text, sizeof c->text, "%.17g", r->size.held.bytes_per_token);
}

static void fixed_put(const kvb_size_row *r, bool people, cell *c)
{
    if (people)
        kvb_exact_bytes_text(r->size.held.fixed_bytes_per_sequence, c->text);
    else
        number_put(c, r->size.held.fixed_bytes_per_sequence);
}

static void rows_put(const kvb_size_row *r, bool people, cell *c)
{
    bytes_put(c, people, r->size.held.kv_bytes);
}

static void state_put(const kvb_size_row *r, bool people, cell *c)
{
    bytes_put(c, people, r->size.held.state_bytes);
}

static void weight_put(const kvb_size_row *r, bool people, cell *c)
{
    if (r->terms.weights_known)
        bytes_put(c, people, r->size.weight_bytes);
    else
        snprintf(c->text, sizeof c->text, "%s", people ? "?" : "");
}

static void activation_put(const kvb_size_row *r, bool people, cell *c)
{
    bytes_put(c, people, r->size.activation_bytes);
}

static void runtime_put(const kvb_size_row *r, bool people, cell *c)
{
    bytes_put(c, people, r->size.runtime_bytes);
}

static void margin_put(const kvb_size_row *r, bool people, cell *c)
{
    bytes_put(c, people, r->size.margin_bytes);
}

static void total_put(const kvb_size_row *r, bool people, cell *c)
{
    if (r->terms.weights_known)
        bytes_put(c, people, r->size.total_bytes);
    else
        snprintf(c->text, sizeof c->text, "%s", people ? "?" : "");
}

static void limit_put(const kvb_size_row *r, bool people, cell *c, uint64_t limit)
{
    if (!r->terms.budget || !r->terms.weights_known)
        return;
    if (limit != KVB_SIZE_UNBOUNDED)
        number_put(c, limit);
    else if (people)
        snprintf(c->text, sizeof c->text, "unbounded");
}

static void context_limit_put(const kvb_size_row *r, bool people, cell *c)
{
    limit_put(r, people, c, r->size.max_context);
    if (people && *c->text && r->size.at_model_limit)
        strcat(c->text, " (all)");
}

static void sequence_limit_put(const kvb_size_row *r, bool people, cell *c)
{
    limit_put(r, people, c, r->size.max_sequences);
}

/* Why something of the row is not there; for people only what is no matter of course. */
static void reason_put(const kvb_size_row *r, bool people, cell *c)
{
    const char *because = r->error                                    ? r->why
                          : !r->terms.weights_known                   ? r->weights_why
                          : people                                    ? ""
                          : !r->terms.budget                          ? "no --budget: no max_context, no max_sequences"
                          : r->size.max_context == KVB_SIZE_UNBOUNDED ? "max_context: unbounded"
                          : r->size.at_model_limit                    ? "max_context: the model's own"
                                                                      : "";

    snprintf(c->text, sizeof c->text, "%s%s", r->error || r->terms.weights_known ? "" : "weights: ", because);
}

/* What a column is shown for to people. */
typedef enum shown { ALWAYS, WITH_BUDGET, WITH_RUNTIME, WITH_MARGIN, WITH_REASON } shown;

/* In the order for programs. */
enum {
    MODEL,
    ENGINE,
    KV,
    CONTEXT,
    SEQUENCES,
    TOKEN,
    FIXED,
    ROWS,
    STATES,
    WEIGHTS,
    TOTAL,
    LONGEST,
    MOST,
    ACTIVATIONS,
    RUNTIME,
    MARGIN,
    REASON,
    COLUMNS
};
static const unsigned char order_for_people[COLUMNS] = {
    MODEL,   ENGINE,      KV,      CONTEXT, SEQUENCES, TOKEN,   FIXED, ROWS,   STATES,
    WEIGHTS, ACTIVATIONS, RUNTIME, MARGIN,  TOTAL,     LONGEST, MOST,  REASON,
};

static const struct column {
    const char *key, *heading; /* for programs, for people; '>' is for numbers */
    column_put *put;
    bool asked; /* is there whatever became of the row */
    shown shown;
} columns[COLUMNS] = {
    [MODEL] = {"model", "model", model_put, true, ALWAYS},
    [ENGINE] = {"engine", "engine", engine_put, true, ALWAYS},
    [KV] = {"kv", "kv", kv_put, true, ALWAYS},
    [CONTEXT] = {">context", ">context", context_put, true, ALWAYS},
    [SEQUENCES] = {">sequences", ">sequences", sequences_put, true, ALWAYS},
    [TOKEN] = {">bytes_per_token", ">a token", token_put, false, ALWAYS},
    [FIXED] = {">fixed_bytes_per_sequence", ">a sequence", fixed_put, false, ALWAYS},
    [ROWS] = {">kv_bytes", ">KV", rows_put, false, ALWAYS},
    [STATES] = {">state_bytes", ">states", state_put, false, ALWAYS},
    [WEIGHTS] = {">weight_bytes", ">weights", weight_put, false, ALWAYS},
    [TOTAL] = {">total_bytes", ">total", total_put, false, ALWAYS},
    [LONGEST] = {">max_context", ">longest context", context_limit_put, false, WITH_BUDGET},
    [MOST] = {">max_sequences", ">most sequences", sequence_limit_put, false, WITH_BUDGET},
    [ACTIVATIONS] = {">activation_bytes", ">activations", activation_put, false, ALWAYS},
    [RUNTIME] = {">runtime_bytes", ">runtime", runtime_put, false, WITH_RUNTIME},
    [MARGIN] = {">margin_bytes", ">margin", margin_put, false, WITH_MARGIN},
    [REASON] = {"reason", "reason", reason_put, true, WITH_REASON},
};

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

/* Every row with every column that is shown. */
static int split_print(const kvb_sizes *rows, kvb_table_format format, FILE *out)
{
    bool people = format != KVB_TABLE_CSV && format != KVB_TABLE_JSON;
    const char *headings[COLUMNS + 1], *cells[COLUMNS];
    const struct column *used[COLUMNS];
    cell *texts = malloc(COLUMNS * sizeof *texts);
    size_t n = 0;
    int error = 0;

    for (size_t i = 0; i < COLUMNS; i++) {
        const struct column *column = &columns[people ? order_for_people[i] : i];

        if (!people || is_shown(column, rows))
            used[n++] = column;
    }
    for (size_t i = 0; i < n; i++)
        headings[i] = people ? used[i]->heading : used[i]->key;
    headings[n] = NULL;
    kvb_table *table = kvb_table_new(headings);

    if (!table || !texts)
        error = -ENOMEM;
    for (size_t row = 0; row < rows->n && !error; row++) {
        const kvb_size_row *r = &rows->at[row];

        for (size_t i = 0; i < n; i++) {
            texts[i].text[0] = 0;
            if (used[i]->asked || !r->error)
                used[i]->put(r, people, &texts[i]);
            cells[i] = *texts[i].text ? texts[i].text : NULL;
        }
        error = kvb_table_row(table, cells);
    }
    if (!error)
        error = kvb_table_print(table, format, out);
    kvb_table_free(table);
    free(texts);
    return error;
}

/* One row for each model, format, context and number of sequences; what the context takes by each engine. */
static int side_by_side_print(const kvb_sizes *rows, kvb_table_format format, FILE *out)
{
    enum { ASKED = 4 };
    static column_put *const asked[ASKED] = {model_put, kv_put, context_put, sequences_put};
    size_t n = ASKED + rows->n_engines;
    const char **headings = calloc(n + 1, sizeof *headings), **cells = calloc(n, sizeof *cells);
    cell *texts = calloc(n, sizeof *texts);
    kvb_table *table = NULL;
    int error = headings && cells && texts ? 0 : -ENOMEM;

    if (!error) {
        memcpy(headings, (const char *[]){"model", "kv", ">context", ">sequences"}, ASKED * sizeof *headings);
        for (size_t i = 0; i < rows->n_engines; i++) {
            snprintf(texts[i].text, CELL, ">%s", rows->at[i].engine->name);
            headings[ASKED + i] = texts[i].text;
        }
        table = kvb_table_new(headings);
        error = table ? 0 : -ENOMEM;
    }
    for (size_t row = 0; row < rows->n && !error; row += rows->n_engines) {
        for (size_t i = 0; i < n; i++) {
            const kvb_size_row *r = &rows->at[i < ASKED ? row : row + i - ASKED];

            if (i < ASKED)
                asked[i](r, true, &texts[i]);
            else if (r->error)
                snprintf(texts[i].text, CELL, "-");
            else
                kvb_bytes_text((double)r->size.held.kv_bytes + (double)r->size.held.state_bytes, texts[i].text);
            cells[i] = texts[i].text;
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
