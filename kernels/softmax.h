/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of one row's softmax that the scalar kernels share: scores to weights, and the row's end. */
#ifndef KVB_SOFTMAX_H
#define KVB_SOFTMAX_H

#include "kernels/attend.h"

/*
 * Largest relative error of the expf used: "Known Maximum Errors in Math Functions" of the GNU C Library
 * manual gives 1 ulp for expf on x86_64 and aarch64, at most 2^-23 of the value.
 */
#define KVB_EXPF_ERROR 0x1p-23
/* Weights below the smallest normal float are subnormal, with a larger relative error, or 0. */
#define KVB_EXPF_FLOOR 0x1p-126

/* The arithmetic of plain f32 loops over decoded rows that find the largest logit before they add weights. */
void kvb_softmax_arithmetic(const kvb_problem *problem, kvb_arithmetic *arithmetic);

/* A finished dot product as a logit: scaled, then capped. */
float kvb_logit(const kvb_problem *problem, float dot);

/*
 * Replaces scores s [n] by exp(s - max) and returns `sum` plus their sum. They are added in double: coarse K formats make
 * thousands of weights equal, and an f32 sum of equal terms drifts one way, much further than independent roundings.
 */
float kvb_weights(float *s, uint32_t n, float max, float sum);

/* The sink of head h as a first logit (-infinity without sinks), and its weight once max is known. */
float kvb_sink_logit(const kvb_attend *args, uint32_t h);
float kvb_sink_weight(const kvb_attend *args, uint32_t h, float max);

/*
 * Write one row of out (and of lse when asked) for query t and head h: acc [v_dim] / sum. acc is
 * overwritten. max and sum cover the sink. sum is 0 only when the query sees nothing: then out is 0.
 */
void kvb_row_finish(const kvb_attend *args, uint32_t t, uint32_t h, float *acc, float max, float sum);

#endif
