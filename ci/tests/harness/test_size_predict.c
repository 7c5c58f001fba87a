/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that what a cache allocates is known before it is opened: for every cache, pool and growth policy, over groups of any
 * shapes and limits and histories made by hand and at random, the allocator holds at every step what was predicted.
 */
#include "size_subject.h"

/* ---- by hand ------------------------------------------------------------------------------------------------- */

/* 100 tokens at once and one more, f16, two KV heads of 64: every term of the sum. */
static void known_sum(void **state)
{
    const kvb_size_step steps[] = {{0, 1, 100, 0, 1, KVB_SIZE_STEP}, {0, 1, 1, 0, 1, KVB_SIZE_STEP}};
    kvb_size_subject s = subject_make(&kvb_cache_contiguous, f16(), KVB_GROWTH_DOUBLE, 1, 120);
    kvb_pool_options empty = {.n_kv_heads = 2, .dim = 64, .min_chunk = 16, .capacity = 120};
    kvb_size_proof proof;
    (void)state;
    s.model = alike(3, rows_of(4, 2, 64, 64));
    prove(&s, steps, 2, &proof);
    size_t pool = f16()->bytes(f16(), &empty, 0), cells = 120 * 2 * 64 * 2; /* 16 · 8 is above the capacity */
    size_t plans = 100 * 4 + 101 * 4 + 128 * 8 + 16 * 4 + 16 * 4 + 16 * 8;  /* the prefill's, the single token's */
    size_t feeds = 100 * 16 + 16 * 16, account = 16 * 16 + 32 + 5 * 4;
    assert_int_equal(proof.allocated,
                     kvb_cache_struct_bytes(s.cache, &s.model) + 3 * 2 * (pool + cells) + plans + feeds + account);
    assert_int_equal(proof.cells, 101);
    assert_int_equal(proof.lengths, 5);
}

/* Of 1000 tokens a window of 20 with 3 sinks keeps what the next step of up to 8 may see, and room for that step; in one row,
 * without a V pool, where rows are latent. */
static void known_window(void **state)
{
    const kvb_size_step steps[] = {{0, 1, 8, 0, 124, KVB_SIZE_STEP}, {0, 1, 1, 0, 8, KVB_SIZE_STEP}};
    kvb_pool_options empty = {.n_kv_heads = 1, .dim = 64, .min_chunk = 30, .capacity = 30};
    (void)state;
    for (int latent = 0; latent < 2; latent++) {
        kvb_size_subject s = subject_make(&kvb_cache_window, f16(), KVB_GROWTH_DOUBLE, 1, 1000);
        kvb_size_proof proof;
        s.model = alike(100, rows_of(1, 1, 64, 64));
        s.model.groups[0].window = 20;
        s.model.groups[0].sinks = 3;
        s.model.groups[0].latent = latent;
        s.options.step = 8;
        prove(&s, steps, 2, &proof);
        assert_int_equal(proof.cells, 1000);
        size_t pool = f16()->bytes(f16(), &empty, 0) + (20 - 1 + 3 + 8) * 64 * 2;
        size_t pools = 100 * (latent ? 1 : 2) * pool + kvb_cache_struct_bytes(s.cache, &s.model);
        assert_in_range(proof.allocated, pools, pools + 4096); /* tables: some spans, runs and cells of a step */
    }
}

