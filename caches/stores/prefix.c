/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that prompts find: keys, a hash table of them, and a list of the pages that no sequence holds. */
#include "caches/stores/prefix.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "caches/stores/paged.h"

static uint64_t mix(uint64_t z) /* splitmix64's finaliser */
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t root_of(uint64_t extra_key)
{
    return extra_key;
}

static uint64_t before_of(uint64_t before, uint32_t entry)
{
    (void)entry;
    return before;
}

static uint64_t hash_of(uint64_t before, const int32_t *tokens, uint32_t n)
{
    uint64_t hash = mix(before + 0x9e3779b97f4a7c15u);
    for (uint32_t i = 0; i < n; i++)
        hash = mix(hash + (uint32_t)tokens[i] + 0x9e3779b97f4a7c15u);
    return hash;
}

static bool are_same(const int32_t *a, const int32_t *b, uint32_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

kvb_prefix_rules kvb_prefix_by = {root_of, before_of, hash_of, are_same};

int kvb_prefix_open(kvb_prefix *p, kvb_allocator *a, uint32_t n_pages, uint32_t page_cells, uint32_t n_ids,
                    uint32_t budget, uint32_t hash_bits)
{
    const size_t cells = (size_t)n_pages * page_cells;
    uint32_t buckets = 16;
    while (buckets < n_pages && buckets < 1u << 31)
        buckets *= 2;
    *p = (kvb_prefix){.n_pages = n_pages,
                      .page_cells = page_cells,
                      .n_ids = n_ids,
                      .n_buckets = buckets,
                      .budget = budget,
                      .hash_mask = hash_bits && hash_bits < 64 ? (UINT64_C(1) << hash_bits) - 1 : UINT64_MAX};
    p->pages = kvb_alloc_zeroed(a, ((size_t)n_pages + 1) * sizeof *p->pages);
    p->tokens = kvb_alloc_zeroed(a, cells * sizeof *p->tokens);
    p->ordinals = kvb_alloc_zeroed(a, cells * sizeof *p->ordinals);
    p->buckets = kvb_alloc_zeroed(a, buckets * sizeof *p->buckets);
    p->extra_keys = kvb_alloc_zeroed(a, n_ids * sizeof *p->extra_keys);
    if (!p->pages || !p->tokens || !p->ordinals || !p->buckets || !p->extra_keys)
        return -ENOMEM;
    memset(p->buckets, 0xff, buckets * sizeof *p->buckets);
    p->pages[n_pages].older = p->pages[n_pages].newer = n_pages;
    return 0;
}

void kvb_prefix_close(kvb_prefix *p, kvb_allocator *a)
{
    const size_t cells = (size_t)p->n_pages * p->page_cells;
    kvb_free(a, p->pages, ((size_t)p->n_pages + 1) * sizeof *p->pages);
    kvb_free(a, p->tokens, cells * sizeof *p->tokens);
    kvb_free(a, p->ordinals, cells * sizeof *p->ordinals);
    kvb_free(a, p->buckets, p->n_buckets * sizeof *p->buckets);
    kvb_free(a, p->extra_keys, p->n_ids * sizeof *p->extra_keys);
    *p = (kvb_prefix){0};
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static int32_t *tokens_of(const kvb_prefix *p, uint32_t page)
{
    return p->tokens + (size_t)page * p->page_cells;
}

static uint32_t *bucket_of(const kvb_prefix *p, uint64_t before, const int32_t *tokens)
{
    return &p->buckets[kvb_prefix_by.hash(before, tokens, p->page_cells) & p->hash_mask & (p->n_buckets - 1)];
}

/* The page under a key, or KVB_NO_PAGE. before: id of the page before, or a root. */
static uint32_t prefix_find(const kvb_prefix *p, uint64_t id, uint32_t entry, const int32_t *tokens)
{
    const uint64_t before = kvb_prefix_by.before(id, entry);
    uint32_t page = *bucket_of(p, before, tokens);
    for (; page != KVB_NO_PAGE; page = p->pages[page].next) {
        const kvb_prefix_page *at = &p->pages[page];
        if (at->before == before && at->entry == entry && kvb_prefix_by.same(tokens_of(p, page), tokens, p->page_cells))
            break;
    }
    return page;
}

void kvb_prefix_key(kvb_prefix *p, uint32_t page, uint64_t id, uint32_t entry)
{
    const uint64_t before = kvb_prefix_by.before(id, entry);
    kvb_prefix_page *at = &p->pages[page];
    const int32_t *tokens = tokens_of(p, page);
    const uint32_t same = prefix_find(p, id, entry, tokens);
    assert(!at->id && at->known == p->page_cells);
    at->before = before;
    at->entry = entry;
    at->id = same == KVB_NO_PAGE ? ++p->last_id : p->pages[same].id;
    if (same != KVB_NO_PAGE)
        return;
    uint32_t *bucket = bucket_of(p, before, tokens);
    at->found = true;
    at->next = *bucket;
    *bucket = page;
}

/* The page will hold other rows from its cell `from` on: removes its key. */
static void prefix_forget(kvb_prefix *p, uint32_t page, uint32_t from)
{
    kvb_prefix_page *at = &p->pages[page];
    if (at->found) {
        uint32_t *link = bucket_of(p, at->before, tokens_of(p, page));
        while (*link != page)
            link = &p->pages[*link].next;
        *link = at->next;
    }
    at->found = false;
    at->id = 0;
    at->known = at->known < from ? at->known : from;
}

/* A page without a key begins with the rows of another page. */
static void prefix_copy(kvb_prefix *p, uint32_t from, uint32_t to)
{
    const size_t n = p->page_cells;
    assert(!p->pages[to].id);
    memcpy(tokens_of(p, to), tokens_of(p, from), n * sizeof *p->tokens);
    memcpy(p->ordinals + to * n, p->ordinals + from * n, n * sizeof *p->ordinals);
    p->pages[to].known = p->pages[from].known;
}

/* Notes a token in a cell of a page, behind its other tokens. Are all tokens of the page known now? */
static bool prefix_write(kvb_prefix *p, uint32_t page, uint32_t cell, int32_t token, uint64_t ordinal)
{
    kvb_prefix_page *at = &p->pages[page];
    if (at->known != cell)
        return false;
    tokens_of(p, page)[cell] = token;
    p->ordinals[(size_t)page * p->page_cells + cell] = ordinal;
    return ++at->known == p->page_cells;
}

/* ---- cached pages: a ring from the oldest to the newest ---------------------------------------------------------- */

uint32_t kvb_prefix_oldest(const kvb_prefix *p)
{
    return p->n_cached ? p->pages[p->n_pages].newer : KVB_NO_PAGE;
}

void kvb_prefix_take(kvb_prefix *p, uint32_t page)
{
    kvb_prefix_page *at = &p->pages[page];
    if (!at->cached)
        return;
    p->pages[at->older].newer = at->newer;
    p->pages[at->newer].older = at->older;
    at->cached = false;
    p->n_cached--;
}

void kvb_prefix_untake(kvb_prefix *p, uint32_t page)
{
    kvb_prefix_page *at = &p->pages[page];
    if (!at->found)
        return;
    p->pages[at->older].newer = p->pages[at->newer].older = page;
    at->cached = true;
    p->n_cached++;
}

void kvb_prefix_release(kvb_prefix *p, uint32_t page)
{
    kvb_prefix_page *at = &p->pages[page];
    if (at->found) {
        at->older = p->pages[p->n_pages].older;
        at->newer = p->n_pages;
        kvb_prefix_untake(p, page);
    } else {
        prefix_forget(p, page, 0);
    }
}

/* The page will hold other rows, whether tables name it or it is cached. */
static void prefix_drop(kvb_prefix *p, uint32_t page)
{
    kvb_prefix_take(p, page);
    prefix_forget(p, page, 0);
}

uint32_t kvb_prefix_trim(kvb_prefix *p)
{
    const uint32_t page = p->n_cached > p->budget ? kvb_prefix_oldest(p) : KVB_NO_PAGE;
    if (page != KVB_NO_PAGE)
        prefix_drop(p, page);
    return page;
}

/* ---- the calls of a paged store ---------------------------------------------------------------------------------- */

uint32_t kvb_paged_match(const kvb_store *s, const int32_t *tokens, uint32_t n, uint64_t extra_key, uint64_t *ordinals)
{
    const paged_store *p = (const paged_store *)s;
    const uint32_t cells = page_cells(s);
    uint64_t before = kvb_prefix_by.root(extra_key);
    uint32_t found = 0;
    for (; n - found >= cells; found += cells) {
        const uint32_t page = prefix_find(&p->prefix, before, found / cells, tokens + found);
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
        const uint32_t page = prefix_find(&p->prefix, before, pos / cells, change->tokens + pos);
        error = kvb_paged_change(p, change->src, pos / cells, page);
        before = p->prefix.pages[page].id;
    }
    return error;
}

/* The extra key of a sequence that was put together from parts: its pages get no keys. */
#define MIXED UINT64_MAX

/* Gives a whole page its key, if all pages before it have keys and its sequence has no holes. */
static void page_key(paged_store *p, uint32_t seq, uint32_t entry)
{
    const kvb_spans *held = &p->store.account->seq[seq];
    uint64_t before = kvb_prefix_by.root(p->prefix.extra_keys[seq]);
    if (p->prefix.extra_keys[seq] == MIXED || held->tokens != kvb_spans_next(held)) /* holes: an entry may be empty */
        return;
    for (uint32_t e = 0; e < entry; e++) {
        const kvb_prefix_page *at = &p->prefix.pages[page_at(p, seq, e)];
        if (!at->id || at->before != before || at->entry != e)
            return;
        before = at->id;
    }
    kvb_prefix_key(&p->prefix, page_at(p, seq, entry), before, entry);
}

/* Notes the tokens of a step's pages: a page newly taken holds those that were copied to it, then the step's. */
static void step_note(paged_store *p, const kvb_change *change, const kvb_feed *feed)
{
    const uint32_t n = page_cells(&p->store);
    for (size_t i = 0; i < p->n_changes; i++) {
        const entry_change *c = &p->changes[i];
        const uint32_t page = page_at(p, c->seq, c->entry);
        prefix_forget(&p->prefix, page, 0);
        if (c->was != PAGE_NONE)
            prefix_copy(&p->prefix, c->was, page);
    }
    for (uint32_t i = 0; i < feed->n; i++) {
        const uint32_t seq = feed->seqs[i], pos = feed->positions[i], page = page_at(p, seq, pos / n);
        prefix_forget(&p->prefix, page, pos % n);
        if (change->tokens && prefix_write(&p->prefix, page, pos % n, change->tokens[i], feed->ordinals[i]))
            page_key(p, seq, pos / n);
    }
}

/*
 * A file has ordinals and no token ids: the pages of loaded rows have no key, and so no page that is filled behind them
 * gets one. A load of the whole cache keeps the pages that no sequence holds, if pools store rows one by one.
 */
static void load_note(paged_store *p, const kvb_change *change)
{
    const kvb_store *s = &p->store;
    const bool whole = change->src == KVB_SEQ_ALL, all = whole && !s->load->apart;
    for (size_t i = 0; i < p->n_changes; i++)
        prefix_forget(&p->prefix, page_at(p, p->changes[i].seq, p->changes[i].entry), 0);
    for (uint32_t i = 0; i < s->load->n_rows && whole; i++)
        prefix_drop(&p->prefix, s->load->cell[i] / page_cells(s));
    for (uint32_t page = 0; page < p->n_pages && all; page++)
        prefix_drop(&p->prefix, page);
    p->first_free = all ? 0 : p->first_free; /* freeing a page lowers it further */
    for (uint32_t i = 0; i < s->account->n_changed; i++)
        p->prefix.extra_keys[s->account->changed[i]] = 0;
}

/* Removes the keys of pages to which a COPY copied rows. A fork gets its source's extra key; the extra key is MIXED if
 * the copy adds to a sequence or begins at a later position. */
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
                prefix_forget(&p->prefix, page_at(p, change->dst, entry), 0);
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
