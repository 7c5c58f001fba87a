/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: pools store, bit for bit, what the oracle's reference codecs store. */
#include "ci/tests/tests.h"
#include "caches/pools/codec/codec.h"
#include "caches/pools/rows.h"
#include "oracle/storage.h"
#include "workloads/special_rows.h"

/*
 * The codec gate. Shows that pools store, bit for bit, what the oracle's reference codec stores: codes, scales and
 * zeros of every format, with and without its transform, by every instruction set of this machine and through the pool
 * itself (write_run, growth, scatter, gather_into), at every length of rows that the format takes, for every kind of
 * awkward row. Any bytes are read as the oracle reads them. Rows are read within the roundings that the format allows,
 * and exactly as the oracle reads them for storing again.
 *
 * Only one thing is free: which NaN a transform makes of several. Formats with residual windows follow below.
 */

enum { HEADS = 3, CELLS = 2 * ROW_KINDS, ALL_DIMS = 67, MAX_DIM = 384, PART = 4 * MAX_DIM, SHOWN = 3, APART = 4 };

typedef struct reference {
    kvb_storage store[HEADS];
    size_t bytes[KVB_PARTS];
    float rows[CELLS * HEADS * MAX_DIM];
    float turned[CELLS * HEADS * MAX_DIM];
    unsigned char part[CELLS][HEADS][KVB_PARTS][PART];
} reference;

static reference want;
static unsigned mismatches;

/* ---- comparing ------------------------------------------------------------------------------------------------- */

/* Decodes both. Do they differ only in which NaN they hold? */
static bool only_nans_differ(uint32_t h, const unsigned char *const got[KVB_PARTS],
                             const unsigned char *const part[KVB_PARTS])
{
    const kvb_storage *s = &want.store[h];
    double a[MAX_DIM], b[MAX_DIM], size[MAX_DIM];
    if (s->format->transform == KVB_TRANSFORM_NONE)
        return false;
    kvb_codec_decode(s->codec, got, s->dim, s->head_scale, a, size);
    kvb_codec_decode(s->codec, part, s->dim, s->head_scale, b, size);
    for (uint32_t c = 0; c < s->dim; c++)
        if (!(isnan(a[c]) && isnan(b[c])) && memcmp(&a[c], &b[c], sizeof a[c]) != 0)
            return false;
    return true;
}

