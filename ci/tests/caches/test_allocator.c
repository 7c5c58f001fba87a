/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the allocator counts current, peak and requests exactly, keeps its limit, and fails the n-th request. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "caches/allocator.h"

static void counts_are_exact(void **state)
{
    kvb_allocator a = {0};
    (void)state;

    char *x = kvb_alloc(&a, 100);
    assert_non_null(x);
    assert_int_equal((uintptr_t)x % KVB_ALIGNMENT, 0);
    assert_int_equal(a.current_bytes, 100);
    char *y = kvb_alloc(&a, 1);
    assert_int_equal((uintptr_t)y % KVB_ALIGNMENT, 0);
    assert_int_equal(a.current_bytes, 101);
    kvb_free(&a, x, 100);
    assert_int_equal(a.current_bytes, 1);
    assert_int_equal(a.peak_bytes, 101);
    assert_int_equal(a.requests, 2);
    kvb_free(&a, y, 1);
    kvb_free(&a, NULL, 0);
    assert_null(kvb_alloc(&a, 0));
    assert_int_equal(a.current_bytes, 0);
    assert_int_equal(a.requests, 2);
}

/* Growing keeps the bytes, and its peak holds both blocks. */
static void realloc_keeps_bytes(void **state)
{
    kvb_allocator a = {0};
    (void)state;

    char *x = kvb_alloc(&a, 64);
    for (int i = 0; i < 64; i++)
        x[i] = (char)i;
    x = kvb_realloc(&a, x, 64, 1000);
    assert_int_equal((uintptr_t)x % KVB_ALIGNMENT, 0);
    for (int i = 0; i < 64; i++)
        assert_int_equal(x[i], i);
    memset(x, 1, 1000);
    assert_int_equal(a.current_bytes, 1000);
    assert_int_equal(a.peak_bytes, 1064);
    x = kvb_realloc(&a, x, 1000, 10);
    assert_int_equal(a.current_bytes, 10);
    assert_int_equal(x[9], 1);
    assert_null(kvb_realloc(&a, x, 10, 0));
    assert_int_equal(a.current_bytes, 0);
    assert_int_equal(a.requests, 3);
}

static void limit_is_kept(void **state)
{
    kvb_allocator a = {.limit_bytes = 100};
    (void)state;

    char *x = kvb_alloc(&a, 60);
    assert_non_null(x);
    memset(x, 7, 60);
    assert_null(kvb_alloc(&a, 41));
    assert_null(kvb_alloc(&a, SIZE_MAX));
    assert_null(kvb_realloc(&a, x, 60, 61)); /* both blocks would be held */
    assert_int_equal(x[59], 7);
    assert_int_equal(a.current_bytes, 60);
    assert_int_equal(a.peak_bytes, 60);
    char *y = kvb_alloc(&a, 40);
    assert_non_null(y);
    assert_int_equal(a.peak_bytes, 100);
    kvb_free(&a, x, 60);
    kvb_free(&a, y, 40);
}

static void planned_request_fails_once(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 4; n++) {
        kvb_allocator a = {.fail_request = n};
        char *x[4];
        for (uint64_t i = 0; i < 4; i++) {
            x[i] = kvb_alloc(&a, 8);
            assert_int_equal(x[i] == NULL, i + 1 == n);
        }
        assert_int_equal(a.current_bytes, 24);
        assert_int_equal(a.requests, 4);
        for (uint64_t i = 0; i < 4; i++)
            kvb_free(&a, x[i], x[i] ? 8 : 0);
        assert_int_equal(a.current_bytes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(realloc_keeps_bytes),
        cmocka_unit_test(limit_is_kept),
        cmocka_unit_test(planned_request_fails_once),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("allocator", tests, NULL, NULL);
}
