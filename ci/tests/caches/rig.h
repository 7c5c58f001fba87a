/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache for tests, of a model with one to three groups. Each row names its token, so that a test reads through mask
 * and view which tokens a query sees. f32: channel 0 holds the token's ordinal, channel 1 the layer and KV head,
 * channel 2 K or V (latent rows: K; V is their beginning). Other formats: the signs of a row are a hash of all these,
 * and magnitudes lie between 1/2 and 1. A row belongs to the token whose signs it has, up to a quarter of them.
 */
#ifndef KVB_TEST_RIG_H
#define KVB_TEST_RIG_H

#include "ci/tests/tests.h"
#include "caches/cache.h"

enum { RIG_GROUPS = 3, RIG_LAYERS = 3, RIG_KV_HEADS = 2, RIG_K_DIM = 4, RIG_V_DIM = 3, RIG_MAX_STEP = 4096 };
enum { RIG_CODED_DIM = 128, RIG_CODED_TOKENS = 1024 }; /* what every format can store; ordinals below */

typedef struct rig {
    kvb_allocator allocator;
    kvb_cache *cache;
    char why[160];
    const kvb_pool_type *pool, *v_pool; /* of K and V, NULL: f32; of V, NULL: the same as K's */
    kvb_growth growth;
    uint32_t seq_ids, rollback, step, page_cells, state_depth;
    uint32_t n_groups;            /* layer l has group l % n_groups; 0: one group */
    kvb_group groups[RIG_GROUPS]; /* window, sinks, chunk, latent, scans; the rig sets heads and dims */
    kvb_model model;
    uint64_t n_ordinals;   /* 1 + highest ordinal of the rows stored so far */
    const int32_t *tokens; /* token ids of the next steps; NULL: not known */
    uint64_t prefix_bytes;
    uint32_t hash_bits;
    /* kept by rig_step() and rig_propose() */
    uint64_t next;                  /* ordinal of the next token */
    uint32_t n_new;                 /* tokens of the step in force */
    uint32_t pos[RIG_CODED_TOKENS]; /* of each ordinal */
} rig;

#define N(array)        (uint32_t)(sizeof(array) / sizeof *(array))
#define LIST(type, ...) (const type[]){__VA_ARGS__}, sizeof((const type[]){__VA_ARGS__}) / sizeof(type)
#define IDS(...)        LIST(uint32_t, __VA_ARGS__) /* items, count */
#define TOKENS(...)     LIST(uint64_t, __VA_ARGS__)
#define PARENTS(...)    LIST(int32_t, __VA_ARGS__)

static inline const kvb_group *rig_group(const rig *r, uint32_t layer)
{
    return kvb_model_group(&r->model, layer);
}

/* Groups differ in heads and dims, too. */
static inline kvb_group rig_group_make(const rig *r, uint32_t g)
{
    kvb_group group = r->groups[g];
    if (kvb_group_scans(&group))
        return group;
    group.kv_heads = g == 1 ? 1 : RIG_KV_HEADS;
    group.heads = 2 * group.kv_heads;
    group.k_dim = r->pool ? RIG_CODED_DIM : RIG_K_DIM + g;
    group.v_dim = r->pool ? RIG_CODED_DIM : RIG_V_DIM + (g == 2);
    group.scale = 1;
    group.rope.known = true; /* no element is rotated: rows stay as they are */
    return group;
}

static inline void rig_model_make(rig *r)
{
    r->model = (kvb_model){.n_layers = RIG_LAYERS, .n_groups = r->n_groups ? r->n_groups : 1};
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
        r->model.group_of[layer] = (uint8_t)(layer % r->model.n_groups);
    for (uint32_t g = 0; g < r->model.n_groups; g++)
        r->model.groups[g] = rig_group_make(r, g);
}

static inline int rig_try_open(rig *r, const kvb_cache_type *type, uint32_t capacity, uint32_t seq_capacity,
                               uint32_t max_seqs, uint32_t min_chunk)
{
    rig_model_make(r);
    const kvb_cache_options options = {
        .capacity = capacity,
        .seq_capacity = seq_capacity,
        .seq_ids = r->seq_ids,
        .max_seqs = max_seqs,
        .step = r->step,
        .rollback = r->rollback,
        .state_depth = r->state_depth,
        .prefix_bytes = r->prefix_bytes,
        .hash_bits = r->hash_bits,
        .page_cells = r->page_cells ? r->page_cells : 1,
        .min_chunk = min_chunk,
        .growth = r->growth,
        .k_pool = r->pool ? r->pool : kvb_builtin_pools[0],
        .v_pool = r->v_pool ? r->v_pool
                  : r->pool ? r->pool
                            : kvb_builtin_pools[0],
        .allocator = &r->allocator,
    };
    r->cache = NULL;
    return kvb_cache_open(type, &r->model, &options, &r->cache, r->why, sizeof r->why);
}

/* Loops over the built-in caches with these flags; 0: over all. */
#define EACH_CACHE(type, flag)                                                                                         \
    for (const kvb_cache_type *const *each = kvb_builtin_caches, *type = *each; type; type = *++each)                  \
        if ((type->flags & (flag)) == (flag))

/* Opens a cache of two groups: one without limits, one with a window that no test fills. */
static inline void rig_open(rig *r, const kvb_cache_type *type, uint32_t capacity, uint32_t seq_capacity,
                            uint32_t max_seqs, uint32_t min_chunk)
{
    *r = (rig){.n_groups = 2, .groups = {{.window = 0}, {.window = 10000}}};
    assert_int_equal(rig_try_open(r, type, capacity, seq_capacity, max_seqs, min_chunk), 0);
}

/* Closes the cache, which must free every byte. */
static inline void rig_close(rig *r)
{
    kvb_cache_close(r->cache);
    assert_int_equal(r->allocator.current_bytes, 0);
}

/* A call of the cache must have answered `want`, with these words in its reason. */
static inline void rig_refused(const rig *r, int got, int want, const char *words)
{
    tests_refused(got, want, kvb_cache_why(r->cache), words);
}

/* ---- rows ------------------------------------------------------------------------------------------------- */

static inline uint64_t rig_mix(uint64_t digest, uint64_t word)
{
    digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
    return digest ^ digest >> 29;
}

/* Goes on with a digest by n bytes. Four words abreast hide the latency of the products. */
static inline uint64_t rig_digest(uint64_t digest, const void *bytes, size_t n)
{
    uint64_t w[4], a = 1, b = 2, c = 3;
    const char *at = bytes;
    for (; n >= sizeof w; n -= sizeof w, at += sizeof w) {
        memcpy(w, at, sizeof w);
        digest = rig_mix(digest, w[0]);
        a = rig_mix(a, w[1]);
        b = rig_mix(b, w[2]);
        c = rig_mix(c, w[3]);
    }
    memset(w, 0, sizeof w);
    memcpy(w, at, n);
    return rig_mix(rig_mix(rig_mix(rig_mix(digest, w[0]), w[1] ^ a), w[2] ^ b), w[3] ^ c);
}

static inline uint64_t rig_hash(uint64_t ordinal, uint32_t layer, uint32_t h, float kind, uint32_t word)
{
    uint64_t z = ordinal * 0x9e3779b97f4a7c15u + (uint64_t)(layer * 16 + h + 1) * 0xd1342543de82ef95u +
                 (uint64_t)(kind * 1000 + (float)word) * 0x2545f4914f6cdd1du;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u; /* splitmix64 */
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void rig_coded_make(uint64_t ordinal, uint32_t layer, uint32_t h, float kind, float *row)
{
    for (uint32_t c = 0; c < RIG_CODED_DIM; c += 8) {
        uint64_t signs = rig_hash(ordinal, layer, h, kind, c / 64) >> c % 64;
        uint64_t sizes = rig_hash(ordinal, layer, h, kind, 64 + c / 8);
        for (uint32_t i = 0; i < 8; i++) {
            float size = 0.5f + (float)(sizes >> i * 8 & 255) / 510.0f;
            row[c + i] = signs >> i & 1 ? -size : size;
        }
    }
}

/* Made once: tests store the same rows many times. */
static inline const float *rig_coded_row(uint64_t ordinal, uint32_t layer, uint32_t h, float kind)
{
    static float made[RIG_CODED_TOKENS][RIG_LAYERS][RIG_KV_HEADS][2][RIG_CODED_DIM];
    assert_true(ordinal < RIG_CODED_TOKENS && layer < RIG_LAYERS && h < RIG_KV_HEADS);
    float *row = made[ordinal][layer][h][kind == 2];
    if (row[0] == 0) /* not made yet */
        rig_coded_make(ordinal, layer, h, kind, row);
    return row;
}

/* The token below n to which a coded row belongs; UINT64_MAX: none. */
static inline uint64_t rig_row_owner(const float *row, uint64_t n, uint32_t layer, uint32_t h, float kind)
{
    static uint64_t last; /* where to begin: the next row often belongs to the same token, or to its neighbour */
    uint64_t signs[RIG_CODED_DIM / 64] = {0};
    for (uint32_t c = 0; c < RIG_CODED_DIM; c++)
        signs[c / 64] |= (uint64_t)(row[c] < 0) << c % 64;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t o = (last + i) % n;
        int wrong = 0;
        for (uint32_t w = 0; w < RIG_CODED_DIM / 64; w++)
            wrong += __builtin_popcountll(signs[w] ^ rig_hash(o, layer, h, kind, w));
        if (wrong < RIG_CODED_DIM / 4) /* another token: half of the signs, give or take a twelfth */
            return last = o;
    }
    return UINT64_MAX;
}

