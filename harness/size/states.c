/* SPDX-License-Identifier: Apache-2.0 */
/* Which slots recurrent states take, and what their tables hold: caches/stores/state.c, told a second time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/size/pool_bytes.h"
#include "harness/size/prediction.h"
#include "workloads/array.h"

enum { TOKEN = 16, USE = 12, LINK = 4 }; /* bytes */

static uint64_t depth(const kvb_size_prediction *p)
{
    return 1 + (uint64_t)p->subject->options.state_depth;
}

uint64_t kvb_size_states_slots(const kvb_size_subject *s)
{
    return s->options.max_seqs * (1 + (uint64_t)s->options.state_depth) +
           (s->cache->flags & KVB_CACHE_TREE ? s->options.capacity : 0);
}

/* Slot i of those that a sequence holds, from the oldest on. */
static uint64_t held_at(const kvb_size_pieces *held, uint64_t i)
{
    const kvb_size_piece *piece = held->at;
    for (; i >= piece->n; piece++)
        i -= piece->n;
    return piece->cell + i;
}

static uint64_t held_count(const kvb_size_pieces *held)
{
    uint64_t n = 0;
    for (size_t i = 0; i < held->n; i++)
        n += held->at[i].n;
    return n;
}

static int slots_reserve(kvb_size_states *t, uint64_t n)
{
    const size_t had = t->room;
    int error = kvb_array_reserve(&t->slot, &t->room, n, sizeof *t->slot);
    if (!error && t->room > had)
        memset(t->slot + had, 0, (t->room - had) * sizeof *t->slot);
    return error;
}

static void slot_give(kvb_size_states *t, uint64_t slot)
{
    t->slot[slot].below = t->again;
    t->again = slot + 1;
}

/* What was given last, or the lowest that nobody holds. */
static int slot_take(kvb_size_group_tables *group, uint64_t *slot)
{
    kvb_size_states *t = &group->states;
    if (t->again) {
        *slot = t->again - 1;
        t->again = t->slot[*slot].below;
        return 0;
    }
    while (t->lowest < t->room && t->slot[t->lowest].held)
        t->lowest++;
    *slot = t->lowest++;
    need(&group->refs, *slot + 1);
    need(&t->uses, *slot + 1);
    group->most = group->most > *slot + 1 ? group->most : *slot + 1;
    return slots_reserve(t, *slot + 1);
}

static uint64_t high_water(const kvb_size_states *t)
{
    uint64_t n = t->room;
    while (n > 0 && !t->slot[n - 1].held)
        n--;
    return n;
}

/* The oldest n states of a sequence go. */
static void oldest_drop(kvb_size_states *t, kvb_size_pieces *held, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        t->slot[held_at(held, i)].held--;
    while (n > 0) {
        kvb_size_piece *first = held->at;
        const uint64_t some = n < first->n ? n : first->n;
        first->pos += some, first->cell += some, first->n -= some;
        n -= some;
        if (!first->n)
            memmove(first, first + 1, --held->n * sizeof *first);
    }
}

/* How many go for n more. */
static uint64_t outgrown(const kvb_size_prediction *p, const kvb_size_pieces *held, uint64_t n)
{
    const uint64_t all = held_count(held) + (n < depth(p) ? n : depth(p));
    return all > depth(p) ? all - depth(p) : 0;
}

/* Slots that nobody will hold, and that no token begins with, can be written at once; the others when they are read last. */
static void leaving_note(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s)
{
    kvb_size_slot *slot = t->states.slot;
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) {
        const kvb_size_pieces *held = &t->seq[q].held;
        if (held->n)
            slot[held_at(held, held_count(held) - 1)].readers++;
    }
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) {
        const kvb_size_pieces *held = &t->seq[q].held;
        for (uint64_t i = 0, left = outgrown(p, held, s->tokens); i < left; i++) {
            kvb_size_slot *of = &slot[held_at(held, i)];
            if (++of->leaves == of->held && !of->readers)
                slot_give(&t->states, held_at(held, i));
        }
    }
}

