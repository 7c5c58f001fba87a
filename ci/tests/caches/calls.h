/* SPDX-License-Identifier: Apache-2.0 */
/* Random control calls, mostly legal ones: made to a cache, answered by the naive model. */
#ifndef KVB_TEST_CALLS_H
#define KVB_TEST_CALLS_H

#include <stdio.h>
#include <unistd.h>

#include "rig.h"
#include "naive_prefix.h"
#include "naive_reorder.h"
#include "naive_saved.h"
#include "naive_trees.h"
#include "naive_shift.h"
#include "naive_sight.h"

static uint64_t random_state;
static uint32_t random_seqs; /* sequences that are mostly named */
static uint32_t random_ids;  /* of the cache */
static bool random_saves = true;
static bool random_trees = true; /* nodes that are pending keep much else from being called */
static bool random_prompts;      /* tokens are known, and prompts offered, where a cache can find them */

static inline uint32_t random_below(uint32_t n)
{
    random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % n);
}

typedef enum call_kind {
    EXTEND,
    STEP,
    COPY,
    REMOVE,
    KEEP,
    CLEAR,
    PROPOSE,
    COMMIT,
    REWIND,
    REORDER,
    SHIFT,
    DEFRAG,
    SAVE,
    LOAD,
    MATCH,
    CALLS
} call_kind;

typedef struct call {
    call_kind kind;
    uint32_t n, src, dst, p0, p1, slot;
    int32_t delta;
    bool divides;               /* SHIFT: is a seq_div, … */
    uint32_t divisor;           /* … by that */
    uint32_t ids[16], srcs[16]; /* REORDER: ids are the destinations */
    int32_t parents[16];
    bool known; /* EXTEND, STEP: the tokens' ids */
    int32_t toks[16];
    uint32_t key; /* extra key: of a prompt, and of the step with the rest of it */
} call;

/* What the last MATCH has found. */
static uint32_t call_found;
static const uint64_t *call_ordinals;

/* ---- the files of slots ---------------------------------------------------------------------------------------- */

static char slots_folder[256];
static bool slots_made;

/* Removes what is saved. */
static inline void slots_clear(void)
{
    char path[300];
    for (uint32_t slot = 0; slot < NAIVE_SLOTS && slots_made; slot++) {
        snprintf(path, sizeof path, "%s/%u", slots_folder, slot);
        unlink(path);
    }
}

static inline void slots_remove(void)
{
    slots_clear();
    rmdir(slots_folder);
}

/* Nothing is saved. The folder lies in memory where that can be: histories come by the thousand. */
static inline void slots_open(void)
{
    const char *where = getenv("TMPDIR");
    where = !access("/dev/shm", W_OK) ? "/dev/shm" : where ? where : "/tmp";
    if (!slots_made) {
        snprintf(slots_folder, sizeof slots_folder, "%.200s/kvbench-slots-XXXXXX", where);
        slots_made = mkdtemp(slots_folder);
        assert_true(slots_made);
        atexit(slots_remove);
    }
    slots_clear();
}

