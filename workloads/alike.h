/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens whose rows are the same: of one vocabulary id, at one position, behind one and the same prefix, under one
 * extra key. Of such tokens all have the values of the first, so that a cache may share their rows. A token that is not
 * known, or that follows one, or stands behind a hole, is like no other.
 */
#ifndef KVB_ALIKE_H
#define KVB_ALIKE_H

#include "workloads/trace.h"

/* *like [needs.tokens], from malloc: by identity the first token that it is like, perhaps itself. 0 or -ENOMEM. */
int kvb_alike_find(const kvb_trace *trace, uint32_t **like);

#endif
