/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy, over a table of the pairs that have met. */
#include "harness/selection/cover.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* What has been chosen so far. */
typedef struct meetings {
    unsigned dims;                /* that are to meet, a set */
    unsigned hub;                 /* one of two that meet is in this set */
    size_t values;                /* of all dimensions */
    size_t first[KVB_PAIRS_DIMS]; /* of a dimension's values among all */
    bool *met;                    /* [values][values] */
    uint32_t *uses;               /* [values] how often each was chosen */
} meetings;

/* Pairs of a candidate that have not met yet; *uses: how often its values have been chosen. */
static unsigned new_pairs(const meetings *m, const kvb_candidate *c, uint32_t *uses)
{
    unsigned n = 0;
    *uses = 0;
    for (size_t a = 0; a < KVB_PAIRS_DIMS; a++) {
        const bool *met = &m->met[(m->first[a] + c->at[a]) * m->values];
        *uses += m->uses[m->first[a] + c->at[a]];
        for (size_t b = a + 1; b < KVB_PAIRS_DIMS; b++)
            n += (m->dims >> a & m->dims >> b & (m->hub >> a | m->hub >> b) & 1) && !met[m->first[b] + c->at[b]];
    }
    return n;
}

static void choose(meetings *m, kvb_candidate *c)
{
    c->chosen = true;
    for (size_t a = 0; a < KVB_PAIRS_DIMS; a++) {
        m->uses[m->first[a] + c->at[a]]++;
        for (size_t b = a + 1; b < KVB_PAIRS_DIMS; b++)
            m->met[(m->first[a] + c->at[a]) * m->values + m->first[b] + c->at[b]] = true;
    }
}

#define EACH_COSTS 1e10 /* multiply-adds that each costs beside its own: a process, a cache */

/* The candidate with the most new pairs for its cost. Among equals, the one whose values were chosen least often. NULL:
 * no candidate has a new pair. */
static kvb_candidate *best_find(const meetings *m, kvb_candidate *candidates, size_t n)
{
    kvb_candidate *best = NULL;
    double most = 0;
    uint32_t least = 0, uses;
    for (kvb_candidate *c = candidates; c < candidates + n; c++) {
        unsigned fresh = c->chosen || isnan(c->cost) ? 0 : new_pairs(m, c, &uses);
        double worth = fresh / (EACH_COSTS + c->cost);
        if (!fresh || worth < most || (worth == most && uses >= least))
            continue;
        best = c;
        most = worth;
        least = uses;
    }
    return best;
}

int kvb_pairs_cover(kvb_candidate *candidates, size_t n, unsigned dims, unsigned hub)
{
    meetings m = {.dims = dims, .hub = hub};
    kvb_candidate *best;
    for (size_t d = 0; d < KVB_PAIRS_DIMS; d++) {
        uint32_t most = 0;
        for (size_t i = 0; i < n; i++)
            most = most > candidates[i].at[d] ? most : candidates[i].at[d];
        m.first[d] = m.values;
        m.values += most + 1;
    }
    m.met = calloc(m.values * m.values, sizeof *m.met);
    m.uses = calloc(m.values, sizeof *m.uses);
    int error = m.met && m.uses ? 0 : -ENOMEM;
    for (size_t i = 0; i < n && !error; i++)
        if (candidates[i].chosen)
            choose(&m, &candidates[i]);
    while (!error && (best = best_find(&m, candidates, n)))
        choose(&m, best);
    for (size_t i = 0; i < n && !error; i++)
        for (size_t d = 0; d < KVB_PAIRS_DIMS; d++)
            if ((dims >> d & 1) && !m.uses[m.first[d] + candidates[i].at[d]])
                choose(&m, &candidates[i]);
    free(m.met);
    free(m.uses);
    return error;
}
