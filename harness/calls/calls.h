/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `calls`: single calls of a kernel, judged one by one, without a history. Which calls: enough for any two values
 * of the axes to meet, and random ones beyond. They are made in child processes. The first call that is wrong is shrunk
 * to the fewest and simplest values that still are.
 */
#ifndef KVB_CALLS_H
#define KVB_CALLS_H

#include "harness/calls/pairwise.h"
#include "harness/calls/subject.h"
#include "results/result.h"

typedef struct kvb_calls_options {
    const char *call;  /* words of one point, which alone is made; NULL: those that are chosen */
    const char *among; /* words of values: of those chosen, calls that have all of them alone; NULL: all */
    size_t most;       /* calls that are chosen for pairs; 0: as many as it takes */
    uint64_t random;   /* calls beyond these */
    uint64_t seed;
    double seconds;      /* most that one call may take */
    uint32_t jobs;       /* children at once */
    bool only_first;     /* end at the first call that is wrong */
    bool as_found;       /* a call that is wrong is not shrunk */
    bool only_cheap;     /* pairs of values that need dear calls are left out */
    char *found;         /* [KVB_CALL_TEXT] words of the first call that is wrong; NULL: not asked for */
    const char *command; /* that runs calls of this kernel alone; to it --call is added. "": none */
} kvb_calls_options;

/* Fills in status, reason, replay, errors and axes of a result that the caller has given its names. 0; -EINVAL with
 * why: `call` is no call of this kernel; -EINTR; -ENOMEM. The caller has no threads running. */
int kvb_calls_judge(const kvb_calls_options *options, const kvb_call_subject *subject, kvb_result *result, char *why,
                    size_t why_bytes);

/* The calls that are chosen for pairs, cheapest first; arguments and returns as of kvb_points_choose(). */
int kvb_calls_choose(const kvb_call_subject *subject, uint64_t seed, size_t most, bool only_cheap,
                     kvb_point_cover *cover);

/* ---- shrinking ---- */

/*
 * Makes the point simpler while it fails, in children: fewer axes with another value than the simplest, then simpler
 * values. *verdict becomes that of the simplest one found. A call that crashes or hangs fails, too.
 */
void kvb_call_shrink(const kvb_calls_options *options, const kvb_call_subject *subject, kvb_point *point,
                     kvb_call_verdict *verdict);

/* ---- a child ---- */

/* What a child leaves behind of the call that it makes. */
typedef struct kvb_call_place {
    volatile uint64_t at; /* number of the call under way */
    char fault[160];      /* what the guard says of a fault; "": nothing */
} kvb_call_place;

#endif
