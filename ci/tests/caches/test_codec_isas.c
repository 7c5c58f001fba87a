/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: every instruction set stores the same bytes and reads the same floats as portable code, and rotates rows. */
#include <float.h>

#include "ci/tests/tests.h"
#include "caches/pools/rows.h"

#define DIM_MAX   1152u
#define CELLS_MAX 32u /* of a window */

/* Every remainder that a vector loop can leave, then sizes of real heads, then some larger than one pass of a loop. */
static uint32_t next_dim(uint32_t dim)
{
    static const uint32_t large[] = {80, 96, 112, 120, 128, 160, 192, 256, 272, 288, 320, 576, DIM_MAX, 0};
    if (dim < 70)
        return dim + 1;
    for (const uint32_t *d = large;; d++)
        if (*d > dim || !*d)
            return *d;
}

static uint32_t random_bits(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static float float_from(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum { NORMAL, BITS, SUBNORMALS, ZEROS, TIES, EQUAL, OUTLIER, SATURATED, SOME_NAN, SOME_INFINITE, NANS, KINDS };

static float element(int kind, uint32_t i)
{
    uint32_t r = random_bits();
    float sign = r & 1 ? -1.0f : 1.0f, normal = 0;
    for (int k = 0; k < 4; k++)
        normal += (float)(random_bits() >> 8) * 0x1p-23f - 1.0f;
    switch (kind) {
    case BITS:
        return float_from(r);
    case SUBNORMALS:
        return float_from(r & (i % 3 ? 0x807fffffu : 0x800000ffu));
    case ZEROS:
        return sign * 0.0f;
    case TIES:
        return sign * (float)(r >> 8 & 127) * 0.125f;
    case EQUAL:
        return -3.7f;
    case OUTLIER:
        return i == 5 ? -1e30f : normal;
    case SATURATED:
        return sign * (r & 2 ? FLT_MAX : r & 4 ? 65504.0f : 0x1p126f);
    case SOME_NAN:
        return r >> 8 & 7 ? normal : float_from(0x7f800001u | r);
    case SOME_INFINITE:
        return r >> 8 & 7 ? normal : sign * INFINITY;
    case NANS:
        return float_from(0x7f800001u | r);
    default:
        return normal;
    }
}

/* Rows start at an odd float, codes at an odd element; bytes around the written ones must stay. */
static float rows[CELLS_MAX * DIM_MAX + 1], read_back[2][DIM_MAX];
static _Alignas(64) unsigned char codes[2][CELLS_MAX * DIM_MAX * 4 + 8];
static _Alignas(64) unsigned char scales[2][DIM_MAX * 4], zeros[2][DIM_MAX * 4];

static uint32_t bits_at(const float *x)
{
    uint32_t b;
    memcpy(&b, x, sizeof b);
    return b;
}

static void floats_agree(const kvb_codec_isa *isa, const char *what, uint32_t dim, const float *a, const float *b)
{
    for (uint32_t i = 0; i < dim; i++)
        if (bits_at(&a[i]) != bits_at(&b[i]) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: %s of %u channels: channel %u is %a, portable says %a", isa->name, what, dim, i, (double)b[i],
                     (double)a[i]);
}

static void decoding_agrees(const kvb_codec_isa *isa, const kvb_format *f, uint32_t dim, unsigned char *stored)
{
    const kvb_codec_isa *portable = kvb_codec_isas[0];
    kvb_rule rule = kvb_decode_rule(f);
    const kvb_coded from = {f, stored, scales[0], zeros[0], 0.37f, 0};
    portable->decode[rule](&from, dim, read_back[0]);
    isa->decode[rule](&from, dim, read_back[1]);
    floats_agree(isa, f->name, dim, read_back[0], read_back[1]);
}

static void format_agrees(const kvb_codec_isa *isa, const kvb_pool_type *type, uint32_t dim, int kind)
{
    const kvb_format *f = type->format;
    kvb_rule rule = kvb_pool_kind_of(type)->rule;
    uint32_t n = rule == KVB_RULE_CHANNELS ? f->residual_cells : 1;
    uint64_t held = n == 1 ? 1 : ((uint64_t)random_bits() << 1 | 1u) & ((1ull << n) - 1);
    size_t shift = rule == KVB_RULE_F32 ? 4 : rule == KVB_RULE_F16 || rule == KVB_RULE_BF16 ? 2 : 1;
    size_t bytes = n * kvb_codes_bytes(f, dim);
    float *row = rows + 1;

    for (uint32_t i = 0; i < n * dim; i++)
        row[i] = element(kind, i);
    for (int side = 0; side < 2; side++) {
        memset(codes[side], 0xa5, bytes + 8);
        memset(scales[side], 0xa5, sizeof scales[side]);
        memset(zeros[side], 0xa5, sizeof zeros[side]);
        const kvb_coded to = {f, codes[side] + shift, scales[side], zeros[side], 0.37f, held};
        (side ? isa : kvb_codec_isas[0])->encode[rule](&to, row, dim);
        for (size_t i = 0; i < 8; i++)
            assert_int_equal(codes[side][i < shift ? i : bytes + i], 0xa5);
    }
    for (size_t i = 0; i < bytes + 8; i++)
        if (codes[0][i] != codes[1][i])
            fail_msg("%s: %s of %u channels, row kind %d: byte %zu is %02x, portable says %02x", isa->name, f->name,
                     dim, kind, i - shift, codes[1][i], codes[0][i]);
    assert_memory_equal(scales[0], scales[1], sizeof scales[0]);
    assert_memory_equal(zeros[0], zeros[1], sizeof zeros[0]);
    decoding_agrees(isa, f, dim, codes[0] + shift);
    for (size_t i = 0; i < bytes; i++) /* codes that no encoder makes, too */
        codes[0][i + shift] = (unsigned char)(random_bits() >> 8);
    decoding_agrees(isa, f, dim, codes[0] + shift);
}

TEST(bytes_and_floats_agree)
{
    char why[200];
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++)
        for (const kvb_pool_type *const *type = kvb_builtin_pools; *type && (*isa)->available(); type++)
            for (const kvb_pool_type *form = *type; form; form = form->rotated)
                for (uint32_t dim = 1; dim; dim = next_dim(dim))
                    for (int kind = 0; kvb_format_fits(form->format, dim, why, sizeof why) && kind < KINDS; kind++)
                        format_agrees(*isa, form, dim, kind);
}

TEST(rotations_agree)
{
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++)
        for (uint32_t dim = 1; dim && (*isa)->available(); dim = next_dim(dim))
            for (int kind = 0; kind < KINDS; kind++)
                for (int way = 0; way < 4; way++) {
                    kvb_transform t = way & 1 ? KVB_TRANSFORM_SIGNED_HADAMARD : KVB_TRANSFORM_HADAMARD;
                    for (uint32_t i = 0; i < dim; i++)
                        rows[i] = rows[dim + 1 + i] = element(kind, i);
                    kvb_codec_isas[0]->rotate(t, dim, way & 2, rows);
                    (*isa)->rotate(t, dim, way & 2, rows + dim + 1);
                    if (memcmp(rows, rows + dim + 1, dim * sizeof *rows) != 0) /* NaNs have the same bits, too */
                        fail_msg("%s: rotation of %u channels, row kind %d, differs", (*isa)->name, dim, kind);
                }
}

