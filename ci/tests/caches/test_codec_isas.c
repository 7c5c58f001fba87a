/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: every instruction set rotates rows, to the same bits; the choice of one. whole/test_stored_bytes shows what each
 * stores and reads. */
#include "ci/tests/tests.h"
#include "caches/pools/codec/codec.h"
#include "workloads/special_rows.h"

#define DIM_MAX 1152u

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

static float rows[3 * DIM_MAX]; /* may begin at any float */
static uint64_t seed = 1;

TEST(rotations_agree)
{
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++)
        for (uint32_t dim = 1; dim && (*isa)->available(); dim = next_dim(dim))
            for (row_kind kind = 0; kind < ROW_KINDS; kind++)
                for (int way = 0; way < 4; way++) {
                    kvb_transform t = way & 1 ? KVB_TRANSFORM_SIGNED_HADAMARD : KVB_TRANSFORM_HADAMARD;
                    row_fill(kind, rows, dim, &seed);
                    memcpy(rows + dim + 1, rows, dim * sizeof *rows);
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
                row_fill(ROW_NORMAL, x, dim, &seed);
                memcpy(turned, x, dim * sizeof *x);
                for (uint32_t i = 0; i < dim; i++) {
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
