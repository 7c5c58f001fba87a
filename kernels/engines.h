/* SPDX-License-Identifier: Apache-2.0 */
/* For plug-ins that call an engine's library: its path, the CPUs of a team's threads, what problems they take. */
#ifndef KVB_ENGINES_H
#define KVB_ENGINES_H

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attend.h"

/* The path in an environment variable; if it is not set, `beside`, from the folder of the plug-in that holds `own`. */
static inline void kvb_engine_path(const char *variable, const void *own, const char *beside, char path[PATH_MAX])
{
    const char *named = getenv(variable);
    Dl_info self;
    if (named && *named) {
        snprintf(path, PATH_MAX, "%s", named);
        return;
    }
    snprintf(path, PATH_MAX, ".");
    if (dladdr(own, &self) && self.dli_fname && strrchr(self.dli_fname, '/'))
        snprintf(path, PATH_MAX, "%.*s", (int)(strrchr(self.dli_fname, '/') - self.dli_fname), self.dli_fname);
    snprintf(path + strlen(path), PATH_MAX - strlen(path), "/%s", beside);
}

/* A part of a team's run: fills the i-th of ctx, cpu_set_t [n], with the CPUs on which thread i may run. */
static inline void kvb_engine_place_note(void *ctx, uint32_t i, uint32_t n)
{
    cpu_set_t *at = (cpu_set_t *)ctx + i;
    (void)n;
    CPU_ZERO(at);
    sched_getaffinity(0, sizeof *at, at);
}

enum { KVB_ENGINE_THREADS = 512 };

/* cpu[i] becomes the one CPU on which thread i of the team may run. False: threads are not bound to one CPU each, or there
 * are more than KVB_ENGINE_THREADS. */
static inline bool kvb_engine_places(const kvb_team *team, int cpu[KVB_ENGINE_THREADS])
{
    static cpu_set_t at[KVB_ENGINE_THREADS];
    bool bound = team->n <= KVB_ENGINE_THREADS;
    if (bound)
        team->run(team, kvb_engine_place_note, at);
    for (uint32_t i = 0; bound && i < team->n; i++) {
        for (cpu[i] = 0; cpu[i] < CPU_SETSIZE && !CPU_ISSET(cpu[i], &at[i]);)
            cpu[i]++;
        bound = CPU_COUNT(&at[i]) == 1;
    }
    return bound;
}

/* Does the kernel take the problem? lack: what is against it; NULL: nothing. */
static inline bool kvb_engine_takes(const char *lack, char *why, size_t why_bytes)
{
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

/* Does every query see every cell? */
static inline bool kvb_engine_sees_all(const kvb_problem *p)
{
    return p->mask == KVB_MASK_NONE || (p->mask == KVB_MASK_CAUSAL && p->n_tok == 1);
}

/* Parts of scratch begin at multiples of 64 bytes. */
static inline size_t kvb_engine_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif
