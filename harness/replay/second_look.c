/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/replay/second_look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/replay/calibrate.h"
#include "harness/replay/replay.h"
#include "harness/replay/verdict.h"
#include "kernels/kernels.h"

void kvb_second_look(const kvb_replay_options *failed, kvb_result *result)
{
    const kvb_model *model = &failed->trace->header.model;
    kvb_replay_options look = *failed;
    kvb_replay_place place = {0};
    kvb_own_counts counts = {0};
    kvb_values *tags = NULL;
    const float **k_amax = NULL, **v_amax = NULL;
    kvb_result found;
    char why[256], said[KVB_REASON + 32] = "";
    kvb_result_init(&found);
    if (kvb_values_open(failed->trace, "tags", 0, NULL, NULL, &tags, why, sizeof why) ||
        kvb_calibrate(model, tags, KVB_ROWS_K, failed->k_pool->format, &k_amax) ||
        kvb_calibrate(model, tags, KVB_ROWS_V, failed->v_pool->format, &v_amax))
        goto out;
    look.oracle = NULL;
    look.kernel = &kvb_kernel_witness;
    look.out_elem = KVB_F32;
    look.values = tags;
    look.k_amax = k_amax;
    look.v_amax = v_amax;
    look.untimed = true;
    look.turn = NULL;
    look.counters = NULL;
    look.timeline = NULL;
    look.counts = &counts;
    if (!kvb_replay_run(&look, &place, &found) && found.status != KVB_STATUS_SKIP)
        snprintf(said, sizeof said, "; the witness: %s",
                 found.status == KVB_STATUS_PASS ? "each query saw the right tokens" : found.reason);
    snprintf(result->where.witness, sizeof result->where.witness, "%s", *said ? strstr(said, ": ") + 2 : "");
    kvb_reason_add(said, result);
out:
    free(k_amax);
    free(v_amax);
    kvb_values_free(tags);
}
