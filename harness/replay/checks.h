/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is looked at in each call of a kernel, as a table: a check is a row. A call is prepared, every row's before()
 * is asked in order, the call is made and timed, every row's after() is asked in order. A replay ends with every row's
 * report(), in order, and close().
 */
#ifndef KVB_REPLAY_CHECKS_H
#define KVB_REPLAY_CHECKS_H

#include "harness/replay/pass.h"

typedef enum kvb_call_kind { KVB_CALL_ATTENDS, KVB_CALL_SCANS, KVB_CALL_KINDS } kvb_call_kind;

/* What a call's outputs are judged by. */
typedef struct kvb_judged {
    const kvb_expect *rows; /* [n] */
    size_t n;
    kvb_arithmetic arithmetic; /* what the rows leave of the kernel's declaration */
} kvb_judged;

/* A call of a step's layer. */
typedef struct kvb_made {
    kvb_call_kind kind;
    uint32_t layer;
    const kvb_fed *fed;
    kvb_step_traffic *traffic;
    const kvb_attend_spec *spec; /* ATTENDS */
    const kvb_scan_spec *states; /* SCANS */
    kvb_scan_part part;
    /* of ATTENDS, while it is judged */
    kvb_judged judged;
    kvb_written before; /* its digest, and what had been looked at before it */
    /* when it was made */
    int returned;
    uint64_t allocations, threads; /* of memory, meanwhile; started since the kernel was asked what it supports */
} kvb_made;

#define KVB_ENOUGH 1 /* of after(): rows that follow have nothing to look at, but for those that are asked always */

typedef struct kvb_check_row {
    const char *name;
    int (*open)(kvb_pass *pass); /* 0 or an error */
    int (*before[KVB_CALL_KINDS])(kvb_pass *pass, kvb_made *made);
    int (*after[KVB_CALL_KINDS])(kvb_pass *pass, kvb_made *made); /* 0, KVB_ENOUGH or an error */
    bool always;                                                  /* after() is asked also behind an error */
    void (*report)(kvb_pass *pass, kvb_result *result);
    void (*close)(kvb_pass *pass);
} kvb_check_row;

extern const kvb_check_row kvb_check_rows[]; /* ends with a name of NULL */

/* Adds what all layers of the group will read, at the first of them, until counters have run. Refuses a step that is too
 * large to attend. */
int kvb_traffic_add(kvb_pass *pass, kvb_made *made);
/* Words of the mask as the kernel gets it, and rescales as it declares them. */
int kvb_traffic_of_call(kvb_pass *pass, kvb_made *made);

/* Makes one call, with all checks. 0 or an error; the pass may be refused. */
int kvb_pass_call(kvb_pass *pass, kvb_made *made);

/* Is that query of the event's n tokens in the call? */
static inline bool kvb_pass_asks(const kvb_pass *pass, uint32_t n, uint32_t query)
{
    return (uint64_t)pass->call.args.problem.n_tok + query >= n;
}

/* What the call that was made last is judged by, into made->judged. 0 or an error; the pass may be refused for what the
 * kernel says of its rounding. */
int kvb_pass_judged(kvb_pass *pass, kvb_made *made);
/* Compares one row of the call's outputs with the oracle. 0 or an error. */
int kvb_pass_judge_row(kvb_pass *pass, const kvb_made *made, const kvb_expect *expect, kvb_diff *diff);

#endif
