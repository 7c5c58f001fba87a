/* SPDX-License-Identifier: Apache-2.0 */
/* The store of cache shared-prefix: fronts that sequences read, and their tails (shared.c). */
#ifndef KVB_SHARED_H
#define KVB_SHARED_H

#include "caches/front.h"
#include "caches/stores/seq.h"

/* The front that a sequence reads; NULL: none. */
typedef struct shared_sequence {
    kvb_front *front;
    kvb_spans cells; /* the part that it reads: position -> cell of the front */
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
    uint32_t frozen; /* cells of all these fronts */
    kvb_spans seen;  /* by a query: position -> cell for the mask */
    /* of the current call: */
    kvb_front *made; /* a new front, or NULL */
    kvb_spans lies;  /* position -> cell of the new front; without one, cell of the tails that takes a copy */
    uint32_t *picked;
    char *raw; /* room for a row */
    size_t raw_room, picked_room;
} shared_store;

#endif
