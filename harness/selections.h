/* SPDX-License-Identifier: Apache-2.0 */
/* What a whole run covers: a selection for each part of its suite. */
#ifndef KVB_SELECTIONS_H
#define KVB_SELECTIONS_H

#include "harness/select.h"

typedef struct kvb_selections {
    kvb_selection *at; /* [n]; in the order of the suite's parts */
    size_t n;
} kvb_selections;

typedef struct kvb_selections_options {
    const kvb_selection_words *words;
    const kvb_suite *suite;
    const kvb_parts *parts;
    const char *folder; /* of workloads; NULL: where they usually are */
    bool oversubscribe, no_staging;
} kvb_selections_options;

/* Finds the workloads, and turns words and suite into selections. -EINVAL with why: see kvb_select, kvb_workloads_find and,
 * with no_staging, kvb_native_check; or -ENOMEM. To be freed in any case. */
int kvb_selections_make(const kvb_selections_options *options, kvb_selections *selections, char *why, size_t why_bytes);
void kvb_selections_free(kvb_selections *selections);

#endif
