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

char *kvb_folder_find(const char *variable, const char *installed, const char *source)
{
    const char *const places[] = {installed, source}, *environment = getenv(variable);
    char program[4096];
    if (environment)
        return strdup(environment);
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    for (char *slash = strrchr(program, '/'); slash; slash = strrchr(program, '/')) {
        *slash = '\0';
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            char *folder = NULL;
            if (asprintf(&folder, "%s/%s", program, places[i]) < 0)
                return NULL;
            if (!access(folder, R_OK))
                return folder;
            free(folder);
        }
    }
    return strdup(source);
}
