/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel accepts, found by asking its supports() along one axis after the other: formats, lengths of rows, masks,
 * outputs, extras. On every axis but the one asked about stands a plain problem that the kernel takes.
 */
#ifndef KVB_ACCEPTS_H
#define KVB_ACCEPTS_H

#include "harness/parts.h"

/* Called with a line of text for what is accepted (taken true) or declined, the kernel's reason in it; 0 to go on. */
typedef int kvb_accepts_line(void *ctx, bool taken, const char *text);

/* Describes the kernel in lines of at most about 100 characters. 0, or what line() returned. */
int kvb_accepts_describe(const kvb_kernel *kernel, const kvb_parts *parts, kvb_accepts_line *line, void *ctx);

#endif
