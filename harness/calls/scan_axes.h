/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of a call of a scan kernel (kernels/scan.h), and the subject that makes and judges one. */
#ifndef KVB_CALLS_SCAN_AXES_H
#define KVB_CALLS_SCAN_AXES_H

#include "harness/calls/pairwise.h"
#include "harness/calls/subject.h"
#include "kernels/attend.h"
#include "kernels/scan.h"

/* The space of scan calls. */
extern const kvb_space kvb_scan_space;

/* A point as numbers. */
typedef struct kvb_scan_shape {
    kvb_scan_problem problem;
    uint32_t tokens, sequences; /* tokens of the longest sequence; sequences of the call, one behind the other */
    enum { KVB_LENGTHS_EQUAL, KVB_LENGTHS_MIXED, KVB_LENGTHS_ONE } lengths; /* ONE: the others have one token */
    enum { KVB_FROM_SLOT, KVB_FROM_ZERO, KVB_FROM_MIXED, KVB_FROM_SHARED, KVB_FROM_NODE } from;
    enum { KVB_TO_PLACE, KVB_TO_OTHER, KVB_TO_NONE, KVB_TO_MIDDLE, KVB_TO_EVERY } to;
    enum {
        KVB_SCAN_USUAL,
        KVB_SCAN_REMEMBERS,
        KVB_SCAN_FORGETS,
        KVB_SCAN_JUMPS,
        KVB_SCAN_LARGE,
        KVB_SCAN_TINY,
        KVB_SCAN_ZEROS
    } values;
    bool shuffled; /* slots lie in any order */
    bool bias;
    uint32_t gap;   /* unused bytes between slots */
    uint32_t align; /* bytes: inputs and out begin at a multiple of this and of no larger power of two below 64 */
    uint32_t threads;
    kvb_call_order order;
} kvb_scan_shape;

/* Reads a point. False with why: no call has these values together, whatever the kernel. */
bool kvb_scan_shape_of(const kvb_point *point, kvb_scan_shape *shape, char *why, size_t why_bytes);
/* Updates n_tok and run of the problem after a change of `tokens`. */
void kvb_scan_shape_count(kvb_scan_shape *shape);

/* Tokens of a sequence; does its token t store the state? */
uint32_t kvb_scan_shape_length(const kvb_scan_shape *shape, uint32_t sequence);
bool kvb_scan_shape_stores(const kvb_scan_shape *shape, uint32_t length, uint32_t t);

/* Slots of a call, the last KVB_SCAN_SPARE of them without a sequence; bytes of a slot. */
#define KVB_SCAN_SPARE 3u
uint32_t kvb_scan_shape_slots(const kvb_scan_shape *shape);
size_t kvb_scan_shape_bytes(const kvb_scan_shape *shape);

/* Estimated cost of a call: element steps of the kernel and of the oracle. */
double kvb_scan_cost(const kvb_scan_shape *shape);
#define KVB_SCAN_COST   6e6   /* a call that costs more is not made */
#define KVB_SCAN_JUDGED 200e3 /* element steps of the oracle for one call; a larger call has its columns sampled */

/* The kernel as a subject of calls, judged by outputs, states, slots that it must not write, calls before and other
 * teams. The kernel must outlive the subject. */
kvb_call_subject kvb_scan_subject(const kvb_kernel *kernel);

#endif
