/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels read which pools' formats by themselves, without rows being staged as f32 for them. */
#ifndef KVB_NATIVE_H
#define KVB_NATIVE_H

#include "harness/select.h"

/* Asked for a usual problem: one query, 8 heads on 2 KV heads of 128 channels. */
bool kvb_kernel_reads(const kvb_kernel *kernel, const kvb_format *k, const kvb_format *v);

/* 0; -EINVAL where some pools are read by none of the selected kernels: why names the kernels and pools that would
 * work. */
int kvb_native_check(const kvb_selection *selection, const kvb_parts *parts, char *why, size_t why_bytes);

#endif
