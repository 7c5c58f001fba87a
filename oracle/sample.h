/* SPDX-License-Identifier: Apache-2.0 */
/* What the queries of a trace see, and which of its rows are checked. Inside the oracle only. */
#ifndef KVB_SAMPLE_H
#define KVB_SAMPLE_H

#include "oracle/attention.h"
#include "workloads/array.h"
#include "workloads/history.h"
#include "workloads/values.h"

/*
 * What the queries of a trace see, found in two walks over the history. The first one counts the tokens that each query
 * sees, to choose the rows that are checked. The second one finds the tokens of the chosen queries.
 *
 * Queries are numbered 0, 1, 2, ... through the trace. A query sees the same in all layers of a group, so each pair of
 * query and group has one place, from kvb_census_place().
 */
typedef struct kvb_census {
    const kvb_model *model;
    size_t n_events;
    size_t *first;     /* [n_events + 1] number of the first query of each event */
    uint32_t *visible; /* [queries x groups] tokens seen */
    /* gathered: the query of place p sees the tokens of runs run_first[p] .. run_first[p + 1] - 1 */
    size_t *run_first; /* [queries x groups + 1] */
    kvb_token_run *runs;
    size_t n_runs, room_runs;
    uint64_t tokens;      /* of the trace */
    kvb_moved_row *moved; /* [n_moved] rows that shifts make: kvb_history_moved() */
    size_t n_moved;
    kvb_arena arena; /* of all but runs */
} kvb_census;

/* The place of query `number` in a layer. */
static inline size_t kvb_census_place(const kvb_census *census, size_t number, uint32_t layer)
{
    return number * census->model->n_groups + census->model->group_of[layer];
}

int kvb_census_take(const kvb_trace *trace, kvb_census *census); /* 0 or -ENOMEM */
/* Adds the runs of those places for which wanted[place] is set; the others have none. */
int kvb_census_gather(const kvb_trace *trace, const bool *wanted, kvb_census *census); /* 0 or -ENOMEM */
void kvb_census_free(kvb_census *census);

/*
 * Which rows of a trace are checked: all of them if the budget allows, a seeded sample otherwise. The first and the
 * last event with queries are always sampled. A sampled event always has its first and last query, head and layer, and
 * the queries at tile borders.
 */

typedef struct kvb_sample_options {
    uint64_t max_pairs; /* most (row, cell) pairs in all */
    uint64_t max_rows;
    uint64_t seed;
} kvb_sample_options;

typedef struct kvb_sample_row {
    uint32_t event, layer, query, head;
} kvb_sample_row;

typedef struct kvb_sample {
    kvb_sample_row *rows; /* sorted by event, layer, query, head; none twice */
    size_t n, room;
    uint64_t pairs;      /* (row, cell) pairs of these rows */
    uint64_t total_rows; /* of the trace */
} kvb_sample;

/* At least this many rows are checked (or all there are), whatever they cost. */
#define KVB_SAMPLE_MIN_ROWS 64u

int kvb_sample_choose(const kvb_census *census, const kvb_sample_options *options, kvb_sample *sample);
void kvb_sample_free(kvb_sample *sample);

/* A number from 0 up to 1, the same for the same seed and counter. */
static inline double kvb_sample_unit(uint64_t seed, uint64_t counter)
{
    return (double)(kvb_rng_bits(seed, counter) >> 11) * 0x1p-53;
}

#endif
