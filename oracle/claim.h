/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds declarations that are too wide: the bound made from them passes any output.
 *
 * A judged row has three wrong outputs beside the exact one:
 *
 *   0           the output of a kernel that computes nothing
 *   the mean    of V over the visible cells: the output of a kernel that ignores keys
 *   the rest    the row without its heaviest cell, (o - p_max v) / (1 - p_max): the output of a kernel that loses a key
 *
 * A wrong output passes if it lies within the row's bound in every channel. Then the declaration says nothing about the row.
 * The row counts if f32 could do better: if that output is more than 4 bounds of a plain f32 loop away in some channel (4:
 * chains of 16 times the length). Rows with equal keys, for which the mean is right, therefore do not count, nor rows with a
 * light heaviest cell, for which the rest is right.
 *
 * Such a declaration may be honest: f16 sums of logits of -10,000 say nothing about their softmax. It is too wide if it would
 * say something after its fields are cut to what arithmetic in 8 or 16 bits needs (kvb_claim_cut()). A declaration within
 * these limits is never too wide, whatever the values are:
 *
 *   step                                            of q 1/64: twice what codes of 7 bits and a sign need; of weights 1/32:
 *                                                   twice that again, as their step is relative to the V of all channels
 *   floor                                           of q 2^-8; of dot products and of sums 2^-10, half the smallest e4m3
 *   rounding                                        of q and in scores to bf16, of weights to e4m3
 *   chain in a narrow type                          until the sum's statistical error is 1/16
 *   chain in the accumulator, which is f32          4 times the terms, plus 256 for the tree of partial sums
 *   exp_error                                       2^-8
 *   rescales                                        one per cell plus 256, but their error is at most 1/16
 *   exp_floor                                       2^-24
 */
#ifndef KVB_CLAIM_H
#define KVB_CLAIM_H

#include <math.h>

#include "kernels/scan.h"
#include "oracle/oracle.h"

/* A declaration fails if it is too wide for more than this share of the judged rows. Honest kernels have no such row. */
#define KVB_CLAIM_LIMIT 0.03

/* Refuses values that make no sense: steps, floors and exp_error of 1 and more, an exp_floor above 2^-24, numbers below 0
 * and NaN, an accumulator other than a float of 16 or 32 bits. 0, or -EINVAL and why names the field. */
int kvb_claim_check(const kvb_arithmetic *arithmetic, char *why, size_t why_bytes);

/* The same for a scan. A scan has no rows on which to try a declaration, so too wide values are refused here: exp_error
 * above 2^-8, chains above 4 times the terms that meet (d_k + d_v + the chunk's tokens) plus 256, operands coarser than
 * e4m3. */
int kvb_claim_check_scan(const kvb_scan_arithmetic *arithmetic, const kvb_scan_problem *problem, char *why,
                         size_t why_bytes);

/* Cuts the fields of a declaration to the limits above, for dot products of k_dim terms and sums over `cells`. Returns
 * the fields that were cut, as bits. */
uint32_t kvb_claim_cut(kvb_arithmetic *arithmetic, uint32_t k_dim, uint32_t cells);

/*
 * Cuts the declared rounding of q, for a kernel with round_query(). Its rows are judged with the rounded q, so no row
 * shows what the workload's q lost. round_query() may move q as far as codes of 8 bits need: step and floor as above,
 * and elements rounded to e5m2, which errs more than e4m3. Returns whether it cut anything.
 */
bool kvb_claim_cut_told(kvb_rounding *query);

/* The names of fields that were cut: "sums.step, rescales". */
void kvb_claim_words(uint32_t fields, char *words, size_t bytes);

/* Returns the wrong outputs (bits) that still pass after this channel. passing: those before it, first KVB_CLAIM_OTHERS. */
#define KVB_CLAIM_OTHERS 7u
static inline uint32_t kvb_claim_passing(uint32_t passing, const kvb_bound_term *term, double bound)
{
    const uint32_t told = (uint32_t)(fabs(term->o) > bound) | (uint32_t)((double)term->mean_off > bound) << 1 |
                          (uint32_t)((double)term->rest_off > bound) << 2;
    return passing & ~told;
}

/* Counts a row for which the wrong outputs `passing` pass in all channels. */
void kvb_claim_row(kvb_claim *claim, uint32_t passing, const kvb_expect *expect, uint32_t v_dim,
                   const kvb_arithmetic *arithmetic, double scale, double softcap, kvb_elem out_elem);

#endif
