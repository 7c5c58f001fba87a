/* SPDX-License-Identifier: Apache-2.0 */
/* Faults in the data of a single policy: pages and their holders, prompts that begin alike, frozen fronts. */
#include "caches/stores/paged.h"
#include "caches/stores/seq.h"
#include "caches/stores/shared.h"
#include "harness/faults/fault.h"

#include <stdlib.h>
#include <string.h>

#define OF(kind) (UINT32_C(1) << KVB_CHANGE_##kind)

/* ---- holders of pages, and the place to append ------------------------------------------------------------------- */

/* by: the largest value of a counter of holders. */
static void holders_wrap(kvb_fault_call *c)
{
    const paged_store *p = (const paged_store *)c->store;
    const uint32_t most = (uint32_t)kvb_fault_here.by;
    for (uint32_t page = 0; page < p->n_pages; page++)
        if (p->refs[page] > most)
            p->refs[page] &= most;
}

static bool leaves(const kvb_change *change)
{
    return change->kind == KVB_CHANGE_REMOVE && change->p0 == 0 && change->p1 == KVB_POS_END;
}

/* The first sequence that is removed frees its pages, even if others hold them. */
static void first_frees(kvb_fault_call *c)
{
    const paged_store *p = (const paged_store *)c->store;
    for (uint32_t entry = 0; leaves(c->change) && entry < p->tables[c->change->src].room; entry++)
        if (page_at(p, c->change->src, entry) != PAGE_NONE)
            p->refs[page_at(p, c->change->src, entry)] = 1;
}

/* A page of the source of a copy gets one holder too many. */
static void page_kept(kvb_fault_call *c)
{
    const paged_store *p = (const paged_store *)c->store;
    const uint32_t page = p->tables[c->change->src].room ? page_at(p, c->change->src, 0) : PAGE_NONE;
    if (page != PAGE_NONE)
        p->refs[page]++;
}

/* A cell of the first source of a reordering gets one holder too many. */
static void cell_kept(kvb_fault_call *c)
{
    seq_store *s = (seq_store *)(void *)c->store;
    const kvb_spans *held = &s->cells[c->change->srcs[0]];
    if (held->n)
        kvb_seq_hold_cell(s, (uint32_t)held->span[0].at, true);
}

/* Each node that clear() drops gets one holder too many. */
static void nodes_kept(kvb_fault_call *c)
{
    seq_store *s = (seq_store *)(void *)c->store;
    for (uint32_t i = 0; c->change->drops_nodes && i < s->n_nodes; i++)
        kvb_seq_hold_cell(s, s->nodes[i], true);
}

/* omlx 2172: all rows of a slab append at one place, which becomes the end of the longest remaining sequence. */
static bool has_left;

KVB_HOOK(leaving_noted, kvb_fault_call *c, has_left |= leaves(c->change))

static void append_at_longest(kvb_fault_call *c)
{
    const kvb_account *a = c->store->account;
    uint32_t longest = 0;
    for (uint32_t seq = 0; seq < a->n_ids; seq++) {
        const uint32_t next = kvb_spans_next(&a->seq[seq]);
        longest = longest > next ? longest : next;
    }
    for (uint32_t i = 0; c->feed && has_left && i < c->feed->n; i++)
        if (c->feed->positions[i] + 1 == kvb_spans_next(&a->seq[c->feed->seqs[i]])) /* decoded */
            c->plan->cells[i] += longest - 1 - c->feed->positions[i];
}

/* ---- keys of prompts --------------------------------------------------------------------------------------------- */

KVB_HOOK_OF(uint64_t, no_root, (uint64_t extra_key), 0)
KVB_HOOK_OF(uint64_t, one_hash, (uint64_t before, const int32_t *tokens, uint32_t n), 0)
KVB_HOOK_OF(bool, any_tokens, (const int32_t *a, const int32_t *b, uint32_t n), true)

/* The key of a page covers its own tokens alone, not those before. */
KVB_HOOK_OF(uint64_t, nothing_before, (uint64_t before, uint32_t entry), entry ? 0 : before)

static uint64_t sum_of(const int32_t *tokens, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (uint64_t)tokens[i] * (uint64_t)tokens[i];
    return sum;
}

