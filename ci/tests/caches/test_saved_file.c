/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the file of a saved cache that is damaged, cut short, made up, or of another cache is refused with a line
 * that says so, and that neither a file nor a cache is half written.
 */
#include "saved.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

/* ---- what a file must not be ------------------------------------------------------------------------------------- */

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

static void file_write(const char *name, const uint8_t *bytes, size_t n)
{
    unlink(name); /* some file systems wait for the disk where a file is written over */
    FILE *out = fopen(name, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

/* Cut short at every byte, and every byte another. What has a checksum all the same is refused or is some cache's: it
 * is never half taken. */
static void damage_is_refused(void **state)
{
    (void)state;
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
            file_write(other, file, i);
            refused(&r, seq, other, -EINVAL, other);
            memcpy(changed, file, n);
            changed[i] ^= (uint8_t)(1 << i % 8);
            file_write(other, changed, n);
            refused(&r, seq, other, -EINVAL, other);
        }
        for (size_t i = 12; i + 4 < n; i++) /* with a checksum that is right */
            for (int cut = 0; cut < 2; cut++) {
                const size_t body = cut ? i : n - 4;
                memcpy(changed, file, n);
                changed[i] = (uint8_t)(i % 3 ? changed[i] ^ 1 << i % 8 : 0xff);
                const uint32_t sum = (uint32_t)crc32(0, changed, (unsigned)body);
                memcpy(changed + body, &sum, sizeof sum);
                file_write(other, changed, body + 4);
                const uint64_t before = state_hash(&r);
                const int error = kvb_cache_load(r.cache, seq, other);
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
        assert_true(taken > 0 || type->flags & KVB_CACHE_FORGETS); /* rows of other numbers are rows */
        assert_int_equal(kvb_cache_load(r.cache, seq, path), 0);   /* and no refusal has left anything behind */
        assert_int_equal(kvb_cache_length(r.cache, 0), 3);
        rig_close(&r);
    }
}

static void made_up_residual_slots_are_refused(void **state)
{
    (void)state;
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
        for (size_t i = 0; i < N(blocks); i++) { /* a block that is not there; two slots of one */
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
    r->pool = kvb_builtin_pools[0]; /* of wider rows */
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

/* Whatever the other cache has that this one has not. */
static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
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
            const bool layout = c->seq_capacity && whole; /* is part of what a whole cache is of */
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

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    static rig r;
    char long_name[5000];
    unlink(other);
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    begin(&r, &kvb_cache_seq, NULL);
    refused(&r, 0, other, -ENOENT, "No such file");
    refused(&r, 0, folder, -EINVAL, "not a saved cache");
    refused(&r, 0, "/dev/zero", -EINVAL, "not a saved cache");
    refused(&r, 64, path, -EINVAL, "out of range");
    grow(&r, 0, 2);
    const uint64_t before = state_hash(&r);
    assert_int_equal(kvb_cache_save(r.cache, 0, "/nowhere/to/be/found"), -ENOENT);
    assert_int_equal(kvb_cache_save(r.cache, 0, folder), -EISDIR);
    assert_int_equal(kvb_cache_save(r.cache, 0, long_name), -ENAMETOOLONG);
    assert_int_equal(kvb_cache_save(r.cache, 64, path), -EINVAL);
    assert_true(state_hash(&r) == before);
    rig_close(&r);
    char beside[300];
    snprintf(beside, sizeof beside, "%s.tmp", folder);
    assert_int_equal(access(beside, F_OK), -1);
}

/* The disk is full: what was there is whole. */
static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    static rig r;
    begin(&r, &kvb_cache_seq, NULL);
    grow(&r, 0, 4);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
    const size_t n = file_read(path);
    grow(&r, 0, 60);
    struct rlimit old;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    for (size_t most = 0; most < n; most += 500) {
        const uint64_t before = state_hash(&r);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){most, old.rlim_max});
        assert_int_equal(kvb_cache_save(r.cache, 0, path), -EFBIG);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_true(state_hash(&r) == before);
        memcpy(changed, file, n);
        assert_int_equal(file_read(path), n);
        assert_memory_equal(file, changed, n);
    }
    assert_int_equal(kvb_cache_load(r.cache, 1, path), 0);
    assert_int_equal(kvb_cache_length(r.cache, 1), 4);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(made_up_residual_slots_are_refused),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(a_full_disk_loses_nothing),
    };
    return cmocka_run_group_tests_name("files of saved caches", tests, folder_make, folder_remove);
}