static void what_is_refused(void **state)
{
    const kvb_size_step two = {0, 2, 1, 0, 1, 0}, drafts = {0, 1, 1, 4, 1, 0}, many = {0, 1, 21, 0, 1, 0},
                        none = {0, 1, 0, 0, 1, 0}, shift = {0, 1, 0, 0, 1, KVB_SIZE_SHIFT};
    kvb_size_subject s = subject_make(&kvb_cache_contiguous, f16(), KVB_GROWTH_DOUBLE, 1, 20);
    kvb_cache_type other = kvb_cache_contiguous;
    uint64_t bytes[2];
    char why[200];
    (void)state;
    assert_int_equal(kvb_size_predict(&s, &two, 1, bytes, NULL, why, sizeof why), -EINVAL);
    assert_string_equal(why, "cache contiguous holds one sequence");
    assert_int_equal(kvb_size_predict(&s, &drafts, 1, bytes, NULL, why, sizeof why), -EINVAL);
    assert_string_equal(why, "cache contiguous takes no drafts");
    assert_int_equal(kvb_size_predict(&s, &many, 1, bytes, NULL, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_size_predict(&s, &none, 1, bytes, NULL, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_size_predict(&s, &shift, 1, bytes, NULL, why, sizeof why), -EINVAL);
    assert_string_equal(why, "cache contiguous cannot do that over f16");
    s.cache = &other;
    assert_int_equal(kvb_size_predict(&s, NULL, 0, bytes, NULL, why, sizeof why), -ENOTSUP);
    s.cache = &kvb_cache_contiguous;
    s.model.n_layers = 0;
    assert_int_equal(kvb_size_predict(&s, NULL, 0, bytes, NULL, why, sizeof why), -EINVAL);
    s = subject_make(&kvb_cache_window, f16(), KVB_GROWTH_DOUBLE, 1, 20);
    assert_int_equal(kvb_size_predict(&s, NULL, 0, bytes, NULL, why, sizeof why), -ENOTSUP);
    assert_non_null(strstr(why, "no layer has a window"));
}

/* Shifts for which there is no cell to copy to, or no row any more; nothing but room has changed then, and the next step says so. */
static void what_the_cache_refuses(void **state)
{
    const kvb_size_step copies[] = {
        {0, 1, 12, 0, 1, 0}, {0, 1, 0, 0, 1, KVB_SIZE_COPY}, {0, 1, 0, 0, 1, KVB_SIZE_SHIFT}, {1, 1, 3, 0, 1, 0}};
    const kvb_size_step behind[] = {{0, 1, 12, 0, 1, 0}, {0, 1, 1, 0, 1, 0}, {0, 1, 0, 0, 1, KVB_SIZE_SHIFT},
                                    {0, 1, 9, 0, 1, 0},  {0, 1, 1, 0, 1, 0}, {0, 1, 0, 0, 1, KVB_SIZE_SHIFT}};
    uint64_t bytes[7];
    bool refused[6];
    char why[200];
    kvb_size_proof proof;
    (void)state;
    for (uint32_t room = 23; room <= 24; room++) { /* a copy of each of 12 */
        kvb_size_subject s = subject_make(&kvb_cache_seq, f16(), KVB_GROWTH_DOUBLE, 2, 30);
        s.options.capacity = room;
        assert_int_equal(kvb_size_predict(&s, copies, 4, bytes, refused, why, sizeof why), room < 24 ? 0 : -ENOSPC);
        assert_int_equal(refused[2], room < 24);
        prove(&s, copies, room < 24 ? 4 : 3, &proof);
    }
    kvb_size_subject s = subject_make(&kvb_cache_window, f16(), KVB_GROWTH_DOUBLE, 1, 60);
    s.model.groups[0].chunk = 8;
    assert_int_equal(kvb_size_predict(&s, behind, 6, bytes, refused, why, sizeof why), 0);
    assert_true(refused[2]);  /* position 7 would be 8, where the next query's chunk begins */
    assert_false(refused[5]); /* to position 24 on, a chunk of its own */
    prove(&s, behind, 6, &proof);
}

/* ---- all caches, pools and policies ---------------------------------------------------------------------------- */

static void combination_prove(const kvb_cache_type *cache, const kvb_pool_type *pool, kvb_growth growth)
{
    uint32_t sequences = has(cache, KVB_CACHE_SEQ) ? 3 : 1;
    const uint32_t shared = has(cache, KVB_CACHE_FREEZES) ? 40 : has(cache, KVB_CACHE_PREFIX) ? 32 : 0;
    kvb_size_subject s = subject_make(cache, pool, growth, sequences, 88);
    kvb_size_step steps[KVB_SIZE_STEPS(3)];
    kvb_size_proof proof;
    s.model = alike(2, turned(rows_of(2, 1, 128, 128))); /* one layer sees all, the other a window and sinks */
    s.model.n_groups = 2;
    s.model.group_of[1] = 1;
    s.model.groups[1] = s.model.groups[0];
    s.model.groups[1].window = 12;
    s.model.groups[1].sinks = 2;
    s.options.step = 33;
    const kvb_size_history history = {sequences,
                                      75,
                                      33,
                                      KVB_SIZE_CALLS + 5,
                                      has(cache, KVB_CACHE_TREE) ? 3 : 0,
                                      4,
                                      shared,
                                      kvb_size_calls(&s),
                                      kvb_size_cuts(&s) ? 20 : 0};
    prove(&s, steps, kvb_size_steps(&history, steps), &proof);
    assert_int_equal(proof.cells, sequences * 75 - (sequences - 1) * shared);
}

static void every_combination(void **state)
{
    char why[160];
    uint32_t n = 0;
    (void)state;
    for (uint32_t g = 0; g < KVB_GROWTHS; g++)
        for (const kvb_cache_type *const *c = kvb_builtin_caches; *c && kvb_growth_available(g, why, sizeof why); c++)
            for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
                for (const kvb_pool_type *pool = *p; pool && kvb_cache_takes(*c, pool, pool, why, sizeof why);
                     pool = pool->rotated, n++)
                    combination_prove(*c, pool, (kvb_growth)g);
    print_message("# %u combinations\n", n);
}

/* ---- at random ------------------------------------------------------------------------------------------------- */

static uint32_t seed = 12345;
static uint32_t below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(seed >> 8) * n >> 24);
}

