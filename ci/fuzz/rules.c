/* SPDX-License-Identifier: Apache-2.0 */
/* Tries a call on a copy of the account and compares the result with the limits. A table has a function for each kind
 * of call. */
#include "ci/fuzz/rules.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NO_SPACE = 1, NO_REACH = 2, NO_CALL = -EPROTO }; /* NO_CALL: no trace can hold the call, but caches answer it */

typedef rules_account account;
typedef struct rules_seq sequence;

/* ---- what is held ------------------------------------------------------------------------------------------------ */

static uint32_t length(const sequence *s)
{
    return s->n ? s->token[s->n - 1].pos + 1 : 0;
}

static uint32_t pending(const account *a, uint32_t seq)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_nodes; i++)
        n += a->node[i].seq == seq;
    return n;
}

/* The sequence's node of that number, or NULL. */
static const struct rules_node *node_at(const account *a, uint32_t seq, int32_t number)
{
    for (uint32_t i = 0; i < a->n_nodes && number >= 0; i++)
        if (a->node[i].seq == seq && number-- == 0)
            return &a->node[i];
    return NULL;
}

static void sequence_copy(sequence *to, const sequence *from)
{
    memcpy(to, from, offsetof(sequence, token) + from->n * sizeof *from->token);
}

static void account_copy(account *to, const account *from, uint32_t n_ids)
{
    for (uint32_t s = 0; s < n_ids; s++)
        sequence_copy(&to->seq[s], &from->seq[s]);
    memcpy(&to->moved, &from->moved,
           offsetof(account, node) - offsetof(account, moved) + from->n_nodes * sizeof *from->node);
}

static bool scans(const rules *r, uint32_t g)
{
    return kvb_group_scans(&r->model->groups[g]);
}

bool kvb_rules_attend(const rules *r)
{
    return !scans(r, 0) || r->model->n_groups > 1;
}

static bool is_paged(const rules *r)
{
    return r->type == &kvb_cache_paged || r->type == &kvb_cache_paged_prefix;
}

static bool is_shared(const rules *r)
{
    return r->type == &kvb_cache_shared_prefix;
}

/* ---- rows that are dropped --------------------------------------------------------------------------------------- */

static bool drops(const rules *r, uint32_t g)
{
    const kvb_group *group = &r->model->groups[g];
    return (r->type == &kvb_cache_window || r->type == &kvb_cache_paged) && (group->window || group->chunk);
}

/* Does a query at position p see position j <= p? */
static bool lets(const kvb_group *g, uint32_t p, uint32_t j)
{
    if (g->window > 0 && j + g->window <= p)
        return j < g->sinks;
    return g->chunk == 0 || j / g->chunk == p / g->chunk;
}

/* Drops each token, or page of tokens, that no query from position next - rollback on can see. */
static void tokens_drop(const rules *r, uint32_t g, sequence *s)
{
    const kvb_group *group = &r->model->groups[g];
    const uint32_t n = is_paged(r) ? r->page_cells : 1, next = length(s),
                   p = next > r->rollback ? next - r->rollback : 0;
    for (uint32_t i = 0; i < s->n && drops(r, g); i++) {
        bool unseen = true;
        for (uint32_t j = s->token[i].pos / n * n, end = j + n; j < end && unseen; j++)
            unseen = j < p && j >= group->sinks && !lets(group, p, j);
        s->token[i].gone |= (uint8_t)(unseen << g);
    }
}

static void all_drop(const rules *r, account *a)
{
    for (uint32_t s = 0; s < r->n_ids; s++)
        for (uint32_t g = 0; g < r->model->n_groups; g++)
            tokens_drop(r, g, &a->seq[s]);
}

