/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people: UTF-8 widths, and numbers with units. */
#ifndef KVB_TEXT_H
#define KVB_TEXT_H

#include <stddef.h>
#include <stdio.h>

#define KVB_UNIT_TEXT 24u /* bytes that any text of a number below needs at most */

/* Bytes of the valid UTF-8 character that text begins with: 1 to 4, or 0 when it begins with none. */
size_t kvb_utf8_bytes(const char *text);

/* Columns that text fills on a terminal: its characters, combining marks left out. A byte that is not valid
 * UTF-8 counts one. */
size_t kvb_utf8_width(const char *text);

/* Replace each byte that is not valid UTF-8 by '?', in place: what a cut through the middle of a character or
 * a file name of another encoding leaves must not spoil a JSON file. */
void kvb_utf8_clean(char *text);

/* Text on a terminal: it is sent no control characters, whatever a file name or a reason holds, but spaces. */
void kvb_plain_put(const char *text, FILE *out);

/* "850 ns", "12.3 us", "1.25 ms", "3.00 s"; NaN is "". Three digits are shown. */
void kvb_time_text(double ns, char text[KVB_UNIT_TEXT]);

/* "512 B", "1.2 MiB", "24.0 GiB"; NaN is "". */
void kvb_bytes_text(double bytes, char text[KVB_UNIT_TEXT]);

#endif
