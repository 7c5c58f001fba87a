/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: saving and loading, also of recurrent states. */
#include <fcntl.h>
#include <sys/mman.h>
#include <zlib.h>

#include "ci/tests/tests.h"
#include "ci/tests/caches/saved.h"
#include "ci/tests/caches/states.h"
#include "caches/pools/rows.h"

/*
 * Shows that a sequence or a whole cache, saved and loaded in the same or another instance, continues bit by bit as
 * without this, in every format; when the calls are legal; that a file that is damaged, cut short, made up, or from
 * another cache is refused with a reason; and that neither a file nor a cache is left half written.
 */

/* ---- a loaded cache continues as the saved one ------------------------------------------------------------------- */

static uint32_t cells_live(const rig *r)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < r->model.n_groups; g++)
        n += rig_usage_of(r, g).cells_live;
    return n;
}

/* Loads a whole cache into another instance, which held something else. */
static void whole_goes_on(const kvb_cache_type *type, const kvb_pool_type *pool)
{
    static rig a, b;
    begin(&a, type, pool);
    begin(&b, type, pool);
    fill(&a);
    grow(&b, 0, 7);
    assert_int_equal(kvb_cache_save(a.cache, KVB_SEQ_ALL, path), 0);
    assert_int_equal(kvb_cache_load(b.cache, KVB_SEQ_ALL, path), 0);
    account_copy(&b, &a);
    assert_int_equal(cells_live(&a), cells_live(&b));
    for (uint32_t s = 0; s < (has_seqs(type) ? 2 : 1); s++)
        assert_true(going_on(&a, s) == going_on(&b, s));
    rig_close(&a);
    rig_close(&b);
}

/* Loads one sequence under another id, in the same instance beside the original, and in another instance. */
static void sequence_goes_on(const kvb_cache_type *type, const kvb_pool_type *pool)
{
    static rig a, b;
    const uint32_t from = has_seqs(type), as = has_seqs(type) ? 3 : 0;
    begin(&a, type, pool);
    begin(&b, type, pool);
    fill(&a);
    if (pool->format->residual_cells) {
        rig_refused(&a, kvb_cache_save(a.cache, from, path), -ENOTSUP, "share");
    } else {
        assert_int_equal(kvb_cache_save(a.cache, from, path), 0);
        assert_int_equal(kvb_cache_load(b.cache, as, path), 0);
        account_copy(&b, &a);
        const uint64_t one = going_on(&a, from), two = going_on(&b, as);
        assert_true(one == two);
        if (from) { /* a third time, in the same instance: its new tokens would have other ordinals and rows */
            assert_int_equal(kvb_cache_load(a.cache, as, path), 0);
            assert_int_equal(kvb_cache_length(a.cache, as), 68);
        }
    }
    rig_close(&a);
    rig_close(&b);
}

TEST(every_format_goes_on)
{
    uint32_t at = 0, n = 0;
    EACH_CACHE(type, KVB_CACHE_SAVES)
    {
        at = 0;
        for (const kvb_pool_type *pool = pools_next(&at); pool; pool = pools_next(&at), n++) {
            if (type != &kvb_cache_seq && n % 6 &&
                !pool->format->residual_cells) /* all caches use pools alike: one in six is enough */
                continue;
            whole_goes_on(type, pool);
            sequence_goes_on(type, pool);
        }
    }
    assert_true(n > 7 * 40);
}

/* A load shares rows again that a sequence still holds, in caches that share cells. In another instance, where the same
 * ordinals are other tokens, it shares none. */
