/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The naive model that caches are compared with: a list of tokens for each sequence and the pending tree
 * nodes, and what each control call must answer. It has no cells, and copies tokens where caches share them.
 */
#ifndef KVB_TEST_NAIVE_H
#define KVB_TEST_NAIVE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "caches/cache.h"

enum { NAIVE_TOKENS = 8192, NAIVE_LEN = 256, NAIVE_GROUPS = 3 };

typedef struct naive_token {
    uint64_t ordinal;
    bool gone[NAIVE_GROUPS]; /* cache window has let go of its row in that group */
} naive_token;

typedef struct naive {
    const kvb_cache_type *type;
    const kvb_model *model;
    uint32_t capacity, seq_capacity, max_seqs, rollback, step;
    uint32_t *pos; /* [NAIVE_TOKENS] by ordinal */
    uint64_t next;
    struct {
        uint32_t n;
        naive_token token[NAIVE_LEN]; /* in the order of positions */
    } seqs[KVB_MAX_SEQS];
    uint32_t n_nodes;
    uint64_t node[NAIVE_LEN];
    int32_t parent[NAIVE_LEN];
    /* the step in force */
    bool valid, tree;
    uint32_t n_new;
    uint64_t first; /* ordinal of the first new token */
    uint32_t ids[NAIVE_LEN];
} naive;

static inline uint32_t naive_pos(const naive *m, uint32_t s, uint32_t i)
{
    return m->pos[m->seqs[s].token[i].ordinal];
}

static inline uint32_t naive_len(const naive *m, uint32_t s)
{
    return m->seqs[s].n ? naive_pos(m, s, m->seqs[s].n - 1) + 1 : 0;
}

static inline uint32_t naive_alive(const naive *m)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        n += m->seqs[s].n > 0;
    return n;
}

static inline bool naive_holds(const naive *m, uint32_t s, uint64_t ordinal)
{
    for (uint32_t i = 0; i < m->seqs[s].n; i++)
        if (m->seqs[s].token[i].ordinal == ordinal)
            return true;
    return false;
}

/* Does a query at position p of the group see position j, at or below it? */
static inline bool naive_lets(const kvb_group *g, uint32_t p, uint32_t j)
{
    if (g->window > 0 && j + g->window <= p)
        return j < g->sinks;
    return g->chunk == 0 || j / g->chunk == p / g->chunk;
}

static inline bool naive_drops(const naive *m, uint32_t g)
{
    return m->type == &kvb_cache_window && (m->model->groups[g].window > 0 || m->model->groups[g].chunk > 0);
}

/* Is the token gone once cache window has let go of what no query at or after the next position less rollback can see? */
static inline bool naive_forgotten(const naive *m, uint32_t g, uint32_t s, uint32_t i)
{
    const kvb_group *group = &m->model->groups[g];
    uint32_t j = naive_pos(m, s, i), next = naive_len(m, s), p = next > m->rollback ? next - m->rollback : 0;
    return m->seqs[s].token[i].gone[g] || (naive_drops(m, g) && j < p && j >= group->sinks && !naive_lets(group, p, j));
}

/* Cells in use in the group, now or (after) once it has let go of what it will: shared tokens once, but in a slab once for
 * each sequence. */
static inline uint32_t naive_live(const naive *m, uint32_t g, bool after)
{
    static uint64_t counted[NAIVE_TOKENS], round; /* in which round a token was counted last */
    uint32_t n = m->n_nodes;
    round++;
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        for (uint32_t i = 0; i < m->seqs[s].n; i++) {
            const naive_token *t = &m->seqs[s].token[i];
            if ((after ? naive_forgotten(m, g, s, i) : t->gone[g]) ||
                (counted[t->ordinal] == round && m->type != &kvb_cache_slab))
                continue;
            counted[t->ordinal] = round;
            n++;
        }
    return n;
}

/* Most cells of the group: in cache window what each sequence keeps of it, and a step. */
static inline uint32_t naive_cells(const naive *m, uint32_t g)
{
    const kvb_group *group = &m->model->groups[g];
    uint32_t kept = (group->window ? group->window : group->chunk) - 1 + group->sinks + m->rollback;
    uint32_t cells = m->max_seqs * kept + (m->step ? m->step : m->capacity);
    return naive_drops(m, g) && cells < m->capacity ? cells : m->capacity;
}

