/* SPDX-License-Identifier: Apache-2.0 */
/* Quantiles of two distributions that intervals are made of. */
#ifndef KVB_STUDENT_H
#define KVB_STUDENT_H

#include <stddef.h>
#include <stdint.h>

#define KVB_NORMAL_99 2.5758293035489004 /* a standard normal number lies within +- this in 99 % */

/* t with P(|T| > t) = tail, T of Student's distribution with `freedom` degrees; above 200 of the normal one. */
double kvb_student_quantile(double tail, uint32_t freedom);

/* The sign test's interval of a median (Conover, Practical Nonparametric Statistics, 1999, 3.2): of n sorted values it runs
 * from the k-th smallest to the k-th largest (k from 1), wrong in at most `tail`. Returns k; 0: n is too small. */
size_t kvb_sign_rank(size_t n, double tail);

#endif
