/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in kernels, in the order in which they are listed. */
#include "kernels/kernels.h"

const kvb_kernel *const kvb_builtin_kernels[] = {
    &kvb_kernel_reference,
    &kvb_kernel_openblas,
    &kvb_kernel_flash,
    &kvb_kernel_flash_int8,
    &kvb_kernel_flash_bf16,
    &kvb_kernel_flash_f16,
    &kvb_kernel_flash_amx,
    &kvb_kernel_witness,
    &kvb_kernel_scan_reference,
    &kvb_kernel_scan,
    NULL,
};