KVB_HOOK_OF(uint64_t, hash_blind, (uint64_t before, const int32_t *tokens, uint32_t n), before + sum_of(tokens, n))
KVB_HOOK_OF(bool, same_words, (const int32_t *a, const int32_t *b, uint32_t n), sum_of(a, n) == sum_of(b, n))

/* ---- pages that prompts find ------------------------------------------------------------------------------------- */

/* The next page to be written is one that several tables hold. */
static void held_page_evicted(kvb_fault_call *c)
{
    paged_store *p = (paged_store *)c->store;
    for (uint32_t page = 0; page < p->n_pages; page++)
        if (p->refs[page] > 1)
            p->first_free = page;
}

/* One token after the whole pages is found, too: its row was never written. */
static uint32_t match_more(const kvb_store *store, uint32_t found, uint32_t n, uint64_t *ordinals)
{
    if (!found || found == n || found % page_cells(store))
        return found;
    ordinals[found] = store->account->next_ordinal + found;
    return found + 1;
}

KVB_HOOK(match_whole_pages, kvb_fault_call *c, c->given.n -= c->given.n % page_cells(c->store))

static void match_part(kvb_fault_call *c)
{
    paged_store *p = (paged_store *)c->store;
    if (c->given.n < c->change->n)
        c->error = kvb_paged_change(p, c->change->src, c->given.n / page_cells(c->store),
                                    p->tables[c->store->account->alive[0]].page[0]);
}

KVB_HOOK(match_all, kvb_fault_call *c, c->given = *c->change)

/* The pages of a match are read as if they were consecutive. */
static void table_not_found(kvb_fault_call *c)
{
    paged_store *p = (paged_store *)c->store;
    for (uint32_t e = 1; e < c->change->n / page_cells(c->store) && !c->error; e++)
        c->error = kvb_paged_change(p, c->change->src, e, (page_at(p, c->change->src, 0) + e) % p->n_pages);
}

/* The first row after a match overwrites the match's last row. */
static void found_page_written(kvb_fault_call *c)
{
    const paged_store *p = (const paged_store *)c->store;
    const uint32_t n = page_cells(c->store), seq = c->feed->seqs[0], entry = c->feed->positions[0] / n;
    if (c->feed->n > 1 && entry && c->feed->positions[0] % n == 0 && p->prefix.pages[page_at(p, seq, entry - 1)].found)
        c->plan->cells[0] = page_at(p, seq, entry - 1) * n + n - 1;
}

/* Pages keep the keys that a load should remove. by: 0 for a load of one sequence, 1 for a load of all. */
static kvb_prefix_page *pages_before;

static void keys_note(kvb_fault_call *c)
{
    const paged_store *p = (const paged_store *)c->store;
    const size_t bytes = p->n_pages * sizeof *pages_before;
    if ((c->change->src == KVB_SEQ_ALL) == (kvb_fault_here.by > 0) && (pages_before = malloc(bytes)))
        memcpy(pages_before, p->prefix.pages, bytes);
}

static void keys_keep(kvb_fault_call *c)
{
    paged_store *p = (paged_store *)c->store;
    for (uint32_t page = 0; pages_before && page < p->n_pages; page++) {
        const kvb_prefix_page *was = &pages_before[page];
        kvb_prefix_page *is = &p->prefix.pages[page];
        if (!was->id || is->id)
            continue;
        is->known = page_cells(c->store);
        kvb_prefix_key(&p->prefix, page, was->before, was->entry);
        is->id = was->id;
    }
    free(pages_before);
    pages_before = NULL;
}

/* ---- fronts ------------------------------------------------------------------------------------------------------ */

static uint32_t front_of(const kvb_fault_call *c)
{
    return c->feed && c->store->front_next ? c->store->front_next->cells : 0;
}

static void cells_move(kvb_plan *plan, uint32_t by)
{
    for (uint32_t i = 0; i < plan->n; i++)
        plan->cells[i] += by;
}

KVB_HOOK(written_behind, kvb_fault_call *c, cells_move(c->plan, front_of(c)))

/* Only the cells of the pools' writes are wrong; the policy keeps the right ones. */
static uint32_t hidden;

