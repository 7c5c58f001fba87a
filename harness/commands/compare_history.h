/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `kvbench compare` that keeps baselines and looks through them. */
#ifndef KVB_COMPARE_HISTORY_H
#define KVB_COMPARE_HISTORY_H

#include "results/compare.h"

/* Each returns an exit code, and has said why. */
int kvb_compare_save(const char *folder, const char *name, const char *path, bool force);

/* The files given, or where there are none all baselines of this machine. */
int kvb_compare_history(const char *folder, const char *const *paths, size_t n, const kvb_thresholds *thresholds,
                        bool across_machines, kvb_table_format format);

#endif
