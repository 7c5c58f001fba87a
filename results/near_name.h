/* SPDX-License-Identifier: Apache-2.0 */
/* The nearest known name to one that was typed and is unknown. */
#ifndef KVB_NEAR_NAME_H
#define KVB_NEAR_NAME_H

#include <stddef.h>
#include <stdint.h>

/* How far a name is from what was typed: letters to insert, remove or change, whatever their case; 0 if it contains it.
 */
uint32_t kvb_name_distance(const char *typed, const char *name);

/* "WHAT 'typed'; did you mean 'seq'? known: slab, seq, tree" into why; the question only if one is near. known: names
 * between commas or spaces; what comes after a ';' is shown and no name. Returns -EINVAL. */
int kvb_name_unknown(const char *what, const char *typed, const char *known, char *why, size_t why_bytes);

#endif