static int sequence_step(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s, uint32_t q)
{
    kvb_size_pieces *held = &t->seq[q].held;
    const uint64_t n = held_count(held), more = s->tokens < depth(p) ? s->tokens : depth(p);
    const uint64_t last = n ? held_at(held, n - 1) : 0;
    uint64_t slot;
    int error = 0;
    t->seq[q].left = outgrown(p, held, s->tokens);
    if (n && --t->states.slot[last].readers == 0 && t->states.slot[last].leaves == t->states.slot[last].held)
        slot_give(&t->states, last);
    for (uint64_t i = s->tokens - more; i < s->tokens && !error; i++) {
        error = slot_take(t, &slot);
        if (!error)
            error = kvb_size_piece_add(held, p->seq[q].len + i, slot, 1);
        if (!error)
            t->states.slot[slot].taken++;
    }
    return error;
}

/* Nodes, of which each sequence accepts the last one of each level. */
static int drafts_step(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s)
{
    uint64_t slot = 0;
    int error = 0;
    const uint32_t nodes = kvb_size_brings(s);
    need(&t->nodes, (uint64_t)s->n_seqs * nodes);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        need_of(&t->seq[q].spans, t->seq[q].held.n + nodes, &t->spans);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        for (uint32_t i = 0; i < nodes && !error; i++) {
            error = slot_take(t, &slot);
            if (!error && (i + 1) % s->drafts == 0)
                error = kvb_size_piece_add(&t->seq[q].held, p->seq[q].len + i / s->drafts, slot, 1);
        }
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++)
        oldest_drop(&t->states, &t->seq[q].held, outgrown(p, &t->seq[q].held, 0));
    return error ? error : kvb_size_states_count(p, t);
}

/* A token of a feed that begins with the state of another one, which is not the one before it. */
typedef struct reading {
    uint64_t at, of; /* places in the feed */
} reading;

typedef struct readings {
    reading *list;
    size_t n, room;
} readings;

static int by_source(const void *a, const void *b)
{
    const reading *x = a, *y = b;
    return x->of != y->of ? (x->of > y->of) - (x->of < y->of) : (x->at > y->at) - (x->at < y->at);
}

static int reading_add(readings *r, uint64_t at, uint64_t of)
{
    int error = kvb_array_reserve(&r->list, &r->room, r->n + 1, sizeof *r->list);
    if (!error)
        r->list[r->n++] = (reading){at, of};
    return error;
}

static int readings_find(const kvb_size_prediction *p, const kvb_size_step *s, readings *r)
{
    uint64_t node = kvb_size_fed_old(p, s);
    int error = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++, node += s->drafts ? kvb_size_brings(s) : 0) {
        const kvb_size_pieces *fed = &p->seq[q].fed;
        const uint64_t last = fed->n ? fed->at[fed->n - 1].cell + fed->at[fed->n - 1].n - 1 : 0;
        for (size_t i = 1; i < fed->n && !error; i++)
            error = reading_add(r, fed->at[i].cell, fed->at[i - 1].cell + fed->at[i - 1].n - 1);
        for (uint32_t i = 0; s->drafts && i < kvb_size_brings(s) && !error; i++) {
            const int32_t parent = kvb_size_node_parent(s, i);
            const uint64_t of = parent < 0 ? last : node + (uint32_t)parent;
            if ((parent >= 0 || fed->n) && of + 1 != node + i)
                error = reading_add(r, node + i, of);
        }
    }
    return error;
}

/* A slot that a token's state is kept in, from its place on up to its last reader's. */
typedef struct keeping {
    uint64_t from, to, slot;
} keeping;

/* A cache that forgets has slots for what is read, given back with the last reading, before that reader takes one itself. */
static int forgetful_step(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s)
{
    readings r = {0};
    int error = readings_find(p, s, &r);
    keeping *k = calloc(r.n + 1, sizeof *k);
    size_t n = 0;
    if (r.n)
        qsort(r.list, r.n, sizeof *r.list, by_source);
    for (size_t i = 0; i < r.n && k; i++) { /* ascending by who is read */
        n += n == 0 || k[n - 1].from != r.list[i].of;
        k[n - 1].from = r.list[i].of;
        k[n - 1].to = r.list[i].at;
    }
    for (size_t i = 0; i < n && !error; i++) {
        for (;;) { /* whose last reader is not behind the token, the first one first */
            size_t ends = i;
            for (size_t j = 0; j < i; j++)
                if (k[j].to <= k[i].from && (ends == i || k[j].to < k[ends].to))
                    ends = j;
            if (ends == i)
                break;
            slot_give(&t->states, k[ends].slot);
            k[ends].to = UINT64_MAX;
        }
        error = slot_take(t, &k[i].slot);
    }
    free(r.list);
    if (!k)
        error = -ENOMEM;
    free(k);
    return error;
}

