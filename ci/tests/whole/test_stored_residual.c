/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec gate for formats with a window (KIVI). Shows that each instruction set encodes a closed block as the
 * oracle's reference codec does, bit for bit, also where some of its cells hold nothing; and that a pool into which a
 * sequence is written, token by token or in runs, is read as the rows that the oracle stores for it, closed and recent,
 * whatever its growth, up to the roundings that the format allows.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "caches/pools/codec/codec.h"
#include "caches/pools/rows.h"
#include "workloads/special_rows.h"
#include "oracle/storage.h"

enum { HEADS = 2, TOKENS = 230, BLOCK = 32, MAX_DIM = 160, PART = BLOCK * 2 * MAX_DIM };

static float rows[TOKENS * HEADS * MAX_DIM];
static unsigned char want[KVB_PARTS][PART], got[KVB_PARTS][PART];

static const uint32_t dims[] = {1, 2, 3, 4, 7, 12, 32, 66, 96, 160};

/* Does it take rows of dim? The oracle must say the same. */
static bool fits(const kvb_pool_type *type, uint32_t dim, kvb_storage *store)
{
    char why[200];
    bool takes = !type->supports || type->supports(type, dim, why, sizeof why);
    bool stores = kvb_storage_init(store, type->format, dim, NULL, HEADS, 0, why, sizeof why) == 0;
    if (takes != stores)
        fail_msg("%s, dim %u: the pool says %s, the oracle %s", type->name, dim, takes ? "yes" : "no",
                 stores ? "yes" : "no");
    return takes;
}

/* Kinds of rows change from token to token; or each block has a kind, so that channels are all of it too. */
static void rows_make(uint32_t dim, bool by_block)
{
    uint64_t seed = dim;
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t h = 0; h < HEADS; h++)
            row_fill((by_block ? t / BLOCK + h * 6 : t) % ROW_KINDS, rows + (t * HEADS + h) * dim, dim, &seed);
}

/* ---- one block ------------------------------------------------------------------------------------------------- */

static void part_compare(const char *name, const char *isa, uint32_t dim, int part, size_t bytes)
{
    static const char *const names[KVB_PARTS] = {"codes", "scales", "zeros"};
    for (size_t i = 0; i < bytes; i++)
        if (got[part][i] != want[part][i])
            fail_msg("%s, %s, dim %u: byte %zu of %s is %02x, the oracle's %02x", name, isa, dim, i, names[part],
                     got[part][i], want[part][i]);
}

/* Cells of `held` hold rows: the oracle encodes those alone, and the others' codes are 0. */
static void block_compare(const kvb_pool_type *type, const kvb_storage *store, uint32_t held, const float *block)
{
    const kvb_codec *codec = store->codec;
    uint32_t dim = store->dim, n = 0;
    static float packed[BLOCK * MAX_DIM];
    static unsigned char codes[PART];
    unsigned char *part[KVB_PARTS] = {codes, want[KVB_SCALES], want[KVB_ZEROS]};
    size_t row_codes = codec->bytes(codec, dim, KVB_CODES), side = codec->bytes(codec, dim, KVB_SCALES);

    for (uint32_t c = 0; c < BLOCK; c++)
        if (held >> c & 1)
            memcpy(packed + (size_t)n++ * dim, block + (size_t)c * dim, dim * sizeof *packed);
    codec->encode(codec, packed, n, dim, 1, part);
    memset(want[KVB_CODES], 0, BLOCK * row_codes);
    n = 0;
    for (uint32_t c = 0; c < BLOCK; c++)
        if (held >> c & 1)
            memcpy(want[KVB_CODES] + c * row_codes, codes + n++ * row_codes, row_codes);

    for (size_t i = 0; kvb_codec_isas[i]; i++) {
        const kvb_codec_isa *isa = kvb_codec_isas[i];
        kvb_encode *encode = isa->encode[kvb_pool_kind_of(type)->rule];
        if (!isa->available())
            continue;
        memset(got, 0x5a, sizeof got);
        if (codec->shared)
            encode(type->format, block, held, dim, 1, got[0], got[1], got[2]);
        else /* row by row, full blocks only */
            for (uint32_t c = 0; c < BLOCK; c++)
                encode(type->format, block + (size_t)c * dim, 1, dim, 1, got[0] + c * row_codes, got[1] + c * side,
                       got[2] + c * side);
        part_compare(type->name, isa->name, dim, KVB_CODES, BLOCK * row_codes);
        part_compare(type->name, isa->name, dim, KVB_SCALES, side * (codec->shared ? 1 : BLOCK));
        part_compare(type->name, isa->name, dim, KVB_ZEROS, side * (codec->shared ? 1 : BLOCK));
    }
}