/* Would the sequence's next query see a token that the group has dropped? */
static bool misses(const rules *r, uint32_t g, const sequence *s)
{
    bool missed = false;
    for (uint32_t i = 0; i < s->n; i++)
        missed |= s->token[i].gone >> g & 1 && lets(&r->model->groups[g], length(s), s->token[i].pos);
    return missed;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Where the sequence's tokens in a page keep its number, one after the other, then its nodes, which lie behind the
 * tokens. *cursor starts as 0. NULL: no more. */
static uint32_t *page_named(const rules *r, account *a, uint32_t g, uint32_t seq, uint32_t page, uint32_t *cursor)
{
    sequence *s = &a->seq[seq];
    for (; *cursor < s->n; ++*cursor)
        if (s->token[*cursor].pos / r->page_cells == page && !(s->token[*cursor].gone >> g & 1))
            return &s->token[(*cursor)++].page[g];
    for (uint32_t number = 0, i = 0; i < a->n_nodes; i++)
        if (a->node[i].seq == seq && s->n + number++ >= *cursor) {
            ++*cursor;
            if ((length(s) + number - 1) / r->page_cells == page)
                return &a->node[i].page[g];
        }
    return NULL;
}

/* The number of a sequence's page; 0: it has none there. */
static uint32_t page_of(const rules *r, account *a, uint32_t g, uint32_t seq, uint32_t page)
{
    uint32_t cursor = 0;
    const uint32_t *named = page_named(r, a, g, seq, page, &cursor);
    return named ? *named : 0;
}

/* The page that the sequence writes to: its own, or a new one if it has none or shares it. */
static uint32_t page_write(const rules *r, account *a, uint32_t g, uint32_t seq, uint32_t page)
{
    const uint32_t had = page_of(r, a, g, seq, page);
    bool own = had;
    for (uint32_t other = 0; other < r->n_ids && own; other++)
        own = other == seq || page_of(r, a, g, other, page) != had;
    if (own)
        return had;
    uint32_t cursor = 0, *named;
    a->pages++;
    while ((named = page_named(r, a, g, seq, page, &cursor)))
        *named = a->pages;
    return a->pages;
}

/* Number of pages in use. */
static uint32_t pages_live(const rules *r, const account *a, uint32_t g)
{
    static uint32_t counted[1 << 20], round; /* [page] the round in which it was counted last */
    uint32_t n = 0;
    assert(a->pages < sizeof counted / sizeof *counted);
    round++;
    for (uint32_t s = 0; s < r->n_ids; s++)
        for (uint32_t i = 0; i < a->seq[s].n; i++) {
            const uint32_t page = a->seq[s].token[i].page[g];
            if (a->seq[s].token[i].gone >> g & 1 || counted[page] == round)
                continue;
            counted[page] = round;
            n++;
        }
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        n += counted[a->node[i].page[g]] != round;
        counted[a->node[i].page[g]] = round;
    }
    return n;
}

/* Most pages that so many consecutive positions can lie in. */
static uint32_t pages_for(const rules *r, uint32_t positions)
{
    return positions ? (positions - 1 + r->page_cells - 1) / r->page_cells + 1 : 0;
}

/* Most pages in use. With limits: what each sequence keeps (all of its last page), and what a step can begin. */
static uint32_t pages_most(const rules *r, uint32_t g)
{
    const kvb_group *group = &r->model->groups[g];
    const uint32_t n = r->page_cells, all = (r->capacity + n - 1) / n + (n > 1 ? 2 * r->max_seqs : 0);
    uint32_t step = r->step ? r->step : r->capacity, pages = 0;
    for (uint32_t s = 0; s < r->max_seqs && drops(r, g); s++) {
        const uint32_t needed = (group->window ? group->window : group->chunk) - 1 + r->rollback;
        pages += (group->sinks + n - 1) / n + (needed ? pages_for(r, needed) : n > 1);
        pages += step > 0; /* the sequence's first token in the step begins a page */
        step -= step > 0;
    }
    pages += step / n;
    return drops(r, g) && pages < all ? pages : all;
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* The sequence gets n more tokens. The last state_depth + 1 states are kept; a cache that forgets makes all again. */
static void states_add(const rules *r, sequence *s, uint32_t n)
{
    const bool all = !kvb_model_scans(r->model) || r->type->flags & KVB_CACHE_FORGETS;
    const uint32_t most = all ? RULES_LEN : r->state_depth + 1;
    s->states = s->states + n < most ? s->states + n : most;
}

/* n tokens of src at p0 .. p1-1 are copied to dst: src must have a state where they end. */
static unsigned states_join(const rules *r, const sequence *src, sequence *dst, uint32_t p0, uint32_t p1, uint32_t n)
{
    uint32_t below = 0, behind = 0;
    for (uint32_t i = 0; i < src->n; i++) {
        below += src->token[i].pos < p0;
        behind += src->token[i].pos >= p1;
    }
    bool begins = below == dst->n;
    for (uint32_t i = 0; i < dst->n && begins; i++)
        begins = dst->token[i].row == src->token[i].row && dst->token[i].pos == src->token[i].pos;
    if (!begins || src->states <= behind)
        return NO_REACH;
    sequence to = {.states = src->states - behind};
    if (to.states >= n) {
        to.states = dst->n ? dst->states : 0;
        states_add(r, &to, n);
    }
    dst->states = !dst->n && src->states - behind < to.states ? src->states - behind : to.states;
    return 0;
}

/* ---- fronts: cache shared-prefix --------------------------------------------------------------------------------- */

/* Cells of all tails, and of each front once. */
static uint32_t fronts_live(const rules *r, const account *a)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < r->n_ids; s++) {
        bool first = a->seq[s].front;
        for (uint32_t before = 0; before < s; before++)
            first = first && a->seq[before].front != a->seq[s].front;
        n += first ? a->seq[s].front_cells : 0;
        for (uint32_t i = 0; i < a->seq[s].n; i++)
            n += !a->seq[s].token[i].frozen;
    }
    return n;
}