static inline bool naive_fits(const naive *m, uint32_t n)
{
    for (uint32_t g = 0; g < m->model->n_groups; g++)
        if (naive_live(m, g, true) + n > naive_cells(m, g))
            return false;
    return true;
}

/* Would a query at position p of the sequence see something that is gone, among positions p0 .. p1-1? */
static inline bool naive_misses(const naive *m, uint32_t s, uint32_t p, uint32_t p0, uint32_t p1)
{
    for (uint32_t g = 0; g < m->model->n_groups; g++)
        for (uint32_t i = 0; i < m->seqs[s].n; i++) {
            uint32_t j = naive_pos(m, s, i);
            if (m->seqs[s].token[i].gone[g] && j >= p0 && j < p1 && j < p && naive_lets(&m->model->groups[g], p, j))
                return true;
        }
    return false;
}

/* What a step is answered, without making it. */
static inline int naive_admit(const naive *m, const uint32_t *ids, uint32_t n)
{
    uint32_t adds[KVB_MAX_SEQS] = {0}, fresh = 0;
    if (n == 0 || m->n_nodes)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= KVB_MAX_SEQS)
            return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        fresh += adds[ids[i]]++ == 0 && m->seqs[ids[i]].n == 0;
    if (!naive_fits(m, n) || naive_alive(m) + fresh > m->max_seqs)
        return -ENOSPC;
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        if (adds[s] && naive_len(m, s) + adds[s] > m->seq_capacity)
            return -ENOSPC;
    return 0;
}

static inline int naive_step(naive *m, const uint32_t *ids, uint32_t n)
{
    int error = naive_admit(m, ids, n);
    if (error)
        return error;
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        for (uint32_t i = 0; i < m->seqs[s].n; i++)
            for (uint32_t g = 0; g < m->model->n_groups; g++)
                m->seqs[s].token[i].gone[g] = naive_forgotten(m, g, s, i);
    m->first = m->next;
    m->n_new = n;
    m->valid = true;
    m->tree = false;
    for (uint32_t i = 0; i < n; i++) {
        m->ids[i] = ids[i];
        m->pos[m->next] = naive_len(m, ids[i]);
        m->seqs[ids[i]].token[m->seqs[ids[i]].n++] = (naive_token){.ordinal = m->next++};
    }
    return 0;
}

static inline int naive_cp(naive *m, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    uint32_t n = 0, next = 0;
    if (m->n_nodes || src >= KVB_MAX_SEQS || dst >= KVB_MAX_SEQS || !m->seqs[src].n || p0 > p1)
        return -EINVAL;
    for (uint32_t i = 0; i < m->seqs[src].n; i++) {
        uint32_t p = naive_pos(m, src, i);
        if (p < p0 || p >= p1)
            continue;
        n++;
        next = p + 1;
        for (uint32_t j = 0; j < m->seqs[dst].n; j++)
            if (naive_pos(m, dst, j) == p)
                return -EINVAL;
    }
    if (n && !m->seqs[dst].n && naive_alive(m) >= m->max_seqs)
        return -ENOSPC;
    if (m->type == &kvb_cache_slab && n && naive_live(m, 0, false) + n > m->capacity)
        return -ENOSPC;
    next = next > naive_len(m, dst) ? next : naive_len(m, dst);
    if (n && naive_misses(m, src, next, p0, p1))
        return -ENOTSUP;
    for (uint32_t i = 0; i < m->seqs[src].n && n; i++) {
        naive_token t = m->seqs[src].token[i];
        if (m->pos[t.ordinal] < p0 || m->pos[t.ordinal] >= p1)
            continue;
        uint32_t at = m->seqs[dst].n++; /* its place among those that are there */
        for (; at > 0 && naive_pos(m, dst, at - 1) > m->pos[t.ordinal]; at--)
            m->seqs[dst].token[at] = m->seqs[dst].token[at - 1];
        m->seqs[dst].token[at] = t;
    }
    m->valid = false;
    return 0;
}

/* Removes positions, unless what is left would need what is gone. */
static inline int naive_cut(naive *m, uint32_t s, uint32_t p0, uint32_t p1)
{
    uint32_t next = 0, n = 0;
    for (uint32_t i = 0; i < m->seqs[s].n; i++) {
        uint32_t p = naive_pos(m, s, i);
        if (p < p0 || p >= p1)
            next = p + 1;
    }
    if (next < naive_len(m, s) && naive_misses(m, s, next, 0, next))
        return -ENOTSUP;
    for (uint32_t i = 0; i < m->seqs[s].n; i++)
        if (naive_pos(m, s, i) < p0 || naive_pos(m, s, i) >= p1)
            m->seqs[s].token[n++] = m->seqs[s].token[i];
    m->seqs[s].n = n;
    m->valid = false;
    return 0;
}

