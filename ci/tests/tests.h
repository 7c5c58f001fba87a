/* SPDX-License-Identifier: Apache-2.0 */
/* Every test program includes this: cmocka with the headers that it needs, and the C headers that most tests use. */
#ifndef KVB_TESTS_H
#define KVB_TESTS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Most tests have no state. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Makes a folder below $TMPDIR. */
static inline void tests_folder(char *path, size_t bytes)
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, bytes, "%s/kvbench-test-XXXXXX", parent && *parent ? parent : "/tmp");
    assert_non_null(mkdtemp(path));
}

/* A file's bytes with a 0 behind them, which the caller frees. n: their number; NULL: not asked for.
 * Returns NULL, with 0 bytes: no such file. */
static inline char *tests_read(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    if (n)
        *n = 0;
    if (!file)
        return NULL;
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const size_t size = (size_t)ftell(file);
    rewind(file);
    char *bytes = calloc(size + 1, 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, size, file), size);
    fclose(file);
    if (n)
        *n = size;
    return bytes;
}

/* Runs T(test), … as a group, with TESTS_RUN_IN() between `setup` and `teardown`. main() returns the result. */
#define T(test)              cmocka_unit_test(test)
#define TESTS_RUN(name, ...) TESTS_RUN_IN(name, NULL, NULL, __VA_ARGS__)
#define TESTS_RUN_IN(name, setup, teardown, ...)                                                                       \
    cmocka_run_group_tests_name(name, ((const struct CMUnitTest[]){__VA_ARGS__}), setup, teardown)

#endif
