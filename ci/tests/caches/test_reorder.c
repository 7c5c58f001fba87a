/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that a reordering of sequences does what the same copies and removals over ids of their own do, whatever the
 * cache, the limits of groups and the order; that where cells or pages are shared no row moves for it, and in a slab
 * only those do of which one more is wanted.
 */
#include "rig.h"

enum { SEQS = 6, SPARE = 8, IDS = SPARE + SEQS, TURNS = 40, LEN = 200 };

static uint64_t drawn;

static uint32_t draw(uint32_t n)
{
    uint64_t z = drawn += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % n);
}

static void open(rig *r, const kvb_cache_type *type)
{
    *r = (rig){.n_groups = 3,
               .groups = {{.window = 0}, {.window = 6, .sinks = 2}, {.chunk = 8}},
               .seq_ids = IDS,
               .rollback = 3,
               .page_cells = 4};
    assert_int_equal(rig_try_open(r, type, 4096, LEN, IDS, 8), 0);
}

/* The same by copies: the sources aside first, since a source may be a destination. */
static void copies_make(rig *r, const uint32_t *dst, const uint32_t *src, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(kvb_cache_seq_cp(r->cache, src[i], SPARE + i, 0, KVB_POS_END), 0);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(kvb_cache_seq_rm(r->cache, dst[i], 0, KVB_POS_END), 0);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(kvb_cache_seq_cp(r->cache, SPARE + i, dst[i], 0, KVB_POS_END), 0);
        assert_int_equal(kvb_cache_seq_rm(r->cache, SPARE + i, 0, KVB_POS_END), 0);
    }
}

/* A step of all sequences, alike in both; now and then one goes back. */
static void step_compare(rig *a, rig *b)
{
    static uint64_t seen[2][4 * LEN];
    uint32_t ids[SEQS];
    for (uint32_t s = 0; s < SEQS; s++) {
        const uint32_t len = kvb_cache_length(a->cache, s), back = len > 2 ? draw(3) : 0;
        assert_int_equal(kvb_cache_length(b->cache, s), len);
        assert_int_equal(kvb_cache_seq_rm(a->cache, s, len - back, KVB_POS_END),
                         kvb_cache_seq_rm(b->cache, s, len - back, KVB_POS_END));
        ids[s] = s;
    }
    assert_int_equal(rig_step(a, ids, SEQS), 0);
    assert_int_equal(rig_step(b, ids, SEQS), 0);
    const uint64_t *feed;
    const uint32_t fed = kvb_cache_feed(a->cache, &feed);
    assert_int_equal(kvb_cache_feed(b->cache, &feed), fed);
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        kvb_attend_spec x, y;
        assert_int_equal(rig_fetch(a, layer, a->pos, &x), 0);
        assert_int_equal(rig_fetch(b, layer, b->pos, &y), 0);
        for (uint32_t i = fed - SEQS; i < fed; i++) {
            const uint32_t n = rig_seen(a, &x, layer, a->pos, fed, i, seen[0]);
            assert_int_equal(rig_seen(b, &y, layer, b->pos, fed, i, seen[1]), n);
            assert_memory_equal(seen[0], seen[1], n * sizeof seen[0][0]);
        }
    }
}

static void as_copies_do(void **state)
{
    (void)state;
    EACH_CACHE(type, KVB_CACHE_REORDER)
    for (drawn = 1; drawn < 4; drawn++) {
        static rig a, b;
        open(&a, type);
        open(&b, type);
        const uint64_t seed = drawn;
        for (uint32_t turn = 0; turn < TURNS; turn++) {
            uint32_t dst[SEQS], src[SEQS], n = 1 + draw(SEQS), first = draw(SEQS);
            for (uint32_t i = 0; i < n; i++) {
                dst[i] = (first + i) % SEQS;
                src[i] = draw(12) ? draw(SEQS) : SEQS; /* which is empty */
            }
            step_compare(&a, &b);
            assert_int_equal(kvb_cache_seq_reorder(a.cache, dst, src, n), 0);
            copies_make(&b, dst, src, n);
            for (uint32_t g = 0; g < 3 && type != &kvb_cache_paged; g++) /* copies of pages part from each other */
                assert_int_equal(rig_usage_of(&a, g).cells_live, rig_usage_of(&b, g).cells_live);
        }
        rig_close(&a);
        rig_close(&b);
        drawn = seed;
    }
}

/* Rows that sequences of this length take along, and how many of them a slab copies. */
static void rows_stay(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, dst[4], src[4], copied;
    } calls[] = {
        {2, {0, 1}, {1, 0}, 0},             /* they change places */
        {4, {0, 1, 2, 3}, {1, 2, 3, 0}, 0}, /* a ring */
        {4, {0, 1, 2, 3}, {3, 1, 0, 2}, 0},
        {4, {0, 1, 2, 3}, {1, 1, 0, 0}, 2}, /* two die, two are wanted twice */
        {1, {0}, {3}, 1},                   /* a source that stays */
        {1, {2}, {SEQS}, 0},                /* emptied */
        {3, {2, 3, 0}, {2, 3, 0}, 0},       /* nothing */
    };
    EACH_CACHE(type, KVB_CACHE_REORDER)
    for (size_t i = 0; i < N(calls); i++) {
        static rig r;
        const uint32_t rows = type == &kvb_cache_slab ? 5 * calls[i].copied : 0;
        open(&r, type);
        for (uint32_t s = 0; s < 4; s++) {
            assert_int_equal(rig_step(&r, (const uint32_t[]){s, s, s, s, s}, 5), 0);
            rig_store(&r);
        }
        const kvb_cache_usage before = rig_usage_of(&r, 0);
        assert_int_equal(kvb_cache_seq_reorder(r.cache, calls[i].dst, calls[i].src, calls[i].n), 0);
        assert_int_equal(rig_usage_of(&r, 0).cells_moved - before.cells_moved, rows);
        rig_close(&r);
    }
}

/* A slab that is full of tokens has no cells for one more copy; sharing caches need none. */
static void want_of_cells(void **state)
{
    (void)state;
    EACH_CACHE(type, KVB_CACHE_REORDER)
    {
        static rig r;
        rig_open(&r, type, 12, 8, 3, 4);
        assert_int_equal(rig_step(&r, (const uint32_t[]){0, 0, 0, 0, 0, 1, 1, 1, 2, 2}, 10), 0);
        rig_store(&r);
        const uint32_t dst[] = {2, 1}, src[] = {0, 2};
        const int want = type == &kvb_cache_slab ? -ENOSPC : 0;
        kvb_cache_usage before = rig_usage(&r);
        assert_int_equal(kvb_cache_seq_reorder(r.cache, (const uint32_t[]){2, 1}, (const uint32_t[]){0, 0}, 2), want);
        kvb_cache_usage after = rig_usage(&r);
        if (want)
            rig_assert_same(&before, &after);
        else
            assert_int_equal(kvb_cache_seq_reorder(r.cache, (const uint32_t[]){2}, (const uint32_t[]){9}, 1), 0);
        if (want) /* twelve cells: what is left of 2 goes to 1 */
            assert_int_equal(kvb_cache_seq_reorder(r.cache, dst, src, 2), 0);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_copies_do),
        cmocka_unit_test(rows_stay),
        cmocka_unit_test(want_of_cells),
    };
    return cmocka_run_group_tests_name("reordering", tests, NULL, NULL);
}
