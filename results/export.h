/* SPDX-License-Identifier: Apache-2.0 */
/* Result records in the formats of other programs. */
#ifndef KVB_EXPORT_H
#define KVB_EXPORT_H

#include "results/result.h"

typedef struct kvb_exporter {
    const char *name; /* "junit" */
    /* Writes one document. 0 or a negative errno: -ENOMEM, or -EIO if out cannot be written. */
    int (*write)(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out);
} kvb_exporter;

extern const kvb_exporter kvb_exporter_junit, kvb_exporter_benchmark;

/* A file that is opened before a run, so that an unwritable target is reported at once, and written after the run. */
typedef struct kvb_export kvb_export;
int kvb_export_open(const kvb_exporter *exporter, const char *path, kvb_export **export, char *why, size_t why_bytes);

/* Writes the records and replaces the target; with manifest NULL the target stays as it was. Frees the export; NULL is
 * allowed. 0, or a negative errno with why "path: …" and the target as it was. */
int kvb_export_close(kvb_export *export, const kvb_manifest *manifest, const kvb_result *results, size_t n, char *why,
                     size_t why_bytes);

#endif
