/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: every instruction set rotates rows to portable's bits; the choice of one. whole/test_load holds portable's
 * against the definition, whole/test_stored_bytes shows what each stores and reads. */
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

static float rows[2 * DIM_MAX + 1];
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
