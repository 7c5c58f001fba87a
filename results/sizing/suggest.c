/* SPDX-License-Identifier: Apache-2.0 */
#include "results/sizing/suggest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "results/sizing/weights.h"

enum { CHANGES_MOST = 12, TIMES_MOST = 64, TEXT = 96 };

typedef struct change {
    char options[TEXT], gives_up[TEXT];
    uint64_t cost; /* in parts of a thousand */
    uint64_t total;
} change;

typedef struct changes {
    change at[CHANGES_MOST];
    size_t n;
} changes;

/* Does the row fit with this ask? *size: what it takes. */
static bool fits(const kvb_size_row *row, const kvb_size_ask *ask, kvb_size *size)
{
    kvb_size_terms terms = row->terms;
    char why[256];

    terms.sized_only = true;
    if (terms.all_weight_bytes &&
        kvb_weights_rank(row->model, terms.all_weight_bytes, ask->tp, ask->pp, &terms.weight_bytes, why, sizeof why))
        return false;
    return kvb_size_compute(row->model, row->engine, ask, &terms, size, why, sizeof why) == 0 &&
           size->total_bytes <= size->budget_bytes;
}

/* A new change with this cost, between those that cost less and those that cost more. NULL: there is no room. */
static change *change_add(changes *all, uint64_t cost, uint64_t total)
{
    size_t at = all->n;

    if (all->n == CHANGES_MOST)
        return NULL;
    for (; at > 0 && all->at[at - 1].cost > cost; at--)
        all->at[at] = all->at[at - 1];
    all->n++;
    all->at[at] = (change){.cost = cost, .total = total};
    return &all->at[at];
}

/* Fewer of a count that people give: as many as fit. */
static void fewer_add(const kvb_size_row *row, const char *option, const char *what, uint64_t asked, uint64_t most,
                      changes *all)
{
    kvb_size_ask ask = row->ask;
    kvb_size size;

    if (!most || most >= asked)
        return;
    *(option[2] == 's' ? &ask.sequences : &ask.context) = most;
    uint64_t kept = (uint64_t)((unsigned __int128)most * 1000 / asked);
    change *c = fits(row, &ask, &size) ? change_add(all, 1000 - kept, size.total_bytes) : NULL;

    if (c) {
        snprintf(c->options, TEXT, "%s %" PRIu64, option, most);
        snprintf(c->gives_up, TEXT, "%.1f %% of the %s", (double)(1000 - kept) / 10, what);
    }
}

/* With `times` as many ranks: the asked format if it fits, and of smaller ones the largest that does. True: the asked
 * one fits. */
static bool ranks_add(const kvb_size_row *row, uint32_t times, changes *all)
{
    const uint64_t asked = row->size.held.kv_bytes;
    const kvb_kv_format *f, *best = NULL;
    kvb_size_ask ask = row->ask;
    kvb_size size;
    uint64_t kept = 0, total = 0;
    char ranks[TEXT / 2] = "", devices[TEXT / 2] = "";

    ask.tp *= times;
    if (times > 1) {
        snprintf(ranks, sizeof ranks, "--tp %u", ask.tp);
        snprintf(devices, sizeof devices, "%u times the devices", times);
    }
    if (times > 1 && fits(row, &ask, &size)) {
        change *c = change_add(all, 1000 * (uint64_t)(times - 1), size.total_bytes);

        if (c) {
            snprintf(c->options, TEXT, "%s", ranks);
            snprintf(c->gives_up, TEXT, "%s", devices);
        }
        return true;
    }
    for (size_t i = 0; (f = kvb_kv_format_at(i)); i++) {
        kvb_size one;
        kvb_size_ask alone = row->ask;

        ask.k = ask.v = alone.k = alone.v = f;
        if (!fits(row, &ask, &size) || (fits(row, &alone, &one), one.held.kv_bytes >= asked))
            continue;
        if (one.held.kv_bytes > kept) {
            best = f;
            kept = one.held.kv_bytes;
            total = size.total_bytes;
        }
    }
    uint64_t share = best ? (uint64_t)((unsigned __int128)kept * 1000 / asked) : 0;
    change *c = best ? change_add(all, 1000 * (uint64_t)(times - 1) + 1000 - share, total) : NULL;

    if (c) {
        snprintf(c->options, TEXT, "%s%s--kv %s", ranks, times > 1 ? " " : "", best->name);
        snprintf(c->gives_up, TEXT, "%s%s%.1f %% of KV's bytes", devices, times > 1 ? ", " : "",
                 (double)(1000 - share) / 10);
    }
    return false;
}

