/* SPDX-License-Identifier: Apache-2.0 */
/* Models by the words of the command line. */
#ifndef KVB_SIZE_OPEN_H
#define KVB_SIZE_OPEN_H

#include "results/sizing/model.h"

/* word: a config.json, a folder that holds one, "-" (standard input), or a built-in model's name. 0 with *model (free
 * it); else a negative errno and one line in why that names file and field. */
int kvb_size_open(const char *word, kvb_model **model, char *why, size_t why_bytes);

#endif