TEST(rows_are_shared_again)
{
    EACH_CACHE(type, KVB_CACHE_SEQ | KVB_CACHE_SAVES)
    {
        static rig r;
        begin(&r, type, NULL);
        const bool shares = type == &kvb_cache_seq || type == &kvb_cache_window;
        grow(&r, 0, 8);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 6), 0);
        assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
        assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 0, KVB_POS_END), 0);
        const uint32_t left = rig_usage_of(&r, 0).cells_live;
        assert_int_equal(kvb_cache_load(r.cache, 2, path), 0);
        if (shares)
            assert_int_equal(rig_usage_of(&r, 0).cells_live, left + 2); /* 6 of 8 are still held */
        assert_int_equal(rig_step(&r, (const uint32_t[]){2, 1}, 2), 0);
        rig_sees(&r, 0, TOKENS(0, 1, 2, 3, 4, 5, 6, 7, 8));
        rig_sees(&r, 1, TOKENS(0, 1, 2, 3, 4, 5, 9));
        rig_close(&r);
        if (!shares)
            continue;
        static float k[8 * 2 * 8], v[8 * 2 * 8];
        static const uint32_t pos[] = {0, 1, 2, 3, 4, 5, 6, 7};
        kvb_attend_spec spec;
        for (size_t i = 0; i < N(k); i++)
            k[i] = v[i] = 7;
        begin(&r, type, NULL);
        assert_int_equal(kvb_cache_begin_step(r.cache, NULL, 8), 0);
        for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
            assert_int_equal(kvb_cache_update_and_fetch(r.cache, layer, pos, k, layer ? v : NULL, 8, &spec), 0);
        assert_int_equal(kvb_cache_load(r.cache, 2, path), 0);
        assert_int_equal(rig_usage_of(&r, 0).cells_live, 16);
        rig_close(&r);
    }
}

/* A row that a window has dropped stays dropped after a load: it takes no cell, and calls that need it are refused. */
TEST(what_was_dropped_stays_dropped)
{
    static rig r;
    begin(&r, &kvb_cache_window, NULL);
    grow(&r, 0, 30);
    for (uint32_t i = 0; i < 10; i++)
        grow(&r, 0, 1);
    const kvb_cache_usage before = rig_usage_of(&r, 1);
    assert_true(before.cells_live < 20);
    for (int whole = 0; whole < 2; whole++) {
        const uint32_t seq = whole ? KVB_SEQ_ALL : 0;
        assert_int_equal(kvb_cache_save(r.cache, seq, path), 0);
        assert_int_equal(kvb_cache_clear(r.cache), 0);
        assert_int_equal(kvb_cache_load(r.cache, seq, path), 0);
        assert_true(rig_usage_of(&r, 1).cells_live <= before.cells_live);
        assert_int_equal(rig_usage_of(&r, 0).cells_live, 40);
        assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 30, KVB_POS_END), -ENOTSUP);
    }
    static rig full;
    begin(&full, &kvb_cache_seq, NULL); /* drops no rows, so its queries would see the missing ones */
    assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
    rig_refused(&full, kvb_cache_load(full.cache, 0, path), -EINVAL, "cache window");
    rig_close(&full);
    rig_close(&r);
}

/* Each request for memory of a load is refused once. A load that fails takes no room: the last one still fits. */
TEST(memory_that_is_refused_takes_no_room)
{
    EACH_CACHE(type, KVB_CACHE_SAVES)
    {
        static rig r;
        uint32_t refused = 0;
        int error = -ENOMEM;
        begin_as(&r, type, NULL, 80, 40, 2);
        grow(&r, 0, 40);
        assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
        if (!has_seqs(type))
            assert_int_equal(kvb_cache_clear(r.cache), 0);
        for (uint64_t nth = 1; error; nth++, refused += error != 0) {
            r.allocator.fail_request = r.allocator.requests + nth;
            error = kvb_cache_load(r.cache, has_seqs(type), path);
            assert_true(error == 0 || error == -ENOMEM);
        }
        r.allocator.fail_request = 0;
        assert_true(refused > 3);
        rig_close(&r);
    }
}

/* ---- when the calls are legal ------------------------------------------------------------------------------------ */

TEST(rows_must_be_there)
{
    static rig r;
    const uint64_t *feed;
    kvb_attend_spec spec;
    begin(&r, &kvb_cache_seq, NULL);
    assert_int_equal(rig_step(&r, (const uint32_t[]){0, 0}, 2), 0);
    for (uint32_t layer = RIG_LAYERS; layer-- > 0;) {
        rig_refused(&r, kvb_cache_save(r.cache, 0, path), -EINVAL, "rows of layer 0");
        assert_int_equal(rig_fetch(&r, layer, r.pos, &spec), 0);
    }
    const kvb_cache_usage before = rig_usage_of(&r, 0);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
    const kvb_cache_usage after = rig_usage_of(&r, 0);
    rig_assert_same(&before, &after);
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 2); /* the plan is still in force */
    assert_int_equal(kvb_cache_load(r.cache, 1, path), 0);
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 0);
    assert_int_equal(rig_step(&r, NULL, 1), 0); /* the ordinals go on above those loaded */
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 1);
    assert_int_equal(feed[0], 2);
    rig_close(&r);
    begin(&r, &kvb_cache_tree, NULL);
    assert_int_equal(rig_propose(&r, (const int32_t[]){-1, 0}, 2), 0);
    rig_store(&r);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), -EINVAL);
    refused(&r, 0, path, -EINVAL, "pending");
    assert_int_equal(kvb_cache_clear(r.cache), 0);
    assert_int_equal(kvb_cache_save(r.cache, 1, path), -ENOTSUP);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), 0); /* an empty sequence */
    assert_int_equal(kvb_cache_load(r.cache, 0, path), 0);
    assert_int_equal(kvb_cache_length(r.cache, 0), 0);
    rig_close(&r);
}

