/* SPDX-License-Identifier: Apache-2.0 */
/* Describes this machine: topology, and the state of the system that affects speed. */
#include "harness/machine/profile.h"

#include <assert.h>
#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/machine/team.h"
#include "kernels/attend.h"
#include "results/table.h"

/* ---- sizes to probe for each level ------------------------------------------------------------------------------- */

#define MIB ((uint64_t)1 << 20)

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t count_of(struct hwloc_topology *topology, hwloc_obj_type_t type, uint32_t least)
{
    int n = hwloc_get_nbobjs_by_type(topology, type);
    return n > 0 ? (uint32_t)n : least;
}

/* Number and size of the caches of a type. If sizes differ (hybrid machines) the smallest counts: it must hold the
 * working set of any thread. */
static void cache_describe(struct hwloc_topology *topology, hwloc_obj_type_t type, kvb_cache_level *level)
{
    level->instances = count_of(topology, type, 0);
    level->bytes = UINT64_MAX;
    for (uint32_t i = 0; i < level->instances; i++) {
        hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, i);
        level->bytes = smaller(level->bytes, cache->attr->cache.size);
    }
    if (!level->instances)
        level->bytes = 0;
}

/* Cores that share one cache of this type. At least 1. */
static uint32_t sharers(const kvb_cache_level *level, uint32_t cores)
{
    return level->instances && cores > level->instances ? (cores + level->instances - 1) / level->instances : 1;
}

static void llc_choose(kvb_cache_level *llc, uint64_t l2_total, bool virtual_machine)
{
    uint64_t half = llc->bytes / 2, stranger_free = 64 * MIB;
    llc->working_set = smaller(4 * l2_total, half);
    if (virtual_machine && llc->bytes > 128 * MIB) {
        llc->working_set = smaller(llc->working_set, stranger_free);
        snprintf(llc->note, sizeof llc->note, "virtual machine: others may share this cache; probed with a small part");
    }
    if (llc->working_set < 2 * l2_total)
        snprintf(llc->note, sizeof llc->note, "all L2 hold %llu MiB: with all threads, partly from L2",
                 (unsigned long long)(l2_total / MIB));
}

static void dram_choose(kvb_cache_level *dram, uint64_t last_level, uint64_t available)
{
    uint64_t want = larger(4 * last_level, 64 * MIB), most = available / 2;
    dram->working_set = available ? smaller(want, most) : want;
    dram->working_set = larger(dram->working_set / 4096 * 4096, 4096);
    if (dram->working_set < 4 * last_level)
        snprintf(dram->note, sizeof dram->note, "only %.1f x the last cache level: half of the available memory",
                 (double)dram->working_set / (double)last_level);
}

void kvb_working_sets_choose(struct hwloc_topology *topology, uint64_t available, bool virtual_machine,
                             kvb_cache_level level[KVB_LEVELS])
{
    static const char *const names[KVB_LEVELS] = {"L1", "L2", "LLC", "DRAM"};
    static const hwloc_obj_type_t beyond_l2[] = {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE};
    uint32_t cores = count_of(topology, HWLOC_OBJ_CORE, 0);
    for (size_t i = 0; i < KVB_LEVELS; i++) {
        level[i] = (kvb_cache_level){0};
        snprintf(level[i].name, sizeof level[i].name, "%s", names[i]);
    }
    kvb_cache_level *l1 = &level[0], *l2 = &level[1], *llc = &level[2], *dram = &level[3];
    cache_describe(topology, HWLOC_OBJ_L1CACHE, l1);
    cache_describe(topology, HWLOC_OBJ_L2CACHE, l2);
    for (size_t i = 0; i < sizeof beyond_l2 / sizeof *beyond_l2 && !llc->bytes; i++)
        cache_describe(topology, beyond_l2[i], llc);
    l1->working_set = l1->bytes / 2 / sharers(l1, cores);
    l2->working_set = l2->bytes / 2 / sharers(l2, cores);
    uint64_t l2_total = l2->bytes * l2->instances, last_level = larger(l2_total, llc->bytes * llc->instances);
    if (llc->bytes)
        llc_choose(llc, larger(l2_total, l1->bytes * l1->instances), virtual_machine);
    for (size_t i = 0; i < 3; i++)
        if (!level[i].bytes)
            snprintf(level[i].note, sizeof level[i].note, "none reported");
    dram->bytes = hwloc_get_root_obj(topology)->total_memory;
    dram->instances = count_of(topology, HWLOC_OBJ_NUMANODE, 0); /* hwloc always has one */
    dram_choose(dram, larger(last_level, l1->bytes * l1->instances), available);
}

