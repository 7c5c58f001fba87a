/* SPDX-License-Identifier: Apache-2.0 */
/* What kvbench's own caches allocate for a model: predictions of all its caches, added up. */
#include "harness/size/engine_kvbench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/size/geometry.h"
#include "harness/size/predict.h"

enum { FIRST_CHUNK = 256 }; /* cells: as `kvbench run` */

const kvb_pool_type *kvb_size_pool_find(const char *name)
{
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        if (!strcmp(name, (*p)->name))
            return *p;
    return NULL;
}

static int ask_check(const kvb_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    char text[160];
    const char *lack = kvb_size_not_held(model, 0, text, sizeof text);
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    else if (ask->tp > 1 || ask->pp > 1)
        snprintf(why, why_bytes, "kvbench runs on one rank");
    else if (ask->mtp && model->mtp_layers)
        snprintf(why, why_bytes, "kvbench serves no multi-token prediction layers");
    else if (ask->sequences > KVB_MAX_SEQS)
        snprintf(why, why_bytes, "a cache of kvbench holds up to %u sequences", KVB_MAX_SEQS);
    else if (!kvb_size_pool_find(ask->k->name) || !kvb_size_pool_find(ask->v->name))
        snprintf(why, why_bytes, "kvbench has no pool of format %s",
                 kvb_size_pool_find(ask->k->name) ? ask->v->name : ask->k->name);
    else if (!ask->context || !ask->sequences || ask->context > UINT32_MAX / ask->sequences)
        snprintf(why, why_bytes, "a cache of kvbench numbers 1 .. %u cells", UINT32_MAX);
    else
        return 0;
    return -ENOTSUP;
}

static int geometry_add(const kvb_size_geometry *g, const kvb_size_ask *ask, kvb_allocation *out, char *why,
                        size_t why_bytes)
{
    kvb_size_history history = {.sequences = (uint32_t)ask->sequences,
                                .context = (uint32_t)ask->context,
                                .chunk = ask->batch ? ask->batch : kvb_engine_kvbench.batch,
                                .singles = 1};
    uint32_t cells = history.sequences * history.context;
    bool single = ask->sequences == 1;
    const kvb_size_subject subject = {
        .cache = single ? &kvb_cache_contig : &kvb_cache_seq_cells,
        .facts = g->facts,
        .options = {.capacity = cells,
                    .seq_capacity = history.context,
                    .max_seqs = history.sequences,
                    .min_chunk = FIRST_CHUNK,
                    .growth = KVB_GROWTH_DOUBLE,
                    .k_pool = kvb_size_pool_find(ask->k->name),
                    .v_pool = kvb_size_pool_find(ask->v->name)},
    };
    const kvb_pool_type *k = subject.options.k_pool, *v = subject.options.v_pool;
    kvb_size_step steps[KVB_SIZE_STEPS];
    uint64_t bytes[KVB_SIZE_STEPS + 1];
    size_t n = kvb_size_steps(&history, steps);
    int error = kvb_size_predict(&subject, steps, n, bytes, why, why_bytes);
    if (error)
        return error;
    uint64_t cell_table = single ? 0 : sizeof(uint32_t) + sizeof(uint64_t);
    out->bytes_per_token += (double)g->facts.layers * g->facts.kv_heads *
                                (k->row_bytes(k, g->facts.k_dim) + v->row_bytes(v, g->facts.v_dim)) +
                            (double)cell_table;
    if (__builtin_add_overflow(out->kv_bytes, bytes[n], &out->kv_bytes)) {
        snprintf(why, why_bytes, "more bytes than 64 bits hold");
        return -EOVERFLOW;
    }
    return 0;
}

static int allocate(const kvb_model *model, const kvb_size_ask *ask, kvb_allocation *out, char *why, size_t why_bytes)
{
    size_t n;
    *out = (kvb_allocation){0};
    int error = ask_check(model, ask, why, why_bytes);
    if (error)
        return error;
    kvb_size_geometry *geometries = calloc(model->n_groups + 1, sizeof *geometries);
    if (!geometries) {
        snprintf(why, why_bytes, "no memory for the model's layer groups");
        return -ENOMEM;
    }
    kvb_size_geometries(model, geometries, &n);
    for (size_t i = 0; !error && i < n; i++)
        error = geometry_add(&geometries[i], ask, out, why, why_bytes);
    free(geometries);
    return error;
}

const kvb_engine kvb_engine_kvbench = {
    .name = "kvbench",
    .summary = "this program's caches: contiguous for one sequence, seq for more; growth double",
    .source = "harness/size/predict.c, proved by --verify",
    .batch = 512,
    .allocate = allocate,
};
