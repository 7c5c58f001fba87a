/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that a combination can fail. */
#ifndef KVB_CHECK_H
#define KVB_CHECK_H

#include <stdint.h>

typedef enum kvb_check {
    KVB_CHECK_NONE,
    KVB_CHECK_BOUND,       /* an output or log-sum-exp is off by more than the declared arithmetic allows */
    KVB_CHECK_TOLERANCE,   /* a call's outputs are off by more than the kernel's own project tolerates */
    KVB_CHECK_FILTER,      /* errors of many rows point the same way */
    KVB_CHECK_OPINION,     /* an output that no sample holds is off by more than its bound from above */
    KVB_CHECK_STATE,       /* a state that a token left in a slot is off likewise */
    KVB_CHECK_FINITE,      /* an output is not finite where it must be */
    KVB_CHECK_STORED,      /* a cell that is seen holds no row, by the account of what the cache wrote */
    KVB_CHECK_DECLARATION, /* q is rounded otherwise than the kernel declares, or it declares too much */
    KVB_CHECK_POISON,      /* what a query does not see reaches it */
    KVB_CHECK_WITNESS,     /* a query saw other tokens than it may */
    KVB_CHECK_WRITTEN,     /* an output was left as it was */
    KVB_CHECK_MARGINS,     /* something was written beside the outputs or the scratch */
    KVB_CHECK_INPUTS,      /* q was written to */
    KVB_CHECK_ALLOCATIONS, /* attend() took or gave back memory, or started a thread */
    KVB_CHECK_RETURN,      /* attend() returned something else than 0 */
    KVB_CHECK_PROTOCOL,    /* a cache refused what fits, or asked for what is not there; a pool misstates its memory */
    KVB_CHECK_POOL,        /* a pool by itself stores, moves, counts or shows rows wrongly */
    KVB_CHECK_DETERMINISTIC, /* other bits with another number of threads, though the same were asked for */
    KVB_CHECK_CRASH,         /* a signal or an exit; that is also how a guard page catches what reads or writes there */
    KVB_CHECK_TIMEOUT,
    KVB_CHECKS
} kvb_check;

extern const char *const kvb_check_names[KVB_CHECKS]; /* "-", "bound", … */

/* Bit i: check i finds nothing. For showing what the others would miss (kvbench faults --without); else 0. */
extern uint32_t kvb_checks_off;

static inline int kvb_check_is_off(kvb_check check)
{
    return kvb_checks_off >> check & 1;
}

#endif
