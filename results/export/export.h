/* SPDX-License-Identifier: Apache-2.0 */
/* Result records in the formats of other programs. A table of exporters, one for each. */
#ifndef KVB_EXPORT_H
#define KVB_EXPORT_H

#include "results/result.h"

typedef struct kvb_exporter {
    const char *name;      /* "junit" */
    const char *extension; /* of such files: ".xml" */
    const char *summary;   /* one line for people */
    bool for_people;       /* text: several may follow each other in one stream */
    /* 0 or a negative errno: -ENOMEM, -EIO when out cannot be written. */
    int (*write)(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out);
} kvb_exporter;

extern const kvb_exporter kvb_exporter_table, kvb_exporter_md, kvb_exporter_csv, kvb_exporter_json, kvb_exporter_junit,
    kvb_exporter_benchmark;
extern const kvb_exporter *const kvb_exporters[]; /* ends with NULL */

const kvb_exporter *kvb_exporter_find(const char *name); /* NULL: unknown */

/* A file that is opened before a run, so that a target that cannot be written is known at once, and written after it. */
typedef struct kvb_export kvb_export;
int kvb_export_open(const kvb_exporter *exporter, const char *path, kvb_export **export, char *why, size_t why_bytes);

/* Writes the records and puts the file in place, whole; with manifest NULL what was there stays. Frees the export. 0 or
 * a negative errno with why "path: …"; then too what was there stays. An export of NULL is nothing to do. */
int kvb_export_close(kvb_export *export, const kvb_manifest *manifest, const kvb_result *results, size_t n, char *why,
                     size_t why_bytes);

#endif
