/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels accept, found by asking their supports(). */
#ifndef KVB_KERNEL_SUPPORT_H
#define KVB_KERNEL_SUPPORT_H

#include "harness/selection/selection.h"

/* Called with each line of text: what is accepted (taken true), or what is declined, with the kernel's reason. 0: go
 * on. */
typedef int kvb_accepts_line(void *ctx, bool taken, const char *text);

/*
 * Describes the kernel along one axis after the other: formats, lengths of rows, masks, outputs, extras. All but the
 * axis asked about is that of a plain problem which the kernel takes. Lines have about 100 characters at most. 0, or
 * what line() returned.
 */
int kvb_accepts_describe(const kvb_kernel *kernel, const kvb_registry *registry, kvb_accepts_line *line, void *ctx);

/* The same in one line, as far as one problem of 128 channels says it: "reads f32; any mask; out f32; no softcap, no
 * sinks". */
void kvb_accepts_summary(const kvb_kernel *kernel, const kvb_registry *registry, char *text, size_t bytes);

/* Does the kernel read rows of these formats as they are stored, not staged as f32? Asked for a usual problem: one
 * query, 8 heads on 2 KV heads of 128 channels. */
bool kvb_kernel_reads(const kvb_kernel *kernel, const kvb_format *k, const kvb_format *v);

/* 0; -EINVAL if none of the selected kernels reads some of the pools: why names the kernels and pools that would work.
 */
int kvb_native_check(const kvb_selection *selection, const kvb_registry *registry, char *why, size_t why_bytes);

#endif
