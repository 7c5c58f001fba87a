/* SPDX-License-Identifier: Apache-2.0 */
/* `kvbench record --import`: a workload from recorded production requests. */
#ifndef KVB_RECORD_IMPORT_H
#define KVB_RECORD_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "results/result.h"
#include "workloads/import/import.h"
#include "workloads/trace.h"

/* Options as typed; 0 and NULL: not given. */
typedef struct kvb_record_import {
    const char *from; /* FORMAT:FILE */
    const char *name;
    uint64_t requests, shrink, sequences;
} kvb_record_import;

bool kvb_record_import_asked(const kvb_record_import *import);

/* Writes directory/NAME.jsonl and prints its row on stdout. directory may be NULL, which is refused. An exit code. */
int kvb_record_import_run(const kvb_record_import *import, const char *directory, uint64_t seed,
                          kvb_table_format format);

#endif
