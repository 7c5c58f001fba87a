/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that what two parts of a suite have in common is run once, by the first, whatever was typed; and that
 * --no-staging refuses pools which none of the chosen kernels reads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/matrix/matrix.h"
#include "harness/selection/kernel_support.h"

static kvb_registry registry;
static kvb_workload files[2] = {{"a", "x/a.jsonl"}, {"b", "x/b.jsonl"}};
static const kvb_workloads workloads = {.at = files, .n = 2, .folder = "x"};
static const char *const every[] = {"*", NULL}, *const only_b[] = {"b", NULL}, *const only_seq[] = {"seq", NULL};
static const char *const two_pools[] = {"f16", "q4_0", NULL}, *const one_pool[] = {"f16", NULL};
static char why[1536];

static int setup(void **state)
{
    (void)state;
    kvb_registry_init(&registry);
    return 0;
}

static void words_of(kvb_words *words, const char **at, size_t n)
{
    *words = (kvb_words){.at = at, .n = n};
}

static void select_part(const kvb_selection_words *words, const kvb_suite_part *part, kvb_selection *selection)
{
    if (kvb_select(words, part, &registry, &workloads, false, selection, why, sizeof why))
        fail_msg("%s", why);
}

static void common_combinations_are_run_once(void **state)
{
    char own[] = "llama", typed[] = "llama"; /* the same name at two places */
    const char *first_values[] = {own, NULL}, *second_values[] = {typed, NULL};
    kvb_suite_part first = {.workloads = every, .pools = one_pool, .values = first_values};
    kvb_suite_part second = {.workloads = only_b, .caches = only_seq, .pools = two_pools, .values = second_values};
    kvb_selection_words words = {0};
    kvb_selection s[2];
    (void)state;
    words_of(&words.kernels, (const char *[]){"reference"}, 1);
    select_part(&words, &first, &s[0]);
    select_part(&words, &second, &s[1]);
    /* 2 workloads x (own, llama) x f16 x every cache; then b x (own, llama) x (f16, q4_0) x seq, of which f16 was run */
    assert_int_equal(kvb_matrix_count(&s[0], s, 0), 2 * 2 * registry.n[KVB_CACHES]);
    assert_int_equal(kvb_matrix_count(&s[1], s, 0), 4);
    assert_int_equal(kvb_matrix_count(&s[1], s, 1), 2);
    kvb_selection_free(&s[0]);
    kvb_selection_free(&s[1]);
}

static void growths_multiply(void **state)
{
    kvb_suite_part part = {.workloads = only_b, .caches = only_seq, .pools = one_pool};
    kvb_selection_words words = {0};
    kvb_selection s;
    (void)state;
    words_of(&words.kernels, (const char *[]){"reference"}, 1);
    words_of(&words.growths, (const char *[]){"*"}, 1);
    select_part(&words, &part, &s);
    assert_int_equal(kvb_matrix_count(&s, NULL, 0), KVB_GROWTHS);
    kvb_selection_free(&s);
}

static bool f32_only(const kvb_problem *p, char *text, size_t bytes)
{
    (void)text, (void)bytes;
    return p->k_format->elem == KVB_F32 && p->v_format->elem == KVB_F32 && !p->k_format->transform;
}

static void pools_that_nobody_reads(void **state)
{
    static const kvb_kernel plain = {.name = "plain", .masks = KVB_MASK_BIT(KVB_MASK_NONE), .supports = f32_only};
    kvb_suite_part part = {.workloads = only_b, .caches = only_seq, .pools = two_pools};
    kvb_selection_words words = {0};
    kvb_selection s;
    (void)state;
    words_of(&words.kernels, (const char *[]){"reference"}, 1);
    select_part(&words, &part, &s);
    assert_int_equal(kvb_native_check(&s, &registry, why, sizeof why), 0);
    s.kernels[0] = &plain;
    assert_int_equal(kvb_native_check(&s, &registry, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "no selected kernel reads pool k=f16,v=f16; kernels that do: reference, openblas"));
    assert_non_null(strstr(why, "pools that the selected kernels read: f32"));
    kvb_selection_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(common_combinations_are_run_once),
        cmocka_unit_test(growths_multiply),
        cmocka_unit_test(pools_that_nobody_reads),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("selection", tests, setup, NULL);
}
