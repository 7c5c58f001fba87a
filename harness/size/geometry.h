/* SPDX-License-Identifier: Apache-2.0 */
/* A model as kvbench's caches can hold it: one cache for all layers whose rows have the same shape. */
#ifndef KVB_SIZE_GEOMETRY_H
#define KVB_SIZE_GEOMETRY_H

#include "caches/metadata.h"
#include "results/sizing/model.h"

typedef struct kvb_size_geometry {
    kvb_model_facts facts; /* layers: all of the model's with these rows */
    const char *kept;      /* static: what of the layers' rows is kept otherwise than the model needs, or "" */
} kvb_size_geometry;

/*
 * The shapes, in the order of the model's layers: geometries [model->n_groups], *n of them. Windows and chunks are kept
 * whole: no cache of kvbench drops rows by itself. MLA: K is the row of latent and rope, V the latent again, since
 * caches store both sides.
 */
void kvb_size_geometries(const kvb_model *model, kvb_size_geometry *geometries, size_t *n);

/* What kvbench has no cache for: the reason ("24 layers of Mamba-2: no cache for recurrent states"), or NULL: nothing. `at`
 * counts from 0 over all such parts. */
const char *kvb_size_not_held(const kvb_model *model, size_t at, char *text, size_t bytes);

#endif
