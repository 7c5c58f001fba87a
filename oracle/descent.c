/* SPDX-License-Identifier: Apache-2.0 */
/* Who follows whom, what is followed of it, and what is exact of other lanes. */
#include "oracle/descent.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/history.h"
#include "oracle/lane.h"
#include "oracle/sample.h"
#include "workloads/array.h"

#define GLANCE_VISITS                                                                                                  \
    16u /* of a row of a state's column cost what a (query, head, cell) of attention's second opinion does */
#define ROWS_MAX_BYTES ((uint64_t)256 << 20) /* of second opinions */

/* ---- who follows whom ----------------------------------------------------------------------------------------- */

static int parents_find(kvb_descent *d)
{
    const kvb_trace *trace = d->trace;
    const kvb_group all = {.heads = 1}; /* whose queries see their whole past */
    kvb_history *history;
    int err = kvb_history_open(trace->needs.tokens, &history);
    for (size_t e = 0; e < trace->n_events && !err; e++) {
        const kvb_event *event = &trace->events[e];
        err = kvb_history_apply(history, event);
        for (uint32_t i = 0; i < event->n && event->kind <= KVB_EVENT_PROPOSE && !err; i++) {
            const uint64_t token = event->first + i;
            const kvb_row_run *runs;
            const int64_t n = kvb_history_visible(history, &all, i, &runs);
            err = n < 0 ? (int)n : 0;
            kvb_row_run past = {0, 0}; /* the last run before the token's own row */
            for (int64_t r = n - 1; !err && r >= 0 && past.n == 0; r--)
                past = (kvb_row_run){runs[r].row, runs[r].n - (r == n - 1)};
            d->parent[token] = KVB_DESCENT_ROOT;
            if (past.n) {
                d->parent[token] = kvb_alike(trace, kvb_history_token(history, past.row + past.n - 1));
                d->youngest[d->parent[token]] = (uint32_t)token;
            }
        }
    }
    kvb_history_free(history);
    return err;
}

/* ---- what is followed ------------------------------------------------------------------------------------------ */

static uint32_t stretches(const kvb_scan_problem *p)
{
    return p->d_k ? (p->d_v + KVB_LANE_COLUMNS - 1) / KVB_LANE_COLUMNS : 0;
}

static kvb_scan_lane lane_at(const kvb_scan_problem *p, uint64_t number)
{
    const uint32_t each = stretches(p), first = (uint32_t)(number % each) * KVB_LANE_COLUMNS;
    return (kvb_scan_lane){.head = (uint32_t)(number / each),
                           .first = first,
                           .n = p->d_v - first < KVB_LANE_COLUMNS ? p->d_v - first : KVB_LANE_COLUMNS};
}

static double chance_of(uint64_t budget, double each, double cost)
{
    return budget == UINT64_MAX ? 1 : (double)budget * each / fmax(cost, 1);
}

static bool drawn(uint64_t seed, uint64_t number, double chance)
{
    return chance >= 1 || (double)(kvb_sample_bits(seed, number) >> 11) * 0x1p-53 < chance;
}

/* Followed: the first, the last, and others by chance. Second opinions: of those that are not, by chance if not all
 * fit. */
static int lanes_choose(kvb_descent *d, const kvb_oracle_options *options)
{
    const kvb_model *m = &d->trace->header.model;
    const uint64_t tokens = d->trace->needs.tokens;
    double cost = 0, chance = 1, glance = 1;
    uint64_t number = 0;
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) { /* the first one counts */
        if (pass && !(d->lanes = calloc(number + 1, sizeof *d->lanes)))
            return -ENOMEM;
        number = 0;
        for (uint32_t place = 0; place < m->n_layers * KVB_SCAN_PARTS; place++) {
            const kvb_group *g = kvb_model_group(m, place / KVB_SCAN_PARTS);
            const kvb_scan_problem p = kvb_lane_problem(&g->scan, (kvb_scan_part)(place % KVB_SCAN_PARTS));
            const uint64_t all = kvb_group_scans(g) ? (uint64_t)p.heads * stretches(&p) : 0;
            for (int second = 0; second < 2 && pass; second++) {
                for (uint64_t i = 0; i < all; i++) {
                    const bool followed = i == 0 || i + 1 == all || drawn(options->seed, number + i, chance);
                    if (second ? !followed && drawn(~options->seed, number + i, glance) : followed)
                        d->lanes[n++] = lane_at(&p, i);
                }
                *(second ? &d->lane_first[place + 1] : &d->lane_glanced[place]) = n;
            }
            cost += pass ? 0 : (double)(all * tokens * p.d_k * KVB_LANE_COLUMNS);
            number += all;
        }
        chance = chance_of(options->max_pairs, 1, cost);
        glance = fmin(chance_of(options->opinion_pairs, GLANCE_VISITS, cost),
                      chance_of(ROWS_MAX_BYTES, 1, (double)(number * tokens * sizeof *d->rows)));
    }
    d->total = number;
    return 0;
}

/* ---- what is exact of the others -------------------------------------------------------------------------------- */

