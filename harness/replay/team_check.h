/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under --deterministic a kernel must give the same bits whatever the size of its team. A call that was judged is made
 * again for teams of other sizes. These run their parts one after the other, as kvb_team allows, so that no thread is
 * needed.
 */
#ifndef KVB_TEAM_CHECK_H
#define KVB_TEAM_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "caches/allocator.h"

struct kvb_pass;

/* What it works in; all zero at first. */
typedef struct kvb_team_check {
    unsigned char *out; /* the judged call's outputs and log-sum-exps */
    size_t out_room;
    void *scratch;
    size_t scratch_room;
} kvb_team_check;

/* Of the call that was made last, of this layer: outputs are left as they were. 0, -ENOMEM or what kvb_pass_fail()
 * returns. */
int kvb_team_check_run(struct kvb_pass *pass, uint32_t layer);
void kvb_team_check_free(kvb_team_check *check, const kvb_memory_source *source); /* source: of the call's scratch */

#endif
