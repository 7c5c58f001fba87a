/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/slot_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workloads/trace.h"
#include "workloads/why.h"

int kvb_slot_files_open(kvb_slot_files *files, char *why, size_t why_bytes)
{
    const char *where = getenv("TMPDIR");
    where = where && *where ? where : access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    const int n = snprintf(files->folder, sizeof files->folder, "%s/kvbench-XXXXXX", where);
    if (n > 0 && (size_t)n < sizeof files->folder && mkdtemp(files->folder))
        return 0;
    const int error = n > 0 && (size_t)n < sizeof files->folder ? errno : ENAMETOOLONG;
    files->folder[0] = '\0';
    return kvb_why_set(-error, why, why_bytes, "%.200s: no folder for what is saved: %s", where, strerror(error));
}

const char *kvb_slot_files_path(kvb_slot_files *files, uint32_t slot)
{
    snprintf(files->path, sizeof files->path, "%s/slot-%u", files->folder, slot);
    return files->path;
}

void kvb_slot_files_close(kvb_slot_files *files)
{
    if (!*files->folder)
        return;
    for (uint32_t slot = 0; slot < KVB_TRACE_SLOTS; slot++) {
        char beside[PATH_MAX + 8];
        snprintf(beside, sizeof beside, "%s.tmp", kvb_slot_files_path(files, slot)); /* of a save that was killed */
        unlink(files->path);
        unlink(beside);
    }
    rmdir(files->folder);
    files->folder[0] = '\0';
}