static uint32_t tails_live(const rules *r, const account *a)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < r->n_ids; s++)
        for (uint32_t i = 0; i < a->seq[s].n; i++)
            n += !a->seq[s].token[i].frozen;
    return n;
}

/* n tokens of src at p0 .. p1-1 are copied to dst: they become a front, unless either sequence has one. */
static unsigned fronts_join(account *a, sequence *src, sequence *dst, uint32_t p0, uint32_t p1, uint32_t n)
{
    const uint32_t front = src->front, other = dst->front;
    uint32_t tail = 0;
    for (uint32_t i = 0; i < src->n; i++)
        tail += !src->token[i].frozen && src->token[i].pos >= p0 && src->token[i].pos < p1;
    if (tail < n && other && other != front)
        return NO_REACH;
    if (!front && !other) {
        for (uint32_t i = 0; i < src->n; i++)
            src->token[i].frozen = src->token[i].pos >= p0 && src->token[i].pos < p1;
        src->front = ++a->fronts;
        src->front_cells = n;
    }
    if (!other && (!front || tail < n)) {
        dst->front = src->front;
        dst->front_cells = src->front_cells;
    }
    return 0;
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* Cells in use. A shared row counts once, in cache slab once per sequence. Scans: states kept, and those of nodes. */
static uint32_t live(const rules *r, const account *a, uint32_t g)
{
    static uint64_t counted[16 * RULES_TOKENS], round;
    const uint64_t rows = sizeof counted / sizeof *counted;
    uint32_t n = a->n_nodes;
    if (!scans(r, g) && is_paged(r))
        return pages_live(r, a, g) * r->page_cells;
    if (!scans(r, g) && is_shared(r))
        return fronts_live(r, a);
    round++;
    for (uint32_t s = 0; s < r->n_ids; s++) {
        const sequence *q = &a->seq[s];
        for (uint32_t i = scans(r, g) && q->n > q->states ? q->n - q->states : 0; i < q->n; i++) {
            uint64_t *met = &counted[q->token[i].row % rows];
            if (q->token[i].gone >> g & 1 || (*met == round && (scans(r, g) || r->type != &kvb_cache_slab)))
                continue;
            *met = round;
            n++;
        }
    }
    return n;
}

uint32_t kvb_rules_live(const rules *r, uint32_t g)
{
    return live(r, r->now, g);
}

/* Cache window: what each sequence keeps, and one step. */
uint32_t kvb_rules_cells(const rules *r, uint32_t g)
{
    const kvb_group *group = &r->model->groups[g];
    const uint32_t kept = (group->window ? group->window : group->chunk) - 1 + group->sinks + r->rollback,
                   cells = r->max_seqs * kept + (r->step ? r->step : r->capacity);
    if (scans(r, g))
        return r->max_seqs * (1 + r->state_depth) + (r->type->flags & KVB_CACHE_TREE ? r->capacity : 0);
    return is_paged(r) ? pages_most(r, g) * r->page_cells : drops(r, g) && cells < r->capacity ? cells : r->capacity;
}

/* The rules that an account breaks. */
static unsigned limits(const rules *r, const account *a)
{
    uint32_t alive = 0;
    unsigned broken = 0;
    for (uint32_t s = 0; s < r->n_ids; s++) {
        alive += a->seq[s].n || (a->n_nodes && pending(a, s));
        broken |= length(&a->seq[s]) > r->seq_capacity ? NO_SPACE : 0;
        for (uint32_t g = 0; g < r->model->n_groups; g++)
            broken |= misses(r, g, &a->seq[s]) ? NO_REACH : 0;
    }
    for (uint32_t g = 0; g < r->model->n_groups; g++)
        broken |= (scans(r, g) ? a->n_nodes > r->capacity : live(r, a, g) > kvb_rules_cells(r, g)) ? NO_SPACE : 0;
    return alive > r->max_seqs ? broken | NO_SPACE : broken;
}

/* ---- what calls do; they return the rules that they break besides the limits ------------------------------------- */

static unsigned step_do(rules *r, account *a, const kvb_event *e)
{
    unsigned broken = 0;
    all_drop(r, a);
    for (uint32_t i = 0, front = 0; i < e->n; i++) {
        sequence *s = &a->seq[e->seq[i]];
        rules_token t = {.ordinal = r->next + i, .row = r->next + i, .pos = length(s)};
        if (s->n == RULES_LEN)
            return NO_SPACE;
        for (uint32_t g = 0; g < r->model->n_groups && is_paged(r); g++)
            t.page[g] = page_write(r, a, g, e->seq[i], t.pos / r->page_cells);
        states_add(r, s, 1);
        s->token[s->n++] = t;
        broken |= front && s->front && s->front != front ? NO_REACH : 0; /* a kernel's call reads one */
        front = s->front ? s->front : front;
    }
    return broken;
}

static unsigned propose_do(rules *r, account *a, const kvb_event *e)
{
    all_drop(r, a);
    for (uint32_t i = 0; i < e->n; i++) {
        struct rules_node node = {.ordinal = r->next + i, .seq = e->seq[i], .parent = e->parents[i]};
        const uint32_t place = length(&a->seq[node.seq]) + pending(a, node.seq);
        if (a->n_nodes == RULES_LEN)
            return NO_SPACE;
        for (uint32_t g = 0; g < r->model->n_groups && is_paged(r); g++)
            node.page[g] = page_write(r, a, g, node.seq, place / r->page_cells);
        a->node[a->n_nodes++] = node;
    }
    return 0;
}

static unsigned commit_do(rules *r, account *a, const kvb_event *e)
{
    sequence *s = &a->seq[e->src];
    rules_token joined[RULES_LEN];
    uint32_t left = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        const uint64_t ordinal = node_at(a, e->src, (int32_t)e->accepted[i])->ordinal;
        joined[i] = (rules_token){.ordinal = ordinal, .row = ordinal, .pos = length(s) + i};
        for (uint32_t g = 0; g < r->model->n_groups && is_paged(r); g++)
            joined[i].page[g] = page_of(r, a, g, e->src, joined[i].pos / r->page_cells);
    }
    for (uint32_t i = 0; i < a->n_nodes; i++)
        if (a->node[i].seq != e->src)
            a->node[left++] = a->node[i];
    a->n_nodes = left;
    if (s->n + e->n > RULES_LEN)
        return NO_SPACE;
    states_add(r, s, e->n);
    memcpy(s->token + s->n, joined, e->n * sizeof *joined);
    s->n += e->n;
    return 0;
}