static bool pool_serves(const kvb_pool_type *pool, const kvb_model *m, bool v)
{
    char why[160];
    for (uint32_t g = 0; g < m->n_groups; g++)
        if (!kvb_group_scans(&m->groups[g]) && pool->supports && !(v && m->groups[g].latent) &&
            !pool->supports(pool, v ? m->groups[g].v_dim : m->groups[g].k_dim, why, sizeof why))
            return false;
    return true;
}

static const kvb_pool_type *any_pool(const kvb_model *m, bool v)
{
    const kvb_pool_type *pool = NULL;
    while (!pool || !pool_serves(pool, m, v)) {
        uint32_t n = 0;
        while (kvb_builtin_pools[n])
            n++;
        pool = kvb_builtin_pools[below(n)];
        if (below(3) == 0 && pool->rotated)
            pool = pool->rotated;
    }
    return pool;
}

static kvb_group any_states(void)
{
    static const kvb_elem elems[] = {KVB_F32, KVB_F16, KVB_BF16};
    const uint32_t taps = below(3) ? 2 + below(4) : 0;
    return (kvb_group){.kind = KVB_GROUP_SCAN,
                       .scan = {.kind = KVB_SCAN_LIGHTNING,
                                .heads = 1 + below(3),
                                .groups = 1,
                                .d_k = 1 + below(9),
                                .d_v = 1 + below(40),
                                .conv_width = taps,
                                .conv_channels = taps ? 1 + below(50) : 0,
                                .state_elem = elems[below(3)],
                                .conv_elem = elems[below(3)]}};
}

/* Up to three groups of any shapes and limits, in layers here and there. */
static kvb_model any_model(bool small)
{
    static const uint32_t dims[] = {4, 7, 32, 64, 96, 128, 160};
    kvb_model m = {.n_layers = 1 + below(small ? 2 : 4)};
    m.n_groups = 1 + below(m.n_layers < 3 ? m.n_layers : 3);
    for (uint32_t layer = 0; layer < m.n_layers; layer++)
        m.group_of[layer] = (uint8_t)(layer < m.n_groups ? layer : below(m.n_groups));
    for (uint32_t g = 0; g < m.n_groups; g++) {
        uint32_t kv_heads = 1 + below(small ? 2 : 4), limit = below(3);
        m.groups[g] = rows_of(kv_heads * (1 + below(4)), kv_heads, dims[below(7)], dims[below(7)]);
        m.groups[g].latent = m.groups[g].v_dim <= m.groups[g].k_dim && below(4) == 0;
        if (below(4))
            m.groups[g] = turned(m.groups[g]);
        m.groups[g].rope.known = true;
        if (limit == 0)
            m.groups[g].window = 1 + below(60);
        if (limit == 0 && below(2))
            m.groups[g].sinks = 1 + below(9);
        if (limit == 1)
            m.groups[g].chunk = 1 + below(60);
        if (below(4) == 0)
            m.groups[g] = any_states();
    }
    return m;
}

