/* SPDX-License-Identifier: Apache-2.0 */
/* Shows what the manifest says of recorded machines, and when OpenBLAS' choice of core needs a cure. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/machine/host.h"

static void file_write(const char *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/proc", root);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/proc/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void machine_make(char *root, const char *cpuinfo)
{
    snprintf(root, 256, "%s/kvb-host-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(root));
    file_write(root, "cpuinfo", cpuinfo);
    file_write(root, "loadavg", "0.75 1.50 3.25 1/200 4242\n");
    file_write(root, "meminfo", "MemTotal:        1024 kB\nMemFree:  1 kB\n");
}

static void x86_is_described(void **state)
{
    (void)state;
    char root[256];
    kvb_manifest m = {0};
    machine_make(root, "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some CPU: 3 GHz\n"
                       "cpu MHz\t\t: 2450.500\nflags\t\t: fpu avx avx2x avx2 f16c avx512f_not fma\n");
    kvb_host_describe(root, &m);
    assert_string_equal(m.cpu_model, "Some CPU: 3 GHz");
    assert_string_equal(m.cpu_features, "avx f16c fma avx2"); /* whole words only */
    assert_int_equal(m.memory_bytes, 1024 * 1024);
    assert_int_equal(strlen(m.date), 20);
    assert_true(m.host.cpus > 0);
    assert_true(*m.host.name);
    assert_true(m.host.load_1m == 0.75 && m.host.load_15m == 3.25);
    assert_true(m.host.mhz == 2450.5);
    assert_string_equal(m.host.governor, "");
    assert_string_equal(m.host.unknown, "governor: the system has no cpufreq; caches: the system does not list them");
}

static void arm_is_described(void **state)
{
    (void)state;
    char root[256];
    kvb_manifest m = {0};
    machine_make(root, "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
    kvb_host_describe(root, &m);
    assert_string_equal(m.cpu_model, "Neoverse V1");
    assert_string_equal(m.cpu_features, "asimd sve");
    machine_make(root, "processor\t: 0\nCPU implementer\t: 0x61\nCPU part\t: 0x023\n"); /* one without a name here */
    kvb_host_describe(root, &m);
    assert_string_equal(m.cpu_model, "implementer 0x61, part 0x023");
}

static void nothing_to_read_is_no_crash(void **state)
{
    (void)state;
    kvb_manifest m = {0};
    kvb_host_describe("/nonexistent", &m);
    assert_string_equal(m.cpu_model, "");
    assert_int_equal(m.memory_bytes, 0);
    assert_true(isnan(m.host.load_1m) && isnan(m.host.mhz));
    assert_non_null(strstr(m.host.unknown, "load: No such file"));
}

static void old_openblas_cores_are_cured(void **state)
{
    (void)state;
    char note[KVB_REASON];
    assert_string_equal(kvb_openblas_cure("Prescott", "avx2 avx512f", note, sizeof note), "SKYLAKEX");
    assert_non_null(strstr(note, "Prescott"));
    assert_string_equal(kvb_openblas_cure("Haswell", "avx2 avx512f", note, sizeof note), "SKYLAKEX");
    assert_string_equal(kvb_openblas_cure("Nehalem", "avx avx2", note, sizeof note), "HASWELL");
    assert_null(kvb_openblas_cure("Haswell", "avx avx2", note, sizeof note));
    assert_string_equal(note, "");
    assert_null(kvb_openblas_cure("SkylakeX", "avx2 avx512f", note, sizeof note));
    assert_string_equal(kvb_openblas_masked("avx2"), "HASWELL");
    assert_null(kvb_openblas_masked("avx512"));
    assert_null(kvb_openblas_masked(NULL));
    assert_null(kvb_openblas_cure("Prescott", "sse4_2", note, sizeof note));
}

static void busy_is_a_load_that_others_make(void **state)
{
    (void)state;
    char text[256];
    assert_false(kvb_is_busy(&(kvb_host){.load_1m = NAN}, text, sizeof text));
    assert_false(kvb_is_busy(&(kvb_host){.load_1m = 0.1}, text, sizeof text));
    assert_true(kvb_is_busy(&(kvb_host){.load_1m = 5000}, text, sizeof text));
    assert_non_null(strstr(text, "a load of 5000.0 over the last minute"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(x86_is_described),
        cmocka_unit_test(arm_is_described),
        cmocka_unit_test(nothing_to_read_is_no_crash),
        cmocka_unit_test(busy_is_a_load_that_others_make),
        cmocka_unit_test(old_openblas_cores_are_cured),
    };
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
