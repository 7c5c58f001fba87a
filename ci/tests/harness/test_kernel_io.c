/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows, for outputs of every type and layers of unlike groups in turn, that every element that a kernel leaves
 * unwritten is found and named, that a write outside is seen, and that the digest tells every bit of the rows asked
 * for, and of no others.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/replay/guard.h"
#include "harness/replay/kernel_io.h"

/* q rows are the larger in one group, outputs in the other. */
static const kvb_model model = {.n_layers = 2,
                                .n_groups = 2,
                                .group_of = {0, 1},
                                .groups = {{.heads = 3, .kv_heads = 1, .k_dim = 9, .v_dim = 5, .scale = 1},
                                           {.heads = 2, .kv_heads = 2, .k_dim = 2, .v_dim = 11, .scale = 1}}};
enum { MOST = 7 * 3 * 11 };

static const kvb_elem elems[] = {KVB_F32, KVB_F16, KVB_BF16};
enum { ELEMS = sizeof elems / sizeof *elems };

static size_t size_of(kvb_elem elem)
{
    return elem == KVB_F32 ? 4 : 2;
}

/* n elements as a kernel writes them: zeros, and quiet NaNs, which are written too. */
static void fill(void *block, size_t n, kvb_elem elem)
{
    static const uint32_t nan_of[] = {[KVB_F32] = 0x7fc00000, [KVB_F16] = 0x7e00, [KVB_BF16] = 0x7fc0};
    for (size_t i = 0; i < n; i++) {
        uint32_t wide = i % 3 ? 0 : nan_of[elem];
        uint16_t narrow = (uint16_t)wide;
        memcpy((char *)block + i * size_of(elem), elem == KVB_F32 ? (void *)&wide : (void *)&narrow, size_of(elem));
    }
}

static void refuses(const kvb_kernel_io *io, const char *format, size_t query, size_t head, size_t channel)
{
    char why[128], want[128];
    snprintf(want, sizeof want, format, query, head, channel);
    assert_false(kvb_kernel_io_written(io, why, sizeof why));
    assert_string_equal(why, want);
}

/* One call: each element of out and lse is left out by turns, and is the one that is named. */
static void call_check(kvb_kernel_io *io, const kvb_group *g, uint32_t n, const float *q)
{
    size_t outs = (size_t)n * g->heads * g->v_dim, lses = (size_t)n * g->heads, bytes = size_of(io->out_elem);
    char why[128];
    assert_int_equal(kvb_kernel_io_fill(io, g, n, q), 0);
    assert_memory_equal(io->q, q, (size_t)n * g->heads * g->k_dim * sizeof(float));
    kvb_kernel_io_poison(io);
    assert_true(isnan(io->lse[0]) && isnan(io->lse[lses - 1]));
    refuses(io, "left out unwritten at query %zu, head %zu, channel %zu", 0, 0, 0);
    for (size_t i = 0; i < outs; i++) {
        kvb_kernel_io_poison(io);
        char kept[4];
        const char *at = (const char *)io->out + i * bytes;
        memcpy(kept, at, bytes);
        fill(io->out, outs, io->out_elem);
        memcpy((char *)io->out + i * bytes, kept, bytes);
        refuses(io, "left out unwritten at query %zu, head %zu, channel %zu", i / g->v_dim / g->heads,
                i / g->v_dim % g->heads, i % g->v_dim);
        if (i % g->v_dim == 0)
            assert_ptr_equal(
                kvb_kernel_io_row(io, (uint32_t)(i / g->v_dim / g->heads), (uint32_t)(i / g->v_dim % g->heads)), at);
    }
    fill(io->out, outs, io->out_elem);
    for (size_t i = 0; i < lses; i++) {
        kvb_kernel_io_poison(io);
        float kept = io->lse[i];
        fill(io->out, outs, io->out_elem);
        fill(io->lse, lses, KVB_F32);
        memcpy(&io->lse[i], &kept, sizeof kept);
        refuses(io, "left lse unwritten at query %zu, head %zu", i / g->heads, i % g->heads, 0);
    }
    fill(io->lse, lses, KVB_F32);
    assert_true(kvb_kernel_io_written(io, why, sizeof why));
    assert_true(!io->guarded || kvb_guard_check(why, sizeof why)); /* all of it lies in the blocks, to the last byte */
}

