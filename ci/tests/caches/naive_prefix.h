/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts in the naive model. Of each token it keeps what it stands behind, so that it can say of any rows that a cache
 * claims to have found whether they are the prompt's. What a cache has kept of pages that nobody holds is the cache's
 * business: the model says what must be found at least, and what may be found at most.
 */
#ifndef KVB_TEST_NAIVE_PREFIX_H
#define KVB_TEST_NAIVE_PREFIX_H

#include "naive.h"

typedef struct naive_prefix {
    bool whole;      /* it follows known tokens from position 0 on, each behind the one before it */
    int32_t tok;     /* its id, */
    uint64_t key;    /* its prompt's extra key, */
    uint64_t before; /* and the first token like the one before it */
    uint64_t like;   /* the first token that stands behind the same; itself where it is not whole */
    uint64_t page;   /* in which a step wrote it */
} naive_prefix;

static naive_prefix naive_prefixes[NAIVE_TOKENS]; /* by ordinal */
static bool naive_fed_only[NAIVE_SEQS];           /* all that the sequence holds came by steps and prompts */

/* The first token, of those below `next`, that stands at `pos` behind token `before` and has that id; NAIVE_TOKENS:
 * there is none. */
static inline uint64_t naive_first_like(const naive *m, uint64_t next, uint32_t pos, int32_t tok, uint64_t key,
                                        uint64_t before)
{
    for (uint64_t o = 0; o < next; o++) {
        const naive_prefix *p = &naive_prefixes[o];
        if (p->whole && m->pos[o] == pos && p->tok == tok && p->key == key && (pos == 0 || p->before == before))
            return o;
    }
    return NAIVE_TOKENS;
}

/* Do the first n tokens of a sequence follow each other from position 0 on? */
static inline bool naive_reads_on(const naive *m, uint32_t s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t o = m->seqs[s].token[i].ordinal;
        if (naive_pos(m, s, i) != i || m->pos[o] != i || !naive_prefixes[o].whole ||
            (i && naive_prefixes[o].before != naive_prefixes[m->seqs[s].token[i - 1].ordinal].like))
            return false;
    }
    return true;
}

/* Notes the tokens of the step in force; toks: NULL where they are not known. key: of sequences that they begin. */
static inline void naive_know(const naive *m, const int32_t *toks, uint64_t key)
{
    for (uint32_t i = 0; i < m->n_new; i++) {
        const uint64_t o = m->first + i;
        const uint32_t s = m->ids[i], pos = m->pos[o];
        const naive_token *t = m->seqs[s].token;
        naive_prefix p = {.like = o, .page = m->pages[0].id[s][pos / m->page_cells]};
        if (t[0].ordinal == o)
            naive_fed_only[s] = true;
        p.whole = toks && pos < m->seqs[s].n && t[pos].ordinal == o && naive_reads_on(m, s, pos);
        p.tok = toks ? toks[i] : 0;
        p.key = p.whole && pos ? naive_prefixes[t[0].ordinal].key : key;
        p.before = p.whole && pos ? naive_prefixes[t[pos - 1].ordinal].like : 0;
        const uint64_t first = p.whole ? naive_first_like(m, o, pos, p.tok, p.key, p.before) : NAIVE_TOKENS;
        p.like = first < NAIVE_TOKENS ? first : o;
        naive_prefixes[o] = p;
    }
}

/* Whole pages of a prompt, and never all of it. */
static inline uint32_t naive_offered(const naive *m, uint32_t n)
{
    return (n - 1) / m->page_cells * m->page_cells;
}

/* The rows of so many of its first tokens were there at some time. */
static inline uint32_t naive_most(const naive *m, const int32_t *toks, uint32_t n, uint64_t key)
{
    uint64_t before = 0;
    uint32_t most = 0;
    for (; most < naive_offered(m, n) && before < NAIVE_TOKENS; most += before < NAIVE_TOKENS)
        before = naive_first_like(m, m->next, most, toks[most], key, before);
    return most / m->page_cells * m->page_cells;
}

/* So many are held by a sequence that was only fed, which was the first to hold them: its pages are found as long as it
 * does. */
static inline uint32_t naive_least(const naive *m, const int32_t *toks, uint32_t n, uint64_t key)
{
    uint32_t least = 0;
    for (uint32_t s = 0; s < m->n_ids; s++) {
        uint32_t i = 0;
        for (; i < naive_offered(m, n) && i < m->seqs[s].n && naive_fed_only[s] && naive_reads_on(m, s, i + 1); i++) {
            const uint64_t o = m->seqs[s].token[i].ordinal;
            if (naive_prefixes[o].like != o || naive_prefixes[o].tok != toks[i] || naive_prefixes[o].key != key)
                break;
        }
        i = i / m->page_cells * m->page_cells;
        least = least > i ? least : i;
    }
    return least;
}

/* Are the rows of these tokens the prompt's? */
static inline bool naive_claim(const naive *m, const int32_t *toks, uint64_t key, const uint64_t *ordinals, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const naive_prefix *p = &naive_prefixes[ordinals[i] < m->next ? ordinals[i] : 0];
        if (ordinals[i] >= m->next || !p->whole || m->pos[ordinals[i]] != i || p->tok != toks[i] || p->key != key ||
            (i && p->before != naive_prefixes[ordinals[i - 1]].like))
            return false;
    }
    return true;
}

/* What a cache is to answer that has found so many tokens, or was refused: `got`; another answer where it cannot have.
 * The model takes what was found. */
static inline int naive_match(naive *m, uint32_t s, const int32_t *toks, uint32_t n, uint64_t key, int got,
                              uint32_t found, const uint64_t *ordinals)
{
    if (s >= m->n_ids || naive_pending(m, s) || n == 0 || m->seqs[s].n)
        return -EINVAL;
    const bool states = kvb_model_scans(m->model); /* which no page of rows brings */
    const uint32_t least = states ? 0 : naive_least(m, toks, n, key), most = states ? 0 : naive_most(m, toks, n, key);
    const bool room = naive_alive(m) < m->max_seqs;
    if (!room && (least || (most && got == -ENOSPC) || (!got && found)))
        return -ENOSPC;
    if (!got && (found < least || found > most || found % m->page_cells || !naive_claim(m, toks, key, ordinals, found)))
        return -EBADMSG;
    for (uint32_t i = 0; i < found && !got; i++) {
        m->pos[m->next + i] = i;
        m->seqs[s].token[m->seqs[s].n++] = (naive_token){.ordinal = ordinals[i], .row = ordinals[i], .pos = i};
        naive_prefixes[m->next + i] = (naive_prefix){.like = naive_prefixes[ordinals[i]].like};
        for (uint32_t g = 0; g < m->model->n_groups; g++)
            m->pages[g].id[s][i / m->page_cells] =
                naive_prefixes[ordinals[i / m->page_cells * m->page_cells + m->page_cells - 1]].page;
    }
    naive_fed_only[s] = true;
    m->next += got ? 0 : found;
    m->valid = false;
    return 0;
}

#endif
