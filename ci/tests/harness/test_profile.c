/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the profiles of made-up machines (/sys and /proc trees, hwloc XML), and the working sets chosen for them. */
#include <hwloc.h>
#include <sched.h>

#include "ci/tests/tests.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* ---- trees of files -------------------------------------------------------------------------------------- */

static void file_write(const char *root, const char *path, const char *text)
{
    tests_text(tests_path("%s%s", root, path), text);
}

TEST(virtual_machine_is_described)
{
    const char *root = tests_folder();
    kvb_machine_profile p;
    file_write(root, "/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx2 hypervisor lm\n");
    file_write(root, "/proc/meminfo",
               "MemTotal: 4194304 kB\nMemAvailable: 2097152 kB\nHugePages_Total:      12\n"
               "HugePages_Free:        7\nHugepagesize:       2048 kB\n");
    file_write(root, "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    file_write(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    file_write(root, "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
    assert_int_equal(kvb_profile_describe(root, &p), 0);
    assert_string_equal(p.virtual_machine, "Amazon EC2");
    assert_string_equal(p.governor, "powersave");
    assert_string_equal(p.huge_pages, "transparent: madvise; reserved: 12 of 2048 kB, 7 free");
    assert_true(p.level[3].bytes == 4 * GIB);
    assert_true(p.level[3].working_set <= GIB); /* half of what is available */
    assert_int_equal(p.n_rows, 0);
    file_write(root, "/sys/fs/cgroup/memory.max", "209715200\n");
    file_write(root, "/sys/fs/cgroup/memory.current", "104857600\n");
    assert_int_equal(kvb_profile_describe(root, &p), 0);
    assert_true(p.level[3].working_set == 50 * MIB); /* half of what the control group leaves */
}

TEST(real_machine_is_described)
{
    const char *root = tests_folder();
    kvb_machine_profile p;
    file_write(root, "/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx2 lm\n");
    file_write(root, "/sys/class/dmi/id/sys_vendor", "QEMU\n"); /* flags, if there are any, decide before it */
    file_write(root, "/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    assert_int_equal(kvb_profile_describe(root, &p), 0);
    assert_string_equal(p.virtual_machine, "none");
    assert_string_equal(p.governor, "unavailable: the system has no cpufreq");
    assert_contains(p.huge_pages, "transparent: always;");
}

TEST(arm_knows_by_its_vendor)
{
    const char *root = tests_folder();
    kvb_machine_profile p;
    file_write(root, "/proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
    file_write(root, "/sys/class/dmi/id/sys_vendor", "QEMU\n");
    assert_int_equal(kvb_profile_describe(root, &p), 0);
    assert_string_equal(p.virtual_machine, "QEMU");
}

TEST(nothing_to_read_is_no_crash)
{
    kvb_machine_profile p;
    assert_int_equal(kvb_profile_describe("/nonexistent", &p), 0);
    assert_string_equal(p.virtual_machine, "none");
    assert_contains(p.huge_pages, "transparent: unavailable");
    assert_true(p.cores >= 1 && p.threads >= p.cores);
}

/* ---- topologies ------------------------------------------------------------------------------------------- */

typedef struct made_up {
    uint32_t sockets, cores;     /* cores of a socket */
    uint64_t l1, l2, l3, memory; /* bytes; l3 0: none; memory of a socket */
    kvb_cache_level level[KVB_LEVELS];
} made_up;

/* An L3 for each socket, an L2 and L1 for each core, as hwloc describes machines in words. */
static hwloc_topology_t topology_make(const made_up *m)
{
    hwloc_topology_t topology;
    char words[256], l3[64] = "";
    if (m->l3)
        snprintf(l3, sizeof l3, "l3:1(size=%ju)", (uintmax_t)m->l3);
    snprintf(words, sizeof words, "pack:%u [numa(memory=%ju)] %s l2:%u(size=%ju) l1:1(size=%ju) core:1 pu:1",
             m->sockets, (uintmax_t)m->memory, l3, m->cores, (uintmax_t)m->l2, (uintmax_t)m->l1);
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, words), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    return topology;
}

static void sets_choose(made_up *m, uint64_t available, bool virtual_machine)
{
    hwloc_topology_t topology = topology_make(m);
    kvb_working_sets_choose(topology, available, virtual_machine, m->level);
    hwloc_topology_destroy(topology);
}

TEST(two_sockets_get_both_caches)
{
    made_up m = {.sockets = 2, .cores = 8, .l1 = 32 * KIB, .l2 = MIB, .l3 = 256 * MIB, .memory = 64 * GIB};
    sets_choose(&m, 100 * GIB, false);
    assert_true(m.level[0].working_set == 16 * KIB && m.level[0].instances == 16);
    assert_true(m.level[1].working_set == 512 * KIB && m.level[1].bytes == MIB);
    assert_true(m.level[2].working_set == 64 * MIB && m.level[2].instances == 2); /* 4 x all L2 */
    assert_true(m.level[3].working_set == 2 * GIB);                               /* 4 x both LLC */
    assert_true(m.level[3].bytes == 128 * GIB && m.level[3].instances == 2);
    for (size_t i = 0; i < KVB_LEVELS; i++)
        assert_string_equal(m.level[i].note, "");
    assert_true(kvb_working_set_total(m.level, 4, 1) == 2 * MIB);
    assert_true(kvb_working_set_total(m.level, 4, 2) == 64 * MIB);
}

TEST(small_last_level_is_half_used)
{
    made_up m = {.sockets = 1, .cores = 8, .l1 = 48 * KIB, .l2 = 2 * MIB, .l3 = 30 * MIB, .memory = 64 * GIB};
    sets_choose(&m, 60 * GIB, false);
    assert_true(m.level[2].working_set == 15 * MIB);
    assert_contains(m.level[2].note, "partly from L2"); /* 8 x 2 MiB of L2 hold it all */
    assert_true(m.level[3].working_set == 120 * MIB);
}

TEST(huge_shared_cache_of_a_guest)
{
    made_up m = {.sockets = 1, .cores = 16, .l1 = 48 * KIB, .l2 = 2 * MIB, .l3 = 300 * MIB, .memory = 24 * GIB};
    sets_choose(&m, 20 * GIB, true);
    assert_true(m.level[2].working_set == 64 * MIB);
    assert_contains(m.level[2].note, "virtual machine");
    assert_true(m.level[3].working_set == 1200 * MIB);
    sets_choose(&m, 20 * GIB, false);
    assert_true(m.level[2].working_set == 128 * MIB);
}

TEST(machine_without_l3)
{
    made_up m = {.sockets = 1, .cores = 4, .l1 = 32 * KIB, .l2 = 512 * KIB, .memory = GIB};
    sets_choose(&m, 0, false); /* 0: not known */
    assert_true(m.level[2].bytes == 0 && m.level[2].working_set == 0);
    assert_string_equal(m.level[2].note, "none reported");
    assert_true(m.level[3].working_set == 64 * MIB);
}

TEST(little_memory_is_said)
{
    made_up m = {.sockets = 1, .cores = 2, .l1 = 48 * KIB, .l2 = 2 * MIB, .l3 = 300 * MIB, .memory = GIB};
    sets_choose(&m, GIB, false);
    assert_true(m.level[3].working_set == 512 * MIB);
    assert_contains(m.level[3].note, "only 1.7 x the last cache level");
}

TEST(tree_is_indented)
{
    made_up m = {.sockets = 1, .cores = 2, .l1 = 48 * KIB, .l2 = 2 * MIB, .l3 = 300 * MIB, .memory = GIB};
    hwloc_topology_t topology = topology_make(&m);
    kvb_topology_tree_print(topology, tests_print());
    hwloc_topology_destroy(topology);
    const char *text = tests_printed();
    assert_int_equal(strncmp(text, "Machine", 7), 0);
    assert_contains(text, "\n  Package L#0\n");
    assert_contains(text, "\n    L3 L#0 (300MB)\n");
    assert_contains(text, "\n      L2 L#1 (2048KB)\n");
    assert_contains(text, "\n            PU L#1 (P#1)\n");
}

/* ---- measuring ------------------------------------------------------------------------------------------- */

TEST(rows_are_measured_and_the_binding_is_left)
{
    kvb_machine_profile p;
    cpu_set_t before, after;
    assert_int_equal(kvb_profile_describe("", &p), 0);
    p.level[3].working_set = 4 * MIB; /* to be fast: this test is not about DRAM */
    p.level[2].working_set = 0;       /* as if there were no such level */
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(kvb_profile_measure_threads(&p, (const uint32_t[]){1}, 1, 0.005), 0);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(p.n_rows, 1);
    assert_int_equal(p.row[0].threads, 1);
    assert_true(p.row[0].read[3].median > 0 && p.row[0].triad[3].median > 0);
    assert_int_equal(p.row[0].read[2].samples, 0);
    assert_true(p.row[0].peak[KVB_PEAK_F32].median > 0);
    assert_int_equal(kvb_profile_measure_threads(&p, (const uint32_t[]){kvb_cores() + 1}, 1, 0.005), -22);
    assert_int_equal(p.n_rows, 0);
}
