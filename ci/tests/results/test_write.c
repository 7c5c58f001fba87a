/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a result file changes only if a run ends well; full disks, size limits and bad paths give one-line errors. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "ci/tests/tests.h"
#include "ci/tests/results/sample.h"

static char folder[256], path[300], why[512], want[512];
static const char old[] = "old content\n";

static int set_up(void **state)
{
    signal(SIGXFSZ, SIG_IGN); /* as the program does */
    tests_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/r.jsonl", folder);
    return 0;
}

static int tear_down(void **state)
{
    return rmdir(folder);
}

static int old_put(void **state)
{
    FILE *out = fopen(path, "w");

    return !out || fputs(old, out) < 0 || fclose(out) != 0;
}

static int old_remove(void **state)
{
    return unlink(path);
}

/* The folder must hold only the old file, whole. */
static void assert_untouched(void)
{
    char *text = tests_read(path, NULL);
    DIR *list = opendir(folder);
    int n = 0;

    assert_non_null(text);
    assert_string_equal(text, old);
    free(text);
    assert_non_null(list);
    while (readdir(list))
        n++;
    closedir(list);
    assert_int_equal(n, 3); /* . .. r.jsonl */
}

static kvb_result_writer *writer_open(void)
{
    kvb_result_writer *writer = NULL;

    if (kvb_result_create(path, &sample_manifest, &writer, why, sizeof why) != 0)
        fail_msg("%s", why);
    return writer;
}

static void assert_why(const char *named, int error)
{
    snprintf(want, sizeof want, "%s: cannot be written: %s", named, strerror(error));
    assert_string_equal(why, want);
}

static void test_commit(void **state)
{
    kvb_result_writer *writer = writer_open();
    kvb_result result;
    kvb_result_file *file = NULL;
    char temporary[320];

    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    sample_fill(&result);
    assert_int_equal(kvb_result_write(writer, &result, why, sizeof why), 0);
    char *text = tests_read(path, NULL), *begun = tests_read(temporary, NULL);
    assert_string_equal(text, old);               /* until it is committed */
    assert_non_null(strstr(begun, "agent-fork")); /* each line is visible as soon as it is written */
    free(text);
    free(begun);
    assert_int_equal(kvb_result_close(writer, true, why, sizeof why), 0);
    assert_int_equal(access(temporary, F_OK), -1);
    assert_int_equal(kvb_result_load(path, &file, why, sizeof why), 0);
    assert_int_equal(file->n, 1);
    kvb_result_free(file);
}

static void test_abandon(void **state)
{
    assert_int_equal(kvb_result_close(writer_open(), false, why, sizeof why), 0);
    assert_untouched(); /* an unfinished run leaves nothing */
}

static void results_write(kvb_result_writer *writer, uint32_t from, uint32_t to)
{
    kvb_result result;

    sample_fill(&result);
    for (result.threads = from; result.threads < to; result.threads++)
        assert_int_equal(kvb_result_write(writer, &result, why, sizeof why), 0);
}

