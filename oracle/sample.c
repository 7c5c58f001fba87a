/* SPDX-License-Identifier: Apache-2.0 */
/* What the queries of a trace see, and which of its rows are checked. */
#include "oracle/sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

/* Walking a trace to find what its queries see. */

/* Takes a place of a walk, with the runs that its query sees. */
typedef int place_take(kvb_census *census, size_t place, const kvb_row_run *runs, int64_t n);

/* Keeps the rows that shifts made, at the end of a walk. */
static int moved_take(kvb_census *census, const kvb_history *history)
{
    const kvb_moved_row *moved;
    census->n_moved = kvb_history_moved(history, &moved);
    census->moved = kvb_arena_take(&census->arena, census->n_moved + 1, sizeof *moved);
    if (!census->moved)
        return -ENOMEM;
    if (census->n_moved)
        memcpy(census->moved, moved, census->n_moved * sizeof *moved);
    return 0;
}

/* Takes every place. A place that is not `wanted` is taken with runs NULL, n 0. wanted NULL: all are. */
static int places_walk(const kvb_trace *trace, const bool *wanted, place_take *take, kvb_census *census)
{
    uint32_t n_groups = census->model->n_groups;
    kvb_history *history;
    int err = kvb_history_open(census->tokens, &history);
    if (err)
        return err;
    for (size_t e = 0; !err && e < census->n_events; e++) {
        err = kvb_history_apply(history, &trace->events[e]);
        for (size_t place = census->first[e] * n_groups; !err && place < census->first[e + 1] * n_groups; place++) {
            const kvb_row_run *runs = NULL;
            int64_t n = 0;
            if (!wanted || wanted[place])
                n = kvb_history_visible(history, &census->model->groups[place % n_groups],
                                        (uint32_t)(place / n_groups - census->first[e]), &runs);
            err = n < 0 ? (int)n : take(census, place, runs, n);
        }
    }
    if (!err && !census->moved)
        err = moved_take(census, history);
    kvb_history_free(history);
    return err;
}

/* Pairs of query and group. */
static size_t places_of(const kvb_census *census)
{
    return census->first[census->n_events] * census->model->n_groups;
}

static int visible_take(kvb_census *census, size_t place, const kvb_row_run *runs, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        census->visible[place] += runs[r].n;
    return 0;
}

int kvb_census_take(const kvb_trace *trace, kvb_census *census)
{
    *census = (kvb_census){.model = &trace->header.model, .n_events = trace->n_events, .tokens = trace->needs.tokens};
    census->first = kvb_arena_take(&census->arena, trace->n_events + 1, sizeof *census->first);
    for (size_t i = 0; census->first && i < trace->n_events; i++) {
        const kvb_event *e = &trace->events[i];
        const bool asks = e->kind == KVB_EVENT_STEP || e->kind == KVB_EVENT_PREFILL || e->kind == KVB_EVENT_PROPOSE;
        census->first[i + 1] = census->first[i] + (asks ? e->n : 0);
    }
    if (census->first)
        census->visible = kvb_arena_take(&census->arena, places_of(census) + 1, sizeof *census->visible);
    const int err = census->visible ? places_walk(trace, NULL, visible_take, census) : -ENOMEM;
    if (err)
        kvb_census_free(census);
    return err;
}

static int runs_take(kvb_census *census, size_t place, const kvb_row_run *runs, int64_t n)
{
    int err = kvb_array_reserve(&census->runs, &census->room_runs, census->n_runs + (size_t)n, sizeof *census->runs);
    for (int64_t r = 0; !err && r < n; r++)
        census->runs[census->n_runs++] = (kvb_token_run){runs[r].row, runs[r].row + runs[r].n};
    census->run_first[place + 1] = census->n_runs;
    return err;
}

int kvb_census_gather(const kvb_trace *trace, const bool *wanted, kvb_census *census)
{
    census->run_first = kvb_arena_take(&census->arena, places_of(census) + 1, sizeof *census->run_first);
    return census->run_first ? places_walk(trace, wanted, runs_take, census) : -ENOMEM;
}

