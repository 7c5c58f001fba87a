/* SPDX-License-Identifier: Apache-2.0 */
/* An oracle of rows that no trace made, for tests of the filter. Include after cmocka.h. */
#ifndef KVB_TEST_MADE_ROWS_H
#define KVB_TEST_MADE_ROWS_H

#include <math.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/filter.h"
#include "oracle/solve.h"

enum { UNITS = 2, HEADS = 3, QUERIES = 40, CELLS = 24, SEEN = 20, MOST = 37, ROWS = UNITS * QUERIES * HEADS };

/* An oracle of rows that no trace made: each layer is a unit of one KV head. Each query sees tokens in two runs, and
 * some tokens are seen by none. */
typedef struct made {
    kvb_model model;
    kvb_oracle_state state;
    kvb_oracle oracle;
    kvb_filter_truth truth;
    kvb_filter_unit unit[UNITS];
    kvb_filter_row row[ROWS];
    uint32_t number[ROWS], dim;
    kvb_expect expect[ROWS + 1]; /* the last is not the oracle's */
    kvb_bound_term terms[ROWS][MOST];
    kvb_token_run runs[ROWS][2];
    double inverse[UNITS][MOST];
    float v[UNITS][CELLS * MOST], norm2[UNITS][CELLS], magnitude[UNITS][CELLS];
    float p[ROWS][CELLS], o[ROWS][MOST], slope[ROWS][MOST], out[ROWS][MOST];
} made;

static inline void made_connect(made *m, uint32_t dim)
{
    m->dim = dim;
    m->model = hand_model(UNITS, (kvb_group){.heads = HEADS, .kv_heads = 1, .k_dim = 4, .v_dim = dim});
    m->state.model = &m->model;
    m->oracle = (kvb_oracle){.rows = m->expect, .n_rows = ROWS, .state = &m->state, .filter = &m->truth};
    m->truth = (kvb_filter_truth){.tokens = CELLS,
                                  .n_units = UNITS,
                                  .most_visible = CELLS,
                                  .units = m->unit,
                                  .number = m->number,
                                  .rows = m->row,
                                  .n_rows = ROWS};
    for (uint32_t u = 0; u < UNITS; u++)
        m->unit[u] = (kvb_filter_unit){.layer = u,
                                       .dim = dim,
                                       .usable = true,
                                       .inverse = m->inverse[u],
                                       .v = m->v[u],
                                       .norm2 = m->norm2[u],
                                       .magnitude = m->magnitude[u]};
    for (uint32_t r = 0; r < ROWS; r++) {
        m->expect[r] = (kvb_expect){.layer = r / (QUERIES * HEADS),
                                    .query = r / HEADS % QUERIES,
                                    .head = r % HEADS,
                                    .visible = SEEN,
                                    .terms = m->terms[r]};
        m->row[r] = (kvb_filter_row){.unit = m->expect[r].layer,
                                     .visible = SEEN,
                                     .runs = m->runs[r],
                                     .n_runs = 2,
                                     .p = m->p[r],
                                     .o = m->o[r],
                                     .slope = m->slope[r],
                                     .weight = 1,
                                     .cap = INFINITY};
        m->runs[r][0] = (kvb_token_run){10, CELLS}; /* in the order of positions, which is not that of tokens */
        m->runs[r][1] = (kvb_token_run){0, 6};
        m->number[r] = r;
    }
    m->expect[ROWS] = m->expect[ROWS - HEADS];
}

#endif
