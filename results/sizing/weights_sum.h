/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum over a model's tensors, as the families of weights_families.c add them up: shapes by part, fields of the config.
 * The first thing that goes wrong is kept (err, why) and makes the rest of the sum idle, so no step of it checks.
 */
#ifndef KVB_WEIGHTS_SUM_H
#define KVB_WEIGHTS_SUM_H

#include "results/sizing/weights.h"

typedef enum kvb_part {
    KVB_PART_EMBEDDING,
    KVB_PART_OUTPUT,
    KVB_PART_ATTENTION,
    KVB_PART_MIXER,
    KVB_PART_DENSE,
    KVB_PART_EXPERTS,
    KVB_PART_SHARED,
    KVB_PART_ROUTER,
    KVB_PART_NORMS,
    KVB_PART_OTHER,
    KVB_PARTS
} kvb_part;

/* Bytes of one tensor of rows x cols (a vector: 1 x n) as it is published; element: bytes of the config's dtype. */
typedef uint64_t (*kvb_tensor_bytes)(kvb_part part, uint64_t rows, uint64_t cols, uint64_t element);

typedef struct kvb_weights_sum {
    const json_t *config;
    const kvb_model *model;
    uint64_t hidden, layers;
    uint64_t parts[KVB_PARTS];
    kvb_tensor_bytes tensor_bytes;
    uint64_t element, bytes;
    int err; /* 0; -ENOENT: a field or rule is missing; -EINVAL: a field is wrong; -EOVERFLOW */
    char why[160];
} kvb_weights_sum;

__attribute__((format(printf, 3, 4))) void kvb_sum_stop(kvb_weights_sum *sum, int err, const char *format, ...);

/* ---- tensors: n of them -------------------------------------------------------------------------------------- */

void kvb_matrix_add(kvb_weights_sum *sum, kvb_part part, uint64_t n, uint64_t rows, uint64_t cols);
void kvb_vector_add(kvb_weights_sum *sum, kvb_part part, uint64_t n, uint64_t elements);
void kvb_linear_add(kvb_weights_sum *sum, kvb_part part, uint64_t n, uint64_t in, uint64_t out, bool bias);

/* ---- fields: `names` are alternatives with blanks between, "a.b" a field of a nested object ------------------------ */

/* The first that is there and not null; NULL: none. */
const json_t *kvb_field_find(const kvb_weights_sum *sum, const char *names);
/* A count of 1 or more. */
uint64_t kvb_field(kvb_weights_sum *sum, const char *names);
/* 0 or more; absent: `otherwise`. */
uint64_t kvb_field_or(kvb_weights_sum *sum, const char *names, uint64_t otherwise);
/* Is it so? NULL: no. "+": yes. "name": as the field says, no where it is absent. "+name": yes where it is absent.
 * "!name": it must be there, as models of the family differ. */
bool kvb_flag(kvb_weights_sum *sum, const char *rule);

/* Layers of the model that hold rows (attention), or a recurrent state. */
bool kvb_group_attends(const kvb_layer_group *group);
uint64_t kvb_state_layers(const kvb_weights_sum *sum);

#endif