TEST(parts_that_cannot_say_so)
{
    static rig r;
    kvb_pool_kind mute = *kvb_pool_kind_of(kvb_builtin_pools[0]);
    mute.type.raw_bytes = NULL;
    mute.type.read_raw = NULL;
    mute.type.write_raw = NULL;
    begin(&r, &kvb_cache_seq, &mute.type);
    grow(&r, 0, 3);
    assert_int_equal(kvb_cache_save(r.cache, KVB_SEQ_ALL, path), -ENOTSUP);
    rig_refused(&r, kvb_cache_load(r.cache, KVB_SEQ_ALL, path), -ENOTSUP, "cannot be saved");
    rig_close(&r);
    kvb_cache_type plain = kvb_cache_contiguous;
    plain.flags &= ~(uint32_t)KVB_CACHE_SAVES;
    begin(&r, &plain, NULL);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), -ENOTSUP);
    assert_int_equal(kvb_cache_load(r.cache, 0, path), -ENOTSUP);
    rig_close(&r);
}

/* ---- bad files --------------------------------------------------------------------------------------------------- */

static uint8_t file[1 << 20], changed[1 << 20];

static size_t file_read(const char *name)
{
    FILE *in = fopen(name, "rb");
    assert_non_null(in);
    const size_t n = fread(file, 1, sizeof file, in);
    fclose(in);
    assert_true(n < sizeof file);
    return n;
}

/* Writes a file in memory, and returns its path: to make thousands of files on a disk takes longer than to read them. */
static const char *damaged(const void *bytes, size_t n)
{
    static char name[40];
    static int memory = -1;
    if (memory < 0)
        memory = memfd_create("damaged", MFD_CLOEXEC);
    snprintf(name, sizeof name, "/proc/self/fd/%d", memory);
    assert_int_equal(ftruncate(memory, 0), 0);
    assert_int_equal(pwrite(memory, bytes, n, 0), (ssize_t)n);
    return name;
}

/* Files cut short at every byte, and with each byte changed, are refused. With a corrected checksum such a file is
 * either refused or loaded whole. */
TEST(damage_is_refused)
{
    EACH_CACHE(type, KVB_CACHE_SAVES)
    for (int whole = 0; whole < 2; whole++) {
        const uint32_t seq = whole ? KVB_SEQ_ALL : 0;
        static rig r;
        uint32_t taken = 0;
        begin(&r, type, NULL);
        grow(&r, 0, 3);
        if (has_seqs(type))
            assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 2), 0);
        assert_int_equal(kvb_cache_save(r.cache, seq, path), 0);
        if (!whole)
            assert_int_equal(kvb_cache_clear(r.cache), 0);
        const size_t n = file_read(path);
        for (size_t i = 0; i < n; i++) {
            const char *name = damaged(file, i);
            refused(&r, seq, name, -EINVAL, name);
            memcpy(changed, file, n);
            changed[i] ^= (uint8_t)(1 << i % 8);
            refused(&r, seq, damaged(changed, n), -EINVAL, name);
        }
        for (size_t i = 12; i + 4 < n; i++) /* with a corrected checksum */
            for (int cut = 0; cut < 2; cut++) {
                const size_t body = cut ? i : n - 4;
                memcpy(changed, file, n);
                changed[i] = (uint8_t)(i % 3 ? changed[i] ^ 1 << i % 8 : 0xff);
                const uint32_t sum = (uint32_t)crc32(0, changed, (unsigned)body);
                memcpy(changed + body, &sum, sizeof sum);
                const uint64_t before = state_hash(&r);
                const int error = kvb_cache_load(r.cache, seq, damaged(changed, body + 4));
                assert_true(error || !cut);
                if (error) {
                    assert_true(state_hash(&r) == before);
                    continue;
                }
                taken++;
                assert_int_equal(kvb_cache_clear(r.cache), 0);
                if (whole)
                    assert_int_equal(kvb_cache_load(r.cache, seq, path), 0);
            }
        assert_true(taken > 0 || type->flags & KVB_CACHE_FORGETS); /* a changed element of a row is no error */
        assert_int_equal(kvb_cache_load(r.cache, seq, path), 0);   /* no refusal left anything behind */
        assert_int_equal(kvb_cache_length(r.cache, 0), 3);
        rig_close(&r);
    }
}

