/* SPDX-License-Identifier: Apache-2.0 */
/* The naive model of cache shared-prefix: which tokens lie in fronts, and how many cells those and the tails take. */
#ifndef KVB_TEST_NAIVE_FRONTS_H
#define KVB_TEST_NAIVE_FRONTS_H

#include "naive_states.h"

static inline bool naive_shares(const naive *m)
{
    return m->type == &kvb_cache_shared_prefix;
}

/* Cells of tails, in cache shared-prefix; of fronts, each once. */
static inline uint32_t naive_own(const naive *m)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < m->n_ids; s++)
        for (uint32_t i = 0; i < m->seqs[s].n; i++)
            n += !m->seqs[s].token[i].frozen;
    return n;
}

static inline uint32_t naive_frozen(const naive *m)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < m->n_ids; s++) {
        bool first = m->seqs[s].front;
        for (uint32_t before = 0; before < s; before++)
            first = first && m->seqs[before].front != m->seqs[s].front;
        n += first ? m->seqs[s].front_cells : 0;
    }
    return n;
}

/* Who reads nothing of a front has none. */
static inline void naive_fronts_settle(naive *m)
{
    for (uint32_t s = 0; s < m->n_ids; s++) {
        bool reads = false;
        for (uint32_t i = 0; i < m->seqs[s].n; i++)
            reads = reads || m->seqs[s].token[i].frozen;
        m->seqs[s].front = reads ? m->seqs[s].front : 0;
    }
}

/* n of src's tokens at p0 .. p1-1 are copied to dst. */
static inline int naive_share(naive *m, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1, uint32_t n)
{
    const uint32_t front = m->seqs[src].front, other = m->seqs[dst].front;
    uint32_t tail = 0;
    for (uint32_t i = 0; i < m->seqs[src].n; i++) {
        const naive_token *t = &m->seqs[src].token[i];
        tail += !t->frozen && t->pos >= p0 && t->pos < p1;
    }
    if (tail < n && other && other != front)
        return -ENOTSUP;
    if ((front || other) && naive_own(m) + naive_frozen(m) + tail > m->capacity) /* to freeze takes no cell */
        return -ENOSPC;
    if (!front && !other) {
        for (uint32_t i = 0; i < m->seqs[src].n; i++) {
            naive_token *t = &m->seqs[src].token[i];
            t->frozen = t->pos >= p0 && t->pos < p1;
        }
        m->seqs[src].front = ++m->fronts;
        m->seqs[src].front_cells = n;
    }
    if (!other && (!front || tail < n)) {
        m->seqs[dst].front = m->seqs[src].front;
        m->seqs[dst].front_cells = m->seqs[src].front_cells;
    }
    return 0;
}

#endif
