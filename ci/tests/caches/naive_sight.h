/* SPDX-License-Identifier: Apache-2.0 */
/* What fed tokens see, as the naive model has it. */
#ifndef KVB_TEST_NAIVE_SIGHT_H
#define KVB_TEST_NAIVE_SIGHT_H

#include "naive.h"

static inline int naive_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The sequence as which a fed token sees, or -1: it is a pending node. -2: it has no place in the feed. */
static inline int naive_role(const naive *m, uint64_t ordinal)
{
    for (uint32_t i = 0; i < m->n_nodes && m->tree; i++)
        for (uint32_t j = 0; j < m->n_new && m->node[i] == ordinal; j++)
            if (m->ids[j] == m->node_seq[i])
                return -1;
    if (!m->tree && ordinal >= m->first)
        return (int)m->ids[ordinal - m->first];
    for (uint32_t s = 0; s < m->n_ids; s++)
        for (uint32_t i = 0; i < m->n_new; i++)
            if (m->ids[i] == s && naive_holds(m, s, ordinal))
                return (int)s;
    return -2;
}

/* The place of the node of that ordinal. */
static inline uint32_t naive_place(const naive *m, uint64_t ordinal)
{
    uint32_t i = 0;
    while (m->node[i] != ordinal)
        i++;
    return i;
}

/* The sequence of which a fed token sees what is committed. */
static inline uint32_t naive_seq_of(const naive *m, uint64_t ordinal)
{
    const int role = naive_role(m, ordinal);
    return role >= 0 ? (uint32_t)role : role == -1 ? m->node_seq[naive_place(m, ordinal)] : 0;
}

/* Have tokens moved that the fed token's sequence holds? */
static inline bool naive_moved(const naive *m, uint64_t ordinal)
{
    const uint32_t s = naive_seq_of(m, ordinal);
    bool moved = false;
    for (uint32_t i = 0; i < m->seqs[s].n; i++)
        moved = moved || naive_pos(m, s, i) != m->pos[m->seqs[s].token[i].ordinal];
    return moved;
}

/* The state behind a fed token in the layer. */
static inline uint64_t naive_scanned(const naive *m, uint32_t layer, uint64_t ordinal)
{
    const uint32_t s = naive_seq_of(m, ordinal);
    uint64_t path[NAIVE_LEN], state = 0;
    uint32_t n = 0, i = 0;
    int32_t at = naive_role(m, ordinal) == -1 ? (int32_t)naive_place(m, ordinal) : -1;
    const bool is_node = at >= 0;
    for (; at >= 0; at = naive_node(m, s, m->parent[at]))
        path[n++] = m->node[at];
    for (bool ends = false; i < m->seqs[s].n && !ends; i++) {
        state = state_next(state, m->seqs[s].token[i].ordinal, layer);
        ends = !is_node && m->seqs[s].token[i].ordinal == ordinal;
    }
    while (n > 0)
        state = state_next(state, path[--n], layer);
    return state;
}

/* A scan of the plan in force in the slots that the cache names leaves what it must behind every token: NULL, or what
 * does not. */
static inline const char *naive_scan(const naive *m, kvb_cache *cache, uint32_t layer, const uint64_t *ordinals,
                                     uint32_t n)
{
    static uint64_t out[NAIVE_TOKENS];
    static uint32_t positions[NAIVE_TOKENS];
    kvb_scan_spec spec;
    for (uint32_t i = 0; i < n; i++)
        positions[i] = m->pos[ordinals[i]];
    if (kvb_cache_fetch_states(cache, layer, positions, n, &spec))
        return kvb_cache_why(cache);
    if (spec.group != kvb_model_group(m->model, layer) || spec.n_tok != n || !spec.states.base ||
        !spec.conv.base != !spec.group->scan.conv_width || !states_scan(&spec, layer, ordinals, out))
        return "tokens are to begin with slots that are none";
    for (uint32_t i = 0; i < n; i++)
        if (out[i] != naive_scanned(m, layer, ordinals[i]))
            return "a token's state is of other tokens than those before it";
    return NULL;
}

/* Ordinals that a fed token must see in the layer, ascending. */
static inline uint32_t naive_visible(const naive *m, uint32_t layer, uint64_t ordinal, uint64_t *want)
{
    uint32_t n = 0;
    const uint32_t s = naive_seq_of(m, ordinal), p = m->pos[ordinal];
    const kvb_group *group = kvb_model_group(m->model, layer);
    for (uint32_t i = 0; i < m->seqs[s].n; i++)
        if (naive_pos(m, s, i) <= p && naive_lets(group, p, naive_pos(m, s, i)))
            want[n++] = m->seqs[s].token[i].ordinal;
    int32_t at = naive_role(m, ordinal) == -1 ? (int32_t)naive_place(m, ordinal) : -1;
    for (; at >= 0; at = naive_node(m, s, m->parent[at]))
        if (naive_lets(group, p, m->pos[m->node[at]]))
            want[n++] = m->node[at];
    qsort(want, n, sizeof *want, naive_compare);
    return n;
}

#endif
