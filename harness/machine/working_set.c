/* SPDX-License-Identifier: Apache-2.0 */
/* Which sizes are probed for each level of a topology. */
#include <hwloc.h>
#include <stdio.h>

#include "harness/machine/profile.h"

#define MIB ((uint64_t)1 << 20)

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t count_of(struct hwloc_topology *topology, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(topology, type);
    return n > 0 ? (uint32_t)n : 0;
}

/* Number and size of the caches of a type. If sizes differ (hybrid machines) the smallest counts: it must hold the
 * working set of any thread. */
static void cache_describe(struct hwloc_topology *topology, hwloc_obj_type_t type, kvb_cache_level *level)
{
    level->instances = count_of(topology, type);
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
    uint32_t cores = count_of(topology, HWLOC_OBJ_CORE);
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
    dram->instances = count_of(topology, HWLOC_OBJ_NUMANODE); /* hwloc always has one */
    dram_choose(dram, larger(last_level, l1->bytes * l1->instances), available);
}

uint64_t kvb_working_set_total(const kvb_cache_level *level, uint32_t threads, size_t i)
{
    return i < 2 ? level[i].working_set * threads : level[i].working_set;
}