TEST(made_up_residual_slots_are_refused)
{
    uint32_t at = 0, n = 0;
    for (const kvb_pool_type *pool = pools_next(&at); pool; pool = pools_next(&at)) {
        kvb_allocator a = {0};
        static uint8_t raw[1 << 20];
        if (!pool->format->residual_cells)
            continue;
        kvb_pool *p = pool_open(pool, &a, KVB_GROWTH_DOUBLE, 4, 200);
        static float rows[70 * HEADS * DIM];
        assert_int_equal(pool->ensure(p, 70), 0);
        pool->write_run(p, 0, 70, rows);
        assert_true(pool->raw_bytes(p, NULL, 70) < sizeof raw);
        pool->read_raw(p, NULL, 70, raw);
        assert_true(pool->check_raw(p, 70, raw));
        const uint32_t blocks[][2] = {{3, 1}, {2, 2}};
        for (size_t i = 0; i < N(blocks); i++) { /* a block that does not exist; two slots for one block */
            memcpy(raw, blocks[i], sizeof blocks[i]);
            assert_false(pool->check_raw(p, 70, raw));
        }
        pool->close(p);
        assert_int_equal(a.current_bytes, 0);
        n++;
    }
    assert_true(n >= 4);
}

typedef struct change {
    const char *words;
    int error;
    void (*make)(rig *r);
    uint32_t capacity, seq_capacity, max_seqs;
    bool whole_only;
} change;

static void dims(rig *r)
{
    r->pool = kvb_builtin_pools[0]; /* wider rows */
}

static void format(rig *r)
{
    r->pool = kvb_builtin_pools[1];
}

static void window(rig *r)
{
    r->groups[1].window = 8;
}

static void sinks(rig *r)
{
    r->groups[1].sinks = 1;
}

static void chunk(rig *r)
{
    r->groups[2].chunk = 10;
}

static void latent(rig *r)
{
    r->groups[0].latent = false;
}

static void groups(rig *r)
{
    r->n_groups = 2;
}

static void page(rig *r)
{
    r->page_cells = 8;
}

static void nothing(rig *r)
{
    (void)r;
}

static const change changes[] = {
    {"k_dim", -EINVAL, dims, 0, 0, 0, false},          {"k_pool f32", -EINVAL, format, 0, 0, 0, false},
    {"window 9", -EINVAL, window, 0, 0, 0, false},     {"sinks 2", -EINVAL, sinks, 0, 0, 0, false},
    {"chunk 12", -EINVAL, chunk, 0, 0, 0, false},      {"latent", -EINVAL, latent, 0, 0, 0, false},
    {"layers 0 1 2", -EINVAL, groups, 0, 0, 0, false}, {"page_cells 4", -EINVAL, page, 0, 0, 0, true},
    {"positions", -ENOSPC, nothing, 0, 30, 0, false},  {"", -ENOSPC, nothing, 20, 0, 0, false},
};

