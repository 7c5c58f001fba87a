/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scan kernels on the axis of kernels. In a selection a stand-in of its name takes a scan kernel's place, as with
 * kvb_kernel_best: in all that is asked of kernels that attend it is flash. A combination with a stand-in runs layers
 * that scan by its scan kernel and those that attend by flash; one with any other kernel runs layers that scan by
 * `scan`.
 */
#ifndef KVB_SELECTION_SCAN_KERNEL_H
#define KVB_SELECTION_SCAN_KERNEL_H

#include "kernels/attend.h"
#include "kernels/model.h"
#include "kernels/scan.h"

/* The same one each time; NULL: too many. */
const kvb_kernel *kvb_scan_stand_in(const kvb_scan_kernel *scan);
/* Whom it, or a copy of it, stands for; NULL: nobody. */
const kvb_scan_kernel *kvb_scan_behind(const kvb_kernel *kernel);

/* Which kernels run layers that attend, and layers that scan. */
const kvb_kernel *kvb_kernel_of_attention(const kvb_kernel *kernel);
const kvb_scan_kernel *kvb_kernel_of_scans(const kvb_kernel *kernel);
/* Has the model layers for it, and does it take those that scan? Else why. */
bool kvb_kernel_fits(const kvb_kernel *kernel, const kvb_model *model, kvb_elem out_elem, char *why, size_t why_bytes);
/* The name of the kernel of the other layers; "": there are none, or it is a witness, which looks at no states. */
const char *kvb_kernel_beside(const kvb_kernel *kernel, const kvb_model *model);

#endif