uint64_t kvb_working_set_total(const kvb_cache_level *level, uint32_t threads, size_t i)
{
    return i < 2 ? level[i].working_set * threads : level[i].working_set;
}

#if defined(__x86_64__)
#include <cpuid.h>
#endif

int kvb_line_read(const char *root, const char *path, char *text, size_t bytes)
{
    char file[4096];
    text[0] = '\0';
    snprintf(file, sizeof file, "%s%s", root, path);
    FILE *in = fopen(file, "r");
    if (!in)
        return -errno;
    int error = fgets(text, (int)bytes, in) ? 0 : -ENODATA;
    fclose(in);
    text[strcspn(text, "\n")] = '\0';
    return error;
}

void kvb_proc_value(const char *root, const char *path, const char *key, char *value, size_t bytes)
{
    char file[4096], *line = NULL;
    size_t room = 0;
    value[0] = '\0';
    snprintf(file, sizeof file, "%s%s", root, path);
    FILE *in = fopen(file, "r");
    while (in && !value[0] && getline(&line, &room, in) > 0) {
        char *colon = strchr(line, ':');
        size_t n = strlen(key);
        if (!colon || strncmp(line, key, n) || n + strspn(line + n, " \t") != (size_t)(colon - line))
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(value, bytes, "%s", colon);
    }
    free(line);
    if (in)
        fclose(in);
}

/* A number of /proc/meminfo; 0 when it has none. */
static uint64_t meminfo(const char *root, const char *key)
{
    char number[64];
    kvb_proc_value(root, "/proc/meminfo", key, number, sizeof number);
    return strtoull(number, NULL, 10);
}

uint64_t kvb_memory_available(const char *root)
{
    char most[64], current[64];
    uint64_t available = meminfo(root, "MemAvailable") * 1024;
    if (!kvb_line_read(root, "/sys/fs/cgroup/memory.max", most, sizeof most) && strcmp(most, "max") &&
        !kvb_line_read(root, "/sys/fs/cgroup/memory.current", current, sizeof current)) {
        uint64_t limit = strtoull(most, NULL, 10), used = strtoull(current, NULL, 10);
        uint64_t left = limit > used ? limit - used : 0;
        available = available && available < left ? available : left;
    }
    return available;
}

void kvb_governor_describe(const char *root, char *text, size_t bytes)
{
    int error = kvb_line_read(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, bytes);
    if (error)
        snprintf(text, bytes, "unavailable: %s", error == -ENOENT ? "the system has no cpufreq" : strerror(-error));
}

static void huge_pages_describe(const char *root, kvb_machine_profile *profile)
{
    char modes[128];
    int error = kvb_line_read(root, "/sys/kernel/mm/transparent_hugepage/enabled", modes, sizeof modes);
    char *chosen = strchr(modes, '['), *end = chosen ? strchr(chosen, ']') : NULL;
    if (end)
        *end = '\0';
    const char *mode = end ? chosen + 1 : error ? "unavailable" : modes;
    snprintf(profile->huge_pages, sizeof profile->huge_pages,
             "transparent: %.24s; reserved: %llu of %llu kB, %llu free", mode,
             (unsigned long long)meminfo(root, "HugePages_Total"), (unsigned long long)meminfo(root, "Hugepagesize"),
             (unsigned long long)meminfo(root, "HugePages_Free"));
}