static unsigned copy_do(rules *r, account *a, const kvb_event *e)
{
    sequence *src = &a->seq[e->src], *dst = &a->seq[e->dst];
    uint32_t n = 0;
    for (uint32_t i = 0; i < src->n; i++)
        n += src->token[i].pos >= e->p0 && src->token[i].pos < e->p1;
    if (!n)
        return 0;
    unsigned broken = kvb_model_scans(r->model) ? states_join(r, src, dst, e->p0, e->p1, n) : 0;
    if (is_shared(r) && kvb_rules_attend(r))
        broken |= fronts_join(a, src, dst, e->p0, e->p1, n);
    for (uint32_t i = 0; i < src->n; i++) {
        rules_token t = src->token[i];
        if (t.pos < e->p0 || t.pos >= e->p1)
            continue;
        for (uint32_t g = 0; g < r->model->n_groups && is_paged(r); g++) { /* into a page that dst has, or src's */
            const uint32_t page = t.pos / r->page_cells, had = page_of(r, a, g, e->dst, page);
            if (had && had != t.page[g] && !(t.gone >> g & 1))
                t.page[g] = page_write(r, a, g, e->dst, page);
        }
        if (dst->n == RULES_LEN)
            return NO_SPACE;
        uint32_t at = dst->n++;
        for (; at > 0 && dst->token[at - 1].pos > t.pos; at--)
            dst->token[at] = dst->token[at - 1];
        dst->token[at] = t;
    }
    return broken;
}

static unsigned remove_do(rules *r, account *a, const kvb_event *e)
{
    sequence *s = &a->seq[e->src];
    const bool inside = s->n && s->token[s->n - 1].pos >= e->p1;
    const uint32_t had = s->n;
    s->n = 0;
    for (uint32_t i = 0; i < had; i++)
        if (s->token[i].pos < e->p0 || s->token[i].pos >= e->p1)
            s->token[s->n++] = s->token[i];
    const uint32_t gone = had - s->n;
    const bool states = kvb_model_scans(r->model) && gone && s->n;
    if (states && (inside || s->states <= gone))
        return NO_REACH;
    s->states -= states ? gone : 0;
    return 0;
}

static unsigned rewind_do(rules *r, account *a, const kvb_event *e)
{
    return remove_do(r, a, &(kvb_event){.p0 = e->len, .p1 = KVB_POS_END});
}

static unsigned keep_do(rules *r, account *a, const kvb_event *e)
{
    for (uint32_t s = 0; s < r->n_ids; s++)
        a->seq[s].n = s == e->src ? a->seq[s].n : 0;
    return 0;
}

