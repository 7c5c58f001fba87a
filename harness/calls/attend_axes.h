/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of an attention call, and the subject that makes and judges one. */
#ifndef KVB_CALLS_ATTEND_AXES_H
#define KVB_CALLS_ATTEND_AXES_H

#include "caches/pools/pool.h"
#include "harness/calls/pairwise.h"
#include "harness/calls/subject.h"
#include "harness/selection/registry.h"

/* The axes: a name here, the name in a text, what it is, and its values, the simplest first. NULL: values come from the
 * registry and the list of profiles. */
#define KVB_ATTEND_AXES_OF(A)                                                                                          \
    A(DIM, "head_dim", "channels of K and V rows, or of each; latent: V is the first part of K's rows", "64", "128",   \
      "32", "40", "72", "80", "96", "112", "120", "160", "192", "256", "512", "64x128", "128x64", "192x128",           \
      "576x512-latent")                                                                                                \
    A(KV_HEADS, "kv_heads", "heads of K and V", "1", "2", "3", "4", "5", "8", "16", "32")                              \
    A(GROUP, "group", "query heads for each of these", "1", "2", "3", "4", "5", "6", "7", "8", "12", "16", "71",       \
      "128")                                                                                                           \
    A(N_TOK, "tokens", "queries of the call", "1", "2", "3", "4", "5", "6", "7", "8", "9", "15", "16", "17", "31",     \
      "32", "33", "63", "64", "65", "127", "128", "129", "512")                                                        \
    A(CELLS, "cells", "cells of the view", "1", "2", "15", "16", "17", "31", "32", "33", "63", "64", "65", "127",      \
      "128", "129", "255", "256", "257", "512", "1023", "1025", "1500", "4100", "32768", "65535", "65536", "65537")    \
    A(BATCH, "batch", "sequences, of unlike lengths", "1", "2", "3", "7", "16", "33")                                  \
    A(MASK, "mask", "kind of mask", "none", "causal", "explicit", "runs", "pages")                                     \
    A(PAGE, "page", "cells of a page; the pages of sequences lie in any order, and some are shared", "1", "3", "16",   \
      "48", "64", "256")                                                                                               \
    A(STRIDE, "mask_stride", "words of a bit row beyond the least", "0", "1", "5")                                     \
    A(BLIND, "blind", "queries that see nothing", "none", "first", "last", "some")                                     \
    A(LIMITS, "limits", "what a query sees of its sequence", "none", "window-8", "window-70", "window-8-sinks-3",      \
      "chunk-16")                                                                                                      \
    A(SOFTCAP, "softcap", "of the logits; 0: none", "0", "30", "5")                                                    \
    A(SINKS, "sinks", "deviation of the sink logits; 0: there are none", "0", "1", "60")                               \
    A(SCALE, "scale", "factor on q.k; 0: 1/sqrt(head_dim)", "0", "1", "0.05")                                          \
    A(K, "k", "format of K", NULL)                                                                                     \
    A(V, "v", "format of V", "same", "f32", "f16", "bf16", "q8_0", "q4_0", "e4m3", "a4g32")                            \
    A(ROTATED, "rotated", "rows behind a Hadamard transform (+had)", "no", "yes")                                      \
    A(VALUES, "values", "profile of q, K and V", NULL)                                                                 \
    A(THREADS, "threads", "of the team", "1", "2", "3", "8")                                                           \
    A(DETERMINISTIC, "deterministic", "the same bits are asked for whatever the team", "no", "yes")                    \
    A(OUT, "out", "element of the outputs", "f32", "f16", "bf16")                                                      \
    A(FRONT, "front", "first cells that lie elsewhere", "none", "one", "half", "all")                                  \
    A(ALIGN, "align", "bytes by which rows, q and outputs are aligned, and no more", "64", "16", "4")                  \
    A(ORDER, "order", "calls of the kernel before this one", "first", "repeated", "after-larger", "after-smaller")     \
    A(PLACE, "place",                                                                                                  \
      "where rows lie: together, or so far apart that offsets pass 2^31 and 2^32 bytes, and cells 2^16 and 2^20",      \
      "together", "2GiB", "4GiB")
#define KVB_ATTEND_AXIS(name, ...) KVB_AT_##name,
typedef enum kvb_attend_axis { KVB_ATTEND_AXES_OF(KVB_ATTEND_AXIS) KVB_ATTEND_AXES } kvb_attend_axis;

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

/* The same without what formats and places decide. */
void kvb_attend_numbers_of(const kvb_attend_space *space, const kvb_point *point, kvb_attend_shape *shape);

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