/* The hypervisor's name in CPUID leaf 0x40000000; empty: there is none. */
static void hypervisor_name(char name[16])
{
    name[0] = '\0';
#if defined(__x86_64__)
    unsigned a, b, c, d;
    __cpuid(0x40000000, a, b, c, d);
    memcpy(name, &b, 4);
    memcpy(name + 4, &c, 4);
    memcpy(name + 8, &d, 4);
    name[12] = '\0';
    for (char *p = name; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
#endif
}

/* DMI vendors that make virtual machines only. They tell a virtual machine on CPUs other than x86. */
static const char *const virtual_vendors[] = {"QEMU", "KVM", "VMware, Inc.", "Xen", "innotek GmbH", "Parallels", NULL};

void kvb_hypervisor_describe(const char *root, char *text, size_t bytes)
{
    char vendor[48], name[16] = "", flags[8192];
    bool is_virtual = false;
    kvb_proc_value(root, "/proc/cpuinfo", "flags", flags, sizeof flags); /* empty: this machine has no x86 flags */
    kvb_line_read(root, "/sys/class/dmi/id/sys_vendor", vendor, sizeof vendor);
    for (size_t i = 0; virtual_vendors[i]; i++)
        is_virtual = is_virtual || !strcmp(vendor, virtual_vendors[i]);
    is_virtual = *flags ? strstr(flags, " hypervisor") != NULL : is_virtual;
    if (is_virtual && *flags && !root[0])
        hypervisor_name(name);
    if (!is_virtual)
        snprintf(text, bytes, "none");
    else if (name[0] && vendor[0])
        snprintf(text, bytes, "%.15s (%.44s)", name, vendor);
    else
        snprintf(text, bytes, "%s", name[0] ? name : vendor[0] ? vendor : "unknown hypervisor");
}

int kvb_profile_describe(const char *root, kvb_machine_profile *profile)
{
    hwloc_topology_t topology;
    *profile = (kvb_machine_profile){0};
    int error = kvb_topology_open(&topology);
    if (error)
        return error;
    kvb_governor_describe(root, profile->governor, sizeof profile->governor);
    huge_pages_describe(root, profile);
    kvb_hypervisor_describe(root, profile->virtual_machine, sizeof profile->virtual_machine);
    kvb_working_sets_choose(topology, kvb_memory_available(root), strcmp(profile->virtual_machine, "none") != 0,
                            profile->level);
    uint64_t total =
        meminfo(root, "MemTotal") * 1024; /* a node's own number lacks memory that was added while running */
    if (total)
        profile->level[3].bytes = total;
    snprintf(profile->read_isa, sizeof profile->read_isa, "%s", kvb_read_isa());
    profile->numa_nodes = count_of(topology, HWLOC_OBJ_NUMANODE, 1);
    profile->sockets = count_of(topology, HWLOC_OBJ_PACKAGE, 1);
    profile->cores = count_of(topology, HWLOC_OBJ_CORE, 1);
    profile->threads = count_of(topology, HWLOC_OBJ_PU, 1);
    hwloc_topology_destroy(topology);
    return 0;
}

/* Measure a machine: every level and peak for each number of threads. */

/* Probes all levels in one block, which has room for the largest: touching a block of several last-level caches takes
 * longer than measuring it. */
static int levels_measure(const kvb_machine_profile *profile, const kvb_team *team, double seconds,
                          kvb_profile_row *row)
{
    kvb_probe_memory memory;
    uint64_t bytes[KVB_LEVELS], most = 0;
    for (size_t i = 0; i < KVB_LEVELS; i++) {
        bytes[i] = kvb_working_set_total(profile->level, team->n, i);
        most = larger(most, bytes[i]);
    }
    int error = most ? kvb_probe_memory_open(team, most, &memory) : 0;
    if (error || !most)
        return error;
    for (size_t i = 0; i < KVB_LEVELS && !error; i++) {
        if (!bytes[i])
            continue;
        error = kvb_memory_bandwidth(team, &memory, bytes[i], false, seconds, &row->read[i]);
        if (!error)
            error = kvb_memory_bandwidth(team, &memory, bytes[i], true, seconds, &row->triad[i]);
    }
    kvb_probe_memory_close(&memory);
    return error;
}

static int peaks_measure(kvb_machine_profile *profile, const kvb_team *team, double seconds, kvb_profile_row *row)
{
    int error = 0;
    for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS && !error; k++) {
        error = kvb_multiply_add_peak(team, k, seconds, &row->peak[k], profile->peak_unavailable[k],
                                      sizeof profile->peak_unavailable[k]);
        error = error == -ENOTSUP ? 0 : error;
    }
    return error;
}

