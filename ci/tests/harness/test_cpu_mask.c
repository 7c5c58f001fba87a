/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: levels of instruction sets, and bandwidth. */
#include <sys/wait.h>

#include "ci/tests/tests.h"
#include "caches/pools/codec/codec.h"
#include "harness/machine/bandwidth.h"
#include "harness/machine/host.h"
#include "harness/machine/team.h"
#include "kernels/vector/vector.h"

/* Shows that --cpu-mask limits kernels and codecs, also in child processes, and names unknown levels. */

static char cpu_mask_why[256];

static const char *codec_of(kvb_cpu_level level)
{
    return level >= KVB_CPU_NEON     ? "portable" /* AArch64: compilers use NEON by themselves */
           : level >= KVB_CPU_AVX512 ? "avx512"
           : level >= KVB_CPU_AVX2   ? "avx2"
                                     : "portable";
}

TEST(every_level_of_this_cpu)
{
    for (int level = KVB_CPU_LEVELS - 1; level >= 0; level--) {
        int error = kvb_cpu_mask_set(kvb_cpu_level_names[level], cpu_mask_why, sizeof cpu_mask_why);
        if (!kvb_cpu_has((kvb_cpu_level)level, cpu_mask_why, sizeof cpu_mask_why)) {
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
    assert_int_equal(kvb_cpu_mask_set(NULL, cpu_mask_why, sizeof cpu_mask_why), 0);
    assert_string_equal(kvb_codec_best()->name, codec_of(kvb_cpu()));
    for (int level = KVB_CPU_LEVELS - 1; level > (int)kvb_cpu(); level--)
        assert_false(kvb_cpu_has((kvb_cpu_level)level, cpu_mask_why, sizeof cpu_mask_why)); /* the limit is gone */
}

TEST(unknown_levels_change_nothing)
{
    kvb_cpu_level before = kvb_cpu();
    assert_int_equal(kvb_cpu_mask_set("avx", cpu_mask_why, sizeof cpu_mask_why), -EINVAL);
    assert_int_equal(strncmp(cpu_mask_why, "unknown level 'avx'; ", 21), 0);
    for (int level = 0; level < KVB_CPU_LEVELS; level++) /* those of this architecture are listed */
        assert_int_equal(strstr(cpu_mask_why, kvb_cpu_level_names[level]) != NULL,
                         kvb_loops_at((kvb_cpu_level)level) != NULL);
    assert_int_equal(kvb_cpu(), before);
}

/* Code for SVE is compiled for one length. */
TEST(another_length_is_refused_by_its_name)
{
    static const struct {
        kvb_cpu_level level;
        int bits;
    } sve[] = {{KVB_CPU_SVE128, 128}, {KVB_CPU_SVE256, 256}, {KVB_CPU_SVE512, 512}};
    int has = 0;
    for (int i = 0; i < 3; i++)
        has = kvb_cpu_has(sve[i].level, cpu_mask_why, sizeof cpu_mask_why) ? sve[i].bits : has;
    if (!has)
        skip();
    for (int i = 0; i < 3; i++) {
        char want[128];
        if (sve[i].bits == has)
            continue;
        snprintf(want, sizeof want, "sve%d: the CPU has no SVE of %d bits: its vectors have %d", sve[i].bits,
                 sve[i].bits, has);
        assert_int_equal(kvb_cpu_mask_set(kvb_cpu_level_names[sve[i].level], cpu_mask_why, sizeof cpu_mask_why),
                         -ENOTSUP);
        assert_string_equal(cpu_mask_why, want);
    }
}

/* Shows: bandwidth probes read every line; multiplication probes do the declared products and stay finite. */

static kvb_threads *team_start(uint32_t n)
{
    kvb_threads *threads;
    assert_int_equal(kvb_threads_start(n, true, &threads), 0);
    return threads;
}

static bool here(kvb_cpu_level level)
{
    char why[64];
    return kvb_cpu_has(level, why, sizeof why);
}

TEST(every_line_is_read)
{
    static const size_t sizes[] = {64, 128, 512, 576, 1024, 1088, 4096, 5 * 1024 + 64};
    char *lines = aligned_alloc(64, 8192);
    assert_non_null(lines);
    for (const kvb_memory_kernel *kernel = kvb_memory_kernels; kernel->isa; kernel++) {
        if (!here(kernel->level))
            continue;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            memset(lines, 0xff, 8192); /* lines behind the working set must not be read */
            memset(lines, 0, sizes[s]);
            assert_true(kernel->read(lines, sizes[s]) == 0);
            for (size_t at = 0; at < sizes[s]; at += 8) {
                lines[at] = 1;
                assert_true(kernel->read(lines, sizes[s]) != 0);
                lines[at] = 0;
            }
        }
    }
    free(lines);
}

TEST(triad_computes_every_element)
{
    double a[67], b[67], c[67];
    for (const kvb_memory_kernel *kernel = kvb_memory_kernels; kernel->isa; kernel++) {
        if (!here(kernel->level))
            continue;
        for (size_t i = 0; i < 67; i++)
            a[i] = -1, b[i] = (double)i, c[i] = 2.0 * (double)i;
        kernel->triad(a, b, c, 0.5, 66);
        for (size_t i = 0; i < 66; i++)
            assert_true(a[i] == 2.0 * (double)i);
        assert_true(a[66] == -1);
    }
}

TEST(chains_stay_finite)
{
    for (const kvb_peak_kernel *kernel = kvb_peak_kernels; kernel->instruction; kernel++) {
        if (!kvb_peak_here(kernel))
            continue;
        double few = kernel->run(64), many = kernel->run(100000);
        assert_true(isfinite(few) && few > 0);
        assert_true(few == many); /* a fixed point */
    }
}

TEST(missing_instructions_have_a_reason)
{
    kvb_threads *threads = team_start(1);
    for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS; k++) {
        char why[96] = "";
        kvb_rate rate = {0};
        int error = kvb_multiply_add_peak(kvb_threads_team(threads), k, 0.01, &rate, why, sizeof why);
        assert_true(error == 0 || error == -ENOTSUP);
        assert_int_equal(error != 0, why[0] != '\0');
        assert_int_equal(error == 0, rate.samples >= 5 && rate.median > 0);
    }
    kvb_threads_end(threads);
}

