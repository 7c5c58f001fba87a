/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs that are files of saved caches. The first byte chooses the type of cache, the pool, and whether one sequence
 * or all are loaded; the rest is the file. Its checksum is corrected, unless the first byte forbids it, to reach the
 * code behind that check. A refused load must change nothing. After an accepted one, every sequence makes a step, and
 * the cache is saved and loaded again.
 */
#include "ci/fuzz/fuzz.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "caches/cache.h"

enum { LAYERS = 2, SEQS = 6, DIM = 32, CAPACITY = 40, MOST = 1 << 16 };

static const kvb_model model = {
    .n_layers = LAYERS,
    .n_groups = 2,
    .group_of = {0, 1},
    .groups = {{.heads = 1, .kv_heads = 1, .k_dim = DIM, .v_dim = DIM, .scale = 1},
               {.heads = 1, .kv_heads = 1, .k_dim = DIM, .v_dim = DIM, .scale = 1, .window = 4, .sinks = 1}}};

static char path[64];

static void path_remove(void)
{
    unlink(path);
}

static void path_make(void)
{
    if (*path)
        return;
    snprintf(path, sizeof path, "%s/kvb-saved-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    const int fd = mkstemp(path);
    if (fd < 0 || close(fd))
        kvb_fuzz_wrong("%s: cannot be made", path);
    atexit(path_remove);
}

static void file_write(const uint8_t *bytes, size_t n)
{
    unlink(path);
    FILE *file = fopen(path, "w");
    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file))
        kvb_fuzz_wrong("%s: cannot be written", path);
}

static const kvb_pool_type *pool_of(const char *name)
{
    const kvb_pool_type *const *pool = kvb_builtin_pools;
    while (*pool && strcmp((*pool)->name, name) != 0)
        pool++;
    return *pool;
}

/* Makes a step of n tokens of a sequence and stores all rows. */
static int step(kvb_cache *cache, uint32_t seq, uint32_t n)
{
    static const float rows[CAPACITY * DIM];
    uint32_t ids[CAPACITY], positions[CAPACITY];
    const uint64_t *feed;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = seq;
        positions[i] = kvb_cache_length(cache, seq) + i;
    }
    int error = kvb_cache_begin_step(cache, ids, n);
    if (error || kvb_cache_feed(cache, &feed) != n) /* refused; or all history is fed */
        return error;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        kvb_attend_spec spec;
        error = kvb_cache_update_and_fetch(cache, layer, positions, rows, rows, n, &spec);
        if (error)
            kvb_fuzz_wrong("update_and_fetch: %s", kvb_cache_why(cache));
    }
    return 0;
}

/* Lengths and cells. */
typedef struct state {
    uint32_t length[SEQS], cells[2];
} state;

static state state_of(const kvb_cache *cache)
{
    state s;
    for (uint32_t i = 0; i < SEQS; i++)
        s.length[i] = kvb_cache_length(cache, i);
    for (uint32_t g = 0; g < 2; g++) {
        kvb_cache_usage usage;
        kvb_cache_usage_of(cache, g, &usage);
        s.cells[g] = usage.cells_live;
    }
    return s;
}

void kvb_fuzz_saved(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n)
{
    static const char *const pools[] = {"f32", "kivi4-k"};
    static uint8_t file[MOST];
    kvb_allocator allocator = {0};
    kvb_cache *cache;
    char why[256];
    uint32_t n_caches = 0;
    (void)target;
    path_make();
    while (kvb_builtin_caches[n_caches])
        n_caches++;
    const uint8_t choice = n ? bytes[0] : 0;
    const kvb_cache_type *type = kvb_builtin_caches[(choice & 15) % n_caches];
    const bool whole = choice & 16;
    const kvb_pool_type *pool = pool_of(pools[choice >> 5 & 1]);
    const kvb_cache_options options = {.capacity = CAPACITY,
                                       .seq_capacity = 24,
                                       .seq_ids = SEQS,
                                       .max_seqs = 3,
                                       .rollback = 2,
                                       .min_chunk = 4,
                                       .page_cells = 4,
                                       .k_pool = pool,
                                       .v_pool = pool,
                                       .allocator = &allocator};
    if (kvb_cache_open(type, &model, &options, &cache, why, sizeof why))
        kvb_fuzz_wrong("open: %s", why);
    step(cache, 0, 3);
    n = n > MOST ? MOST : n;
    memcpy(file, bytes + (n > 0), n - (n > 0));
    n -= n > 0;
    if (n >= 4 && !(choice & 64)) {
        const uint32_t sum = (uint32_t)crc32(0, file, (unsigned)n - 4);
        memcpy(file + n - 4, &sum, sizeof sum);
    }
    file_write(file, n);
    const uint32_t as = whole ? KVB_SEQ_ALL : type->flags & KVB_CACHE_SEQ ? 1 : 0;
    if (!whole && as == 0)
        kvb_cache_clear(cache);
    const state before = state_of(cache);
    const int error = kvb_cache_load(cache, as, path);
    const state after = state_of(cache);
    if (error && (memcmp(&before, &after, sizeof before) || !*kvb_cache_why(cache)))
        kvb_fuzz_wrong("%s: refused with %d, and changed: %s", type->name, error, kvb_cache_why(cache));
    for (uint32_t i = 0; i < SEQS && !error; i++)
        if (after.length[i])
            step(cache, i, 1);
    if (!error && !(type->flags & KVB_CACHE_FORGETS) &&
        (kvb_cache_save(cache, KVB_SEQ_ALL, path) || kvb_cache_load(cache, KVB_SEQ_ALL, path)))
        kvb_fuzz_wrong("%s: what was loaded is not saved and loaded again: %s", type->name, kvb_cache_why(cache));
    kvb_cache_close(cache);
    if (allocator.current_bytes)
        kvb_fuzz_wrong("%zu bytes are held after close", allocator.current_bytes);
}
