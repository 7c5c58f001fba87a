/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole or not at all: see output_file.h. */
#include "workloads/output_file.h"

#include "workloads/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void output_file_free(kvb_output_file *file)
{
    free(file->path);
    free(file->temporary);
    *file = (kvb_output_file){0};
}

int kvb_output_file_open(const char *path, kvb_output_file *file, char *why, size_t why_bytes)
{
    *file = (kvb_output_file){.path = strdup(path)};
    if (!file->path)
        return kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    struct stat target;
    bool direct = stat(path, &target) == 0 && !S_ISREG(target.st_mode);
    int err = 0;
    if (direct && S_ISDIR(target.st_mode))
        err = EISDIR;
    else if (!direct && asprintf(&file->temporary, "%s.tmp", path) < 0) {
        file->temporary = NULL;
        err = ENOMEM;
    } else {
        file->stream = fopen(direct ? path : file->temporary, "we");
        err = file->stream ? 0 : errno;
    }
    if (err) {
        output_file_free(file);
        return kvb_why_set(-err, why, why_bytes, "%s: cannot be written: %s", path, strerror(err));
    }
    return 0;
}

int kvb_output_file_close(kvb_output_file *file, bool commit, char *why, size_t why_bytes)
{
    int err = 0;
    if (commit) {
        errno = 0;
        /* A write that failed before flushing left its cause behind only in the stream's error flag. */
        if (fflush(file->stream) || ferror(file->stream))
            err = errno ? errno : EIO;
        else if (file->temporary && fsync(fileno(file->stream)))
            err = errno;
    }
    if (fclose(file->stream) && commit && !err)
        err = errno;
    if (commit && !err && file->temporary && rename(file->temporary, file->path))
        err = errno;
    if (file->temporary && (err || !commit))
        unlink(file->temporary);
    if (err)
        kvb_why_set(-err, why, why_bytes, "%s: cannot be written: %s", file->path, strerror(err));
    output_file_free(file);
    return -err;
}
