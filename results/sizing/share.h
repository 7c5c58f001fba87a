/* SPDX-License-Identifier: Apache-2.0 */
/* What engines share: one rank's part of a layer, and sums that do not wrap. */
#ifndef KVB_SIZING_SHARE_H
#define KVB_SIZING_SHARE_H

#include "results/sizing/sizing.h"

#define KVB_COUNT(...) (sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
/* *sum += the product of the factors: 0 or -EOVERFLOW. */
#define kvb_add(sum, ...) kvb_add_product(sum, (uint64_t[]){__VA_ARGS__}, KVB_COUNT(__VA_ARGS__))
int kvb_add_product(uint64_t *sum, const uint64_t *factors, size_t n);

uint64_t kvb_ceil_div(uint64_t x, uint64_t by);
int kvb_round_up(uint64_t *x, uint64_t to); /* 0 or -EOVERFLOW */

/* Do the rows of this kind grow with the context for ever? */
bool kvb_layer_grows(kvb_layer_kind kind);

/* Layers of group i on the fullest rank: the kinds are taken to be spread evenly over the stages, each rounded up. Layers
 * for multi-token prediction, when served, are of the last kind of attention. */
uint64_t kvb_layers_held(const kvb_model *model, size_t i, const kvb_size_ask *ask);

/* Bytes of one token's K and V rows in one layer of the group, on one rank. -ENOTSUP with why: the format, or --tp, does
 * not divide them. What a sparse indexer keeps is not in it. */
int kvb_layer_row_bytes(const kvb_layer_group *group, const kvb_size_ask *ask, uint64_t *bytes, char *why,
                        size_t why_bytes);

/* Bytes of a recurrent layer's state of one sequence on one rank, drafts not counted. -EOVERFLOW. */
int kvb_layer_state_bytes(const kvb_layer_group *group, const kvb_size_ask *ask, uint32_t state_element,
                          uint32_t conv_element, uint64_t *bytes);

/* Bytes of an element of a dtype ("f32", "bf16", "f16"): 4 or 2. */
uint32_t kvb_dtype_bytes(const char *dtype);
/* Of a value that is kept as computed: in K's format where that is a plain float, else in the model's dtype. */
uint32_t kvb_plain_bytes(const kvb_model *model, const kvb_size_ask *ask);

/* -EOVERFLOW, with the line for it in why. */
int kvb_too_large(char *why, size_t why_bytes);

#endif