static void changes_find(const kvb_size_row *row, changes *all)
{
    fewer_add(row, "--sequences", "sequences", row->ask.sequences, row->size.max_sequences, all);
    fewer_add(row, "--context", "context", row->ask.context, row->size.max_context, all);
    for (uint32_t times = 1; times <= TIMES_MOST && row->ask.tp * times <= 65536; times *= 2)
        if (ranks_add(row, times, all))
            return;
}

/* people: the model is in the line above. */
static int row_add(kvb_table *table, const kvb_size_row *row, const change *c, bool people)
{
    char context[24], sequences[24], total[KVB_UNIT_TEXT], most[KVB_UNIT_TEXT];

    snprintf(context, sizeof context, "%" PRIu64, row->ask.context);
    snprintf(sequences, sizeof sequences, "%" PRIu64, row->ask.sequences);
    if (people) {
        kvb_bytes_text((double)c->total, total);
        kvb_bytes_text((double)row->size.budget_bytes, most);
    } else {
        snprintf(total, sizeof total, "%" PRIu64, c->total);
        snprintf(most, sizeof most, "%" PRIu64, row->size.budget_bytes);
    }
    return kvb_table_row(table, (const char *const[]){row->model->name, row->engine->name, context, sequences,
                                                      c->options, c->gives_up, total, most} +
                                    people);
}

/* The n rows, as one table. */
static int table_print(const kvb_size_row *rows, size_t n, kvb_table_format format, FILE *out)
{
    bool people = kvb_table_is_for_people(format);
    kvb_table *table =
        kvb_table_new((people ? (const char *const[]){"engine", ">context", ">sequences", "change", "gives up",
                                                      ">total", ">may take", NULL}
                              : (const char *const[]){"model", "engine", ">context", ">sequences", "change", "gives_up",
                                                      ">total_bytes", ">budget_bytes", NULL}));
    changes *all = calloc(1, sizeof *all);
    int error = table && all ? 0 : -ENOMEM;

    for (const kvb_size_row *row = rows; row < rows + n && !error; row++) {
        change asked = {.total = row->size.total_bytes};
        bool good = row->size.total_bytes <= row->size.budget_bytes;

        if (row->error || !row->terms.weights_known)
            continue;
        *all = (changes){0};
        if (!good)
            changes_find(row, all);
        snprintf(asked.options, TEXT, "%s", good ? "none: it fits" : all->n ? "as asked" : "nothing here fits");
        error = row_add(table, row, &asked, people);
        for (size_t c = 0; c < all->n && !error; c++)
            error = row_add(table, row, &all->at[c], people);
    }
    if (!error)
        error = kvb_table_print(table, format, out);
    kvb_table_free(table);
    free(all);
    return error;
}

int kvb_size_suggest(const kvb_sizes *rows, kvb_table_format format, FILE *out)
{
    int error = 0;

    if (!kvb_table_is_for_people(format))
        return table_print(rows->at, rows->n, format, out);
    for (size_t i = 0, n; i < rows->n && !error; i += n) {
        for (n = 1; i + n < rows->n && rows->at[i + n].model == rows->at[i].model; n++)
            ;
        fprintf(out, "%s%s:\n\n", i ? "\n" : "", rows->at[i].model->name);
        if (!rows->at[i].terms.weights_known)
            fprintf(out, "weights: %s\n", rows->at[i].weights_why);
        else
            error = table_print(rows->at + i, n, format, out);
    }
    return error ? error : ferror(out) ? -EIO : 0;
}