/* What a history has come to: enough to know which call is one. */
typedef struct so_far {
    uint32_t len[KVB_MAX_SEQS];
    uint32_t used, fed; /* tokens of all sequences together, one that several hold in each; that steps have brought */
    bool moved;
} so_far;

static uint32_t sum(const kvb_size_subject *s, const uint32_t *len)
{
    uint32_t n = 0;
    for (uint32_t q = 0; q < s->options.max_seqs; q++)
        n += len[q];
    return n;
}

/* The first n of a sequence's whole pages, so many, are found for those behind it that are empty. */
static kvb_size_step any_share(const kvb_size_subject *s, const so_far *l, uint32_t first)
{
    uint32_t n = 0;
    while (first + n + 1 < s->options.max_seqs && !l->len[first + n + 1])
        n++;
    return (kvb_size_step){first, n, l->len[first], 0, 1, KVB_SIZE_SHARE};
}

/* A call, if it can be made: any but a step. */
static bool any_call(const kvb_size_subject *s, so_far *l, kvb_size_step *step)
{
    const uint32_t first = step->first, page = s->options.page_cells ? s->options.page_cells : 16;
    uint32_t len[KVB_MAX_SEQS], call = 1 + below(KVB_SIZE_SHARE);
    *step = (kvb_size_step){first, 1, 0, 0, 1, (kvb_size_call)call};
    memcpy(len, l->len, sizeof len);
    if (call == KVB_SIZE_SHARE) {
        *step = any_share(s, l, first);
        for (uint32_t i = 1; i <= step->n_seqs; i++)
            len[first + i] = step->tokens / page * page; /* less where there are states */
        if (!has(s->cache, KVB_CACHE_PREFIX) || !step->n_seqs || !step->tokens)
            return false;
    } else if (!(kvb_size_calls(s) >> call & 1)) {
        return false;
    }
    if (call == KVB_SIZE_SHIFT)
        len[first] += len[first] > 0;
    if (call == KVB_SIZE_REORDER) {
        step->n_seqs = 1 + below(s->options.max_seqs - first);
        for (uint32_t i = 0; i < step->n_seqs; i++)
            len[first + i] = l->len[i + 1 < step->n_seqs ? first + i + 1 : first + (step->n_seqs > 1)];
    }
    if (call == KVB_SIZE_COPY) {
        if (first + 1 == s->options.max_seqs)
            return false;
        step->n_seqs = 1 + below(s->options.max_seqs - first - 1);
        step->tokens = kvb_size_cuts(s) && below(2) ? below(l->len[first] + 3) : 0;
        for (uint32_t i = 1; i <= step->n_seqs; i++) {
            const uint32_t kept = step->tokens < len[first + i] ? step->tokens : len[first + i];
            len[first + i] = len[first] > kept ? len[first] : kept;
        }
    }
    l->moved |= call == KVB_SIZE_SHIFT || call == KVB_SIZE_DIVIDE;
    if (sum(s, len) > s->options.capacity || len[first] > s->options.seq_capacity ||
        (call == KVB_SIZE_DEFRAG && l->fed == s->options.capacity) ||
        (l->moved && (call == KVB_SIZE_SWAP || call == KVB_SIZE_RELOAD)))
        return false;
    memcpy(l->len, len, sizeof len);
    l->used = sum(s, len);
    return true;
}

/* Sequences in any order, of any lengths, alone or several together; drafts; all other calls between them. */
static size_t any_steps(const kvb_size_subject *s, kvb_size_step *steps, size_t most)
{
    so_far l = {.used = 0};
    size_t n = 0;
    const uint32_t capacity = s->options.capacity;
    const bool stays = has(s->cache, KVB_CACHE_PREFIX); /* what nobody holds gives way */
    for (size_t tries = 0; tries < 4 * most && n < most; tries++) {
        kvb_size_step step = {0, 1, 1 + below(40), 0, 1 + below(3), KVB_SIZE_STEP};
        if (has(s->cache, KVB_CACHE_SEQ)) {
            step.first = below(s->options.max_seqs);
            if (below(2))
                step.n_seqs = 1 + below(s->options.max_seqs - step.first);
        }
        if (step.n_seqs > 1)
            step.tokens = 1;
        if (has(s->cache, KVB_CACHE_TREE) && below(3) == 0) {
            step.tokens = 1 + below(5);
            step.drafts = 1 + below((step.n_seqs > 1 ? 12 : 30) / step.tokens);
        }
        if (below(2)) {
            if (any_call(s, &l, &step))
                steps[n++] = step;
            continue;
        }
        uint32_t more = step.n_seqs * step.tokens * step.times, longest = 0;
        for (uint32_t i = 0; i < step.n_seqs; i++)
            longest = l.len[step.first + i] > longest ? l.len[step.first + i] : longest;
        if ((l.used > l.fed || stays ? l.used : l.fed) + more + step.n_seqs * step.tokens * step.drafts > capacity ||
            longest + step.tokens * (step.times + step.drafts) > s->options.seq_capacity)
            continue;
        for (uint32_t i = 0; i < step.n_seqs; i++)
            l.len[step.first + i] += step.tokens * step.times;
        l.used += more;
        l.fed += more;
        l.moved = false;
        steps[n++] = step;
    }
    return n;
}