/* A file of a cache that differs from this one in any way that matters. */
TEST(what_does_not_fit_is_refused)
{
    EACH_CACHE(type, KVB_CACHE_SAVES)
    for (int whole = 0; whole < 2; whole++) {
        static rig r, b;
        const uint32_t seq = whole ? KVB_SEQ_ALL : 0;
        begin(&r, type, NULL);
        fill(&r);
        assert_int_equal(kvb_cache_save(r.cache, seq, path), 0);
        for (size_t i = 0; i < N(changes); i++) {
            const change *c = &changes[i];
            begin(&b, type, NULL); /* for its groups */
            rig_close(&b);
            b.allocator = (kvb_allocator){0};
            c->make(&b);
            const uint32_t seq_capacity = c->seq_capacity ? c->seq_capacity : 120;
            assert_int_equal(rig_try_open(&b, type, c->capacity ? c->capacity : 400, seq_capacity, 4, 2), 0);
            const bool layout = c->seq_capacity && whole; /* a whole cache must have the same seq_capacity */
            const bool paged = type == &kvb_cache_paged || type == &kvb_cache_paged_prefix,
                       pages = paged && c->capacity; /* has pages besides its capacity */
            const bool drops = type == &kvb_cache_window && c->capacity && !whole;
            if (!(c->whole_only && !whole) && !pages && !drops)
                refused(&b, seq, path, layout ? -EINVAL : c->error, layout ? "seq_capacity 120" : c->words);
            rig_close(&b);
        }
        if (whole && has_seqs(type)) {
            begin_as(&b, type, NULL, 400, 120, 1);
            refused(&b, seq, path, -ENOSPC, "");
            rig_close(&b);
        }
        refused(&r, whole ? 3 : KVB_SEQ_ALL, path, has_seqs(type) || !whole ? -EINVAL : -ENOTSUP, "");
        if (!whole)
            refused(&r, 0, path, -EINVAL, "sequence 0 is alive");
        rig_close(&r);
    }
}

TEST(what_is_no_file_is_refused)
{
    static rig r;
    char long_name[5000];
    unlink(other);
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    begin(&r, &kvb_cache_seq, NULL);
    refused(&r, 0, other, -ENOENT, "No such file");
    refused(&r, 0, tests_here(), -EINVAL, "not a saved cache");
    refused(&r, 0, "/dev/zero", -EINVAL, "not a saved cache");
    refused(&r, 64, path, -EINVAL, "out of range");
    grow(&r, 0, 2);
    const uint64_t before = state_hash(&r);
    assert_int_equal(kvb_cache_save(r.cache, 0, "/nowhere/to/be/found"), -ENOENT);
    assert_int_equal(kvb_cache_save(r.cache, 0, tests_here()), -EISDIR);
    assert_int_equal(kvb_cache_save(r.cache, 0, long_name), -ENAMETOOLONG);
    assert_int_equal(kvb_cache_save(r.cache, 64, path), -EINVAL);
    assert_true(state_hash(&r) == before);
    rig_close(&r);
    assert_int_equal(access(tests_path("%s.tmp", tests_here()), F_OK), -1);
}

/* The disk is full: the old file stays whole. */
TEST(a_full_disk_loses_nothing)
{
    static rig r;
    begin(&r, &kvb_cache_seq, NULL);
    grow(&r, 0, 4);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
    const size_t n = file_read(path);
    grow(&r, 0, 60);
    for (size_t most = 0; most < n; most += 500) {
        const uint64_t before = state_hash(&r);
        tests_file_limit(most);
        assert_int_equal(kvb_cache_save(r.cache, 0, path), -EFBIG);
        tests_file_limit(RLIM_INFINITY);
        assert_true(state_hash(&r) == before);
        memcpy(changed, file, n);
        assert_int_equal(file_read(path), n);
        assert_memory_equal(file, changed, n);
    }
    assert_int_equal(kvb_cache_load(r.cache, 1, path), 0);
    assert_int_equal(kvb_cache_length(r.cache, 1), 4);
    rig_close(&r);
}

/*
 * Shows, for recurrent states in every cache: a call that needs a missing state is refused and changes nothing; what
 * each kind of layer gives; and which files fit which caches. test_random shows that each state is right.
 */

#define SCAN(ELEM, WIDTH)                                                                                              \
    {                                                                                                                  \
        .kind = KVB_GROUP_SCAN, .scan = { KVB_SCAN_MAMBA2, 2, 1, 4, 8, WIDTH, WIDTH ? 16 : 0, true, ELEM, KVB_F32 }    \
    }
enum { ATTENDS, SCANS }; /* layers: 0 and 2 attend, 1 scans */
enum { SLOT = 2 * 4 * 8 * 4, CONV = 3 * 16 * 4, IDS = 6 };

static void states_open(rig *r, const kvb_cache_type *type, uint32_t depth, kvb_elem elem)
{
    *r = (rig){.n_groups = 2, .groups = {{.window = 10000}, SCAN(elem, 4)}, .state_depth = depth};
    const uint32_t seqs = type->flags & KVB_CACHE_SEQ ? IDS : 1;
    assert_int_equal(rig_try_open(r, type, 400, 100, seqs, 4), 0);
}

