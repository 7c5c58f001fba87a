/* SPDX-License-Identifier: Apache-2.0 */
/* What cache shared-prefix allocates for a front, for the prediction: a second account. */
#ifndef KVB_SIZE_FRONTS_H
#define KVB_SIZE_FRONTS_H

#include "harness/size/prediction.h"

/* The beginning of a sequence is copied to others, which are empty. 0 or -ENOMEM. */
int kvb_size_share(kvb_size_prediction *p, const kvb_size_step *s);

/* Where a sequence's tokens lie in what a step's queries see, into `seen`: behind a front of so many cells. 0 or -ENOMEM. */
int kvb_size_seen(kvb_size_prediction *p, kvb_size_group_tables *t, uint32_t seq, uint64_t front,
                  kvb_size_pieces *seen);

/* Bytes of a group's front and of what belongs to fronts, besides its pools. */
uint64_t kvb_size_front_bytes(const kvb_size_prediction *p, const kvb_size_group_tables *t);

#endif
