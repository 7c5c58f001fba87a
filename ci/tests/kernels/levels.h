/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The levels of instruction sets that a test tries: all that this CPU has, or only those that KVB_TEST_LEVELS lists,
 * if other CPUs try the rest (ci/check_arm.sh). The CPU must have every listed level.
 */
#ifndef KVB_TEST_LEVELS_H
#define KVB_TEST_LEVELS_H

#include "ci/tests/tests.h"
#include "kernels/vector/vector.h"

static inline bool level_tried(kvb_cpu_level level)
{
    const char *listed = getenv("KVB_TEST_LEVELS"), *name = kvb_cpu_level_names[level];
    const size_t n = strlen(name);
    char why[128];
    const bool here = kvb_cpu_has(level, why, sizeof why);

    for (const char *word = listed; word; word = strchr(word, ' ')) {
        word += strspn(word, " ");
        if (strncmp(word, name, n) || (word[n] && word[n] != ' '))
            continue;
        if (!here)
            fail_msg("%s: %s", name, why);
        return true;
    }
    return here && !listed;
}

/* The loops of the next level to try; *level starts as 0. NULL: no more. */
static inline const kvb_vector *level_next(int *level)
{
    while (*level < KVB_CPU_LEVELS) {
        const kvb_cpu_level at = (kvb_cpu_level)(*level)++;
        if (kvb_loops_own(at, offsetof(kvb_loops, vector)) && level_tried(at))
            return kvb_vector_at(at);
    }
    return NULL;
}

#endif
