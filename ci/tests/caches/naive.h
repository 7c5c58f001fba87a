/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The naive model that caches are compared with: a list of tokens for each sequence and the pending tree
 * nodes, and what each control call must answer. It has no cells, and copies tokens where caches share them.
 */
#ifndef KVB_TEST_NAIVE_H
#define KVB_TEST_NAIVE_H

#include "naive_fronts.h"

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Most pages that so many positions in a row lie in. */
static inline uint32_t naive_pages_of(const naive *m, uint32_t positions)
{
    return positions ? (positions - 1 + m->page_cells - 1) / m->page_cells + 1 : 0;
}

/* With limits: what each sequence keeps, its page at hand whole, and the most that a step can begin. */
static inline uint32_t naive_pages_most(const naive *m, uint32_t g)
{
    const kvb_group *group = &m->model->groups[g];
    const uint32_t n = m->page_cells, all = (m->capacity + n - 1) / n + (n > 1 ? 2 * m->max_seqs : 0);
    uint32_t step = m->step ? m->step : m->capacity, pages = 0;
    for (uint32_t s = 0; s < m->max_seqs && naive_drops(m, g); s++) {
        const uint32_t needed = (group->window ? group->window : group->chunk) - 1 + m->rollback;
        pages += (group->sinks + n - 1) / n + (needed ? naive_pages_of(m, needed) : n > 1);
        pages += step > 0; /* a first token in a page of its own */
        step -= step > 0;
    }
    pages += step / n;
    return naive_drops(m, g) && pages < all ? pages : all;
}

/* Pages that some sequence names. */
static inline uint32_t naive_pages_live(const naive_pages *p)
{
    static uint64_t counted[4 * NAIVE_TOKENS], round; /* in which round a page was counted last */
    uint32_t n = 0;
    round++;
    for (uint32_t s = 0; s < NAIVE_SEQS; s++)
        for (uint32_t i = 0; i < NAIVE_LEN; i++)
            if (p->id[s][i] && counted[p->id[s][i]] != round) {
                counted[p->id[s][i]] = round;
                n++;
            }
    return n;
}

/* The sequence writes the page of a position: a new one unless it has one to itself. */
static inline void naive_page_write(naive_pages *p, uint32_t s, uint32_t i)
{
    bool own = p->id[s][i];
    for (uint32_t other = 0; other < NAIVE_SEQS && own; other++)
        own = other == s || p->id[other][i] != p->id[s][i];
    if (!own)
        p->id[s][i] = ++p->next;
}

/* Sequences name no page where they have no rows, or (after) will have none once they have let go of what they will. */
static inline void naive_pages_drop(const naive *m, uint32_t g, naive_pages *p, bool after)
{
    for (uint32_t s = 0; s < m->n_ids; s++) {
        bool held[NAIVE_LEN] = {false};
        for (uint32_t i = 0; i < m->seqs[s].n; i++)
            if (after ? !naive_forgotten(m, g, s, i) : !m->seqs[s].token[i].gone[g])
                held[naive_pos(m, s, i) / m->page_cells] = true;
        for (uint32_t i = 0, n = naive_pending(m, s); i < n; i++) /* nodes take the places behind */
            held[(naive_len(m, s) + i) / m->page_cells] = true;
        for (uint32_t i = 0; i < NAIVE_LEN; i++)
            if (!held[i])
                p->id[s][i] = 0;
    }
}

/* What a step or a proposal makes of the pages of a group. Fits it? */
static inline bool naive_pages_step(const naive *m, uint32_t g, naive_pages *p, const uint32_t *ids, uint32_t n)
{
    uint32_t adds[NAIVE_SEQS] = {0};
    if (naive_scans(m, g))
        return true;
    naive_pages_drop(m, g, p, true);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t pos = naive_len(m, ids[i]) + naive_pending(m, ids[i]) + adds[ids[i]]++;
        if (pos >= NAIVE_LEN)
            return false; /* longer than any sequence may become */
        naive_page_write(p, ids[i], pos / m->page_cells);
    }
    return naive_pages_live(p) <= naive_pages_most(m, g);
}

static inline bool naive_pages_cp(const naive *m, uint32_t g, naive_pages *p, uint32_t src, uint32_t dst, uint32_t p0,
                                  uint32_t p1)
{
    for (uint32_t i = 0; i < m->seqs[src].n && !naive_scans(m, g); i++) {
        uint32_t pos = naive_pos(m, src, i), at = pos / m->page_cells;
        if (pos < p0 || pos >= p1 || m->seqs[src].token[i].gone[g] || p->id[dst][at] == p->id[src][at])
            continue;
        if (p->id[dst][at])
            naive_page_write(p, dst, at);
        else
            p->id[dst][at] = p->id[src][at];
    }
    return naive_scans(m, g) || naive_pages_live(p) <= naive_pages_most(m, g);
}

