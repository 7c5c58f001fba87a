/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels and caches, each over all its combinations: one of a noisy run shows little, all of them together more. */
#ifndef KVB_COMPARE_AXES_H
#define KVB_COMPARE_AXES_H

#include "results/compare_time.h"

/* Fills in axes and n_axes of a comparison whose times are judged. 0 or -ENOMEM. */
int kvb_axes_judge(kvb_comparison *c, const kvb_compare_noise *noise, const kvb_compare_options *options);

#endif
