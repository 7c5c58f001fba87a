/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a file is what was written, whole, or what it was before; one writer at a time; what a killed one left is no
 * obstacle. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "ci/tests/results/sample.h"
#include "results/atomic_file.h"

typedef struct place {
    char folder[512], path[600], temporary[640];
} place;

static place place_make(void)
{
    place p;

    assert_true(sample_folder(p.folder, sizeof p.folder));
    snprintf(p.path, sizeof p.path, "%s/out.xml", p.folder);
    snprintf(p.temporary, sizeof p.temporary, "%s.tmp", p.path);
    return p;
}

static void place_remove(const place *p)
{
    unlink(p->path);
    assert_int_equal(access(p->temporary, F_OK), -1);
    assert_int_equal(rmdir(p->folder), 0);
}

static void assert_holds(const char *path, const char *want)
{
    char *text = sample_read(path);

    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

static void text_write(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");

    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    fclose(out);
}

static void test_commit(void **state)
{
    place p = place_make();
    kvb_atomic_file whole;

    (void)state;
    text_write(p.path, "old");
    text_write(p.temporary, "left by a killed writer, longer than what follows");
    assert_int_equal(kvb_atomic_file_open(p.path, false, &whole), 0);
    assert_int_equal(kvb_atomic_file_write(&whole, "new", 3), 0);
    assert_holds(p.path, "old");
    assert_int_equal(kvb_atomic_file_close(&whole, true), 0);
    assert_holds(p.path, "new");
    place_remove(&p);
}

static void test_abandon(void **state)
{
    place p = place_make();
    kvb_atomic_file whole;

    (void)state;
    text_write(p.path, "old");
    assert_int_equal(kvb_atomic_file_open(p.path, false, &whole), 0);
    assert_int_equal(kvb_atomic_file_write(&whole, "new", 3), 0);
    assert_int_equal(kvb_atomic_file_close(&whole, false), 0);
    assert_holds(p.path, "old");
    place_remove(&p);
}

static void test_two_writers(void **state)
{
    place p = place_make();
    kvb_atomic_file first, second;

    (void)state;
    assert_int_equal(kvb_atomic_file_open(p.path, false, &first), 0);
    assert_int_equal(kvb_atomic_file_open(p.path, false, &second), -EBUSY);
    assert_int_equal(kvb_atomic_file_write(&first, "first", 5), 0);
    assert_int_equal(kvb_atomic_file_close(&first, true), 0);
    assert_holds(p.path, "first");
    place_remove(&p);
}

static void test_refused(void **state)
{
    place p = place_make();
    kvb_atomic_file whole;

    (void)state;
    assert_int_equal(kvb_atomic_file_open("", false, &whole), -ENOENT);
    snprintf(p.path, sizeof p.path, "%s/none/out.xml", p.folder);
    assert_int_equal(kvb_atomic_file_open(p.path, false, &whole), -ENOENT);
    assert_int_equal(kvb_atomic_file_open(p.folder, false, &whole), -EISDIR);
    place_remove(&p);
}

/* No file is put in place of a device. */
static void test_device(void **state)
{
    kvb_atomic_file whole;

    (void)state;
    assert_int_equal(kvb_atomic_file_open("/dev/full", false, &whole), 0);
    assert_null(whole.temporary);
    assert_int_equal(kvb_atomic_file_write(&whole, "x", 1), -ENOSPC);
    assert_int_equal(kvb_atomic_file_close(&whole, false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commit),  cmocka_unit_test(test_abandon), cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_device),
    };

    return cmocka_run_group_tests_name("whole files", tests, NULL, NULL);
}
