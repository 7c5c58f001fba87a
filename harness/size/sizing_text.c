/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes for people, within 100 columns: for each model and format a line of common facts, tables by engine, and notes. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "harness/size/engines.h"
#include "workloads/files.h"

/* ---- one list of numbers ----------------------------------------------------------------------------------------- */

enum { CELL = 1024 };

void kvb_kv_text(const kvb_size_ask *ask, char text[KVB_KV_TEXT])
{
    snprintf(text, KVB_KV_TEXT, ask->k == ask->v ? "%s" : "%s:%s", ask->k->name, ask->v->name);
}

/* The kind of a column's number: a uint64_t, unless the comment names another type. */
typedef enum content {
    TEXT,        /* no number: column_text makes the text */
    COUNT,       /* tokens, sequences, bytes */
    KNOWN_BYTES, /* unknown without the weights */
    TOKEN_BYTES, /* double: bytes of a token */
    LIMIT,       /* a limit of the budget, if there is one and the weights are known */
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
    {">draft_bytes", KNOWN_BYTES, offsetof(kvb_size_row, size.draft_bytes), false},
    {">stage", COUNT, offsetof(kvb_size_row, size.stage), false},
    {"reason", TEXT, 0, true},
};
enum { MODEL, ENGINE, KV, COLUMNS = sizeof columns / sizeof *columns, REASON = COLUMNS - 1 };

