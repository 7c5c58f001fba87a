/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