void kvb_census_free(kvb_census *census)
{
    free(census->runs);
    kvb_arena_free(&census->arena);
    *census = (kvb_census){0};
}

/* Choosing among the rows of a trace within a budget. */

/* Tokens that a row sees. number: of its query. */
static uint32_t visible_of(const kvb_census *census, size_t number, uint32_t layer)
{
    return census->visible[kvb_census_place(census, number, layer)];
}

static int row_add(kvb_sample *sample, kvb_sample_row row, uint32_t visible)
{
    if (kvb_array_reserve(&sample->rows, &sample->room, sample->n + 1, sizeof *sample->rows))
        return -ENOMEM;
    sample->rows[sample->n++] = row;
    sample->pairs += visible;
    return 0;
}

static int row_order(const void *left, const void *right)
{
    const kvb_sample_row *a = left, *b = right;
    uint32_t x[4] = {a->event, a->layer, a->query, a->head}, y[4] = {b->event, b->layer, b->query, b->head};
    for (int i = 0; i < 4; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Sort, and keep one of each. */
static void rows_settle(kvb_sample *sample, const kvb_census *census)
{
    if (sample->n)
        qsort(sample->rows, sample->n, sizeof *sample->rows, row_order);
    size_t kept = 0;
    for (size_t i = 0; i < sample->n; i++) {
        const kvb_sample_row *row = &sample->rows[i];
        if (kept && row_order(&sample->rows[kept - 1], row) == 0)
            sample->pairs -= visible_of(census, census->first[row->event] + row->query, row->layer);
        else
            sample->rows[kept++] = *row;
    }
    sample->n = kept;
}

/* Adds rows by chance, within the budget. */
static int rows_draw(const kvb_census *census, const kvb_sample_options *o, double chance, kvb_sample *sample)
{
    uint64_t counter = 0;
    int err = 0;
    for (size_t e = 0; e < census->n_events; e++)
        for (uint32_t layer = 0; layer < census->model->n_layers; layer++)
            for (size_t q = census->first[e]; q < census->first[e + 1]; q++)
                for (uint32_t head = 0; head < kvb_model_group(census->model, layer)->heads; head++, counter++) {
                    if (kvb_sample_unit(o->seed, counter) >= chance)
                        continue;
                    uint32_t visible = visible_of(census, q, layer);
                    bool fits = sample->pairs + visible <= o->max_pairs && sample->n < o->max_rows;
                    if (!fits && sample->n >= KVB_SAMPLE_MIN_ROWS)
                        continue;
                    err = row_add(sample, (kvb_sample_row){(uint32_t)e, layer, (uint32_t)(q - census->first[e]), head},
                                  visible);
                    if (err)
                        return err;
                }
    return 0;
}

/* Adds the rows that a sampled event always has: first and last query and those beside tile borders, each at the first
 * head of the first layer, at the last head of the last layer, and at one that is drawn. */
static int event_rows(const kvb_census *census, const kvb_sample_options *o, size_t event, kvb_sample *sample)
{
    static const size_t wanted[] = {0, 15, 16, 31, 32, 63, 64, 127, 128, SIZE_MAX};
    const kvb_model *m = census->model;
    size_t n = census->first[event + 1] - census->first[event], done = SIZE_MAX;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        size_t q = wanted[i] < n ? wanted[i] : n - 1;
        if (q == done) /* wanted queries past the last one are the last one */
            continue;
        done = q;
        size_t number = census->first[event] + q;
        uint64_t draw = kvb_rng_bits(~o->seed, number);
        uint32_t layers[3] = {0, m->n_layers - 1, (uint32_t)(draw >> 32) % m->n_layers};
        while (layers[0] < layers[1] && kvb_group_scans(kvb_model_group(m, layers[0]))) /* layers that scan: no rows */
            layers[0]++;
        while (layers[1] > layers[0] && kvb_group_scans(kvb_model_group(m, layers[1])))
            layers[1]--;
        for (uint32_t j = 0; j < 3; j++) {
            uint32_t heads = kvb_model_group(m, layers[j])->heads;
            if (!heads)
                continue;
            const uint32_t head[3] = {0, heads - 1, (uint32_t)draw % heads};
            int err = row_add(sample, (kvb_sample_row){(uint32_t)event, layers[j], (uint32_t)q, head[j]},
                              visible_of(census, number, layers[j]));
            if (err)
                return err;
        }
    }
    return 0;
}

/* Adds the fixed rows of the first event, the last, then the others in random order, while they fit. *all: every event
 * is in. */
static int events_sample(const kvb_census *census, const kvb_sample_options *o, kvb_sample *sample, bool *all)
{
    size_t n = 0, *events = malloc((census->n_events + 1) * sizeof *events);
    int err = events ? 0 : -ENOMEM;
    for (size_t e = 0; !err && e < census->n_events; e++)
        if (census->first[e + 1] > census->first[e])
            events[n++] = e;
    if (!err && n > 2) {
        size_t last = events[n - 1];
        memmove(events + 2, events + 1, (n - 2) * sizeof *events);
        events[1] = last;
        for (size_t i = n - 1; i > 2; i--) { /* Fisher-Yates over 2 .. n-1 */
            size_t j = 2 + kvb_rng_bits(o->seed ^ 0x6576656e74u, i) % (i - 1), swap = events[i];
            events[i] = events[j];
            events[j] = swap;
        }
    }
    *all = true;
    for (size_t i = 0; !err && i < n; i++) {
        size_t n_before = sample->n;
        uint64_t pairs_before = sample->pairs;
        err = event_rows(census, o, events[i], sample);
        bool fits = sample->pairs <= o->max_pairs && sample->n <= o->max_rows;
        if (!err && i >= 2 && !fits && n_before >= KVB_SAMPLE_MIN_ROWS) {
            sample->n = n_before;
            sample->pairs = pairs_before;
            *all = false;
        }
    }
    free(events);
    return err;
}

int kvb_sample_choose(const kvb_census *census, const kvb_sample_options *o, kvb_sample *sample)
{
    uint64_t n_queries = census->first[census->n_events], total = 0;
    *sample = (kvb_sample){0};
    for (uint32_t layer = 0; layer < census->model->n_layers; layer++) {
        uint32_t heads = kvb_model_group(census->model, layer)->heads;
        sample->total_rows += n_queries * heads;
        for (size_t q = 0; q < n_queries; q++)
            total += (uint64_t)visible_of(census, q, layer) * heads;
    }

    int err = 0;
    if (total <= o->max_pairs && sample->total_rows <= o->max_rows) {
        err = rows_draw(census, o, 2, sample); /* all */
    } else {
        bool all;
        err = events_sample(census, o, sample, &all);
        rows_settle(sample, census);
        if (!err && all) {
            /* Draws more rows evenly, for nine tenths of the remaining budget: a draw may take more than its share. */
            double left = sample->pairs < o->max_pairs ? (double)(o->max_pairs - sample->pairs) : 0;
            double rows = sample->n < o->max_rows ? (double)(o->max_rows - sample->n) : 0;
            double floor_rows = sample->n < KVB_SAMPLE_MIN_ROWS ? (double)(KVB_SAMPLE_MIN_ROWS - sample->n) : 0;
            double by_pairs = 0.9 * left / (double)total, by_rows = 0.9 * rows / (double)sample->total_rows;
            double chance = by_pairs < by_rows ? by_pairs : by_rows;
            double at_least = 2 * floor_rows / (double)sample->total_rows;
            err = rows_draw(census, o, chance > at_least ? chance : at_least, sample);
        }
    }
    if (err)
        kvb_sample_free(sample);
    else
        rows_settle(sample, census);
    return err;
}

void kvb_sample_free(kvb_sample *sample)
{
    free(sample->rows);
    *sample = (kvb_sample){0};
}