/* All tokens of a lane, in order of identity: a parent comes before its children. 0 or -ENOMEM. */
static int lane_glance(const kvb_descent *d, uint32_t place, const kvb_scan_lane *lane, kvb_glance_row *rows)
{
    const uint32_t layer = place / KVB_SCAN_PARTS;
    kvb_scan_problem p = kvb_lane_problem(&kvb_model_group(&d->trace->header.model, layer)->scan,
                                          (kvb_scan_part)(place % KVB_SCAN_PARTS));
    const kvb_scan_problem whole = p;
    const uint64_t tokens = d->trace->needs.tokens;
    const size_t floats = (size_t)p.d_k * KVB_LANE_COLUMNS;
    double **held = calloc(tokens + 1, sizeof *held); /* states that a later token follows */
    kvb_lane_own own = {NULL, NULL};
    int err = held ? kvb_lane_own_take(d->values, &whole, layer, lane, &own) : -ENOMEM;
    p.d_v = lane->n;
    for (uint64_t t = 0; t < tokens && !err; t++) {
        const uint32_t parent = d->parent[t];
        double *from = parent == KVB_DESCENT_ROOT ? NULL : held[parent], *now = NULL;
        const bool last = from && d->youngest[parent] == t, first = kvb_alike(d->trace, t) == t;
        if (last)
            held[parent] = NULL;
        if (first) {
            now = last ? from : calloc(floats + 1, sizeof *now);
            if (now && from && !last)
                memcpy(now, from, floats * sizeof *now);
            err = now ? 0 : -ENOMEM;
        }
        if (last && !now)
            free(from);
        if (!now)
            continue;
        const kvb_recurrence_token token = kvb_lane_token(d->values, &whole, layer, lane, &own, t);
        kvb_glance_take(&p, &token, now, &rows[t]);
        if (d->youngest[t])
            held[t] = now;
        else
            free(now);
    }
    for (uint64_t t = 0; held && t < tokens; t++)
        free(held[t]);
    free(held);
    kvb_lane_own_free(&own);
    return err;
}

typedef struct glancing {
    const kvb_descent *descent;
    atomic_int error;
} glancing;

/* Part of the team: takes lanes. */
static void lanes_glance(void *ctx, uint32_t part, uint32_t parts)
{
    glancing *w = ctx;
    const kvb_descent *d = w->descent;
    size_t n = 0;
    for (uint32_t place = 0; place < d->trace->header.model.n_layers * KVB_SCAN_PARTS; place++)
        for (size_t i = d->lane_glanced[place]; i < d->lane_first[place + 1]; i++, n++) {
            kvb_glance_row *rows = d->rows + n * d->trace->needs.tokens; /* the lane's own */
            int err = n % parts == part && !w->error ? lane_glance(d, place, &d->lanes[i], rows) : 0;
            if (err)
                w->error = err;
        }
}

static int rows_make(kvb_descent *d, const kvb_team *team)
{
    const uint64_t tokens = d->trace->needs.tokens;
    const uint32_t places = d->trace->header.model.n_layers * KVB_SCAN_PARTS;
    size_t n = 0;
    for (uint32_t place = 0; place < places; place++)
        n += d->lane_first[place + 1] - d->lane_glanced[place];
    if (n == 0 || tokens == 0)
        return 0;
    d->rows = kvb_pages_alloc(n * tokens * sizeof *d->rows);
    if (!d->rows)
        return -ENOMEM;
    n = 0;
    for (uint32_t place = 0; place < places; place++)
        for (size_t i = d->lane_glanced[place]; i < d->lane_first[place + 1]; i++, n++)
            d->lanes[i].rows = d->rows + n * tokens;
    glancing work = {.descent = d};
    if (team)
        team->run(team, lanes_glance, &work);
    else
        lanes_glance(&work, 0, 1);
    return work.error;
}

int kvb_descent_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                     kvb_descent **descent)
{
    *descent = NULL;
    if (!kvb_model_scans(&trace->header.model))
        return 0;
    kvb_descent *d = calloc(1, sizeof *d);
    if (!d)
        return -ENOMEM;
    const size_t parts = (size_t)trace->header.model.n_layers * KVB_SCAN_PARTS;
    *d = (kvb_descent){.trace = trace, .values = values};
    d->parent = calloc(trace->needs.tokens + 1, sizeof *d->parent);
    d->youngest = calloc(trace->needs.tokens + 1, sizeof *d->youngest);
    d->lane_first = calloc(parts + 1, sizeof *d->lane_first);
    d->lane_glanced = calloc(parts + 1, sizeof *d->lane_glanced);
    int err = d->parent && d->youngest && d->lane_first && d->lane_glanced ? parents_find(d) : -ENOMEM;
    if (!err)
        err = lanes_choose(d, options);
    if (!err)
        err = rows_make(d, options->team);
    if (err)
        kvb_descent_free(d);
    else
        *descent = d;
    return err;
}

void kvb_descent_free(kvb_descent *d)
{
    if (!d)
        return;
    kvb_pages_free(d->rows);
    free(d->parent);
    free(d->youngest);
    free(d->lane_first);
    free(d->lane_glanced);
    free(d->lanes);
    free(d);
}

size_t kvb_descent_lanes(const kvb_descent *d, uint32_t layer)
{
    size_t n = 0;
    for (uint32_t place = layer * KVB_SCAN_PARTS; place < (layer + 1) * KVB_SCAN_PARTS; place++)
        n += d->lane_glanced[place] - d->lane_first[place];
    return n;
}