/* The definition: element i of a block is the sum of x[j], negated where i & j has an odd number of bits. */
static double walsh(const float *x, uint32_t block, uint32_t i)
{
    double sum = 0;
    for (uint32_t j = 0; j < block; j++)
        sum += __builtin_parity(i & j) ? -(double)x[j] : (double)x[j];
    return sum / sqrt(block);
}

TEST(rotation_is_walsh_hadamard)
{
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++)
        for (uint32_t dim = 1; dim && (*isa)->available(); dim = next_dim(dim))
            for (int sign = 0; sign < 2; sign++) {
                kvb_transform t = sign ? KVB_TRANSFORM_SIGNED_HADAMARD : KVB_TRANSFORM_HADAMARD;
                uint32_t block = kvb_transform_block(dim);
                float *x = rows, *turned = rows + dim, *flipped = rows + 2 * dim;
                double before = 0, after = 0, small = 0;
                for (uint32_t i = 0; i < dim; i++) {
                    x[i] = turned[i] = element(NORMAL, i);
                    flipped[i] = sign && kvb_sign_flip(i) ? -x[i] : x[i];
                    before += (double)x[i] * x[i];
                }
                (*isa)->rotate(t, dim, false, turned);
                small = 1e-6 * sqrt(before); /* far above 12 roundings of 2^-24, far below an element */
                for (uint32_t i = 0; i < dim; i++) {
                    double right = walsh(flipped + i / block * block, block, i % block);
                    if (fabs(turned[i] - right) > small)
                        fail_msg("%s: %u channels: element %u is %g, not %g", (*isa)->name, dim, i, (double)turned[i],
                                 right);
                    after += (double)turned[i] * turned[i];
                }
                assert_true(fabs(after - before) <= 4e-6 * before);
                (*isa)->rotate(t, dim, true, turned);
                for (uint32_t i = 0; i < dim; i++)
                    assert_true(fabs((double)turned[i] - (double)x[i]) <= small);
            }
}

TEST(best_is_the_last_available)
{
    const kvb_codec_isa *last = NULL;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++)
        if ((*isa)->available())
            last = *isa;
    assert_ptr_equal(kvb_codec_best(), last);
    assert_string_equal(kvb_codec_isas[0]->name, "portable");
}

TEST(limit_holds)
{
    const kvb_codec_isa *best = kvb_codec_best(), *last = NULL;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++) {
        last = (*isa)->available() ? *isa : last;
        assert_int_equal(kvb_codec_limit((*isa)->name), 0);
        assert_ptr_equal(kvb_codec_best(), last); /* below what is not available: the best there is */
    }
    assert_int_equal(kvb_codec_limit("portable"), 0);
    assert_int_equal(kvb_codec_limit("no such"), -EINVAL);
    assert_ptr_equal(kvb_codec_best(), kvb_codec_isas[0]); /* as before */
    assert_int_equal(kvb_codec_limit(NULL), 0);
    assert_ptr_equal(kvb_codec_best(), best);
}
