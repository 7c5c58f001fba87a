/* SPDX-License-Identifier: Apache-2.0 */
/* What cache recompute is fed: whole histories, of which what several sequences share comes once. */
#include <errno.h>

#include "harness/size/prediction.h"

/* Tokens of a piece from pos on that lie together: in the feed already, for a sequence before q that holds them, too (*place), or not. */
static uint64_t stretch_find(const kvb_size_prediction *p, const kvb_size_step *s, uint32_t q,
                             const kvb_size_piece *all, uint64_t pos, uint64_t *place)
{
    uint64_t end = all->pos + all->n;
    for (uint32_t h = s->first; h < q; h++)
        for (size_t i = 0; i < p->seq[h].ordinals.n; i++) {
            const kvb_size_piece *other = &p->seq[h].ordinals.at[i];
            if (other->cell - other->pos != all->cell - all->pos || pos >= other->pos + other->n || other->pos >= end)
                continue;
            if (other->pos > pos) {
                end = other->pos;
                continue;
            }
            end = end < other->pos + other->n ? end : other->pos + other->n;
            const kvb_size_piece *fed = p->seq[h].fed.at;
            while (fed->pos + fed->n <= pos)
                fed++;
            *place = fed->cell + (pos - fed->pos);
            return (end < fed->pos + fed->n ? end : fed->pos + fed->n) - pos;
        }
    *place = UINT64_MAX;
    return end - pos;
}

int kvb_size_fed_find(kvb_size_prediction *p, const kvb_size_step *s)
{
    uint64_t old = 0, new;
    int error = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        kvb_size_sequence *seq = &p->seq[q];
        seq->fed.n = seq->fresh.n = 0;
        for (size_t i = 0; i < seq->ordinals.n; i++) {
            const kvb_size_piece *all = &seq->ordinals.at[i];
            for (uint64_t pos = all->pos, place, n; pos < all->pos + all->n && !error; pos += n) {
                n = stretch_find(p, s, q, all, pos, &place);
                const bool fresh = place == UINT64_MAX;
                error = kvb_size_piece_add(&seq->fed, pos, fresh ? old : place, n);
                if (!error && fresh)
                    error = kvb_size_piece_add(&seq->fresh, pos, old, n);
                old += fresh ? n : 0;
            }
        }
    }
    new = old;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !s->drafts && !error; q++, new += s->tokens)
        error = kvb_size_piece_add(&p->seq[q].fed, p->seq[q].len, new, s->tokens);
    return error;
}

uint64_t kvb_size_fed_old(const kvb_size_prediction *p, const kvb_size_step *s)
{
    uint64_t old = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        for (size_t i = 0; i < p->seq[q].fresh.n; i++)
            old += p->seq[q].fresh.at[i].n;
    return old;
}

uint64_t kvb_size_fed_queries(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g,
                              const kvb_size_step *s)
{
    uint64_t runs = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        for (size_t i = 0; i < p->seq[q].fresh.n; i++)
            runs = (uint64_t)kvb_size_queries(&t->runs[p->turn], &p->seq[q].fed, p->seq[q].fed.n, g,
                                              p->seq[q].fresh.at[i].pos, p->seq[q].fresh.at[i].n, runs);
    return runs;
}

/* The queries of old tokens come before those of new ones. */
int kvb_size_fed_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const uint64_t n = (uint64_t)s->n_seqs * s->tokens, old = kvb_size_fed_old(p, s);
    kvb_size_plan_start(t, p->turn, old + n);
    uint64_t runs = kvb_size_fed_queries(p, t, g, s);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        runs = (uint64_t)kvb_size_queries(&t->runs[p->turn], &p->seq[q].fed, p->seq[q].fed.n, g, p->seq[q].len,
                                          s->tokens, runs);
    kvb_size_cells_ask(t, old + n);
    return 0;
}