static void random_histories(void **state)
{
    uint64_t lengths = 0;
    uint32_t dropped = 0, n = 60 * n_caches();
    char why[160];
    (void)state;
    for (uint32_t i = 0; i < n; i++) {
        kvb_growth growth = (kvb_growth)below(KVB_GROWTHS);
        if (!kvb_growth_available(growth, why, sizeof why))
            growth = KVB_GROWTH_DOUBLE;
        const kvb_cache_type *cache = kvb_builtin_caches[i % n_caches()];
        kvb_size_subject s = subject_make(cache, f16(), growth,
                                          !has(cache, KVB_CACHE_SEQ) ? 1 : 1 + below(i % 10 ? 9 : 90), 60 + below(200));
        bool huge = growth == KVB_GROWTH_RESERVE_THP || growth == KVB_GROWTH_DOUBLE_THP;
        kvb_size_step steps[16];
        kvb_size_proof proof;
        do
            s.model = any_model(huge);
        while (cache->serves && !cache->serves(&s.model, why, sizeof why));
        s.options.seq_ids += below(2) ? below(100) : 0;
        if (s.options.max_seqs <= KVB_SEQ_IDS && below(3) == 0)
            s.options.seq_ids = 0;
        s.options.min_chunk = 1 + below(100);
        s.options.capacity -= below(50);
        s.options.rollback = below(2) ? below(20) : 0;
        s.options.state_depth = below(2) ? below(50) : 0;
        s.options.page_cells = below(3) ? 1 + below(40) : 0;
        do {
            s.options.k_pool = any_pool(&s.model, false);
            s.options.v_pool = any_pool(&s.model, true);
        } while (!kvb_cache_takes(cache, s.options.k_pool, s.options.v_pool, why, sizeof why));
        if (has(cache, KVB_CACHE_PREFIX))
            s.options.capacity = s.options.capacity / (1 + below(6)) + 1;
        if (below(2))
            s.options.prefix_bytes = (1 + below(100)) * kvb_size_cell_bytes(&s);
        size_t n_steps = any_steps(&s, steps, 16);
        for (size_t k = 0; k < n_steps && i % 3; k++) { /* else no bound on steps is known */
            uint32_t tokens = steps[k].call ? 0 : steps[k].n_seqs * kvb_size_brings(&steps[k]);
            s.options.step = s.options.step > tokens ? s.options.step : tokens;
        }
        prove(&s, steps, n_steps, &proof);
        for (uint32_t g = 0; (cache == &kvb_cache_window || cache == &kvb_cache_paged) && g < s.model.n_groups; g++)
            dropped += /* far past some window? */
                kvb_group_limits(&s.model.groups[g]) && s.options.step &&
                proof.cells > 2 * s.options.max_seqs *
                                      (s.model.groups[g].window + s.model.groups[g].chunk + s.model.groups[g].sinks +
                                       s.options.rollback) +
                                  s.options.step;
        lengths += proof.lengths;
    }
    print_message("# %u histories, compared at %lu lengths; %u groups let go of most of their rows\n", n, lengths,
                  dropped);
    assert_true(lengths > 3600 && dropped > 5);
}

