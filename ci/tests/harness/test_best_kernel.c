/* SPDX-License-Identifier: Apache-2.0 */
/* Shows which kernel --kernel best takes: of those that passed the very combination, no witness, the fastest one; and
 * what may stand beside it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/selection/registry.h"
#include "harness/selection/kernel_support.h"
#include "harness/selection/selection.h"
#include "kernels/kernels.h"

static kvb_registry registry;
static char why[KVB_REASON];

static kvb_result record(const char *kernel, double median)
{
    kvb_result r;
    kvb_result_init(&r);
    snprintf(r.workload, KVB_NAME, "w@llama");
    snprintf(r.cache, KVB_NAME, "seq");
    snprintf(r.pool_k, KVB_NAME, "f16");
    snprintf(r.pool_v, KVB_NAME, "q8_0");
    snprintf(r.growth, KVB_NAME, "double");
    snprintf(r.kernel, KVB_NAME, "%s", kernel);
    r.threads = 2;
    r.status = KVB_STATUS_PASS;
    r.rho = 0.1;
    r.time.all.median = median;
    return r;
}

static const kvb_kernel *find(kvb_result *results, size_t n, const kvb_result *of)
{
    kvb_result_file file = {.results = results, .n = n};
    kvb_best best = {.path = "F", .file = &file, .registry = &registry};
    why[0] = '\0';
    return kvb_best_find(&best, of, why, sizeof why);
}

static void the_fastest_that_passed(void **state)
{
    kvb_result r[] = {record("reference", 30), record("openblas", 20), record("reference", 25), record("openblas", 50),
                      record("reference", 5),  record("witness", 1),   record("openblas", NAN)};
    (void)state;
    r[4].status = KVB_STATUS_FAIL;
    r[5].rho = NAN;
    assert_ptr_equal(find(r, 7, &r[0]), &kvb_kernel_openblas);
    r[4].status = KVB_STATUS_PASS;
    assert_ptr_equal(find(r, 7, &r[0]), &kvb_kernel_reference);
    assert_null(find(r + 5, 2, &r[0]));
    assert_string_equal(why, "no kernel passed here in F");
}

static void of_the_very_combination(void **state)
{
    kvb_result all = record("reference", 30), other[6];
    (void)state;
    for (size_t i = 0; i < 6; i++)
        other[i] = record("openblas", 1);
    strcpy(other[0].workload, "w");
    strcpy(other[1].cache, "tree");
    strcpy(other[2].pool_k, "q8_0");
    strcpy(other[3].pool_v, "f16");
    strcpy(other[4].growth, "reserve");
    other[5].threads = 1;
    for (size_t i = 0; i < 6; i++) {
        kvb_result r[] = {all, other[i]};
        assert_ptr_equal(find(r, 2, &all), &kvb_kernel_reference);
        assert_ptr_equal(find(r, 2, &other[i]), &kvb_kernel_openblas);
    }
}

static void a_kernel_that_is_not_loaded(void **state)
{
    kvb_result r[] = {record("online", 1), record("openblas", 2)};
    (void)state;
    assert_null(find(r, 2, &r[0]));
    assert_string_equal(why, "kernel online, the fastest here in F, is not loaded (--plugin)");
}

static const char *const any[] = {"*", NULL};
static kvb_workload files[1] = {{.name = "a", .path = "x/a.jsonl"}};
static const kvb_workloads workloads = {.at = files, .n = 1, .folder = "x"};

/* --kernel with those two words; the second may be NULL. */
static int words_select(const char *first, const char *second, kvb_selection *s)
{
    const char *at[] = {first, second, NULL};
    kvb_suite_part part = {.workloads = any};
    kvb_selection_words words = {.kernels = {.at = at, .n = second ? 2 : 1}};
    return kvb_select(&words, &part, &registry, &workloads, false, s, why, sizeof why);
}

static void what_stands_beside_it(void **state)
{
    kvb_selection s;
    (void)state;
    assert_int_equal(words_select("best", NULL, &s), 0);
    assert_int_equal(s.n_kernels, 1);
    assert_ptr_equal(s.kernels[0], &kvb_kernel_best);
    kvb_selection_free(&s);
    assert_int_equal(words_select("best", "best", &s), 0);
    assert_int_equal(s.n_kernels, 1);
    kvb_selection_free(&s);
    assert_int_equal(words_select("witness", "best", &s), 0);
    assert_int_equal(s.n_kernels, 2);
    kvb_selection_free(&s);
    assert_int_equal(words_select("best", "open*", &s), -EINVAL);
    assert_string_equal(why, "--kernel best chooses among all kernels; kernel openblas cannot be named beside it");
    kvb_selection_free(&s);
}

static int setup(void **state)
{
    (void)state;
    kvb_registry_init(&registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_that_passed),
        cmocka_unit_test(of_the_very_combination),
        cmocka_unit_test(a_kernel_that_is_not_loaded),
        cmocka_unit_test(what_stands_beside_it),
    };
    return cmocka_run_group_tests_name("best kernel", tests, setup, NULL);
}
