/* SPDX-License-Identifier: Apache-2.0 */
/* The store of cache shared-prefix: fronts that sequences read, and their tails (shared.c). */
#ifndef KVB_SHARED_H
#define KVB_SHARED_H

#include "caches/front.h"
#include "caches/stores/seq.h"

/* What a sequence reads of a front: position -> cell. Without any, it has none. */
typedef struct shared_sequence {
    kvb_front *front;
    kvb_spans cells;
} shared_sequence;

/* A front that sequences of this cache read. */
typedef struct holding {
    kvb_front *front;
    uint32_t sequences;
} holding;

typedef struct shared_store {
    seq_store tails;
    shared_sequence *of; /* [n_ids] */
    holding *holding;    /* [n_holding] */
    size_t n_holding, holding_room;
    uint32_t frozen; /* cells of all of them */
    kvb_spans seen;  /* what a query sees */
    /* of the call under way: */
    kvb_front *made; /* a front that is made, or NULL; `lies`: position -> its cell */
    kvb_spans lies;  /* without one: position -> cell that takes a copy */
    uint32_t *picked;
    char *raw; /* a row on its way */
    size_t raw_room, picked_room;
} shared_store;

#endif