static unsigned clear_do(rules *r, account *a, const kvb_event *e)
{
    (void)e;
    a->n_nodes = 0;
    return keep_do(r, a, &(kvb_event){.src = UINT32_MAX});
}

static unsigned reorder_do(rules *r, account *a, const kvb_event *e)
{
    for (uint32_t i = 0; i < e->n; i++)
        sequence_copy(&a->seq[e->dsts[i]], &r->now->seq[e->srcs[i]]);
    return 0;
}

static unsigned shift_do(rules *r, account *a, const kvb_event *e)
{
    sequence *s = &a->seq[e->src];
    (void)r;
    for (uint32_t i = 0; i < s->n; i++) {
        rules_token *t = &s->token[i];
        if (!kvb_event_moves(e) || t->pos < e->p0 || t->pos >= e->p1)
            continue;
        t->pos = (uint32_t)kvb_event_moved(e, t->pos);
        t->row = RULES_TOKENS + a->moved++; /* a saved sequence may hold the old row */
    }
    return 0;
}

/* First drops tokens that no query can see. A cache needs a free cell to exchange rows, unless cells are positions. */
static unsigned defrag_do(rules *r, account *a, const kvb_event *e)
{
    (void)e;
    if (r->type != &kvb_cache_seq && r->type != &kvb_cache_window && !is_shared(r))
        return 0;
    all_drop(r, a);
    for (uint32_t g = 0; g < r->model->n_groups; g++)
        if (!scans(r, g) && (is_shared(r) ? tails_live(r, a) : live(r, a, g)) == kvb_rules_cells(r, g))
            return NO_SPACE;
    return 0;
}

static unsigned load_do(rules *r, account *a, const kvb_event *e)
{
    const struct rules_slot *slot = &r->slot[e->slot];
    for (uint32_t s = 0; s < r->n_ids && slot->all; s++)
        sequence_copy(&a->seq[s], &slot->held.seq[s]);
    if (slot->all)
        return 0;
    sequence *s = &a->seq[e->src];
    sequence_copy(s, &slot->held.seq[0]);
    for (uint32_t g = 0; g < r->model->n_groups; g++) {
        tokens_drop(r, g, s);
        for (uint32_t i = 0; i < s->n; i++)
            s->token[i].page[g] = 0;
        for (uint32_t i = 0; i < s->n && is_paged(r); i++)
            if (!(s->token[i].gone >> g & 1))
                page_write(r, a, g, e->src, s->token[i].pos / r->page_cells);
    }
    return 0;
}

static const struct {
    kvb_event_kind event;
    uint32_t flags; /* the cache must have one of these; 0: every cache has the call */
    unsigned (*apply)(rules *r, account *a, const kvb_event *e);
} kinds[CALLS] = {
    [EXTEND] = {KVB_EVENT_STEP, 0, step_do},
    [STEP] = {KVB_EVENT_STEP, 0, step_do},
    [COPY] = {KVB_EVENT_SEQ_CP, KVB_CACHE_SEQ, copy_do},
    [REMOVE] = {KVB_EVENT_SEQ_RM, KVB_CACHE_SEQ, remove_do},
    [KEEP] = {KVB_EVENT_SEQ_KEEP, KVB_CACHE_SEQ, keep_do},
    [CLEAR] = {KVB_EVENT_CLEAR, 0, clear_do},
    [PROPOSE] = {KVB_EVENT_PROPOSE, KVB_CACHE_TREE, propose_do},
    [COMMIT] = {KVB_EVENT_COMMIT, KVB_CACHE_TREE, commit_do},
    [REWIND] = {KVB_EVENT_REWIND, KVB_CACHE_SEQ | KVB_CACHE_REWIND, rewind_do},
    [REORDER] = {KVB_EVENT_REORDER, KVB_CACHE_REORDER, reorder_do},
    [SHIFT] = {KVB_EVENT_SEQ_ADD, KVB_CACHE_SHIFT, shift_do},
    [DEFRAG] = {KVB_EVENT_DEFRAG, 0, defrag_do},
    [SAVE] = {KVB_EVENT_SAVE, KVB_CACHE_SAVES, NULL},
    [LOAD] = {KVB_EVENT_LOAD, KVB_CACHE_SAVES, load_do},
    [MATCH] = {KVB_EVENT_PREFILL, KVB_CACHE_PREFIX, NULL},
};

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static bool has_list(const call *c)
{
    return c->kind == STEP || c->kind == PROPOSE || c->kind == REORDER;
}

