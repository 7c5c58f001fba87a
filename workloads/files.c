/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workloads/trace.h"

int kvb_why_set(int error, char *why, size_t why_bytes, const char *format, ...)
{
    if (!why || why_bytes == 0)
        return error;
    va_list args;
    va_start(args, format);
    vsnprintf(why, why_bytes, format, args);
    va_end(args);
    for (char *c = why; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return error;
}

bool kvb_list_add(char *text, size_t bytes, const char *between, const char *format, ...)
{
    const size_t used = strlen(text), gap = used ? strlen(between) : 0;
    va_list args;
    va_start(args, format);
    if (used + gap < bytes)
        memcpy(text + used, between, gap);
    const bool fits = used + gap < bytes &&
                      vsnprintf(text + used + gap, bytes - used - gap, format, args) < (int)(bytes - used - gap);
    va_end(args);
    return fits;
}

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
