/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that caches hold up to 4096 sequences, with ids up to the last one and none beyond it, all alive at once in one
 * step, thousands forked. And that caches of 63, 64, 65, 128 and 129 live sequences keep them apart: sets of rows and
 * sequences are words of 64 bits. Sequences at the borders of words are removed and return, are forked into a freed
 * row, reordered, saved and loaded. Each sees its own tokens, and a slab's high-water mark is its last sequence's.
 */
#include "saved.h"

enum { SEQS = KVB_MAX_SEQS };

static uint32_t pos[4 * SEQS]; /* by ordinal */

/* Each of m sequences gets a token and must then see its n tokens, ascending. tokens: [SEQS][n] */
static void step_check(rig *r, const uint32_t *ids, uint32_t m, const uint64_t *tokens, uint32_t n)
{
    uint64_t seen[8];
    assert_int_equal(kvb_cache_begin_step(r->cache, ids, m), 0);
    for (uint32_t i = 0; i < m; i++)
        pos[(n - 1) * SEQS + i] = n - 1;
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        const uint64_t *feed;
        const uint32_t fed = kvb_cache_feed(r->cache, &feed);
        kvb_attend_spec spec;
        assert_int_equal(rig_fetch(r, layer, pos, &spec), 0);
        for (uint32_t q = layer; q < m; q += 137) {
            assert_int_equal(rig_seen(r, &spec, layer, pos, fed, fed - m + q, seen), n);
            assert_memory_equal(seen, tokens + ids[q] * n, n * sizeof *seen);
        }
    }
    for (uint32_t i = 0; i < m; i++)
        assert_int_equal(kvb_cache_length(r->cache, ids[i]), n);
}

/* All sequences get a token in one step, in no order. Half are forked from the other half; half of all get one more
 * token; all but one are removed. */
TEST(test_all_alive)
{
    static uint32_t ids[SEQS];
    static uint64_t own[SEQS], both[SEQS][2];
    const uint32_t beyond = SEQS;
    for (uint32_t i = 0; i < SEQS; i++) {
        ids[i] = (i * 1021 + 7) % SEQS;
        own[ids[i]] = i;
    }
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        const bool copies = type != &kvb_cache_shared_prefix; /* that one reads one front a step */
        rig r = {.n_groups = 2, .groups = {{.window = 0}, {.window = 2, .sinks = 1}}, .seq_ids = SEQS};
        assert_int_equal(rig_try_open(&r, type, 3 * SEQS, 7, SEQS, 64), 0);
        assert_int_equal(kvb_cache_begin_step(r.cache, &beyond, 1), -EINVAL);
        assert_string_equal(kvb_cache_why(r.cache), "sequence 4096 is out of range: 0 .. 4095");
        step_check(&r, ids, SEQS, own, 1);
        for (uint32_t i = 0; i < SEQS; i++) {
            const uint32_t from = copies ? ids[i] & ~1u : ids[i];
            both[ids[i]][0] = own[from];
            both[ids[i]][1] = SEQS + i;
        }
        for (uint32_t s = 1; s < SEQS && copies; s += 2) {
            assert_int_equal(kvb_cache_seq_rm(r.cache, s, 0, KVB_POS_END), 0);
            assert_int_equal(kvb_cache_seq_cp(r.cache, s - 1, s, 0, KVB_POS_END), 0);
        }
        step_check(&r, ids, SEQS / 2, both[0], 2);
        assert_int_equal(kvb_cache_seq_keep(r.cache, SEQS - 1), 0);
        for (uint32_t s = 0; s <= SEQS; s++)
            assert_int_equal(kvb_cache_length(r.cache, s) > 0, s == SEQS - 1);
        assert_int_equal(kvb_cache_clear(r.cache), 0);
        assert_int_equal(rig_usage(&r).cells_live, 0);
        rig_close(&r);
    }
}

/* A step, accepted or refused, clears its marks in the tables by id: the same call gets the same answer again. */
TEST(test_refused_steps)
{
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        rig r = {.n_groups = 1, .groups = {{.window = 100}}, .seq_ids = 9};
        assert_int_equal(rig_try_open(&r, type, 64, 4, 2, 4), 0);
        for (int again = 0; again < 3; again++) {
            static const uint32_t out[] = {8, 8, 9}, long_one[] = {8, 8, 8, 8, 8}, three[] = {1, 8, 2},
                                  fits[] = {8, 1, 8};
            assert_int_equal(kvb_cache_begin_step(r.cache, out, 3), -EINVAL);
            assert_int_equal(kvb_cache_begin_step(r.cache, long_one, 5), -ENOSPC);
            assert_int_equal(kvb_cache_begin_step(r.cache, three, 3), -ENOSPC);
            assert_int_equal(kvb_cache_begin_step(r.cache, fits, 3), 0);
            assert_int_equal(kvb_cache_length(r.cache, 8), 2);
            assert_int_equal(kvb_cache_clear(r.cache), 0);
        }
        rig_close(&r);
    }
}

/* ---- borders of words -------------------------------------------------------------------------------------------- */

enum { MOST = 129, LEN = 8 };

static rig r;
static uint32_t n; /* sequences alive; id n is one more */
static uint64_t own[MOST + 1][LEN];
static uint32_t len[MOST + 1];