static inline void naive_pages_settle(naive *m)
{
    for (uint32_t g = 0; g < m->model->n_groups && naive_paged(m); g++)
        naive_pages_drop(m, g, &m->pages[g], false);
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* Cells in use in the group, now or (after) once it has let go of what it will: shared tokens once, but in a slab once
 * for each sequence. */
static inline uint32_t naive_live(const naive *m, uint32_t g, bool after)
{
    static uint64_t counted[NAIVE_ROWS], round; /* in which round a row was counted last */
    uint32_t n = m->n_nodes;
    if (naive_scans(m, g))
        return naive_states_live(m);
    if (naive_paged(m))
        return naive_pages_live(&m->pages[g]) * m->page_cells;
    if (naive_shares(m))
        return naive_own(m) + naive_frozen(m);
    round++;
    for (uint32_t s = 0; s < m->n_ids; s++)
        for (uint32_t i = 0; i < m->seqs[s].n; i++) {
            const naive_token *t = &m->seqs[s].token[i];
            if ((after ? naive_forgotten(m, g, s, i) : t->gone[g]) ||
                (counted[t->row] == round && m->type != &kvb_cache_slab))
                continue;
            counted[t->row] = round;
            n++;
        }
    return n;
}

/* Is there a layer that attends? */
static inline bool naive_attends(const naive *m)
{
    return !naive_scans(m, 0) || m->model->n_groups > 1;
}

/* Has a slab no room for n more rows? */
static inline bool naive_slab_lacks(const naive *m, uint32_t n)
{
    return m->type == &kvb_cache_slab && naive_attends(m) && naive_live(m, naive_scans(m, 0), false) + n > m->capacity;
}

/* Most cells of the group: in cache window what each sequence keeps of it, and a step. */
static inline uint32_t naive_cells(const naive *m, uint32_t g)
{
    const kvb_group *group = &m->model->groups[g];
    uint32_t kept = (group->window ? group->window : group->chunk) - 1 + group->sinks + m->rollback;
    uint32_t cells = m->max_seqs * kept + (m->step ? m->step : m->capacity);
    if (naive_scans(m, g))
        return m->max_seqs * (1 + m->state_depth) + (m->type->flags & KVB_CACHE_TREE ? m->capacity : 0);
    return naive_paged(m)                             ? naive_pages_most(m, g) * m->page_cells
           : naive_drops(m, g) && cells < m->capacity ? cells
                                                      : m->capacity;
}

/* Do n tokens or nodes fit? */
static inline bool naive_fits(const naive *m, const uint32_t *ids, uint32_t n, bool nodes)
{
    static naive_pages trial;
    for (uint32_t g = 0; g < m->model->n_groups && naive_paged(m); g++) {
        trial = m->pages[g];
        if (!naive_pages_step(m, g, &trial, ids, n))
            return false;
    }
    for (uint32_t g = 0; g < m->model->n_groups; g++)
        if (naive_scans(m, g) ? nodes && m->n_nodes + n > m->capacity
                              : !naive_paged(m) && naive_live(m, g, true) + n > naive_cells(m, g))
            return false;
    return true;
}

/* Would a query at position p of the sequence see something that is gone in the group, among positions p0 .. p1-1? */
static inline bool naive_misses(const naive *m, uint32_t g, uint32_t s, uint32_t p, uint32_t p0, uint32_t p1)
{
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
    uint32_t adds[NAIVE_SEQS] = {0}, fresh = 0;
    if (n == 0)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= m->n_ids || naive_pending(m, ids[i]))
            return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        fresh += adds[ids[i]]++ == 0 && m->seqs[ids[i]].n == 0;
    if (!naive_fits(m, ids, n, false) || naive_alive(m) + fresh > m->max_seqs)
        return -ENOSPC;
    for (uint32_t s = 0; s < m->n_ids; s++)
        if (adds[s] && naive_len(m, s) + adds[s] > m->seq_capacity)
            return -ENOSPC;
    for (uint32_t i = 0, front = 0; i < n; i++) { /* a call reads one */
        const uint32_t other = m->seqs[ids[i]].front;
        if (front && other && other != front)
            return -ENOTSUP;
        front = other ? other : front;
    }
    return 0;
}

/* What can_extend says: there is room. */
static inline bool naive_extends(const naive *m, const uint32_t *ids, uint32_t n)
{
    const int error = naive_admit(m, ids, n);
    return error == 0 || error == -ENOTSUP;
}

/* What no query can see again is gone. */
static inline void naive_let_go(naive *m)
{
    for (uint32_t s = 0; s < m->n_ids; s++)
        for (uint32_t i = 0; i < m->seqs[s].n; i++)
            for (uint32_t g = 0; g < m->model->n_groups; g++)
                m->seqs[s].token[i].gone[g] = naive_forgotten(m, g, s, i);
}

