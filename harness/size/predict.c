/* SPDX-License-Identifier: Apache-2.0 */
/* A cache's structs, pools and tables added up, step by step. */
#include "harness/size/predict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/size/layout.h"
#include "harness/size/pool_bytes.h"

size_t kvb_size_steps(const kvb_size_history *h, kvb_size_step steps[KVB_SIZE_STEPS])
{
    uint32_t singles = h->singles < h->context ? h->singles : h->context, prefill = h->context - singles;
    size_t n = 0;
    for (uint32_t s = 0; s < h->sequences; s++) {
        if (prefill >= h->chunk)
            steps[n++] = (kvb_size_step){.first = s, .n_seqs = 1, .tokens = h->chunk, .times = prefill / h->chunk};
        if (prefill % h->chunk)
            steps[n++] = (kvb_size_step){.first = s, .n_seqs = 1, .tokens = prefill % h->chunk, .times = 1};
    }
    if (singles)
        steps[n++] = (kvb_size_step){.n_seqs = h->sequences, .tokens = 1, .drafts = h->drafts, .times = singles};
    return n;
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

enum {
    SPAN = 16,
    NODE = 8,
    FEED_ITEM = 8 + 4 + 4,
    CELL = 4,
    ROW_START = 4,
    RUN = 8,
    PATH = 4,
    MOVE = 8,
    REF = 2
}; /* bytes */

/* One group's tables. The plan in force and the one being made take turns. */
typedef struct group_tables {
    uint64_t cells[2], row_starts[2], runs[2], path[2], seen[2]; /* room, in items */
    uint64_t moves, refs, row_cells;
    uint64_t spans[KVB_SIZE_SEQUENCES];
    kvb_size_pieces held[KVB_SIZE_SEQUENCES];
    uint64_t most; /* cells that the pools were asked for */
} group_tables;

typedef struct prediction {
    const kvb_size_subject *subject;
    group_tables group[KVB_MODEL_GROUPS];
    uint64_t account[KVB_SIZE_SEQUENCES], nodes, feed[2], seen[2][KVB_SIZE_SEQUENCES]; /* room */
    kvb_size_pieces ordinals[KVB_SIZE_SEQUENCES];                                      /* position -> ordinal */
    bool joins[KVB_SIZE_SEQUENCES]; /* of the step in hand: its tokens' ordinals go on those before */
    uint64_t next_ordinal, len[KVB_SIZE_SEQUENCES], tokens;
    uint32_t turn; /* of plans and feeds */
    kvb_size_pieces scratch;
} prediction;

/* Room for n items: 16 at first, then twice the room before, or n if that is more. */
static void need(uint64_t *room, uint64_t n)
{
    uint64_t want = *room < 16 ? 16 : *room * 2;
    if (*room < n || !*room)
        *room = want < n ? n : want;
}

/* The same for from + step, from + 2 step, … n times one after the other. */
static void climb(uint64_t *room, uint64_t from, uint64_t step, uint64_t n)
{
    if (n)
        need(room, from + step);
    while (*room < from + n * step)
        need(room, from + ((*room - from) / step + 1) * step);
}

static bool is(const prediction *p, const kvb_cache_type *cache)
{
    return p->subject->cache == cache;
}

/* Does the cache give back cells of this group? */
static bool drops(const prediction *p, const kvb_group *g)
{
    return is(p, &kvb_cache_window) && (g->window || g->chunk);
}

static uint64_t pool_cells(const prediction *p, const kvb_group *g)
{
    const kvb_cache_options *o = &p->subject->options;
    uint64_t kept = (uint64_t)g->window + g->chunk + g->sinks + o->rollback - 1; /* of a sequence, before a step */
    uint64_t bound = o->max_seqs * kept + (o->step ? o->step : o->capacity);
    return is(p, &kvb_cache_slab)               ? (uint64_t)o->max_seqs * o->seq_capacity
           : drops(p, g) && bound < o->capacity ? bound
                                                : o->capacity;
}

/* ---- what queries ask of a plan ------------------------------------------------------------------------------------ */

/* n queries of one sequence, from position pos on, of whose pieces their spans are n_spans. Returns the runs of all queries of
 * the step so far. */
static int64_t queries_take(uint64_t *runs_room, const kvb_size_pieces *pieces, uint64_t n_spans, const kvb_group *g,
                            uint64_t pos, uint64_t n, uint64_t before)
{
    bool limited = g->window || g->chunk, last_grows = pieces->n && pieces->at[pieces->n - 1].pos <= pos;
    if (!limited && last_grows) { /* each sees all pieces but for the end of the last one */
        uint64_t runs = kvb_size_runs(pieces, g, pos + n - 1);
        need(runs_room, before + n_spans + 1);
        climb(runs_room, before + n_spans + 1, runs, n - 1);
        return (int64_t)(before + n * runs);
    }
    for (uint64_t i = 0; i < n; i++) {
        need(runs_room, before + n_spans + 1);
        before += kvb_size_runs(pieces, g, pos + i);
    }
    return (int64_t)before;
}

static void plan_start(group_tables *t, uint32_t turn, uint64_t n)
{
    need(&t->cells[turn], n);
    need(&t->row_starts[turn], n + 1);
}

static void cells_ask(group_tables *t, uint64_t cells)
{
    t->most = t->most > cells ? t->most : cells;
}

/* ---- one store's share of a step. Lengths and ordinals are still those before it ----------------------------------- */

/* contiguous, tree: position p in cell p. */
static int contiguous_take(prediction *p, group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    kvb_size_piece all = {0, 0, p->len[0] + s->tokens};
    plan_start(t, p->turn, s->tokens);
    queries_take(&t->runs[p->turn], &(kvb_size_pieces){&all, 1, 1}, 1, g, p->len[0], s->tokens, 0);
    cells_ask(t, all.n);
    return 0;
}

/* Roots only: root i sees the prefix and itself, i cells behind the prefix. */
static int drafts_take(prediction *p, group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t len = p->len[0], runs = 0;
    plan_start(t, p->turn, s->drafts);
    for (uint32_t i = 0; i < s->drafts; i++) {
        kvb_size_piece pieces[2] = {{0, 0, len}, {len, len + i, 1}};
        kvb_size_pieces seen = {pieces + (len == 0), 2 - (len == 0), 2};
        if (len && i == 0) {
            pieces[0].n++;
            seen.n = 1;
        }
        need(&t->path[p->turn], 1);
        need(&t->seen[p->turn], (len > 0) + 1);
        need(&t->runs[p->turn], runs + seen.n + 1);
        runs += kvb_size_runs(&seen, g, len);
    }
    need(&t->moves, s->drafts);
    cells_ask(t, len + s->drafts);
    return 0;
}

/* Each sequence has a row of cells, in the order in which sequences come to life. */
static int slab_take(prediction *p, group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t runs = 0;
    int error = 0;
    plan_start(t, p->turn, (uint64_t)s->n_seqs * s->tokens);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        uint64_t row = 0, spans = p->ordinals[q].n + !p->joins[q];
        for (uint32_t other = 0; other < KVB_SIZE_SEQUENCES; other++)
            row += t->held[other].n > 0;
        if (t->held[q].n)
            row = t->held[q].at[0].cell / p->subject->options.seq_capacity;
        error =
            kvb_size_piece_add(&t->held[q], p->len[q], row * p->subject->options.seq_capacity + p->len[q], s->tokens);
        need(&t->row_cells, spans);
        runs = (uint64_t)queries_take(&t->runs[p->turn], &t->held[q], spans, g, p->len[q], s->tokens, runs);
    }
    return error;
}

