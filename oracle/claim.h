/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a kernel's declaration say something about its outputs? A bound that is made from too wide a declaration passes anything.
 *
 * A judged row has three other outputs beside the exact one:
 *
 *   0           what a kernel leaves that computes nothing
 *   the mean    of V over the visible cells: what it makes if it does not look at keys
 *   the rest    the row without its heaviest cell, (o - p_max v) / (1 - p_max): what it makes if it loses a key
 *
 * One of them passes if it lies within the row's bound in every channel. Then the declaration says nothing about the row, if
 * arithmetic could: if that output is more than 4 bounds of a plain loop in f32 away in some channel (4: chains of 16 times the length).
 * Where keys are equal the mean is the answer, and where the heaviest cell weighs little so is the rest: such rows do not count.
 *
 * That does not make the declaration wrong. Sums in f16 of logits of -10,000 say nothing about their softmax, honestly. A
 * declaration is too wide where another one would say something: the same, its fields cut to what arithmetic in 8 or 16 bits
 * comes to (kvb_claim_cut()). A declaration that stays within that is never too wide, whatever the values are.
 *
 *   step                                            of q 1/64, of weights 1/32: twice what codes of 7 bits and a sign need, and
 *                                                   of weights twice again, as their step is of the largest V of all channels
 *   floor                                           of q 2^-8; of dot products and of sums 2^-10, half the smallest e4m3
 *   rounding                                        of q and in scores to bf16, of weights to e4m3
 *   chain in a narrow type                          until the sum's statistical error is 1/16
 *   chain in the accumulator, which is f32          4 times the terms, and 256 for the tree of partial sums
 *   exp_error                                       2^-8
 *   rescales                                        one a cell, and 256; until the error of all is 1/16
 *   exp_floor                                       2^-24
 */
#ifndef KVB_CLAIM_H
#define KVB_CLAIM_H

#include <math.h>

#include "kernels/scan.h"
#include "oracle/oracle.h"

/* The share of the judged rows above which too wide a declaration fails. Honest kernels have none. */
#define KVB_CLAIM_LIMIT 0.03

/* Refuses what no kernel can mean: steps, floors and an error of exp() of 1 and more, an exp_floor above 2^-24, numbers
 * below 0 and NaN, an accumulator that is no float of 16 or 32 bits. 0, or -EINVAL and why names the field. */
int kvb_claim_check(const kvb_arithmetic *arithmetic, char *why, size_t why_bytes);

/* The same of a scan. It has no rows to ask, so that a declaration which says nothing is refused as it stands:
 * exp_error above 2^-8, chains of more than 4 times the terms that meet (d_k, d_v and the chunk's tokens) and 256,
 * operands coarser than e4m3. */
int kvb_claim_check_scan(const kvb_scan_arithmetic *arithmetic, const kvb_scan_problem *problem, char *why,
                         size_t why_bytes);

/* Cuts the fields of a declaration, for dot products of k_dim terms and sums over `cells`. Returns those that were cut,
 * as bits. */
uint32_t kvb_claim_cut(kvb_arithmetic *arithmetic, uint32_t k_dim, uint32_t cells);

/*
 * Cuts what a declaration says of q, where round_query() tells the q that is multiplied. Rows are then judged by that
 * q, so none of them shows what was lost of the workload's q. The most that round_query() may move q by is what codes
 * of 8 bits need: step and floor as above, and elements rounded to e5m2, which errs more than e4m3.
 */
void kvb_claim_cut_told(kvb_rounding *query);

/* The names of fields that were cut: "sums.step, rescales". */
void kvb_claim_words(uint32_t fields, char *words, size_t bytes);

/* The outputs that have passed in all channels so far, as bits; begin with KVB_CLAIM_OTHERS. */
#define KVB_CLAIM_OTHERS 7u
static inline uint32_t kvb_claim_passing(uint32_t passing, const kvb_bound_term *term, double bound)
{
    const uint32_t told = (uint32_t)(fabs(term->o) > bound) | (uint32_t)((double)term->mean_off > bound) << 1 |
                          (uint32_t)((double)term->rest_off > bound) << 2;
    return passing & ~told;
}

/* A row of which the outputs `passing` pass. */
void kvb_claim_row(kvb_claim *claim, uint32_t passing, const kvb_expect *expect, uint32_t v_dim,
                   const kvb_arithmetic *arithmetic, double scale, double softcap, kvb_elem out_elem);

#endif
