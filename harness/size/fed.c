/* SPDX-License-Identifier: Apache-2.0 */
/* What cache recompute is fed: whole histories, of which a beginning that several sequences share comes once. */
#include <errno.h>

#include "harness/size/prediction.h"

/* How many of a sequence's first tokens another one holds, too. */
static uint64_t alike(const kvb_size_pieces *a, const kvb_size_pieces *b)
{
    uint64_t n = 0;
    for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
        const kvb_size_piece *x = &a->at[i], *y = &b->at[j];
        const uint64_t ends_x = x->pos + x->n, ends_y = y->pos + y->n, end = ends_x < ends_y ? ends_x : ends_y;
        if (n < x->pos || n < y->pos || x->cell + (n - x->pos) != y->cell + (n - y->pos))
            return n;
        n = end;
        i += n == ends_x;
        j += n == ends_y;
    }
    return n;
}

/* The sequence before q, of those of the step, that has the longest beginning in common with it: *n tokens. */
static uint32_t holder_find(const kvb_size_prediction *p, const kvb_size_step *s, uint32_t q, uint64_t *n)
{
    uint32_t holder = q;
    *n = 0;
    for (uint32_t h = s->first; h < q; h++) {
        const uint64_t both = alike(&p->seq[h].ordinals, &p->seq[q].ordinals);
        holder = both > *n ? h : holder;
        *n = both > *n ? both : *n;
    }
    return holder;
}

int kvb_size_fed_find(kvb_size_prediction *p, const kvb_size_step *s)
{
    uint64_t old = 0, new;
    int error = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        kvb_size_sequence *seq = &p->seq[q];
        uint64_t shared;
        const kvb_size_pieces *from = &p->seq[holder_find(p, s, q, &shared)].fed;
        seq->fed.n = 0;
        for (size_t i = 0; i < from->n && from->at[i].pos < shared && !error; i++) {
            const kvb_size_piece *part = &from->at[i];
            const uint64_t n = shared - part->pos < part->n ? shared - part->pos : part->n;
            error = kvb_size_piece_add(&seq->fed, part->pos, part->cell, n);
        }
        seq->fresh = seq->len - shared;
        if (!error && seq->fresh)
            error = kvb_size_piece_add(&seq->fed, shared, old, seq->fresh);
        old += seq->fresh;
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
        old += p->seq[q].fresh;
    return old;
}

/* The queries of old tokens come before those of new ones. */
int kvb_size_fed_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const uint64_t n = (uint64_t)s->n_seqs * s->tokens, old = kvb_size_fed_old(p, s);
    uint64_t runs = 0;
    kvb_size_plan_start(t, p->turn, old + n);
    for (int new = 0; new < 2; new ++)
        for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) {
            const kvb_size_sequence *seq = &p->seq[q];
            runs =
                (uint64_t)kvb_size_queries(&t->runs[p->turn], &seq->fed, seq->fed.n, g,
                                           new ? seq->len : seq->len - seq->fresh, new ? s->tokens : seq->fresh, runs);
        }
    kvb_size_cells_ask(t, old + n);
    return 0;
}
