/* SPDX-License-Identifier: Apache-2.0 */
/* For plug-ins that call an engine's library: the path of the library, and the CPUs of a team's threads. */
#ifndef KVB_ENGINES_H
#define KVB_ENGINES_H

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

#endif
