/* SPDX-License-Identifier: Apache-2.0 */
/* Which values of the axes the single calls of a run covered. */
#ifndef KVB_SUMMARY_AXES_H
#define KVB_SUMMARY_AXES_H

#include "results/result.h"

/* A row for each kernel with single calls: how many, the values and pairs of values that they cover, what the kernel
 * declines. What no call had is named below, with the option that adds calls. Nothing without such a kernel. 0, -ENOMEM
 * or -EIO. */
int kvb_axes_print(const kvb_result *results, size_t n, bool is_markdown, FILE *out);

/* "softcap=30,5 k=(18)" of "softcap=30,5 k=f32,f16,...": many values are counted. */
void kvb_axes_shorten(const char *list, char *text, size_t bytes);

#endif
