/* SPDX-License-Identifier: Apache-2.0 */
/* Layers in groups of equal memory. Private to results/sizing. */
#ifndef KVB_SIZING_GROUPS_H
#define KVB_SIZING_GROUPS_H

#include "results/sizing/layers.h"

/* From the letters of all layers to model->groups, with a note for each factor and for each group's layers. */
void kvb_groups_build(kvb_reading *reading);

#endif