/* Each of these sequences gets a token and must see what it holds. */
static void step(const uint32_t *ids, uint32_t count)
{
    static uint64_t seen[4 * RIG_MAX_STEP];
    const uint64_t *feed;
    assert_int_equal(rig_step(&r, ids, count), 0);
    for (uint32_t i = 0; i < count; i++)
        own[ids[i]][len[ids[i]]++] = r.next - count + i;
    const uint32_t fed = kvb_cache_feed(r.cache, &feed);
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        kvb_attend_spec spec;
        assert_int_equal(rig_fetch(&r, layer, r.pos, &spec), 0);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(rig_seen(&r, &spec, layer, r.pos, fed, fed - count + i, seen), len[ids[i]]);
            qsort(own[ids[i]], len[ids[i]], sizeof **own, rig_compare);
            assert_memory_equal(seen, own[ids[i]], len[ids[i]] * sizeof *seen);
        }
    }
}

static void step_all(void)
{
    uint32_t ids[MOST];
    for (uint32_t s = 0; s < n; s++)
        ids[s] = s;
    step(ids, n);
}

/* Lengths are those of the test's account; a slab has as many cells in use as there are tokens. */
static void lengths_check(void)
{
    uint32_t held = 0;
    for (uint32_t s = 0; s <= n; s++) {
        assert_int_equal(kvb_cache_length(r.cache, s), len[s]);
        held += len[s];
    }
    if (!strcmp(kvb_cache_type_of(r.cache)->name, "slab"))
        assert_int_equal(rig_usage(&r).cells_live, held);
}

static void leave(uint32_t s)
{
    assert_int_equal(kvb_cache_seq_rm(r.cache, s, 0, KVB_POS_END), 0);
    len[s] = 0;
}

/* Fills the cache, one sequence after the other. A slab takes its rows from the first on. */
static void open_full(const kvb_cache_type *type)
{
    const bool slab = !strcmp(type->name, "slab");
    r = (rig){.n_groups = 2, .groups = {{.window = 0}, {.window = 10000}}, .seq_ids = n + 1};
    assert_int_equal(rig_try_open(&r, type, n * LEN, LEN, n, 4), 0);
    memset(len, 0, sizeof len);
    for (uint32_t s = 0; s < n; s++) {
        step(&s, 1);
        if (slab)
            assert_int_equal(rig_usage(&r).high_water, s * LEN + 1);
    }
    assert_int_equal(kvb_cache_begin_step(r.cache, &n, 1), -ENOSPC); /* one too many */
    lengths_check();
}

/* Each sequence at a border is removed and another is forked into its place; that one is removed, the first returns. */
static void leave_and_return(void)
{
    for (uint32_t s = 0; s < n; s++) {
        const uint32_t neighbour = (s + 1) % n, two[] = {s, neighbour}, forked[] = {n, neighbour};
        if (s % 64 > 1 && s % 64 < 62)
            continue;
        leave(s);
        lengths_check();
        assert_int_equal(kvb_cache_seq_cp(r.cache, neighbour, n, 0, KVB_POS_END), 0);
        memcpy(own[n], own[neighbour], sizeof *own);
        len[n] = len[neighbour];
        assert_int_equal(kvb_cache_begin_step(r.cache, &s, 1), -ENOSPC);
        step(forked, 2);
        leave(n);
        leave(neighbour); /* returns by steps, so that sequences stay short */
        step(two, 2);
        lengths_check();
    }
    step_all();
}

static void reorder(const uint32_t *dst, const uint32_t *src, uint32_t count)
{
    static uint64_t was[MOST + 1][LEN];
    uint32_t had[MOST + 1];
    memcpy(was, own, sizeof own);
    memcpy(had, len, sizeof len);
    assert_int_equal(kvb_cache_seq_reorder(r.cache, dst, src, count), 0);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(own[dst[i]], was[src[i]], sizeof *own);
        len[dst[i]] = had[src[i]];
    }
    lengths_check();
}

/* Each sequence at a border is copied over the next one; then each sequence takes the place of the next. */
static void take_places(void)
{
    static uint32_t dst[MOST], src[MOST];
    for (uint32_t s = 0; s < n; s++) {
        const uint32_t next[] = {(s + 1) % n}, both[] = {s, (s + 1) % n};
        dst[s] = s;
        src[s] = (s + 1) % n;
        if (s % 64 > 61) {
            reorder(next, &s, 1);
            step(both, 2);
            leave(s);
            leave(*next);
            step(both, 2);
        }
    }
    reorder(dst, src, n);
    step_all();
}

/* Two sequences that began after the save, in another's row, are gone after the load; all others are as before. */
static void save_and_load(void)
{
    const uint32_t two[] = {61, n - 1}, had = len[60];
    static uint64_t was[LEN];
    memcpy(was, own[60], sizeof was);
    leave(two[0]);
    leave(two[1]);
    assert_int_equal(kvb_cache_save(r.cache, KVB_SEQ_ALL, path), 0);
    leave(60);
    step(two, 2);
    assert_int_equal(kvb_cache_load(r.cache, KVB_SEQ_ALL, path), 0);
    len[two[0]] = len[two[1]] = 0;
    memcpy(own[60], was, sizeof was);
    len[60] = had;
    lengths_check();
    step(two, 2);
    step_all();
    leave_and_return();
}

TEST(borders_are_held)
{
    static const uint32_t counts[] = {63, 64, 65, 128, 129};
    for (uint32_t i = 0; i < N(counts); i++)
        EACH_CACHE(type, KVB_CACHE_SEQ)
        {
            n = counts[i];
            open_full(type);
            leave_and_return();
            if (type->flags & KVB_CACHE_REORDER)
                take_places();
            if (type->flags & KVB_CACHE_SAVES)
                save_and_load();
            for (uint32_t s = 0; s + 1 < n; s++)
                len[s] = 0;
            assert_int_equal(kvb_cache_seq_keep(r.cache, n - 1), 0); /* frees all other rows */
            lengths_check();
            step_all();
            rig_close(&r);
        }
}
