/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Result files. The reader takes one line at a time and checks everything. The writer passes each line to the system at
 * once, and replaces the target only when everything went well.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "results/atomic_file.h"
#include "results/result.h"
#include "results/schema.h"

/* ---- reading --------------------------------------------------------------------------------------- */

/* Returns the line as JSON, or NULL with why. whole: the line ended with a newline. */
static json_t *line_parse(const char *line, size_t bytes, bool whole, char *why, size_t why_bytes)
{
    json_error_t fault;
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &fault);

    if (object)
        return object;
    if (whole)
        snprintf(why, why_bytes, "not valid JSON at column %d: %s", fault.column, fault.text);
    else
        snprintf(why, why_bytes, "the last line is cut short: the file was not written to its end");
    return NULL;
}

static int result_append(kvb_results *results, const json_t *object, char *why, size_t why_bytes)
{
    kvb_result result;

    kvb_result_init(&result);
    int error = kvb_fields_decode(kvb_result_fields, object, &result, why, why_bytes);

    return error ? error : kvb_results_add(results, &result);
}

/* Checks the schema's name first: otherwise a file of another schema would be refused for some missing or unknown key.
 */
static int manifest_decode(kvb_manifest *manifest, const json_t *object, char *why, size_t why_bytes)
{
    const json_t *schema = json_object_get(object, "schema");

    if (!schema) {
        snprintf(why, why_bytes, "expected the manifest with \"schema\":\"%s\"", KVB_RESULT_SCHEMA);
        return -EINVAL;
    }
    return kvb_fields_decode(kvb_manifest_fields, object, manifest, why, why_bytes);
}

/*
 * Reads a result file from its start; path is for messages. If whole is NULL, the file must be valid to its end.
 * Otherwise a last line without its newline is left out, and *whole is the length of the others: 0, with *out NULL, if
 * not even the manifest is complete. 0, or a negative errno with why "path:line: …".
 */
static int file_read(FILE *in, const char *path, size_t *whole, kvb_result_file **out, char *why, size_t why_bytes)
{
    kvb_result_file *file = calloc(1, sizeof *file);
    char *line = NULL, what[512] = "";
    size_t line_room = 0, number = 0, bytes = 0;
    ssize_t n = 0;
    kvb_results results = {.n = 0};
    int error = file ? 0 : -ENOMEM;

    *out = NULL;
    while (!error && (n = getline(&line, &line_room, in)) > 0) {
        bool ended = line[n - 1] == '\n';
        if (!ended && whole)
            break;
        json_t *object = line_parse(line, (size_t)n, ended, what, sizeof what);

        number++;
        bytes += (size_t)n;
        if (!object)
            error = -EINVAL;
        else if (number == 1)
            error = manifest_decode(&file->manifest, object, what, sizeof what);
        else
            error = result_append(&results, object, what, sizeof what);
        json_decref(object);
    }
    if (!error && ferror(in))
        error = -errno;
    if (!error && number == 0 && !whole) {
        error = -EINVAL;
        number = 1;
        snprintf(what, sizeof what, "expected the manifest with \"schema\":\"%s\", found an empty file",
                 KVB_RESULT_SCHEMA);
    }
    if (error == -EINVAL && number)
        snprintf(why, why_bytes, "%s:%zu: %s", path, number, what);
    else if (error)
        snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
    free(line);
    if (whole)
        *whole = bytes;
    if (file) {
        file->results = results.at;
        file->n = results.n;
    }
    if (error || number == 0)
        kvb_result_free(file);
    else
        *out = file;
    return error;
}

int kvb_result_load(const char *path, kvb_result_file **file, char *why, size_t why_bytes)
{
    FILE *in = fopen(path, "re");
    int error = -errno;

    *file = NULL;
    if (!in) {
        snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
        return error;
    }
    error = file_read(in, path, NULL, file, why, why_bytes);
    fclose(in);
    return error;
}

void kvb_result_free(kvb_result_file *file)
{
    if (!file)
        return;
    free(file->results);
    free(file);
}

/* ---- writing --------------------------------------------------------------------------------------- */

struct kvb_result_writer {
    kvb_atomic_file atomic;
    char *path;     /* as the caller named it, for messages */
    off_t bytes;    /* length of the complete lines */
    size_t results; /* complete lines after the manifest */
    int failed;     /* the first error: after it nothing is written or committed */
};

