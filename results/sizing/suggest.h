/* SPDX-License-Identifier: Apache-2.0 */
/* What to change where a model does not fit: another format of KV rows, more ranks, fewer sequences, a shorter context.
 */
#ifndef KVB_SIZING_SUGGEST_H
#define KVB_SIZING_SUGGEST_H

#include "results/sizing/sizing.h"

/* For each row with a budget: whether it fits as asked; if not, the changes of options that make it fit, the cheapest
 * first. Cost is what is given up, in parts of a thousand: of the bytes of KV rows, of the sequences, of the context;
 * or the ranks that come on top, in parts of those asked for. 0, -EIO or -ENOMEM. */
int kvb_size_suggest(const kvb_sizes *rows, kvb_table_format format, FILE *out);

#endif