/* got: the stored parts of the row of head h of token t. */
static void row_compare(const char *where, uint32_t t, uint32_t h, const unsigned char *const got[KVB_PARTS])
{
    static const char *const names[KVB_PARTS] = {"codes", "scales", "zeros"};
    const unsigned char *part[KVB_PARTS] = {want.part[t][h][0], want.part[t][h][1], want.part[t][h][2]};
    const kvb_storage *s = &want.store[h];
    for (int p = 0; p < KVB_PARTS; p++) {
        if (want.bytes[p] == 0 || memcmp(got[p], part[p], want.bytes[p]) == 0)
            continue;
        if (only_nans_differ(h, got, part))
            return;
        if (mismatches++ < SHOWN) {
            size_t at = 0;
            while (got[p][at] == part[p][at])
                at++;
            print_message("# %s, %s, dim %u, row kind %u, head scale %a: byte %zu of %s is %02x, the oracle's %02x\n",
                          s->format->name, where, s->dim, t % ROW_KINDS, (double)s->head_scale, at, names[p],
                          got[p][at], part[p][at]);
            for (uint32_t c = 0; c < s->dim; c++)
                print_message("%s%a", c ? " " : "#   ", (double)want.turned[(t * HEADS + h) * s->dim + c]);
            print_message("\n");
        }
        return;
    }
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

/* Sets up the reference. false: rows of this dim do not fit; oracle and pool must agree on this. */
static bool reference_init(const kvb_pool_type *type, uint32_t dim, const float *amax)
{
    char why[200], other[200];
    bool fits = !type->supports || type->supports(type, dim, why, sizeof why);
    for (uint32_t h = 0; h < HEADS; h++)
        if ((kvb_storage_init(&want.store[h], type->format, dim, amax, HEADS, h, other, sizeof other) == 0) != fits)
            fail_msg("%s, dim %u: the pool says %s, the oracle does not", type->name, dim, fits ? "yes" : why);
    for (int p = 0; fits && p < KVB_PARTS; p++)
        want.bytes[p] = kvb_codec_bytes(want.store[0].codec, dim, p);
    return fits;
}

/* Transforms and encodes want.rows. */
static void reference_encode(uint32_t dim)
{
    memcpy(want.turned, want.rows, CELLS * HEADS * (size_t)dim * sizeof(float));
    for (uint32_t t = 0; t < CELLS; t++)
        for (uint32_t h = 0; h < HEADS; h++) {
            const kvb_storage *s = &want.store[h];
            unsigned char *part[KVB_PARTS] = {want.part[t][h][0], want.part[t][h][1], want.part[t][h][2]};
            float *row = want.turned + (t * HEADS + h) * dim;
            kvb_codec_rotate(s->format->transform, dim, row);
            kvb_codec_encode(s->codec, row, 1, dim, s->head_scale, part);
        }
}

static void rows_special(uint32_t dim, uint64_t *seed)
{
    for (uint32_t i = 0; i < CELLS * HEADS; i++) {
        row_kind kind = i / HEADS % ROW_KINDS;
        float *row = want.rows + i * dim, scale = want.store[i % HEADS].head_scale;
        row_fill(kind, row, dim, seed);
        /* Ties that appear only after division by the head scale, for nvfp4's scales after one by 6. */
        for (uint32_t c = 0; kind == ROW_FLOAT_TIES && scale != 1 && c < dim; c++)
            row[c] *= scale * (want.store[0].format->elem == KVB_E2M1 ? 6.0f : 1.0f);
    }
}

static const uint32_t lows[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
#define LOWS (sizeof lows / sizeof *lows)

/* Values run through all upper halves of a float, with lower halves at and around ties, row after row. */
static void rows_patterns(uint32_t dim, uint64_t *next)
{
    for (size_t i = 0; i < CELLS * HEADS * (size_t)dim; i++, ++*next)
        want.rows[i] = row_float((uint32_t)(*next / LOWS % 65536) << 16 | lows[*next % LOWS]);
}

/* ---- by instruction set, and through the pool ------------------------------------------------------------------- */

/* Rows and codes lie APART bytes behind an aligned address. */
static void isas_compare(const kvb_pool_type *type, uint32_t dim)
{
    for (size_t i = 0; kvb_codec_isas[i]; i++) {
        const kvb_codec_isa *isa = kvb_codec_isas[i];
        kvb_encode *encode = isa->encode[kvb_pool_kind_of(type)->rule];
        if (!isa->available())
            continue;
        assert_non_null(encode);
        for (uint32_t row = 0; row < CELLS * HEADS; row++) {
            _Alignas(64) unsigned char out[KVB_PARTS][PART + 64];
            unsigned char *const got[KVB_PARTS] = {out[0] + APART, out[1] + APART, out[2] + APART};
            _Alignas(64) float memory[MAX_DIM + 1], *const turned = memory + 1;
            memcpy(turned, want.rows + row * dim, dim * sizeof *turned);
            if (type->format->transform)
                isa->rotate(type->format->transform, dim, false, turned);
            memset(out, 0x5a, sizeof out);
            encode(&(kvb_coded){type->format, got[0], got[1], got[2], want.store[row % HEADS].head_scale, 1}, turned,
                   dim);
            for (int p = 0; p < KVB_PARTS; p++) /* no byte beside a part is written */
                for (size_t b = 0; b < APART + 8; b++)
                    assert_int_equal(out[p][b < APART ? b : want.bytes[p] + b], 0x5a);
            row_compare(isa->name, row / HEADS, row % HEADS, (const unsigned char *const *)got);
        }
    }
}

static bool same_number(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Any bytes of codes, scales and zeros, also such as no encoder makes, are read as the oracle reads them, if it does so
 * exactly, and by each instruction set as by portable code, signs of zeros included. */
static void bytes_read(const kvb_storage *s, uint64_t *seed)
{
    const kvb_format *f = s->format;
    const bool exactly = kvb_storage_reads(f);
    for (uint32_t turn = 0; turn < 64 && !f->transform; turn++) {
        unsigned char bytes[KVB_PARTS][PART];
        const unsigned char *part[] = {bytes[0], bytes[1], bytes[2]};
        double stored[MAX_DIM], size[MAX_DIM];
        float want_row[MAX_DIM], portable[MAX_DIM], row[MAX_DIM];
        for (size_t i = 0; i < sizeof bytes; i += sizeof(uint32_t)) {
            const uint32_t word = row_random(seed);
            memcpy((unsigned char *)bytes + i, &word, sizeof word);
        }
        if (exactly) {
            kvb_codec_decode(s->codec, part, s->dim, s->head_scale, stored, size);
            kvb_storage_read(s, stored, want_row);
        }
        for (size_t i = 0; kvb_codec_isas[i] && kvb_codec_isas[i]->available(); i++) {
            const kvb_coded from = {f, bytes[0], bytes[1], bytes[2], s->head_scale, 0};
            kvb_codec_isas[i]->decode[kvb_decode_rule(f)](&from, s->dim, i ? row : portable);
            for (uint32_t c = 0; c < s->dim; c++) {
                const float got = i ? row[c] : portable[c], want_it = exactly ? want_row[c] : portable[c];
                if (!(same_number(got, want_it) && (isnan(got) || signbit(got) == signbit(portable[c]))) &&
                    mismatches++ < SHOWN)
                    print_message("# %s, %s, dim %u, channel %u: any bytes are read as %a, not %a\n", f->name,
                                  kvb_codec_isas[i]->name, s->dim, c, (double)got, (double)want_it);
            }
        }
    }
}

/* Compares a cell that holds token t. */
static void cell_compare(const char *where, const kvb_pool *pool, uint32_t cell, uint32_t t)
{
    kvb_view v;
    pool->type->view(pool, cell + 1, &v);
    for (uint32_t h = 0; h < HEADS; h++) {
        const unsigned char *scales = v.scales, *zeros = v.zeros, *got[KVB_PARTS] = {kvb_view_row(&v, h, cell)};
        got[1] = scales ? scales + h * v.scale_head_stride + cell * v.scale_cell_stride : NULL;
        got[2] = zeros ? zeros + h * v.zero_head_stride + cell * v.zero_cell_stride : NULL;
        for (int p = 0; p < KVB_PARTS; p++)
            assert_true((got[p] != NULL) == (want.bytes[p] > 0));
        assert_true(!v.head_scales == !v.format->head_scale);
        assert_true(!v.head_scales || v.head_scales[h] == want.store[h].head_scale);
        row_compare(where, t, h, got);
    }
}

/* Cell t holds token t: format->read must give what the oracle decodes, within the roundings that the format allows. */
static void cell_read(const kvb_pool *pool, uint32_t cell)
{
    kvb_view v;
    pool->type->view(pool, CELLS, &v);
    for (uint32_t h = 0; h < HEADS; h++) {
        float row[MAX_DIM];
        double stored[MAX_DIM], size[MAX_DIM];
        double roundings = kvb_format_roundings(v.format, v.dim) * 0x1.01p-24;
        double mixed = v.format->transform ? sqrt(kvb_transform_block(v.dim)) : 1;
        const kvb_storage *s = &want.store[h];
        const unsigned char *part[] = {want.part[cell][h][0], want.part[cell][h][1], want.part[cell][h][2]};
        kvb_codec_decode(s->codec, part, s->dim, s->head_scale, stored, size);
        float same[MAX_DIM];
        kvb_storage_read(s, stored, same);
        kvb_storage_finish(s, stored, size);
        v.format->read(&v, h, cell, 1, row);
        for (uint32_t c = 0; c < v.dim; c++)
            if (row[c] != same[c] && isfinite(same[c]) && kvb_storage_reads(v.format) && mismatches++ < SHOWN)
                print_message("# %s, dim %u, row kind %u, channel %u is read as %a, which the oracle takes for %a\n",
                              v.format->name, v.dim, cell % ROW_KINDS, c, (double)row[c], (double)same[c]);
        for (uint32_t c = 0; c < v.dim; c++) {
            if (!(size[c] < 0x1p120)) /* infinities, NaN, and intermediate overflows */
                continue;
            if (!(fabs((double)row[c] - stored[c]) <= roundings * mixed * size[c] + 0x1p-140) && mismatches++ < SHOWN)
                print_message("# %s, dim %u, row kind %u, channel %u reads as %a, not %a\n", v.format->name, v.dim,
                              cell % ROW_KINDS, c, (double)row[c], stored[c]);
        }
    }
}

/* Compares all cells; token[c]: the token in cell c. */
static void cells_compare(const char *where, const kvb_pool *pool, const uint32_t token[CELLS])
{
    for (uint32_t c = 0; c < CELLS; c++)
        cell_compare(where, pool, c, token[c]);
}

/* Rows lie head after head, each row behind the one before. */
static void view_check(const kvb_pool *pool, uint32_t dim, kvb_growth growth)
{
    kvb_view v;
    pool->type->view(pool, 7, &v);
    assert_true(v.cells == 7 && v.dim == dim && v.format == pool->type->format && !v.recent);
    assert_int_equal(v.cell_stride, kvb_codes_bytes(v.format, dim));
    assert_true(growth == KVB_GROWTH_DOUBLE ? v.head_stride == CELLS * v.cell_stride
                                            : v.head_stride >= CELLS * v.cell_stride); /* whole pages */
}

/* Rows that gather_into() moves lie over one another, as an accepted path does over rejected nodes; or lie behind. */
static void pool_compare(const kvb_pool_type *type, uint32_t dim, kvb_growth growth, const float *amax)
{
    kvb_allocator allocator = {0};
    kvb_pool_options options = {HEADS, dim, 4, CELLS, growth, amax, &allocator};
    kvb_pool *pool;
    uint32_t token[CELLS];
    const char *where = kvb_growth_names[growth];
    static const uint32_t scattered[] = {19, 7, 22}, path[] = {10, 12, 13, 20}, back[] = {3, 0, 3};

    assert_int_equal(type->open(type, &options, &pool), 0);
    assert_int_equal(type->ensure(pool, 10), 0);
    type->write_run(pool, 0, 10, want.rows);
    assert_int_equal(type->ensure(pool, CELLS), 0); /* growth moves stored rows */
    type->write_run(pool, 10, CELLS - 10, want.rows + 10 * (size_t)HEADS * dim);
    type->write_run(pool, 4, 0, want.rows);
    for (uint32_t c = 0; c < CELLS; c++)
        token[c] = c;
    cells_compare(where, pool, token);
    view_check(pool, dim, growth);
    for (uint32_t c = 0; c < CELLS; c++)
        cell_read(pool, c);
    type->scatter(pool, scattered, 3, want.rows);
    for (uint32_t i = 0; i < 3; i++)
        token[scattered[i]] = i;
    cells_compare(where, pool, token);
    type->gather_into(pool, 10, path, 4);
    for (uint32_t i = 0; i < 4; i++)
        token[10 + i] = token[path[i]];
    type->gather_into(pool, 21, back, 3);
    for (uint32_t i = 0; i < 3; i++)
        token[21 + i] = token[back[i]];
    cells_compare(where, pool, token);
    type->close(pool);
    assert_int_equal(allocator.current_bytes, 0);
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

/* Every length up to 67, then some that large groups divide; the last three take more than one pass of a loop. */
static uint32_t dim_after(uint32_t dim)
{
    static const uint32_t large[] = {96, 128, 160, 192, 256, 272, 288, 384};
    size_t i = 0;
    if (dim < ALL_DIMS)
        return dim + 1;
    while (i < 8 && large[i] <= dim)
        i++;
    return i < 8 ? large[i] : 0;
}

static void type_compare(const kvb_pool_type *type)
{
    static const float amax[HEADS] = {3, 700, 0.01f};
    bool any_bits = kvb_pool_kind_of(type)->rule <= KVB_RULE_FP8;
    uint64_t seed = 1, next = 0;
    uint32_t taken = 0;
    for (uint32_t dim = 1; dim; dim = dim_after(dim))
        for (int given = 0; given < (type->format->head_scale ? 2 : 1); given++) {
            if (!reference_init(type, dim, given ? amax : NULL))
                continue;
            taken++;
            bytes_read(&want.store[0], &seed);
            rows_special(dim, &seed);
            reference_encode(dim);
            isas_compare(type, dim);
            pool_compare(type, dim, KVB_GROWTH_DOUBLE, given ? amax : NULL);
            pool_compare(type, dim, KVB_GROWTH_RESERVE, given ? amax : NULL);
            do {
                if (!any_bits)
                    break;
                rows_patterns(dim, &next);
                reference_encode(dim);
                isas_compare(type, dim);
            } while (dim == MAX_DIM && next < 65536 * LOWS); /* until every pattern was tried */
        }
    assert_true(taken > 0);
}

TEST(pools_store_what_the_codec_stores)
{
    unsigned all = 0;
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (const kvb_pool_type *type = kvb_builtin_pools[p]; type; type = type->rotated) {
            mismatches = 0;
            if (type->format->residual_cells == 0)
                type_compare(type);
            if (mismatches)
                print_message("# %s: %u rows differ\n", type->name, mismatches);
            all += mismatches;
        }
    assert_int_equal(all, 0);
}

/*
 * The codec gate for formats with residual windows (KIVI). Shows that each instruction set encodes a block as the
 * oracle's reference codec does, bit for bit, also with empty cells. A sequence that is written to a pool, token by
 * token or in runs, is read as the rows that the oracle stores for it, encoded and residual, with any growth, within
 * the roundings that the format allows.
 */

enum { WINDOW_HEADS = 2, TOKENS = 230, BLOCK = 32, WINDOW_DIM = 160, BLOCK_PART = BLOCK * 2 * WINDOW_DIM };

static float rows[TOKENS * WINDOW_HEADS * WINDOW_DIM];
static unsigned char expected[KVB_PARTS][BLOCK_PART], got[KVB_PARTS][BLOCK_PART];

static const uint32_t dims[] = {1, 2, 3, 4, 7, 12, 32, 66, 96, 160};

/* Does the pool take rows of dim? The oracle must agree. */
static bool fits(const kvb_pool_type *type, uint32_t dim, kvb_storage *store)
{
    char why[200];
    bool takes = !type->supports || type->supports(type, dim, why, sizeof why);
    bool stores = kvb_storage_init(store, type->format, dim, NULL, WINDOW_HEADS, 0, why, sizeof why) == 0;
    if (takes != stores)
        fail_msg("%s, dim %u: the pool says %s, the oracle %s", type->name, dim, takes ? "yes" : "no",
                 stores ? "yes" : "no");
    return takes;
}

/* Kinds of rows change from token to token; by_block: from block to block, so that channels have one kind, too. */
static void rows_make(uint32_t dim, bool by_block)
{
    uint64_t seed = dim;
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t h = 0; h < WINDOW_HEADS; h++)
            row_fill((by_block ? t / BLOCK + h * 6 : t) % ROW_KINDS, rows + (t * WINDOW_HEADS + h) * dim, dim, &seed);
}

/* ---- one block ------------------------------------------------------------------------------------------------- */

static void part_compare(const char *name, const char *isa, uint32_t dim, int part, size_t bytes)
{
    static const char *const names[KVB_PARTS] = {"codes", "scales", "zeros"};
    for (size_t i = 0; i < bytes; i++)
        if (got[part][i] != expected[part][i])
            fail_msg("%s, %s, dim %u: byte %zu of %s is %02x, the oracle's %02x", name, isa, dim, i, names[part],
                     got[part][i], expected[part][i]);
}

/* held: bits of cells that hold rows. The oracle encodes only these; the others' codes are 0. */
static void block_compare(const kvb_pool_type *type, const kvb_storage *store, uint32_t held, const float *block)
{
    const kvb_codec *codec = store->codec;
    uint32_t dim = store->dim, n = 0;
    static float packed[BLOCK * WINDOW_DIM];
    static unsigned char codes[BLOCK_PART];
    unsigned char *part[KVB_PARTS] = {codes, expected[KVB_SCALES], expected[KVB_ZEROS]};
    size_t row_codes = kvb_codec_bytes(codec, dim, KVB_CODES), side = kvb_codec_bytes(codec, dim, KVB_SCALES);

    for (uint32_t c = 0; c < BLOCK; c++)
        if (held >> c & 1)
            memcpy(packed + (size_t)n++ * dim, block + (size_t)c * dim, dim * sizeof *packed);
    kvb_codec_encode(codec, packed, n, dim, 1, part);
    memset(expected[KVB_CODES], 0, BLOCK * row_codes);
    n = 0;
    for (uint32_t c = 0; c < BLOCK; c++)
        if (held >> c & 1)
            memcpy(expected[KVB_CODES] + c * row_codes, codes + n++ * row_codes, row_codes);

    for (size_t i = 0; kvb_codec_isas[i]; i++) {
        const kvb_codec_isa *isa = kvb_codec_isas[i];
        kvb_encode *encode = isa->encode[kvb_pool_kind_of(type)->rule];
        if (!isa->available())
            continue;
        memset(got, 0x5a, sizeof got);
        if (codec->shared)
            encode(&(kvb_coded){type->format, got[0], got[1], got[2], 1, held}, block, dim);
        else /* row by row; all cells are held */
            for (uint32_t c = 0; c < BLOCK; c++)
                encode(&(kvb_coded){type->format, got[0] + c * row_codes, got[1] + c * side, got[2] + c * side, 1, 1},
                       block + (size_t)c * dim, dim);
        part_compare(type->name, isa->name, dim, KVB_CODES, BLOCK * row_codes);
        part_compare(type->name, isa->name, dim, KVB_SCALES, side * (codec->shared ? 1 : BLOCK));
        part_compare(type->name, isa->name, dim, KVB_ZEROS, side * (codec->shared ? 1 : BLOCK));
    }
}

static void blocks_compare(const kvb_pool_type *type, const kvb_storage *store)
{
    static const uint32_t masks[] = {0xffffffff, 1, 0x80000000, 0xaaaaaaaa, 0x00ffff00};
    static float block[BLOCK * WINDOW_DIM];
    uint64_t seed = store->dim;
    for (int kind = 0; kind <= ROW_KINDS; kind++) /* the last one mixes them */
        for (int m = 0; m < (store->codec->shared ? 5 : 1); m++) {
            for (uint32_t c = 0; c < BLOCK; c++) {
                float *row = block + (size_t)c * store->dim;
                row_fill(kind == ROW_KINDS ? c % ROW_KINDS : (row_kind)kind, row, store->dim, &seed);
                for (uint32_t i = 0; i < store->dim; i++)
                    row[i] = (float)kvb_codec_rounded(KVB_F16, row[i]);
            }
            block_compare(type, store, masks[m], block);
        }
}

/* ---- a sequence in a pool -------------------------------------------------------------------------------------- */

/* Is the pool's value within `off` of the oracle's? If that is not finite, both must be the same. */
static bool agree(double pool, double oracle, double off)
{
    return isfinite(oracle) ? fabs(pool - oracle) <= off : pool == oracle || (isnan(pool) && isnan(oracle));
}

static void view_compare(const kvb_pool *pool, const kvb_storage *store, uint32_t n)
{
    static double stored[TOKENS * WINDOW_DIM], size[TOKENS * WINDOW_DIM];
    static float read[TOKENS * WINDOW_DIM];
    const float *row_at[TOKENS];
    uint32_t dim = store->dim;
    double roundings = kvb_format_roundings(pool->type->format, dim) * 0x1.01p-24;
    double mixed = pool->type->format->transform ? sqrt(kvb_transform_block(dim)) : 1;
    void *scratch = malloc(kvb_storage_scratch(store));
    kvb_view view;
    assert_non_null(scratch);
    pool->type->view(pool, n, &view);
    for (uint32_t h = 0; h < WINDOW_HEADS; h++) {
        for (uint32_t t = 0; t < n; t++)
            row_at[t] = rows + (t * WINDOW_HEADS + h) * dim;
        kvb_storage_rows(store, row_at, n, scratch, stored, size);
        view.format->read(&view, h, 0, n, read);
        for (uint32_t i = 0; i < n * dim; i++)
            if (!agree((double)read[i], stored[i], roundings * mixed * size[i] + 0x1p-140))
                fail_msg("%s, dim %u, %u tokens: token %u, head %u, channel %u is %a, the oracle's %a",
                         pool->type->name, dim, n, i / dim, h, i % dim, (double)read[i], stored[i]);
    }
    free(scratch);
}

/* Writes the sequence, `run` tokens at a time, and compares. */
static void sequence_compare(const kvb_pool_type *type, const kvb_storage *store, uint32_t run, kvb_growth growth)
{
    kvb_allocator allocator = {0};
    kvb_pool_options options = {WINDOW_HEADS, store->dim, 5, TOKENS, growth, NULL, &allocator};
    kvb_pool *pool;
    assert_int_equal(type->open(type, &options, &pool), 0);
    for (uint32_t t = 0; t < TOKENS; t += run) {
        uint32_t n = TOKENS - t < run ? TOKENS - t : run, end = t + n;
        assert_int_equal(type->ensure(pool, end), 0);
        type->write_run(pool, t, n, rows + (size_t)t * WINDOW_HEADS * store->dim);
        if (run > 1 || end == 17 || end == TOKENS ||
            (end >= 4 * BLOCK && end % BLOCK <= 1)) /* before and after a block closes */
            view_compare(pool, store, end);
    }
    type->close(pool);
    assert_int_equal(allocator.current_bytes, 0);
}

TEST(windows_store_what_the_codec_stores)
{
    uint64_t seed = 1;
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (const kvb_pool_type *type = kvb_builtin_pools[p]; type; type = type->rotated)
            for (size_t d = 0; type->format->residual_cells && d < sizeof dims / sizeof *dims; d++) {
                kvb_storage store;
                if (!fits(type, dims[d], &store))
                    continue;
                mismatches = 0;
                bytes_read(&store, &seed);
                assert_int_equal(mismatches, 0);
                blocks_compare(type, &store);
                rows_make(dims[d], false);
                sequence_compare(type, &store, 1, KVB_GROWTH_DOUBLE);
                sequence_compare(type, &store, 41, KVB_GROWTH_RESERVE);
                rows_make(dims[d], true);
                sequence_compare(type, &store, 1, KVB_GROWTH_RESERVE);
                sequence_compare(type, &store, TOKENS, KVB_GROWTH_DOUBLE);
            }
}
