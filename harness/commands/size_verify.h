/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench size --verify: the proofs of harness/size/verify.h for several models, as a table. */
#ifndef KVB_SIZE_VERIFY_COMMAND_H
#define KVB_SIZE_VERIFY_COMMAND_H

#include <stdio.h>

#include "harness/size/verify.h"
#include "harness/size/words.h"
#include "results/result.h"

typedef struct kvb_size_verify_ask {
    kvb_model *const *models;
    size_t n_models;
    kvb_kv_pairs pairs;          /* none: every pool on both sides, and KIVI's pairs */
    uint64_t context, sequences; /* 0: as kvb_size_proving */
    kvb_table_format format;
} kvb_size_verify_ask;

/* For people a row for each cache of each shape of layers, and all that is not equal; for programs every proof. count: of
 * each verdict. 0; -EINVAL or -ENOMEM with why; -EIO. */
int kvb_size_verify_print(const kvb_size_verify_ask *ask, FILE *out, size_t count[KVB_SIZE_VERDICTS], char *why,
                          size_t why_bytes);

#endif
