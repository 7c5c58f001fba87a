/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that a write that fails (full disk, size limit, no such folder) says why, leaves no temporary file
 * and leaves an old target as it was; traces and safetensors files alike. */
#include "scratch.h"

#include "workloads/safetensors.h"
#include "workloads/trace.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

static const kvb_trace_header header = {
    .name = "n",
    .source = "s",
    .model = {.n_layers = 1,
              .n_groups = 1,
              .groups = {{.heads = 1, .kv_heads = 1, .k_dim = 16, .v_dim = 16, .scale = 0.25}}},
    .profile = "flat",
};

#define BIG 60000u /* tokens: more bytes than any stdio buffer */

/* Writes one long step; the first error. */
static int trace_save(const char *path, bool commit, char *why, size_t why_bytes)
{
    static uint32_t pos[BIG], seq[BIG];
    for (uint32_t i = 0; i < BIG; i++)
        pos[i] = i;
    kvb_event step = {.kind = KVB_EVENT_STEP, .n = BIG, .pos = pos, .seq = seq};
    kvb_trace_writer *w;
    int err = kvb_trace_create(path, &header, &w, why, why_bytes);
    if (err)
        return err;
    err = kvb_trace_write(w, &step, why, why_bytes);
    int closed = kvb_trace_writer_close(w, commit && !err, err ? NULL : why, err ? 0 : why_bytes);
    return err ? err : closed;
}

static int tensors_save(const char *path, bool commit, char *why, size_t why_bytes)
{
    static float data[BIG];
    (void)commit;
    kvb_tensor t = {
        .name = "a", .dtype = KVB_DTYPE_F32, .n_dims = 1, .dims = {BIG}, .data = data, .bytes = sizeof data};
    return kvb_safetensors_write(path, &t, 1, NULL, why, why_bytes);
}

typedef int save_function(const char *path, bool commit, char *why, size_t why_bytes);
static save_function *const saves[] = {trace_save, tensors_save};

static void test_full_disk(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK)) {
        print_message("skipped: no /dev/full\n");
        skip();
    }
    for (size_t i = 0; i < 2; i++) {
        char why[300] = "", link_path[400];
        /* No regular file: written directly. (By a link: a broken writer would rename over the device.) */
        const char *full = scratch_path("full");
        assert_int_equal(symlink("/dev/full", full), 0);
        assert_int_equal(saves[i](full, true, why, sizeof why), -ENOSPC);
        assert_contains(why, "/full: cannot be written: No space left on device");
        assert_int_equal(readlink(full, link_path, sizeof link_path), sizeof "/dev/full" - 1); /* still there */
        unlink(full);
        /* The temporary file fills the disk: the old target stays. */
        const char *path = scratch_text("old", "precious");
        snprintf(link_path, sizeof link_path, "%s.tmp", path);
        assert_int_equal(symlink("/dev/full", link_path), 0);
        assert_int_equal(saves[i](path, true, why, sizeof why), -ENOSPC);
        assert_int_equal(access(link_path, F_OK), -1);
        size_t n;
        char *text = scratch_read(path, &n);
        assert_string_equal(text, "precious");
        free(text);
    }
}

/* An error that the caller did not look at is found when the trace is closed. */
static void test_ignored_error(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK)) {
        print_message("skipped: no /dev/full\n");
        skip();
    }
    static uint32_t pos[BIG], seq[BIG];
    const kvb_event step = {.kind = KVB_EVENT_STEP, .n = BIG, .pos = pos, .seq = seq};
    char why[300] = "", link_path[400];
    const char *path = scratch_text("old", "precious");
    snprintf(link_path, sizeof link_path, "%s.tmp", path);
    assert_int_equal(symlink("/dev/full", link_path), 0);
    kvb_trace_writer *w;
    assert_int_equal(kvb_trace_create(path, &header, &w, why, sizeof why), 0);
    kvb_trace_write(w, &step, why, sizeof why);
    assert_int_equal(kvb_trace_writer_close(w, true, why, sizeof why), -ENOSPC);
    size_t n;
    char *text = scratch_read(path, &n);
    assert_string_equal(text, "precious");
    free(text);
}

static void test_size_limit(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 100000;
    for (size_t i = 0; i < 2; i++) {
        char why[300] = "";
        const char *path = scratch_text("old", "precious");
        setrlimit(RLIMIT_FSIZE, &small);
        int err = saves[i](path, true, why, sizeof why);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(err, -EFBIG);
        assert_contains(why, "old: cannot be written: File too large");
        size_t n;
        char *text = scratch_read(path, &n);
        assert_string_equal(text, "precious");
        free(text);
    }
}

static void test_unwritable(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char why[300] = "";
        assert_int_equal(saves[i](scratch_path("no/such/folder"), true, why, sizeof why), -ENOENT);
        assert_contains(why, "no/such/folder: cannot be written: No such file or directory");
        assert_int_equal(saves[i](scratch_folder, true, why, sizeof why), -EISDIR);
    }
}

static void test_not_committed(void **state)
{
    (void)state;
    char why[300] = "";
    const char *path = scratch_text("old", "precious");
    assert_int_equal(trace_save(path, false, why, sizeof why), 0);
    size_t n;
    char *text = scratch_read(path, &n);
    assert_string_equal(text, "precious");
    free(text);
    assert_int_equal(trace_save(path, true, why, sizeof why), 0);
    text = scratch_read(path, &n);
    assert_true(n > BIG);
    free(text);
}

static void test_header_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *profile, *tensors, *part;
        uint64_t seed;
    } bad[] = {
        {"", "flat", NULL, "name or source is missing", 0},   {"n", NULL, NULL, "either tensors or a profile", 0},
        {"n", "flat", "x", "either tensors or a profile", 0}, {"n", "flt", NULL, "unknown profile", 0},
        {"n", "flat", NULL, "seed is above", UINT64_MAX},     {"\xff", "flat", NULL, "not UTF-8", 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[300] = "";
        kvb_trace_header h = header;
        h.name = (char *)bad[i].name;
        h.profile = (char *)bad[i].profile;
        h.tensors = (char *)bad[i].tensors;
        h.seed = bad[i].seed;
        kvb_trace_writer *w;
        assert_int_equal(kvb_trace_create(scratch_path("h"), &h, &w, why, sizeof why), -EINVAL);
        assert_contains(why, bad[i].part);
        assert_int_equal(access(scratch_path("h"), F_OK), -1);
    }
    /* a model that could not be read back */
    char why[300] = "";
    kvb_trace_header h = header;
    kvb_trace_writer *w;
    h.model.groups[0].sinks = 1;
    assert_int_equal(kvb_trace_create(scratch_path("h"), &h, &w, why, sizeof why), -EINVAL);
    assert_contains(why, "header: group 0: 1 sinks without a window");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_disk),  cmocka_unit_test(test_ignored_error), cmocka_unit_test(test_size_limit),
        cmocka_unit_test(test_unwritable), cmocka_unit_test(test_not_committed), cmocka_unit_test(test_header_refused),
    };
    return cmocka_run_group_tests_name("failing writes", tests, scratch_setup, scratch_teardown);
}
