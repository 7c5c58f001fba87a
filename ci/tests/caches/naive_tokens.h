/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of the naive model (naive.h): who holds which, and whose rows a cache has let go of. */
#ifndef KVB_TEST_NAIVE_TOKENS_H
#define KVB_TEST_NAIVE_TOKENS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "caches/cache.h"

#ifndef NAIVE_SEQS
#define NAIVE_SEQS KVB_SEQ_IDS /* most sequence ids */
#define NAIVE_LEN  320         /* longest sequence, with its nodes */
#define NAIVE_STEP 256         /* most tokens of a step */
#endif
enum { NAIVE_TOKENS = 8192, NAIVE_GROUPS = 3, NAIVE_ROWS = 16 * NAIVE_TOKENS, NAIVE_SLOTS = 4 };

typedef struct naive_token {
    uint64_t ordinal;
    uint64_t row; /* its number: what sequences share. A shift makes others */
    uint32_t pos;
    bool gone[NAIVE_GROUPS]; /* the cache has let go of its row in that group */
    bool frozen;             /* cache shared-prefix: its row lies in the sequence's front */
} naive_token;

/* Cache paged: which page, by a number that none had before, each sequence names for its positions; 0: none. */
typedef struct naive_pages {
    uint64_t id[NAIVE_SEQS][NAIVE_LEN], next;
} naive_pages;

typedef struct naive {
    const kvb_cache_type *type;
    const kvb_model *model;
    uint32_t capacity, seq_capacity, n_ids, max_seqs, rollback, step, page_cells, state_depth;
    naive_pages pages[NAIVE_GROUPS];
    uint32_t *pos; /* [NAIVE_TOKENS] by ordinal: where it was admitted */
    uint64_t next;
    uint32_t fronts; /* made so far */
    uint64_t moved;  /* rows that shifts have made, numbered from NAIVE_TOKENS on */
    struct naive_seq {
        uint32_t n;
        naive_token token[NAIVE_LEN]; /* in the order of positions */
        uint32_t front, front_cells;  /* cache shared-prefix: number of its front, from 1 on; 0: none */
        uint32_t states;              /* of so many of its last tokens, where layers scan */
    } seqs[NAIVE_SEQS];               /* [n_ids] */
    uint32_t n_nodes;
    uint64_t node[NAIVE_LEN];
    uint32_t node_seq[NAIVE_LEN];
    int32_t parent[NAIVE_LEN]; /* its number among the nodes of its sequence */
    /* the step in force */
    bool valid, tree;
    uint32_t n_new;
    uint64_t first; /* ordinal of the first new token */
    uint32_t ids[NAIVE_STEP];
    bool saved[NAIVE_SLOTS]; /* what: naive_saved.h */
    bool shifted;            /* since the last step */
    bool residual; /* a pool has residual cells: rows cannot be copied as they are, nor saved without all others */
} naive;

static inline uint32_t naive_pos(const naive *m, uint32_t s, uint32_t i)
{
    return m->seqs[s].token[i].pos;
}

static inline uint32_t naive_len(const naive *m, uint32_t s)
{
    return m->seqs[s].n ? naive_pos(m, s, m->seqs[s].n - 1) + 1 : 0;
}

/* Pending nodes of a sequence. */
static inline uint32_t naive_pending(const naive *m, uint32_t s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_nodes; i++)
        n += m->node_seq[i] == s;
    return n;
}

/* The place of a sequence's node of that number; -1: of none. */
static inline int32_t naive_node(const naive *m, uint32_t s, int32_t number)
{
    for (uint32_t i = 0; i < m->n_nodes && number >= 0; i++)
        if (m->node_seq[i] == s && number-- == 0)
            return (int32_t)i;
    return -1;
}

/* Sequences that hold something, or may once their nodes are committed. */
static inline uint32_t naive_alive(const naive *m)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < m->n_ids; s++)
        n += m->seqs[s].n > 0;
    for (uint32_t i = 0; i < m->n_nodes; i++) {
        bool first = !m->seqs[m->node_seq[i]].n;
        for (uint32_t j = 0; j < i; j++)
            first = first && m->node_seq[j] != m->node_seq[i];
        n += first;
    }
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

static inline bool naive_paged(const naive *m)
{
    return m->type == &kvb_cache_paged || m->type == &kvb_cache_paged_prefix;
}

static inline bool naive_drops(const naive *m, uint32_t g)
{
    return (m->type == &kvb_cache_window || m->type == &kvb_cache_paged) &&
           (m->model->groups[g].window > 0 || m->model->groups[g].chunk > 0);
}

/* Is the token gone once the cache has let go of what no query at or after the next position less rollback can see: a
 * token, or of pages those with no other? */
static inline bool naive_forgotten(const naive *m, uint32_t g, uint32_t s, uint32_t i)
{
    const kvb_group *group = &m->model->groups[g];
    const uint32_t n = naive_paged(m) ? m->page_cells : 1, next = naive_len(m, s), page = naive_pos(m, s, i) / n;
    const uint32_t p = next > m->rollback ? next - m->rollback : 0;
    bool unseen = naive_drops(m, g);
    for (uint32_t j = page * n; j < (page + 1) * n && unseen; j++)
        unseen = j < p && j >= group->sinks && !naive_lets(group, p, j);
    return m->seqs[s].token[i].gone[g] || unseen;
}

#endif