static inline int naive_step(naive *m, const uint32_t *ids, uint32_t n)
{
    int error = naive_admit(m, ids, n);
    if (error)
        return error;
    for (uint32_t g = 0; g < m->model->n_groups && naive_paged(m); g++)
        naive_pages_step(m, g, &m->pages[g], ids, n);
    naive_let_go(m);
    m->first = m->next;
    m->shifted = false;
    m->n_new = n;
    m->valid = true;
    m->tree = false;
    for (uint32_t i = 0; i < n; i++) {
        struct naive_seq *s = &m->seqs[ids[i]];
        s->states = s->n ? s->states : 0;
        naive_states_add(m, s, 1);
        m->ids[i] = ids[i];
        m->pos[m->next] = naive_len(m, ids[i]);
        m->seqs[ids[i]].token[m->seqs[ids[i]].n++] =
            (naive_token){.ordinal = m->next, .row = m->next, .pos = m->pos[m->next]};
        m->next++;
    }
    return 0;
}

static inline int naive_cp(naive *m, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    uint32_t n = 0, next = 0;
    if (src >= m->n_ids || dst >= m->n_ids || p0 > p1 || naive_pending(m, src) || naive_pending(m, dst))
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
    uint32_t after;
    const int states = naive_states_cp(m, src, dst, p0, p1, n, &after);
    if (states && naive_scans(m, 0)) /* groups are asked one after the other */
        return states;
    if (n && naive_slab_lacks(m, n))
        return -ENOSPC;
    static naive before;
    before = naive_shares(m) ? *m : before;
    const int shared = n && naive_shares(m) && naive_attends(m) ? naive_share(m, src, dst, p0, p1, n) : 0;
    if (shared)
        return shared;
    if (states && naive_shares(m))
        *m = before;
    next = next > naive_len(m, dst) ? next : naive_len(m, dst);
    static naive_pages trial[NAIVE_GROUPS];
    for (uint32_t g = 0; g < m->model->n_groups && n; g++) { /* each group is asked for both, one after the other */
        if (naive_misses(m, g, src, next, p0, p1))
            return -ENOTSUP;
        trial[g] = m->pages[g];
        if (naive_paged(m) && !naive_pages_cp(m, g, &trial[g], src, dst, p0, p1))
            return -ENOSPC;
    }
    if (states)
        return states;
    for (uint32_t g = 0; g < m->model->n_groups && n; g++)
        m->pages[g] = trial[g];
    m->seqs[dst].states = n ? after : m->seqs[dst].states;
    for (uint32_t i = 0; i < m->seqs[src].n && n; i++) {
        naive_token t = m->seqs[src].token[i];
        if (t.pos < p0 || t.pos >= p1)
            continue;
        uint32_t at = m->seqs[dst].n++; /* its place among those that are there */
        for (; at > 0 && naive_pos(m, dst, at - 1) > t.pos; at--)
            m->seqs[dst].token[at] = m->seqs[dst].token[at - 1];
        m->seqs[dst].token[at] = t;
    }
    naive_fronts_settle(m);
    m->valid = false;
    return 0;
}

/* Removes positions, unless what is left would need what is gone. */
static inline int naive_cut(naive *m, uint32_t s, uint32_t p0, uint32_t p1)
{
    uint32_t next = 0, n = 0, left = 0;
    for (uint32_t i = 0; i < m->seqs[s].n; i++) {
        uint32_t p = naive_pos(m, s, i);
        if (p < p0 || p >= p1)
            next = p + 1;
        left += p < p0 || p >= p1;
    }
    for (uint32_t g = 0; g < m->model->n_groups && next < naive_len(m, s); g++)
        if (naive_misses(m, g, s, next, 0, next))
            return -ENOTSUP;
    if (naive_states_cut(m, &m->seqs[s], p1, left))
        return -ENOTSUP;
    for (uint32_t i = 0; i < m->seqs[s].n; i++)
        if (naive_pos(m, s, i) < p0 || naive_pos(m, s, i) >= p1)
            m->seqs[s].token[n++] = m->seqs[s].token[i];
    m->seqs[s].n = n;
    naive_pages_settle(m);
    naive_fronts_settle(m);
    m->valid = false;
    return 0;
}

static inline int naive_rm(naive *m, uint32_t s, uint32_t p0, uint32_t p1)
{
    if (s >= m->n_ids || p0 > p1 || naive_pending(m, s))
        return -EINVAL;
    return naive_cut(m, s, p0, p1);
}

static inline int naive_keep(naive *m, uint32_t keep)
{
    if (m->n_nodes || keep >= m->n_ids)
        return -EINVAL;
    for (uint32_t s = 0; s < m->n_ids; s++)
        if (s != keep)
            m->seqs[s].n = 0;
    naive_pages_settle(m);
    naive_fronts_settle(m);
    m->valid = false;
    return 0;
}

static inline int naive_rewind(naive *m, uint32_t len)
{
    if (naive_pending(m, 0) || len > naive_len(m, 0))
        return -EINVAL;
    return naive_cut(m, 0, len, UINT32_MAX);
}

static inline void naive_clear(naive *m)
{
    m->shifted = false;
    for (uint32_t s = 0; s < m->n_ids; s++)
        m->seqs[s].n = 0;
    m->n_nodes = 0;
    naive_pages_settle(m);
    naive_fronts_settle(m);
    m->valid = false;
}

#endif
