/* SPDX-License-Identifier: Apache-2.0 */
#include "results/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "results/atomic_file.h"

static const kvb_exporter *const exporters[] = {&kvb_exporter_junit, &kvb_exporter_benchmark, NULL};

const kvb_exporter *kvb_exporter_find(const char *name)
{
    for (size_t i = 0; exporters[i]; i++)
        if (strcmp(exporters[i]->name, name) == 0)
            return exporters[i];
    return NULL;
}

struct kvb_export {
    const kvb_exporter *exporter;
    char *path;
    kvb_atomic_file file;
};

static int say(const char *path, int error, char *why, size_t why_bytes)
{
    if (error)
        snprintf(why, why_bytes, "%s: %s", path, error == -EBUSY ? "another run is writing it" : strerror(-error));
    return error;
}

int kvb_export_open(const kvb_exporter *exporter, const char *path, kvb_export **out, char *why, size_t why_bytes)
{
    kvb_export *export = calloc(1, sizeof *export);
    int error = -ENOMEM;

    *out = NULL;
    if (export && (export->path = strdup(path))) {
        export->exporter = exporter;
        error = kvb_atomic_file_open(path, false, &export->file);
    }
    if (error) {
        free(export ? export->path : NULL);
        free(export);
        return say(path, error, why, why_bytes);
    }
    *out = export;
    return 0;
}

int kvb_export_close(kvb_export *export, const kvb_manifest *manifest, const kvb_result *results, size_t n, char *why,
                     size_t why_bytes)
{
    FILE *out = NULL;
    char *text = NULL;
    size_t bytes = 0;
    int error = 0;

    if (!export)
        return 0;
    if (manifest) {
        out = open_memstream(&text, &bytes);
        error = out ? export->exporter->write(manifest, results, n, out) : -ENOMEM;
        if (out && fclose(out) != 0 && !error)
            error = -ENOMEM;
        if (!error)
            error = kvb_atomic_file_write(&export->file, text, bytes);
        free(text);
    }
    int closed = kvb_atomic_file_close(&export->file, manifest && !error);
    error = say(export->path, error ? error : closed, why, why_bytes);
    free(export->path);
    free(export);
    return error;
}