/* What a sequence keeps of a group with limits. */
static int held_drop(const prediction *p, const kvb_group *g, uint32_t q, kvb_size_pieces *held)
{
    uint64_t back = p->len[q] > p->subject->options.rollback ? p->len[q] - p->subject->options.rollback : 0;
    uint64_t first = g->chunk ? back / g->chunk * g->chunk : back >= g->window ? back - g->window + 1 : 0;
    return kvb_size_pieces_drop(held, g->sinks, first > g->sinks ? first : g->sinks);
}

/* The cells that a step takes, in pieces, into p->scratch. */
static int cells_find(prediction *p, const group_tables *t, const kvb_group *g, uint64_t n)
{
    kvb_size_pieces left[KVB_SIZE_SEQUENCES] = {{0}};
    int error = 0;
    p->scratch.n = 0;
    if (!drops(p, g)) /* none is ever free again */
        return kvb_size_piece_add(&p->scratch, 0, p->tokens, n);
    for (uint32_t q = 0; q < KVB_SIZE_SEQUENCES && !error; q++) {
        for (size_t i = 0; i < t->held[q].n && !error; i++)
            error = kvb_size_piece_add(&left[q], t->held[q].at[i].pos, t->held[q].at[i].cell, t->held[q].at[i].n);
        if (!error)
            error = held_drop(p, g, q, &left[q]);
    }
    if (!error)
        error = kvb_size_cells_take(left, n, pool_cells(p, g), &p->scratch);
    for (uint32_t q = 0; q < KVB_SIZE_SEQUENCES; q++)
        free(left[q].at);
    return error;
}