/* Writes why something is missing in the row, or unusual. */
static void reason_text(const kvb_size_row *r, char text[CELL])
{
    const uint64_t own = r->model->max_context;
    const bool sized = !r->error && r->terms.weights_known;

    text[0] = '\0';
    if (r->error)
        kvb_list_add(text, CELL, "; ", "%s", r->why);
    else if (*r->terms.weights_why)
        kvb_list_add(text, CELL, "; ", "weights: %s", r->terms.weights_why);
    if (sized && !r->size.budget_bytes)
        kvb_list_add(text, CELL, "; ", "no --budget: no max_context, no max_sequences");
    else if (sized && r->size.max_context == KVB_SIZE_UNBOUNDED)
        kvb_list_add(text, CELL, "; ", "max_context: unbounded");
    else if (sized && r->size.at_model_limit)
        kvb_list_add(text, CELL, "; ", "max_context: the model's own");
    if (!r->error && r->size.at_engine_limit)
        kvb_list_add(text, CELL, "; ", "max_sequences: the engine's own");
    if (own && r->ask.context > own)
        kvb_list_add(text, CELL, "; ", "the context is beyond the model's own %" PRIu64, own);
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

/* ---- --explain: the reader's notes on each field, and their product ---------------------------------------------- */

static void notes_print(const kvb_sized_model *m, int group, const char *indent, FILE *out)
{
    for (size_t i = 0; i < m->n_notes; i++)
        if (m->notes[i].group == group)
            fprintf(out, "%s%s  <- %s\n", indent, m->notes[i].text, m->notes[i].source);
}

/* Prints the product for one layer. */
static void layer_print(const kvb_sized_model *m, const kvb_sized_group *g, const kvb_size_ask *ask, FILE *out)
{
    char kv[KVB_KV_TEXT], why[256];
    uint64_t row = 0, plain = kvb_plain_bytes(m, ask);

    kvb_kv_text(ask, kv);
    int error = kvb_layer_row_bytes(g, ask, &row, why, sizeof why);
    if (error) {
        fprintf(out, "    = cannot be stored: %s\n", why);
        return;
    }
    const kvb_number bytes = kvb_whole_text(row);
    switch (g->kind) {
    case KVB_SIZED_LATENT:
        fprintf(out, "    = %u + %u elements in %s: %s B a token and layer\n", g->latent_dim, g->rope_dim, kv,
                bytes.text);
        break;
    case KVB_SIZED_STATE:
        fprintf(out,
                "    = %" PRIu64 " x %u + %" PRIu64 " x %" PRIu64 " bytes a sequence and layer, whatever the context\n",
                g->state_elements,
                g->state_f32 ? 4
                : ask->state ? kvb_config_dtype_bytes(ask->state)
                             : (unsigned)plain,
                g->conv_elements, plain);
        break;
    case KVB_SIZED_NONE:
        fprintf(out, "    = nothing\n");
        break;
    default:
        fprintf(out, "    = %u KV heads x (%u + %u) elements in %s: %s B a token and layer", g->kv_heads, g->k_dim,
                g->v_dim, kv, bytes.text);
        if (g->kind == KVB_SIZED_WINDOW)
            fprintf(out, ", of the last %u tokens", g->window);
        if (g->kind == KVB_SIZED_CHUNK)
            fprintf(out, ", of at most %u tokens", g->window);
        if (g->kind == KVB_SIZED_CROSS)
            fprintf(out, ", of the encoder's %u tokens", g->window);
        if (g->kind == KVB_SIZED_POOLED)
            fprintf(out, ", one for %u tokens; and a state of %" PRIu64 " B", g->every, 4 * g->state_elements);
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
    char why[256];
    kvb_size_allocation whole;

    fprintf(out, "%s: %s, %u layers%s%s\n", m->name, m->architecture ? m->architecture : "?", m->n_layers,
            m->source ? "; " : "", m->source ? m->source : "");
    notes_print(m, -1, "  ", out);
    for (size_t i = 0; i < m->n_groups; i++) {
        fprintf(out, "  %u x %s\n", m->groups[i].n, m->groups[i].name ? m->groups[i].name : "layer");
        notes_print(m, (int)i, "    ", out);
        layer_print(m, &m->groups[i], ask, out);
    }
    if (kvb_size_hold(&kvb_size_engine_ideal, m, ask, &whole, why, sizeof why) == 0)
        fprintf(out, "  together: %s B a token, and %s B a sequence\n",
                kvb_whole_text((uint64_t)whole.bytes_per_token).text,
                kvb_whole_text(whole.fixed_bytes_per_sequence).text);
    return ferror(out) ? -EIO : 0;
}

enum { TEXT_CELL = 32, COLUMNS_MOST = 64, NOTES_MOST = 32, NOTE = 400 };

/* Prints the table without empty columns, and frees it. */
static int section_end(kvb_table *table, kvb_table_format format, FILE *out)
{
    const bool page = format == KVB_TABLE_HTML;

    if (table)
        kvb_table_drop_empty(table);
    fputs(page ? "<div class=\"scroll\" tabindex=\"0\">\n" : "", out);
    int error = kvb_table_end(table, format, out);
    fputs(page ? "</div>\n" : "\n", out);
    return error;
}

/* Bytes; "" for 0. */
static kvb_number some_text(uint64_t bytes)
{
    return bytes ? kvb_bytes_text((double)bytes) : (kvb_number){""};
}

/* Prints a paragraph, in lines of the page's width. */
static void paragraph_print(const char *text, kvb_table_format format, FILE *out)
{
    if (format == KVB_TABLE_HTML) {
        fputs("<p>", out);
        kvb_xml_put(text, out);
        fputs("</p>\n", out);
        return;
    }
    kvb_folded_put(text, 0, out);
    fputc('\n', out);
}

/* ---- the parts of a section: the rows of one model and format ---------------------------------------------------- */

static void heading_print(const kvb_size_row *r, kvb_table_format format, FILE *out)
{
    const kvb_size_terms *terms = &r->terms;
    const kvb_device *device = r->ask.device;
    const uint64_t weights = terms->n_stages ? terms->all_weight_bytes : terms->weight_bytes;
    char kv[KVB_KV_TEXT], text[NOTE];

    kvb_kv_text(&r->ask, kv);
    snprintf(text, sizeof text, "%s: KV in %s, weights %s", r->model->name, kv,
             terms->weights_known ? kvb_bytes_text((double)weights).text : "?");
    if (terms->n_stages || r->ask.tp * r->ask.pp > 1)
        kvb_list_add(text, sizeof text, terms->n_stages ? " in all, on " : " on one of ",
                     "%" PRIu64 " x %" PRIu64 " ranks", r->ask.tp, r->ask.pp);
    if (terms->budget)
        kvb_list_add(text, sizeof text, "; the budget is ", "%s", kvb_bytes_text((double)terms->budget).text);
    else if (device && terms->n_stages && terms->stages[terms->n_stages - 1].device)
        for (uint32_t i = 0; i < terms->n_stages; i++)
            kvb_list_add(text, sizeof text, i ? ", " : "; ", "%s with %s and %.3g %% of the layers",
                         terms->stages[i].device->name, kvb_bytes_text((double)terms->stages[i].device->memory).text,
                         100. * terms->stages[i].part / (double)r->ask.parts);
    else if (device)
        kvb_list_add(text, sizeof text, "; ", "%s has %s", device->name, kvb_bytes_text((double)device->memory).text);
    kvb_list_add(text, sizeof text, ".", "%s", "");
    paragraph_print(text, format, out);
}

/* Prints the context's bytes: a row for each context and number of sequences, a column for each engine. */
static int by_engine_print(const kvb_size_row *rows, size_t n, size_t engines, kvb_table_format format, FILE *out)
{
    const char *headings[COLUMNS_MOST + 1] = {">context", ">sequences"};
    char names[COLUMNS_MOST][TEXT_CELL];

    for (size_t e = 0; e < engines; e++) {
        snprintf(names[e], TEXT_CELL, ">%s", rows[e].engine->name);
        headings[2 + e] = names[e];
    }
    kvb_table *table = kvb_table_new(headings);
    for (size_t i = 0; i < n; i += engines) {
        kvb_table_cell(table, "%" PRIu64, rows[i].ask.context);
        kvb_table_cell(table, "%" PRIu64, rows[i].ask.sequences);
        for (size_t e = 0; e < engines; e++)
            if (rows[i + e].error)
                kvb_table_cell(table, "-");
            else
                kvb_table_cell(
                    table, "%s",
                    kvb_bytes_text((double)(rows[i + e].size.held.kv_bytes + rows[i + e].size.held.state_bytes)).text);
    }
    paragraph_print("What the context takes (KV rows, recurrent states), by engine:", format, out);
    return section_end(table, format, out);
}

/* Prints the exact bytes of one more token and one more sequence, at the longest context. */
static int growth_print(const kvb_size_row *rows, size_t n, size_t engines, kvb_table_format format, FILE *out)
{
    kvb_table *table = kvb_table_new((const char *const[]){"engine", ">a token", ">a sequence", NULL});

    for (const kvb_size_row *r = rows + n - engines; r < rows + n; r++)
        if (!r->error)
            kvb_table_put(table, "%s\t%s B\t%s B", r->engine->name,
                          kvb_whole_text((uint64_t)r->size.held.bytes_per_token).text,
                          kvb_whole_text(r->size.held.fixed_bytes_per_sequence).text);
    paragraph_print("A token: what one more of a long sequence takes; a sequence: what each has besides, its windows "
                    "when full, and its states:",
                    format, out);
    return section_end(table, format, out);
}

/* own: is it the model's or the engine's own limit? */
static kvb_number limit_text(const kvb_size_row *r, uint64_t limit, bool own)
{
    kvb_number number = {""};

    if (!r->size.budget_bytes || !r->terms.weights_known)
        return number;
    if (r->size.weight_bytes > r->size.budget_bytes) /* a note explains it */
        return (kvb_number){"-"};
    if (limit == KVB_SIZE_UNBOUNDED)
        return (kvb_number){"unbounded"};
    snprintf(number.text, sizeof number.text, "%" PRIu64 "%s", limit, own ? " (all)" : "");
    return number;
}

/* Prints all parts of one rank. */
static int whole_print(const kvb_size_row *rows, size_t n, kvb_table_format format, FILE *out)
{
    kvb_table *table =
        kvb_table_new((const char *const[]){"engine", ">context", ">sequences", ">KV", ">states", ">draft", ">beside",
                                            ">total", ">longest", ">most", ">stage", NULL});

    for (const kvb_size_row *r = rows; r < rows + n; r++) {
        const kvb_size *size = &r->size;

        if (r->error)
            continue;
        kvb_table_put(table, "%s\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", r->engine->name,
                      r->ask.context, r->ask.sequences, kvb_bytes_text((double)size->held.kv_bytes).text,
                      some_text(size->held.state_bytes).text, some_text(size->draft_bytes).text,
                      kvb_bytes_text((double)(size->activation_bytes + size->runtime_bytes + size->margin_bytes)).text,
                      r->terms.weights_known ? kvb_bytes_text((double)size->total_bytes).text : "?",
                      limit_text(r, size->max_context, size->at_model_limit).text,
                      limit_text(r, size->max_sequences, size->at_engine_limit).text,
                      size->stage ? kvb_whole_text(size->stage).text : "");
    }
    paragraph_print("All of it, with the weights. Beside: activations, runtime, margin. Longest, most: the context and "
                    "the number of sequences that still fit:",
                    format, out);
    return section_end(table, format, out);
}

/* Prints totals: a row for each engine and context, a column for each number of sequences. */
static int matrix_print(const kvb_size_row *rows, size_t n, size_t engines, kvb_table_format format, FILE *out)
{
    const char *headings[COLUMNS_MOST + 1] = {"engine", ">may take", ">context"};
    char names[COLUMNS_MOST][TEXT_CELL];
    size_t counts = 1;

    while (counts * engines < n && rows[counts * engines].ask.context == rows->ask.context)
        counts++;
    for (size_t c = 0; c < counts; c++) {
        snprintf(names[c], TEXT_CELL, ">%" PRIu64 " seq", rows[c * engines].ask.sequences);
        headings[3 + c] = names[c];
    }
    headings[3 + counts] = ">most seq";
    kvb_table *table = kvb_table_new(headings);
    for (size_t e = 0; e < engines; e++)
        for (size_t i = e; i < n; i += counts * engines) {
            const kvb_size_row *r = &rows[i];

            if (r->error)
                continue;
            kvb_table_cell(table, "%s", i == e ? r->engine->name : "");
            kvb_table_cell(table, "%s", some_text(i == e ? r->size.budget_bytes : 0).text);
            kvb_table_cell(table, "%" PRIu64, r->ask.context);
            for (size_t c = 0; c < counts; c++) {
                const kvb_size_row *cell = &rows[i + c * engines];
                const uint64_t budget = cell->size.budget_bytes;
                const char *mark = budget && cell->size.total_bytes > budget ? "! "
                                   : budget && !cell->terms.weights_known    ? "? "
                                                                             : "";

                if (cell->error)
                    kvb_table_cell(table, "-");
                else
                    kvb_table_cell(table, "%s%s", mark, kvb_bytes_text((double)cell->size.total_bytes).text);
            }
            kvb_table_cell(table, "%s", limit_text(r, r->size.max_sequences, r->size.at_engine_limit).text);
        }
    paragraph_print(
        rows->terms.weights_known
            ? "All of it, with weights and what passes need, by context and sequences. !: does not fit:"
        : rows->size.budget_bytes
            ? "All but the weights, which are not known, by context and sequences. ?: fits only if they leave so "
              "much; !: does not fit:"
            : "All but the weights, by context and sequences:",
        format, out);
    return section_end(table, format, out);
}

/* ---- notes ------------------------------------------------------------------------------------------------------- */

typedef struct notes {
    char at[NOTES_MOST][NOTE];
    size_t n;
} notes;

/* Adds a line, unless it is there already. */
__attribute__((format(printf, 2, 3))) static void note_add(notes *all, const char *format, ...)
{
    char text[NOTE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->at[i], text) == 0)
            return;
    if (all->n < NOTES_MOST)
        memcpy(all->at[all->n++], text, sizeof text);
}

/* Adds a note on older versions of the engine, if their sizes differ. */
static void version_note(const kvb_size_row *r, notes *all)
{
    kvb_size_ask older = r->ask;
    kvb_size_allocation held;
    char why[256];

    older.version = 1;
    if (r->error || !r->engine->since || r->ask.version || r->size.stage ||
        kvb_size_hold(r->engine, r->model, &older, &held, why, sizeof why) ||
        (held.kv_bytes == r->size.held.kv_bytes && held.state_bytes == r->size.held.state_bytes))
        return;
    note_add(all, "%s: as since version %s; before, %" PRIu64 " x %" PRIu64 " tokens take %s (--engine %s@VERSION).",
             r->engine->name, held.state_bytes == r->size.held.state_bytes ? r->engine->since : r->engine->states_since,
             r->ask.sequences, r->ask.context, kvb_bytes_text((double)(held.kv_bytes + held.state_bytes)).text,
             r->engine->name);
}

static void row_note(const kvb_size_row *r, notes *all)
{
    if (r->error)
        note_add(all, "%s: %s.", r->engine->name, r->why);
    if (!r->terms.weights_known)
        note_add(all, "weights: %s. Name them: --weights SIZE, FILE.safetensors.index.json or FILE.gguf.",
                 r->terms.weights_why);
    else if (!r->error && r->size.budget_bytes && r->size.weight_bytes > r->size.budget_bytes)
        note_add(all, "%s: the weights alone exceed what it may take by %s.", r->engine->name,
                 kvb_bytes_text((double)(r->size.weight_bytes - r->size.budget_bytes)).text);
    if (r->terms.weights_known && *r->terms.weights_why)
        note_add(all, "weights: %s.", r->terms.weights_why);
    if (!r->error && r->size.stage)
        note_add(all, "Of %" PRIu32 " stages, the one with the least room is shown.", r->terms.n_stages);
    if (!r->error && r->terms.draft)
        note_add(all, "Draft: weights, rows and states of %s%s.", r->terms.draft->name,
                 r->ask.pp > 1 ? ", on the last stage" : "");
    if (!r->error && r->terms.draft && r->engine->apart)
        note_add(all, "Draft of %s: what its passes need, too.", r->engine->name);
    if (!r->error && r->size.at_engine_limit)
        note_add(all, "%s: (all) sequences are the most that it can hold, whatever memory there is.", r->engine->name);
    if (r->model->max_context && r->ask.context > r->model->max_context)
        note_add(all, "context %" PRIu64 " is beyond the %" PRIu64 " of the model's config.", r->ask.context,
                 r->model->max_context);
}

static void text_notes_print(const kvb_size_row *rows, size_t n, size_t engines, kvb_table_format format, FILE *out)
{
    notes all = {.n = 0};
    char least[128] = "";

    for (size_t i = 0; i < n; i++) {
        const kvb_size_row *r = &rows[i];

        row_note(r, &all);
        if (i + engines >= n) /* once, at the longest context */
            version_note(r, &all);
        if (!r->error && (!r->engine->beside || r->engine->least) && !strstr(least, r->engine->name))
            kvb_list_add(least, sizeof least, ", ", "%s", r->engine->name);
    }
    if (*least)
        note_add(&all, "Activations of %s: at least what one layer needs.", least);
    for (size_t i = 0; i < all.n; i++)
        paragraph_print(all.at[i], format, out);
}

static int size_text(const kvb_sizes *all, kvb_table_format format, FILE *out)
{
    int error = 0;

    for (size_t i = 0, n; i < all->n && !error; i += n) {
        const kvb_size_row *rows = all->at + i;

        for (n = 1; i + n < all->n && rows[n].model == rows->model && rows[n].ask.k == rows->ask.k &&
                    rows[n].ask.v == rows->ask.v;
             n++)
            ;
        heading_print(rows, format, out);
        if (all->matrix) {
            error = matrix_print(rows, n, all->n_engines, format, out);
        } else {
            error = by_engine_print(rows, n, all->n_engines, format, out);
            error = error ? error : growth_print(rows, n, all->n_engines, format, out);
            error = error ? error : whole_print(rows, n, format, out);
        }
        text_notes_print(rows, n, all->n_engines, format, out);
    }
    if (all->n && !all->at->terms.runtime_bytes)
        paragraph_print("Not counted: the runtime's own memory (the device's context, libraries, graphs). Name it: "
                        "--runtime SIZE.",
                        format, out);
    return error ? error : ferror(out) ? -EIO : 0;
}

int kvb_size_table(const kvb_sizes *rows, kvb_table_format format, FILE *out)
{
    const char *headings[COLUMNS + 1] = {NULL};

    if (format != KVB_TABLE_CSV && format != KVB_TABLE_JSON)
        return size_text(rows, format, out);
    for (size_t i = 0; i < COLUMNS; i++)
        headings[i] = columns[i].key;
    kvb_table *table = kvb_table_new(headings);

    for (size_t row = 0; row < rows->n; row++)
        for (size_t i = 0; i < COLUMNS; i++) {
            char text[CELL];

            column_text(&rows->at[row], i, text);
            kvb_table_cell(table, "%s", text);
        }
    return kvb_table_end(table, format, out);
}
