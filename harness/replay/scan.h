/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers that scan, in a replay: a call of the convolution, where there is one, and a call of the recurrence; each with
 * guarded inputs, counted, timed and judged (oracle/descent.h). In the first pass slots that a call is not to read hold
 * NaN in every float, and are looked at and put back after it. A later pass must give the first one's bits:
 * kernels/scan.h leaves a kernel no choice.
 */
#ifndef KVB_REPLAY_SCAN_H
#define KVB_REPLAY_SCAN_H

#include "harness/replay/pass.h"

typedef struct kvb_scans kvb_scans;

/* *scans NULL if no layer scans. 0 or -ENOMEM. */
int kvb_scans_open(const kvb_replay_options *options, kvb_scans **scans);
void kvb_scans_close(kvb_scans *scans);
/* A pass begins. 0 or -ENOMEM. */
int kvb_scans_begin(kvb_scans *scans);

/* Are the slots that the cache names ones that there are? Notes which are read, and which written. 0 or an error. */
int kvb_scans_slots(kvb_pass *pass, const kvb_scan_spec *spec);

/* A call is prepared, and made: checks.c. */
int kvb_scans_prepare(kvb_pass *pass, kvb_made *made);
int kvb_scans_run(kvb_pass *pass);

/* Its parts in the rows of the table of checks. */
int kvb_scans_state(kvb_pass *pass, kvb_made *made);   /* the processor's caches, as asked for */
int kvb_scans_poison(kvb_pass *pass, kvb_made *made);  /* in the first pass, as long as the budget lasts: NaN in slots
                                                         * that the call does not read */
int kvb_scans_restore(kvb_pass *pass, kvb_made *made); /* what it was not to write is as it was, and comes back */
int kvb_scans_inputs(kvb_pass *pass, kvb_made *made);  /* as they were given */
int kvb_scans_fill(kvb_pass *pass, kvb_made *made);    /* a NaN of our own in all of out */
int kvb_scans_written(kvb_pass *pass, kvb_made *made); /* none of it is left */
int kvb_scans_judged(kvb_pass *pass, kvb_made *made);  /* is it to be judged? */
int kvb_scans_follow(kvb_pass *pass, kvb_made *made);  /* the oracle follows it, in the first pass */
int kvb_scans_digest(kvb_pass *pass, kvb_made *made);  /* the first pass' bits again */
int kvb_scans_dump(kvb_pass *pass, kvb_made *made);

/* So many tokens of a prompt were found: their rows are not compared. */
void kvb_scans_found(kvb_scans *scans, uint32_t n);
/* Adds what was judged, and the verdict: outputs by their bound, by second opinions, and what slots held. */
void kvb_scans_judge(const kvb_scans *scans, const kvb_diff *attended, kvb_result *result);
/* Bytes of scratch. */
size_t kvb_scans_scratch(const kvb_scans *scans);

#endif
