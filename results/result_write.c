/* SPDX-License-Identifier: Apache-2.0 */
/* Writing result files: every line reaches the system at once; the target changes only when all went well. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "results/field.h"
#include "results/result_file.h"
#include "results/whole_file.h"

struct kvb_result_writer {
    kvb_whole_file whole;
    char *path;     /* as the caller named it, for messages */
    off_t bytes;    /* of the lines that are whole */
    size_t results; /* such lines after the manifest */
    int failed;     /* first error: nothing is written after it, and nothing committed */
};

static int say(const char *path, int error, char *why, size_t why_bytes)
{
    if (error == -EBUSY)
        snprintf(why, why_bytes, "%s: another run is writing it", path);
    else if (error == -EINVAL)
        snprintf(why, why_bytes, "%s: expected a file: nothing else can be gone on with", path);
    else
        snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
    return error;
}

static void writer_free(kvb_result_writer *writer)
{
    free(writer->path);
    free(writer);
}

/* Write one line. Twelve digits: more than any measurement holds, and 0.1 stays 0.1. */
static int line_write(kvb_result_writer *writer, const kvb_field *fields, const void *record, char *why,
                      size_t why_bytes)
{
    json_t *object = NULL;
    char *line = NULL;

    if (!writer->failed) {
        object = kvb_fields_encode(fields, record);
        line = object ? json_dumps(object, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12)) : NULL;
        if (line) {
            size_t n = strlen(line);

            line[n] = '\n'; /* in place of the final 0 */
            writer->failed = kvb_whole_file_write(&writer->whole, line, n + 1);
            writer->bytes += writer->failed ? 0 : (off_t)n + 1;
        } else {
            writer->failed = -ENOMEM;
        }
    }
    free(line);
    json_decref(object);
    return writer->failed ? say(writer->path, writer->failed, why, why_bytes) : 0;
}

/* A writer with its target open; NULL with error and why. */
static kvb_result_writer *writer_open(const char *path, int (*open)(const char *, kvb_whole_file *), int *error,
                                      char *why, size_t why_bytes)
{
    kvb_result_writer *writer = calloc(1, sizeof *writer);

    *error = writer && (writer->path = strdup(path)) ? open(path, &writer->whole) : -ENOMEM;
    if (!*error)
        return writer;
    say(path, *error, why, why_bytes);
    if (writer)
        writer_free(writer);
    return NULL;
}

int kvb_result_create(const char *path, const kvb_manifest *manifest, kvb_result_writer **writer, char *why,
                      size_t why_bytes)
{
    int error;

    *writer = writer_open(path, kvb_whole_file_open, &error, why, why_bytes);
    if (*writer)
        error = line_write(*writer, kvb_manifest_fields, manifest, why, why_bytes);
    if (*writer && error) {
        kvb_result_discard(*writer);
        *writer = NULL;
    }
    return error;
}

/* Reads what the writer's path.tmp holds, and stands behind its whole lines. */
static int writer_read(kvb_result_writer *writer, kvb_result_file **file, char *why, size_t why_bytes)
{
    size_t bytes = 0;
    FILE *in = fopen(writer->whole.temporary, "re");
    int error;

    if (!in)
        return say(writer->path, -errno, why, why_bytes);
    error = kvb_result_read(in, writer->whole.temporary, &bytes, file, why, why_bytes);
    fclose(in);
    if (!error && *file &&
        (ftruncate(writer->whole.file, (off_t)bytes) != 0 || lseek(writer->whole.file, 0, SEEK_END) < 0))
        error = say(writer->path, -errno, why, why_bytes);
    writer->bytes = (off_t)bytes;
    writer->results = *file ? (*file)->n : 0;
    return error;
}

int kvb_result_resume(const char *path, kvb_result_writer **out, kvb_result_file **file, char *why, size_t why_bytes)
{
    int error;
    kvb_result_writer *writer = writer_open(path, kvb_whole_file_reopen, &error, why, why_bytes);

    *out = NULL;
    *file = NULL;
    if (!writer)
        return error;
    error = writer_read(writer, file, why, why_bytes);
    if (!error && *file) {
        *out = writer;
        return 0;
    }
    if (!error) { /* killed in the manifest */
        kvb_result_discard(writer);
        return -ENOENT;
    }
    kvb_result_free(*file);
    *file = NULL;
    kvb_whole_file_leave(&writer->whole); /* damaged: not for us to throw away */
    writer_free(writer);
    return error;
}

int kvb_result_write(kvb_result_writer *writer, const kvb_result *result, char *why, size_t why_bytes)
{
    int error = line_write(writer, kvb_result_fields, result, why, why_bytes);

    writer->results += !error;
    return error;
}

/* Keeps the whole lines for a later writer. */
static void writer_leave(kvb_result_writer *writer)
{
    if (writer->whole.temporary && ftruncate(writer->whole.file, writer->bytes) == 0)
        (void)!fsync(writer->whole.file);
    kvb_whole_file_leave(&writer->whole);
}

int kvb_result_close(kvb_result_writer *writer, bool commit, char *why, size_t why_bytes)
{
    int error = commit ? writer->failed : 0;

    if (commit && !error)
        error = kvb_whole_file_commit(&writer->whole);
    if ((!commit || error) && writer->results > 0) {
        writer_leave(writer);
    } else {
        int closed = kvb_whole_file_close(&writer->whole, commit && !error);

        error = error ? error : closed;
    }
    if (error)
        say(writer->path, error, why, why_bytes);
    writer_free(writer);
    return error;
}

void kvb_result_discard(kvb_result_writer *writer)
{
    kvb_whole_file_close(&writer->whole, false);
    writer_free(writer);
}
