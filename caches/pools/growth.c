/* SPDX-License-Identifier: Apache-2.0 */
/* Growth policies. With doubling, writing n cells one by one copies fewer than 2n cells in all. */
#include "caches/pools/growth.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "caches/allocator.h"

const char *const kvb_growth_names[KVB_GROWTHS] = {"double", "double+thp", "reserve", "reserve+thp", "exact"};

static bool is_huge(kvb_growth growth)
{
    return growth == KVB_GROWTH_DOUBLE_THP || growth == KVB_GROWTH_RESERVE_THP;
}

bool kvb_growth_reserves(kvb_growth growth)
{
    return growth == KVB_GROWTH_RESERVE || growth == KVB_GROWTH_RESERVE_THP;
}

bool kvb_growth_available(kvb_growth growth, char *why, size_t why_bytes)
{
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    char text[64] = "";
    if (!is_huge(growth))
        return true;
    FILE *f = fopen(path, "r");
    bool read = f && fgets(text, sizeof text, f);
    if (f)
        fclose(f);
    if (read && !strstr(text, "[never]"))
        return true;
    snprintf(why, why_bytes, read ? "%s says never: no huge pages" : "no %s: no huge pages", path);
    return false;
}

size_t kvb_growth_grain(kvb_growth growth)
{
    return is_huge(growth) ? KVB_HUGE_PAGE : kvb_growth_reserves(growth) ? (size_t)sysconf(_SC_PAGESIZE) : 1;
}

uint32_t kvb_growth_double(uint32_t held, uint32_t needed, uint32_t min_chunk, uint32_t capacity)
{
    uint64_t cells = held; /* 64 bits: twice 2^31 must not wrap */

    assert(needed <= capacity && held <= capacity && min_chunk >= 1);
    if (needed <= held)
        return held;
    if (cells == 0)
        cells = min_chunk;
    while (cells < needed)
        cells *= 2;
    return cells < capacity ? (uint32_t)cells : capacity;
}