/* Runs every layer of the step in force. Returns the state that the last fed token leaves. */
static uint64_t states_store(rig *r)
{
    static uint64_t out[RIG_MAX_STEP];
    static uint32_t positions[RIG_MAX_STEP];
    const uint64_t *ordinals;
    const uint32_t n = kvb_cache_feed(r->cache, &ordinals);
    kvb_attend_spec rows;
    kvb_scan_spec states;
    for (uint32_t i = 0; i < n; i++)
        positions[i] = r->pos[ordinals[i]];
    assert_int_equal(rig_fetch(r, 0, r->pos, &rows), 0);
    assert_int_equal(rig_fetch(r, 2, r->pos, &rows), 0);
    assert_int_equal(kvb_cache_fetch_states(r->cache, SCANS, positions, n, &states), 0);
    assert_true(states_scan(&states, SCANS, ordinals, out));
    return out[n - 1];
}

/* Feeds n tokens of a sequence. Returns the state behind the last. */
static uint64_t feed(rig *r, uint32_t seq, uint32_t n)
{
    static uint32_t ids[RIG_MAX_STEP];
    for (uint32_t i = 0; i < n; i++)
        ids[i] = seq;
    assert_int_equal(rig_step(r, ids, n), 0);
    return states_store(r);
}

/* The state behind n tokens that follow `state`, with ordinals from `first` on. */
static uint64_t behind(uint64_t state, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        state = state_next(state, first + i, SCANS);
    return state;
}

/* A call that needs a missing state is refused in all layers. */
TEST(test_refusals)
{
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        rig r;
        const bool forgets = type->flags & KVB_CACHE_FORGETS;
        states_open(&r, type, 1, KVB_BF16);
        feed(&r, 0, 10);
        kvb_cache_usage before[2] = {rig_usage_of(&r, ATTENDS), rig_usage_of(&r, SCANS)};
        assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 3, 6), -ENOTSUP);
        assert_contains(kvb_cache_why(r.cache),
                        "a recurrent state can drop its last tokens or all: sequence 0 goes on behind 6");
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 2, KVB_POS_END), -ENOTSUP);
        assert_contains(kvb_cache_why(r.cache), "sequence 1 would not hold a beginning of 0");
        if (!forgets) {
            assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 8), -ENOTSUP);
            assert_contains(kvb_cache_why(r.cache),
                            "sequence 0 has no state behind position 7: its states go back by 1 tokens");
            assert_int_equal(kvb_cache_rewind(r.cache, 6), -ENOTSUP);
            assert_contains(kvb_cache_why(r.cache),
                            "sequence 0 cannot be cut back by 4 tokens: its states go back by 1");
        }
        if (type->flags & KVB_CACHE_FREEZES) {
            kvb_frozen *frozen;
            assert_int_equal(kvb_cache_freeze(r.cache, 0, 5, NULL, &frozen), -ENOTSUP);
            assert_contains(kvb_cache_why(r.cache), "a recurrent state cannot be frozen");
        }
        for (uint32_t g = 0; g < 2; g++) {
            const kvb_cache_usage after = rig_usage_of(&r, g);
            rig_assert_same(&before[g], &after);
        }
        assert_int_equal(kvb_cache_length(r.cache, 1), 0);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 9), 0); /* one token back */
        assert_true(feed(&r, 1, 1) == behind(behind(0, 0, 9), 10, 1));
        assert_true(feed(&r, 0, 1) == behind(behind(0, 0, 10), 11, 1));
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 10, KVB_POS_END), -ENOTSUP); /* another beginning */
        assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 9, KVB_POS_END), 0);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 9, KVB_POS_END), 0); /* sequence 1 continues like 0 */
        assert_true(feed(&r, 1, 1) == behind(behind(behind(0, 0, 10), 11, 1), 12, 1));
        rig_close(&r);
    }
}

