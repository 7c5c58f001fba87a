/* SPDX-License-Identifier: Apache-2.0 */
/* One selection after the other. */
#include "harness/selections.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/native.h"

int kvb_selections_make(const kvb_selections_options *o, kvb_selections *s, char *why, size_t why_bytes)
{
    kvb_workloads workloads = {0};
    int error = 0;

    *s = (kvb_selections){calloc(o->suite->n_parts, sizeof *s->at), o->suite->n_parts};
    if (!s->at) {
        snprintf(why, why_bytes, "no memory");
        return -ENOMEM;
    }
    if (kvb_workloads_find(o->folder, &workloads, why, why_bytes) && !kvb_select_only_files(&o->words->workloads))
        error = -EINVAL;
    for (size_t i = 0; i < s->n && !error; i++) {
        error = kvb_select(o->words, &o->suite->parts[i], o->parts, &workloads, o->oversubscribe, &s->at[i], why,
                           why_bytes);
        if (!error && o->no_staging)
            error = kvb_native_check(&s->at[i], o->parts, why, why_bytes);
    }
    kvb_workloads_free(&workloads);
    return error;
}

void kvb_selections_free(kvb_selections *s)
{
    for (size_t i = 0; s->at && i < s->n; i++)
        kvb_selection_free(&s->at[i]);
    free(s->at);
}
