/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench size --verify: the verdicts of harness/size/verify.h for several models, as a table. */
#ifndef KVB_SIZE_VERIFY_COMMAND_H
#define KVB_SIZE_VERIFY_COMMAND_H

#include <stdio.h>

#include "harness/size/verify.h"
#include "harness/size/arguments.h"
#include "results/result.h"

typedef struct kvb_size_verify_ask {
    kvb_sized_model *const *models;
    size_t n_models;
    kvb_kv_pairs pairs;          /* none: every pool for K and V alike, and KIVI's pairs */
    uint64_t context, sequences; /* 0: the default of kvb_size_asked */
    kvb_table_format format;
} kvb_size_verify_ask;

/* Prints for people a row for each cache and shape of layers, and every verdict that differs; for programs all. Counts
 * each verdict in `count`. 0; -EINVAL or -ENOMEM with why; -EIO. */
int kvb_size_verify_print(const kvb_size_verify_ask *ask, FILE *out, size_t count[KVB_SIZE_VERDICTS], char *why,
                          size_t why_bytes);

#endif
