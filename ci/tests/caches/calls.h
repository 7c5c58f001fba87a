/* SPDX-License-Identifier: Apache-2.0 */
/* Random control calls, mostly legal ones: made to a cache, answered by the naive model. */
#ifndef KVB_TEST_CALLS_H
#define KVB_TEST_CALLS_H

#include "rig.h"
#include "naive.h"

static uint64_t random_state;
static uint32_t random_seqs; /* sequences that are mostly named */

static inline uint32_t random_below(uint32_t n)
{
    random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % n);
}

typedef enum call_kind { EXTEND, STEP, COPY, REMOVE, KEEP, CLEAR, PROPOSE, COMMIT, REWIND, CALLS } call_kind;

typedef struct call {
    call_kind kind;
    uint32_t n, src, dst, p0, p1;
    uint32_t ids[16];
    int32_t parents[16];
} call;

static inline int cache_call(kvb_cache *cache, const call *c)
{
    switch (c->kind) {
    case EXTEND:
        return kvb_cache_begin_step(cache, NULL, c->n);
    case STEP:
        return kvb_cache_begin_step(cache, c->ids, c->n);
    case COPY:
        return kvb_cache_seq_cp(cache, c->src, c->dst, c->p0, c->p1);
    case REMOVE:
        return kvb_cache_seq_rm(cache, c->src, c->p0, c->p1);
    case KEEP:
        return kvb_cache_seq_keep(cache, c->src);
    case CLEAR:
        return kvb_cache_clear(cache);
    case PROPOSE:
        return kvb_cache_propose(cache, c->parents, c->n);
    case COMMIT:
        return kvb_cache_commit(cache, c->ids, c->n);
    case REWIND:
        return kvb_cache_rewind(cache, c->p0);
    case CALLS:
        break;
    }
    return -ENOSYS;
}

static inline int model_call(naive *m, const call *c)
{
    static const uint32_t zeros[NAIVE_LEN];
    switch (c->kind) {
    case EXTEND:
        return naive_step(m, zeros, c->n);
    case STEP:
        return naive_step(m, c->ids, c->n);
    case COPY:
        return naive_cp(m, c->src, c->dst, c->p0, c->p1);
    case REMOVE:
        return naive_rm(m, c->src, c->p0, c->p1);
    case KEEP:
        return naive_keep(m, c->src);
    case CLEAR:
        naive_clear(m);
        return 0;
    case PROPOSE:
        return naive_propose(m, c->parents, c->n);
    case COMMIT:
        return naive_commit(m, c->ids, c->n);
    case REWIND:
        return naive_rewind(m, c->p0);
    case CALLS:
        break;
    }
    return -ENOSYS;
}

/* A sequence id: mostly of a few, now and then the last one or one too high. */
static inline uint32_t random_seq(void)
{
    return random_below(40) ? random_below(random_seqs) : 62 + random_below(3);
}

static inline void path_draw(const naive *m, call *c)
{
    int32_t at = -1;
    c->n = 0;
    for (uint32_t i = 0; i < m->n_nodes && c->n < 16; i++)
        if (m->parent[i] == at && random_below(4)) {
            c->ids[c->n++] = i;
            at = (int32_t)i;
        }
    if (random_below(10) == 0) /* a wrong one */
        c->ids[c->n++ % 16] = random_below(20);
    c->n = c->n > 16 ? 16 : c->n;
}

/* One random call, mostly a legal one, of what the cache can do. */
static inline call call_draw(const naive *m)
{
    static const call_kind mix[] = {EXTEND, EXTEND, STEP,  STEP,    STEP,    STEP,    STEP,   COPY,   COPY,  REMOVE,
                                    REMOVE, KEEP,   CLEAR, PROPOSE, PROPOSE, PROPOSE, COMMIT, COMMIT, REWIND};
    call c = {.kind = CALLS};
    bool have = false;
    while (!have) {
        c.kind = mix[random_below(sizeof mix / sizeof *mix)];
        have = c.kind == EXTEND || c.kind == CLEAR;
        have = have || (m->type->flags & KVB_CACHE_SEQ && c.kind >= STEP && c.kind <= KEEP);
        have = have || (m->type->flags & KVB_CACHE_TREE && (c.kind == PROPOSE || c.kind == COMMIT));
        have = have || (m->type->flags & (KVB_CACHE_SEQ | KVB_CACHE_REWIND) && c.kind == REWIND);
        have = have && (c.kind != CLEAR || random_below(6) == 0);
        have = have && (c.kind != KEEP || random_below(3) == 0);
        have = have && (!m->n_nodes || c.kind == PROPOSE || c.kind == COMMIT || random_below(8) == 0);
    }
    c.n = random_below(20) ? 1 + random_below(random_below(3) ? 4 : 14) : 0;
    c.src = random_seq();
    c.dst = random_seq();
    uint32_t len = c.src < KVB_MAX_SEQS && c.kind != REWIND ? naive_len(m, c.src) : naive_len(m, 0);
    c.p0 = random_below(2) ? random_below(len + 2) : 0;
    c.p1 = random_below(2) ? KVB_POS_END : random_below(len + 2);
    if (c.kind == COPY && c.dst < KVB_MAX_SEQS && random_below(3) == 0) /* goes on where the destination ends */
        c.p0 = naive_len(m, c.dst);
    if (c.kind == REWIND && c.p0 == 0)
        c.p0 = len;
    bool same = random_below(3) == 0;
    for (uint32_t i = 0; i < 16; i++) {
        c.ids[i] = i && same ? c.ids[0] : random_seq();
        c.parents[i] = (int32_t)random_below(m->n_nodes + i + 1) - 1;
        if (random_below(3) == 0)
            c.parents[i] = (int32_t)(m->n_nodes + i) - 1;
    }
    if (random_below(30) == 0)
        c.parents[0] = (int32_t)(m->n_nodes + random_below(2) * 100);
    if (c.kind == COMMIT)
        path_draw(m, &c);
    return c;
}

#endif