/* A layer that attends gives only rows, one that scans only states, at the positions of the plan. */
TEST(test_fetch)
{
    const uint32_t pos[] = {0, 1};
    const float rows[64] = {0};
    kvb_attend_spec rows_spec;
    kvb_scan_spec spec;
    rig r;
    states_open(&r, &kvb_cache_seq, 0, KVB_F32);
    rig_refused(&r, kvb_cache_fetch_states(r.cache, SCANS, pos, 2, &spec), -EINVAL, "there is no plan");
    assert_int_equal(rig_step(&r, NULL, 2), 0);
    rig_refused(&r, kvb_cache_fetch_states(r.cache, 0, pos, 2, &spec), -EINVAL, "layer 0 attends: it has no states");
    assert_int_equal(kvb_cache_update_and_fetch(r.cache, SCANS, pos, rows, rows, 2, &rows_spec), -EINVAL);
    assert_contains(kvb_cache_why(r.cache), "layer 1 scans: it stores no rows");
    assert_int_equal(kvb_cache_fetch_states(r.cache, 3, pos, 2, &spec), -EINVAL);
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, NULL, 2, &spec), -EINVAL);
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, pos, 2, NULL), -EINVAL);
    assert_contains(kvb_cache_why(r.cache), "positions and a spec must be given");
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, pos + 1, 1, &spec), -EINVAL);
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, pos, 2, &spec), 0);
    assert_true(spec.from[0] == KVB_SCAN_ZERO && spec.from[1] == KVB_SCAN_PREVIOUS);
    assert_true(spec.to[0] == KVB_SCAN_NONE && spec.to[1] == 0);
    assert_true(spec.states.slot_bytes == SLOT && spec.conv.slot_bytes == CONV && spec.states.slots == 1);
    assert_int_equal(rig_usage_of(&r, SCANS).reserved_bytes, SLOT + CONV);
    assert_int_equal(rig_step(&r, NULL, 1), 0);
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, (const uint32_t[]){2}, 1, &spec), 0);
    assert_true(spec.from[0] == 0 && spec.to[0] == 0); /* in place */
    rig_close(&r);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A sequence is loaded into another cache with as many states as that cache keeps. Another geometry is refused. */
TEST(test_files)
{
    rig r, taker;
    states_open(&r, &kvb_cache_seq, 5, KVB_F32);
    feed(&r, 3, 10);
    assert_int_equal(kvb_cache_save(r.cache, 3, path), 0);
    static const struct {
        const kvb_cache_type *type;
        uint32_t depth, back; /* tokens */
    } takes[] = {
        {&kvb_cache_seq, 5, 5}, {&kvb_cache_paged, 2, 2}, {&kvb_cache_contiguous, 0, 0}, {&kvb_cache_tree, 9, 5}};
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        states_open(&taker, takes[i].type, takes[i].depth, KVB_F32);
        assert_int_equal(kvb_cache_load(taker.cache, 0, path), 0);
        taker.next = 10;
        if (takes[i].back < 9)
            assert_int_equal(kvb_cache_rewind(taker.cache, 9 - takes[i].back), -ENOTSUP);
        assert_int_equal(kvb_cache_rewind(taker.cache, 10 - takes[i].back), 0);
        assert_true(feed(&taker, 0, 1) == behind(behind(0, 0, 10 - takes[i].back), 10, 1));
        rig_close(&taker);
    }
    const kvb_group groups[] = {SCAN(KVB_BF16, 4), SCAN(KVB_F32, 3), {.window = 0}};
    for (size_t i = 0; i < 3; i++) {
        taker = (rig){.n_groups = 2, .groups = {{.window = 10000}, groups[i]}};
        assert_int_equal(rig_try_open(&taker, &kvb_cache_seq, 40, 40, 2, 4), 0);
        assert_int_equal(kvb_cache_load(taker.cache, 0, path), -EINVAL);
        assert_contains(kvb_cache_why(taker.cache), "was saved with \"group mamba2 heads 2 groups 1 k_dim 4 v_dim 8");
        assert_int_equal(kvb_cache_length(taker.cache, 0), 0);
        rig_close(&taker);
    }
    rig_close(&r);
}

/* A prompt is not found again: a page of rows has no state. */
TEST(test_prompts)
{
    static const int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const uint64_t *ordinals;
    uint32_t found = 1;
    rig r;
    states_open(&r, &kvb_cache_paged_prefix, 0, KVB_F32);
    r.tokens = tokens;
    feed(&r, 0, 8);
    assert_int_equal(kvb_cache_seq_match(r.cache, 1, tokens, 8, 0, &found, &ordinals), 0);
    assert_int_equal(found, 0);
    assert_true(feed(&r, 1, 8) == behind(0, 8, 8));
    rig_close(&r);
}