/* seq, window: cells that all sequences share. */
static int shared_take(prediction *p, group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t n = (uint64_t)s->n_seqs * s->tokens, runs = 0, at = 0;
    size_t had[KVB_SIZE_SEQUENCES];
    int error = cells_find(p, t, g, n);
    plan_start(t, p->turn, n);
    for (uint32_t q = 0; q < KVB_SIZE_SEQUENCES; q++)
        had[q] = t->held[q].n;
    for (size_t i = 0; i < p->scratch.n && !error; i++) /* of one sequence all tokens, of several one each */
        for (uint64_t j = 0, some; j < p->scratch.at[i].n && !error; j += some, at += some) {
            uint32_t q = s->first + (s->n_seqs > 1 ? (uint32_t)at : 0);
            some = s->n_seqs > 1 ? 1 : p->scratch.at[i].n;
            error =
                kvb_size_piece_add(&t->held[q], p->len[q] + (s->n_seqs > 1 ? 0 : at), p->scratch.at[i].cell + j, some);
            need(&t->refs, p->scratch.at[i].cell + j + some);
            cells_ask(t, p->scratch.at[i].cell + j + some);
        }
    for (uint32_t q = 0; q < KVB_SIZE_SEQUENCES && !error; q++) {
        bool in_step = q >= s->first && q < s->first + s->n_seqs;
        size_t more = t->held[q].n - had[q] + (had[q] && drops(p, g)); /* one more where sinks are cut off */
        if (more)
            need(&t->spans[q], had[q] + more);
        if (in_step)
            runs = (uint64_t)queries_take(&t->runs[p->turn], &t->held[q], t->held[q].n, g, p->len[q], s->tokens, runs);
        if (drops(p, g))
            error = held_drop(p, g, q, &t->held[q]);
    }
    return error;
}

/* The whole history of the step's sequences is fed again, one sequence after the other, the new tokens last. */
static int recompute_take(prediction *p, group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t n = (uint64_t)s->n_seqs * s->tokens, old = 0, begin = 0, runs = 0;
    kvb_size_pieces seen[KVB_SIZE_SEQUENCES] = {{0}};
    int error = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        old += p->len[q];
    plan_start(t, p->turn, old + n);
    for (uint32_t i = 0; i < s->n_seqs && !error; i++) {
        uint32_t q = s->first + i;
        error = p->len[q] ? kvb_size_piece_add(&seen[i], 0, begin, p->len[q]) : 0;
        if (!error)
            error = kvb_size_piece_add(&seen[i], p->len[q], old + (uint64_t)i * s->tokens, s->tokens);
        begin += p->len[q];
    }
    for (uint32_t i = 0; i < s->n_seqs && !error; i++)
        runs = (uint64_t)queries_take(&t->runs[p->turn], &seen[i], seen[i].n, g, 0, p->len[s->first + i], runs);
    for (uint32_t i = 0; i < s->n_seqs && !error; i++)
        runs = (uint64_t)queries_take(&t->runs[p->turn], &seen[i], seen[i].n, g, p->len[s->first + i], s->tokens, runs);
    for (uint32_t i = 0; i < KVB_SIZE_SEQUENCES; i++)
        free(seen[i].at);
    cells_ask(t, old + n);
    return error;
}

static const struct {
    const kvb_cache_type *cache;
    int (*take)(prediction *p, group_tables *t, const kvb_group *g, const kvb_size_step *s);
} accounts[] = {
    {&kvb_cache_recompute, recompute_take}, {&kvb_cache_slab, slab_take},     {&kvb_cache_contiguous, contiguous_take},
    {&kvb_cache_seq, shared_take},          {&kvb_cache_window, shared_take}, {&kvb_cache_tree, contiguous_take},
};
enum { ACCOUNTS = sizeof accounts / sizeof *accounts };

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

