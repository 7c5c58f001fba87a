/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
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

int kvb_parsing_fail(kvb_parsing *r, int error, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!r->error)
        r->error = kvb_why_set(error, r->text, sizeof r->text, "%s%s", r->where, text);
    return r->error;
}

bool kvb_names_have(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = names; n && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == n && memcmp(at, name, n) == 0)
            return true;
    return false;
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

/* ---- output files ------------------------------------------------------------------------------------------------ */

#define LOCK_TRIES 25 /* 20 ms apart: the child of a killed run holds the lock until it ends, too */

/* True also if the file system has no locks, which must not stop a run. */
static bool is_locked(int file)
{
    for (int tries = 0; flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; tries++) {
        if (tries == LOCK_TRIES)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return true;
}

/* Opens and locks path.tmp: its descriptor, or a negative errno. Another process may rename or remove it between open
 * and lock. Then the locked file is no longer the one with this name, and the loop tries again. */
static int temporary_open(const char *path, bool resume)
{
    for (;;) {
        struct stat opened, named;
        const int file = open(path, O_WRONLY | (resume ? 0 : O_CREAT) | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (file < 0)
            return -errno;
        int error = !is_locked(file) ? -EBUSY : fstat(file, &opened) ? -errno : 0;
        const bool same =
            !error && !stat(path, &named) && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
        if (same && !resume && ftruncate(file, 0))
            error = -errno;
        if (same && !error)
            return file;
        close(file);
        if (error)
            return error;
    }
}

/* The descriptor to write to, or a negative errno. */
static int target_open(kvb_output_file *f, bool resume)
{
    struct stat target;
    const bool there = stat(f->path, &target) == 0;
    if (!*f->path)
        return -ENOENT;
    if (there && !S_ISREG(target.st_mode)) {
        const int file = resume ? -1 : open(f->path, O_WRONLY | O_CLOEXEC);
        return file >= 0 ? file : resume ? -EINVAL : -errno;
    }
    if (there && access(f->path, W_OK) != 0)
        return -errno;
    f->target = there ? realpath(f->path, NULL) : strdup(f->path); /* of a link, the file behind it is replaced */
    if (!f->target)
        return -errno;
    if (asprintf(&f->temporary, "%s.tmp", f->target) < 0) {
        f->temporary = NULL;
        return -ENOMEM;
    }
    return temporary_open(f->temporary, resume);
}

/* Makes the new name survive a power cut. Errors are ignored: not every file system can do this. */
static void folder_sync(char *target)
{
    char *slash = strrchr(target, '/');
    if (slash)
        slash[slash == target] = '\0';
    const int folder = open(slash ? target : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        (void)!fsync(folder);
        close(folder);
    }
}

void kvb_output_file_leave(kvb_output_file *f)
{
    if (f->stream)
        fclose(f->stream);
    free(f->path);
    free(f->target);
    free(f->temporary);
    *f = (kvb_output_file){0};
}

static int output_why(const char *path, int error, char *why, size_t why_bytes)
{
    return error == -EBUSY ? kvb_why_set(error, why, why_bytes, "%s: another run is writing it", path)
           : error == -EINVAL
               ? kvb_why_set(error, why, why_bytes, "%s: expected a regular file: nothing else can be resumed", path)
               : kvb_why_set(error, why, why_bytes, "%s: cannot be written: %s", path, strerror(-error));
}

int kvb_output_file_open(const char *path, bool resume, kvb_output_file *f, char *why, size_t why_bytes)
{
    *f = (kvb_output_file){.path = strdup(path)};
    const int file = f->path ? target_open(f, resume) : -ENOMEM;
    f->stream = file >= 0 ? fdopen(file, "w") : NULL;
    if (f->stream)
        return 0;
    if (file >= 0)
        close(file);
    kvb_output_file_leave(f);
    return output_why(path, file >= 0 ? -ENOMEM : file, why, why_bytes);
}

int kvb_output_file_commit(kvb_output_file *f, char *why, size_t why_bytes)
{
    errno = 0; /* a write that failed earlier shows only in the stream's error flag */
    if (fflush(f->stream) || ferror(f->stream) ||
        (f->temporary && (fsync(fileno(f->stream)) || rename(f->temporary, f->target))))
        return output_why(f->path, errno ? -errno : -EIO, why, why_bytes);
    if (f->temporary)
        folder_sync(f->target);
    free(f->temporary);
    f->temporary = NULL;
    return 0;
}

int kvb_output_file_close(kvb_output_file *f, bool commit, char *why, size_t why_bytes)
{
    int error = commit ? kvb_output_file_commit(f, why, why_bytes) : 0;
    if (f->temporary)
        unlink(f->temporary); /* while it is still locked */
    if (fclose(f->stream) && commit && !error)
        error = output_why(f->path, -errno, why, why_bytes);
    f->stream = NULL;
    kvb_output_file_leave(f);
    return error;
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
    for (uint32_t slot = 0; slot <= KVB_TRACE_SLOTS; slot++) {
        char beside[PATH_MAX + 8];
        snprintf(beside, sizeof beside, "%s.tmp", kvb_slot_files_path(files, slot)); /* of a save that was killed */
        unlink(files->path);
        unlink(beside);
    }
    rmdir(files->folder);
    files->folder[0] = '\0';
}
