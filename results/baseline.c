/* SPDX-License-Identifier: Apache-2.0 */
/* Baselines are result files like any other: read and written by the same functions. */
#include "results/baseline.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "results/fingerprint.h"

static bool is_name(const char *name)
{
    if (!*name || *name == '.' || strlen(name) >= KVB_NAME)
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("._-", *name))
            return false;
    return true;
}

int kvb_baseline_path(const char *folder, const kvb_manifest *manifest, const char *name, char **path, char *why,
                      size_t why_bytes)
{
    char machine[KVB_FINGERPRINT_TEXT];

    *path = NULL;
    if (!is_name(name)) {
        snprintf(why, why_bytes, "'%s' is no name for a baseline: letters, digits, '.', '_', '-'", name);
        return -EINVAL;
    }
    kvb_fingerprint(manifest, machine);
    if (asprintf(path, "%s/%s/%s.jsonl", folder, machine, name) >= 0)
        return 0;
    *path = NULL;
    snprintf(why, why_bytes, "no memory");
    return -ENOMEM;
}

/* Every folder above the file. */
static int folders_make(char *path, char *why, size_t why_bytes)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int error = mkdir(path, 0777) && errno != EEXIST ? -errno : 0;

        if (error)
            snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
        *slash = '/';
        if (error)
            return error;
    }
    return 0;
}

static int file_write(const char *path, const kvb_result_file *file, char *why, size_t why_bytes)
{
    kvb_result_writer *writer;
    int error = kvb_result_create(path, &file->manifest, &writer, why, why_bytes);

    if (error)
        return error;
    for (size_t i = 0; i < file->n && !error; i++)
        error = kvb_result_write(writer, &file->results[i], why, why_bytes);
    char late[256]; /* what went wrong first is told */
    int closed = kvb_result_close(writer, !error, error ? late : why, error ? sizeof late : why_bytes);
    return error ? error : closed;
}

int kvb_baseline_save(const char *folder, const kvb_result_file *file, const char *name, bool force, char **path,
                      char *why, size_t why_bytes)
{
    int error = kvb_baseline_path(folder, &file->manifest, name, path, why, why_bytes);

    if (!error && !force && access(*path, F_OK) == 0) {
        snprintf(why, why_bytes, "%s is there already; --force replaces it", *path);
        error = -EEXIST;
    }
    if (!error)
        error = folders_make(*path, why, why_bytes);
    if (!error)
        error = file_write(*path, file, why, why_bytes);
    if (error) {
        free(*path);
        *path = NULL;
    }
    return error;
}

int kvb_baselines_list(const char *folder, const kvb_manifest *manifest, char ***paths, size_t *n, char *why,
                       size_t why_bytes)
{
    char machine[KVB_FINGERPRINT_TEXT], *pattern;
    glob_t found = {0};

    *paths = NULL;
    *n = 0;
    kvb_fingerprint(manifest, machine);
    if (asprintf(&pattern, "%s/%s/*.jsonl", folder, machine) < 0)
        return -ENOMEM;
    int error = glob(pattern, 0, NULL, &found);

    if (error == GLOB_NOSPACE) {
        snprintf(why, why_bytes, "no memory");
        error = -ENOMEM;
    } else if (error) {
        snprintf(why, why_bytes, "%s: there is no baseline of this machine; --save NAME F.jsonl keeps one", pattern);
        error = -ENOENT;
    } else {
        *paths = calloc(found.gl_pathc, sizeof **paths);
        for (size_t i = 0; *paths && i < found.gl_pathc; i++, ++*n)
            if (!((*paths)[i] = strdup(found.gl_pathv[i])))
                break;
        error = *n == found.gl_pathc ? 0 : -ENOMEM;
    }
    free(pattern);
    globfree(&found);
    return error;
}
