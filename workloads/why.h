/* SPDX-License-Identifier: Apache-2.0 */
/* The one line that explains a failure. What it quotes may come from a hostile file: control characters
 * in it become '?', so that it stays one line on any terminal. */
#ifndef KVB_WHY_H
#define KVB_WHY_H

#include <stddef.h>

/* Formats into why (may be NULL when why_bytes is 0) and returns error, so that callers can return it. */
__attribute__((format(printf, 4, 5))) int kvb_why_set(int error, char *why, size_t why_bytes, const char *format, ...);

#endif