TEST(memory_is_whole_pages_for_each_thread)
{
    static const size_t sizes[] = {0, 1, 4096, 12289, 5u << 20};
    for (uint32_t n = 1; n <= 2 && n <= kvb_cores(); n++) {
        kvb_threads *threads = team_start(n);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            kvb_probe_memory memory;
            assert_int_equal(kvb_probe_memory_open(kvb_threads_team(threads), sizes[s], &memory), 0);
            assert_true(memory.bytes >= sizes[s] && memory.bytes > 0);
            assert_int_equal(memory.bytes % (n * 4096), 0);
            assert_int_equal((uintptr_t)memory.base % 4096, 0);
            for (size_t at = 0; at < memory.bytes; at += 4096)
                assert_true(memory.base[at] != 0); /* every page was written: none is the system's zero page */
            assert_true(kvb_read_pass(kvb_threads_team(threads), &memory, sizes[s], 3) > 0);
            kvb_probe_memory_close(&memory);
            assert_null(memory.base);
        }
        kvb_probe_memory none;
        assert_int_equal(kvb_probe_memory_open(kvb_threads_team(threads), SIZE_MAX, &none), -ENOMEM);
        kvb_threads_end(threads);
    }
}

TEST(bandwidths_have_samples)
{
    kvb_threads *threads = team_start(1);
    const kvb_team *team = kvb_threads_team(threads);
    kvb_probe_memory memory;
    kvb_rate read = {0}, triad = {0};
    assert_int_equal(kvb_probe_memory_open(team, 65536, &memory), 0);
    assert_int_equal(kvb_memory_bandwidth(team, &memory, 16384, false, 0.01, &read), 0);
    assert_int_equal(kvb_memory_bandwidth(team, &memory, 16384, true, 0.01, &triad), 0);
    assert_true(read.samples >= 5 && read.low > 0 && read.low <= read.median && read.median <= read.high);
    assert_true(triad.samples >= 5 && triad.low > 0 && triad.low <= triad.median && triad.median <= triad.high);
    kvb_probe_memory_close(&memory);
    kvb_threads_end(threads);
}

TEST(quantiles_are_nearest_rank)
{
    double ten[] = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, one[] = {7};
    double twenty[20];
    kvb_rate rate;
    for (int i = 0; i < 20; i++)
        twenty[i] = 20 - i;
    kvb_rate_of(ten, 10, &rate);
    assert_true(rate.median == 5.5 && rate.low == 1 && rate.high == 10);
    kvb_rate_of(twenty, 20, &rate);
    assert_true(rate.low == 2 && rate.high == 19);
    kvb_rate_of(one, 1, &rate);
    assert_true(rate.median == 7 && rate.low == 7 && rate.high == 7 && rate.samples == 1);
}
