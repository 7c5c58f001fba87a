/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that every element that a kernel leaves unwritten is found and named, guarded or not, at any size. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(unwritten_elements_are_named)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("kernel io", tests, NULL, NULL);
}