static inline int naive_rm(naive *m, uint32_t s, uint32_t p0, uint32_t p1)
{
    if (m->n_nodes || s >= KVB_MAX_SEQS || !m->seqs[s].n || p0 > p1)
        return -EINVAL;
    return naive_cut(m, s, p0, p1);
}

static inline int naive_keep(naive *m, uint32_t keep)
{
    if (m->n_nodes || keep >= KVB_MAX_SEQS || !m->seqs[keep].n)
        return -EINVAL;
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        if (s != keep)
            m->seqs[s].n = 0;
    m->valid = false;
    return 0;
}

static inline int naive_rewind(naive *m, uint32_t len)
{
    if (m->n_nodes || len > naive_len(m, 0))
        return -EINVAL;
    return naive_cut(m, 0, len, UINT32_MAX);
}

/* Room for n nodes, one of which may bring sequence 0 to life? */
static inline bool naive_proposable(const naive *m, uint32_t n)
{
    return n > 0 && naive_fits(m, n) && (m->seqs[0].n || naive_alive(m) < m->max_seqs);
}

static inline int naive_propose(naive *m, const int32_t *parents, uint32_t n)
{
    if (n == 0)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (parents[i] < -1 || parents[i] >= (int32_t)(m->n_nodes + i))
            return -EINVAL;
    if (!naive_proposable(m, n))
        return -ENOSPC;
    m->first = m->next;
    m->n_new = n;
    m->valid = m->tree = true;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos = naive_len(m, 0);
        for (int32_t at = parents[i]; at >= 0; at = m->parent[at])
            pos++;
        m->pos[m->next] = pos;
        m->parent[m->n_nodes] = parents[i];
        m->node[m->n_nodes++] = m->next++;
    }
    return 0;
}

static inline int naive_commit(naive *m, const uint32_t *accepted, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (accepted[i] >= m->n_nodes || m->parent[accepted[i]] != (i ? (int32_t)accepted[i - 1] : -1))
            return -EINVAL;
    if (naive_len(m, 0) + n > m->seq_capacity)
        return -ENOSPC;
    for (uint32_t i = 0; i < n; i++)
        m->seqs[0].token[m->seqs[0].n++] = (naive_token){.ordinal = m->node[accepted[i]]};
    m->n_nodes = 0;
    m->valid = false;
    return 0;
}

static inline void naive_clear(naive *m)
{
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        m->seqs[s].n = 0;
    m->n_nodes = 0;
    m->valid = false;
}

static inline int naive_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The sequence as which a fed token sees, or -1: it is a pending node. -2: it has no place in the feed. */
static inline int naive_role(const naive *m, uint64_t ordinal)
{
    if (m->tree) {
        for (uint32_t i = 0; i < m->n_nodes; i++)
            if (m->node[i] == ordinal)
                return -1;
        return naive_holds(m, 0, ordinal) ? 0 : -2;
    }
    if (ordinal >= m->first)
        return (int)m->ids[ordinal - m->first];
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        for (uint32_t i = 0; i < m->n_new; i++)
            if (m->ids[i] == s && naive_holds(m, s, ordinal))
                return (int)s;
    return -2;
}

/* Ordinals that a fed token must see in the layer, ascending. */
static inline uint32_t naive_visible(const naive *m, uint32_t layer, uint64_t ordinal, uint64_t *want)
{
    uint32_t n = 0;
    int role = naive_role(m, ordinal);
    uint32_t s = role > 0 ? (uint32_t)role : 0;
    for (uint32_t i = 0; i < m->seqs[s].n; i++)
        if (naive_pos(m, s, i) <= m->pos[ordinal])
            want[n++] = m->seqs[s].token[i].ordinal;
    if (role == -1) {
        int32_t at = 0;
        while (m->node[at] != ordinal)
            at++;
        for (; at >= 0; at = m->parent[at])
            want[n++] = m->node[at];
    }
    uint32_t all = n;
    n = 0;
    for (uint32_t i = 0; i < all; i++)
        if (naive_lets(kvb_model_group(m->model, layer), m->pos[ordinal], m->pos[want[i]]))
            want[n++] = want[i];
    qsort(want, n, sizeof *want, naive_compare);
    return n;
}

#endif
