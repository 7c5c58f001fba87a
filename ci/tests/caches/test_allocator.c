/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the allocator counts current, peak and requests exactly, keeps its limit, and fails the n-th request, for
 * blocks and for reserved pages. Address space is whole, zero, aligned for huge pages if wanted, and all released. */
#include <fcntl.h>

#include "ci/tests/tests.h"
#include "caches/allocator.h"

TEST(counts_are_exact)
{
    kvb_allocator a = {0};
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

/* Growing keeps the bytes; the peak counts both blocks. */
TEST(realloc_keeps_bytes)
{
    kvb_allocator a = {0};
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

TEST(limit_is_kept)
{
    kvb_allocator a = {.limit_bytes = 100};
    char *x = kvb_alloc(&a, 60);
    assert_non_null(x);
    memset(x, 7, 60);
    assert_null(kvb_alloc(&a, 41));
    assert_null(kvb_alloc(&a, SIZE_MAX));
    assert_null(kvb_realloc(&a, x, 60, 61)); /* needs both blocks at once */
    assert_int_equal(x[59], 7);
    assert_int_equal(a.current_bytes, 60);
    assert_int_equal(a.peak_bytes, 60);
    char *y = kvb_alloc(&a, 40);
    assert_non_null(y);
    assert_int_equal(a.peak_bytes, 100);
    kvb_free(&a, x, 60);
    kvb_free(&a, y, 40);
}

TEST(planned_request_fails_once)
{
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

/* ---- address space ------------------------------------------------------------------------------------------ */

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Address space of this process; allocates nothing. */
static size_t space_held(void)
{
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY);
    assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    return strtoul(text, NULL, 10) * page_bytes();
}

TEST(reserved_counts_are_exact)
{
    const size_t bytes = 37 * page_bytes();
    kvb_allocator a = {0};
    char *x = kvb_reserve(&a, bytes, false);
    assert_non_null(x);
    assert_int_equal(a.requests, 1);
    assert_int_equal(a.current_bytes, 0); /* space is not memory */
    assert_int_equal(a.peak_bytes, 0);
    assert_true(kvb_commit(&a, 3 * page_bytes()));
    assert_true(kvb_commit(&a, 4 * page_bytes()));
    assert_int_equal(a.requests, 3);
    assert_int_equal(a.current_bytes, 7 * page_bytes());
    char *y = kvb_alloc(&a, 100);
    assert_int_equal(a.peak_bytes, 7 * page_bytes() + 100);
    kvb_unreserve(&a, x, bytes, 7 * page_bytes());
    assert_int_equal(a.current_bytes, 100);
    kvb_unreserve(&a, NULL, 0, 0);
    kvb_free(&a, y, 100);
    assert_int_equal(a.current_bytes, 0);
    assert_int_equal(a.peak_bytes, 7 * page_bytes() + 100);
    assert_int_equal(a.requests, 4);
}

/* All reserved space can be read and written, from the first byte to the last, and all is released. */
TEST(reserved_space_is_whole)
{
    for (int huge = 0; huge < 2; huge++)
        for (size_t bytes = huge ? KVB_HUGE_PAGE : page_bytes(); bytes <= 3 * KVB_HUGE_PAGE; bytes *= 3) {
            kvb_allocator a = {0};
            size_t before = space_held();
            char *x = kvb_reserve(&a, bytes, huge);
            assert_non_null(x);
            assert_int_equal(space_held(), before + bytes);
            assert_int_equal((uintptr_t)x % (huge ? KVB_HUGE_PAGE : page_bytes()), 0);
            for (size_t i = 0; i < bytes; i += 512)
                assert_int_equal(x[i], 0);
            assert_int_equal(x[bytes - 1], 0);
            memset(x, 3, bytes);
            kvb_unreserve(&a, x, bytes, 0);
            assert_int_equal(space_held(), before);
        }
}

/* Does the mapping that holds p have this flag in /proc/self/smaps? "hg": huge pages are wanted, "nh": they are not. */
static bool mapping_has(const void *p, const char *flag)
{
    char line[512];
    bool inside = false, has = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        uintptr_t begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            inside = (uintptr_t)p >= begin && (uintptr_t)p < end;
        else if (inside && !strncmp(line, "VmFlags:", 8))
            has = strstr(line, flag) != NULL;
    }
    fclose(f);
    return has;
}

TEST(huge_pages_are_asked_for)
{
    kvb_allocator a = {0};
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK)) {
        print_message("# this kernel has no huge pages\n");
        skip();
    }
    char *small = kvb_reserve(&a, KVB_HUGE_PAGE, false), *huge = kvb_reserve(&a, KVB_HUGE_PAGE, true);
    assert_true(mapping_has(huge, " hg") && !mapping_has(huge, " nh"));
    assert_true(mapping_has(small, " nh") && !mapping_has(small, " hg"));
    kvb_unreserve(&a, small, KVB_HUGE_PAGE, 0);
    kvb_unreserve(&a, huge, KVB_HUGE_PAGE, 0);
}

/* The limit counts committed memory, not reserved space. */
TEST(reserved_limit_is_kept)
{
    const size_t page = page_bytes(), bytes = 64 * page;
    kvb_allocator a = {.limit_bytes = 2 * page};
    char *x = kvb_reserve(&a, bytes, false);
    assert_non_null(x);
    assert_true(kvb_commit(&a, page));
    assert_false(kvb_commit(&a, page + 1));
    assert_false(kvb_commit(&a, SIZE_MAX));
    assert_int_equal(a.current_bytes, page);
    assert_int_equal(a.peak_bytes, page);
    assert_true(kvb_commit(&a, page));
    assert_null(kvb_alloc(&a, 1));
    assert_null(kvb_reserve(&a, SIZE_MAX / 2 / page * page, false)); /* more than there can be */
    assert_null(kvb_reserve(&a, SIZE_MAX / page * page, true));
    assert_int_equal(a.current_bytes, 2 * page);
    kvb_unreserve(&a, x, bytes, 2 * page);
    assert_int_equal(a.current_bytes, 0);
}

TEST(planned_reserve_and_commit_fail_once)
{
    const size_t bytes = 2 * page_bytes();
    for (uint64_t n = 1; n <= 4; n++) { /* request 4: none fails */
        kvb_allocator a = {.fail_request = n};
        size_t before = space_held();
        char *x = kvb_reserve(&a, bytes, false);
        assert_int_equal(x == NULL, n == 1);
        if (!x)
            assert_int_equal(space_held(), before);
        bool first = kvb_commit(&a, 10), second = kvb_commit(&a, 100);
        assert_int_equal(first, n != 2);
        assert_int_equal(second, n != 3);
        assert_int_equal(a.current_bytes, first * 10 + second * 100);
        assert_int_equal(a.peak_bytes, a.current_bytes);
        assert_int_equal(a.requests, 3);
        kvb_unreserve(&a, x, x ? bytes : 0, a.current_bytes);
        assert_int_equal(a.current_bytes, 0);
    }
}
