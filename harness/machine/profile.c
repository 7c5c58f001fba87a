/* SPDX-License-Identifier: Apache-2.0 */
/* Describe this machine: topology, and the system's state that speed depends on. */
#include "harness/machine/profile.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "harness/machine/topology.h"

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

/* Number behind "key:" of /proc/meminfo; 0 when it has none. */
static uint64_t meminfo(const char *root, const char *key)
{
    char file[4096], line[256];
    uint64_t number = 0;
    size_t n = strlen(key);
    snprintf(file, sizeof file, "%s/proc/meminfo", root);
    FILE *in = fopen(file, "r");
    while (in && fgets(line, sizeof line, in))
        if (!strncmp(line, key, n) && line[n] == ':')
            number = strtoull(line + n + 1, NULL, 10);
    if (in)
        fclose(in);
    return number;
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

/* The flag "hypervisor": 1 set, 0 not set, -1 this machine has no x86 flags. */
static int hypervisor_flag(const char *root)
{
    char file[4096], *line = NULL;
    size_t room = 0;
    int flag = -1;
    snprintf(file, sizeof file, "%s/proc/cpuinfo", root);
    FILE *in = fopen(file, "r");
    while (in && flag < 0 && getline(&line, &room, in) > 0)
        if (!strncmp(line, "flags", 5))
            flag = strstr(line, " hypervisor") != NULL;
    free(line);
    if (in)
        fclose(in);
    return flag;
}

/* The name that a hypervisor gives itself in CPUID leaf 0x40000000; empty where there is none. */
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
    char vendor[48], name[16] = "";
    bool is_virtual = false;
    int flag = hypervisor_flag(root);
    kvb_line_read(root, "/sys/class/dmi/id/sys_vendor", vendor, sizeof vendor);
    for (size_t i = 0; virtual_vendors[i]; i++)
        is_virtual = is_virtual || !strcmp(vendor, virtual_vendors[i]);
    is_virtual = flag < 0 ? is_virtual : flag == 1;
    if (is_virtual && flag == 1 && !root[0])
        hypervisor_name(name);
    if (!is_virtual)
        snprintf(text, bytes, "none");
    else if (name[0] && vendor[0])
        snprintf(text, bytes, "%.15s (%.44s)", name, vendor);
    else
        snprintf(text, bytes, "%s", name[0] ? name : vendor[0] ? vendor : "unknown hypervisor");
}

static uint32_t count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(topology, type);
    return n > 0 ? (uint32_t)n : 1;
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
    uint64_t total = meminfo(root, "MemTotal") * 1024; /* a node's own figure leaves out memory added while running */
    if (total)
        profile->level[3].bytes = total;
    snprintf(profile->read_isa, sizeof profile->read_isa, "%s", kvb_read_isa());
    profile->numa_nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
    profile->sockets = count_of(topology, HWLOC_OBJ_PACKAGE);
    profile->cores = count_of(topology, HWLOC_OBJ_CORE);
    profile->threads = count_of(topology, HWLOC_OBJ_PU);
    hwloc_topology_destroy(topology);
    return 0;
}
