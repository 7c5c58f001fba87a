/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel runs which layers: a selected one those that it has a face for, kernel flash or scan the others. */
#ifndef KVB_SELECTION_FACES_H
#define KVB_SELECTION_FACES_H

#include "kernels/attend.h"
#include "kernels/model.h"
#include "kernels/scan.h"

/* In a selection, of the kernel that was the fastest in an earlier run (kernel_support.h), until the combination is known:
 * it accepts any problem, and is never called. */
extern const kvb_kernel kvb_kernel_best;

static inline bool kvb_is_witness(const kvb_kernel *kernel)
{
    return kernel->flags & KVB_KERNEL_WITNESS;
}

/* Kinds of layers: bits. */
#define KVB_LAYERS_ATTEND 1u
#define KVB_LAYERS_SCAN   2u
uint8_t kvb_model_layers(const kvb_model *model);
uint8_t kvb_kernel_layers(const kvb_kernel *kernel); /* those that it has a face for */

/* The kernel that runs layers that attend, or layers that scan. */
const kvb_kernel *kvb_kernel_attending(const kvb_kernel *kernel);
const kvb_kernel *kvb_kernel_scanning(const kvb_kernel *kernel);
/* Has the model layers for it, and do layers that scan suit the kernel that runs them? Else why. */
bool kvb_kernel_fits(const kvb_kernel *kernel, const kvb_model *model, kvb_elem out_elem, char *why, size_t why_bytes);
/* The name of the kernel of the other layers; "": there are none, or it is a witness, which looks at no states. */
const char *kvb_kernel_beside(const kvb_kernel *kernel, const kvb_model *model);

/* The kernel with what it leaves to defaults (attend.h, scan.h) filled in: itself, or a static copy. NULL: too many. */
const kvb_kernel *kvb_kernel_complete(const kvb_kernel *kernel);

#endif