static inline const char *slot_path(uint32_t slot)
{
    static char path[300];
    if (!slots_made)
        slots_open();
    snprintf(path, sizeof path, "%s/%u", slots_folder, slot);
    return path;
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

static inline int cache_call(kvb_cache *cache, const call *c)
{
    switch (c->kind) {
    case EXTEND:
        return kvb_cache_begin_step_tokens(cache, NULL, c->known ? c->toks : NULL, c->n);
    case STEP:
        return kvb_cache_begin_step_tokens(cache, c->ids, c->known ? c->toks : NULL, c->n);
    case COPY:
        return kvb_cache_seq_cp(cache, c->src, c->dst, c->p0, c->p1);
    case REMOVE:
        return kvb_cache_seq_rm(cache, c->src, c->p0, c->p1);
    case KEEP:
        return kvb_cache_seq_keep(cache, c->src);
    case CLEAR:
        return kvb_cache_clear(cache);
    case PROPOSE:
        return kvb_cache_propose(cache, c->ids, c->parents, c->n);
    case COMMIT:
        return kvb_cache_commit(cache, c->src, c->ids, c->n);
    case REWIND:
        return kvb_cache_rewind(cache, c->p0);
    case REORDER:
        return kvb_cache_seq_reorder(cache, c->ids, c->srcs, c->n);
    case SHIFT:
        return c->divides ? kvb_cache_seq_div(cache, c->src, c->p0, c->p1, c->divisor)
                          : kvb_cache_seq_add(cache, c->src, c->p0, c->p1, c->delta);
    case DEFRAG:
        return kvb_cache_defrag(cache);
    case SAVE:
        return kvb_cache_save(cache, c->src, slot_path(c->slot));
    case LOAD:
        return kvb_cache_load(cache, c->src, slot_path(c->slot));
    case MATCH:
        call_found = 0;
        return kvb_cache_seq_match(cache, c->src, c->toks, c->n, c->key, &call_found, &call_ordinals);
    case CALLS:
        break;
    }
    return -ENOSYS;
}

/* MATCH has been answered; see naive_match. */
static inline int model_match(naive *m, const call *c, int got)
{
    return naive_match(m, c->src, c->toks, c->n, c->key, got, call_found, call_ordinals);
}

/* A step, of tokens that may be known. */
static inline int model_step(naive *m, const uint32_t *ids, const call *c)
{
    int error = naive_step(m, ids, c->n);
    if (!error && m->type->flags & KVB_CACHE_PREFIX)
        naive_know(m, c->known ? c->toks : NULL, c->key);
    return error;
}

static inline int model_call(naive *m, const call *c)
{
    static const uint32_t zeros[NAIVE_STEP];
    int error;
    switch (c->kind) {
    case EXTEND:
        return model_step(m, zeros, c);
    case STEP:
        return model_step(m, c->ids, c);
    case COPY:
        if (c->dst < m->n_ids)
            naive_fed_only[c->dst] = false;
        return naive_cp(m, c->src, c->dst, c->p0, c->p1);
    case REMOVE:
        return naive_rm(m, c->src, c->p0, c->p1);
    case KEEP:
        return naive_keep(m, c->src);
    case CLEAR:
        naive_clear(m);
        return 0;
    case PROPOSE:
        return naive_propose(m, c->ids, c->parents, c->n);
    case COMMIT:
        return naive_commit(m, c->src, c->ids, c->n);
    case REWIND:
        return naive_rewind(m, c->p0);
    case REORDER:
        memset(naive_fed_only, 0, sizeof naive_fed_only);
        return naive_reorder(m, c->ids, c->srcs, c->n);
    case SHIFT:
        if (c->divides && !c->divisor)
            return -EINVAL;
        return naive_shift(m, c->src, c->p0, c->p1, c->delta, c->divides ? c->divisor : 0);
    case DEFRAG:
        return naive_defrag(m);
    case SAVE:
        return naive_save(m, c->slot, c->src);
    case LOAD:
        error = naive_load(m, c->slot, c->src);
        for (uint32_t s = 0; s < NAIVE_SEQS && !error; s++)
            naive_fed_only[s] = naive_fed_only[s] && c->src != s && c->src != KVB_SEQ_ALL;
        return error;
    case MATCH:
    case CALLS:
        break;
    }
    return -ENOSYS;
}

/* A sequence id: mostly of a few, now and then the last one or one too high. */
static inline uint32_t random_seq(void)
{
    return random_below(40) ? random_below(random_seqs) : random_ids - 2 + random_below(3);
}

/* Nodes of one sequence or of several, mostly of those that have some. */
static inline void parents_draw(const naive *m, call *c)
{
    const bool one = random_below(2), known = m->n_nodes && random_below(2);
    for (uint32_t i = 0; i < 16; i++) {
        c->ids[i] = one && i ? c->ids[0] : known ? m->node_seq[random_below(m->n_nodes)] : random_seq();
        c->ids[i] = m->type->flags & KVB_CACHE_SEQ ? c->ids[i] : 0;
        uint32_t number = naive_pending(m, c->ids[i]);
        for (uint32_t j = 0; j < i; j++)
            number += c->ids[j] == c->ids[i];
        c->parents[i] = (int32_t)(random_below(3) ? random_below(number + 1) : number) - 1;
    }
    if (random_below(30) == 0)
        c->parents[0] = (int32_t)(naive_pending(m, c->ids[0]) + random_below(2) * 100);
}

static inline void path_draw(const naive *m, call *c)
{
    int32_t at = -1;
    c->n = 0;
    if (m->n_nodes && random_below(8)) /* else of a sequence that may have none */
        c->src = m->node_seq[random_below(m->n_nodes)];
    for (uint32_t i = 0, number = 0; i < m->n_nodes && c->n < 16; i++) {
        if (m->node_seq[i] != c->src)
            continue;
        if (m->parent[i] == at && random_below(4)) {
            c->ids[c->n++] = number;
            at = (int32_t)number;
        }
        number++;
    }
    if (random_below(10) == 0) /* a wrong one */
        c->ids[c->n++ % 16] = random_below(20);
    c->n = c->n > 16 ? 16 : c->n;
}

/* A little up or down, down to where a hole begins, or divided. */
static inline void shift_draw(const naive *m, call *c)
{
    c->delta = (int32_t)random_below(9) - 3;
    c->divides = m->type->flags & KVB_CACHE_DIVIDE && random_below(3) == 0;
    c->divisor = c->divides ? random_below(5) : 0;
    if (c->src >= m->n_ids || random_below(3) == 0)
        return;
    for (uint32_t i = 0, next = 0; i < m->seqs[c->src].n; next = naive_pos(m, c->src, i++) + 1)
        if (naive_pos(m, c->src, i) > next) {
            c->p0 = naive_pos(m, c->src, i);
            c->delta = (int32_t)next - (int32_t)c->p0 + (int32_t)random_below(2);
            return;
        }
}

/* What is saved, or loaded as an empty sequence; now and then the wrong one. */
static inline void saved_draw(const naive *m, call *c)
{
    c->slot = random_below(NAIVE_SLOTS - 1); /* the last one is the player's */
    if (!(m->type->flags & KVB_CACHE_SEQ) && random_below(10))
        c->src = 0;
    if (c->kind == LOAD && m->type->flags & KVB_CACHE_SEQ && random_below(10))
        for (uint32_t i = 0; i < random_seqs && (c->src >= m->n_ids || m->seqs[c->src].n); i++)
            c->src = i;
    if (c->kind == SAVE ? random_below(6) == 0 : naive_slots[c->slot].whole && random_below(10))
        c->src = KVB_SEQ_ALL;
}

/* Few words, so that prompts begin alike. */
static inline void tokens_draw(call *c)
{
    c->known = random_below(8);
    for (uint32_t i = 0; i < 16; i++)
        c->toks[i] = random_below(6) == 0;
}

/* A prompt of a sequence that is empty, mostly. */
static inline call prompt_draw(const naive *m)
{
    call c = {.kind = MATCH, .n = random_below(20) ? 2 + random_below(15) : 0, .key = random_below(3) == 0};
    random_ids = m->n_ids;
    c.src = random_seq();
    for (uint32_t i = 0; i < random_seqs && random_below(10) && (c.src >= m->n_ids || m->seqs[c.src].n); i++)
        c.src = i;
    tokens_draw(&c);
    c.known = true;
    return c;
}

/* One random call, mostly a legal one, of what the cache can do. */
static inline call call_draw(const naive *m)
{
    static const call_kind mix[] = {EXTEND,  EXTEND,  STEP,   STEP,   STEP,   STEP,    STEP,    STEP,
                                    STEP,    COPY,    COPY,   REMOVE, REMOVE, KEEP,    CLEAR,   PROPOSE,
                                    PROPOSE, PROPOSE, COMMIT, COMMIT, REWIND, REORDER, REORDER, SHIFT,
                                    SHIFT,   DEFRAG,  SAVE,   LOAD,   LOAD,   STEP,    STEP,    STEP};
    const bool prompts = random_prompts && m->type->flags & KVB_CACHE_PREFIX;
    call c = {.kind = CALLS};
    bool have = false;
    if (prompts && random_below(6) == 0)
        return prompt_draw(m);
    random_ids = m->n_ids;
    if (prompts && random_saves && random_below(8) == 0) { /* into pages that prompts have had, and may find */
        c = (call){.kind = random_below(2) ? SAVE : LOAD, .src = random_below(2) ? KVB_SEQ_ALL : random_seq()};
        if (c.src != KVB_SEQ_ALL)
            saved_draw(m, &c);
        return c;
    }
    while (!have) {
        c.kind = mix[random_below(sizeof mix / sizeof *mix)];
        have = c.kind == EXTEND || c.kind == CLEAR || c.kind == DEFRAG || c.kind == SAVE || c.kind == LOAD;
        have = have || (m->type->flags & KVB_CACHE_SEQ && c.kind >= STEP && c.kind <= KEEP);
        have = have || (m->type->flags & KVB_CACHE_TREE && (c.kind == PROPOSE || c.kind == COMMIT));
        have = have || (m->type->flags & (KVB_CACHE_SEQ | KVB_CACHE_REWIND) && c.kind == REWIND);
        have = have || (m->type->flags & KVB_CACHE_REORDER && c.kind == REORDER);
        have = have || (m->type->flags & KVB_CACHE_SHIFT && c.kind == SHIFT);
        have = have && (c.kind != CLEAR || random_below(6) == 0);
        have = have && ((c.kind != DEFRAG && c.kind != SHIFT) || random_below(3) == 0);
        have = have && (c.kind != KEEP || random_below(3) == 0);
        have = have && (c.kind != PROPOSE || random_trees);
        have = have && ((random_saves && m->type->flags & KVB_CACHE_SAVES) || (c.kind != SAVE && c.kind != LOAD));
        have = have && (!m->n_nodes || c.kind == PROPOSE || c.kind == COMMIT ||
                        random_below(m->type->flags & KVB_CACHE_SEQ ? 2 : 8) == 0);
    }
    c.n = random_below(20) ? 1 + random_below(random_below(3) ? 4 : 14) : 0;
    c.src = random_seq();
    c.dst = random_seq();
    uint32_t len = c.src < m->n_ids && c.kind != REWIND ? naive_len(m, c.src) : naive_len(m, 0);
    c.p0 = random_below(2) ? random_below(len + 2) : 0;
    c.p1 = random_below(2) ? KVB_POS_END : random_below(len + 2);
    if (c.kind == COPY && c.dst < m->n_ids && random_below(2)) /* goes on where the destination ends */
        c.p0 = naive_len(m, c.dst);
    if (c.kind == REWIND && c.p0 == 0)
        c.p0 = len;
    if (c.kind == SHIFT)
        shift_draw(m, &c);
    if (c.kind == SAVE || c.kind == LOAD)
        saved_draw(m, &c);
    if (prompts)
        tokens_draw(&c);
    bool same = random_below(3) == 0;
    for (uint32_t i = 0; i < 16; i++) {
        c.ids[i] = i && same ? c.ids[0] : random_seq();
        c.srcs[i] = random_seq();
    }
    if (c.kind == PROPOSE)
        parents_draw(m, &c);
    if (c.kind == COMMIT && !(m->type->flags & KVB_CACHE_SEQ))
        c.src = 0;
    if (c.kind == COMMIT)
        path_draw(m, &c);
    for (uint32_t i = 0; c.kind == REORDER && i < c.n && random_below(30); i++) /* else one may be named twice */
        c.ids[i] = i ? (c.ids[i - 1] + 1) % m->n_ids : random_below(random_seqs);
    return c;
}

#endif
