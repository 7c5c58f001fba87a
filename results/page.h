/* SPDX-License-Identifier: Apache-2.0 */
/* A page of HTML in one file that loads nothing else: what stands around its content, and its looks. */
#ifndef KVB_PAGE_H
#define KVB_PAGE_H

#include <stdio.h>

/* Up to and with the heading; title: of the window. Both are plain words. */
void kvb_page_begin(const char *title, const char *heading, FILE *out);
void kvb_page_end(FILE *out);

#endif
