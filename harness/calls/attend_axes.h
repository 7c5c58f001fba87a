/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of an attention call, and the subject that makes and judges one. */
#ifndef KVB_CALLS_ATTEND_AXES_H
#define KVB_CALLS_ATTEND_AXES_H

#include "caches/pools/pool.h"
#include "harness/calls/pairwise.h"
#include "harness/calls/subject.h"
#include "harness/selection/registry.h"

typedef enum kvb_attend_axis {
    KVB_AT_DIM,
    KVB_AT_KV_HEADS,
    KVB_AT_GROUP,
    KVB_AT_N_TOK,
    KVB_AT_CELLS,
    KVB_AT_BATCH,
    KVB_AT_MASK,
    KVB_AT_PAGE,
    KVB_AT_STRIDE,
    KVB_AT_BLIND,
    KVB_AT_LIMITS,
    KVB_AT_SOFTCAP,
    KVB_AT_SINKS,
    KVB_AT_SCALE,
    KVB_AT_K,
    KVB_AT_V,
    KVB_AT_ROTATED,
    KVB_AT_VALUES,
    KVB_AT_THREADS,
    KVB_AT_DETERMINISTIC,
    KVB_AT_OUT,
    KVB_AT_FRONT,
    KVB_AT_ALIGN,
    KVB_AT_ORDER,
    KVB_AT_PLACE,
    KVB_ATTEND_AXES
} kvb_attend_axis;

/* The space of attention calls over all pools of a registry and all value profiles. The registry owns the pools. */
typedef struct kvb_attend_space {
    kvb_space space;
    kvb_call_axis axes[KVB_ATTEND_AXES];
    const char *pools[KVB_REGISTRY_MAX + 1], *profiles[32];
    const kvb_registry *registry;
} kvb_attend_space;

void kvb_attend_space_make(const kvb_registry *registry, kvb_attend_space *space);

/* A point as numbers. */
typedef struct kvb_attend_shape {
    kvb_problem problem; /* with the pools' formats; n_cells: cells that hold rows */
    /* Every second page lies this many cells further on, a multiple of each page size; 0: rows lie together. */
    uint32_t apart;
    size_t apart_stride; /* bytes from one cell to the next when rows lie apart */
    const kvb_pool_type *k_pool, *v_pool;
    const char *values; /* profile */
    uint32_t batch;     /* sequences, each with an equal part of the queries */
    uint32_t page;      /* cells of a page; a sequence's pages lie in any order */
    uint32_t window, window_sinks, chunk;
    uint32_t more_words; /* unused words behind each row of an EXPLICIT mask */
    uint32_t front;      /* cells */
    uint32_t align; /* bytes: rows, q, outputs begin at a multiple of this and of no larger power of two below 64 */
    uint32_t threads;
    float sink; /* standard deviation of sink logits; 0: none */
    enum { KVB_BLIND_NONE, KVB_BLIND_FIRST, KVB_BLIND_LAST, KVB_BLIND_SOME } blind; /* queries that see nothing */
    kvb_call_order order;
} kvb_attend_shape;

/* Reads a point. False with why: no call has these values together, whatever the kernel. */
bool kvb_attend_shape_of(const kvb_attend_space *space, const kvb_point *point, kvb_attend_shape *shape, char *why,
                         size_t why_bytes);

/* The problem that the kernel receives: also counts the cells between rows that lie apart. */
kvb_problem kvb_attend_problem(const kvb_attend_shape *shape);

/* Does the kernel take the call without mask expansion or staging? Else why. */
bool kvb_attend_takes(const kvb_kernel *kernel, const kvb_attend_shape *shape, char *why, size_t why_bytes);

/* The axes that make zeros the right output of the call, as bits (kvb_call_subject): no query sees a cell, all of V is
 * subnormal and stored in a type without such numbers, or a sink outweighs all keys. A few other calls whose outputs
 * are zeros are not found. */
uint32_t kvb_attend_mutes(const kvb_call_subject *subject, const kvb_point *point);

/* Estimated nanoseconds to make and judge the call. */
double kvb_attend_cost(const kvb_attend_shape *shape);
#define KVB_ATTEND_COST 400e6 /* a call that costs more is not made */

/* The kernel as a subject of calls in this space, judged by results, guards, canaries, poison, calls before and other
 * teams. Space and kernel must outlive the subject. */
kvb_call_subject kvb_attend_subject(const kvb_attend_space *space, const kvb_kernel *kernel);

#endif
