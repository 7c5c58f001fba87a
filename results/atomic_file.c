/* SPDX-License-Identifier: Apache-2.0 */

#include "results/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TRIES 25 /* 20 ms apart: the child of a killed run holds the lock until it ends too */

/* True also where the file system has no locks: that shall not stop a run. */
static bool is_locked(int file)
{
    for (int tries = 0; flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; tries++) {
        if (tries == LOCK_TRIES)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return true;
}

/* Opens and locks path.tmp. Another process may rename or remove it between open and lock. Then the locked file is no
 * longer the one with this name, and the loop tries again. */
static int temporary_open(kvb_atomic_file *f, bool resume)
{
    for (;;) {
        struct stat opened, named;

        f->file = open(f->temporary, O_WRONLY | (resume ? 0 : O_CREAT) | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (f->file < 0)
            return -errno;
        if (!is_locked(f->file))
            return -EBUSY;
        if (fstat(f->file, &opened) != 0)
            return -errno;
        if (stat(f->temporary, &named) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino)
            break;
        close(f->file);
        f->file = -1;
    }
    return resume || ftruncate(f->file, 0) == 0 ? 0 : -errno;
}

static int target_open(kvb_atomic_file *f, const char *path, bool resume)
{
    struct stat target;
    bool there = stat(path, &target) == 0;

    if (!path[0])
        return -ENOENT;
    if (there && !S_ISREG(target.st_mode) && resume)
        return -EINVAL;
    if (there && !S_ISREG(target.st_mode)) {
        f->file = open(path, O_WRONLY | O_CLOEXEC);
        return f->file >= 0 ? 0 : -errno;
    }
    if (there && access(path, W_OK) != 0)
        return -errno;
    /* of a symbolic link, the file behind it is replaced */
    f->target = there ? realpath(path, NULL) : strdup(path);
    if (!f->target)
        return -errno;
    if (asprintf(&f->temporary, "%s.tmp", f->target) < 0) {
        f->temporary = NULL;
        return -ENOMEM;
    }
    return temporary_open(f, resume);
}

/* Makes the new name survive a power cut. Errors are ignored: not every file system can do this. */
static void folder_sync(const char *target)
{
    char *folder = strdup(target), *slash = folder ? strrchr(folder, '/') : NULL;
    int file = -1;

    if (slash)
        slash[slash == folder] = 0;
    if (folder)
        file = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file >= 0) {
        (void)!fsync(file);
        close(file);
    }
    free(folder);
}

static void file_free(kvb_atomic_file *f)
{
    if (f->file >= 0)
        close(f->file);
    free(f->target);
    free(f->temporary);
    *f = (kvb_atomic_file){.file = -1};
}

int kvb_atomic_file_open(const char *path, bool resume, kvb_atomic_file *f)
{
    *f = (kvb_atomic_file){.file = -1};
    int error = target_open(f, path, resume);

    if (error)
        file_free(f);
    return error;
}

int kvb_atomic_file_write(kvb_atomic_file *f, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(f->file, bytes, n);

        if (written < 0 && errno != EINTR)
            return -errno;
        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
        }
    }
    return 0;
}

int kvb_atomic_file_commit(kvb_atomic_file *f)
{
    if (!f->temporary)
        return 0;
    if (fsync(f->file) != 0 || rename(f->temporary, f->target) != 0)
        return -errno;
    folder_sync(f->target);
    free(f->temporary);
    f->temporary = NULL;
    return 0;
}

int kvb_atomic_file_close(kvb_atomic_file *f, bool commit)
{
    int error = commit ? kvb_atomic_file_commit(f) : 0;

    if (f->temporary)
        unlink(f->temporary); /* while it is still locked */
    if (close(f->file) != 0 && commit && !error)
        error = -errno;
    f->file = -1;
    file_free(f);
    return error;
}

void kvb_atomic_file_leave(kvb_atomic_file *f)
{
    file_free(f);
}
