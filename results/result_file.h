/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what may have been cut short. Private to results/. */
#ifndef KVB_RESULT_FILE_H
#define KVB_RESULT_FILE_H

#include "results/result.h"

/*
 * Read a result file from its start; path is for messages. whole NULL: it must be well to its end. Otherwise a last line
 * that does not end is left out, and *whole is how many bytes the others fill: 0 (and *file NULL) where not even the
 * manifest does. 0, or a negative errno with why "path:line: …".
 */
int kvb_result_read(FILE *in, const char *path, size_t *whole, kvb_result_file **file, char *why, size_t why_bytes);

#endif
