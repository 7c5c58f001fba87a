/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that are found again: which a prompt begins with, and which tokens each holds. */
#include "caches/stores/paged.h"

#include <string.h>

uint32_t kvb_paged_match(const kvb_store *s, const int32_t *tokens, uint32_t n, uint64_t extra_key, uint64_t *ordinals)
{
    const paged_store *p = (const paged_store *)s;
    const uint32_t cells = page_cells(s);
    uint64_t before = kvb_prefix_by.root(extra_key);
    uint32_t found = 0;
    for (; n - found >= cells; found += cells) {
        const uint32_t page = kvb_prefix_find(&p->prefix, before, found / cells, tokens + found);
        if (page == KVB_NO_PAGE)
            break;
        memcpy(ordinals + found, p->prefix.ordinals + (size_t)page * cells, cells * sizeof *ordinals);
        before = p->prefix.pages[page].id;
    }
    return found;
}

int kvb_paged_match_prepare(paged_store *p, const kvb_change *change)
{
    const uint32_t cells = page_cells(&p->store);
    uint64_t before = kvb_prefix_by.root(change->extra_key);
    int error = 0;
    for (uint32_t pos = 0; pos < change->n && !error; pos += cells) {
        const uint32_t page = kvb_prefix_find(&p->prefix, before, pos / cells, change->tokens + pos);
        error = kvb_paged_change(p, change->src, pos / cells, page);
        before = p->prefix.pages[page].id;
    }
    return error;
}

/* The extra key of a sequence that was put together: its tokens need not stand behind each other. */
#define MIXED UINT64_MAX

/* A page whose tokens are all known gets a key if it follows pages that have theirs, and its sequence has no holes. */
static void page_key(paged_store *p, uint32_t seq, uint32_t entry)
{
    const kvb_spans *held = &p->store.account->seq[seq];
    uint64_t before = kvb_prefix_by.root(p->prefix.extra_keys[seq]);
    if (p->prefix.extra_keys[seq] == MIXED || held->tokens != kvb_spans_next(held)) /* an entry may name no page */
        return;
    for (uint32_t e = 0; e < entry; e++) {
        const kvb_prefix_page *at = &p->prefix.pages[page_at(p, seq, e)];
        if (!at->id || at->before != before || at->entry != e)
            return;
        before = at->id;
    }
    kvb_prefix_key(&p->prefix, page_at(p, seq, entry), before, entry);
}

/* Of the pages that a step writes: those that it has taken hold what they were taken for, then its tokens. */
static void step_note(paged_store *p, const kvb_change *change, const kvb_feed *feed)
{
    const uint32_t n = page_cells(&p->store);
    for (size_t i = 0; i < p->n_changes; i++) {
        const entry_change *c = &p->changes[i];
        const uint32_t page = page_at(p, c->seq, c->entry);
        kvb_prefix_forget(&p->prefix, page, 0);
        if (c->was != PAGE_NONE)
            kvb_prefix_copy(&p->prefix, c->was, page);
    }
    for (uint32_t i = 0; i < feed->n; i++) {
        const uint32_t seq = feed->seqs[i], pos = feed->positions[i], page = page_at(p, seq, pos / n);
        kvb_prefix_forget(&p->prefix, page, pos % n);
        if (change->tokens && kvb_prefix_write(&p->prefix, page, pos % n, change->tokens[i], feed->ordinals[i]))
            page_key(p, seq, pos / n);
    }
}

/*
 * What is loaded is known by ordinals and not by tokens: pages that it takes, or lies in again, have no key, and so
 * none has one that is filled behind them. A load of the whole cache leaves the pages that no sequence holds as they are, if
 * pools store rows one by one.
 */
static void load_note(paged_store *p, const kvb_change *change)
{
    const kvb_store *s = &p->store;
    const bool whole = change->src == KVB_SEQ_ALL, all = whole && !s->load->apart;
    for (size_t i = 0; i < p->n_changes; i++)
        kvb_prefix_forget(&p->prefix, page_at(p, p->changes[i].seq, p->changes[i].entry), 0);
    for (uint32_t i = 0; i < s->load->n_rows && whole; i++)
        kvb_prefix_drop(&p->prefix, s->load->cell[i] / page_cells(s));
    for (uint32_t page = 0; page < p->n_pages && all; page++)
        kvb_prefix_drop(&p->prefix, page);
    p->first_free = all ? 0 : p->first_free; /* counted on from there by those that let go of their pages */
    for (uint32_t i = 0; i < s->account->n_changed; i++)
        p->prefix.extra_keys[s->account->changed[i]] = 0;
}

/* Of a copy: pages into which rows were copied. A fork has its source's extra key; what is added to a sequence, or
 * begins later, mixes it. */
static void copy_note(paged_store *p, const kvb_change *change)
{
    const kvb_spans *src = &p->store.account->seq[change->src];
    const uint32_t n = page_cells(&p->store);
    uint32_t copied = 0, first = 0;
    for (size_t i = 0; i < src->n; i++) {
        const kvb_span part = kvb_span_clip(src->span[i], change->p0, change->p1);
        first = copied ? first : part.pos;
        copied += part.n;
        for (uint32_t entry = part.pos / n; part.n && entry <= (part.pos + part.n - 1) / n; entry++)
            if (page_at(p, change->dst, entry) != page_at(p, change->src, entry))
                kvb_prefix_forget(&p->prefix, page_at(p, change->dst, entry), 0);
    }
    const bool fork = first == 0 && p->store.account->seq[change->dst].tokens == copied;
    if (copied)
        p->prefix.extra_keys[change->dst] = fork ? p->prefix.extra_keys[change->src] : MIXED;
}

void kvb_paged_note(paged_store *p, const kvb_change *change, const kvb_feed *feed)
{
    if (change->kind == KVB_CHANGE_STEP)
        step_note(p, change, feed);
    if (change->kind == KVB_CHANGE_COPY)
        copy_note(p, change);
    if (change->kind == KVB_CHANGE_LOAD)
        load_note(p, change);
    if (change->kind == KVB_CHANGE_MATCH)
        p->prefix.extra_keys[change->src] = change->extra_key;
}
