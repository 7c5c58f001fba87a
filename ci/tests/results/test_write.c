/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a result file changes only if a run ends well, and what a run left is resumed. workloads/test_files has links,
 * devices, bad paths and a second writer. */
#include "ci/tests/tests.h"
#include "ci/tests/results/sample.h"

static char path[300], temporary[320], why[512];
static const char old[] = "old content\n";

static int set_up(void **state)
{
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

/* Only the old file must be there, whole. */
static void assert_untouched(void)
{
    tests_holds(path, old);
    assert_int_equal(access(temporary, F_OK), -1);
}

static kvb_result_writer *writer_open(void)
{
    kvb_result_writer *writer = NULL;

    if (kvb_result_create(path, &sample_manifest, &writer, why, sizeof why) != 0)
        fail_msg("%s", why);
    return writer;
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

/* EFBIG stands for any error in the middle of a file. After it nothing is written and nothing can be committed; a later
 * run can continue from the lines before it. */
TEST_IN(test_size_limit, old_put, old_remove)
{
    kvb_result_writer *writer = writer_open();
    kvb_result result;
    kvb_result_file *file = NULL;
    size_t written = 0;
    int error = 0;

    sample_fill(&result);
    tests_file_limit(10000);
    for (; written < 10 && !error; written += !error)
        error = kvb_result_write(writer, &result, why, sizeof why);
    tests_file_limit(RLIM_INFINITY);
    assert_int_equal(error, -EFBIG);
    assert_string_equal(why, tests_path("%s: cannot be written: File too large", path));
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
    kvb_result_writer *writer = NULL;

    tests_file_limit(16);
    int error = kvb_result_create(path, &sample_manifest, &writer, why, sizeof why);
    tests_file_limit(RLIM_INFINITY);
    assert_int_equal(error, -EFBIG);
    assert_null(writer);
    assert_untouched();
}
