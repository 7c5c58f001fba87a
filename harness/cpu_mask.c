/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a word into a level, and sets the limits. */
#include "harness/cpu_mask.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "caches/pools/codec/codec.h"
#include "kernels/vector/vector.h"
#include "results/near_name.h"

/* Codecs are compiled for fewer levels than kernels. For a level without codecs, those of the next one below are used.
 */
static void codecs_limit(int level)
{
    while (kvb_codec_limit(kvb_cpu_level_names[level]) && level > KVB_CPU_PORTABLE)
        level--;
}

int kvb_cpu_mask_set(const char *word, char *why, size_t why_bytes)
{
    char lack[128];
    char known[128] = "";
    size_t used = 0;
    for (int level = 0; level < KVB_CPU_LEVELS; level++) {
        const char *name = kvb_cpu_level_names[level];
        if (word ? !strcmp(word, name) : level == KVB_CPU_LEVELS - 1) {
            if (word && !kvb_cpu_has((kvb_cpu_level)level, lack, sizeof lack)) {
                snprintf(why, why_bytes, "%s: %s", name, lack);
                return -ENOTSUP;
            }
            kvb_cpu_limit((kvb_cpu_level)level);
            codecs_limit(level);
            return 0;
        }
        if (used < sizeof known && kvb_loops_at((kvb_cpu_level)level)) /* of this architecture */
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", level ? ", " : "", name);
    }
    return kvb_name_unknown("unknown level", word, known, why, why_bytes);
}
