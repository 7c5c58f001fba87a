/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in kernels, of layers that attend and of layers that scan, in the order in which they are listed. */
#ifndef KVB_KERNELS_H
#define KVB_KERNELS_H

#include "kernels/attend.h"
#include "kernels/scan.h"

enum { KVB_REFERENCE_HEADS = 8 }; /* most query heads for which the reference kernel decodes a row once */

extern const kvb_kernel kvb_kernel_reference;      /* plain scalar f32, two passes */
extern const kvb_kernel kvb_kernel_openblas;       /* scores and output as BLAS products over f32 rows */
extern const kvb_kernel kvb_kernel_flash;          /* one pass in vectors, each row read once for all queries */
extern const kvb_kernel kvb_kernel_flash_int8;     /* the same by products of integers */
extern const kvb_kernel kvb_kernel_flash_bf16;     /* the same by pairs of bf16 */
extern const kvb_kernel kvb_kernel_flash_f16;      /* the same by products and short sums of f16 */
extern const kvb_kernel kvb_kernel_flash_amx;      /* the same by AMX's tiles of bf16 */
extern const kvb_kernel kvb_kernel_witness;        /* says what each query saw */
extern const kvb_kernel kvb_kernel_scan_reference; /* scans in plain scalar f32, token by token */
extern const kvb_kernel kvb_kernel_scan;           /* scans in vectors, prompts by matrix products */

extern const kvb_kernel *const kvb_builtin_kernels[]; /* ends with NULL */

#endif
