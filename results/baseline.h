/* SPDX-License-Identifier: Apache-2.0 */
/* Named result files kept for each machine: FOLDER/FINGERPRINT/NAME.jsonl. */
#ifndef KVB_BASELINE_H
#define KVB_BASELINE_H

#include "results/result.h"

/* Where the baseline NAME of a manifest's machine is, from malloc in *path. -EINVAL with why: NAME is no file name of
 * letters, digits, '.', '_', '-' beginning with no '.'. */
int kvb_baseline_path(const char *folder, const kvb_manifest *manifest, const char *name, char **path, char *why,
                      size_t why_bytes);

/* Keep a file as a baseline: whole or not at all. -EEXIST where there is one, unless force. *path as above, to be told. */
int kvb_baseline_save(const char *folder, const kvb_result_file *file, const char *name, bool force, char **path,
                      char *why, size_t why_bytes);

/* The baselines of a manifest's machine: paths from malloc in an array from malloc. None: -ENOENT with why. */
int kvb_baselines_list(const char *folder, const kvb_manifest *manifest, char ***paths, size_t *n, char *why,
                       size_t why_bytes);

#endif
