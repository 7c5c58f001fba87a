/* SPDX-License-Identifier: Apache-2.0 */
/* Text inside XML. */
#ifndef KVB_MARKUP_H
#define KVB_MARKUP_H

#include <stdio.h>

/* Text as the value of an attribute (in double or single quotes) or the content of an element. What XML 1.0 cannot hold
 * (most control characters, U+FFFE, U+FFFF, bytes that are no UTF-8) becomes '?'. */
void kvb_xml_put(const char *text, FILE *out);

#endif
