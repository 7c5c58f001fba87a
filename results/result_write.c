/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing result files: every line reaches the system at once; the target changes only when all went well.
 *
 * path.tmp is locked (flock) while it is written. A second run with the same target is refused; what a killed run
 * left behind is gone on with where that is asked for, and else begun anew.
 */
#include "results/field.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "results/result_file.h"

#define LOCK_LOOKS 25 /* for a lock, 20 ms apart: the child of a killed run holds it until it is gone too */

struct kvb_result_writer {
    int file;
    char *path; /* as the caller named it, for messages */
    char *target;
    char *temporary; /* NULL: the target is written directly */
    off_t whole;     /* bytes of the lines that are whole */
    size_t results;  /* such lines after the manifest */
    int failed;      /* first error: nothing is written after it, and nothing committed */
};

static int say(const kvb_result_writer *writer, int error, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "%s: %s", writer->path, strerror(-error));
    return error;
}

static void writer_free(kvb_result_writer *writer)
{
    if (!writer)
        return;
    if (writer->file >= 0)
        close(writer->file);
    free(writer->path);
    free(writer->target);
    free(writer->temporary);
    free(writer);
}

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

/* Take path.tmp for this writer alone, as it is; create it unless it must be there. Another may rename or remove it
 * between open and lock: then the file that was locked is no longer the one of that name, and it is tried again. */
static int temporary_open(kvb_result_writer *writer, bool create)
{
    for (;;) {
        struct stat opened, named;

        writer->file = open(writer->temporary, O_RDWR | (create ? O_CREAT : 0) | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (writer->file < 0)
            return -errno;
        if (!is_locked(writer->file))
            return -EBUSY;
        if (fstat(writer->file, &opened) != 0)
            return -errno;
        if (stat(writer->temporary, &named) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino)
            return 0;
        close(writer->file);
        writer->file = -1;
    }
}

/* resume: path.tmp must be there. */
static int target_open(kvb_result_writer *writer, bool resume)
{
    struct stat target;
    bool there = stat(writer->path, &target) == 0;

    if (!writer->path[0])
        return -ENOENT;
    if (there && !S_ISREG(target.st_mode) && resume)
        return -EINVAL;
    if (there && !S_ISREG(target.st_mode)) {
        writer->file = open(writer->path, O_WRONLY | O_CLOEXEC);
        return writer->file >= 0 ? 0 : -errno;
    }
    if (there && access(writer->path, W_OK) != 0)
        return -errno;
    /* through a symbolic link the file behind it is replaced, not the link */
    writer->target = there ? realpath(writer->path, NULL) : strdup(writer->path);
    if (!writer->target)
        return -errno;
    if (asprintf(&writer->temporary, "%s.tmp", writer->target) < 0) {
        writer->temporary = NULL;
        return -ENOMEM;
    }
    return temporary_open(writer, !resume);
}

static int bytes_write(int file, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(file, bytes, n);

        if (written < 0 && errno != EINTR)
            return -errno;
        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
        }
    }
    return 0;
}

/* Write one line. Twelve digits: more than any measurement holds, and 0.1 stays 0.1. */
static int line_write(kvb_result_writer *writer, const kvb_field *fields, const void *record, char *why,
                      size_t why_bytes)
{
    json_t *object = NULL;
    char *line = NULL;
    size_t n;

    if (!writer->failed) {
        object = kvb_fields_encode(fields, record);
        line = object ? json_dumps(object, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12)) : NULL;
        if (line) {
            n = strlen(line);
            line[n] = '\n'; /* in place of the final 0 */
            writer->failed = bytes_write(writer->file, line, n + 1);
            if (!writer->failed)
                writer->whole += (off_t)n + 1;
        } else {
            writer->failed = -ENOMEM;
        }
    }
    free(line);
    json_decref(object);
    return writer->failed ? say(writer, writer->failed, why, why_bytes) : 0;
}

