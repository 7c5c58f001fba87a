/* SPDX-License-Identifier: Apache-2.0 */
/* The list of value profiles. */
#include "workloads/profile_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const kvb_profile *const kvb_profiles[] = {
    &kvb_profile_gaussian,
    &kvb_profile_llama,
    &kvb_profile_qwen,
    &kvb_profile_peaked,
    &kvb_profile_flat,
    &kvb_profile_tags,
    NULL,
};

const kvb_profile *kvb_profile_find(const char *name)
{
    for (size_t i = 0; kvb_profiles[i]; i++)
        if (strcmp(kvb_profiles[i]->name, name) == 0)
            return kvb_profiles[i];
    return NULL;
}

int kvb_profile_choose(const char *name, const kvb_profile **profile, char *why, size_t why_bytes)
{
    *profile = kvb_profile_find(name);
    if (*profile)
        return 0;
    char list[160];
    size_t at = 0;
    for (size_t i = 0; kvb_profiles[i] && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", kvb_profiles[i]->name);
    return kvb_why_set(-EINVAL, why, why_bytes, "unknown profile \"%.40s\", known: %s", name, list);
}
