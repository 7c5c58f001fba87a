/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a page where sizes are computed again, for another context, number of sequences, format, ranks and memory.
 */
#ifndef KVB_SIZING_EXPLORER_H
#define KVB_SIZING_EXPLORER_H

#include "results/sizing/sizing.h"

/* The models and engines of the rows, as asked by the first one; without engines that are costly to ask. 0 or -ENOMEM.
 */
int kvb_size_explorer(const kvb_sizes *rows, FILE *out);

#endif
