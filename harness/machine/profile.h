/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured machine: topology, and bandwidth and peaks for each level and thread count. `kvbench machine` prints it. A
 * run measures its own, so that each result is compared with this machine on this day.
 */
#ifndef KVB_PROFILE_H
#define KVB_PROFILE_H

#include "harness/machine/bandwidth.h"
#include "results/result.h"

struct hwloc_topology;

typedef struct kvb_cache_level {
    char name[8];         /* "L1", "L2", "LLC", "DRAM" */
    uint64_t bytes;       /* size of one cache; of DRAM: all memory */
    uint32_t instances;   /* of that cache on this machine */
    uint64_t working_set; /* bytes that the probes used, per thread for private caches, in all for shared ones */
    char note[96];        /* e.g. that DRAM had to be probed with less than 4 x LLC; empty: none */
} kvb_cache_level;

#define KVB_LEVELS          4u
#define KVB_PROFILE_THREADS 16u

typedef struct kvb_profile_row {
    uint32_t threads;
    kvb_rate read[KVB_LEVELS], triad[KVB_LEVELS];
    kvb_rate peak[KVB_PEAK_KINDS];
} kvb_profile_row;

typedef struct kvb_machine_profile {
    kvb_cache_level level[KVB_LEVELS];
    char peak_unavailable[KVB_PEAK_KINDS][96]; /* reason; empty: measured */
    kvb_profile_row row[KVB_PROFILE_THREADS];  /* by number of threads */
    uint32_t n_rows;
    char read_isa[16];
    char virtual_machine[64]; /* "none", or the hypervisor as CPUID or DMI names it */
    char governor[64];        /* cpufreq governor, or "unavailable: reason" */
    char huge_pages[128];     /* transparent: always|madvise|never; reserved pages */
    char counters[512];       /* how many events can be counted; sources that can count none, with the reason */
    uint32_t numa_nodes, sockets, cores, threads;
} kvb_machine_profile;

/* Cache sizes through hwloc, state of the system from /sys and /proc below root ("" for this machine). No rows yet.
 * 0, or -ENOMEM, or -EINVAL when hwloc cannot read the topology. */
int kvb_profile_describe(const char *root, kvb_machine_profile *profile);

/* The cpufreq governor, or "unavailable: reason"; "none", or the hypervisor as CPUID or DMI names it. */
void kvb_governor_describe(const char *root, char *text, size_t bytes);
void kvb_hypervisor_describe(const char *root, char *text, size_t bytes);

/* Value of the first line `key : value` of root/path, a file as in /proc; empty when there is none. */
void kvb_proc_value(const char *root, const char *path, const char *key, char *value, size_t bytes);

/* First line of root/path. 0 or a negative errno, then text is empty. */
int kvb_line_read(const char *root, const char *path, char *text, size_t bytes);

/* Bytes that can be allocated without swapping: as the kernel says, or less if the control group leaves less. */
uint64_t kvb_memory_available(const char *root);

/* Chooses the working set of each level; a function of its own for tests. A level that the machine lacks has bytes 0.
 *   L1, L2  half of a thread's share of one cache (shared by the threads of its cores)
 *   LLC     4 x all L2, at most half of one LLC, and at most 64 MiB in a virtual machine with an LLC of more than
 *           128 MiB: other machines share such a cache
 *   DRAM    4 x all of the last level, at least 64 MiB, at most half of `available` memory (bytes) */
void kvb_working_sets_choose(struct hwloc_topology *topology, uint64_t available, bool virtual_machine,
                             kvb_cache_level level[KVB_LEVELS]);

/* Bytes that all threads together probe at level i. */
uint64_t kvb_working_set_total(const kvb_cache_level *level, uint32_t threads, size_t i);

/* Measures rows for these thread counts (1 .. cores, at most KVB_PROFILE_THREADS of them), each probe for `seconds` and
 * at least 5 samples. Levels that this machine lacks are skipped (their samples are 0). The caller's CPU binding is
 * restored. 0, -ENOMEM, or -EINVAL for more threads than cores. */
int kvb_profile_measure_threads(kvb_machine_profile *profile, const uint32_t *threads, uint32_t n, double seconds);
/* The same with the usual seconds. quick: short probes. n 0: for 1, 2, 4 .. cores and cores; quick: for 1 and cores only,
 * below 20 s in all. */
int kvb_profile_measure(kvb_machine_profile *profile, const uint32_t *threads, uint32_t n, bool quick);

/* Measures rows for these thread counts into a manifest: the machine's limits on the day of a run. If this fails, the
 * manifest does not change. */
void kvb_profile_record(const uint32_t *threads, uint32_t n_threads, kvb_manifest *manifest);

/*
 * A machine profile for people and programs.
 *
 * table, md: the facts, the bandwidths, the peaks; no rows: the facts alone.
 * csv: one row for each probe, level and number of threads (rows: one fact each where nothing was measured).
 * json: one object
 *   {"schema": "kvbench.machine/1", "cpu_model", "cpu_features": [words], "isa": the level (kernels/cpu.h), "os", "memory_bytes",
 *    "sockets", "cores", "threads", "numa_nodes", "virtual_machine": "none" or name, "governor", "huge_pages", "read_isa",
 *    "counters": how many can be counted, and why not the others,
 *    "levels": [{"name": "L1", "bytes", "instances", "working_set_bytes": of a thread in L1 and L2, else of all,
 *                "note"}],
 *    "rows": [{"threads", "read_gb_per_s": {"L1": RATE, "L2", "LLC", "DRAM"}, "triad_gb_per_s": {the same},
 *              "peak_g_op_per_s": {"f32": RATE, "f16", "bf16", "int8"}}],
 *    "peak_unavailable": {"f16": reason}}
 * with RATE {"median", "low": 10 % quantile, "high": 90 % quantile, "samples"}, or null where not measured.
 */

/* 0, -ENOMEM or -EIO. Only the manifest's facts about the machine are used. */
int kvb_profile_print(const kvb_machine_profile *profile, const kvb_manifest *host, kvb_table_format format, FILE *out);

#endif
