/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The naive model that caches are compared with: a list of tokens for each sequence and the pending tree
 * nodes, and what each control call must answer. It has no cells.
 */
#ifndef KVB_TEST_NAIVE_H
#define KVB_TEST_NAIVE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "caches/cache.h"

enum { NAIVE_TOKENS = 8192, NAIVE_LEN = 256 };

typedef struct naive {
    const kvb_cache_type *type;
    uint32_t capacity, seq_capacity, max_seqs;
    uint32_t *pos; /* [NAIVE_TOKENS] by ordinal */
    uint64_t next;
    struct {
        uint32_t n;
        uint64_t ordinal[NAIVE_LEN]; /* by position */
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

static inline uint32_t naive_len(const naive *m, uint32_t s)
{
    return m->seqs[s].n ? m->pos[m->seqs[s].ordinal[m->seqs[s].n - 1]] + 1 : 0;
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
        if (m->seqs[s].ordinal[i] == ordinal)
            return true;
    return false;
}

/* Cells that the cache must occupy: shared tokens once, but in a slab once for each sequence. */
static inline uint32_t naive_live(const naive *m)
{
    uint32_t n = m->n_nodes;
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++) {
        for (uint32_t i = 0; i < m->seqs[s].n; i++) {
            bool counted = false;
            for (uint32_t b = 0; b < s && !counted && m->type != &kvb_cache_slab; b++)
                counted = naive_holds(m, b, m->seqs[s].ordinal[i]);
            n += !counted;
        }
    }
    return n;
}

static inline int naive_step(naive *m, const uint32_t *ids, uint32_t n)
{
    uint32_t adds[KVB_MAX_SEQS] = {0}, fresh = 0;
    if (n == 0 || m->n_nodes)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= KVB_MAX_SEQS)
            return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        fresh += adds[ids[i]]++ == 0 && m->seqs[ids[i]].n == 0;
    if (naive_live(m) + n > m->capacity || naive_alive(m) + fresh > m->max_seqs)
        return -ENOSPC;
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        if (adds[s] && naive_len(m, s) + adds[s] > m->seq_capacity)
            return -ENOSPC;
    m->first = m->next;
    m->n_new = n;
    m->valid = true;
    m->tree = false;
    for (uint32_t i = 0; i < n; i++) {
        m->ids[i] = ids[i];
        m->pos[m->next] = naive_len(m, ids[i]);
        m->seqs[ids[i]].ordinal[m->seqs[ids[i]].n++] = m->next++;
    }
    return 0;
}

static inline int naive_cp(naive *m, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    uint32_t n = 0;
    if (m->n_nodes || src >= KVB_MAX_SEQS || dst >= KVB_MAX_SEQS || !m->seqs[src].n || m->seqs[dst].n || p0 > p1)
        return -EINVAL;
    for (uint32_t i = 0; i < m->seqs[src].n; i++)
        n += m->pos[m->seqs[src].ordinal[i]] >= p0 && m->pos[m->seqs[src].ordinal[i]] < p1;
    if (m->type == &kvb_cache_slab) {
        if (n && p0 > 0)
            return -ENOTSUP;
        if (n && (naive_live(m) + n > m->capacity || naive_alive(m) >= m->max_seqs))
            return -ENOSPC;
    } else if (naive_alive(m) >= m->max_seqs) {
        return -ENOSPC;
    }
    for (uint32_t i = 0; i < m->seqs[src].n; i++) {
        uint64_t o = m->seqs[src].ordinal[i];
        if (m->pos[o] >= p0 && m->pos[o] < p1)
            m->seqs[dst].ordinal[m->seqs[dst].n++] = o;
    }
    m->valid = false;
    return 0;
}

static inline void naive_drop(naive *m, uint32_t s, uint32_t p0, uint32_t p1)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->seqs[s].n; i++) {
        uint64_t o = m->seqs[s].ordinal[i];
        if (m->pos[o] < p0 || m->pos[o] >= p1)
            m->seqs[s].ordinal[n++] = o;
    }
    m->seqs[s].n = n;
}

static inline int naive_rm(naive *m, uint32_t s, uint32_t p0, uint32_t p1)
{
    if (m->n_nodes || s >= KVB_MAX_SEQS || !m->seqs[s].n || p0 > p1)
        return -EINVAL;
    if (m->type == &kvb_cache_slab && p0 < p1 && p1 < naive_len(m, s))
        return -ENOTSUP;
    naive_drop(m, s, p0, p1);
    m->valid = false;
    return 0;
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
    naive_drop(m, 0, len, UINT32_MAX);
    m->valid = false;
    return 0;
}

static inline int naive_propose(naive *m, const int32_t *parents, uint32_t n)
{
    if (n == 0)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (parents[i] < -1 || parents[i] >= (int32_t)(m->n_nodes + i))
            return -EINVAL;
    if (naive_live(m) + n > m->capacity)
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
        m->seqs[0].ordinal[m->seqs[0].n++] = m->node[accepted[i]];
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

/* Ordinals that a fed token must see, ascending. */
static inline uint32_t naive_visible(const naive *m, uint64_t ordinal, uint64_t *want)
{
    uint32_t n = 0;
    int role = naive_role(m, ordinal);
    uint32_t s = role > 0 ? (uint32_t)role : 0;
    for (uint32_t i = 0; i < m->seqs[s].n; i++)
        if (m->pos[m->seqs[s].ordinal[i]] <= m->pos[ordinal])
            want[n++] = m->seqs[s].ordinal[i];
    if (role == -1) {
        int32_t at = 0;
        while (m->node[at] != ordinal)
            at++;
        for (; at >= 0; at = m->parent[at])
            want[n++] = m->node[at];
    }
    qsort(want, n, sizeof *want, naive_compare);
    return n;
}

#endif