static int say(const char *path, int error, char *why, size_t why_bytes)
{
    if (error == -EBUSY)
        snprintf(why, why_bytes, "%s: another run is writing it", path);
    else if (error == -EINVAL)
        snprintf(why, why_bytes, "%s: expected a regular file: nothing else can be resumed", path);
    else
        snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
    return error;
}

static void writer_free(kvb_result_writer *writer)
{
    free(writer->path);
    free(writer);
}

/* Writes one line. Twelve digits are more than any measurement has, and 0.1 stays 0.1. */
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
            writer->failed = kvb_atomic_file_write(&writer->atomic, line, n + 1);
            writer->bytes += writer->failed ? 0 : (off_t)n + 1;
        } else {
            writer->failed = -ENOMEM;
        }
    }
    free(line);
    json_decref(object);
    return writer->failed ? say(writer->path, writer->failed, why, why_bytes) : 0;
}

/* Returns a writer with its target open, or NULL with *error and why. */
static kvb_result_writer *writer_open(const char *path, bool resume, int *error, char *why, size_t why_bytes)
{
    kvb_result_writer *writer = calloc(1, sizeof *writer);

    *error = writer && (writer->path = strdup(path)) ? kvb_atomic_file_open(path, resume, &writer->atomic) : -ENOMEM;
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

    *writer = writer_open(path, false, &error, why, why_bytes);
    if (*writer)
        error = line_write(*writer, kvb_manifest_fields, manifest, why, why_bytes);
    if (*writer && error) {
        kvb_result_discard(*writer);
        *writer = NULL;
    }
    return error;
}

/* Reads the writer's path.tmp, cuts off an incomplete last line, and lets the next line be written at the end. */
static int writer_read(kvb_result_writer *writer, kvb_result_file **file, char *why, size_t why_bytes)
{
    size_t bytes = 0;
    FILE *in = fopen(writer->atomic.temporary, "re");
    int error;

    if (!in)
        return say(writer->path, -errno, why, why_bytes);
    error = file_read(in, writer->atomic.temporary, &bytes, file, why, why_bytes);
    fclose(in);
    if (!error && *file &&
        (ftruncate(writer->atomic.file, (off_t)bytes) != 0 || lseek(writer->atomic.file, 0, SEEK_END) < 0))
        error = say(writer->path, -errno, why, why_bytes);
    writer->bytes = (off_t)bytes;
    writer->results = *file ? (*file)->n : 0;
    return error;
}

int kvb_result_resume(const char *path, kvb_result_writer **out, kvb_result_file **file, char *why, size_t why_bytes)
{
    int error;
    kvb_result_writer *writer = writer_open(path, true, &error, why, why_bytes);

    *out = NULL;
    *file = NULL;
    if (!writer)
        return error;
    error = writer_read(writer, file, why, why_bytes);
    if (!error && *file) {
        *out = writer;
        return 0;
    }
    if (!error) { /* the run was killed before the manifest was complete */
        kvb_result_discard(writer);
        return -ENOENT;
    }
    kvb_result_free(*file);
    *file = NULL;
    kvb_atomic_file_leave(&writer->atomic); /* the file is damaged; only the user may remove it */
    writer_free(writer);
    return error;
}

int kvb_result_write(kvb_result_writer *writer, const kvb_result *result, char *why, size_t why_bytes)
{
    int error = line_write(writer, kvb_result_fields, result, why, why_bytes);

    writer->results += !error;
    return error;
}

/* Keeps the complete lines for a later writer. */
static void writer_leave(kvb_result_writer *writer)
{
    if (writer->atomic.temporary && ftruncate(writer->atomic.file, writer->bytes) == 0)
        (void)!fsync(writer->atomic.file);
    kvb_atomic_file_leave(&writer->atomic);
}

int kvb_result_close(kvb_result_writer *writer, bool commit, char *why, size_t why_bytes)
{
    int error = commit ? writer->failed : 0;

    if (commit && !error)
        error = kvb_atomic_file_commit(&writer->atomic);
    if ((!commit || error) && writer->results > 0) {
        writer_leave(writer);
    } else {
        int closed = kvb_atomic_file_close(&writer->atomic, commit && !error);

        error = error ? error : closed;
    }
    if (error)
        say(writer->path, error, why, why_bytes);
    writer_free(writer);
    return error;
}

void kvb_result_discard(kvb_result_writer *writer)
{
    kvb_atomic_file_close(&writer->atomic, false);
    writer_free(writer);
}