/* What sequences and feed need besides the stores. */
static void shared_tables_take(prediction *p, const kvb_size_step *s)
{
    uint64_t fed = s->drafts ? s->drafts : (uint64_t)s->n_seqs * s->tokens;
    need(&p->feed[p->turn], fed);
    if (s->drafts)
        need(&p->nodes, s->drafts);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) {
        need(&p->account[q], p->ordinals[q].n + (s->drafts ? s->drafts : 1));
        if (!is(p, &kvb_cache_recompute))
            continue;
        fed += p->len[q];
        need(&p->seen[p->turn][q], 1); /* two pieces at most */
    }
    need(&p->feed[p->turn], fed);
}

static int step_take(prediction *p, const kvb_size_step *s)
{
    const kvb_model *m = &p->subject->model;
    int error = 0;
    size_t a = 0;
    while (accounts[a].cache != p->subject->cache)
        a++;
    shared_tables_take(p, s);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) /* does its first new token follow its last one? */
        p->joins[q] = p->ordinals[q].n &&
                      p->ordinals[q].at[p->ordinals[q].n - 1].cell + p->ordinals[q].at[p->ordinals[q].n - 1].n ==
                          p->next_ordinal + (uint64_t)(q - s->first) * s->tokens;
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = s->drafts ? drafts_take(p, &p->group[g], &m->groups[g], s)
                          : accounts[a].take(p, &p->group[g], &m->groups[g], s);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        uint64_t ordinal = p->next_ordinal + (s->drafts ? s->drafts - 1 : (uint64_t)(q - s->first) * s->tokens);
        error = kvb_size_piece_add(&p->ordinals[q], p->len[q], ordinal, s->tokens);
        p->len[q] += s->tokens;
    }
    p->next_ordinal += s->drafts ? s->drafts : (uint64_t)s->n_seqs * s->tokens;
    p->tokens += (uint64_t)s->n_seqs * s->tokens;
    p->turn = !p->turn;
    return error;
}

/* ---- adding up ------------------------------------------------------------------------------------------------------- */

static int add(uint64_t *sum, uint64_t n, uint64_t each)
{
    uint64_t bytes;
    return __builtin_mul_overflow(n, each, &bytes) || __builtin_add_overflow(*sum, bytes, sum) ? -EOVERFLOW : 0;
}

static int group_add_up(const prediction *p, uint32_t index, uint64_t *sum)
{
    const kvb_size_subject *s = p->subject;
    const kvb_group *g = &s->model.groups[index];
    const group_tables *t = &p->group[index];
    uint64_t cells = pool_cells(p, g);
    int error = 0;
    for (int side = 0; side < 2 && !error; side++) {
        kvb_pool_options o = {
            .n_kv_heads = g->kv_heads,
            .dim = side ? g->v_dim : g->k_dim,
            .min_chunk = s->options.min_chunk < cells ? s->options.min_chunk : (uint32_t)cells,
            .capacity = (uint32_t)cells,
            .growth = s->options.growth,
        };
        if (!side || !g->latent)
            error = add(sum, kvb_model_layers_of(&s->model, index),
                        kvb_size_pool_bytes(side ? s->options.v_pool : s->options.k_pool, &o,
                                            is(p, &kvb_cache_slab) ? cells : t->most));
        if (!error)
            error = add(sum, 1,
                        t->cells[side] * CELL + t->row_starts[side] * ROW_START + t->runs[side] * RUN +
                            t->path[side] * PATH + t->seen[side] * SPAN);
    }
    for (uint32_t q = 0; q < KVB_SIZE_SEQUENCES && !error; q++)
        error = add(sum, t->spans[q], SPAN);
    return error ? error : add(sum, 1, t->moves * MOVE + t->refs * REF + t->row_cells * SPAN);
}

/* Bytes now, or -EOVERFLOW. */
static int add_up(const prediction *p, uint64_t *bytes)
{
    int error = 0;
    *bytes = kvb_cache_struct_bytes(p->subject->cache, &p->subject->model) + p->nodes * NODE;
    for (int turn = 0; turn < 2; turn++)
        *bytes += p->feed[turn] * FEED_ITEM;
    for (uint32_t q = 0; q < KVB_SIZE_SEQUENCES; q++)
        *bytes += (p->account[q] + p->seen[0][q] + p->seen[1][q]) * SPAN;
    for (uint32_t g = 0; g < p->subject->model.n_groups && !error; g++)
        error = group_add_up(p, g, bytes);
    return error;
}

/* ---- checks ---------------------------------------------------------------------------------------------------------- */

