/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that every element that a kernel leaves unwritten is found and named, guarded or not, at any size; and that the
 * digest of the outputs tells every bit of the rows asked for, and of no others. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "harness/replay/kernel_io.h"

enum { HEADS = 3, DIM = 5 };
static const kvb_trace_model model = {.layers = 1, .heads = HEADS, .kv_heads = 1, .k_dim = DIM, .v_dim = DIM};

static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = i % 3 ? 0.0f : NAN; /* a quiet NaN is written too */
}

static void unwritten_elements_are_named(void **state)
{
    (void)state;
    for (int guarded = 0; guarded < 2; guarded++) {
        kvb_kernel_io io;
        float q[7 * HEADS * DIM] = {1};
        char why[128];
        kvb_kernel_io_init(&io, &model, guarded);
        static const uint32_t sizes[] = {2, 7, 1, 7, 3}; /* growing, and smaller in the same block */
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            uint32_t n = sizes[s];
            q[0] = (float)n;
            assert_int_equal(kvb_kernel_io_fill(&io, n, q), 0);
            assert_memory_equal(io.q, q, n * HEADS * DIM * sizeof(float));
            kvb_kernel_io_poison(&io);
            assert_true(isnan(io.out[0]) && isnan(io.lse[0]));
            assert_false(kvb_kernel_io_written(&io, HEADS, why, sizeof why));
            assert_string_equal(why, "left out unwritten at query 0, head 0, channel 0");
            fill(io.out, n * HEADS * DIM);
            assert_false(kvb_kernel_io_written(&io, HEADS, why, sizeof why));
            assert_string_equal(why, "left lse unwritten at query 0, head 0");
            fill(io.lse, n * HEADS - 1);
            assert_false(kvb_kernel_io_written(&io, HEADS, why, sizeof why));
            assert_non_null(strstr(why, "head 2"));
            io.lse[n * HEADS - 1] = 0;
            assert_true(kvb_kernel_io_written(&io, HEADS, why, sizeof why));
        }
        kvb_kernel_io_free(&io);
    }
}

static void digest_tells_every_bit(void **state)
{
    enum { QUERIES = 4, OWN = 3 };
    kvb_kernel_io io;
    float q[QUERIES * HEADS * DIM] = {0};
    (void)state;
    kvb_kernel_io_init(&io, &model, false);
    assert_int_equal(kvb_kernel_io_fill(&io, QUERIES, q), 0);
    memset(io.out, 0, QUERIES * HEADS * DIM * sizeof(float));
    memset(io.lse, 0, QUERIES * HEADS * sizeof(float));
    /* of zero bytes FNV-1a is start * prime^bytes */
    uint64_t want = KVB_DIGEST_START, zeros = kvb_kernel_io_digest(&io, OWN, KVB_DIGEST_START);
    for (size_t i = 0; i < OWN * (HEADS * DIM + HEADS) * sizeof(float); i++)
        want *= UINT64_C(1099511628211);
    assert_true(zeros == want);
    float *const block[] = {io.out, io.lse};
    const size_t row[] = {HEADS * DIM, HEADS};
    for (int b = 0; b < 2; b++)
        for (size_t i = 0; i < QUERIES * row[b]; i++) {
            block[b][i] = -0.0f;
            bool own = i >= (QUERIES - OWN) * row[b];
            assert_true((kvb_kernel_io_digest(&io, OWN, KVB_DIGEST_START) != zeros) == own);
            block[b][i] = 0.0f;
        }
    assert_true(kvb_kernel_io_digest(&io, OWN, zeros) != zeros); /* carried on */
    kvb_kernel_io_free(&io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unwritten_elements_are_named),
        cmocka_unit_test(digest_tells_every_bit),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("kernel io", tests, NULL, NULL);
}
