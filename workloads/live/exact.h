/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel that traces are recorded with: sums in double, rounded to f32 once. The order in which a
 * cache happens to hold its cells then leaves no mark on the recorded numbers.
 */
#ifndef KVB_LIVE_EXACT_H
#define KVB_LIVE_EXACT_H

#include "kernels/attend.h"

extern const kvb_kernel kvb_live_kernel_exact; /* f32 rows and output only */

#endif