static void unwritten_elements_are_named(void **state)
{
    static const uint32_t sizes[] = {2, 7, 1, 7, 3}; /* growing, and smaller in the same block */
    static float q[MOST];
    (void)state;
    for (size_t i = 0; i < 2 * ELEMS; i++) {
        kvb_kernel_io io;
        kvb_kernel_io_init(&io, &model, elems[i / 2], i % 2);
        for (size_t s = 0; s < 2 * sizeof sizes / sizeof *sizes; s++) {
            q[0] = (float)s;
            call_check(&io, &model.groups[s % 2], sizes[s / 2], q);
        }
        kvb_kernel_io_free(&io);
    }
}

/* The first element behind out, and behind lse: the slack of the guarded block, of whatever size the call is. */
static void a_write_outside_is_seen(void **state)
{
    static float q[MOST];
    (void)state;
    for (size_t e = 0; e < ELEMS; e++)
        for (uint32_t i = 0; i < 2 * 4; i++) {
            const kvb_group *g = &model.groups[i % 2];
            uint32_t n = 7 - i / 2; /* blocks that are larger than the call */
            size_t outs = (size_t)n * g->heads * g->v_dim * size_of(elems[e]),
                   lses = (size_t)n * g->heads * sizeof(float);
            for (int side = 0; side < 2; side++) {
                kvb_kernel_io io;
                char why[128] = "", want[64];
                kvb_kernel_io_init(&io, &model, elems[e], true);
                assert_int_equal(kvb_kernel_io_fill(&io, &model.groups[1], 7, q), 0);
                assert_int_equal(kvb_kernel_io_fill(&io, g, n, q), 0);
                assert_true((side ? lses : outs) % 64); /* else the next byte is no slack, and ends in a signal */
                assert_true(kvb_guard_check(why, sizeof why));
                memset(side ? (char *)io.lse + lses : (char *)io.out + outs, 0, size_of(elems[e]));
                snprintf(want, sizeof want, "write 0 bytes past the end of %s", side ? "lse" : "out");
                assert_false(kvb_guard_check(why, sizeof why));
                assert_string_equal(why, want);
                kvb_kernel_io_free(&io);
            }
        }
}

static void digest_tells_every_bit(void **state)
{
    enum { QUERIES = 4, OWN = 3 };
    static float q[MOST];
    (void)state;
    for (size_t e = 0; e < 2 * ELEMS; e++) {
        const kvb_group *g = &model.groups[e % 2];
        const size_t row[] = {g->heads * g->v_dim * size_of(elems[e / 2]), g->heads * sizeof(float)};
        kvb_kernel_io io;
        kvb_kernel_io_init(&io, &model, elems[e / 2], false);
        assert_int_equal(kvb_kernel_io_fill(&io, g, QUERIES, q), 0);
        memset(io.out, 0, QUERIES * row[0]);
        memset(io.lse, 0, QUERIES * row[1]);
        const uint64_t zeros = kvb_kernel_io_digest(&io, OWN, KVB_DIGEST_START);
        char *const block[] = {io.out, (char *)io.lse};
        for (int b = 0; b < 2; b++)
            for (size_t i = 0; i < 8 * QUERIES * row[b]; i++) {
                block[b][i / 8] ^= (char)(1u << i % 8);
                bool own = i / 8 >= (QUERIES - OWN) * row[b];
                assert_true((kvb_kernel_io_digest(&io, OWN, KVB_DIGEST_START) != zeros) == own);
                block[b][i / 8] = 0;
            }
        for (size_t i = row[0]; i + 16 <= QUERIES * row[0]; i += 8) { /* two signs do not make up for each other */
            block[0][i + 7] ^= (char)0x80, block[0][i + 15] ^= (char)0x80;
            assert_true(kvb_kernel_io_digest(&io, OWN, KVB_DIGEST_START) != zeros);
            block[0][i + 7] = block[0][i + 15] = 0;
        }
        assert_true(kvb_kernel_io_digest(&io, OWN, zeros) != zeros); /* carried on */
        kvb_kernel_io_free(&io);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unwritten_elements_are_named),
        cmocka_unit_test(a_write_outside_is_seen),
        cmocka_unit_test(digest_tells_every_bit),
    };
    return cmocka_run_group_tests_name("kernel io", tests, NULL, NULL);
}
