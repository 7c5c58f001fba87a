/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling a rate: repeat something whose amount is known, within a time budget. */
#ifndef KVB_RATE_H
#define KVB_RATE_H

#include "harness/machine/bandwidth.h"

/* Does `passes` passes and returns their nanoseconds. */
typedef double kvb_rate_work(void *ctx, uint32_t passes);

/* Warms up, chooses the passes of a sample (about 1 ms), samples until `seconds` are over and there are 5 of them.
 * amount: of one pass; the rate is amount per nanosecond, that is 1e9 a second. 0, -ENOMEM, or -EINTR after a signal.
 */
int kvb_rate_sample(kvb_rate_work *work, void *ctx, double amount, double seconds, kvb_rate *rate);

/* Median and 10 % and 90 % quantiles (nearest rank) of n > 0 samples, which are sorted. */
void kvb_rate_of(double *samples, uint32_t n, kvb_rate *rate);

#endif