static int subject_check(const prediction *p, char *why, size_t why_bytes)
{
    const kvb_size_subject *s = p->subject;
    const kvb_cache_options *o = &s->options;
    size_t a = 0;
    while (a < ACCOUNTS && accounts[a].cache != s->cache)
        a++;
    if (a == ACCOUNTS) {
        snprintf(why, why_bytes, "no account of what cache %s allocates", s->cache->name);
        return -ENOTSUP;
    }
    int error = kvb_model_check(&s->model, why, why_bytes);
    if (error)
        return error;
    if (s->cache->serves && !s->cache->serves(&s->model, why, why_bytes))
        return -ENOTSUP;
    if (!o->capacity || !o->seq_capacity || !o->min_chunk || !o->max_seqs || o->max_seqs > KVB_MAX_SEQS ||
        pool_cells(p, &s->model.groups[0]) > UINT32_MAX) {
        snprintf(why, why_bytes, "%u cells, %u sequences of up to %u tokens: not what a cache can number", o->capacity,
                 o->max_seqs, o->seq_capacity);
        return -EINVAL;
    }
    for (uint32_t g = 0; g < s->model.n_groups; g++) {
        const kvb_group *group = &s->model.groups[g];
        if ((o->k_pool->supports && !o->k_pool->supports(o->k_pool, group->k_dim, why, why_bytes)) ||
            (!group->latent && o->v_pool->supports && !o->v_pool->supports(o->v_pool, group->v_dim, why, why_bytes)))
            return -ENOTSUP;
    }
    return 0;
}

static int step_check(const kvb_size_subject *s, const kvb_size_step *step, uint64_t tokens, char *why,
                      size_t why_bytes)
{
    const kvb_cache_type *c = s->cache;
    uint64_t more =
        step->drafts ? (uint64_t)step->times + step->drafts - 1 : (uint64_t)step->n_seqs * step->tokens * step->times;
    if ((step->first || step->n_seqs > 1) && !(c->flags & KVB_CACHE_SEQ))
        snprintf(why, why_bytes, "cache %s holds one sequence", c->name);
    else if (step->drafts && (!(c->flags & KVB_CACHE_TREE) || c->flags & KVB_CACHE_FORGETS || step->n_seqs > 1))
        snprintf(why, why_bytes, "cache %s takes no drafts here", c->name);
    else if (!step->n_seqs || !step->tokens || !step->times || step->drafts > KVB_SIZE_DRAFTS ||
             step->first >= KVB_SIZE_SEQUENCES || step->n_seqs > KVB_SIZE_SEQUENCES - step->first ||
             ((step->n_seqs > 1 || step->drafts) && step->tokens > 1))
        snprintf(why, why_bytes, "%u tokens of %u sequences from %u on, %u times: not a step", step->tokens,
                 step->n_seqs, step->first, step->times);
    else if (more > s->options.capacity || tokens > s->options.capacity - more)
        snprintf(why, why_bytes, "%llu tokens and more are above the capacity of %u cells", (unsigned long long)more,
                 s->options.capacity);
    else
        return 0;
    return -EINVAL;
}

int kvb_size_predict(const kvb_size_subject *s, const kvb_size_step *steps, size_t n, uint64_t *bytes, char *why,
                     size_t why_bytes)
{
    prediction *p = calloc(1, sizeof *p);
    int error = p ? 0 : -ENOMEM;
    if (p)
        p->subject = s;
    if (!error)
        error = subject_check(p, why, why_bytes);
    if (!error)
        error = add_up(p, &bytes[0]);
    for (size_t i = 0; !error && i < n; i++) {
        error = step_check(s, &steps[i], p->tokens, why, why_bytes);
        for (uint32_t t = 0; t < steps[i].times && !error; t++)
            error = step_take(p, &steps[i]);
        if (!error)
            error = add_up(p, &bytes[i + 1]);
    }
    if (error == -EOVERFLOW)
        snprintf(why, why_bytes, "more bytes than 64 bits hold");
    if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory for a prediction");
    for (uint32_t g = 0; p && g < KVB_MODEL_GROUPS; g++)
        for (uint32_t q = 0; q < KVB_SIZE_SEQUENCES; q++)
            free(p->group[g].held[q].at);
    for (uint32_t q = 0; p && q < KVB_SIZE_SEQUENCES; q++)
        free(p->ordinals[q].at);
    free(p ? p->scratch.at : NULL);
    free(p);
    return error;
}