#define SECONDS       1.0 /* of one probe */
#define QUICK_SECONDS 0.2

int kvb_profile_measure_threads(kvb_machine_profile *profile, const uint32_t *threads, uint32_t n, double seconds)
{
    assert(n <= KVB_PROFILE_THREADS);
    int error = 0;
    profile->n_rows = 0;
    for (uint32_t i = 0; i < n && !error; i++) {
        kvb_threads *team;
        kvb_profile_row *row = &profile->row[i];
        *row = (kvb_profile_row){.threads = threads[i]};
        error = kvb_threads_start(threads[i], true, &team);
        if (error)
            break;
        error = levels_measure(profile, kvb_threads_team(team), seconds, row);
        if (!error)
            error = peaks_measure(profile, kvb_threads_team(team), seconds, row);
        kvb_threads_end(team);
        profile->n_rows += !error;
    }
    return error;
}

int kvb_profile_measure(kvb_machine_profile *profile, const uint32_t *threads, uint32_t n, bool quick)
{
    uint32_t usual[KVB_PROFILE_THREADS], cores = kvb_cores();
    if (!n) {
        for (uint32_t t = 1; t < cores && n + 1 < KVB_PROFILE_THREADS && (!quick || t == 1); t *= 2)
            usual[n++] = t;
        usual[n++] = cores;
        threads = usual;
    }
    return kvb_profile_measure_threads(profile, threads, n, quick ? QUICK_SECONDS : SECONDS);
}

/* ---- the machine's limits in a manifest -------------------------------------------------------------------------- */

#define PROBE_SECONDS 0.1 /* for each probe */

static double rate_or_none(const kvb_rate *rate)
{
    return rate->samples ? rate->median : NAN;
}

void kvb_profile_record(const uint32_t *threads, uint32_t n_threads, kvb_manifest *manifest)
{
    kvb_machine_profile profile;
    if (kvb_profile_describe("", &profile) || kvb_profile_measure_threads(&profile, threads, n_threads, PROBE_SECONDS))
        return; /* e.g. more threads than cores: there is nothing to measure */
    for (uint32_t i = 0; i < profile.n_rows && i < KVB_MACHINE_ROWS; i++) {
        kvb_machine_rates *to = &manifest->machine[manifest->n_machine++];
        to->threads = profile.row[i].threads;
        for (size_t level = 0; level < KVB_LEVELS; level++) {
            to->read[level] = rate_or_none(&profile.row[i].read[level]);
            to->triad[level] = rate_or_none(&profile.row[i].triad[level]);
        }
        for (size_t kind = 0; kind < sizeof to->peak / sizeof *to->peak; kind++)
            to->peak[kind] = rate_or_none(&profile.row[i].peak[kind]);
    }
}

/* A machine profile as one JSON object; its keys are in profile.h. */

static json_t *rate_json(const kvb_rate *rate)
{
    if (!rate->samples)
        return json_null();
    return json_pack("{s:f, s:f, s:f, s:i}", "median", rate->median, "low", rate->low, "high", rate->high, "samples",
                     (int)rate->samples);
}

