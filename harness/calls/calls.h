/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `calls`: single calls of a kernel, judged one by one, without a history. The calls are chosen so that every two
 * values of different axes meet; random calls may be added. Child processes make them. The first wrong call is shrunk
 * to the fewest and simplest values with which it still fails.
 */
#ifndef KVB_CALLS_H
#define KVB_CALLS_H

#include "harness/calls/pairwise.h"
#include "harness/calls/subject.h"
#include "results/result.h"

typedef struct kvb_calls_options {
    const char *call;  /* the only call to make, "tokens=7,cells=65"; NULL: calls are chosen */
    const char *among; /* make only chosen calls with all of these values, "tokens=7"; NULL: all */
    size_t most;       /* most calls to choose for pairs; 0: enough for all pairs */
    uint64_t random;   /* random calls in addition */
    uint64_t seed;
    double seconds;      /* time limit of one call */
    uint32_t jobs;       /* children at once */
    bool only_first;     /* stop at the first wrong call */
    bool as_found;       /* do not shrink the wrong call */
    bool only_cheap;     /* leave out pairs of values that only expensive calls have */
    char *found;         /* out: [KVB_CALL_TEXT] text of the first wrong call; NULL: not wanted */
    const char *command; /* runs calls of this kernel; the record's replay command is this and --call. "": none */
} kvb_calls_options;

/* Fills in status, reason, replay, errors and axes of a result; the caller has filled in its names. 0; -EINVAL with
 * why: `call` is no call of this kernel; -EINTR; -ENOMEM. The caller has no threads running. */
int kvb_calls_judge(const kvb_calls_options *options, const kvb_call_subject *subject, kvb_result *result, char *why,
                    size_t why_bytes);

#endif
