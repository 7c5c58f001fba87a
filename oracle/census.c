/* SPDX-License-Identifier: Apache-2.0 */
/* Walking a trace to find what its queries see. */
#include "oracle/census.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

/* What is done with each place of a walk. */
typedef int place_take(kvb_census *census, size_t place, const kvb_row_run *runs, int64_t n);

static uint32_t queries_of(const kvb_event *e)
{
    bool asks = e->kind == KVB_EVENT_STEP || e->kind == KVB_EVENT_PREFILL || e->kind == KVB_EVENT_PROPOSE;
    return asks ? e->n : 0;
}

/* At the end of a walk. */
static int moved_take(kvb_census *census, const kvb_history *history)
{
    const kvb_moved_row *moved;
    census->n_moved = kvb_history_moved(history, &moved);
    census->moved = malloc(census->n_moved * sizeof *moved + 1);
    if (!census->moved)
        return -ENOMEM;
    if (census->n_moved)
        memcpy(census->moved, moved, census->n_moved * sizeof *moved);
    return 0;
}

/* Takes every place, or of the others than `wanted` only the number (runs NULL, n 0). */
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

static int visible_take(kvb_census *census, size_t place, const kvb_row_run *runs, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        census->visible[place] += runs[r].n;
    return 0;
}

int kvb_census_take(const kvb_trace *trace, kvb_census *census)
{
    int err = -ENOMEM;
    *census = (kvb_census){.model = &trace->header.model, .n_events = trace->n_events, .tokens = trace->needs.tokens};
    census->first = calloc(trace->n_events + 1, sizeof *census->first);
    if (!census->first)
        goto out;
    for (size_t e = 0; e < trace->n_events; e++)
        census->first[e + 1] = census->first[e] + queries_of(&trace->events[e]);
    census->visible = calloc(census->first[trace->n_events] * census->model->n_groups + 1, sizeof *census->visible);
    if (census->visible)
        err = places_walk(trace, NULL, visible_take, census);
out:
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
    census->run_first =
        calloc(census->first[census->n_events] * census->model->n_groups + 1, sizeof *census->run_first);
    return census->run_first ? places_walk(trace, wanted, runs_take, census) : -ENOMEM;
}

void kvb_census_free(kvb_census *census)
{
    free(census->first);
    free(census->visible);
    free(census->run_first);
    free(census->runs);
    free(census->moved);
    *census = (kvb_census){0};
}