static json_t *levels_rates_json(const kvb_machine_profile *p, const kvb_rate *rates)
{
    json_t *object = json_object();
    for (size_t i = 0; i < KVB_LEVELS; i++)
        json_object_set_new(object, p->level[i].name, rate_json(&rates[i]));
    return object;
}

static json_t *row_json(const kvb_machine_profile *p, const kvb_profile_row *row)
{
    json_t *peaks = json_object();
    for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS; k++)
        json_object_set_new(peaks, kvb_peak_names[k], rate_json(&row->peak[k]));
    return json_pack("{s:i, s:o, s:o, s:o}", "threads", (int)row->threads, "read_gb_per_s",
                     levels_rates_json(p, row->read), "triad_gb_per_s", levels_rates_json(p, row->triad),
                     "peak_g_op_per_s", peaks);
}

static json_t *words_json(const char *words)
{
    json_t *array = json_array();
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        json_array_append_new(array, json_stringn_nocheck(words, n));
    }
    return array;
}

static int profile_json_print(const kvb_machine_profile *p, const kvb_manifest *host, FILE *out)
{
    json_t *levels = json_array(), *rows = json_array(), *unavailable = json_object();
    for (const kvb_cache_level *l = p->level; l < p->level + KVB_LEVELS; l++)
        json_array_append_new(levels, json_pack("{s:s, s:I, s:i, s:I, s:s}", "name", l->name, "bytes",
                                                (json_int_t)l->bytes, "instances", (int)l->instances,
                                                "working_set_bytes", (json_int_t)l->working_set, "note", l->note));
    for (uint32_t r = 0; r < p->n_rows; r++)
        json_array_append_new(rows, row_json(p, &p->row[r]));
    for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS; k++)
        if (p->peak_unavailable[k][0])
            json_object_set_new(unavailable, kvb_peak_names[k], json_string(p->peak_unavailable[k]));
    json_t *object = json_pack(
        "{s:s, s:s, s:o, s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "schema",
        "kvbench.machine/1", "cpu_model", host->cpu_model, "cpu_features", words_json(host->cpu_features), "isa",
        host->isa, "os", host->os, "memory_bytes", (json_int_t)host->memory_bytes, "sockets", (int)p->sockets, "cores",
        (int)p->cores, "threads", (int)p->threads, "numa_nodes", (int)p->numa_nodes, "virtual_machine",
        p->virtual_machine, "governor", p->governor, "huge_pages", p->huge_pages, "read_isa", p->read_isa, "counters",
        p->counters, "levels", levels, "rows", rows, "peak_unavailable", unavailable);
    if (!object)
        return -ENOMEM;
    int error = json_dumpf(object, out, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) || putc('\n', out) == EOF ||
                        fflush(out) || ferror(out)
                    ? -EIO
                    : 0;
    json_decref(object);
    return error;
}

/* A machine profile as tables. */

static int facts_print(const kvb_machine_profile *p, const kvb_manifest *host, kvb_table_format format, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"fact", "value", NULL});
    kvb_table_put(t, "CPU\t%s", host->cpu_model);
    kvb_table_put(t, "features\t%s", host->cpu_features);
    kvb_table_put(t, "level\t%s", host->isa);
    kvb_table_put(t, "system\t%s", host->os);
    kvb_table_put(t, "topology\t%u sockets, %u cores, %u hardware threads, %u NUMA nodes", p->sockets, p->cores,
                  p->threads, p->numa_nodes);
    for (const kvb_cache_level *l = p->level; l < p->level + KVB_LEVELS; l++)
        if (!l->bytes)
            kvb_table_put(t, "%s\t%s", l->name, l->note);
        else
            kvb_table_put(t, "%s\t%s x %u%s%s", l->name, kvb_bytes_text((double)l->bytes).text, l->instances,
                          l->note[0] ? "; " : "", l->note);
    kvb_table_put(t, "huge pages\t%s", p->huge_pages);
    kvb_table_put(t, "governor\t%s", p->governor);
    kvb_table_put(t, "virtual machine\t%s", p->virtual_machine);
    kvb_table_put(t, "read kernel\t%s", p->read_isa);
    if (p->counters[0])
        kvb_table_put(t, "counters\t%s", p->counters);
    return kvb_table_end(t, format, out);
}