/* Rows [n][KV heads][dim] of these ordinals; kind 1: K, 2: V. */
static inline void rig_rows(const rig *r, const uint64_t *ordinals, uint32_t n, uint32_t layer, float kind, float *rows)
{
    const kvb_group *g = rig_group(r, layer);
    uint32_t dim = kind == 1 ? g->k_dim : g->v_dim;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t h = 0; h < g->kv_heads; h++) {
            float *row = rows + ((size_t)i * g->kv_heads + h) * dim;
            if (r->pool) {
                memcpy(row, rig_coded_row(ordinals[i], layer, h, kind), dim * sizeof *row);
                continue;
            }
            memset(row, 0, dim * sizeof *row);
            row[0] = (float)ordinals[i];
            row[1] = (float)(layer * 16 + h);
            row[2] = kind;
        }
    }
}

/* The token whose row lies in cell c. */
static inline uint64_t rig_owner(const rig *r, const kvb_view *view, uint32_t layer, uint32_t h, uint32_t c, float kind)
{
    float coded[RIG_CODED_DIM];
    if (r->pool) {
        kvb_view_read(view, h, c, 1, coded);
        return rig_row_owner(coded, r->n_ordinals, layer, h, kind);
    }
    const float *row = kvb_view_row(view, h, c);
    assert_true(row[1] == (float)(layer * 16 + h) && row[2] == kind);
    return (uint64_t)row[0];
}

/* Stores the feed in one layer and fills *spec. pos_of[ordinal]: each token's position. */
static inline int rig_fetch(rig *r, uint32_t layer, const uint32_t *pos_of, kvb_attend_spec *spec)
{
    static float k[RIG_MAX_STEP * RIG_KV_HEADS * RIG_CODED_DIM], v[RIG_MAX_STEP * RIG_KV_HEADS * RIG_CODED_DIM];
    static uint32_t positions[RIG_MAX_STEP];
    const kvb_group *g = rig_group(r, layer);
    const uint64_t *ordinals = NULL;
    uint32_t n = kvb_cache_feed(r->cache, &ordinals);
    assert_true(n <= RIG_MAX_STEP);
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = pos_of[ordinals[i]];
        if (r->n_ordinals <= ordinals[i])
            r->n_ordinals = ordinals[i] + 1;
    }
    rig_rows(r, ordinals, n, layer, 1, k);
    rig_rows(r, ordinals, n, layer, 2, v);
    int error = kvb_cache_update_and_fetch(r->cache, layer, positions, k, g->latent ? NULL : v, n, spec);
    if (!error) {
        assert_ptr_equal(spec->group, g);
        assert_int_equal(spec->k.cells, spec->v.cells);
        assert_true(spec->k.dim == g->k_dim && spec->v.dim == g->v_dim);
        assert_int_equal(spec->k.base == spec->v.base, g->latent);
    }
    return error;
}

/* ---- what queries see --------------------------------------------------------------------------------------- */

static inline int rig_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Ordinals that query t of n_tok sees in one layer, ascending; K and V of all heads must agree. pos_of: each token's
 * position; NULL: tokens have moved, and a query may see one in two places. */
