/* SPDX-License-Identifier: Apache-2.0 */
/* Reading result files: one line at a time, everything validated, faults told as "file:line: …". */
#include "results/result_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "results/field.h"
#include "results/result_list.h"

/* The line as JSON, or NULL with why. whole: it ended with a newline. */
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

/* Append one result line. */
static int result_append(kvb_results *results, const json_t *object, char *why, size_t why_bytes)
{
    kvb_result result;

    kvb_result_init(&result);
    int error = kvb_fields_decode(kvb_result_fields, object, &result, why, why_bytes);

    return error ? error : kvb_results_add(results, &result);
}

/* Another schema would only be told as a missing or unknown key of it: look at its name first. */
static int manifest_decode(kvb_manifest *manifest, const json_t *object, char *why, size_t why_bytes)
{
    const json_t *schema = json_object_get(object, "schema");

    if (!schema) {
        snprintf(why, why_bytes, "expected the manifest with \"schema\":\"%s\"", KVB_RESULT_SCHEMA);
        return -EINVAL;
    }
    return kvb_fields_decode(kvb_manifest_fields, object, manifest, why, why_bytes);
}

int kvb_result_read(FILE *in, const char *path, size_t *whole, kvb_result_file **out, char *why, size_t why_bytes)
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
    error = kvb_result_read(in, path, NULL, file, why, why_bytes);
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