/* A writer with its target open; NULL with error and why. */
static kvb_result_writer *writer_open(const char *path, bool resume, int *error, char *why, size_t why_bytes)
{
    kvb_result_writer *writer = calloc(1, sizeof *writer);

    if (!writer || !(writer->path = strdup(path))) {
        *error = -ENOMEM;
        snprintf(why, why_bytes, "%s: %s", path, strerror(ENOMEM));
        free(writer);
        return NULL;
    }
    writer->file = -1;
    *error = target_open(writer, resume);
    if (!*error)
        return writer;
    if (*error == -EBUSY)
        snprintf(why, why_bytes, "%s: another run is writing it", path);
    else if (*error == -EINVAL)
        snprintf(why, why_bytes, "%s: expected a file: nothing else can be gone on with", path);
    else
        say(writer, *error, why, why_bytes);
    writer_free(writer);
    return NULL;
}

int kvb_result_create(const char *path, const kvb_manifest *manifest, kvb_result_writer **writer, char *why,
                      size_t why_bytes)
{
    int error;

    *writer = writer_open(path, false, &error, why, why_bytes);
    if (!*writer)
        return error;
    if ((*writer)->temporary && ftruncate((*writer)->file, 0) != 0)
        error = (*writer)->failed = say(*writer, -errno, why, why_bytes);
    if (!error)
        error = line_write(*writer, kvb_manifest_fields, manifest, why, why_bytes);
    if (error) {
        kvb_result_discard(*writer);
        *writer = NULL;
    }
    return error;
}

int kvb_result_resume(const char *path, kvb_result_writer **out, kvb_result_file **file, char *why, size_t why_bytes)
{
    int error;
    size_t whole = 0;
    kvb_result_writer *writer = writer_open(path, true, &error, why, why_bytes);

    *out = NULL;
    *file = NULL;
    if (!writer)
        return error;
    FILE *in = fopen(writer->temporary, "re");

    if (!in)
        error = say(writer, -errno, why, why_bytes);
    else
        error = kvb_result_read(in, writer->temporary, &whole, file, why, why_bytes);
    if (in)
        fclose(in);
    if (!error && (ftruncate(writer->file, (off_t)whole) != 0 || lseek(writer->file, 0, SEEK_END) < 0))
        error = say(writer, -errno, why, why_bytes);
    if (!error && !*file) {
        unlink(writer->temporary);
        error = -ENOENT;
    }
    if (error) {
        kvb_result_free(*file);
        *file = NULL;
        writer_free(writer);
        return error;
    }
    writer->whole = (off_t)whole;
    writer->results = (*file)->n;
    *out = writer;
    return 0;
}

int kvb_result_write(kvb_result_writer *writer, const kvb_result *result, char *why, size_t why_bytes)
{
    int error = line_write(writer, kvb_result_fields, result, why, why_bytes);

    writer->results += !error;
    return error;
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

int kvb_result_close(kvb_result_writer *writer, bool commit, char *why, size_t why_bytes)
{
    int error = commit ? writer->failed : 0;

    if (writer->temporary) {
        if (commit && !error && fsync(writer->file) != 0)
            error = -errno;
        if (commit && !error && rename(writer->temporary, writer->target) != 0)
            error = -errno;
        if (commit && !error)
            folder_sync(writer->target);
        else if (writer->results == 0)
            unlink(writer->temporary); /* before the lock goes with the file */
        else if (ftruncate(writer->file, writer->whole) == 0)
            (void)!fsync(writer->file);
    }
    if (close(writer->file) != 0 && commit && !error)
        error = -errno;
    writer->file = -1;
    if (error)
        say(writer, error, why, why_bytes);
    writer_free(writer);
    return error;
}

void kvb_result_discard(kvb_result_writer *writer)
{
    char unused[8];

    writer->results = 0;
    kvb_result_close(writer, false, unused, sizeof unused);
}
