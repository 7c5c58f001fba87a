/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of the build, and the search for the files that come with the program. */
#include "harness/installation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "version-facts.h"

const char kvb_version[] = KVB_FACT_VERSION;
const char kvb_build_commit[] = KVB_FACT_COMMIT;
#ifdef __clang__
const char kvb_compiler[] = __VERSION__;
#else
const char kvb_compiler[] = "gcc " __VERSION__;
#endif
const char kvb_flags[] = KVB_FACT_FLAGS;
const char kvb_workloads_installed[] = KVB_FACT_WORKLOADS;
const char kvb_plots_installed[] = KVB_FACT_PLOTS;

char *kvb_folder_find(const char *variable, const char *place, const char *installed)
{
    char program[4096], *folder = NULL;
    const char *environment = getenv(variable);
    if (environment)
        return strdup(environment);
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    for (char *slash = strrchr(program, '/'); slash; slash = strrchr(program, '/')) {
        *slash = '\0';
        if (asprintf(&folder, "%s/%s", program, place) < 0)
            return NULL;
        if (!access(folder, R_OK))
            return folder;
        free(folder);
    }
    return strdup(installed);
}