static inline uint32_t rig_seen(const rig *r, const kvb_attend_spec *spec, uint32_t layer, const uint32_t *pos_of,
                                uint32_t n_tok, uint32_t t, uint64_t *seen)
{
    uint32_t n = 0, cursor = 0, last_end = 0;
    bool pages = spec->mask.kind == KVB_MASK_PAGES;
    bool limited = kvb_group_limits(spec->group) || pages; /* runs come in the order of positions, else of cells */
    kvb_run run;
    while (kvb_mask_next(&spec->mask, n_tok, spec->k.cells, t, &cursor, &run)) {
        assert_true(run.begin < run.end && run.end <= spec->k.cells);
        assert_true(n == 0 || pages ||
                    (limited ? run.begin != last_end : run.begin > last_end)); /* joined where they touch */
        last_end = run.end;
        for (uint32_t c = run.begin; c < run.end; c++) {
            seen[n] = rig_owner(r, &spec->k, layer, 0, c, 1);
            for (uint32_t h = 0; h < spec->group->kv_heads; h++) {
                assert_int_equal(rig_owner(r, &spec->k, layer, h, c, 1), seen[n]);
                assert_int_equal(rig_owner(r, &spec->v, layer, h, c, spec->group->latent ? 1 : 2), seen[n]);
            }
            assert_true(!limited || !pos_of || n == 0 || pos_of[seen[n - 1]] < pos_of[seen[n]]);
            n++;
        }
    }
    if (n > 0)
        qsort(seen, n, sizeof *seen, rig_compare);
    for (uint32_t i = 1; i < n && pos_of; i++)
        assert_true(seen[i] != seen[i - 1]);
    return n;
}

/* ---- steps: the rig keeps the positions -------------------------------------------------------------------- */

static inline int rig_step(rig *r, const uint32_t *ids, size_t n)
{
    static uint32_t len[KVB_MAX_SEQS];
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        len[s] = kvb_cache_length(r->cache, s);
    int error = kvb_cache_begin_step_tokens(r->cache, ids, r->tokens, (uint32_t)n);
    for (size_t i = 0; i < n && !error; i++)
        r->pos[r->next++] = len[ids ? ids[i] : 0]++;
    r->n_new = error ? r->n_new : (uint32_t)n;
    return error;
}

static inline int rig_propose(rig *r, const int32_t *parents, size_t n)
{
    uint32_t pending = kvb_cache_pending(r->cache, 0), length = kvb_cache_length(r->cache, 0);
    uint64_t node = r->next - pending;
    int error = kvb_cache_propose(r->cache, NULL, parents, (uint32_t)n);
    for (size_t i = 0; i < n && !error; i++)
        r->pos[r->next++] = parents[i] < 0 ? length : r->pos[node + (uint64_t)parents[i]] + 1;
    r->n_new = error ? r->n_new : (uint32_t)n;
    return error;
}

/* Stores the step in every layer. Returns the last layer's spec. */
static inline kvb_attend_spec rig_store(rig *r)
{
    kvb_attend_spec spec = {0};
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
        assert_int_equal(rig_fetch(r, layer, r->pos, &spec), 0);
    return spec;
}

/* Stores the step in that layer. Its new token i must see exactly these tokens (ascending). */
static inline void rig_layer_sees(rig *r, uint32_t layer, uint32_t i, const uint64_t *want, size_t n)
{
    uint64_t seen[4 * RIG_MAX_STEP];
    const uint64_t *feed;
    kvb_attend_spec spec;
    uint32_t fed = kvb_cache_feed(r->cache, &feed);
    assert_int_equal(rig_fetch(r, layer, r->pos, &spec), 0);
    assert_int_equal(rig_seen(r, &spec, layer, r->pos, fed, fed - r->n_new + i, seen), n);
    assert_memory_equal(seen, want, n * sizeof *want);
}

static inline void rig_sees(rig *r, uint32_t i, const uint64_t *want, size_t n)
{
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
        rig_layer_sees(r, layer, i, want, n);
}

static inline kvb_cache_usage rig_usage_of(const rig *r, uint32_t group)
{
    kvb_cache_usage usage;
    kvb_cache_usage_of(r->cache, group, &usage);
    return usage;
}

/* All counts but those of memory. */
static inline void rig_assert_same(const kvb_cache_usage *a, const kvb_cache_usage *b)
{
    assert_int_equal(a->cells_live, b->cells_live);
    assert_int_equal(a->cells_peak, b->cells_peak);
    assert_int_equal(a->high_water, b->high_water);
    assert_int_equal(a->cells_written, b->cells_written);
    assert_int_equal(a->cells_moved, b->cells_moved);
}

/* Usage of all groups, which must have the same counts; bytes are summed. */
static inline kvb_cache_usage rig_usage(const rig *r)
{
    kvb_cache_usage usage = rig_usage_of(r, 0);
    for (uint32_t g = 1; g < r->model.n_groups; g++) {
        kvb_cache_usage other = rig_usage_of(r, g);
        rig_assert_same(&usage, &other);
        usage.reserved_bytes += other.reserved_bytes;
    }
    return usage;
}

#endif
