/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of draft trees in pages. Node i of a sequence takes the place of position length + i: behind the sequence, in
 * its own pages. A commit copies the rows of the accepted path down to the committed end, and pages in which nothing is
 * left are free at once.
 */
#include "caches/stores/paged.h"

static uint32_t node_cell(const paged_store *p, uint32_t seq, uint32_t length, uint32_t number)
{
    const uint32_t n = page_cells(&p->store), slot = length + number;
    return page_at(p, seq, slot / n) * n + slot % n;
}

/* Where a sequence's nodes lie, by their places in the account. */
static void node_cells_find(paged_store *p, uint32_t seq)
{
    const kvb_account *a = p->store.account;
    for (uint32_t i = 0; i < a->n_nodes; i++)
        if (a->node[i].seq == seq)
            p->node_cells[i] = node_cell(p, seq, kvb_spans_next(&a->seq[seq]), a->node[i].number);
}

int kvb_paged_propose_prepare(paged_store *p, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_store *s = &p->store;
    const kvb_account *a = s->account;
    const uint32_t before = a->n_nodes - feed->n;
    /* A commit moves no more rows than are pending, and keeps no more: with room for them now, it cannot fail. */
    int error = kvb_grow(s->allocator, &s->moves, &s->moves_room, s->n_moves + (size_t)a->n_nodes);
    if (!error)
        error = kvb_grow(s->allocator, &p->node_cells, &p->node_cells_room, a->n_nodes);
    for (uint32_t i = 0; i < a->n_changed && p->kept && !error; i++)
        error = kvb_spans_reserve(&p->kept[a->changed[i]], s->allocator, a->pending[a->changed[i]] + (size_t)1);
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        const uint32_t seq = feed->seqs[i], length = kvb_spans_next(&a->seq[seq]), number = a->node[before + i].number;
        error = kvb_paged_own(p, seq, (length + number) / page_cells(s), length);
        if (!error)
            plan->cells[i] = node_cell(p, seq, length, number);
    }
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        const uint32_t seq = feed->seqs[i];
        if (i == 0 || seq != feed->seqs[i - 1]) {
            node_cells_find(p, seq);
            error = kvb_paged_cells(p, seq);
        }
        if (!error)
            error =
                kvb_plan_attend_node(plan, s->group, a, &p->cells, 0, p->node_cells, before + i, feed->positions[i]);
    }
    return error;
}

int kvb_paged_commit_prepare(paged_store *p, const kvb_change *change)
{
    const uint32_t seq = change->src, length = kvb_spans_next(&p->store.account->seq[seq]);
    int error = 0;
    for (uint32_t i = 0; i < change->n && !error; i++) /* numbers ascend: none is copied over before it is copied */
        if (change->accepted[i] != i)
            error =
                kvb_store_move(&p->store, node_cell(p, seq, length, change->accepted[i]), node_cell(p, seq, length, i));
    return error;
}

void kvb_paged_entries_drop(paged_store *p, uint32_t seq, uint32_t p0, uint32_t p1)
{
    const kvb_spans *held = kvb_paged_held(p, seq);
    const uint32_t n = page_cells(&p->store);
    uint64_t entry = ((uint64_t)p1 + n - 1) / n;
    for (entry = entry < p->tables[seq].room ? entry : p->tables[seq].room;
         entry-- > p0 / n;) { /* the last one first */
        uint32_t left = 0;
        for (size_t i = 0; i < held->n && !left; i++)
            left = kvb_span_clip(held->span[i], (uint32_t)entry * n, (uint32_t)(entry + 1) * n).n;
        if (!left)
            kvb_paged_put(p, seq, (uint32_t)entry, PAGE_NONE);
    }
}

/* The sequence has the accepted nodes already. */
void kvb_paged_commit(paged_store *p, const kvb_change *change)
{
    const uint32_t end = kvb_spans_next(&p->store.account->seq[change->src]);
    for (uint32_t pos = end - change->n; p->kept && pos < end; pos++)
        kvb_spans_append(&p->kept[change->src], pos, pos);
    kvb_paged_entries_drop(p, change->src, end, KVB_POS_END);
}
