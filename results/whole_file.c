/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary beside the target, locked, and renamed over it. */
#include "results/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_LOOKS 25 /* for a lock, 20 ms apart: the child of a killed run holds it until it is gone too */

/* A file system without locks does not stop a run. */
static bool is_locked(int file)
{
    for (int look = 0; flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; look++) {
        if (look == LOCK_LOOKS)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return true;
}

/* Take path.tmp for this writer alone. Another may rename or remove it between open and lock: then the file that
 * was locked is no longer the one of that name, and it is tried again. */
static int temporary_open(kvb_whole_file *whole, bool again)
{
    for (;;) {
        struct stat opened, named;

        whole->file = open(whole->temporary, O_WRONLY | (again ? 0 : O_CREAT) | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (whole->file < 0)
            return -errno;
        if (!is_locked(whole->file))
            return -EBUSY;
        if (fstat(whole->file, &opened) != 0)
            return -errno;
        if (stat(whole->temporary, &named) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino)
            break;
        close(whole->file);
        whole->file = -1;
    }
    return again || ftruncate(whole->file, 0) == 0 ? 0 : -errno;
}

static int target_open(kvb_whole_file *whole, const char *path, bool again)
{
    struct stat target;
    bool there = stat(path, &target) == 0;

    if (!path[0])
        return -ENOENT;
    if (there && !S_ISREG(target.st_mode) && again)
        return -EINVAL;
    if (there && !S_ISREG(target.st_mode)) {
        whole->file = open(path, O_WRONLY | O_CLOEXEC);
        return whole->file >= 0 ? 0 : -errno;
    }
    if (there && access(path, W_OK) != 0)
        return -errno;
    /* through a symbolic link the file behind it is replaced, not the link */
    whole->target = there ? realpath(path, NULL) : strdup(path);
    if (!whole->target)
        return -errno;
    if (asprintf(&whole->temporary, "%s.tmp", whole->target) < 0) {
        whole->temporary = NULL;
        return -ENOMEM;
    }
    return temporary_open(whole, again);
}

/* Make the name itself survive a power cut. Not every file system can: then nothing is lost but that. */
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

static void whole_free(kvb_whole_file *whole)
{
    if (whole->file >= 0)
        close(whole->file);
    free(whole->target);
    free(whole->temporary);
    *whole = (kvb_whole_file){.file = -1};
}

static int whole_open(const char *path, bool again, kvb_whole_file *whole)
{
    int error;

    *whole = (kvb_whole_file){.file = -1};
    error = target_open(whole, path, again);
    if (error)
        whole_free(whole);
    return error;
}

int kvb_whole_file_open(const char *path, kvb_whole_file *whole)
{
    return whole_open(path, false, whole);
}

int kvb_whole_file_reopen(const char *path, kvb_whole_file *whole)
{
    return whole_open(path, true, whole);
}

int kvb_whole_file_write(kvb_whole_file *whole, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(whole->file, bytes, n);

        if (written < 0 && errno != EINTR)
            return -errno;
        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
        }
    }
    return 0;
}

int kvb_whole_file_commit(kvb_whole_file *whole)
{
    if (!whole->temporary)
        return 0;
    if (fsync(whole->file) != 0 || rename(whole->temporary, whole->target) != 0)
        return -errno;
    folder_sync(whole->target);
    free(whole->temporary);
    whole->temporary = NULL;
    return 0;
}

int kvb_whole_file_close(kvb_whole_file *whole, bool commit)
{
    int error = commit ? kvb_whole_file_commit(whole) : 0;

    if (whole->temporary)
        unlink(whole->temporary); /* before the lock goes with the file */
    if (close(whole->file) != 0 && commit && !error)
        error = -errno;
    whole->file = -1;
    whole_free(whole);
    return error;
}

void kvb_whole_file_leave(kvb_whole_file *whole)
{
    whole_free(whole);
}
