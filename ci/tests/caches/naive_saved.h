/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading in the naive model. */
#ifndef KVB_TEST_NAIVE_SAVED_H
#define KVB_TEST_NAIVE_SAVED_H

#include "naive.h"

/* What was saved: sequence 0 stands for the one, or all are as they were. */
typedef struct naive_slot {
    bool whole;
    struct naive_seq seqs[NAIVE_SEQS];
    naive_pages pages[NAIVE_GROUPS];
} naive_slot;

static naive_slot naive_slots[NAIVE_SLOTS];

/* What is wrong with saving or loading `seq`, or all. */
static inline int naive_saves(const naive *m, uint32_t seq, bool saves)
{
    if (!(m->type->flags & KVB_CACHE_SAVES) || (seq != KVB_SEQ_ALL && seq && !(m->type->flags & KVB_CACHE_SEQ)))
        return -ENOTSUP;
    if ((seq != KVB_SEQ_ALL && seq >= m->n_ids) || m->n_nodes || (saves && m->shifted))
        return -EINVAL;
    return seq != KVB_SEQ_ALL && m->residual && naive_attends(m) ? -ENOTSUP : 0;
}

static inline int naive_save(naive *m, uint32_t slot, uint32_t seq)
{
    int error = naive_saves(m, seq, true);
    if (error)
        return error;
    naive_slot *s = &naive_slots[slot];
    s->whole = seq == KVB_SEQ_ALL;
    if (s->whole) {
        memcpy(s->seqs, m->seqs, sizeof s->seqs);
        memcpy(s->pages, m->pages, sizeof s->pages);
    } else {
        s->seqs[0] = m->seqs[seq];
    }
    m->saved[slot] = true;
    return 0;
}

/* A sequence takes what is in the slot, less what cache window lets go of. Does it fit? */
static inline bool naive_take(naive *m, const naive_slot *s, uint32_t seq)
{
    bool fits = true;
    m->seqs[seq] = s->seqs[0];
    for (uint32_t i = 0; i < m->seqs[seq].n; i++)
        for (uint32_t g = 0; g < m->model->n_groups; g++)
            m->seqs[seq].token[i].gone[g] = naive_forgotten(m, g, seq, i);
    for (uint32_t i = 0; i < m->seqs[seq].n && naive_paged(m); i++)
        for (uint32_t g = 0; g < m->model->n_groups; g++)
            if (!m->seqs[seq].token[i].gone[g])
                naive_page_write(&m->pages[g], seq, naive_pos(m, seq, i) / m->page_cells);
    for (uint32_t g = 0; g < m->model->n_groups; g++)
        fits = fits && (naive_scans(m, g) || naive_live(m, g, false) <= naive_cells(m, g)); /* slots never lack */
    return fits;
}

static inline int naive_load(naive *m, uint32_t slot, uint32_t seq)
{
    const naive_slot *s = &naive_slots[slot];
    int error = naive_saves(m, seq, false);
    if (error)
        return error;
    if (!m->saved[slot])
        return -ENOENT;
    if (s->whole != (seq == KVB_SEQ_ALL))
        return -EINVAL;
    if (s->whole) {
        m->shifted = false;
        memcpy(m->seqs, s->seqs, sizeof s->seqs);
        for (uint32_t g = 0; g < NAIVE_GROUPS; g++)
            memcpy(m->pages[g].id, s->pages[g].id, sizeof s->pages[g].id);
    } else {
        if (m->seqs[seq].n)
            return -EINVAL;
        if (s->seqs[0].n && naive_alive(m) >= m->max_seqs)
            return -ENOSPC;
        static naive_pages before[NAIVE_GROUPS];
        memcpy(before, m->pages, sizeof before);
        if (!naive_take(m, s, seq)) {
            m->seqs[seq].n = 0;
            memcpy(m->pages, before, sizeof before);
            return -ENOSPC;
        }
    }
    m->valid = false;
    return 0;
}

#endif