/* Pages that nobody holds stay over a load of the whole cache, but for rows that hang together: then they are free, and written first. */
static void pages_beside_a_load(void **state)
{
    static const char *pools[] = {"f16", "kivi4-v"};
    static const kvb_size_step steps[] = {{.n_seqs = 1, .tokens = 80, .times = 1},
                                          {.first = 1, .n_seqs = 1, .tokens = 20, .times = 1},
                                          {.n_seqs = 3, .times = 1, .call = KVB_SIZE_REORDER}, /* 80 tokens go */
                                          {.n_seqs = 1, .times = 1, .call = KVB_SIZE_RELOAD},
                                          {.first = 1, .n_seqs = 1, .tokens = 90, .times = 1}};
    (void)state;
    for (uint32_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        const kvb_pool_type *pool = kvb_size_pool_find(pools[i]);
        kvb_size_subject s = subject_make(&kvb_cache_paged_prefix, pool, KVB_GROWTH_DOUBLE, 3, 100);
        kvb_size_proof proof;
        prove(&s, steps, sizeof steps / sizeof *steps, &proof);
    }
}

/* Each id takes some bytes, and each sequence of a step; the cells of a window are given back and found again. */
static void many_sequences(void **state)
{
    enum { SEQUENCES = 4096 };
    static kvb_size_step steps[KVB_SIZE_STEPS(SEQUENCES)];
    (void)state;
    for (uint32_t i = 0; i < n_caches(); i++) {
        const kvb_cache_type *cache = kvb_builtin_caches[i];
        const uint32_t shared = has(cache, KVB_CACHE_FREEZES) ? 2 : 0;
        const kvb_size_history history = {SEQUENCES, 5, 3, 2, 0, 0, shared, 0, 0};
        kvb_size_subject s = subject_make(cache, f16(), KVB_GROWTH_DOUBLE, SEQUENCES, 5);
        kvb_size_proof proof;
        if (!has(cache, KVB_CACHE_SEQ))
            continue;
        s.model = alike(1, rows_of(1, 1, 4, 4));
        s.model.groups[0].window = cache == &kvb_cache_window || cache == &kvb_cache_paged ? 2 : 0;
        s.options.step = SEQUENCES;
        prove(&s, steps, kvb_size_steps(&history, steps), &proof);
        assert_int_equal(proof.cells, SEQUENCES * 5 - (SEQUENCES - 1) * shared);
    }
}

/* Taken in one go, equal steps come to the same as one by one. */
static void at_once_or_one_by_one(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        const kvb_cache_type *cache = kvb_builtin_caches[i % n_caches()];
        bool feeds_again = has(cache, KVB_CACHE_FORGETS);
        uint32_t sequences = has(cache, KVB_CACHE_SEQ) ? 1 + below(5) : 1,
                 context = 1 + below(feeds_again ? 1000 : 5000);
        const kvb_size_history history = {sequences, context, 1 + below(600), below(9), 0, 0, 0, 0, 0};
        kvb_size_subject s = subject_make(cache, f16(), KVB_GROWTH_DOUBLE, sequences, context);
        s.model.groups[0].window = 1 + below(500);
        kvb_size_step steps[KVB_SIZE_STEPS(5)], one = {0};
        static kvb_size_step single[5 * 5000];
        static uint64_t at_once[KVB_SIZE_STEPS(5) + 1], by_one[5 * 5000 + 1];
        size_t n = kvb_size_steps(&history, steps), n_single = 0;
        char why[160];
        for (size_t k = 0; k < n; k++) {
            one = steps[k];
            one.times = 1;
            for (uint32_t t = 0; t < steps[k].times; t++)
                single[n_single++] = one;
        }
        assert_int_equal(kvb_size_predict(&s, steps, n, at_once, NULL, why, sizeof why), 0);
        assert_int_equal(kvb_size_predict(&s, single, n_single, by_one, NULL, why, sizeof why), 0);
        assert_int_equal(at_once[n], by_one[n_single]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_sum),           cmocka_unit_test(known_window),
        cmocka_unit_test(what_is_refused),     cmocka_unit_test(what_the_cache_refuses),
        cmocka_unit_test(every_combination),   cmocka_unit_test(random_histories),
        cmocka_unit_test(pages_beside_a_load), cmocka_unit_test(at_once_or_one_by_one),
        cmocka_unit_test(many_sequences),
    };
    return cmocka_run_group_tests_name("what caches allocate, predicted", tests, NULL, rows_free);
}
