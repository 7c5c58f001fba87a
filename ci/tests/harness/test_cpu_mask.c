/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that --cpu-mask limits kernels and codecs, in child processes too, and says what it does not know. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "caches/pools/codec/codec.h"
#include "harness/machine/host.h"
#include "kernels/vector/vector.h"

static char why[256];

static const char *codec_of(kvb_cpu_level level)
{
    return level >= KVB_CPU_NEON     ? "portable" /* of AArch64: compilers use NEON by themselves */
           : level >= KVB_CPU_AVX512 ? "avx512"
                                     : kvb_cpu_level_names[level];
}

static void every_level_of_this_cpu(void **state)
{
    (void)state;
    for (int level = KVB_CPU_LEVELS - 1; level >= 0; level--) {
        int error = kvb_cpu_mask_set(kvb_cpu_level_names[level], why, sizeof why);
        if (!kvb_cpu_has((kvb_cpu_level)level, why, sizeof why)) {
            assert_int_equal(error, -ENOTSUP);
            continue;
        }
        assert_int_equal(error, 0);
        assert_int_equal(kvb_cpu(), level);
        assert_string_equal(kvb_codec_best()->name, codec_of(level));
    }
    /* down to portable: a child is limited as its parent is */
    pid_t child = fork();
    if (!child)
        _exit(kvb_cpu() == KVB_CPU_PORTABLE && !strcmp(kvb_codec_best()->name, "portable") ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(kvb_cpu_mask_set(NULL, why, sizeof why), 0);
    assert_string_equal(kvb_codec_best()->name, codec_of(kvb_cpu()));
    for (int level = KVB_CPU_LEVELS - 1; level > (int)kvb_cpu(); level--)
        assert_false(kvb_cpu_has((kvb_cpu_level)level, why, sizeof why)); /* the limit is gone */
}

static void unknown_levels_change_nothing(void **state)
{
    kvb_cpu_level before = kvb_cpu();
    (void)state;
    assert_int_equal(kvb_cpu_mask_set("avx", why, sizeof why), -EINVAL);
    assert_int_equal(strncmp(why, "unknown level 'avx'; ", 21), 0);
    for (int level = 0; level < KVB_CPU_LEVELS; level++) /* those of this architecture are listed */
        assert_int_equal(strstr(why, kvb_cpu_level_names[level]) != NULL, kvb_loops_at((kvb_cpu_level)level) != NULL);
    assert_int_equal(kvb_cpu(), before);
}

/* Code for SVE is compiled for one length. */
static void another_length_is_refused_by_its_name(void **state)
{
    static const struct {
        kvb_cpu_level level;
        int bits;
    } sve[] = {{KVB_CPU_SVE128, 128}, {KVB_CPU_SVE256, 256}, {KVB_CPU_SVE512, 512}};
    int has = 0;
    (void)state;
    for (int i = 0; i < 3; i++)
        has = kvb_cpu_has(sve[i].level, why, sizeof why) ? sve[i].bits : has;
    if (!has)
        skip();
    for (int i = 0; i < 3; i++) {
        char want[128];
        if (sve[i].bits == has)
            continue;
        snprintf(want, sizeof want, "sve%d: the CPU has no SVE of %d bits: its vectors have %d", sve[i].bits,
                 sve[i].bits, has);
        assert_int_equal(kvb_cpu_mask_set(kvb_cpu_level_names[sve[i].level], why, sizeof why), -ENOTSUP);
        assert_string_equal(why, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_of_this_cpu),
        cmocka_unit_test(unknown_levels_change_nothing),
        cmocka_unit_test(another_length_is_refused_by_its_name),
    };
    return cmocka_run_group_tests_name("cpu mask", tests, NULL, NULL);
}
