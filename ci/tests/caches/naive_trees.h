/* SPDX-License-Identifier: Apache-2.0 */
/* The naive model of draft trees: a list of pending nodes of all sequences, in the order in which they came. */
#ifndef KVB_TEST_NAIVE_TREES_H
#define KVB_TEST_NAIVE_TREES_H

#include "naive.h"

/* Room for n nodes, and for the sequences that they may bring to life? */
static inline bool naive_proposable(const naive *m, const uint32_t *ids, uint32_t n)
{
    uint32_t alive = naive_alive(m);
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= m->n_ids)
            return false;
    if (n == 0 || !naive_fits(m, ids, n, true))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        bool first = !m->seqs[ids[i]].n && !naive_pending(m, ids[i]);
        for (uint32_t j = 0; j < i; j++)
            first = first && ids[j] != ids[i];
        alive += first;
    }
    return alive <= m->max_seqs;
}

static inline int naive_propose(naive *m, const uint32_t *ids, const int32_t *parents, uint32_t n)
{
    if (n == 0)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = ids[i] < m->n_ids ? naive_pending(m, ids[i]) : 0;
        for (uint32_t j = 0; j < i; j++)
            number += ids[j] == ids[i];
        if (ids[i] >= m->n_ids || parents[i] < -1 || parents[i] >= (int32_t)number)
            return -EINVAL;
    }
    if (!naive_proposable(m, ids, n))
        return -ENOSPC;
    for (uint32_t g = 0; g < m->model->n_groups && naive_paged(m); g++)
        naive_pages_step(m, g, &m->pages[g], ids, n);
    naive_let_go(m);
    m->first = m->next;
    m->shifted = false;
    m->n_new = n;
    m->valid = m->tree = true;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos = naive_len(m, ids[i]);
        for (int32_t at = naive_node(m, ids[i], parents[i]); at >= 0; at = naive_node(m, ids[i], m->parent[at]))
            pos++;
        m->ids[i] = m->node_seq[m->n_nodes] = ids[i];
        m->pos[m->next] = pos;
        m->parent[m->n_nodes] = parents[i];
        m->node[m->n_nodes++] = m->next++;
    }
    return 0;
}

static inline int naive_commit(naive *m, uint32_t s, const uint32_t *accepted, uint32_t n)
{
    uint32_t left = 0;
    if (s >= m->n_ids)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++) {
        const int32_t at = accepted[i] < naive_pending(m, s) ? naive_node(m, s, (int32_t)accepted[i]) : -1;
        if (at < 0 || m->parent[at] != (i ? (int32_t)accepted[i - 1] : -1))
            return -EINVAL;
    }
    if (naive_len(m, s) + n > m->seq_capacity)
        return -ENOSPC;
    m->seqs[s].states = m->seqs[s].n ? m->seqs[s].states : 0;
    naive_states_add(m, &m->seqs[s], n);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t node = m->node[naive_node(m, s, (int32_t)accepted[i])];
        m->seqs[s].token[m->seqs[s].n++] = (naive_token){.ordinal = node, .row = node, .pos = m->pos[node]};
    }
    for (uint32_t i = 0; i < m->n_nodes; i++)
        if (m->node_seq[i] != s) {
            m->node[left] = m->node[i];
            m->parent[left] = m->parent[i];
            m->node_seq[left++] = m->node_seq[i];
        }
    m->n_nodes = left;
    naive_pages_settle(m);
    m->valid = false;
    return 0;
}

#endif