static void blocks_compare(const kvb_pool_type *type, const kvb_storage *store)
{
    static const uint32_t masks[] = {0xffffffff, 1, 0x80000000, 0xaaaaaaaa, 0x00ffff00};
    static float block[BLOCK * MAX_DIM];
    uint64_t seed = store->dim;
    for (int kind = 0; kind <= ROW_KINDS; kind++) /* the last: mixed */
        for (int m = 0; m < (store->codec->shared ? 5 : 1); m++) {
            for (uint32_t c = 0; c < BLOCK; c++) {
                float *row = block + (size_t)c * store->dim;
                row_fill(kind == ROW_KINDS ? c % ROW_KINDS : (row_kind)kind, row, store->dim, &seed);
                for (uint32_t i = 0; i < store->dim; i++)
                    row[i] = (float)kvb_codec_f16_value(kvb_codec_f16(row[i]));
            }
            block_compare(type, store, masks[m], block);
        }
}

/* ---- a sequence in a pool -------------------------------------------------------------------------------------- */

/* Is what a pool reads no further off from the oracle's; where that is not finite, the same? */
static bool agree(double pool, double oracle, double off)
{
    return isfinite(oracle) ? fabs(pool - oracle) <= off : pool == oracle || (isnan(pool) && isnan(oracle));
}

static void view_compare(const kvb_pool *pool, const kvb_storage *store, uint32_t n)
{
    static double stored[TOKENS * MAX_DIM], size[TOKENS * MAX_DIM];
    static float read[TOKENS * MAX_DIM];
    const float *row_at[TOKENS];
    uint32_t dim = store->dim;
    double roundings = kvb_format_roundings(pool->type->format, dim) * 0x1.01p-24;
    double mixed = pool->type->format->transform ? sqrt(kvb_transform_block(dim)) : 1;
    void *scratch = malloc(kvb_storage_scratch(store));
    kvb_view view;
    assert_non_null(scratch);
    pool->type->view(pool, n, &view);
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t t = 0; t < n; t++)
            row_at[t] = rows + (t * HEADS + h) * dim;
        kvb_storage_rows(store, row_at, n, scratch, stored, size);
        view.format->read(&view, h, 0, n, read);
        for (uint32_t i = 0; i < n * dim; i++)
            if (!agree((double)read[i], stored[i], roundings * mixed * size[i] + 0x1p-140))
                fail_msg("%s, dim %u, %u tokens: token %u, head %u, channel %u is %a, the oracle's %a",
                         pool->type->name, dim, n, i / dim, h, i % dim, (double)read[i], stored[i]);
    }
    free(scratch);
}

/* run: tokens written at once. */
static void sequence_compare(const kvb_pool_type *type, const kvb_storage *store, uint32_t run, kvb_growth growth)
{
    kvb_allocator allocator = {0};
    kvb_pool_options options = {HEADS, store->dim, 5, TOKENS, growth, NULL, &allocator};
    kvb_pool *pool;
    assert_int_equal(type->open(type, &options, &pool), 0);
    for (uint32_t t = 0; t < TOKENS; t += run) {
        uint32_t n = TOKENS - t < run ? TOKENS - t : run, end = t + n;
        assert_int_equal(type->ensure(pool, end), 0);
        type->write_run(pool, t, n, rows + (size_t)t * HEADS * store->dim);
        if (run > 1 || end == 17 || end == TOKENS ||
            (end >= 4 * BLOCK && end % BLOCK <= 1)) /* before, after a closing */
            view_compare(pool, store, end);
    }
    type->close(pool);
    assert_int_equal(allocator.current_bytes, 0);
}

static void windows_store_what_the_codec_stores(void **state)
{
    (void)state;
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (const kvb_pool_type *type = kvb_builtin_pools[p]; type; type = type->rotated)
            for (size_t d = 0; type->format->residual_cells && d < sizeof dims / sizeof *dims; d++) {
                kvb_storage store;
                if (!fits(type, dims[d], &store))
                    continue;
                blocks_compare(type, &store);
                rows_make(dims[d], false);
                sequence_compare(type, &store, 1, KVB_GROWTH_DOUBLE);
                sequence_compare(type, &store, 41, KVB_GROWTH_RESERVE);
                rows_make(dims[d], true);
                sequence_compare(type, &store, 1, KVB_GROWTH_RESERVE);
                sequence_compare(type, &store, TOKENS, KVB_GROWTH_DOUBLE);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_store_what_the_codec_stores)};
    return cmocka_run_group_tests_name("stored windows", tests, NULL, NULL);
}