/* Does the cache have the call, and the sequences that the call names? */
static int face_check(const rules *r, const call *c)
{
    const bool seqs = r->type->flags & KVB_CACHE_SEQ, saves = c->kind == SAVE || c->kind == LOAD;
    bool others = saves && c->src && c->src != KVB_SEQ_ALL;
    for (uint32_t i = 0; i < c->n && (c->kind == STEP || c->kind == PROPOSE); i++)
        others = others || c->ids[i] != 0;
    others = others || (c->kind == COMMIT && c->src);
    return (kinds[c->kind].flags && !(r->type->flags & kinds[c->kind].flags)) || (others && !seqs) ? -ENOTSUP : 0;
}

/* Do the call's numbers lie in their ranges? */
static int ranges_check(const rules *r, const call *c)
{
    const bool brings = c->kind == EXTEND || c->kind == STEP || c->kind == PROPOSE || c->kind == MATCH,
               ranged = c->kind == COPY || c->kind == REMOVE || c->kind == SHIFT,
               names = ranged || c->kind == KEEP || c->kind == COMMIT || c->kind == MATCH ||
                       ((c->kind == SAVE || c->kind == LOAD) && c->src != KVB_SEQ_ALL);
    bool wrong = (brings && !c->n) || (ranged && c->p0 > c->p1) || (names && c->src >= r->n_ids) ||
                 (c->kind == COPY && c->dst >= r->n_ids) || (c->kind == SHIFT && c->divides && !c->divisor);
    for (uint32_t i = 0; i < c->n && has_list(c); i++)
        wrong = wrong || c->ids[i] >= r->n_ids || (c->kind == REORDER && c->srcs[i] >= r->n_ids) ||
                (c->kind == PROPOSE && c->parents[i] < -1);
    return wrong ? -EINVAL : 0;
}

/* The call as an event, which points into *c. ids, pos [RULES_LEN] receive each token's sequence and position. */
static kvb_event event_of(const rules *r, call *c, uint32_t n, uint32_t *ids, uint32_t *pos)
{
    const bool tokens = c->kind == EXTEND || c->kind == STEP || c->kind == PROPOSE || c->kind == MATCH;
    uint32_t adds[RULES_SEQS] = {0};
    kvb_event e = {.kind = c->kind == SHIFT && c->divides ? KVB_EVENT_SEQ_DIV : kinds[c->kind].event,
                   .n = tokens || c->kind == COMMIT || c->kind == REORDER ? n : 0,
                   .first = r->next,
                   .pos = pos,
                   .seq = ids,
                   .tok = c->known ? c->toks : NULL,
                   .extra_key = c->key,
                   .accepted = c->ids,
                   .dsts = c->ids,
                   .srcs = c->srcs,
                   .parents = c->parents,
                   .src = c->kind == REWIND ? 0 : c->src,
                   .dst = c->dst,
                   .p0 = c->p0,
                   .p1 = c->p1,
                   .delta = c->delta,
                   .divisor = c->divides ? c->divisor : 0,
                   .len = c->p0,
                   .slot = c->slot};
    for (uint32_t i = 0; i < n && tokens; i++) {
        ids[i] = c->kind == MATCH ? c->src : c->kind == EXTEND ? 0 : c->ids[i];
        pos[i] = length(&r->now->seq[ids[i]]) + adds[ids[i]]++;
    }
    return e;
}

/* The answer that does not depend on the type of cache. */
static int legal_check(rules *r, const call *c, const kvb_event *e)
{
    char why[200];
    kvb_event asked = *e;
    const bool saves = c->kind == SAVE || c->kind == LOAD;
    const int error = kvb_history_check(r->history, &asked, 0, why, sizeof why);
    if (saves && c->src != KVB_SEQ_ALL && r->residual && kvb_rules_attend(r))
        return r->now->n_nodes || (error == -EINVAL && c->kind == SAVE) ? -EINVAL : -ENOTSUP;
    if (error == NO_CALL && c->kind == LOAD)
        return -ENOENT;
    return error == -EINVAL || (c->kind == REWIND && c->p0 > length(&r->now->seq[0])) ? -EINVAL : 0;
}

int kvb_rules_answer(rules *r, const call *c, int got)
{
    static uint32_t ids[RULES_LEN], pos[RULES_LEN];
    call asked = *c;
    int error = face_check(r, c);
    if (!error && c->kind == DEFRAG && r->residual)
        error = -ENOTSUP;
    error = error ? error : ranges_check(r, c);
    if (error)
        return error;
    const kvb_event e = event_of(r, &asked, c->n, ids, pos);
    error = legal_check(r, c, &e);
    if (error)
        return error;
    account_copy(r->after, r->now, r->n_ids);
    unsigned broken = kinds[c->kind].apply ? kinds[c->kind].apply(r, r->after, &e) : 0;
    broken |= limits(r, r->after);
    return !broken ? 0 : broken & NO_REACH && got != -ENOSPC ? -ENOTSUP : broken & NO_SPACE ? -ENOSPC : -ENOTSUP;
}

