/* SPDX-License-Identifier: Apache-2.0 */
/* Moving positions in the naive model. */
#ifndef KVB_TEST_NAIVE_SHIFT_H
#define KVB_TEST_NAIVE_SHIFT_H

#include "naive.h"

/* Does another sequence hold the row of a token, in the group or (NAIVE_GROUPS) in any? */
static inline bool naive_shared(const naive *m, uint32_t s, uint32_t i, uint32_t g)
{
    for (uint32_t other = 0; other < m->n_ids; other++)
        for (uint32_t j = 0; j < m->seqs[other].n && other != s; j++)
            if (m->seqs[other].token[j].row == m->seqs[s].token[i].row &&
                (g == NAIVE_GROUPS || !m->seqs[other].token[j].gone[g]))
                return true;
    return false;
}

/* By delta, or where there is a divisor to position / divisor, where tokens may meet. */
static inline int naive_shift(naive *m, uint32_t s, uint32_t p0, uint32_t p1, int32_t delta, uint32_t divisor)
{
    int64_t to[NAIVE_LEN], last = -1;
    bool moves[NAIVE_LEN], some = false;
    if (s >= m->n_ids || p0 > p1 || naive_pending(m, s))
        return -EINVAL;
    for (uint32_t i = 0; i < m->seqs[s].n; i++) {
        const uint32_t pos = naive_pos(m, s, i);
        moves[i] = (divisor ? divisor > 1 : delta != 0) && pos >= p0 && pos < p1;
        some = some || moves[i];
        to[i] = !moves[i] ? pos : divisor ? pos / divisor : (int64_t)pos + delta;
        const bool apart = i == 0 || !moves[i] || !moves[i - 1], same = i && to[i] == last;
        if (to[i] < last || to[i] < 0 || (same && pos != naive_pos(m, s, i - 1) && (apart || !divisor)))
            return -EINVAL;
        last = to[i];
    }
    for (uint32_t i = 0; i < m->seqs[s].n; i++)
        if (moves[i] && to[i] >= m->seq_capacity)
            return -ENOSPC;
    for (uint32_t g = 0; g < m->model->n_groups && some; g++) {
        if (naive_scans(m, g))
            continue;
        uint32_t copies = 0;
        for (uint32_t i = 0; i < m->seqs[s].n && m->type != &kvb_cache_slab; i++)
            copies += moves[i] && !m->seqs[s].token[i].gone[g] && naive_shared(m, s, i, g);
        if (copies && naive_live(m, g, false) + copies > naive_cells(m, g))
            return -ENOSPC;
        for (uint32_t i = 0; i < m->seqs[s].n; i++)
            if (m->seqs[s].token[i].gone[g] && naive_lets(&m->model->groups[g], (uint32_t)last + 1, (uint32_t)to[i]))
                return -ENOTSUP;
    }
    for (uint32_t i = 0; i < m->seqs[s].n; i++) {
        m->seqs[s].token[i].pos = (uint32_t)to[i];
        if (moves[i]) /* what is saved may hold it, too */
            m->seqs[s].token[i].row = NAIVE_TOKENS + m->moved++ % (NAIVE_ROWS - NAIVE_TOKENS);
    }
    m->shifted = m->shifted || some;
    m->valid = false;
    return 0;
}

/* The rows that cache window would let go of in a step are gone; seq and window need a free cell. */
static inline int naive_defrag(naive *m)
{
    const bool shares = naive_shares(m), places = m->type == &kvb_cache_seq || m->type == &kvb_cache_window || shares;
    if (m->residual)
        return -ENOTSUP;
    if (m->n_nodes)
        return -EINVAL;
    for (uint32_t g = 0; g < m->model->n_groups && places; g++)
        if (!naive_scans(m, g) && (shares ? naive_own(m) : naive_live(m, g, true)) == naive_cells(m, g))
            return -ENOSPC;
    for (uint32_t s = 0; s < m->n_ids && places; s++)
        for (uint32_t i = 0; i < m->seqs[s].n; i++)
            for (uint32_t g = 0; g < m->model->n_groups; g++)
                m->seqs[s].token[i].gone[g] = naive_forgotten(m, g, s, i);
    m->valid = false;
    return 0;
}

#endif