static int bandwidth_print(const kvb_machine_profile *p, kvb_table_format format, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"level", ">threads", ">working set", ">read GB/s", ">low - high",
                                                       ">triad GB/s", ">low - high", NULL});
    for (size_t i = 0; i < KVB_LEVELS; i++)
        for (const kvb_profile_row *row = p->row; row < p->row + p->n_rows; row++) {
            const kvb_rate *read = &row->read[i], *triad = &row->triad[i];
            if (read->samples)
                kvb_table_put(t, "%s\t%u\t%s\t%.1f\t%.1f - %.1f\t%.1f\t%.1f - %.1f", p->level[i].name, row->threads,
                              kvb_bytes_text((double)kvb_working_set_total(p->level, row->threads, i)).text,
                              read->median, read->low, read->high, triad->median, triad->low, triad->high);
        }
    return kvb_table_end(t, format, out);
}

static int peaks_print(const kvb_machine_profile *p, kvb_table_format format, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"peak", ">threads", ">Gop/s", ">low - high", "note", NULL});
    for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS; k++) {
        if (p->peak_unavailable[k][0])
            kvb_table_put(t, "%s\t\t\t\tunavailable: %s", kvb_peak_names[k], p->peak_unavailable[k]);
        for (uint32_t r = 0; r < p->n_rows; r++)
            if (p->row[r].peak[k].samples)
                kvb_table_put(t, "%s\t%u\t%.1f\t%.1f - %.1f", kvb_peak_names[k], p->row[r].threads,
                              p->row[r].peak[k].median, p->row[r].peak[k].low, p->row[r].peak[k].high);
    }
    return kvb_table_end(t, format, out);
}

/* One row of the csv. */
static void probe_put(kvb_table *t, const char *probe, const char *what, uint32_t threads, uint64_t bytes,
                      const char *unit, const kvb_rate *rate)
{
    char set[24] = "";
    if (bytes)
        snprintf(set, sizeof set, "%" PRIu64, bytes);
    if (rate->samples)
        kvb_table_put(t, "%s\t%s\t%u\t%s\t%s\t%.6g\t%.6g\t%.6g\t%u", probe, what, threads, set, unit, rate->median,
                      rate->low, rate->high, rate->samples);
}

static int csv_print(const kvb_machine_profile *p, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"probe", "of", "threads", "working_set_bytes", "unit", "median",
                                                       "low", "high", "samples", NULL});
    for (uint32_t r = 0; t && r < p->n_rows; r++) {
        const kvb_profile_row *row = &p->row[r];
        for (size_t i = 0; i < KVB_LEVELS; i++) {
            uint64_t bytes = kvb_working_set_total(p->level, row->threads, i);
            probe_put(t, "read", p->level[i].name, row->threads, bytes, "GB/s", &row->read[i]);
            probe_put(t, "triad", p->level[i].name, row->threads, bytes, "GB/s", &row->triad[i]);
        }
        for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS; k++)
            probe_put(t, "peak", kvb_peak_names[k], row->threads, 0, "Gop/s", &row->peak[k]);
    }
    return kvb_table_end(t, KVB_TABLE_CSV, out);
}

int kvb_profile_print(const kvb_machine_profile *profile, const kvb_manifest *host, kvb_table_format format, FILE *out)
{
    if (format == KVB_TABLE_JSON)
        return profile_json_print(profile, host, out);
    if (format == KVB_TABLE_CSV && profile->n_rows)
        return csv_print(profile, out);
    int error = facts_print(profile, host, format, out);
    if (error || !profile->n_rows)
        return error;
    putc('\n', out);
    error = bandwidth_print(profile, format, out);
    putc('\n', out);
    return error ? error : peaks_print(profile, format, out);
}