static void behind_hidden(kvb_fault_call *c)
{
    hidden = front_of(c);
    cells_move(&c->store->next, 0u - hidden);
}

KVB_HOOK(behind_again, kvb_fault_call *c, cells_move(&c->store->next, hidden))
KVB_HOOK_EACH(border_cut, kvb_fault_call *c, front_of(c) ? c->plan->n_runs : 0,
              c->plan->runs[i].end -= c->plan->runs[i].end == front_of(c))

static void border_doubled(kvb_fault_call *c)
{
    const uint32_t front = front_of(c);
    kvb_run *runs = c->plan->runs;
    for (uint32_t i = 1; i < c->plan->n_runs && front; i++)
        runs[i].begin -= runs[i].begin > front && runs[i - 1].end == front ? runs[i].begin - front + 1 : 0;
}

/* Overwrites the front's first n rows with rows of these pools. */
static void front_overwrite(kvb_front *front, kvb_pool *const *pools, uint32_t n)
{
    static char raw[1 << 16];
    kvb_front_fill(front, 0, pools, 0, n < front->cells ? n : front->cells, raw);
}

/* The front's memory is overwritten as soon as a sequence ends. */
static void front_freed(kvb_fault_call *c)
{
    const shared_store *s = (const shared_store *)(void *)c->store;
    for (size_t i = 0; i < s->n_holding; i++)
        if (!c->store->account->seq[c->change->src].tokens)
            front_overwrite(s->holding[i].front, c->store->pools, c->store->ensured);
}

/* A tail that begins inside the front is written to the front, which others read. */
static void front_written(kvb_fault_call *c)
{
    static char raw[1 << 16];
    const shared_store *s = (const shared_store *)(void *)c->store;
    for (uint32_t i = 0; c->feed && i < c->feed->n; i++) {
        const shared_sequence *of = &s->of[c->feed->seqs[i]];
        const kvb_spans *tail = &s->tails.cells[c->feed->seqs[i]];
        if (of->front && tail->n && tail->span[0].pos < of->front->cells && c->feed->positions[i] != tail->span[0].pos)
            kvb_front_fill(of->front, tail->span[0].pos, c->store->pools, (uint32_t)tail->span[0].at, 1, raw);
    }
}

/* The second front gets the rows of the first. */
static void front_of_another(kvb_fault_call *c)
{
    const shared_store *s = (const shared_store *)(void *)c->store;
    if (s->n_holding > 1)
        front_overwrite(s->holding[1].front, s->holding[0].front->pools, s->holding[0].front->cells);
}

#define FRONTS "shared-prompt shared-prefix f32 witness, shared-prompt-8x128 shared-prefix q8_0 witness"