int kvb_size_states_count(const kvb_size_prediction *p, kvb_size_group_tables *t)
{
    kvb_size_states *states = &t->states;
    int error = 0;
    for (size_t i = 0; i < states->room; i++)
        states->slot[i].held = 0;
    for (uint32_t q = 0; q < p->n_ids && !error; q++) {
        const kvb_size_pieces *held = &t->seq[q].held;
        for (uint64_t i = 0, n = held_count(held); i < n && !error; i++) {
            const uint64_t slot = held_at(held, i);
            error = slots_reserve(states, slot + 1);
            if (!error)
                states->slot[slot].held++;
        }
    }
    return error;
}

int kvb_size_states_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s)
{
    const bool forgets = p->subject->cache->flags & KVB_CACHE_FORGETS;
    uint64_t fed = (uint64_t)s->n_seqs * kvb_size_brings(s);
    int error = 0;
    fed += forgets ? kvb_size_fed_old(p, s) : 0;
    need(&t->states.tokens, fed);
    need(&t->states.links[p->turn], 2 * fed);
    need(&t->states.uses, high_water(&t->states));
    t->most += !t->most; /* one at least */
    t->states.again = t->states.lowest = 0;
    if (forgets)
        return forgetful_step(p, t, s);
    if (s->drafts)
        return drafts_step(p, t, s);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        need_of(&t->seq[q].spans, t->seq[q].held.n + (s->tokens < depth(p) ? s->tokens : depth(p)), &t->spans);
    leaving_note(p, t, s);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++)
        error = sequence_step(p, t, s, q);
    for (uint64_t i = 0; i < t->states.room; i++) {
        t->states.slot[i].held += t->states.slot[i].taken;
        t->states.slot[i].taken = t->states.slot[i].leaves = 0;
    }
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++)
        oldest_drop(&t->states, &t->seq[q].held, t->seq[q].left);
    return error;
}

int kvb_size_states_share(kvb_size_group_tables *t, uint32_t src, uint32_t dst)
{
    const kvb_size_pieces *held = &t->seq[src].held;
    int error = 0;
    need_of(&t->seq[dst].spans, held->n, &t->spans);
    for (size_t i = 0; i < held->n && !error; i++)
        error = kvb_size_piece_add(&t->seq[dst].held, held->at[i].pos, held->at[i].cell, held->at[i].n);
    for (uint64_t i = 0, n = held_count(held); i < n; i++)
        t->states.slot[held_at(held, i)].held++;
    return error;
}

int kvb_size_states_add_up(const kvb_size_prediction *p, uint32_t group, uint64_t *sum)
{
    const kvb_model *m = &p->subject->model;
    const kvb_size_group_tables *t = &p->group[group];
    const kvb_size_states *states = &t->states;
    int error = 0;
    for (int conv = 0; conv < 2 && !error; conv++) {
        kvb_pool_options o = {.capacity = (uint32_t)kvb_size_states_slots(p->subject),
                              .growth = p->subject->options.growth};
        const kvb_pool_type *type = NULL;
        if (kvb_size_state_pool(&m->groups[group], conv, &type, &o))
            error = kvb_size_add(sum, kvb_model_layers_of(m, group), kvb_size_pool_bytes(type, &o, t->most));
    }
    return error ? error
                 : kvb_size_add(sum, 1,
                                t->spans * SPAN + p->n_ids * (SPANS + ID) + t->refs * REF +
                                    kvb_size_moves_bytes(t, p->n_ids) + states->tokens * TOKEN + states->uses * USE +
                                    (states->links[0] + states->links[1]) * LINK + t->nodes * 2 * NODE_CELL +
                                    t->moves * MOVE);
}
