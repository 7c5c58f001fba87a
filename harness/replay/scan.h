/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers that scan, in a replay: a call of the convolution, where there is one, and a call of the recurrence; each with
 * guarded inputs, counted, timed and judged (oracle/descent.h). In the first pass slots that a call is not to read hold
 * NaN in every float, and are looked at and put back after it. A later pass must give the first one's bits:
 * kernels/scan.h leaves a kernel no choice.
 */
#ifndef KVB_REPLAY_SCAN_H
#define KVB_REPLAY_SCAN_H

#include "harness/replay/fed.h"

typedef struct kvb_scans kvb_scans;

/* *scans NULL if no layer scans. 0 or -ENOMEM. */
int kvb_scans_open(const kvb_replay_options *options, kvb_scans **scans);
void kvb_scans_close(kvb_scans *scans);
/* A pass begins. 0 or -ENOMEM. */
int kvb_scans_begin(kvb_scans *scans);

/* Scans one layer of the step and checks it. */
int kvb_pass_scan(kvb_pass *pass, uint32_t layer, const kvb_fed *fed, const kvb_scan_spec *spec,
                  kvb_step_traffic *step);

/* So many tokens of a prompt were found: nobody asks for their rows. */
void kvb_scans_found(kvb_scans *scans, uint32_t n);
/* Adds what was judged, and the verdict: outputs by their bound, by second opinions, and what slots held. */
void kvb_scans_judge(const kvb_scans *scans, const kvb_diff *attended, kvb_result *result);
/* Bytes of scratch. */
size_t kvb_scans_scratch(const kvb_scans *scans);

#endif
