/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows for a kernel that rounds. An oracle's rows serve every kernel: over the workload's q, without the sums for
 * weights in steps. A kernel that tells which q it multiplies (kvb_kernel.round_query) is judged by attention of that
 * q, and one whose weights are multiples of a step by sums for it: the same rows, solved once more. That is done for a
 * layer at its first call, since the call brings the problem and the head scales that q is rounded for.
 */
#ifndef KVB_ROUNDED_H
#define KVB_ROUNDED_H

#include "oracle/oracle.h"

typedef struct kvb_rounded kvb_rounded;

/* Oracle and kernel must outlive it. 0 or -ENOMEM. */
int kvb_rounded_open(kvb_oracle *oracle, const kvb_kernel *kernel, kvb_rounded **rounded);
void kvb_rounded_free(kvb_rounded *rounded);

/*
 * What `call` is judged by, a call of the kernel for (event, layer): *n rows, those of kvb_oracle_rows(), whether they
 * need another solve or not; where what is stored depends on the order of writes, rows for kvb_window_solve() to solve.
 * *arithmetic, as the kernel declares it, loses what the rows take into account. 0, -ENOMEM, what round_query returned,
 * or -EILSEQ and why: it goes further from q than is declared, or gives another q for another call.
 */
int kvb_rounded_rows(kvb_rounded *rounded, const kvb_attend *call, uint32_t event, uint32_t layer,
                     kvb_arithmetic *arithmetic, const kvb_expect **rows, size_t *n, char *why, size_t why_bytes);

/* Is `rounded` no further from `exact`, one query head's q, than the arithmetic declares, and than codes of 8 bits need
 * (kvb_claim_cut_told())? scale: a factor on q before it was rounded, as a format's head scale. 0, or -EILSEQ with why,
 * which begins with `what`. */
int kvb_rounded_check(const kvb_problem *problem, const kvb_arithmetic *arithmetic, double scale, const char *what,
                      uint32_t query, uint32_t head, const float *exact, const double *rounded, char *why,
                      size_t why_bytes);

/* The q [k_dim] that the kernel makes of `exact`, the q of one query head. 0, what round_query returned, or -EILSEQ
 * with why: it goes further from q than the arithmetic declares, or than codes of 8 bits need (kvb_claim_cut_told()).
 */
int kvb_rounded_q(const kvb_kernel *kernel, const kvb_attend *call, const kvb_arithmetic *arithmetic, uint32_t query,
                  uint32_t head, const float *exact, double *q, char *why, size_t why_bytes);

#endif