bool kvb_rules_room(rules *r, const call *c)
{
    const int error = kvb_rules_answer(r, c, -ENOSPC);
    return error == 0 || (error == -ENOTSUP && !face_check(r, c));
}

/* A sequence without frozen tokens has no front. One without tokens has no states. */
static void settle(const rules *r, account *a)
{
    for (uint32_t s = 0; s < r->n_ids; s++) {
        sequence *q = &a->seq[s];
        bool reads = false;
        for (uint32_t i = 0; i < q->n; i++)
            reads = reads || q->token[i].frozen;
        q->front = reads ? q->front : 0;
        q->states = q->n ? q->states : 0;
    }
}

/* Records the token ids of a step that was taken. */
static void words_know(rules *r, const kvb_event *e)
{
    for (uint32_t i = 0; i < e->n; i++) {
        const uint64_t o = e->first + i;
        const sequence *s = &r->now->seq[e->seq[i]];
        uint32_t at = 0;
        while (s->token[at].ordinal != o)
            at++;
        const struct rules_word *before = at ? &r->word[s->token[at - 1].ordinal] : NULL;
        const bool whole = e->tok && at == e->pos[i] && (!before || before->whole);
        r->fed_only[e->seq[i]] |= at == 0;
        r->word[o] =
            (struct rules_word){whole, e->tok ? e->tok[i] : 0, whole && before ? before->key : e->extra_key, {0}};
        memcpy(r->word[o].page, s->token[at].page, sizeof r->word[o].page);
    }
}

/* Makes the tokens of a call that was taken the step in force. */
static void tokens_take(rules *r, const kvb_event *e)
{
    r->first = r->next;
    r->n_new = e->n;
    r->next += e->n;
    r->valid = true;
    r->tree = e->kind == KVB_EVENT_PROPOSE;
    for (uint32_t i = 0; i < e->n && r->tree; i++) {
        const struct rules_node *node = NULL;
        for (uint32_t j = 0; j < r->now->n_nodes; j++)
            node = r->now->node[j].ordinal == e->first + i ? &r->now->node[j] : node;
        for (e->pos[i] = length(&r->now->seq[node->seq]); node->parent >= 0; e->pos[i]++)
            node = node_at(r->now, node->seq, node->parent);
    }
}

const kvb_event *kvb_rules_take(rules *r, const call *c)
{
    const bool saves = c->kind == SAVE;
    kvb_event *e = saves ? &r->saving : &r->event;
    call *of = saves ? &r->save : &r->last;
    *of = *c;
    *e = event_of(r, of, c->n, saves ? NULL : r->ids, r->pos + r->next);
    account *was = r->now;
    r->now = r->after;
    r->after = was;
    settle(r, r->now);
    if (saves) {
        struct rules_slot *slot = &r->slot[c->slot];
        slot->all = c->src == KVB_SEQ_ALL;
        if (slot->all)
            account_copy(&slot->held, r->now, r->n_ids);
        else
            sequence_copy(&slot->held.seq[0], &r->now->seq[c->src]);
    } else {
        r->valid = false;
    }
    if (e->kind == KVB_EVENT_STEP || e->kind == KVB_EVENT_PROPOSE)
        tokens_take(r, e);
    if (e->kind == KVB_EVENT_STEP && r->type->flags & KVB_CACHE_PREFIX)
        words_know(r, e);
    for (uint32_t s = 0; s < RULES_SEQS; s++)
        if (c->kind == REORDER || (c->kind == COPY && c->dst == s) ||
            (c->kind == LOAD && (c->src == s || c->src == KVB_SEQ_ALL)))
            r->fed_only[s] = false;
    const int error = kvb_history_apply(r->history, e);
    assert(!error);
    (void)error;
    return e;
}

