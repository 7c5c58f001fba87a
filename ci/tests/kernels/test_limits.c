/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that kernels refuse, in words, problems beyond what they count in; and what is declared of an opaque format and
 * a witness. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/kernels.h"

static void no_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    (void)view, (void)h, (void)c, (void)n, (void)rows;
}

static const kvb_format f32 = {.name = "f32", .elem = KVB_F32, .read = no_read},
                        opaque = {.name = "opaque", .elem = KVB_OPAQUE, .read = no_read, .read_roundings = 5},
                        turned = {.name = "turned",
                                  .elem = KVB_UINT2,
                                  .transform = KVB_TRANSFORM_HADAMARD,
                                  .read = no_read},
                        int8 = {.name = "int8",
                                .elem = KVB_INT8,
                                .axis = KVB_AXIS_CHANNELS,
                                .group = KVB_GROUP_ROW,
                                .scale_elem = KVB_F32,
                                .read = no_read};

static kvb_problem problem_make(void)
{
    return (kvb_problem){.n_tok = 1,
                         .n_heads = 2,
                         .n_kv_heads = 1,
                         .k_dim = 16,
                         .v_dim = 16,
                         .n_cells = 4,
                         .scale = 1,
                         .k_format = &f32,
                         .v_format = &f32};
}

static void refuses(const kvb_kernel *kernel, const kvb_problem *p, const char *words)
{
    char why[200] = "";
    assert_false(kernel->supports(p, why, sizeof why));
    assert_non_null(strstr(why, words));
}

static void test_limits(void **state)
{
    (void)state;
    char why[200];
    kvb_problem p = problem_make();
    assert_true(kvb_kernel_flash.supports(&p, why, sizeof why));
    assert_true(kvb_kernel_openblas.supports(&p, why, sizeof why));
    p.n_heads = 257;
    refuses(&kvb_kernel_flash, &p, "more than 256 query heads");
    p = problem_make();
    p.n_cells = 1u << 31;
    refuses(&kvb_kernel_openblas, &p, "32-bit integers");
    p = problem_make();
    p.k_format = p.v_format = &int8;
    assert_true(kvb_kernel_flash_int8.supports(&p, why, sizeof why));
    p.v_in_k = true;
    refuses(&kvb_kernel_flash_int8, &p, "V in K's rows: they have one scale");
    p = problem_make();
    assert_true(kvb_kernel_witness.supports(&p, why, sizeof why));
    p.v_format = &turned;
    refuses(&kvb_kernel_witness, &p, "transformed turned rows are too coarse");
}

static void test_declarations(void **state)
{
    (void)state;
    kvb_problem p = problem_make();
    kvb_arithmetic a = {.dot_chain = 9};
    kvb_kernel_witness.arithmetic(&p, &a);
    assert_true(a.accumulator == KVB_F32 && a.dot_chain == 0 && a.cell_chain == 0); /* it adds nothing */
    kvb_kernel_flash.arithmetic(&p, &a);
    assert_int_equal(a.dot_chain, 16);
    p.k_format = &opaque;
    kvb_kernel_flash.arithmetic(&p, &a);
    assert_int_equal(a.dot_chain, 16 + 5); /* what reading a row rounds */
    assert_int_equal(kvb_format_roundings(&opaque, 16), 5);
    assert_int_equal(kvb_format_roundings(&f32, 16), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_declarations)};
    return cmocka_run_group_tests_name("limits of kernels", tests, NULL, NULL);
}
