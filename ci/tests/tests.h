/* SPDX-License-Identifier: Apache-2.0 */
/* Every test program includes this: cmocka with the headers that it needs, main(), files, and the C headers that most
 * tests use. */
#ifndef KVB_TESTS_H
#define KVB_TESTS_H

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Most tests have no state. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/*
 * TEST(name) { … } is a test; setup and teardown of TEST_IN() come before and after it. main() runs the tests of a
 * program in the order of their lines, between tests_setup() and tests_teardown(), to which a program may give values.
 * A program with a main() of its own defines TESTS_OWN_MAIN before it includes this header.
 */
#define TEST(name) TEST_IN(name, NULL, NULL)
#define TEST_IN(name, setup, teardown)                                                                                 \
    static void name(void **tests_state);                                                                              \
    __attribute__((constructor)) static void name##_add(void)                                                          \
    {                                                                                                                  \
        tests_add(__LINE__, (struct CMUnitTest){#name, name, setup, teardown, NULL});                                  \
    }                                                                                                                  \
    static void name(void **tests_state)

enum { TESTS_MOST = 64 };

static CMFixtureFunction tests_setup, tests_teardown;
static struct CMUnitTest tests_list[TESTS_MOST];
static int tests_lines[TESTS_MOST];
static size_t tests_n;

static inline void tests_add(int line, struct CMUnitTest test)
{
    size_t at = tests_n++;
    if (at == TESTS_MOST)
        abort();
    for (; at > 0 && tests_lines[at - 1] > line; at--) {
        tests_lines[at] = tests_lines[at - 1];
        tests_list[at] = tests_list[at - 1];
    }
    tests_lines[at] = line;
    tests_list[at] = test;
}

/* ---- files, in a folder that is removed when all tests have run -------------------------------------------------- */

static char tests_root[256];

/* The program's folder. */
static inline const char *tests_here(void)
{
    const char *parent = getenv("TMPDIR");
    if (!*tests_root) {
        snprintf(tests_root, sizeof tests_root, "%.200s/kvbench-test-XXXXXX", parent && *parent ? parent : "/tmp");
        assert_non_null(mkdtemp(tests_root));
    }
    return tests_root;
}

/* The path that this format gives; if it does not begin with /, in the program's folder. Valid until the eighth call
 * after this one. */
__attribute__((format(printf, 1, 2))) static inline const char *tests_path(const char *format, ...)
{
    static char paths[8][1024];
    static unsigned turn;
    char *path = paths[turn++ % 8], name[700];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (*name == '/')
        snprintf(path, sizeof paths[0], "%s", name);
    else
        snprintf(path, sizeof paths[0], "%s/%s", tests_here(), name);
    return path;
}

/* A new folder in the program's folder. Its path is valid until the eighth call after this one. */
static inline const char *tests_folder(void)
{
    static char folders[8][1024];
    static unsigned turn;
    char *folder = folders[turn++ % 8];
    snprintf(folder, sizeof folders[0], "%s", tests_path("XXXXXX"));
    assert_non_null(mkdtemp(folder));
    return folder;
}

/* Removes the program's folder. Not 0: a writer has left a *.tmp file in it. */
static inline int tests_clean(void)
{
    char line[1024];
    snprintf(line, sizeof line, "cd '%s' && left=$(find . -name '*.tmp'); rm -rf '%s'; test -z \"$left\"", tests_root,
             tests_root);
    return *tests_root ? system(line) : 0;
}

/* Writes a file, and makes the folders above it. Returns its path. */
static inline const char *tests_write(const char *path, const void *bytes, size_t n)
{
    char above[1024];
    path = tests_path("%s", path);
    snprintf(above, sizeof above, "%s", path);
    for (char *slash = above + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(above, 0755);
        *slash = '/';
    }
    unlink(path); /* some file systems wait for the disk when a file is overwritten */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline const char *tests_text(const char *path, const char *text)
{
    return tests_write(path, text, strlen(text));
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

/* The file must hold this text. */
static inline void tests_holds(const char *path, const char *want)
{
    char *text = tests_read(path, NULL);
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

/* Files may grow to so many bytes, as on a disk that becomes full; RLIM_INFINITY: to any size. */
static inline void tests_file_limit(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN); /* as the program does */
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static FILE *tests_stream;
static char *tests_output;

/* A stream. What is written to it, tests_printed() gives, which closes it; this text is valid until the next stream. */
static inline FILE *tests_print(void)
{
    static size_t bytes;
    free(tests_output);
    tests_output = NULL;
    tests_stream = open_memstream(&tests_output, &bytes);
    assert_non_null(tests_stream);
    return tests_stream;
}

static inline char *tests_printed(void)
{
    fclose(tests_stream);
    return tests_output;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static inline void assert_contains(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" does not contain \"%s\"", text ? text : "", part);
}

/* A call must have answered `want`, with these words in its reason. */
static inline void tests_refused(int got, int want, const char *why, const char *words)
{
    assert_int_equal(got, want);
    assert_contains(why, words);
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

static inline int tests_run(void)
{
    const int failed =
        _cmocka_run_group_tests(program_invocation_short_name, tests_list, tests_n, tests_setup, tests_teardown);
    return tests_clean() ? 1 : failed;
}

#ifndef TESTS_OWN_MAIN
int main(void)
{
    return tests_run();
}
#endif

#endif
