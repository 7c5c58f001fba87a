/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the probes: huge pages where the system grants them on advice, touched first by the thread that reads it.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/machine/bandwidth.h"
#include "kernels/attend.h"

#define PAGE      4096u
#define HUGE_PAGE (2u << 20)
#define FILLING   0x2d /* written, because pages that are only read are all the same zero page, which is in L1 */

/* mmap aligns to small pages only. For the alignment of huge pages it maps more and unmaps what lies before and after,
 * as close() knows the base alone. */
static char *aligned_map(size_t bytes)
{
    size_t room = bytes + HUGE_PAGE;
    char *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE, after = room - before - bytes;
    if (before)
        munmap(at, before);
    if (after)
        munmap(at + before + bytes, after);
    return at + before;
}

static void part_touch(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_probe_memory *memory = ctx;
    size_t part = memory->bytes / n;
    memset(memory->base + i * part, FILLING, part);
}

int kvb_probe_memory_open(const kvb_team *team, size_t bytes, kvb_probe_memory *memory)
{
    size_t unit = (size_t)team->n * PAGE, units = bytes / unit + (bytes % unit != 0);
    *memory = (kvb_probe_memory){0};
    if (!units)
        units = 1;
    if (units > (SIZE_MAX - HUGE_PAGE) / unit)
        return -ENOMEM;
    memory->bytes = units * unit;
    memory->base = aligned_map(memory->bytes);
    if (!memory->base)
        return -ENOMEM;
    madvise(memory->base, memory->bytes, MADV_HUGEPAGE); /* may fail: small pages will do */
    team->run(team, part_touch, memory);
    return 0;
}

void kvb_probe_memory_close(kvb_probe_memory *memory)
{
    if (memory->base)
        munmap(memory->base, memory->bytes);
    *memory = (kvb_probe_memory){0};
}