const kvb_fault kvb_store_faults[] = {
    {"holders-in-8-bits", "256 sequences that hold a page are counted as none", KVB_CHECK_WITNESS,
     "many-holders paged f32 witness", .by = UINT8_MAX, .cache.adopted = holders_wrap},
    {"holders-in-4-bits", "16 sequences that hold a page are counted as none", KVB_CHECK_WITNESS,
     "many-holders paged f32 witness", .by = 15, .cache.adopted = holders_wrap},
    {"first-frees", "a page is free when the first of its sequences leaves", KVB_CHECK_WITNESS,
     "agent-fork paged f32 witness, many-holders paged f32 witness", .cache.adopting = first_frees},
    {"page-kept", "a page that was shared is never free again", KVB_CHECK_PROTOCOL, "agent-fork paged f32 witness",
     .cache.of = OF(COPY), .cache.adopted = page_kept},
    {"cell-kept", "a cell of a reordered sequence is never free again", KVB_CHECK_PROTOCOL,
     "beam-search seq f32 witness, draft-calls window f32 witness", .cache.of = OF(REORDER),
     .cache.adopting = cell_kept},
    {"nodes-kept", "cells of nodes that clear() drops are never free again", KVB_CHECK_PROTOCOL,
     "eagle-tree seq f32 witness", .cache.of = OF(REMOVE), .cache.adopting = nodes_kept},
    {"appends-at-longest", "once a sequence has left, the others append where the longest that is left ends",
     KVB_CHECK_WITNESS, "batched-multi-seq slab f32 witness, many-holders slab f32 witness",
     .cache.prepared = append_at_longest, .cache.adopting = leaving_noted},
    {"key-omits-extra", "prompts under different extra keys share rows", KVB_CHECK_PROTOCOL,
     "prefix-reuse paged-prefix f32 witness, prefix-reuse paged-prefix f32 flash", .cache.prefix = {.root = no_root}},
    {"collision-shared", "tokens are not compared where hashes are the same", KVB_CHECK_PROTOCOL,
     "prefix-reuse paged-prefix f32 witness, prefix-reuse paged-prefix f32 flash",
     .cache.prefix = {.hash = one_hash, .same = any_tokens}},
    {"keys-unchained", "a page is found by its own tokens, whatever comes before it", KVB_CHECK_PROTOCOL,
     "mixed-pages paged-prefix f32 witness, mixed-pages paged-prefix f16 flash",
     .cache.prefix = {.before = nothing_before}},
    {"order-ignored", "prompts are found by a hash alone, which does not see the order of tokens", KVB_CHECK_PROTOCOL,
     "mixed-pages paged-prefix f32 witness", .cache.prefix = {.hash = hash_blind, .same = same_words}},
    {"held-page-evicted", "a page that sequences hold gives way to what is written", KVB_CHECK_WITNESS,
     "continuous-admission paged-prefix f32 witness, paged-sharing paged-prefix f32 witness", .cache.of = OF(STEP),
     .cache.preparing = held_page_evicted},
    {"part-of-a-page-found", "a prompt finds one row more than pages are whole, which was never written",
     KVB_CHECK_PROTOCOL, "prefix-reuse paged-prefix f32 witness, paged-sharing paged-prefix f32 flash",
     .cache.of = OF(MATCH), .cache.match = match_more, .cache.preparing = match_whole_pages,
     .cache.prepared = match_part, .cache.adopting = match_all},
    {"table-not-found", "pages that a prompt finds are read as if they lay one after the other", KVB_CHECK_WITNESS,
     "prefix-reuse paged-prefix f32 witness", .cache.of = OF(MATCH), .cache.prepared = table_not_found},
    {"found-page-written", "the first row behind what a prompt has found overwrites its last one", KVB_CHECK_WITNESS,
     "prefix-reuse paged-prefix f32 witness", .cache.of = OF(STEP), .cache.prepared = found_page_written},
    {"found-page-loaded-over", "a prompt finds pages that a sequence was loaded into", KVB_CHECK_WITNESS,
     "prompt-swap paged-prefix f32 witness", .by = 0, .cache.of = OF(LOAD), .cache.adopting = keys_note,
     .cache.adopted = keys_keep},
    {"found-page-restored-over", "a prompt finds pages where a load of the whole cache has put other rows",
     KVB_CHECK_WITNESS, "prompt-swap paged-prefix f32 witness", .by = 1, .cache.of = OF(LOAD),
     .cache.adopting = keys_note, .cache.adopted = keys_keep},
    {"tail-written-behind-front", "rows of a tail are written as far behind their cells as the front is long",
     KVB_CHECK_WITNESS, FRONTS, .cache.of = OF(STEP), .cache.prepared = written_behind, .cache.adopting = behind_hidden,
     .cache.adopted = behind_again},
    {"border-left-out", "the last cell of a front is not seen", KVB_CHECK_WITNESS, FRONTS, .cache.of = OF(STEP),
     .cache.prepared = border_cut},
    {"border-read-twice", "the last cell of a front is seen as a tail's first one, too", KVB_CHECK_WITNESS, FRONTS,
     .cache.of = OF(STEP), .cache.prepared = border_doubled},
    {"front-freed-with-its-maker", "a front's memory is used again when a sequence ends, which others read on",
     KVB_CHECK_WITNESS, FRONTS, .cache.of = OF(REMOVE), .cache.adopted = front_freed},
    {"front-written", "a sequence that is cut back into a front goes on writing there", KVB_CHECK_WITNESS, FRONTS,
     .cache.adopting = front_written},
    {"front-of-another", "a second front holds the rows of the first", KVB_CHECK_WITNESS, FRONTS, .cache.of = OF(COPY),
     .cache.adopted = front_of_another},
    {.name = NULL},
};
