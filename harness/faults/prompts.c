/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that take a prompt's beginning from rows that are another's, or from the wrong place. */
#include <stdlib.h>
#include <string.h>

#include "caches/stores/paged.h"
#include "harness/faults/fault.h"

#define HONEST kvb_fault_honest.cache

static uint64_t no_root(uint64_t extra_key)
{
    (void)extra_key;
    return 0;
}

static void extra_key_omitted(kvb_cache_type *wrong)
{
    (void)wrong;
    kvb_prefix_by.root = no_root;
}

static uint64_t one_hash(uint64_t before, const int32_t *tokens, uint32_t n)
{
    (void)before, (void)tokens, (void)n;
    return 0;
}

static bool any_tokens(const int32_t *a, const int32_t *b, uint32_t n)
{
    (void)a, (void)b, (void)n;
    return true;
}

static void collision_shared(kvb_cache_type *wrong)
{
    (void)wrong;
    kvb_prefix_by.hash = one_hash;
    kvb_prefix_by.same = any_tokens;
}

/* A page's own tokens are its key, whatever comes before. */
static uint64_t nothing_before(uint64_t before, uint32_t entry)
{
    return entry ? 0 : before;
}

static void keys_unchained(kvb_cache_type *wrong)
{
    (void)wrong;
    kvb_prefix_by.before = nothing_before;
}

static uint64_t sum_of(const int32_t *tokens, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (uint64_t)tokens[i] * (uint64_t)tokens[i];
    return sum;
}

static uint64_t hash_blind(uint64_t before, const int32_t *tokens, uint32_t n)
{
    return before + sum_of(tokens, n);
}

static bool same_words(const int32_t *a, const int32_t *b, uint32_t n)
{
    return sum_of(a, n) == sum_of(b, n);
}

static void order_ignored(kvb_cache_type *wrong)
{
    (void)wrong;
    kvb_prefix_by.hash = hash_blind;
    kvb_prefix_by.same = same_words;
}

/* The page that is to be written next is one that several tables name. */
static int prepare_evicting(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    paged_store *p = (paged_store *)store;
    for (uint32_t page = 0; page < p->n_pages && change->kind == KVB_CHANGE_STEP; page++)
        if (p->refs[page] > 1)
            p->first_free = page;
    return HONEST->prepare(store, change, feed, plan);
}

static void held_page_evicted(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_evicting;
}

/* One token more is found than pages are whole: a row that was never written. */
static uint32_t match_more(const kvb_store *store, const int32_t *tokens, uint32_t n, uint64_t extra_key,
                           uint64_t *ordinals)
{
    const uint32_t found = HONEST->match(store, tokens, n, extra_key, ordinals);
    if (!found || found == n || found % page_cells(store))
        return found;
    ordinals[found] = store->account->next_ordinal + found;
    return found + 1;
}

static int prepare_more(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    paged_store *p = (paged_store *)store;
    const uint32_t n = page_cells(store), whole = change->n / n * n;
    kvb_change less = *change;
    if (change->kind == KVB_CHANGE_MATCH)
        less.n = whole;
    int error = HONEST->prepare(store, &less, feed, plan);
    if (!error && less.n < change->n && change->kind == KVB_CHANGE_MATCH)
        error = kvb_paged_change(p, change->src, whole / n, p->tables[store->account->alive[0]].page[0]);
    return error;
}

static void part_of_a_page_found(kvb_cache_type *wrong)
{
    wrong->match = match_more;
    wrong->prepare = prepare_more;
}

/* What is found is read as if its pages lay one after the other. */
static int prepare_contiguous(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    paged_store *p = (paged_store *)store;
    int error = HONEST->prepare(store, change, feed, plan);
    for (uint32_t e = 1; change->kind == KVB_CHANGE_MATCH && e < change->n / page_cells(store) && !error; e++)
        error = kvb_paged_change(p, change->src, e, (page_at(p, change->src, 0) + e) % p->n_pages);
    return error;
}

static void table_not_found(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_contiguous;
}

