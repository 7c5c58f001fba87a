/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that every cache, over models of one to three groups, answers hundreds of random histories of control calls
 * rightly (ci/fuzz/verbs.c judges), and that enough of each thing happens in them.
 */
#define TESTS_OWN_MAIN
#include "ci/tests/tests.h"
#include "ci/fuzz/verbs.h"

enum { HISTORIES = 120, CALLS_EACH = 200 };

typedef struct history {
    drawer drawer;
    uint32_t left;
} history;

static bool next(void *ctx, const rules *m, call *c, uint32_t *memory)
{
    history *h = ctx;
    *c = kvb_draw_call(&h->drawer, m);
    *memory = kvb_draw_memory(&h->drawer);
    return h->left-- > 0;
}

static void test_cache(void **state)
{
    const uint32_t cache = *(uint32_t *)*state, flags = kvb_verbs_types[cache]->flags;
    const bool pages = kvb_verbs_types[cache] == &kvb_cache_paged || flags & KVB_CACHE_PREFIX,
               limits = kvb_verbs_types[cache] == &kvb_cache_window || pages, seqs = flags & KVB_CACHE_SEQ;
    verbs_tally t = {0};
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        history h = {.left = CALLS_EACH};
        const verbs_setting set = kvb_draw_setting(&h.drawer, cache, seed);
        kvb_verbs_play(&set, next, NULL, &h, &t);
    }
    const struct {
        const char *what;
        uint32_t n, least;
        bool never;
    } counts[] = {
        {"steps", t.steps, HISTORIES * CALLS_EACH / 3, false},
        {"layers without a mask", t.masks[KVB_MASK_NONE], 100, false},
        {"with a causal one", t.masks[KVB_MASK_CAUSAL], 100, false},
        {"with runs", t.masks[KVB_MASK_RUNS], 1000, false},
        {"with pages", t.masks[KVB_MASK_PAGES], 1000, !pages},
        {"layers that scan", t.scanned, 1000, false},
        {"calls refused", t.refused, 1000, false},
        {"for want of cells", t.no_space, 500, false},
        {"for want of memory", t.no_memory, 100, false},
        {"since the cache cannot", t.no_reach, 50, false},
        {"copies into living sequences", t.joined, 20, !seqs},
        {"sequences longer than the capacity", t.longer, 100, !limits},
        {"reorderings", t.reordered, 100, !(flags & KVB_CACHE_REORDER)},
        {"steps while others have nodes", t.beside, 100, !(seqs && flags & KVB_CACHE_TREE)},
        {"commits while others have nodes", t.trees, 100, !(seqs && flags & KVB_CACHE_TREE)},
        {"loads", t.loaded, 20, !(flags & KVB_CACHE_SAVES)},
        {"prompts found", t.found, 40, !(flags & KVB_CACHE_PREFIX)},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        print_message("# %s: %u %s\n", kvb_verbs_types[cache]->name, counts[i].n, counts[i].what);
        assert_true(counts[i].never ? !counts[i].n : counts[i].n > counts[i].least);
    }
}

int main(void)
{
    static uint32_t caches[16];
    for (uint32_t n = 0; n < kvb_verbs_caches(); n++) {
        caches[n] = n;
        tests_add(__LINE__, (struct CMUnitTest){kvb_verbs_types[n]->name, test_cache, NULL, NULL, &caches[n]});
    }
    return tests_run();
}
