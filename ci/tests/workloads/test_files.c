/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a file that is written has its new content, whole, or its old one, whatever goes wrong; one writer at a time;
 * what a killed writer left does no harm and can be resumed; devices, pipes and links stay what they are. */
#include "ci/tests/tests.h"
#include "workloads/files.h"

static kvb_output_file file;
static char why[512];

static int opened(const char *path, bool resume)
{
    return kvb_output_file_open(path, resume, &file, why, sizeof why);
}

/* Writes the text and closes. */
static int written(const char *text, bool commit)
{
    fputs(text, file.stream);
    return kvb_output_file_close(&file, commit, why, sizeof why);
}

static void assert_why(const char *path, int error)
{
    assert_string_equal(why, tests_path("/%s: cannot be written: %s", path, strerror(error)) + 1);
}

TEST(all_or_nothing)
{
    const char *path = tests_text("out", "old"), *temporary = tests_path("out.tmp");
    for (int commit = 0; commit < 2; commit++) {
        tests_text("out.tmp", "left by a killed writer, longer than what follows");
        assert_int_equal(opened(path, false), 0);
        tests_holds(path, "old");
        assert_int_equal(written("new", commit), 0);
        tests_holds(path, commit ? "new" : "old");
        assert_int_equal(access(temporary, F_OK), -1);
    }
}

TEST(one_writer_at_a_time)
{
    const char *path = tests_text("out", "old");
    kvb_output_file first, second;
    for (int resume = 0; resume < 2; resume++) {
        assert_int_equal(kvb_output_file_open(path, false, &first, NULL, 0), 0);
        assert_int_equal(kvb_output_file_open(path, resume, &second, why, sizeof why), -EBUSY);
        assert_string_equal(why, tests_path("%s: another run is writing it", path));
        assert_true(fputs(resume ? "second" : "first", first.stream) >= 0);
        assert_int_equal(kvb_output_file_close(&first, true, NULL, 0), 0);
        tests_holds(path, resume ? "second" : "first");
    }
}

TEST(what_was_left_is_resumed)
{
    const char *path = tests_path("out");
    assert_int_equal(opened(path, true), -ENOENT);
    assert_int_equal(opened(path, false), 0);
    fputs("one, two", file.stream);
    kvb_output_file_leave(&file);
    tests_holds(tests_path("out.tmp"), "one, two");
    assert_int_equal(opened(path, true), 0);
    assert_int_equal(written("ONE", true), 0);
    tests_holds(path, "ONE, two");
    assert_int_equal(opened("/dev/null", true), -EINVAL);
    assert_string_equal(why, "/dev/null: expected a regular file: nothing else can be resumed");
}

TEST(bad_paths)
{
    const char *path = tests_text("out", "old");
    const struct {
        const char *path;
        int error;
    } bad[] = {
        {"", ENOENT}, {tests_path("none/out"), ENOENT}, {tests_here(), EISDIR}, {tests_path("out/below"), ENOTDIR}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(opened(bad[i].path, false), -bad[i].error);
        assert_why(bad[i].path, bad[i].error);
    }
    tests_holds(path, "old");
}

TEST(read_only)
{
    const char *path = tests_text("out", "old"), *other = tests_path("new");
    if (geteuid() == 0)
        skip(); /* root may write anywhere */
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(opened(path, false), -EACCES);
    assert_why(path, EACCES);
    assert_int_equal(chmod(tests_here(), 0555), 0);
    assert_int_equal(opened(other, false), -EACCES);
    assert_int_equal(chmod(tests_here(), 0755), 0);
}

/* Written to through a link: a broken writer would rename a file over the device. */
TEST(a_device_stays_a_device)
{
    const char *full = tests_path("full");
    char behind[20];
    if (access("/dev/full", W_OK))
        skip();
    assert_int_equal(symlink("/dev/full", full), 0);
    assert_int_equal(opened(full, false), 0);
    assert_null(file.temporary);
    assert_int_equal(written("x", true), -ENOSPC);
    assert_why(full, ENOSPC);
    assert_int_equal(readlink(full, behind, sizeof behind), strlen("/dev/full"));
}

TEST(a_pipe_is_written_to)
{
    char bytes[8] = "";
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(opened(tests_path("/dev/fd/%d", ends[1]), false), 0);
    assert_int_equal(written("new", true), 0);
    assert_int_equal(read(ends[0], bytes, sizeof bytes), 3);
    assert_string_equal(bytes, "new");
    close(ends[0]);
    close(ends[1]);
}

/* A link stays, and the file it leads to is replaced. If path.tmp is a link, nothing is written. */
TEST(links)
{
    const char *path = tests_text("out", "old"), *link = tests_path("link"), *temporary = tests_path("out.tmp");
    struct stat found;
    assert_int_equal(symlink("out", link), 0);
    assert_int_equal(opened(link, false), 0);
    assert_int_equal(written("new", true), 0);
    assert_true(lstat(link, &found) == 0 && S_ISLNK(found.st_mode));
    tests_holds(path, "new");
    assert_int_equal(symlink("/dev/full", temporary), 0);
    assert_int_equal(opened(path, false), -ELOOP);
    assert_int_equal(unlink(temporary), 0);
    tests_holds(path, "new");
}

/* The disk is full when the file is closed, or before: then a write fails, and the caller does not look. */
TEST(full_disks)
{
    static char text[200000];
    const char *path = tests_text("out", "old");
    memset(text, 'x', sizeof text - 1);
    for (int early = 0; early < 2; early++) {
        assert_int_equal(opened(path, false), 0);
        tests_file_limit(early ? 100000 : 2);
        if (early) {
            fputs(text, file.stream);
            tests_file_limit(RLIM_INFINITY);
        }
        const int error = written("new", true);
        tests_file_limit(RLIM_INFINITY);
        assert_true(early ? error < 0 : error == -EFBIG);
        assert_contains(why, tests_path("%s: cannot be written: ", path));
        tests_holds(path, "old");
    }
}