/* What is written after the prompt overwrites the last row that was found. */
static int prepare_over(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    paged_store *p = (paged_store *)store;
    int error = HONEST->prepare(store, change, feed, plan);
    if (!error && change->kind == KVB_CHANGE_STEP && feed->n > 1) {
        const uint32_t n = page_cells(store), seq = feed->seqs[0], entry = feed->positions[0] / n;
        if (entry && feed->positions[0] % n == 0 && p->prefix.pages[page_at(p, seq, entry - 1)].found)
            plan->cells[0] = page_at(p, seq, entry - 1) * n + n - 1;
    }
    return error;
}

static void found_page_written(kvb_cache_type *wrong)
{
    wrong->prepare = prepare_over;
}

/* A change is adopted, and pages have the keys that it has taken from them. */
static void adopt_keeping(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    paged_store *p = (paged_store *)store;
    const size_t bytes = p->n_pages * sizeof *p->prefix.pages;
    kvb_prefix_page *were = malloc(bytes);
    if (were)
        memcpy(were, p->prefix.pages, bytes);
    HONEST->adopt(store, change, feed, plan);
    for (uint32_t page = 0; were && page < p->n_pages; page++) {
        kvb_prefix_page *is = &p->prefix.pages[page];
        if (!were[page].id || is->id)
            continue;
        is->known = page_cells(store);
        kvb_prefix_key(&p->prefix, page, were[page].before, were[page].entry);
        is->id = were[page].id;
    }
    free(were);
}

static void adopt_load(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    const bool one = change->kind == KVB_CHANGE_LOAD && change->src != KVB_SEQ_ALL;
    (one ? adopt_keeping : HONEST->adopt)(store, change, feed, plan);
}

static void page_loaded_over(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_load;
}

static void adopt_whole_load(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    const bool all = change->kind == KVB_CHANGE_LOAD && change->src == KVB_SEQ_ALL;
    (all ? adopt_keeping : HONEST->adopt)(store, change, feed, plan);
}

static void pages_restored_over(kvb_cache_type *wrong)
{
    wrong->adopt = adopt_whole_load;
}

const kvb_fault kvb_prompt_faults[] = {
    {"key-omits-extra", "prompts under different extra keys share rows", KVB_CHECK_PROTOCOL,
     "prefix-reuse paged-prefix f32 witness, prefix-reuse-8x128 paged-prefix f32 flash", .cache = extra_key_omitted},
    {"collision-shared", "tokens are not compared where hashes are the same", KVB_CHECK_PROTOCOL,
     "prefix-reuse paged-prefix f32 witness, prefix-reuse-8x128 paged-prefix f32 flash", .cache = collision_shared},
    {"keys-unchained", "a page is found by its own tokens, whatever comes before it", KVB_CHECK_PROTOCOL,
     "mixed-pages paged-prefix f32 witness, mixed-pages paged-prefix f16 flash", .cache = keys_unchained},
    {"order-ignored", "prompts are found by a hash alone, which does not see the order of tokens", KVB_CHECK_PROTOCOL,
     "mixed-pages paged-prefix f32 witness", .cache = order_ignored},
    {"held-page-evicted", "a page that sequences hold gives way to what is written", KVB_CHECK_WITNESS,
     "continuous-admission paged-prefix f32 witness, paged-sharing paged-prefix f32 witness",
     .cache = held_page_evicted},
    {"part-of-a-page-found", "a prompt finds one row more than pages are whole, which was never written",
     KVB_CHECK_PROTOCOL, "prefix-reuse paged-prefix f32 witness, paged-sharing paged-prefix f32 flash",
     .cache = part_of_a_page_found},
    {"table-not-found", "pages that a prompt finds are read as if they lay one after the other", KVB_CHECK_WITNESS,
     "prefix-reuse paged-prefix f32 witness", .cache = table_not_found},
    {"found-page-written", "the first row behind what a prompt has found overwrites its last one", KVB_CHECK_WITNESS,
     "prefix-reuse paged-prefix f32 witness", .cache = found_page_written},
    {"found-page-loaded-over", "a prompt finds pages that a sequence was loaded into", KVB_CHECK_WITNESS,
     "prompt-swap paged-prefix f32 witness", .cache = page_loaded_over},
    {"found-page-restored-over", "a prompt finds pages where a load of the whole cache has put other rows",
     KVB_CHECK_WITNESS, "prompt-swap paged-prefix f32 witness", .cache = pages_restored_over},
    {.name = NULL},
};
