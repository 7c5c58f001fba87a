/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of this folder as a table for each level: how the rest of kernels/ reaches them. */
#ifndef KVB_VECTOR_TABLE_H
#define KVB_VECTOR_TABLE_H

#include "kernels/cpu.h"
#include "kernels/vector/int8.h"
#include "kernels/vector/load.h"
#include "kernels/vector/micro.h"

/* One line a function; what each does is said where it is declared. */
#define KVB_VECTOR_FUNCTIONS(X)                                                                                        \
    X(load_of)                                                                                                         \
    X(transform)                                                                                                       \
    X(dots)                                                                                                            \
    X(sums)                                                                                                            \
    X(pack_keys)                                                                                                       \
    X(pack_values)                                                                                                     \
    X(product)                                                                                                         \
    X(weigh)                                                                                                           \
    X(rescale)                                                                                                         \
    X(int8_query)                                                                                                      \
    X(int8_scores)                                                                                                     \
    X(int8_sums)

typedef struct kvb_vector {
    kvb_cpu_level level;
#define FIELD(f) __typeof__(KVB_ISA_NAME(kvb_##f)) *f;
    KVB_VECTOR_FUNCTIONS(FIELD)
#undef FIELD
} kvb_vector;

extern const kvb_vector KVB_ISA_NAME(kvb_vector);

/* The table of a level; NULL where this build has none. */
const kvb_vector *kvb_vector_at(kvb_cpu_level level);

#endif