int kvb_rules_call(rules *r, const call *c)
{
    const int error = kvb_rules_answer(r, c, 0);
    if (!error)
        kvb_rules_take(r, c);
    return error;
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* Tokens that must be found, at least: whole pages, never the whole prompt, of a sequence that was only fed and was the
 * first to hold them. */
static uint32_t found_least(const rules *r, const call *c)
{
    const uint32_t offered = (c->n - 1) / r->page_cells * r->page_cells;
    uint32_t least = 0;
    for (uint32_t s = 0; s < r->n_ids && !kvb_model_scans(r->model); s++) { /* no page of rows brings states */
        const sequence *q = &r->now->seq[s];
        uint32_t i = 0;
        for (; i < offered && i < q->n && r->fed_only[s]; i++) {
            const uint64_t o = q->token[i].ordinal;
            const struct rules_word *word = &r->word[o];
            if (!word->whole || q->token[i].pos != i || r->pos[o] != i || word->tok != c->toks[i] ||
                word->key != c->key || kvb_history_token(r->history, o) != o)
                break;
        }
        i = i / r->page_cells * r->page_cells;
        least = least > i ? least : i;
    }
    return least;
}

int kvb_rules_match(rules *r, const call *c, int got, uint32_t found, const uint64_t *ordinals, bool *wrong)
{
    char why[200];
    uint32_t alive = 0;
    *wrong = false;
    if (ranges_check(r, c) || pending(r->now, c->src) || r->now->seq[c->src].n)
        return -EINVAL;
    for (uint32_t s = 0; s < r->n_ids; s++)
        alive += r->now->seq[s].n || pending(r->now, s);
    const uint32_t least = found_least(r, c);
    if (alive == r->max_seqs && (least || found || got == -ENOSPC))
        return -ENOSPC;
    if (got)
        return 0;
    r->last = *c;
    r->event = event_of(r, &r->last, found, r->ids, r->pos + r->next);
    if (kvb_history_apply(r->history, &r->event))
        abort();
    *wrong = found < least || found >= c->n || found % r->page_cells;
    sequence *s = &r->now->seq[c->src];
    for (uint32_t i = 0; i < found && !*wrong; i++) {
        const uint64_t o = ordinals[i];
        *wrong = !kvb_history_same_prefix(r->history, o, r->next + i, why, sizeof why);
        rules_token t = {.ordinal = o, .row = o, .pos = i};
        if (!*wrong)
            memcpy(t.page, r->word[ordinals[i / r->page_cells * r->page_cells + r->page_cells - 1]].page,
                   sizeof t.page);
        s->token[s->n++] = t;
        r->word[r->next + i] = (struct rules_word){0};
    }
    r->fed_only[c->src] = true;
    r->next += found;
    r->valid = false;
    return 0;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

int kvb_rules_open(rules *r)
{
    r->now = &r->accounts[0];
    r->after = &r->accounts[1];
    for (uint32_t s = 0; s < RULES_SEQS; s++)
        memset(&r->now->seq[s], 0, offsetof(sequence, token));
    r->now->n_nodes = r->now->fronts = r->now->pages = 0;
    r->next = 0;
    r->valid = false;
    memset(r->fed_only, 0, sizeof r->fed_only);
    const int error = kvb_history_open(RULES_TOKENS, &r->history);
    if (!error && r->type->flags & KVB_CACHE_PREFIX)
        kvb_history_know_prefixes(r->history);
    return error;
}

void kvb_rules_close(rules *r)
{
    kvb_history_free(r->history);
    r->history = NULL;
}

uint32_t kvb_rules_length(const rules *r, uint32_t seq)
{
    return length(&r->now->seq[seq]);
}

uint32_t kvb_rules_pending(const rules *r, uint32_t seq)
{
    return pending(r->now, seq);
}

uint32_t kvb_rules_path(const rules *r, uint64_t ordinal, rules_token *path)
{
    const account *a = r->now;
    const struct rules_node *node = NULL;
    const bool own = !r->tree && ordinal >= r->first;
    uint32_t seq = own ? r->ids[ordinal - r->first] : RULES_SEQS, n = 0;
    for (uint32_t j = 0; j < r->n_new && !own; j++) {
        for (uint32_t i = 0; i < a->n_nodes && r->tree; i++)
            node = a->node[i].seq == r->ids[j] && a->node[i].ordinal == ordinal ? &a->node[i] : node;
        for (uint32_t i = 0; i < a->seq[r->ids[j]].n; i++)
            seq = a->seq[r->ids[j]].token[i].ordinal == ordinal && r->ids[j] < seq ? r->ids[j] : seq;
    }
    seq = node ? node->seq : seq;
    for (bool ends = seq == RULES_SEQS; !ends && n < a->seq[seq].n; n++) {
        path[n] = a->seq[seq].token[n];
        ends = !node && path[n].ordinal == ordinal;
    }
    const uint32_t end = node ? n + r->pos[ordinal] - length(&a->seq[seq]) + 1 : n;
    for (uint32_t at = end; node; node = node_at(a, seq, node->parent))
        path[--at] = (rules_token){.ordinal = node->ordinal, .row = node->ordinal, .pos = r->pos[node->ordinal]};
    return end;
}

static int ordinals_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint32_t kvb_rules_visible(const rules *r, const kvb_group *group, uint64_t ordinal, uint64_t *want)
{
    rules_token path[RULES_LEN];
    uint32_t n = 0;
    for (uint32_t i = 0, all = kvb_rules_path(r, ordinal, path); i < all; i++)
        if (lets(group, r->pos[ordinal], path[i].pos))
            want[n++] = path[i].ordinal;
    qsort(want, n, sizeof *want, ordinals_compare);
    return n;
}
