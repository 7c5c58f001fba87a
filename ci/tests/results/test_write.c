/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a result file changes only if a run ends well; full disks, size limits and bad paths give one-line errors. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "ci/tests/tests.h"
#include "ci/tests/results/sample.h"

static char folder[256], path[300], temporary[320], why[512], want[512];
static const char old[] = "old content\n";

static int set_up(void **state)
{
    signal(SIGXFSZ, SIG_IGN); /* as the program does */
    snprintf(folder, sizeof folder, "%s", tests_here());
    snprintf(path, sizeof path, "%s", tests_path("r.jsonl"));
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    return 0;
}

static CMFixtureFunction tests_setup = set_up;

static int old_put(void **state)
{
    tests_text(path, old);
    return 0;
}

static int old_remove(void **state)
{
    return unlink(path);
}

/* The folder must hold only the old file, whole. */
static void assert_untouched(void)
{
    DIR *list = opendir(folder);
    int n = 0;

    tests_holds(path, old);
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

TEST_IN(test_commit, old_put, old_remove)
{
    kvb_result_writer *writer = writer_open();
    kvb_result result;
    kvb_result_file *file = NULL;

    sample_fill(&result);
    assert_int_equal(kvb_result_write(writer, &result, why, sizeof why), 0);
    char *begun = tests_read(temporary, NULL);
    tests_holds(path, old);               /* until it is committed */
    assert_contains(begun, "agent-fork"); /* each line is visible as soon as it is written */
    free(begun);
    assert_int_equal(kvb_result_close(writer, true, why, sizeof why), 0);
    assert_int_equal(access(temporary, F_OK), -1);
    assert_int_equal(kvb_result_load(path, &file, why, sizeof why), 0);
    assert_int_equal(file->n, 1);
    kvb_result_free(file);
}

TEST_IN(test_abandon, old_put, old_remove)
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
TEST_IN(test_resume, old_put, old_remove)
{
    kvb_result_writer *writer = writer_open();
    kvb_result_file *file = NULL;

    results_write(writer, 0, 3);
    assert_int_equal(kvb_result_close(writer, false, why, sizeof why), 0);
    char *half = tests_read(temporary, NULL);
    tests_holds(path, old);
    for (size_t cut = 1; cut < 2000; cut += 499) {
        tests_write(temporary, half, strlen(half) - cut);
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

TEST_IN(test_resume_nothing, old_put, old_remove)
{
    kvb_result_writer *writer = NULL;
    kvb_result_file *file = NULL;

    assert_int_equal(kvb_result_resume(path, &writer, &file, why, sizeof why), -ENOENT);
    assert_untouched();
    tests_text(temporary, "{\"schema\": \"kvb"); /* killed while writing the manifest */
    assert_int_equal(kvb_result_resume(path, &writer, &file, why, sizeof why), -ENOENT);
    assert_untouched();
    tests_text(temporary, "{}\n{"); /* damaged: only the user may remove the file */
    assert_int_equal(kvb_result_resume(path, &writer, &file, why, sizeof why), -EINVAL);
    assert_contains(why, ".tmp:1: expected the manifest");
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

TEST_IN(test_two_runs, old_put, old_remove)
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
TEST_IN(test_leftover, old_put, old_remove)
{
    kvb_result_file *file = NULL;

    char *left = calloc(30001, 1);
    tests_text(temporary, memset(left, 'x', 30000));
    free(left);
    assert_int_equal(kvb_result_close(writer_open(), true, why, sizeof why), 0);
    assert_int_equal(kvb_result_load(path, &file, why, sizeof why), 0);
    kvb_result_free(file);
}

/* EFBIG stands for any error in the middle of a file. After it nothing is written and nothing can be committed; a later
 * run can continue from the lines before it. */
TEST_IN(test_size_limit, old_put, old_remove)
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

TEST_IN(test_size_limit_at_once, old_put, old_remove)
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
TEST(test_full_device)
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

TEST(test_pipe)
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

TEST_IN(test_bad_paths, old_put, old_remove)
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

TEST_IN(test_read_only, old_put, old_remove)
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

TEST_IN(test_symbolic_link, old_put, old_remove)
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