/* The target must hold results of 0, 1, … n - 1 threads. */
static void assert_results(size_t n)
{
    kvb_result_file *file = NULL;

    if (kvb_result_load(path, &file, why, sizeof why) != 0)
        fail_msg("%s", why);
    assert_int_equal(file->n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(file->results[i].threads, i);
    kvb_result_free(file);
}

/* A file can be resumed after its writer was closed, killed, or killed in the middle of a line. */
static void test_resume(void **state)
{
    char temporary[320];
    kvb_result_writer *writer = writer_open();
    kvb_result_file *file = NULL;

    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    results_write(writer, 0, 3);
    assert_int_equal(kvb_result_close(writer, false, why, sizeof why), 0);
    char *text = tests_read(path, NULL), *half = tests_read(temporary, NULL);
    assert_string_equal(text, old);
    free(text);
    for (size_t cut = 1; cut < 2000; cut += 499) {
        FILE *out = fopen(temporary, "w");
        assert_non_null(out);
        fwrite(half, 1, strlen(half) - cut, out);
        fclose(out);
        assert_int_equal(kvb_result_resume(path, &writer, &file, why, sizeof why), 0);
        assert_int_equal(file->n, 2);
        assert_int_equal(file->results[1].threads, 1);
        assert_memory_equal(&file->manifest, &sample_manifest, sizeof sample_manifest);
        kvb_result_free(file);
        results_write(writer, 2, 5);
        assert_int_equal(kvb_result_close(writer, cut > 1000, why, sizeof why), 0);
        if (cut > 1000)
            break;
        assert_int_equal(kvb_result_resume(path, &writer, &file, why, sizeof why), 0);
        assert_int_equal(file->n, 5);
        kvb_result_free(file);
        assert_int_equal(kvb_result_close(writer, false, why, sizeof why), 0); /* without new lines none is lost */
    }
    free(half);
    assert_results(5);
    assert_int_equal(access(temporary, F_OK), -1);
}

static void test_resume_nothing(void **state)
{
    char temporary[320];
    kvb_result_writer *writer = NULL;
    kvb_result_file *file = NULL;

    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    assert_int_equal(kvb_result_resume(path, &writer, &file, why, sizeof why), -ENOENT);
    assert_untouched();
    FILE *out = fopen(temporary, "w");
    assert_non_null(out);
    fputs("{\"schema\": \"kvb", out); /* killed while writing the manifest */
    fclose(out);
    assert_int_equal(kvb_result_resume(path, &writer, &file, why, sizeof why), -ENOENT);
    assert_untouched();
    out = fopen(temporary, "w");
    fputs("{}\n{", out); /* damaged: only the user may remove the file */
    fclose(out);
    assert_int_equal(kvb_result_resume(path, &writer, &file, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, ".tmp:1: expected the manifest"));
    assert_null(file);
    assert_null(writer);
    assert_int_equal(unlink(temporary), 0);
    assert_int_equal(kvb_result_resume("/dev/null", &writer, &file, why, sizeof why), -EINVAL);
    writer = writer_open();
    kvb_result_writer *second = NULL;
    assert_int_equal(kvb_result_resume(path, &second, &file, why, sizeof why), -EBUSY);
    assert_int_equal(kvb_result_close(writer, false, why, sizeof why), 0);
    assert_untouched();
}

static void test_two_runs(void **state)
{
    kvb_result_writer *first = writer_open(), *second = NULL;

    assert_int_equal(kvb_result_create(path, &sample_manifest, &second, why, sizeof why), -EBUSY);
    assert_null(second);
    snprintf(want, sizeof want, "%s: another run is writing it", path);
    assert_string_equal(why, want);
    assert_int_equal(kvb_result_close(first, true, why, sizeof why), 0); /* the refused writer did no harm */
    assert_int_equal(kvb_result_close(writer_open(), true, why, sizeof why), 0);
}

/* The file that a killed run left is overwritten, whatever its length. */
static void test_leftover(void **state)
{
    char temporary[320];
    kvb_result_file *file = NULL;

    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    FILE *out = fopen(temporary, "w");
    assert_non_null(out);
    for (int i = 0; i < 1000; i++)
        fputs("half-done half-done half-done\n", out);
    fclose(out);
    assert_int_equal(kvb_result_close(writer_open(), true, why, sizeof why), 0);
    assert_int_equal(kvb_result_load(path, &file, why, sizeof why), 0);
    kvb_result_free(file);
}

/* EFBIG stands for any error in the middle of a file. After it nothing is written and nothing can be committed; a later
 * run can continue from the lines before it. */
static void test_size_limit(void **state)
{
    struct rlimit before, limit;
    kvb_result_writer *writer = writer_open();
    kvb_result result;
    kvb_result_file *file = NULL;
    size_t written = 0;
    int error = 0;

    sample_fill(&result);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 10000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (; written < 10 && !error; written += !error)
        error = kvb_result_write(writer, &result, why, sizeof why);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(error, -EFBIG);
    assert_why(path, EFBIG);
    assert_int_equal(kvb_result_write(writer, &result, why, sizeof why), -EFBIG);
    assert_int_equal(kvb_result_close(writer, true, why, sizeof why), -EFBIG);
    assert_true(written > 1);
    assert_int_equal(kvb_result_resume(path, &writer, &file, why, sizeof why), 0);
    assert_int_equal(file->n, written);
    kvb_result_free(file);
    assert_int_equal(kvb_result_close(writer, true, why, sizeof why), 0);
}

static void test_size_limit_at_once(void **state)
{
    struct rlimit before, limit;
    kvb_result_writer *writer = NULL;

    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 16;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int error = kvb_result_create(path, &sample_manifest, &writer, why, sizeof why);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(error, -EFBIG);
    assert_null(writer);
    assert_untouched();
}

/* A device is written to, never replaced: renaming over /dev/full would make it a file. */
static void test_full_device(void **state)
{
    kvb_result_writer *writer = NULL;
    struct stat device;

    if (stat("/dev/full", &device) != 0 || !S_ISCHR(device.st_mode))
        skip();
    assert_int_equal(kvb_result_create("/dev/full", &sample_manifest, &writer, why, sizeof why), -ENOSPC);
    assert_string_equal(why, "/dev/full: cannot be written: No space left on device");
    assert_int_equal(stat("/dev/full", &device), 0);
    assert_true(S_ISCHR(device.st_mode));
}

static void test_pipe(void **state)
{
    int ends[2];
    char name[40], bytes[16384];
    kvb_result_writer *writer = NULL;

    assert_int_equal(pipe(ends), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[1]);
    assert_int_equal(kvb_result_create(name, &sample_manifest, &writer, why, sizeof why), 0);
    assert_int_equal(kvb_result_close(writer, true, why, sizeof why), 0);
    close(ends[1]);
    ssize_t n = read(ends[0], bytes, sizeof bytes);
    assert_true(n > 0 && bytes[0] == '{' && bytes[n - 1] == '\n');
    close(ends[0]);
}

static void test_bad_paths(void **state)
{
    kvb_result_writer *writer = NULL;
    char name[320];

    snprintf(name, sizeof name, "%s/none/r.jsonl", folder);
    assert_int_equal(kvb_result_create(name, &sample_manifest, &writer, why, sizeof why), -ENOENT);
    assert_why(name, ENOENT);
    assert_int_equal(kvb_result_create(folder, &sample_manifest, &writer, why, sizeof why), -EISDIR);
    assert_why(folder, EISDIR);
    snprintf(name, sizeof name, "%s/below", path); /* a file in place of a folder */
    assert_int_equal(kvb_result_create(name, &sample_manifest, &writer, why, sizeof why), -ENOTDIR);
    assert_int_equal(kvb_result_create("", &sample_manifest, &writer, why, sizeof why), -ENOENT);
    assert_null(writer);
    assert_untouched();
}

static void test_read_only(void **state)
{
    kvb_result_writer *writer = NULL;

    if (geteuid() == 0)
        skip(); /* root may write anywhere */
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(kvb_result_create(path, &sample_manifest, &writer, why, sizeof why), -EACCES);
    assert_why(path, EACCES);
    assert_untouched();
    assert_int_equal(chmod(folder, 0555), 0);
    char name[320];
    snprintf(name, sizeof name, "%s/new.jsonl", folder);
    assert_int_equal(kvb_result_create(name, &sample_manifest, &writer, why, sizeof why), -EACCES);
    assert_int_equal(chmod(folder, 0755), 0);
}

static void test_symbolic_link(void **state)
{
    char name[320];
    struct stat found;

    snprintf(name, sizeof name, "%s/link", folder);
    assert_int_equal(symlink("r.jsonl", name), 0);
    kvb_result_writer *writer = NULL;
    assert_int_equal(kvb_result_create(name, &sample_manifest, &writer, why, sizeof why), 0);
    assert_int_equal(kvb_result_close(writer, true, why, sizeof why), 0);
    assert_int_equal(lstat(name, &found), 0);
    assert_true(S_ISLNK(found.st_mode));
    char *text = tests_read(path, NULL);
    assert_int_equal(text[0], '{'); /* the file behind the link was replaced */
    free(text);
    unlink(name);
}

int main(void)
{
#define WITH_OLD(test) cmocka_unit_test_setup_teardown(test, old_put, old_remove)

    return TESTS_RUN_IN("writing result files", set_up, tear_down, WITH_OLD(test_commit), WITH_OLD(test_abandon),
                        WITH_OLD(test_resume), WITH_OLD(test_resume_nothing), WITH_OLD(test_two_runs),
                        WITH_OLD(test_leftover), WITH_OLD(test_size_limit), WITH_OLD(test_size_limit_at_once),
                        WITH_OLD(test_bad_paths), WITH_OLD(test_read_only), WITH_OLD(test_symbolic_link),
                        T(test_full_device), T(test_pipe));
}
